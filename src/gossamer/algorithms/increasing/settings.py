"""Settings of `increasing`, its rules of waiting, its step sizes, and its rounds as all know them before.

**The rule of waiting.** A delay function tau says how old the models may be that gradients are computed at. All
gradient computations are numbered, round after round; the model of computation t must include those numbered 0 to
t - tau(t) - 1.

The paper's client compares, before step h of round i, with a global model that includes the rounds below k,

    t_glob  = s_0 + ... + s_i - (s_ic - h) - 1
    t_delay = s_k + ... + s_i - (s_ic - h)

and waits unless t_delay < tau(t_glob). Why that is enough: however a round's computations are numbered, the client's
s_ic - h - 1 later steps come after step h, so that t <= t_glob + 1. As neither tau nor t - tau(t) ever falls,

    t - tau(t) <= t_glob + 1 - tau(t_glob + 1) <= t_glob + 1 - tau(t_glob) < t_glob + 1 - t_delay = s_0 + ... + s_{k-1},

so the rounds below k hold all of 0, ..., t - tau(t) - 1.

Or it waits while i > k + d, which keeps within tau from round d + 1 on if

    tau(s_0 + ... + s_i) >= s_{i-d} + ... + s_i        for i >= d + 1;        (2)

before that everybody may compute.

References
----------
"Asynchronous federated learning with increasing sample sizes": section 2, Algorithm 1 and equation (2); sections B.1 to
B.4 and C.2.2 (`theory`). B.1 has t <= t_glob, which is one too few for steps counted from 0; as above, there is that
much room. Section E.2.3 (`diminishing1`, `diminishing2`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from gossamer.algorithms.increasing.sizes import (
    ConstantSizes,
    Counts,
    RoundSizes,
    Sizes,
    TheorySizes,
    Weights,
    check_sizes,
    check_theory,
)
from gossamer.algorithms.optimizer import from_number
from gossamer.algorithms.plan import Terms
from gossamer.errors import SpecError
from gossamer.privacy.tasks import UPDATES, StepSizes
from gossamer.randomness import Stream
from gossamer.section import Composite, Section
from gossamer.vectors import ALL, Coordinates


class TheoryConstants(Section):
    """Constants that the strongly convex theory is computed from.

    Attributes
    ----------
    m, d : int
        Constants of the sizes, `TheorySizes`.
    smoothness, strong_convexity : float
        L of every example's loss, mu of the objective.
    alpha : float
        12 <= alpha_t <= alpha in the step sizes alpha_t/(mu (t + E_t)); 36 in the paper (Lemma B.4).
    """

    m: int = Field(ge=0)
    d: int = Field(default=1, ge=0)
    smoothness: PositiveFloat
    strong_convexity: PositiveFloat
    alpha: float = Field(default=36.0, ge=12)

    @model_validator(mode="after")
    def _lemma_holds(self) -> TheoryConstants:
        check_theory(self.m, self.d)
        if self.strong_convexity > self.smoothness:
            raise ValueError(
                f"strong_convexity is at most smoothness, found {self.strong_convexity:g} > {self.smoothness:g}; "
                "exchange them, or correct one"
            )
        return self


class TheoryDelay(TheoryConstants):
    """tau(t) = M1 + sqrt((t + M0)/(4 ln(t + M0))).

    M0 = (m + 1)^2/4 and M1 = max{d + 1, 2 L alpha/mu, s_0/2}, with the s_0 of the sizes ``theory``.

    Notes
    -----
    As M0 >= e^2 (`check_theory`), tau is increasing; so is t - tau(t), since with y = t + M0 the slope of tau is
    (ln y - 1)/(4 sqrt(y) ln(y)^(3/2)), below 1/25.
    """

    name: Literal["theory"] = "theory"

    @cached_property
    def shift(self) -> float:
        """M0."""
        return (self.m + 1) ** 2 / 4

    @cached_property
    def least(self) -> float:
        """M1."""
        first = math.ceil(TheorySizes(m=self.m, d=self.d).at(np.zeros(())))
        return max(self.d + 1, 2 * self.smoothness * self.alpha / self.strong_convexity, first / 2)

    def at(self, t: float) -> float:
        y = max(t, 0) + self.shift
        return self.least + math.sqrt(y / (4 * math.log(y)))


class PowerDelay(Section):
    """tau(t) = constant + factor t^exponent.

    Notes
    -----
    For t - tau(t) not to fall from one computation to the next, tau may grow by at most 1. With an exponent up to 1 it
    grows most from t = 0 to 1, by ``factor``; with one above 1 it grows by more and more.
    """

    name: Literal["power"] = "power"
    constant: float = Field(default=0.0, ge=0)
    factor: float = Field(default=1.0, ge=0)
    exponent: float = Field(default=0.5, ge=0)

    @model_validator(mode="after")
    def _age_grows(self) -> PowerDelay:
        if self.exponent > 1 or self.factor > 1:
            raise ValueError(
                "t - tau(t) must not fall, for which factor and exponent are at most 1, found factor "
                f"{self.factor:g} and exponent {self.exponent:g}; lower what is above 1 and raise constant instead"
            )
        return self

    def at(self, t: float) -> float:
        return float(self.constant + self.factor * max(t, 0) ** self.exponent)


Tau = Annotated[TheoryDelay | PowerDelay, Field(discriminator="name")]
"""A mapping with a ``name``."""


class RoundsAhead(Section):
    """A client computes in round i while i <= k + d, where the newest global model holds all rounds below k.

    Attributes
    ----------
    d : int
        1 is what the paper expects to need.
    tau : delay function, optional
        Nobody waits for it: a warning before the run says where condition (2) fails.
    """

    rule: Literal["rounds"] = "rounds"
    d: int = Field(default=1, ge=0)
    tau: Tau | None = None


class WithinTau(Section):
    """A client takes its next step while t_delay < tau(t_glob)."""

    rule: Literal["tau"] = "tau"
    tau: Tau


def _rule_of_rounds(value: Any) -> Any:
    """The default rule, where a mapping names none."""
    return {"rule": "rounds", **value} if isinstance(value, dict) else value


Delay = Annotated[Annotated[RoundsAhead | WithinTau, Field(discriminator="rule")], BeforeValidator(_rule_of_rounds)]
"""A mapping; without a ``rule`` it is that of rounds."""


def steps_allowed(rule: RoundsAhead | WithinTau, sizes: RoundSizes, name: str, i: int, k: int) -> int:
    """Number of its steps in round i that a client may take with the global model of the rounds below k.

    Parameters
    ----------
    rule : RoundsAhead or WithinTau
        Rule for when to wait.
    sizes : RoundSizes
        s_i and s_ic.
    name : str
        The client c.
    i, k : int
        The client's round, and the number of complete rounds in the newest global model it has; k <= i.

    Returns
    -------
    int
        From 0 to s_ic.
    """
    steps = sizes.of(name, i)
    if isinstance(rule, RoundsAhead):
        return steps if i <= k + rule.d else 0
    tau, others = rule.tau, sizes.before(i + 1) - steps

    # Step h is free while t_delay = t_glob + 1 - (s_0 + ... + s_{k-1}) < tau(t_glob), that is, while t_glob -
    # tau(t_glob) is below a number without h. It does not fall as t_glob grows with h, so the free steps come first.
    def waits(h: int) -> bool:
        return others - sizes.before(k) + h >= tau.at(others + h - 1)

    return bisect_left(range(steps), True, key=waits) if waits(steps - 1) else steps


def first_breach(tau: Tau, sizes: RoundSizes, d: int, rounds: int) -> int | None:
    """The first of the rounds d + 1, ..., ``rounds`` - 1 in which condition (2) fails, if there is one."""
    for i in range(d + 1, rounds):
        done = sizes.before(i + 1)
        if tau.at(done) < done - sizes.before(i - d):
            return i
    return None


def first_stall(tau: Tau, sizes: RoundSizes, rounds: int) -> int | None:
    """The first round below ``rounds`` that nobody can finish under the rule `WithinTau`, if there is one.

    Nobody has a newer model than that of the rounds below i while round i lasts. With it, a client's last step has
    t_delay = s_i - 1 and t_glob = s_0 + ... + s_i - 2, whoever it is.
    """
    for i in range(rounds):
        if sizes.total(i) - 1 >= tau.at(sizes.before(i + 1) - 2):
            return i
    return None


class ConstantRate(Section):
    """The same step size throughout; as of all schedules, `of_round` has the step sizes of a client in round i."""

    schedule: Literal["constant"] = "constant"
    initial: PositiveFloat

    def of_round(self, i: int, sizes: RoundSizes, name: str) -> StepSizes:
        return StepSizes(self.initial)


class _Diminishing(Section):
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


class TheoryRate(TheoryConstants):
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
        """Effects of what a round's update is on releases."""
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


class PublicRounds(RoundSizes):
    """The workload: s_ic examples in round i, and what else all know of clients' rounds before the run.

    Raises
    ------
    SpecError
        If sizes, weights and shards do not go together.
    """

    def __init__(self, settings: Settings, shard_sizes: Mapping[str, int], seed: int) -> None:
        super().__init__(settings.sizes, settings.weights, settings.counts, shard_sizes, seed)
        self.settings, self.seed = settings, seed
        self.update: str = settings.decided(private=True).round_update or "batch"
        self.keeps_own = settings.receive is None

    @cached_property
    def quota(self) -> int | None:
        """Rounds of each client, where the settings bound them."""
        settings = self.settings
        limits = [settings.rounds] if settings.rounds is not None else []
        if settings.gradients is not None:
            limits.append(self.rounds_for(settings.gradients))
        return min(limits, default=None)

    def updates_in(self, epochs: float) -> Mapping[str, int]:
        """The rounds in which all clients together go over their examples so often."""
        total = round(epochs * float(np.sum(self.examples)), 6)
        return dict.fromkeys(self.names, self.rounds_for(int(np.ceil(total))))

    def check(self, updates: int) -> None:
        """Raise SpecError unless so many rounds can be made: within shards and memory, at step sizes above 0, and
        nobody waits for ever."""
        for i in (0, updates - 1):
            self._check_round(i)
        if self.settings.sampling is None:
            check_sizes(self, updates)
        delay = self.settings.delay
        stall = first_stall(delay.tau, self, updates) if isinstance(delay, WithinTau) else None
        if stall is not None:
            raise SpecError(
                f"delay: from round {stall} on every client waits for ever, because its {self.total(stall)} gradients "
                "are more than tau permits; take smaller sizes, a larger tau, or the rule rounds"
            )

    def _check_round(self, i: int) -> None:
        largest = max(self.sizes(i))
        if largest > MOST_STEPS:
            raise SpecError(
                f"algorithm.sizes: a client takes at most {MOST_STEPS:,} steps in a round, "
                f"found {largest:,} in round {i}"
            )
        first = self.names[0]
        if not self.step_sizes(first, i).at(np.array(self.of(first, i) - 1)) > 0:
            raise SpecError(f"algorithm.learning_rate: step sizes must stay above 0, found 0 in round {i}; lower beta")

    def step_sizes(self, name: str, i: int) -> StepSizes:
        return self.settings.learning_rate.of_round(i, self, name)

    @cached_property
    def _parts(self) -> dict[str, Stream]:
        return {name: Stream(self.seed, name, "part") for name in self.names}

    def where(self, name: str, i: int) -> Coordinates:
        """One of D parts, drawn by public coins; all of the model for D = 1, and from an aggregator."""
        parts = self.settings.parts
        if parts == 1 or name not in self._parts:
            return ALL
        return Coordinates(int(self._parts[name].at(i).integers(parts)), parts)

    def possible(self, name: str, i: int) -> bool:
        return self.settings.sampling is not None or self.of(name, i) <= self.shard_sizes[name]

    def allowed(self, name: str, i: int, k: int) -> int:
        return steps_allowed(self.settings.delay, self, name, i, k)
