"""Shards in this process, one after the other: it shows that a run can be one for shards, and saves no time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gossamer.runtimes.shards import Crew, Maker


class Inline(Crew):
    """Shards in this process, one after the other."""

    def __init__(self, shards: int) -> None:
        self.shards = shards

    def start(self, maker: Maker, seed: int) -> None:
        self._maker, self._seed = maker, seed
        self.own = [maker(seed, number) for number in range(self.shards)]

    def ask(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [getattr(shard, method)(*given) for shard, given in zip(self.own, arguments, strict=True)]

    def close(self) -> None:
        for shard in self.own:
            shard.close()
