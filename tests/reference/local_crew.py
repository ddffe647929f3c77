"""Shards in this process, one after the other: it shows that a run can be one for shards, and saves no time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gossamer.runtimes.shards import Crew, Engine, Maker


@dataclass(frozen=True)
class Inline:
    """Shards in this process, one after the other: it shows that a run can be one for shards, and saves no time."""

    shards: int | None = None

    def of(self, shards: int) -> Engine:
        return replace(self, shards=shards)

    def crew(self, deal: Callable[[int], Maker], nodes: int, seed: int) -> Crew:
        shards = 1 if self.shards is None else self.shards
        return Here(shards, deal(shards), seed)


class Here(Crew):
    """Shards in this process."""

    def __init__(self, shards: int, maker: Maker, seed: int) -> None:
        super().__init__(shards)
        self._maker, self._seed = maker, seed
        self.own = [maker.shard(seed, number) for number in range(shards)]

    def _make(self, number: int) -> None:
        self.own[number] = self._maker.shard(self._seed, number)

    def _one(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(self.own[number], method)(*arguments)

    def close(self) -> None:
        for shard in self.own:
            shard.close()
