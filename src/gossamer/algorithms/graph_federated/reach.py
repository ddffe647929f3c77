"""Lengths of vectors of honest agents and servers; what is longer is shortened, or refused."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gossamer.algorithms.context import Context
from gossamer.errors import PeerError
from gossamer.vectors import Blank, Vector

V = TypeVar("V", bound=Vector)
_ROUNDING = 1 - 2.0**-20  # what is shortened to a length is still within it once it is rounded to float32


@dataclass(frozen=True)
class Reach:
    """Most L2 norms of vectors; infinite where nothing depends on them, or nothing is known.

    Attributes
    ----------
    update : float
        mu B, to which agents' updates are shortened; infinite where noise that cancels makes single ones longer.
    total : float
        L mu B, to which a round's sum is shortened, with what agents add.
    message : float
        Of what a neighbour sends: longer models are refused, as no honest server sends them.
    model : float
        To which the combination of models is shortened (`gossamer.privacy.streams.model_radius`).
    start : float
        To which the model is shortened that agents are asked about: at a longer one they make no masked update.
    """

    update: float = math.inf
    total: float = math.inf
    message: float = math.inf
    model: float = math.inf
    start: float = math.inf

    @classmethod
    def of(cls, context: Context, sampled: int, update: float, *, single: bool = True) -> Reach:
        """Return the lengths of a unit that samples so many agents, whose updates are at most ``update`` long.

        ``single`` says whether each of them is, or only their sum.
        """
        found = cls(update if single else math.inf, math.inf if context.agent_noise else sampled * update)
        lengths = context.lengths
        if lengths is None:
            return found
        total = sampled * lengths.update if context.agent_noise else found.total
        return cls(found.update, total, lengths.message, lengths.model, _ROUNDING * lengths.radius)

    def check_message(self, model: Vector) -> None:
        """Refuse a neighbour's model that no honest server sends.

        Raises
        ------
        PeerError
            If it is too long.
        """
        if (found := length(model)) > self.message:
            raise PeerError(f"expected a model within {self.message:g} of zero, as honest ones are, found {found:g}")


def length(vector: Vector) -> float:
    """The L2 norm of ``vector``; 0 of a blank."""
    return 0.0 if isinstance(vector.values, Blank) else float(np.linalg.norm(vector.values))


def shortened(vector: V, most: float) -> V:
    """``vector``, scaled to the L2 norm ``most`` if it is longer: two of them come no further apart by that."""
    if math.isinf(most) or (found := length(vector)) <= most:
        return vector
    scaled: V = vector * (most / found)
    return scaled
