"""YAML that is read strictly, and no further than a bound: of specs, policies, and documents that are signed.

A key stands once and is a name; a number is what it looks like; nesting, size and what aliases stand for have bounds,
so that no small file keeps a reader busy or fills its memory. Of documents that are signed all scalars are texts
(``no`` is a name, ``1`` a digit) and there are no aliases, so that two readers cannot understand two things: what is
signed is the `canonical` form of their content, and comments and layout are free.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gossamer.errors import SpecError, counted, failing_as
from gossamer.files import MOST_TEXT, in_bytes, read_text

MOST_DEPTH = 60
"""Lists and mappings in one another; no setting is nested by more than ten."""

MOST_VALUES = 100_000
"""Keys, values and items, where each alias counts as all that it stands for."""


class _Bounded(yaml.parser.Parser, yaml.composer.Composer):
    """Makes nodes of at most `MOST_DEPTH` and `MOST_VALUES`."""

    aliases = True
    """Whether a value may be said to be that of another place."""

    def __init__(self, text: str) -> None:
        if len(text) > MOST_TEXT:
            raise SpecError(f"expected at most {in_bytes(MOST_TEXT)} of YAML, found {in_bytes(len(text))}")
        self._depth = self._values = 0
        self._sizes: dict[int, int] = {}
        super().__init__(text)  # type: ignore[call-arg]

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node, and count what it stands for."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        is_alias, before = isinstance(event, yaml.AliasEvent), self._values
        if is_alias and not self.aliases:
            raise _problem(event, "expected no alias, found one; write what it stands for")
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise _problem(event, f"it is nested too deeply, by more than {MOST_DEPTH}")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias and id(node) not in self._sizes:
            raise _problem(event, "an alias stands for what it is in; write what is meant")
        self._values += self._sizes[id(node)] if is_alias else 1
        if self._values > MOST_VALUES:
            more = ", counting what aliases stand for" if self.anchors else ""
            raise _problem(event, f"expected at most {counted(MOST_VALUES, 'value')}{more}, found more")
        if not is_alias:
            self._sizes[id(node)] = self._values - before
        return node


class StrictLoader(_Bounded, yaml.SafeLoader):
    """Plain YAML, in which a key given twice is an error, a key that is none, and a number that is another one."""


class TextLoader(_Bounded, yaml.BaseLoader):
    """YAML of one reading: lists and mappings of texts, no key twice, no alias."""

    aliases = False


def load_yaml(text: str) -> Any:
    """The content of a YAML text; None where it says nothing.

    Raises
    ------
    SpecError
        If it is not YAML, has a key twice or goes beyond a bound; the message names the line.
    """
    return _loaded(StrictLoader, text)[0]


def load_texts(text: str) -> Any:
    """The content of a YAML text in which all scalars are texts.

    Raises
    ------
    SpecError
        As `load_yaml`, and for an alias.
    """
    return _loaded(TextLoader, text)[0]


def _loaded(kind: type[StrictLoader] | type[TextLoader], text: str) -> tuple[Any, yaml.Node | None]:
    try:
        loader = kind(text)
        node = loader.get_single_node()
        # Typed as if a document could not be empty.
        return (loader.construct_document(node), node) if node is not None else (None, None)
    except SpecError:
        raise
    # A number of thousands of digits and a date that is none are ValueErrors.
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SpecError(_not_yaml(error)) from None


Key = tuple[str | int, ...]
"""Place of a value: names of keys, and numbers of list items from 0."""


class Lines:
    """Lines of a file by key.

    Parameters
    ----------
    path : Path
        The file.
    lines : mapping of Key to int
        Number of the line of each key, from 1; ``()`` is the whole file.
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
    """The content of a YAML file, and its lines, so that an error can name the place.

    Raises
    ------
    SpecError
        If it cannot be read, is not YAML, or has a key twice.
    """
    with failing_as(SpecError, f"{path}: cannot be read: "):
        text = read_text(path)
    try:
        content, node = _loaded(StrictLoader, text)
        return content, Lines(path, {(): 1} if node is None else dict(_located(node)))
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


def canonical(document: Any) -> bytes:
    """The bytes that stand for ``document``: JSON in ASCII, keys sorted, no spaces."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")


def dump_texts(document: dict[str, Any]) -> str:
    """``document`` as YAML for people; a text of several lines keeps its lines where YAML permits."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


class _Dumper(yaml.SafeDumper):
    """Writes texts so that `load_texts` reads the same ones."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Readers turn every other kind of line end into \n, unless it is written as an escape.
    lines = text.split("\n")
    style = '"' if not all(line.isprintable() for line in lines) else "|" if len(lines) > 1 else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _not_yaml(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark else ""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
    return f"{where}not YAML: {problem}"


def _problem(at: Any, what: str) -> SpecError:
    return SpecError(f"line {_line(at)}: {what}")


def _line(at: Any) -> int:
    return int(at.start_mark.line) + 1


def _mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: dict[Any, int] = {}
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise _problem(key_node, "expected a key, found a list or a mapping")
        key = loader.construct_object(key_node, deep=True)
        if key is None:
            written = key_node.value or "nothing before the colon"
            found = f"{written}, which YAML reads as null" if key_node.value == "~" else written
            raise _problem(key_node, f"expected a key, found {found}; write its name, or delete the line")
        if isinstance(key, bool):
            found = f"{key_node.value}, which YAML reads as {str(key).lower()}"
            raise _problem(key_node, f'expected a key, found {found}; write "{key_node.value}", in quotes')
        if key in seen:
            raise _problem(key_node, f"{_short(key)} is given twice, first in line {seen[key]}; keep one")
        seen[key] = _line(key_node)
    if isinstance(loader, StrictLoader):
        loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)  # type: ignore[no-any-return]


def _number(loader: StrictLoader, node: yaml.ScalarNode) -> Any:
    """A number; YAML 1.1 takes 1:30 for 90, in base 60, and 010 for 8, which nobody means."""
    whole, written = node.tag == "tag:yaml.org,2002:int", node.value
    sixty = ":" in written
    if sixty or (whole and re.match(r"[-+]?0[0-9_]", written)):
        base, what = (60, "a colon") if sixty else (8, "the first 0")
        said = f"expected a number, found {_short(written)}, which YAML reads in base {base}"
        raise _problem(node, f"{said}; write the number without {what}, or a text in quotes")
    if whole and len(written) > _MOST_DIGITS:
        raise _problem(node, f"expected a number, found one of {len(written)} digits; give one that numbers can be")
    return loader.construct_yaml_int(node) if whole else loader.construct_yaml_float(node)


def _text(loader: StrictLoader, node: yaml.ScalarNode) -> str:
    if "\0" in node.value:
        raise _problem(node, "expected a text, found one with a null character, which no name may have; correct it")
    return loader.construct_yaml_str(node)


_MOST_DIGITS = 400
"""Of a whole number; floats end at 1.8e308."""


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str) and ":" not in value else str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


for _kind in (StrictLoader, TextLoader):
    _kind.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
StrictLoader.add_constructor("tag:yaml.org,2002:str", _text)
StrictLoader.add_constructor("tag:yaml.org,2002:int", _number)
StrictLoader.add_constructor("tag:yaml.org,2002:float", _number)
