"""Rules for when a client has to wait for a newer global model.

A delay function tau says how old the models may be that gradients are computed at. All gradient computations are
numbered, round after round; the model of computation t must include those numbered 0 to t - tau(t) - 1.

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

The sizes and steps that the paper uses are the schedules ``theory`` (`increasing.sizes`, `increasing.settings`).

References
----------
"Asynchronous federated learning with increasing sample sizes": section 2, Algorithm 1 and equation (2); sections B.1 to
B.3 and C.2.2. B.1 has t <= t_glob, which is one too few for steps counted from 0; as above, there is that much room.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PositiveFloat, model_validator

from gossamer.algorithms.increasing.sizes import RoundSizes, TheorySizes, check_theory
from gossamer.section import Section


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
