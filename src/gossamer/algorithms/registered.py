"""Algorithms of other distributions, which register them by entry points of the group ``gossamer.algorithms``.

    [project.entry-points."gossamer.algorithms"]
    mean = "mean_of_gradients:ALGORITHM"

To import an entry point is to run its code. So its distribution and its source are found without importing it, and
who decides whether it may run can look at them first. Nothing is looked up before a name is asked for that Gossamer
does not have itself.
"""

from __future__ import annotations

import hashlib
import re
import sys
import typing
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from gossamer.algorithms.interface import Algorithm
from gossamer.errors import SpecError

GROUP = "gossamer.algorithms"
_UNREAD = re.compile(r"(^|/)(__pycache__|[^/]+\.(dist|egg)-info|\.\.)/|\.(pyc|pth)$|^__editable__")
"""Files of a distribution that are not its source: what is compiled, metadata, what lies outside, paths to sources."""


@dataclass(frozen=True)
class Registered:
    """An algorithm that a distribution registers.

    Attributes
    ----------
    name : str
        Of the algorithm.
    distribution, version : str
        Who registers it; the name of the distribution in its normal form, such as ``mean-of-gradients``.
    point : EntryPoint
        Where it is.
    """

    name: str
    distribution: str
    version: str
    point: EntryPoint = field(repr=False)

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"

    @cached_property
    def source(self) -> str:
        """SHA-256 of the distribution's files and of the package that would be imported, in hexadecimal digits.

        Raises
        ------
        SpecError
            If no file of it can be read.
        """
        try:
            files = {name: path.read_bytes() for name, path in _files(self.point)}
        except OSError as error:
            raise self._broken(f"its source cannot be read: {error.strerror}: {error.filename}") from None
        if not files:
            raise self._broken(f"no source of {self.point.module} is found")
        found = hashlib.sha256()
        for name, content in sorted(files.items()):
            for part in (name.encode(), content):
                found.update(len(part).to_bytes(8, "big"))
                found.update(part)
        return found.hexdigest()

    @property
    def code(self) -> str:
        """Reference by which an owner allows exactly this code."""
        return f"{self.distribution}=={self.version}@sha256:{self.source}"

    def is_allowed(self, modules: Collection[str]) -> bool:
        """Whether ``modules`` has the code, or its distribution in this version or in any."""
        names = (self.distribution, f"{self.distribution}=={self.version}")
        return any(name in modules for name in names) or self.code in modules

    def load(self) -> Algorithm[Any]:
        """Import the algorithm, which runs its code; once in a process.

        Raises
        ------
        SpecError
            If that fails, or there is no algorithm of this name.
        """
        if self.name in _LOADED:
            return _LOADED[self.name][1]
        _ = self.source  # of what is imported, before anything of it can run
        try:
            found = self.point.load()
        except Exception as error:  # whatever others' code does
            raise self._broken(f"{self.point.value} cannot be imported: {type(error).__name__}: {error}") from None
        if not isinstance(found, Algorithm):
            raise self._broken(f"{self.point.value} is of type {type(found).__name__}, expected an Algorithm")
        known = found.Settings.model_fields.get("name")
        if known is None or self.name not in typing.get_args(known.annotation):
            raise self._broken(f'the settings of {self.point.value} have no name: Literal["{self.name}"]')
        _LOADED[self.name] = self, found
        return found

    def _broken(self, why: str) -> SpecError:
        return SpecError(f"{self.name!r} is registered by {self}, and {why}; mend that distribution, or uninstall it")


_LOADED: dict[str, tuple[Registered, Algorithm[Any]]] = {}
"""Algorithms whose code has run, by name. It stays what it was until the process ends."""


def registered() -> list[Registered]:
    """All that are registered, by name; nothing of them is imported."""
    found = [Registered(point.name, *_made_by(point), point) for point in entry_points(group=GROUP)]
    return sorted(found, key=lambda one: (one.name, one.distribution))


def loaded() -> list[Algorithm[Any]]:
    """Those whose code has run."""
    return [algorithm for _, algorithm in _LOADED.values()]


def find(name: str, own: Collection[str]) -> Registered | None:
    """The algorithm that is registered as ``name``, not imported; None if there is none.

    Parameters
    ----------
    name : str
        None of Gossamer's own.
    own : collection of str
        Names of Gossamer's own algorithms, which nobody else may take.

    Raises
    ------
    SpecError
        If several register it, or who does takes another name that is taken.
    """
    if name in _LOADED:
        return _LOADED[name][0]
    everything = registered()
    found = [one for one in everything if one.name == name]
    for one in found:
        if (problem := clash(one, everything, own)) is not None:
            raise SpecError(problem)
    return found[0] if found else None


def clash(one: Registered, everything: Collection[Registered], own: Collection[str]) -> str | None:
    """Find why an algorithm is refused for the names that its distribution takes, in a line; None if it is not."""
    others = [other for other in everything if other.name == one.name and other.point != one.point]
    if others:
        return f"{one.name!r} is registered by {one} and by {others[0]}; uninstall one of them"
    for other in everything:
        if other.distribution == one.distribution and other.name in own:
            return f"{other.name!r} is an algorithm of gossamer itself, and {one} registers it too; uninstall {one}"
    return None


def _made_by(point: EntryPoint) -> tuple[str, str]:
    """Name and version of an entry point's distribution."""
    if point.dist is None:
        return "unknown", "0"
    return re.sub(r"[-_.]+", "-", point.dist.name).lower(), point.dist.version


def _files(point: EntryPoint) -> Iterator[tuple[str, Path]]:
    """Source files, by their names below the folder that would be on the path."""
    for file in (point.dist.files or ()) if point.dist is not None else ():
        if not _UNREAD.search(file.as_posix()):
            yield file.as_posix(), Path(str(file.locate()))
    spec, depth = _spec_of(point.module)
    if spec is None or spec.origin is None:
        return
    origin = Path(spec.origin)
    package = spec.submodule_search_locations is not None
    root = origin.parents[depth if package else depth - 1]
    for path in sorted(origin.parent.rglob("*")) if package else [origin]:
        name = path.relative_to(root).as_posix()
        if path.is_file() and not _UNREAD.search(name):
            yield name, path


def _spec_of(module: str) -> tuple[ModuleSpec | None, int]:
    """First package with code on the way to a module, or the module, and how deep it is; nothing is imported."""
    spec, path = None, None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        finders = (finder.find_spec(name, path) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((found for found in finders if found is not None), None)
        if spec is None or spec.origin is not None:
            return spec, depth
        path = list(spec.submodule_search_locations or ())  # a namespace, which has no code
    return spec, len(parts)
