"""Code blocks of pages of the documentation, and the distribution that the page on algorithms builds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.reference.outside import written

OWN = Path(__file__).resolve().parents[2] / "docs" / "algorithms" / "add-your-own.md"
MODULE = "my_fedasync"
"""Module of that page, in all Python blocks but the last, which are its tests."""


def blocks(page: Path, language: str) -> list[str]:
    """The contents of a page's code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def own_module() -> str:
    """Source of the module that the page builds."""
    return "\n\n".join(blocks(OWN, "python")[:-1])


def own_distribution(site: Path) -> dict[str, str]:
    """Write the page's distribution into ``site``, which is to go on the path; the ``project`` of its toml."""
    (text,) = blocks(OWN, "toml")
    told = tomllib.loads(text)
    assert told["tool"]["setuptools"]["py-modules"] == [MODULE]
    project: dict[str, str] = told["project"]
    points = told["project"]["entry-points"]["gossamer.algorithms"]
    written(site, project["name"], project["version"], points, **{MODULE: own_module()})
    return project
