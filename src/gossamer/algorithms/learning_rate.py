"""Learning rates as functions of a node's own epochs.

One epoch of a node is as many updates as its expected batches take to cover its shard once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat

from gossamer.section import Section


class RateSchedule(Section):
    """Base of the schedules."""


class ConstantRate(RateSchedule):
    """The same learning rate throughout."""

    schedule: Literal["constant"] = "constant"
    initial: PositiveFloat

    def at(self, epoch: float) -> float:
        return self.initial


class StepRate(RateSchedule):
    """``initial``, multiplied by ``factor`` when each of ``epochs`` is reached.

    References
    ----------
    A(DP)2SGD, section 5: 0.4, times 0.1 at epochs 160 and 240 of 300.
    """

    schedule: Literal["step"] = "step"
    initial: PositiveFloat
    factor: PositiveFloat = 0.1
    epochs: tuple[PositiveFloat, ...] = (160, 240)

    def at(self, epoch: float) -> float:
        return float(self.initial * self.factor ** bisect_right(sorted(self.epochs), epoch))


class WarmupAnnealRate(RateSchedule):
    """Linear from ``initial`` to ``peak`` over ``warmup`` epochs, then times ``anneal`` after each epoch.

    References
    ----------
    A(DP)2SGD, section 5: annealing by 1/sqrt(2) per epoch after a warm-up of 10.
    """

    schedule: Literal["warmup_anneal"] = "warmup_anneal"
    initial: PositiveFloat
    peak: PositiveFloat
    warmup: PositiveFloat = 10
    anneal: PositiveFloat = 1 / math.sqrt(2)

    def at(self, epoch: float) -> float:
        if epoch < self.warmup:
            return float(self.initial + (self.peak - self.initial) * epoch / self.warmup)
        return float(self.peak * self.anneal ** math.floor(epoch - self.warmup + 1))


def from_number(value: Any) -> Any:
    """Let a number stand for a constant rate."""
    # A string may be a number that YAML 1.1 does not recognise, such as 1e-2.
    return {"schedule": "constant", "initial": value} if isinstance(value, (int, float, str)) else value


LearningRate = Annotated[
    Annotated[ConstantRate | StepRate | WarmupAnnealRate, Field(discriminator="schedule")],
    BeforeValidator(from_number),
]
"""A number, or a mapping with a ``schedule``."""
