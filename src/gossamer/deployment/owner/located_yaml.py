"""YAML whose values know their lines, so that an error names the place in the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gossamer.bounded import read_text
from gossamer.errors import SpecError
from gossamer.strict_yaml import load_yaml

Key = tuple[str | int, ...]
"""Where a value stands: names of keys, and numbers of list items from 0."""


class Lines:
    """Lines of a file by key.

    Parameters
    ----------
    path : Path
        The file.
    lines : mapping of Key to int
        From 1; ``()`` is the whole file.
    """

    def __init__(self, path: Path, lines: dict[Key, int]) -> None:
        self.path, self._lines = path, lines

    def __contains__(self, key: Key) -> bool:
        return key in self._lines

    def of(self, key: Key) -> int:
        """The line of ``key``, or of the innermost section it is missing from."""
        while key not in self._lines:
            key = key[:-1]
        return self._lines[key]


def read_located(path: Path) -> tuple[Any, Lines]:
    """The content of a YAML file, and its lines.

    Raises
    ------
    SpecError
        If it cannot be read, is not YAML, or has a key twice.
    """
    try:
        content, node = load_yaml(read_text(path))
        return content, Lines(path, {(): 1} if node is None else dict(_located(node)))
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except SpecError as error:
        raise SpecError(f"{path}{', ' if str(error).startswith('line ') else ': '}{error}") from None


def _located(node: yaml.Node, key: Key = (), line: int | None = None) -> Iterator[tuple[Key, int]]:
    """Each key with its line; a value's is its key's."""
    yield key, node.start_mark.line + 1 if line is None else line
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _located(item, (*key, number))
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _located(value, (*key, name.value), name.start_mark.line + 1)
