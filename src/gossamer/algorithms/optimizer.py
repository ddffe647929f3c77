"""Learning rates and optimizers: how far a model moves, and where to, for released gradients, one after the other.

Learning rates are functions of epochs. One epoch of a node is as many updates as its expected batches take to cover its
shard once; one of all nodes as many as take to cover all shards once, whoever makes them.

An optimizer sees what everybody may see, so what it does is post-processing: no guarantee depends on which one it is,
and none costs privacy. It knows no algorithm: it takes a direction and returns a *move*, which a node multiplies by its
learning rate and takes off its model, or adds. What it remembers is part of the node's state.

| optimizer | memory | move |
|---|---|---|
| `sgd` | none | g |
| `momentum` | b <- mu b + g | b; with `nesterov` g + mu b |
| `adam` | m <- beta1 m + (1 - beta1) g, v <- beta2 v + (1 - beta2) g^2 | m_hat / (sqrt(v_hat) + floor) |

with g the direction, and b, m and v zero at first. At step t, from 1, m_hat = m / (1 - beta1^t) and v_hat =
v / (1 - beta2^t).
These are the conventions of ``torch.optim``: there is no dampening, and the learning rate is outside of b.

References
----------
Polyak, "Some methods of speeding up the convergence of iteration methods", 1964; Sutskever, Martens, Dahl and Hinton,
"On the importance of initialization and momentum in deep learning", ICML 2013 (Nesterov's form); Kingma and Ba, "Adam:
A method for stochastic optimization", ICLR 2015, Algorithm 1; Reddi et al., "Adaptive federated optimization", ICLR
2021, Algorithm 2 (a server's; their tau is `Adam.floor`, and they leave the correction of m and v out).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PositiveFloat

from gossamer.protocol.encoding import frozen
from gossamer.section import Section, bare
from gossamer.vectors import Model, divide_by_roots, square


class RateSchedule(Section):
    """Base of the schedules."""

    schedule: str


class EpochRate(RateSchedule):
    """Base of schedules by epochs, which are a node's own unless ``clock`` is ``global``.

    They may begin with a linear warm-up, from ``initial`` to ``peak`` in ``warmup`` epochs. Without one the schedule is
    that of ``initial``, and with one that of ``peak``. Epochs are counted from the start of the run in both cases.

    References
    ----------
    Goyal et al., "Accurate, large minibatch SGD: Training ImageNet in 1 hour", 2017, section 2.2, gradual warm-up.
    """

    clock: Literal["own", "global"] | None = None
    initial: PositiveFloat
    peak: PositiveFloat | None = None
    warmup: PositiveFloat | None = None

    def _problems(self) -> Iterator[str]:
        if (self.peak is None) != (self.warmup is None):
            yield "a warm-up has a peak and a number of epochs; give both peak and warmup, or neither"
        if self.peak is not None and self.peak < self.initial:
            yield f"a warm-up rises, found peak {self.peak:g} below initial {self.initial:g}"

    @property
    def by_all(self) -> bool:
        """Whether epochs are those of all nodes together."""
        return self.clock == "global"

    @property
    def top(self) -> float:
        """The rate that the warm-up, if there is one, leads to."""
        return self.initial if self.peak is None else self.peak

    def at(self, epoch: float) -> float:
        """The learning rate at a moment of the run, in epochs from 0."""
        if self.warmup is not None and epoch < self.warmup:
            return self.initial + (self.top - self.initial) * epoch / self.warmup
        return self.warm(epoch)

    @abstractmethod
    def warm(self, epoch: float) -> float:
        """Return what it is without a warm-up, or after it."""


class ConstantRate(EpochRate):
    """The same learning rate throughout, after the warm-up if there is one."""

    schedule: Literal["constant"] = "constant"

    def at(self, epoch: float) -> float:
        return self.initial if self.warmup is None else super().at(epoch)

    def warm(self, epoch: float) -> float:
        return self.top


class StepRate(EpochRate):
    """``initial``, or ``peak`` after a warm-up, multiplied by ``factor`` when each of ``epochs`` is reached.

    References
    ----------
    A(DP)2SGD, section 5: 0.4, times 0.1 at epochs 160 and 240 of 300. With a warm-up of 5: Goyal et al., section 5.1.
    """

    schedule: Literal["step"] = "step"
    factor: PositiveFloat = 0.1
    epochs: tuple[PositiveFloat, ...] = (160, 240)

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.warmup is not None and self.epochs and min(self.epochs) < self.warmup:
            yield (f"steps come after the warm-up of {self.warmup:g} epochs, found one at {min(self.epochs):g}")

    def warm(self, epoch: float) -> float:
        return float(self.top * self.factor ** bisect_right(sorted(self.epochs), epoch))


class CosineRate(EpochRate):
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

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.warmup is not None and self.total <= self.warmup:
            yield f"total {self.total:g} is no longer than the warm-up of {self.warmup:g} epochs; raise it"
        if self.final > self.top:
            yield f"a cosine falls, found final {self.final:g} above {self.top:g}; lower final"

    def warm(self, epoch: float) -> float:
        start = self.warmup or 0.0
        passed = min((epoch - start) / (self.total - start), 1.0)
        return self.final + (self.top - self.final) * (1 + math.cos(math.pi * passed)) / 2


def from_number(value: Any) -> Any:
    """Let a number stand for a constant rate."""
    # A string may be a number that YAML 1.1 does not recognise, such as 1e-2.
    return {"schedule": "constant", "initial": value} if isinstance(value, (int, float, str)) else value


LearningRate = Annotated[
    Annotated[ConstantRate | StepRate | CosineRate, Field(discriminator="schedule")], BeforeValidator(from_number)
]
"""A number, or a mapping with a ``schedule``."""


def _one_number(value: Any) -> Any:
    if isinstance(value, Mapping):
        found = f"schedule: {value['schedule']}" if "schedule" in value else "keys with their values"
        raise ValueError(f"expected one number, as this rate stays what it is, found {found}; give a number")
    return value


OneRate = Annotated[float, BeforeValidator(_one_number)]
"""A learning rate without a schedule."""


@frozen("optimizer.memory")
class Memory:
    """Part of a node's state that belongs to its optimizer.

    Attributes
    ----------
    steps : int
        Directions that it has seen.
    averages : tuple of Public or Released
        Averages of these directions, each [size]: b of `momentum`; m and v of `adam`.
    """

    steps: int
    averages: tuple[Model, ...]


class Sgd(Section):
    """The direction itself."""

    name: Literal["sgd"] = "sgd"


class Momentum(Section):
    """Heavy ball: the sum of all directions, each weighted by the power of ``momentum`` that is its age.

    Attributes
    ----------
    momentum : float
        mu. In the long run steps are 1/(1 - mu) times as long as without: lower the learning rate with it.
    nesterov : bool
        Whether to look ahead by a step.
    """

    name: Literal["momentum"] = "momentum"
    momentum: float = Field(default=0.9, gt=0, lt=1)
    nesterov: bool = False

    def step(self, memory: Memory | None, direction: Model) -> tuple[Memory, Model]:
        """The memory and the move after another ``direction``."""
        ball = direction
        if memory is not None:
            ball = (self.momentum * memory.averages[0] + direction).within()
        moved = Memory(1 if memory is None else memory.steps + 1, (ball,))
        return moved, direction + self.momentum * ball if self.nesterov else ball


class Adam(Section):
    """Mean direction over the root of its mean square, entry by entry, so that the learning rate is a length.

    Attributes
    ----------
    beta1, beta2 : float
        Weights of what was, in the mean direction and in its mean square.
    floor : float
        Added to the root: epsilon of the paper and of torch, tau of FedOpt.
    """

    name: Literal["adam"] = "adam"
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    floor: float = Field(default=1e-8, ge=1e-12, le=1e6)

    def step(self, memory: Memory | None, direction: Model) -> tuple[Memory, Model]:
        """The memory and the move after another ``direction``."""
        mean, variance = (1 - self.beta1) * direction, (1 - self.beta2) * square(direction)
        steps = 1
        if memory is not None:
            steps += memory.steps
            mean = self.beta1 * memory.averages[0] + mean
            variance = self.beta2 * memory.averages[1] + variance
        # Without the correction the first steps would be of another length than the later ones, by the factor
        # (1 - beta1) / sqrt(1 - beta2), and private runs often have few steps.
        corrected = mean / (1 - self.beta1**steps), variance / (1 - self.beta2**steps)
        return Memory(steps, (mean, variance)), divide_by_roots(*corrected, self.floor)


Optimizer = Annotated[
    Annotated[Sgd | Momentum | Adam, Field(discriminator="name")] | None,
    bare("name"),
    AfterValidator(lambda optimizer: None if isinstance(optimizer, Sgd) else optimizer),  # both are the same run
]
"""A name, or a mapping with a ``name``; None is `sgd`."""


def step(optimizer: Optimizer, memory: Memory | None, direction: Model) -> tuple[Memory | None, Model]:
    """One step of an optimizer.

    Parameters
    ----------
    optimizer : Optimizer
        The setting.
    memory : Memory or None
        Value that `step` returned last; None at first.
    direction : Public or Released
        The released gradient, or a sum of updates, [size].

    Returns
    -------
    Memory or None, Model
        What to remember, and the move, in the sense of ``direction``. Made of `Released` vectors, they are `Released`.
    """
    if optimizer is None or isinstance(optimizer, Sgd):
        return memory, direction
    return optimizer.step(memory, direction.within())
