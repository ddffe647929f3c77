"""The rounds of federated units: how many, and on how many examples of each agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.algorithms.graph_federated.settings import Settings, drawn
from gossamer.errors import DataError, SpecError
from gossamer.privacy.unit_tasks import LocalQuery


@dataclass(frozen=True)
class Rounds:
    """The workload: T rounds, which no number of epochs or updates cuts short."""

    batches: Mapping[str, int]
    quota: int

    def of(self, name: str, update: int) -> int:
        return self.batches[name]

    def counts(self, name: str, updates: int) -> Mapping[int, int]:
        return {self.batches[name]: updates}

    def updates_in(self, epochs: float) -> Mapping[str, int]:
        raise SpecError("graph_federated ends after algorithm.rounds, the same for all servers; leave stop.epochs out")

    def check(self, updates: int) -> None:
        if not self.batches:
            raise DataError("graph_federated needs agents")


def workload(settings: Settings, shard_sizes: Mapping[str, int], seed: int) -> Rounds:
    """Mini-batches of each agent."""
    sizes = drawn(settings.batch_size, seed, "batch_size", len(shard_sizes))
    return Rounds(dict(zip(shard_sizes, sizes, strict=True)), settings.rounds)


def local_queries(
    settings: Settings, shard_sizes: Mapping[str, int], seed: int, clips: Mapping[str, float]
) -> dict[str, LocalQuery]:
    """Questions for the updates of each agent, by its clip and public coins."""
    steps = drawn(settings.local_steps, seed, "local_steps", len(shard_sizes))
    batches = workload(settings, shard_sizes, seed).batches
    return {
        name: LocalQuery(count, batches[name], settings.step_size, clips[name])
        for name, count in zip(shard_sizes, steps, strict=True)
    }
