"""State of a server on its neighbours' models, and when it need not wait for more. No I/O: part of a node's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.errors import PeerError
from gossamer.protocol.encoding import register
from gossamer.vectors import Model


@register("graph.newest")
@dataclass(frozen=True)
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

    def others_sum(self, newest: Mapping[str, Newest], round: int | None) -> Model | None:
        """sum_{m != p} a_pm M_m: of ``round``, or the newest; None if there are no others."""
        total: Model | None = None
        for m, weight in self.others.items():
            model = newest[m].model if round is None else newest[m].at(round)
            total = weight * model if total is None else total + weight * model
        return total
