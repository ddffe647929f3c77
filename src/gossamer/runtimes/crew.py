"""The shards of a simulation, wherever they are: asked all at once, and made anew where one was lost.

A shard is what it was told: whatever it says follows from its inputs. So these are kept, and a shard that is lost is
made anew and told again. What it said then is known, and not asked for. Now and then a snapshot of each shard takes the
place of all that it was told before; the machine's clock decides only when, and nothing that happens.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Protocol

from gossamer.errors import CallerError, RunWarning, counted
from gossamer.runtimes.shard import Shard

# Times at which the state of a run is kept: by the machine's clock, and for little of its time.

SHARE = 0.01
"""Most of the time of a run that keeping it takes."""


def next_due(every: float, began: float) -> float:
    """Return when to keep the state again, on the machine's clock (`time.monotonic`).

    Parameters
    ----------
    every : float
        Seconds from now on at least.
    began : float
        Time when it was begun to be kept this time.
    """
    now = monotonic()
    return now + max(every, (now - began) / SHARE)


LOST = object()
"""In the place of what a shard says that was lost."""
EVERY = 10.0
"""Seconds from one snapshot of the shards to the next at least: a shard that is lost does no more than these again."""
_CHANGING = frozenset({"set_back", "deliver", "advance", "end"})
"""Methods of shards that change them."""
_TRIES = 3  # to have one answer of a shard that is lost again and again


class Maker(Protocol):
    """Makes shards of one run. It can be pickled, and knows no secret."""

    def shard(self, seed: int, number: int) -> Shard:
        """Make the shard of a number; ``seed`` is that of all noise."""
        ...


class Engine(Protocol):
    """A place for shards."""

    @property
    def shards(self) -> int | None:
        """Number that a run is dealt out to; None is one for each core, as far as there are nodes."""
        ...

    def of(self, shards: int) -> Engine:
        """Return the same place, for so many shards."""
        ...

    def crew(self, deal: Callable[[int], Maker], nodes: int, seed: int) -> Crew:
        """Make the shards of a run of so many ``nodes``, which ``deal`` deals out to so many shards.

        Raises
        ------
        CallerError
            If the place is not there, or there are more shards than nodes.
        """
        ...


class Crew(ABC):
    """Shards that are asked together.

    Parameters
    ----------
    shards : int
        Number of them.

    Attributes
    ----------
    restarts : int
        Number of times that a shard was lost and made anew.
    due : float
        Time when a snapshot is taken next, on the machine's clock (`time.monotonic`).
    """

    def __init__(self, shards: int) -> None:
        self.shards, self.restarts = shards, 0
        self.due = monotonic() + EVERY
        self._told: list[list[tuple[str, tuple[Any, ...]]]] = [[] for _ in range(shards)]

    def ask(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of all shards, each with arguments of its own; what they return, in order."""
        found = self._call(method, arguments)
        for number, given in enumerate(arguments):
            for _ in range(_TRIES):
                if found[number] is LOST:
                    found[number] = self._again(number, method, given)
            if found[number] is LOST:
                raise CallerError(
                    f"shard {number} was lost {_TRIES} times at the same place, as happens where memory runs out; take "
                    "fewer --shards, or machines with more memory"
                )
            if method in _CHANGING:
                self._told[number].append((method, given))
        return found

    def keep(self) -> None:
        """Take snapshots of the shards if they are due; they are between two windows."""
        if monotonic() >= self.due:
            self.snapshots()

    def snapshots(self) -> list[bytes | None]:
        """Return a snapshot of each shard, which takes the place of all that it was told; None where it has none."""
        began = monotonic()
        found: list[bytes | None] = self.ask("kept", [()] * self.shards)
        self.due = next_due(EVERY, began)
        for number, snapshot in enumerate(found):
            if snapshot is not None:
                self._told[number] = [("set_back", (snapshot,))]
        return found

    def _again(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        self.restarts += 1
        told = counted(len(self._told[number]), "turn")
        warnings.warn(
            f"shard {number} was lost; it is made anew, and told again what it was told since its last snapshot "
            f"({told})",
            RunWarning,
            stacklevel=2,
        )
        self._make(number)
        for earlier, given in self._told[number]:
            if self._one(number, earlier, given) is LOST:
                return LOST
        return self._one(number, method, arguments)

    def set_back(self, snapshots: Sequence[bytes]) -> None:
        """Set shards that have not begun back to a moment of which these are the `snapshots`.

        Raises
        ------
        ValueError
            If they are of another number of shards.
        """
        if len(snapshots) != self.shards:
            raise ValueError(f"expected snapshots of {self.shards} shards, found {len(snapshots)}")
        self.ask("set_back", [(snapshot,) for snapshot in snapshots])

    @abstractmethod
    def _make(self, number: int) -> None:
        """Make a shard, in the place of one that is lost."""

    @abstractmethod
    def _one(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of one shard; `LOST` if the shard is."""

    def _call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of all shards; `LOST` from those that are."""
        return [self._one(number, method, given) for number, given in enumerate(arguments)]

    def close(self) -> None:
        """Let go of the shards."""
        return None
