"""The documentation's site: it has every page, its reference has every name, and nothing is fetched."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

import gossamer as gs

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


class Loader(yaml.SafeLoader):
    """Reads `mkdocs.yml`, whose tags name functions of other libraries."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
Loader.add_constructor("!ENV", lambda loader, node: None)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def leaves(value: Any) -> list[str]:
    """Pages of a part of the navigation."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, str) else [leaf for item in items for leaf in leaves(item)]


def test_the_navigation_names_pages_that_there_are_once() -> None:
    pages = leaves(SITE["nav"])
    assert len(pages) == len({*pages}) > 50
    assert [page for page in pages if not (DOCS / page).is_file() and not (ROOT / page).is_file()] == []


NAMED = re.compile(r"^::: ([\w.]+)$(?:\n    options: \{heading: (\w+),)?", re.MULTILINE)


def test_the_reference_has_every_name_once() -> None:
    found = [
        entry for page in sorted((DOCS / "reference").glob("*.md")) for entry in NAMED.findall(page.read_text("utf-8"))
    ]
    names = [heading or place.rpartition(".")[2] for place, heading in found]
    assert sorted(names) == sorted({*gs.__all__} - {"__version__"})
    for (place, _), name in zip(found, names, strict=True):
        module, _, there = place.rpartition(".")
        assert getattr(importlib.import_module(module), there) is getattr(gs, name)


def test_the_citation_is_one_and_of_this_version(tmp_path: Path) -> None:
    content = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    citation = yaml.safe_load(content)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (citation["version"], citation["license"]) == (gs.__version__, project["license"])
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.citation-file-format"]
    wrong = tmp_path / "CITATION.cff"
    wrong.write_text(content.replace("type: software", "type: program"), encoding="utf-8")
    for path, status in ((ROOT / "CITATION.cff", 0), (wrong, 1)):
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr


# Built


class Fetched(HTMLParser):
    """Addresses that a browser asks for when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get("src") if tag != "link" else given.get("href")
        if address is not None:
            self.found.append(address)


def built(config: Path, site: Path, reports: bool) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(site)]
    env = {**os.environ, "SITE_REPORTS": str(reports).lower(), "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=config.parent, env=env)


@pytest.mark.slow
def test_the_site_is_built_and_fetches_nothing(tmp_path: Path) -> None:
    done = built(ROOT / "mkdocs.yml", tmp_path / "site", reports=True)
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        parser = Fetched()
        parser.feed(page.read_text(encoding="utf-8"))
        assert [address for address in parser.found if re.match(r"(\w+:)?//", address)] == []
    for style in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", style.read_text(encoding="utf-8"))
    assert "Guarantee" in (tmp_path / "site" / "examples" / "reports" / "wards-gossip.html").read_text(encoding="utf-8")
    reference = (tmp_path / "site" / "reference" / "running.html").read_text(encoding="utf-8")
    assert 'id="gossamer.run"' in reference
    assert "Run an experiment in the simulator" in reference
    algorithms = (tmp_path / "site" / "reference" / "algorithms.html").read_text(encoding="utf-8")
    assert algorithms.count("the number of nodes") >= 2


@pytest.mark.slow
@pytest.mark.parametrize("link", ["no-such-page.md", "glossary.md#no-such-heading", "../examples/no-such.yaml"])
def test_a_link_to_nothing_fails(tmp_path: Path, link: str) -> None:
    for name in ("docs", "examples", "deploy", "experiments", "changelog.d"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.png", "*.json", "__pycache__"))
    for name in ("benchmarks", "src", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("mkdocs.yml", "CONTRIBUTING.md", "CHANGELOG.md", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    page = tmp_path / "docs" / "quickstart.md"
    page.write_text(page.read_text(encoding="utf-8") + f"\n[nothing]({link})\n", encoding="utf-8")
    done = built(tmp_path / "mkdocs.yml", tmp_path / "site", reports=False)
    assert done.returncode != 0
    assert link.rpartition("/")[2].partition("#")[0] in done.stderr + done.stdout
