"""Servers that are neighbours: their messages, what one keeps of another's models, its weights, and honest lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.algorithms.aggregation import Aggregation, length
from gossamer.algorithms.context import Context
from gossamer.errors import PeerError
from gossamer.protocol.encoding import frozen
from gossamer.protocol.messages import Message, message
from gossamer.vectors import Model, Public, Released, Vector


@message("graph.combine")
class Combine(Message):
    """M: the sender's model of ``round``, with noise."""

    round: int
    model: Released


@message("graph.average")
class Average(Message):
    """Model that the sender has in round ``round`` of averaging at the end."""

    round: int
    model: Public | Released


@message("graph.leaving")
class Leaving(Message):
    """The sender makes no more rounds; its newest model is its last."""


_ROUNDING = 1 - 2.0**-20  # what is shortened to a length is still within it once it is rounded to float32


@dataclass(frozen=True)
class Reach:
    """Most L2 norms of vectors; infinite where nothing depends on them, or nothing is known.

    Attributes
    ----------
    update : float
        mu B, to which agents' updates are shortened.
    total : float
        L mu B, to which a round's sum is shortened, with what agents add.
    message : float
        Length of what a neighbour sends: longer models are refused, as no honest server sends them.
    model : float
        Length to which the combination of models is shortened (`gossamer.privacy.streams.graph_bounds`).
    start : float
        Length to which the model is shortened that agents are asked about: at a longer one they make no masked update.
    """

    update: float = math.inf
    total: float = math.inf
    message: float = math.inf
    model: float = math.inf
    start: float = math.inf

    @classmethod
    def of(cls, context: Context, sampled: int, update: float) -> Reach:
        """Return the lengths of a unit that samples so many agents, whose updates are at most ``update`` long."""
        found = cls(update, math.inf if context.agent_noise else sampled * update)
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


@frozen("graph.newest")
class Newest:
    """The newest model of a neighbour, of ``round`` (-1: the initial one), and the one before."""

    round: int
    model: Model
    before: Model | None = None

    def taking(self, sender: str, round: int, model: Model) -> Newest:
        """Return the newest with one more model.

        Raises
        ------
        PeerError
            If it is not a newer one.
        """
        if round <= self.round:
            raise PeerError(f"{sender} sends round {round} after round {self.round}: rounds go up")
        return Newest(round, model, self.model if round == self.round + 1 else None)

    def at(self, round: int) -> Model:
        """The model of ``round`` if there still is one, else the newest.

        A neighbour that keeps in step is at most one round ahead.
        """
        return self.before if round == self.round - 1 and self.before is not None else self.model


@dataclass(frozen=True)
class Weights:
    """Row p of the combination matrix: a_pp, and a_pm of each neighbour m."""

    own: float
    others: Mapping[str, float]

    def missing(self, newest: Mapping[str, Newest], round: int) -> set[str]:
        """The neighbours that have not sent their model of ``round``."""
        return {m for m in self.others if newest[m].round < round}

    def combined(self, own: Model, newest: Mapping[str, Newest], round: int | None, robust: Aggregation) -> Model:
        """sum_m a_pm M_m, ``own`` being M_p, of ``round`` or the newest; or what a ``robust`` rule makes of all M_m."""
        models = {m: newest[m].model if round is None else newest[m].at(round) for m in self.others}
        if robust is not None and not robust.clips:
            return robust.of([own, *models.values()])
        if robust is not None:
            models = {m: robust.near(own, model) for m, model in models.items()}
        total: Model | None = None
        for m, weight in self.others.items():
            total = weight * models[m] if total is None else total + weight * models[m]
        mine: Model = self.own * own
        return mine if total is None else mine + total
