"""Files that are written whole or not at all, most for their owner alone; and YAML that is read strictly.

Files for their owner alone are so whatever the umask is: there is no moment at which others could open them.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from gossamer.errors import SpecError


def for_owner(path: str, flags: int) -> int:
    """Open a file for `open`, as its ``opener``: what it makes is for its owner alone, and so is what it finds."""
    descriptor = os.open(path, flags, 0o600)
    try:
        found = os.fstat(descriptor)
        # What is no file of ours, such as /dev/null, is left as it is.
        if os.name == "posix" and stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def replaced(path: Path, *, durable: bool = False, opener: Callable[[str, int], int] = for_owner) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` at the end: whole, or not at all.

    Parameters
    ----------
    path : Path
        The file.
    durable : bool
        Whether it has to be on disk before anything else happens.
    opener : callable
        Of the new file, as for `open`: by whom it may be read.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        with open(beside, "wb", opener=opener) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if durable:
        _sync_names(path.parent)


def _sync_names(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_own(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Replace a file, whole or not at all; it is on disk when this returns, if it has to be ``durable``."""
    with replaced(path, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def make_own_folder(path: Path) -> None:
    """Make a folder that nobody else can look into; one that is there stays as it is."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Standard JSON, in which there is no NaN or infinity."""
    return json.dumps(value, indent=indent, allow_nan=False)


class StrictLoader(yaml.SafeLoader):
    """Plain YAML, in which a key given twice is an error, a key that is none, and a number in base 60."""


def _mapping(loader: StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: dict[Any, int] = {}
    for key_node, _ in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise SpecError(f"line {line}: expected a key, found a list or a mapping")
        key = loader.construct_object(key_node, deep=True)
        if key is None:
            written = key_node.value or "nothing before the colon"
            found = f"{written}, which YAML reads as null" if key_node.value == "~" else written
            raise SpecError(f"line {line}: expected a key, found {found}; write its name, or delete the line")
        if key in seen:
            raise SpecError(f"line {line}: {key!r} is given twice, first in line {seen[key]}; keep one")
        seen[key] = line
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


def _number(loader: StrictLoader, node: yaml.ScalarNode) -> Any:
    """A number; YAML 1.1 takes 1:30 for 90, in base 60, which nobody means."""
    if ":" in node.value:
        raise SpecError(
            f"line {node.start_mark.line + 1}: expected a number, found {node.value}, which YAML reads in base 60; "
            "write the number without a colon, or a text in quotes"
        )
    whole = node.tag == "tag:yaml.org,2002:int"
    return loader.construct_yaml_int(node) if whole else loader.construct_yaml_float(node)


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
StrictLoader.add_constructor("tag:yaml.org,2002:int", _number)
StrictLoader.add_constructor("tag:yaml.org,2002:float", _number)


def load_yaml(text: str) -> tuple[Any, yaml.Node | None]:
    """The content of a YAML text, and the node it was made of; None for both where the text says nothing.

    Raises
    ------
    SpecError
        If it is not YAML, or has a key twice; the message names the line.
    """
    try:
        loader = StrictLoader(text)
        node = loader.get_single_node()
        # Typed as if a document could not be empty.
        return (loader.construct_document(node), node) if node is not None else (None, None)
    except SpecError:
        raise
    # A number of thousands of digits and a date that is none are ValueErrors.
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SpecError(_not_yaml(error)) from None


def _not_yaml(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark else ""
    problem = "it is nested too deeply" if isinstance(error, RecursionError) else getattr(error, "problem", error)
    return f"{where}not YAML: {problem}"
