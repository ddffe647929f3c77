"""YAML whose values know their lines, so that an error names the place in the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gossamer.errors import SpecError
from gossamer.experiment.reading import not_yaml

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
        text = path.read_text(encoding="utf-8")
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        lines: dict[Key, int] = dict(_located(path, node)) if node is not None else {(): 1}
        # Typed as if a document could not be empty.
        return loader.construct_document(node) if node is not None else None, Lines(path, lines)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SpecError(f"{path}: cannot be read: {reason}") from None
    except SpecError:
        raise
    # A number of thousands of digits and a date that is none are ValueErrors.
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        between = ", " if getattr(error, "problem_mark", None) else ": "
        raise SpecError(f"{path}{between}{not_yaml(error)}") from None


def _located(path: Path, node: yaml.Node, key: Key = (), line: int | None = None) -> Iterator[tuple[Key, int]]:
    """Each key with its line; a value's is its key's."""
    yield key, node.start_mark.line + 1 if line is None else line
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _located(path, item, (*key, number))
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for name, value in node.value:
            here = name.start_mark.line + 1
            if not isinstance(name, yaml.ScalarNode):
                raise SpecError(f"{path}, line {here}: expected a key, found a list or a mapping")
            if name.value in seen:
                first = seen[name.value]
                raise SpecError(f"{path}, line {here}: {name.value!r} is given twice, first in line {first}; keep one")
            seen[name.value] = here
            yield from _located(path, value, (*key, name.value), here)
