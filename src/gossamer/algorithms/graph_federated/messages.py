"""Messages in a graph of federated units: inside a unit, and between servers."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.protocol.messages import Message, message
from gossamer.vectors import Confined, Public, Released

# Inside a unit


@message("graph.assignment")
@dataclass(frozen=True)
class Assignment(Message):
    """Request of the server: make an update at ``model`` for ``round``."""

    round: int
    model: Public | Released | Confined


@message("graph.contribution")
@dataclass(frozen=True)
class Contribution(Message):
    """Reply of an agent: its update of ``round``, w_E - w_0."""

    round: int
    update: Confined


@message("graph.declined")
@dataclass(frozen=True)
class Declined(Message):
    """Reply of an agent: there will be no update, of this round or later ones."""


REASONS = ("quota", "budget", "deadline", "diverged", "stopped")
"""Why a server makes no more rounds, as `Over` numbers them; anything else is ``stopped``."""


@message("graph.over")
@dataclass(frozen=True)
class Over(Message):
    """Notice of the server: the run is over, for one of the `REASONS`; ``model`` is what it ends with."""

    reason: int
    model: Public | Released | Confined


# Between servers


@message("graph.combine")
@dataclass(frozen=True)
class Combine(Message):
    """M: the sender's model of ``round``, with noise."""

    round: int
    model: Released


@message("graph.average")
@dataclass(frozen=True)
class Average(Message):
    """Model that the sender has in round ``round`` of averaging at the end."""

    round: int
    model: Public | Released


@message("graph.leaving")
@dataclass(frozen=True)
class Leaving(Message):
    """The sender makes no more rounds; its newest model is its last."""
