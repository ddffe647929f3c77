"""The shards of a simulation, wherever they are: asked all at once, and made anew where one was lost.

A shard is what it was told: whatever it says follows from its inputs. So these are kept, and a shard that is lost is
made anew from its last snapshot and told again what it was told since. What it said then is known, and not asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from gossamer.runtimes.shard import Shard

Make = Callable[[int], Shard]
"""Makes the shard of a number."""
LOST = object()
"""In the place of what a shard says that was lost."""
_CHANGING = frozenset({"deliver", "advance", "end"})
"""Methods of shards that change them."""


class Crew(ABC):
    """Shards that are asked together.

    Parameters
    ----------
    shards : int
        How many there are.

    Attributes
    ----------
    restarts : int
        How often a shard was lost and made anew.
    """

    def __init__(self, shards: int) -> None:
        self.shards, self.restarts = shards, 0
        self._snapshots: list[bytes | None] = [None] * shards
        self._told: list[list[tuple[str, tuple[Any, ...]]]] = [[] for _ in range(shards)]

    def ask(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of all shards, each with arguments of its own; what they return, in order."""
        found = self._call(method, arguments)
        for number, given in enumerate(arguments):
            while found[number] is LOST:
                found[number] = self._again(number, method, given)
            if method in _CHANGING:
                self._told[number].append((method, given))
        return found

    def keep(self) -> None:
        """Keep a snapshot of each shard, where it can give one, in the place of all that it was told before."""
        for number, snapshot in enumerate(self.ask("snapshot", [()] * self.shards)):
            if snapshot is not None:
                self._snapshots[number], self._told[number] = snapshot, []

    def _again(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        self.restarts += 1
        self._make(number, self._snapshots[number])
        for told, given in self._told[number]:
            if self._one(number, told, given) is LOST:
                return LOST
        return self._one(number, method, arguments)

    @abstractmethod
    def _make(self, number: int, snapshot: bytes | None) -> None:
        """Make a shard, from a snapshot if there is one."""

    @abstractmethod
    def _one(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of one shard; `LOST` if the shard is."""

    def _call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of all shards; `LOST` from those that are."""
        return [self._one(number, method, given) for number, given in enumerate(arguments)]

    def close(self) -> None:
        """Let go of the shards."""
        return None


class Here(Crew):
    """Shards in this process, one after the other: for tests, and to see where others spend their time."""

    def __init__(self, shards: int, make: Make) -> None:
        super().__init__(shards)
        self._maker = make
        self._own: list[Shard] = [make(number) for number in range(shards)]

    def _make(self, number: int, snapshot: bytes | None) -> None:
        assert snapshot is None, "a shard here gives no snapshot"
        self._own[number] = self._maker(number)

    def _one(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(self._own[number], method)(*arguments)

    def close(self) -> None:
        for shard in self._own:
            shard.close()
