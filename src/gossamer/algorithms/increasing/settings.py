"""Settings of `increasing`, step sizes of local SGD in rounds of growing length, and rounds as all know them before.

References
----------
"Asynchronous federated learning with increasing sample sizes": section E.2.3 (`diminishing1`, `diminishing2`), sections
B.4 and C.2.2 (`theory`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from gossamer.algorithms.increasing.delay import (
    Delay,
    RoundsAhead,
    TheoryConstants,
    TheoryDelay,
    WithinTau,
    first_stall,
    steps_allowed,
)
from gossamer.algorithms.increasing.sizes import ConstantSizes, Counts, RoundSizes, Sizes, Weights, check_sizes
from gossamer.algorithms.optimizer import from_number
from gossamer.algorithms.problem import Terms
from gossamer.errors import SpecError
from gossamer.privacy.tasks import UPDATES, StepSizes
from gossamer.randomness import Stream
from gossamer.section import Composite, Section
from gossamer.vectors import ALL, Coordinates


class RoundRateSchedule(Section):
    """Base of the schedules."""

    def of_round(self, i: int, sizes: RoundSizes, name: str) -> StepSizes:
        """The step sizes of client ``name`` in round i."""
        raise NotImplementedError


class ConstantRate(RoundRateSchedule):
    """The same step size throughout."""

    schedule: Literal["constant"] = "constant"
    initial: PositiveFloat

    def of_round(self, i: int, sizes: RoundSizes, name: str) -> StepSizes:
        return StepSizes(self.initial)


class _Diminishing(RoundRateSchedule):
    """eta_t = eta_0/(1 + beta t^exponent), t counting the gradient computations of all clients.

    Attributes
    ----------
    initial, beta : float
        eta_0 and beta.
    exponent : float
        1 for strongly convex objectives, 0.5 for convex and non-convex ones.
    """

    initial: PositiveFloat
    beta: float = Field(ge=0)
    exponent: float = Field(default=1.0, gt=0, le=1)


class DiminishingInRound(_Diminishing):
    """eta_t = eta_0/(1 + beta t^exponent) with t = s_0 + ... + s_{i-1} + h s_i/s_ic at step h of the round."""

    schedule: Literal["diminishing1"] = "diminishing1"

    def of_round(self, i: int, sizes: RoundSizes, name: str) -> StepSizes:
        stride = sizes.total(i) / sizes.of(name, i)
        return StepSizes(self.initial, self.beta, self.exponent, start=float(sizes.before(i)), stride=stride)


class DiminishingByRound(_Diminishing):
    """eta_t = eta_0/(1 + beta t^exponent) with t = s_0 + ... + s_{i-1}, held over the round."""

    schedule: Literal["diminishing2"] = "diminishing2"

    def of_round(self, i: int, sizes: RoundSizes, name: str) -> StepSizes:
        return StepSizes(StepSizes(self.initial, self.beta, self.exponent, start=float(sizes.before(i))).first)


class TheoryRate(RoundRateSchedule, TheoryConstants):
    """eta_i = (12/mu)/(S + 2 M1 + sqrt((M0 + S)/ln(M0 + S))) with S = s_0 + ... + s_{i-1}, held over the round.

    That is 12/(mu (S + 2 tau(S))), with the delay function ``theory`` of the same constants.
    """

    schedule: Literal["theory"] = "theory"

    @cached_property
    def _tau(self) -> TheoryDelay:
        return TheoryDelay(**{field: getattr(self, field) for field in TheoryConstants.model_fields})

    def of_round(self, i: int, sizes: RoundSizes, name: str) -> StepSizes:
        done = sizes.before(i)
        return StepSizes(12 / (self.strong_convexity * (done + 2 * self._tau.at(done))))


RoundRate = Annotated[
    Annotated[ConstantRate | DiminishingInRound | DiminishingByRound | TheoryRate, Field(discriminator="schedule")],
    BeforeValidator(from_number),
]
"""A number, or a mapping with a ``schedule``."""


class Settings(Composite):
    """Settings of `increasing`.

    Attributes
    ----------
    nodes : int
        n, the number of clients; server and aggregators come on top.
    sizes : int or schedule
        s_i, gradients in round i: ``constant``, ``power``, ``log`` and ``theory`` of all clients together, ``privacy``
        of each client.
    weights : {"equal", "shards"} or list of float
        p_c, the share of each client in s_i; a list sums to 1.
    counts : {"rounded", "coins"}
        Whether s_ic is p_c s_i rounded, or drawn by coin flips.
    learning_rate : float or schedule
        eta, of one gradient.
    delay : rule
        Rule for when a client waits: ``rounds`` holds it back in rounds beyond k + d, ``tau`` by the age of its model.
    round_update : {"batch", "clipped_sum", "sequential"}, optional
        Kind of a round's update, and so what is proved. By default ``batch`` with noise, ``sequential`` without.
    receive : {"printed"}, optional
        Rule for what a client's model becomes when a newer one comes. By default that, less all of its own updates that
        it lacks; ``printed`` as the paper's ISRReceive has it, less those of the round at work alone.
    parts : int
        D: in each round a client computes and sends one of D parts of the model, scaled by D.
    aggregators : list of int
        Number of aggregators on each level between clients and server, from the server down.
    patience : float
        Seconds after which clients that others wait for are asked whether they are alive, then twice as many, and so on
        until one sends something.
    rounds : int, optional
        T, rounds of each client.
    gradients : int, optional
        K, of all clients together: the run has the least number of rounds with so many.
    """

    name: Literal["increasing"] = "increasing"
    nodes: int = Field(default=5, ge=1, le=1_000_000)
    sizes: Sizes = ConstantSizes(size=100)
    weights: Weights = "equal"
    counts: Counts = "rounded"
    learning_rate: RoundRate = ConstantRate(initial=0.01)
    delay: Delay = RoundsAhead()
    round_update: Literal["batch", "clipped_sum", "sequential"] | None = None
    receive: Literal["printed"] | None = None
    parts: int = Field(default=1, ge=1)
    aggregators: tuple[PositiveInt, ...] = ()
    patience: float = Field(default=60.0, ge=1e-3)
    rounds: int | None = Field(default=None, ge=1, le=10_000_000)
    gradients: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _aggregators_have_children(self) -> Self:
        levels = [*self.aggregators, self.nodes]
        if levels != sorted(levels):
            raise ValueError(
                f"aggregators: every level has at least as many as the one above, and at most as many as there are "
                f"nodes ({self.nodes}); found {list(self.aggregators)}"
            )
        return self

    @property
    def updates_per_node(self) -> int | None:
        """Rounds of each client, where the settings say it."""
        return self.rounds

    @property
    def sampling(self) -> str | None:
        """Sampling of a round's examples, where the algorithm says it: nothing is proved for drawing with
        replacement."""
        return "with_replacement" if self.round_update == "sequential" else None

    @property
    def terms(self) -> Terms:
        """What a round's update is decides about releases."""
        whole = self.round_update == "clipped_sum"
        return Terms(
            proved=self.round_update is None or UPDATES[self.round_update],
            sampling=self.sampling,
            sensitivity=2.0 if whole else 1.0,
            clipped_whole=whole,
            limit=self.gradients,
            rounds=True,
        )

    def decided(self, private: bool) -> Self:
        """Fill in the default that depends on whether there is noise."""
        if self.round_update is not None:
            return self
        return self.model_copy(update={"round_update": "batch" if private else "sequential"})


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
