"""Optimizers: moves of a model made of released gradients, one after the other.

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

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gossamer.protocol.encoding import register
from gossamer.section import Section, bare
from gossamer.vectors import Model, divide_by_roots, square


@register("optimizer.memory")
@dataclass(frozen=True)
class Memory:
    """Part of a node's state that belongs to its optimizer.

    Attributes
    ----------
    steps : int
        Directions that it has seen.
    averages : tuple of Public or Released
        Of these directions, each [size]: b of `momentum`; m and v of `adam`.
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


def _plain_is_unset(optimizer: Sgd | Momentum | Adam | None) -> Momentum | Adam | None:
    """Take `sgd` for nothing said, so that both are the same run."""
    return None if isinstance(optimizer, Sgd) else optimizer


Optimizer = Annotated[
    Annotated[Sgd | Momentum | Adam, Field(discriminator="name")] | None,
    bare("name"),
    AfterValidator(_plain_is_unset),
]
"""A name, or a mapping with a ``name``; None is `sgd`."""


def step(optimizer: Optimizer, memory: Memory | None, direction: Model) -> tuple[Memory | None, Model]:
    """One step of an optimizer.

    Parameters
    ----------
    optimizer : Optimizer
        The setting.
    memory : Memory or None
        What `step` returned last; None at first.
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
