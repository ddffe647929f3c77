"""Contents of the rounds of a run of `increasing`, as everybody knows them before the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gossamer.algorithms.increasing.delay import WithinTau, first_stall, steps_allowed
from gossamer.algorithms.increasing.settings import Settings
from gossamer.algorithms.increasing.sizes import RoundSizes, check_sizes
from gossamer.errors import SpecError
from gossamer.privacy.tasks import StepSizes
from gossamer.randomness import Stream
from gossamer.vectors import ALL, Coordinates

MOST_STEPS = 10**7
"""Of a client in a round: they are held in memory."""


@dataclass(frozen=True)
class RoundWorkload:
    """Workload of each client: s_ic examples in round i."""

    settings: Settings
    rounds: RoundSizes

    @cached_property
    def quota(self) -> int | None:
        """Rounds of each client, where the settings bound them."""
        settings = self.settings
        limits = [settings.rounds] if settings.rounds is not None else []
        if settings.gradients is not None:
            limits.append(self.rounds.rounds_for(settings.gradients))
        return min(limits, default=None)

    def of(self, name: str, update: int) -> int:
        return self.rounds.of(name, update)

    def counts(self, name: str, updates: int) -> Mapping[int, int]:
        return self.rounds.tally(name, updates)

    def updates_in(self, epochs: float) -> Mapping[str, int]:
        """The rounds in which all clients together go over their examples so often."""
        total = round(epochs * float(np.sum(self.rounds.examples)), 6)
        return dict.fromkeys(self.rounds.names, self.rounds.rounds_for(int(np.ceil(total))))

    def check(self, updates: int) -> None:
        """Raise SpecError unless so many rounds can be made: within shards and memory, at step sizes above 0, and
        nobody waits for ever."""
        for i in (0, updates - 1):
            self._check_round(i)
        if self.settings.sampling is None:
            check_sizes(self.rounds, updates)
        delay = self.settings.delay
        stall = first_stall(delay.tau, self.rounds, updates) if isinstance(delay, WithinTau) else None
        if stall is not None:
            raise SpecError(
                f"delay: from round {stall} on every client waits for ever, because its {self.rounds.total(stall)} "
                f"gradients are more than tau permits; take smaller sizes, a larger tau, or the rule rounds"
            )

    def _check_round(self, i: int) -> None:
        largest = max(self.rounds.sizes(i))
        if largest > MOST_STEPS:
            raise SpecError(
                f"algorithm.sizes: a client takes at most {MOST_STEPS:,} steps in a round, "
                f"found {largest:,} in round {i}"
            )
        first = self.rounds.names[0]
        rates = self.settings.learning_rate.of_round(i, self.rounds, first)
        if not rates.at(np.array(self.rounds.of(first, i) - 1)) > 0:
            raise SpecError(f"algorithm.learning_rate: step sizes must stay above 0, found 0 in round {i}; lower beta")


def workload(settings: Settings, shard_sizes: Mapping[str, int], seed: int) -> RoundWorkload:
    """Return how much each client computes.

    Raises
    ------
    SpecError
        If sizes, weights and shards do not go together.
    """
    return RoundWorkload(settings, RoundSizes(settings.sizes, settings.weights, settings.counts, shard_sizes, seed))


class PublicRounds:
    """Contents of clients' rounds, as all know them."""

    def __init__(self, settings: Settings, sizes: RoundSizes, seed: int) -> None:
        self.settings, self.sizes = settings, sizes
        self.update: str = settings.decided(private=True).round_update or "batch"
        self.keeps_own = settings.receive is None
        self._parts = {name: Stream(seed, name, "part") for name in sizes.names}

    def steps(self, name: str, i: int) -> int:
        return self.sizes.of(name, i)

    def step_sizes(self, name: str, i: int) -> StepSizes:
        return self.settings.learning_rate.of_round(i, self.sizes, name)

    def where(self, name: str, i: int) -> Coordinates:
        """One of D parts, drawn by public coins; all of the model for D = 1, and from an aggregator."""
        parts = self.settings.parts
        if parts == 1 or name not in self._parts:
            return ALL
        return Coordinates(int(self._parts[name].at(i).integers(parts)), parts)

    def possible(self, name: str, i: int) -> bool:
        return self.settings.sampling is not None or self.sizes.of(name, i) <= self.sizes.shard_sizes[name]

    def allowed(self, name: str, i: int, k: int) -> int:
        return steps_allowed(self.settings.delay, self.sizes, name, i, k)
