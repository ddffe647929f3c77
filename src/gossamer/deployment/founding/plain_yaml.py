"""YAML of one reading: lists and mappings of texts, for files that are signed.

All scalars are texts (``no`` is a name, ``1`` a digit), no key stands twice and there are no aliases, so that two
readers cannot understand two things and a small file cannot grow. What is signed is the `canonical` form of the
content; comments and layout are free.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from gossamer.errors import SpecError
from gossamer.strict_yaml import load_texts


def load(content: bytes) -> Any:
    """The texts, lists and mappings that ``content`` says.

    Raises
    ------
    ValueError
        If it is not UTF-8, not YAML, or YAML of more than one reading.
    """
    try:
        return load_texts(content.decode("utf-8"))
    except SpecError as error:
        raise ValueError(f"not plain YAML: {error}") from None


def dump(document: dict[str, Any]) -> str:
    """``document`` as YAML for people; a text of several lines keeps its lines where YAML permits."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


def canonical(document: Any) -> bytes:
    """The bytes that stand for ``document``: JSON in ASCII, keys sorted, no spaces."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")


class _Dumper(yaml.SafeDumper):
    pass


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Readers turn every other kind of line end into \n, unless it is written as an escape.
    lines = text.split("\n")
    style = '"' if not all(line.isprintable() for line in lines) else "|" if len(lines) > 1 else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
