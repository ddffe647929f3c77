"""Algorithms of other distributions, which register them by entry points of the group ``gossamer.algorithms``.

    [project.entry-points."gossamer.algorithms"]
    mean = "mean_of_gradients:ALGORITHM"

How they are found, hashed and allowed is in `gossamer.registering`.
"""

from __future__ import annotations

import typing
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from gossamer.algorithms.interface import Algorithm
from gossamer.registering import Registered as AnyRegistered
from gossamer.registering import clash as clash
from gossamer.registering import one_of, registered_in

GROUP = "gossamer.algorithms"


@dataclass(frozen=True)
class Registered(AnyRegistered):
    """An algorithm that a distribution registers."""

    def load(self) -> Algorithm[Any]:
        """Import the algorithm, which runs its code; once in a process.

        Raises
        ------
        SpecError
            If that fails, or there is no algorithm of this name.
        """
        if self.name in _LOADED:
            return _LOADED[self.name][1]
        found = self.imported()
        if not isinstance(found, Algorithm):
            raise self.broken(f"{self.point.value} is of type {type(found).__name__}, expected an Algorithm")
        known = found.Settings.model_fields.get("name")
        if known is None or self.name not in typing.get_args(known.annotation):
            raise self.broken(f'the settings of {self.point.value} have no name: Literal["{self.name}"]')
        _LOADED[self.name] = self, found
        return found


_LOADED: dict[str, tuple[Registered, Algorithm[Any]]] = {}
"""Algorithms whose code has run, by name. It stays what it was until the process ends."""


def registered() -> list[Registered]:
    """All that are registered, by name; nothing of them is imported."""
    return registered_in(GROUP, Registered)


def loaded() -> list[Algorithm[Any]]:
    """Those whose code has run."""
    return [algorithm for _, algorithm in _LOADED.values()]


def find(name: str, own: Collection[str]) -> Registered | None:
    """The algorithm that is registered as ``name``, not imported; None if there is none; see `registering.one_of`."""
    if name in _LOADED:
        return _LOADED[name][0]
    return one_of(registered(), name, own, "an algorithm")
