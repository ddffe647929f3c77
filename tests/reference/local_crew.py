"""Shards in this process, one after the other: it shows that shards can compute for a run, and saves no time."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from gossamer.runtimes.ray_shards import Maker, RayShards, Seeds
from gossamer.sides.sums import Inputs


class Inline(RayShards):
    """Shards in this process, one after the other; all that goes to one and comes from it is pickled, as between two.

    Attributes
    ----------
    own : list of dict
        What computes on each, by its kind.
    asked : int
        Calls so far.
    """

    def __init__(self, shards: int) -> None:
        super().__init__(shards)
        self.asked = 0
        self.own: list[dict[type, Any]] = []

    def start(self, maker: Maker, seeds: Seeds) -> None:
        made = pickle.dumps(maker)
        assert all(str(seed).encode() not in made for seed in seeds if seed is not None)
        self.own = [{type(one): one for one in pickle.loads(made)(seeds)} for _ in range(self.shards)]

    def ask(self, kind: type, method: str, parts: Sequence[Sequence[Inputs]]) -> list[Sequence[Any]]:
        self.asked += len(parts)
        return [
            pickle.loads(pickle.dumps(getattr(own[kind], method)(pickle.loads(pickle.dumps(part)))))
            for own, part in zip(self.own, parts, strict=False)
        ]

    def close(self) -> None:
        self.own.clear()
