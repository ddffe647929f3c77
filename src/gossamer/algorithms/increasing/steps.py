"""Step sizes of local SGD in rounds of growing length.

References
----------
"Asynchronous federated learning with increasing sample sizes": section E.2.3 (`diminishing1`, `diminishing2`), sections
B.4 and C.2.2 (`theory`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveFloat

from gossamer.algorithms.increasing.delay import TheoryConstants, TheoryDelay
from gossamer.algorithms.increasing.sizes import RoundSizes
from gossamer.algorithms.optimizer import from_number
from gossamer.privacy.tasks import StepSizes
from gossamer.section import Section


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
