"""Settings of `increasing`, its rules of waiting, its step sizes, and its rounds as all know them before.

**The sizes.** Clients compute s_i gradients in round i together, client c s_ic. A schedule gives s_i before rounding.
What is done of it are whole steps of each client, at least one each, and *their* sum is s_i from then on, so that the
paper's numbering of the gradient computations is exact: round i has the numbers t = s_0 + ... + s_{i-1} to s_0 + ... +
s_i - 1. All of this is public: schedules, weights, shard sizes, and the coins that may split a round.

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
B.4 and C.2.2 (`theory`), E.2.2 (`power`, `log`) and D.3 (`privacy`) for sizes; E.2.3 (`diminishing1`, `diminishing2`).
B.1 has t <= t_glob, which is one too few for steps counted from 0; as above, there is that much room.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt

from gossamer.algorithms.optimizer import from_number
from gossamer.algorithms.plan import OneOr, Terms
from gossamer.errors import SpecError
from gossamer.privacy.tasks import UPDATES, StepSizes
from gossamer.randomness import Stream
from gossamer.section import Composite, Section
from gossamer.vectors import ALL, Coordinates

RealArray = npt.NDArray[np.float64]

MOST_STEPS = 10**11
"""A schedule stops growing at so many steps in a round of all clients: 10^7 such rounds are counted in 64 bits."""


class ConstantSizes(Section):
    """s_i = size; as of all schedules, `at` has the sizes before rounding, in rounds i = 0, 1, ..., and none falls."""

    name: Literal["constant"] = "constant"
    size: float = Field(gt=0, le=MOST_STEPS)

    def at(self, i: RealArray) -> RealArray:
        return np.full_like(i, self.size)


class PowerSizes(Section):
    """s_i = ceil(a i^c + b)."""

    name: Literal["power"] = "power"
    a: float = Field(ge=0, le=MOST_STEPS)
    c: float = Field(default=1.0, ge=0, le=4)
    b: float = Field(default=0.0, ge=0, le=MOST_STEPS)

    def at(self, i: RealArray) -> RealArray:
        return self.a * i**self.c + self.b


class LogSizes(Section):
    """s_i = ceil(a i/ln i + b), with e for an i below it.

    i/ln i is undefined at i = 0, infinite at 1 and falls until i = e, where it is e; from there on it grows.
    """

    name: Literal["log"] = "log"
    a: float = Field(ge=0, le=MOST_STEPS)
    b: float = Field(default=0.0, ge=0, le=MOST_STEPS)

    def at(self, i: RealArray) -> RealArray:
        from_e = np.maximum(i, math.e)
        return self.a * from_e / np.log(from_e) + self.b


class TheoryGrowth(Section):
    """Constants of the theory's sizes and delays, which its step sizes share.

    Attributes
    ----------
    m : int
        Rounds that sizes are ahead of their formula, so that the first one is not small.
    d : int
        Rounds that a client may be ahead.
    g : float
        Exponent of the delay function, about t^(1/g): sizes grow like i^(1/(g - 1)). 2 in the paper's theorem.
    gamma : float
        Factor of the logarithm below the root, gamma(z) = gamma ln max(z, e^(g/(g - 1))). 4 in the paper's theorem.
    """

    m: int = Field(ge=0)
    d: int = Field(default=1, ge=0)
    g: float = Field(default=2.0, ge=1.25, le=16)
    gamma: float = Field(default=4.0, gt=0)

    @property
    def ratio(self) -> float:
        """g/(g - 1)."""
        return self.g / (self.g - 1)

    def _problems(self) -> Iterator[str]:
        least = math.ceil(self.ratio * math.e * (self.d + 1)) - 1
        if self.m < least:
            yield (
                f"m must be at least {self.ratio:g} e (d + 1) - 1, which is {least} for d = {self.d}, found {self.m}; "
                "raise m"
            )
        if self.gamma * self.ratio < 1:
            yield f"gamma must be at least 1 - 1/g, found {self.gamma:g} with g = {self.g:g}; raise gamma"


class TheorySizes(TheoryGrowth):
    """s_i = ceil(S((m + i + 1)/(d + 1))/(d + 1)) with S(x) = (x (g - 1)/g/omega(x))^(1/(g - 1)) of Lemma B.3.

    There omega(x) = gamma g/(g - 1) ln(x (g - 1)/g). With g = 2 and gamma = 4, as in the paper's theorem, that is
    ceil((m + i + 1)/(16 (d + 1)^2) / ln((m + i + 1)/(2 (d + 1)))).

    Notes
    -----
    The lemma asks for gamma(z) >= 1 and gamma(z) >= z gamma'(z) g/(g - 1) at all z. Of c ln z the second is ln z >=
    g/(g - 1), at all z that occur; the least is (x (g - 1)/g)^(g/(g - 1)) at i = 0. It then holds word for word of
    c ln max(z, e^(g/(g - 1))). So m + 1 >= e (d + 1) g/(g - 1), which makes the logarithm of omega at least 1 and the
    sizes non-decreasing: x/ln(x (g - 1)/g) falls below x = e g/(g - 1).
    """

    name: Literal["theory"] = "theory"

    def at(self, i: RealArray) -> RealArray:
        number, lag, ratio = self.m + i + 1, self.d + 1, self.ratio
        # The lags go below the root, where those of the paper's g are exact.
        grown: RealArray = number / (self.gamma * ratio**2 * lag**self.g) / np.log(number / (ratio * lag))
        return grown ** (1 / (self.g - 1))


class PrivacySizes(Section):
    """s_ic = ceil(N_c q (i + m)^p), with N_c the size of the client's shard."""

    name: Literal["privacy"] = "privacy"
    q: float = Field(gt=0, le=1)
    m: float = Field(default=0.0, ge=0)
    p: float = Field(default=1.0, ge=0)

    def at(self, i: RealArray) -> RealArray:
        return self.q * (i + self.m) ** self.p


def size_from_number(value: Any) -> Any:
    """Let a number stand for a constant size."""
    # A string may be a number that YAML 1.1 does not recognise, such as 1e3.
    return {"name": "constant", "size": value} if isinstance(value, (int, float, str)) else value


Sizes = Annotated[
    Annotated[ConstantSizes | PowerSizes | LogSizes | TheorySizes | PrivacySizes, Field(discriminator="name")],
    BeforeValidator(size_from_number),
]
"""A number, or a mapping with a ``name``."""


IndexArray = npt.NDArray[np.int64]

MOST_ROUNDS = 10**7
_BLOCK = 1 << 20  # sizes computed at once
_KEPT = 256  # rounds whose sizes are kept: more than are under way at once


def check_sizes(sizes: PublicRounds, rounds: int) -> None:
    """Check that no client takes more steps in a round than it has examples.

    Raises
    ------
    SpecError
        If one does; it names the first round and client.
    """
    if (found := sizes.first_over(rounds)) is not None:
        i, name = found
        examples = sizes.shard_sizes[name]
        sooner = f", or end after {i} rounds" if i else ""
        raise SpecError(
            f"sizes over the data set: expected at most {examples:,} steps in a round of {name}, which has so many "
            f"examples, found {sizes.of(name, i):,} in round {i}; lower the sizes{sooner}"
        )


def _normalised(weights: Literal["equal", "shards"] | Sequence[float], examples: RealArray) -> RealArray:
    if isinstance(weights, str):
        shares: RealArray = {"equal": np.ones(len(examples)), "shards": examples}[weights]
        return shares / float(shares.sum())
    if len(weights) != len(examples):
        raise SpecError(
            f"algorithm.weights: expected one a client, {len(examples)} in all, found {len(weights)}; give each one"
        )
    given, total = np.array(weights, np.float64), math.fsum(weights)
    if not (given.min() > 0 and abs(total - 1) <= 1e-6):
        raise SpecError(
            "algorithm.weights: expected positive numbers with a sum of 1, found "
            f"{', '.join(f'{p:g}' for p in weights[:8])}{' ...' if len(weights) > 8 else ''} "
            f"with a sum of {total:.9g}; divide each by the sum"
        )
    return given / total


def _ceil(real: RealArray) -> RealArray:
    """Rounded up, but for what is above a whole number by no more than rounding: 16.000000000000004 is 16."""
    whole = np.rint(real)
    return np.where(np.abs(real - whole) <= 1e-9 * real, whole, np.ceil(real))


def _check(i: int) -> None:
    if not 0 <= i <= MOST_ROUNDS:
        raise SpecError(f"rounds are numbered from 0 to {MOST_ROUNDS:,}, found {i}")


class TheoryConstants(TheoryGrowth):
    """Constants that the strongly convex theory is computed from.

    Attributes
    ----------
    smoothness, strong_convexity : float
        L of every example's loss, mu of the objective.
    alpha : float
        12 <= alpha_t <= alpha in the step sizes alpha_t/(mu (t + E_t)); 36 in the paper (Lemma B.4).
    """

    smoothness: PositiveFloat
    strong_convexity: PositiveFloat
    alpha: float = Field(default=36.0, ge=12)

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.strong_convexity > self.smoothness:
            yield (
                f"strong_convexity is at most smoothness, found {self.strong_convexity:g} > {self.smoothness:g}; "
                "exchange them, or correct one"
            )


class TheoryDelay(TheoryConstants):
    """tau(t) = M1 + ((t + M0)/(gamma ln(t + M0)))^(1/g).

    M0 = ((m + 1) (g - 1)/g)^(g/(g - 1)) and M1 = max{d + 1, 2 L alpha/mu, s_0/2}, with the s_0 of the sizes ``theory``;
    (m + 1)^2/4 and a square root in the paper's theorem, where g = 2 and gamma = 4.

    Notes
    -----
    With y = t + M0 the slope of tau is (1 - 1/ln y)/g (y/gamma(y))^(1/g)/y. As ln M0 >= g/(g - 1) and gamma(y) >= 1
    (`TheoryGrowth`), it is positive and at most 1/g, so neither tau nor t - tau(t) ever falls.
    """

    name: Literal["theory"] = "theory"

    @cached_property
    def shift(self) -> float:
        """M0."""
        return math.pow((self.m + 1) / self.ratio, self.ratio)

    @cached_property
    def least(self) -> float:
        """M1."""
        growth = {field: getattr(self, field) for field in TheoryGrowth.model_fields}
        first = math.ceil(TheorySizes(**growth).at(np.zeros(())))
        return max(self.d + 1, 2 * self.smoothness * self.alpha / self.strong_convexity, first / 2)

    def at(self, t: float) -> float:
        y = max(t, 0) + self.shift
        below = y / (self.gamma * math.log(y))
        return self.least + (math.sqrt(below) if self.g == 2 else math.pow(below, 1 / self.g))  # the root is exact


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

    def _problems(self) -> Iterator[str]:
        if self.exponent > 1 or self.factor > 1:
            yield (
                "t - tau(t) must not fall, for which factor and exponent are at most 1, found factor "
                f"{self.factor:g} and exponent {self.exponent:g}; lower what is above 1 and raise constant instead"
            )

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


def steps_allowed(rule: RoundsAhead | WithinTau, sizes: PublicRounds, name: str, i: int, k: int) -> int:
    """Number of its steps in round i that a client may take with the global model of the rounds below k.

    Parameters
    ----------
    rule : RoundsAhead or WithinTau
        Rule for when to wait.
    sizes : PublicRounds
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


def first_breach(tau: Tau, sizes: PublicRounds, d: int, rounds: int) -> int | None:
    """The first of the rounds d + 1, ..., ``rounds`` - 1 in which condition (2) fails, if there is one."""

    def fails(i: int) -> bool:
        done = sizes.before(i + 1)
        return tau.at(done) < done - sizes.before(i - d)

    return next(filter(fails, range(d + 1, rounds)), None)


def first_stall(tau: Tau, sizes: PublicRounds, rounds: int) -> int | None:
    """The first round below ``rounds`` that nobody can finish under the rule `WithinTau`, if there is one.

    Nobody has a newer model than that of the rounds below i while round i lasts. With it, a client's last step has
    t_delay = s_i - 1 and t_glob = s_0 + ... + s_i - 2, whoever it is.
    """
    return next((i for i in range(rounds) if sizes.total(i) - 1 >= tau.at(sizes.before(i + 1) - 2)), None)


class ConstantRate(Section):
    """The same step size throughout; as of all schedules, `of_round` has the step sizes of a client in round i."""

    schedule: Literal["constant"] = "constant"
    initial: PositiveFloat

    def of_round(self, i: int, sizes: PublicRounds, name: str) -> StepSizes:
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

    def of_round(self, i: int, sizes: PublicRounds, name: str) -> StepSizes:
        stride = sizes.total(i) / sizes.of(name, i)
        return StepSizes(self.initial, self.beta, self.exponent, start=float(sizes.before(i)), stride=stride)


class DiminishingByRound(_Diminishing):
    """eta_t = eta_0/(1 + beta t^exponent) with t = s_0 + ... + s_{i-1}, held over the round."""

    schedule: Literal["diminishing2"] = "diminishing2"

    def of_round(self, i: int, sizes: PublicRounds, name: str) -> StepSizes:
        return StepSizes(StepSizes(self.initial, self.beta, self.exponent, start=float(sizes.before(i))).first)


class TheoryRate(TheoryConstants):
    """eta_i = 12/(mu (S + 2 tau(S))) with S = s_0 + ... + s_{i-1}, held over the round.

    tau is the delay function ``theory`` of the same constants. With the g and gamma of the paper's theorem that is
    (12/mu)/(S + 2 M1 + sqrt((M0 + S)/ln(M0 + S))).
    """

    schedule: Literal["theory"] = "theory"

    @cached_property
    def _tau(self) -> TheoryDelay:
        return TheoryDelay(**{field: getattr(self, field) for field in TheoryConstants.model_fields})

    def of_round(self, i: int, sizes: PublicRounds, name: str) -> StepSizes:
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
    weights: OneOr[Literal["equal", "shards"], tuple[PositiveFloat, ...]] = "equal"
    counts: Literal["rounded", "coins"] = "rounded"
    learning_rate: RoundRate = ConstantRate(initial=0.01)
    delay: Delay = RoundsAhead()
    round_update: Literal["batch", "clipped_sum", "sequential"] | None = None
    receive: Literal["printed"] | None = None
    parts: int = Field(default=1, ge=1)
    aggregators: tuple[PositiveInt, ...] = ()
    patience: float = Field(default=60.0, ge=1e-3)
    rounds: int | None = Field(default=None, ge=1, le=10_000_000)
    gradients: int | None = Field(default=None, ge=1)

    def _problems(self) -> Iterator[str]:
        levels = [*self.aggregators, self.nodes]
        if levels != sorted(levels):
            yield (
                f"aggregators: every level has at least as many as the one above, and at most as many as there are "
                f"nodes ({self.nodes}); found {list(self.aggregators)}"
            )

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


MOST_STEPS_HELD = 10**7
"""Of a client in a round: they are held in memory."""


class PublicRounds:
    """The workload: s_ic examples in round i, and what else all know of clients' rounds, whoever asks and whenever.

    Parameters
    ----------
    settings : Settings
        Settings of the run. Their ``sizes`` are s_i before rounding; ``weights`` are p_c, one a client: equal,
        proportional to the shards, or given, and the privacy schedule has no use for them. By ``counts`` s_ic is
        p_c s_i rounded to the nearest, up at a half, or how often one of s_i coins falls on the client; it is at least
        1 in both.
    shard_sizes : mapping of str to int
        N_c, by client, in the order of the weights.
    seed : int
        Seed of the coins.

    Raises
    ------
    SpecError
        If the weights are not one a client with a sum of 1, or if the privacy schedule is given weights or coins. The
        methods raise it for a round that is not from 0 to `MOST_ROUNDS`.
    """

    def __init__(self, settings: Settings, shard_sizes: Mapping[str, int], seed: int) -> None:
        schedule, weights, counts = settings.sizes, settings.weights, settings.counts
        if isinstance(schedule, PrivacySizes) and (counts == "coins" or not isinstance(weights, str)):
            raise SpecError(
                "privacy sizes are each client's own, so there is nothing to split: expected counts: rounded and no "
                f"weights, found counts: {counts} and weights: {weights}; leave both out"
            )
        self.schedule, self.coins = schedule, counts == "coins"
        self.names = tuple(shard_sizes)
        self.shard_sizes = dict(shard_sizes)
        self.examples: RealArray = np.array(list(shard_sizes.values()), np.float64)
        self.weights = _normalised(weights, self.examples)
        self._thrower = Stream(seed, "round sizes")
        # Clients whose sizes are always the same are one kind, computed once; with coins each is its own.
        shares = self.examples if isinstance(schedule, PrivacySizes) else self.weights
        _, first, self._kinds, self._clients = np.unique(
            np.arange(len(shares)) if self.coins else shares, return_index=True, return_inverse=True, return_counts=True
        )
        self._shares: RealArray = shares[first]
        self._kind_of = dict(zip(self.names, self._kinds.tolist()))
        self._sums: IndexArray = np.zeros(1, np.int64)  # before(0), before(1), ... as far as anybody asked
        self._rows: dict[int, IndexArray] = {}
        self.settings, self.seed = settings, seed
        self.update: str = settings.decided(private=True).round_update or "batch"
        self.keeps_own = settings.receive is None

    def of(self, name: str, i: int) -> int:
        """s_ic of one client."""
        return int(self._row(i)[self._kind_of[name]])

    def sizes(self, i: int) -> tuple[int, ...]:
        """s_ic of every client, in the order of ``names``."""
        return tuple(self._row(i)[self._kinds].tolist())

    def total(self, i: int) -> int:
        """s_i, the sum over the clients."""
        return int(self._row(i) @ self._clients)

    def before(self, i: int) -> int:
        """s_0 + ... + s_{i-1}."""
        known = len(self._sums) - 1
        if i > known:
            _check(i)
            totals = [rows @ self._clients for _, rows in self._blocks(known, max(i, 2 * known))]
            self._sums = np.concatenate([self._sums, self._sums[-1] + np.cumsum(np.concatenate(totals))])
        _check(i)
        return int(self._sums[i])

    def rounds_for(self, gradients: int) -> int:
        """The least number of rounds with so many gradients, of all clients together.

        Raises
        ------
        SpecError
            If it is more than `MOST_ROUNDS`.
        """
        done = 0
        # The last round is the largest, but for coins that leave fewer clients to be raised to 1.
        if gradients <= MOST_ROUNDS * (self.total(MOST_ROUNDS - 1) + len(self.names)):
            for start, rows in self._blocks(0, MOST_ROUNDS):
                sums = done + np.cumsum(rows @ self._clients)
                if sums[-1] >= gradients:
                    return start + int(np.searchsorted([done, *sums], gradients))
                done = int(sums[-1])
        raise SpecError(
            f"expected sizes that make {gradients:,} gradients within {MOST_ROUNDS:,} rounds, found sizes that do not; "
            "raise the sizes or ask for fewer gradients"
        )

    def counts(self, name: str, updates: int) -> dict[int, int]:
        """Number of the first rounds of a client, so many ``updates``, that have each size."""
        kind, found = self._kind_of[name], Counter[int]()
        for _, rows in self._blocks(0, updates):
            sizes, counts = np.unique(rows[:, kind], return_counts=True)
            found.update(dict(zip(sizes.tolist(), counts.tolist(), strict=True)))
        return dict(found)

    def first_over(self, rounds: int) -> tuple[int, str] | None:
        """The first round below ``rounds`` with a client whose s_ic is over its shard, and the first such client."""
        least = np.full(len(self._clients), np.inf)
        np.minimum.at(least, self._kinds, self.examples)
        for start, rows in self._blocks(0, rounds):
            over = (rows > least).any(axis=1)
            if over.any():
                i = start + int(over.argmax())
                return i, self.names[int((self._row(i)[self._kinds] > self.examples).argmax())]
        return None

    def _row(self, i: int) -> IndexArray:
        """The sizes of round i, by kind."""
        if (row := self._rows.get(i)) is None:
            _check(i)
            row = self._rows[i] = self._block(i, i + 1)[0]
            if len(self._rows) > _KEPT:
                del self._rows[next(iter(self._rows))]
        return row

    def _blocks(self, start: int, until: int) -> Iterator[tuple[int, IndexArray]]:
        """Rounds from ``start`` on in blocks, each twice as long as the one before while memory allows."""
        length = 64
        while start < until:
            last = min(start + length, until)
            yield start, self._block(start, last)
            start, length = last, min(2 * length, max(1, _BLOCK // len(self._clients)))

    def _block(self, first: int, last: int) -> IndexArray:
        """The sizes of rounds ``first`` to ``last`` - 1, by kind, [rounds, kinds]."""
        with np.errstate(over="ignore"):  # infinite is past any limit
            real = self.schedule.at(np.arange(first, last, dtype=np.float64))[:, None]
        if isinstance(self.schedule, PrivacySizes):
            sizes = _ceil(np.minimum(real * self._shares, MOST_STEPS // len(self.names)))
        else:
            together = _ceil(np.minimum(real, MOST_STEPS))
            sizes = self._thrown(first, together) if self.coins else np.floor(together * self._shares + 0.5)
        return np.maximum(sizes, 1).astype(np.int64)

    def _thrown(self, first: int, together: RealArray) -> RealArray:
        """Throw the s_i coins of each round and count each client's; each round has a generator of its own."""
        totals = enumerate(together[:, 0].astype(np.int64), first)
        return np.array([self._thrower.at(i).multinomial(total, self.weights) for i, total in totals], np.float64)

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
        if isinstance(delay, WithinTau) and (stall := first_stall(delay.tau, self, updates)) is not None:
            raise SpecError(
                f"delay: from round {stall} on every client waits for ever, because its {self.total(stall)} gradients "
                "are more than tau permits; take smaller sizes, a larger tau, or the rule rounds"
            )

    def _check_round(self, i: int) -> None:
        largest = max(self.sizes(i))
        if largest > MOST_STEPS_HELD:
            raise SpecError(
                f"algorithm.sizes: a client takes at most {MOST_STEPS_HELD:,} steps in a round, "
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
