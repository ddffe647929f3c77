"""Learning rates as functions of epochs, a node's own or those of all nodes together.

One epoch of a node is as many updates as its expected batches take to cover its shard once; one of all nodes as many as
take to cover all shards once, whoever makes them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveFloat, model_validator

from gossamer.section import Section


class RateSchedule(Section):
    """Base of the schedules."""

    schedule: str


class EpochRate(RateSchedule):
    """Base of schedules by epochs, which are a node's own unless ``clock`` is ``global``."""

    clock: Literal["own", "global"] | None = None

    @property
    def by_all(self) -> bool:
        """Whether epochs are those of all nodes together."""
        return self.clock == "global"

    @abstractmethod
    def at(self, epoch: float) -> float:
        """The learning rate at a moment of the run, in epochs from 0."""


class WarmedRate(EpochRate):
    """Base of schedules that may begin with a linear warm-up, from ``initial`` to ``peak`` in ``warmup`` epochs.

    Without one the schedule is that of ``initial``, and with one that of ``peak``. Epochs are counted from the start of
    the run in both cases.

    References
    ----------
    Goyal et al., "Accurate, large minibatch SGD: Training ImageNet in 1 hour", 2017, section 2.2, gradual warm-up.
    """

    initial: PositiveFloat
    peak: PositiveFloat | None = None
    warmup: PositiveFloat | None = None

    @model_validator(mode="after")
    def _warms_up(self) -> Self:
        if (self.peak is None) != (self.warmup is None):
            raise ValueError("a warm-up has a peak and a number of epochs; give both peak and warmup, or neither")
        if self.peak is not None and self.peak < self.initial:
            raise ValueError(f"a warm-up rises, found peak {self.peak:g} below initial {self.initial:g}")
        return self

    @property
    def top(self) -> float:
        """The rate that the warm-up, if there is one, leads to."""
        return self.initial if self.peak is None else self.peak

    def at(self, epoch: float) -> float:
        if self.warmup is not None and epoch < self.warmup:
            return self.initial + (self.top - self.initial) * epoch / self.warmup
        return self.warm(epoch)

    @abstractmethod
    def warm(self, epoch: float) -> float:
        """Return what it is without a warm-up, or after it."""


class ConstantRate(WarmedRate):
    """The same learning rate throughout, after the warm-up if there is one."""

    schedule: Literal["constant"] = "constant"

    def warm(self, epoch: float) -> float:
        return self.top


class StepRate(WarmedRate):
    """``initial``, or ``peak`` after a warm-up, multiplied by ``factor`` when each of ``epochs`` is reached.

    References
    ----------
    A(DP)2SGD, section 5: 0.4, times 0.1 at epochs 160 and 240 of 300. With a warm-up of 5: Goyal et al., section 5.1.
    """

    schedule: Literal["step"] = "step"
    factor: PositiveFloat = 0.1
    epochs: tuple[PositiveFloat, ...] = (160, 240)

    @model_validator(mode="after")
    def _steps_come_after_the_warm_up(self) -> Self:
        if self.warmup is not None and self.epochs and min(self.epochs) < self.warmup:
            raise ValueError(
                f"steps come after the warm-up of {self.warmup:g} epochs, found one at {min(self.epochs):g}"
            )
        return self

    def warm(self, epoch: float) -> float:
        return float(self.top * self.factor ** bisect_right(sorted(self.epochs), epoch))


class CosineRate(WarmedRate):
    """Half a cosine from ``initial``, or from ``peak`` after a warm-up, down to ``final`` at epoch ``total``.

    With the top rate, and w epochs of warm-up (0 without), it is final + (top - final) (1 + cos(pi (epoch - w) /
    (total - w))) / 2, and ``final`` from ``total`` on.

    References
    ----------
    Loshchilov and Hutter, "SGDR: Stochastic gradient descent with warm restarts", ICLR 2017, equation 5, of a single
    run (no restarts).
    """

    schedule: Literal["cosine"] = "cosine"
    total: PositiveFloat
    final: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _falls(self) -> Self:
        if self.warmup is not None and self.total <= self.warmup:
            raise ValueError(f"total {self.total:g} is no longer than the warm-up of {self.warmup:g} epochs; raise it")
        if self.final > self.top:
            raise ValueError(f"a cosine falls, found final {self.final:g} above {self.top:g}; lower final")
        return self

    def warm(self, epoch: float) -> float:
        start = self.warmup or 0.0
        passed = min((epoch - start) / (self.total - start), 1.0)
        return self.final + (self.top - self.final) * (1 + math.cos(math.pi * passed)) / 2


class WarmupAnnealRate(EpochRate):
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
    Annotated[ConstantRate | StepRate | WarmupAnnealRate | CosineRate, Field(discriminator="schedule")],
    BeforeValidator(from_number),
]
"""A number, or a mapping with a ``schedule``."""


def _one_number(value: Any) -> Any:
    if isinstance(value, Mapping):
        found = f"schedule: {value['schedule']}" if "schedule" in value else "keys with their values"
        raise ValueError(f"expected one number, as this rate stays what it is, found {found}; give a number")
    return value


OneRate = Annotated[float, BeforeValidator(_one_number)]
"""A learning rate without a schedule."""
