"""The state of a server of a federated unit."""

from __future__ import annotations

from dataclasses import dataclass, field

from gossamer.algorithms.graph_federated.neighbours import Newest
from gossamer.protocol.node import NEWER
from gossamer.vectors import Confined, Model


@dataclass
class ServerState:
    """State of a server.

    Attributes
    ----------
    own : vector
        What the unit's own updates have added up to: `Confined`, and the only part of its model that is raw. float64.
    common : vector
        The rest of w, or of psi, which follows from messages. float64.
    v : vector
        sum_m a_pm M_m, which follows from messages. float64.
    m : vector
        What it sent last; with random noise, the mean of what it sent. float64.
    start : vector
        Where its agents start: v, or w if it is hidden. Of the model's type, as all that is sent.
    round : int
        Rounds done; the number of the one under way.
    phase : str
        ``gathering``, ``releasing``, ``combining``, ``averaging``, or empty.
    waiting : set of str
        Agents whose updates are to come.
    total : vector or None
        The sum of updates so far.
    answers : int
        Number of updates in it.
    links : int
        Records of the round that were released.
    newest : dict of str to Newest
        What each neighbour sent.
    averages : dict of str to Newest
        What each neighbour sent while averaging.
    averaged : int
        Rounds of averaging done.
    away, left : set of str
        Peers that are down; neighbours that make no more rounds, and agents that have declined.
    staleness_sum, staleness_most : int
        Of the neighbours' models that were combined: rounds behind this server's.
    unanswered : int
        Updates that rounds ended without.
    patience : float
        Seconds until those that are waited for are asked whether they are there.
    ends : float or None
        The deadline.
    finished : str
        Why it makes no more rounds.
    held : int or None
        The newest round in which all agents that were asked were away, and that waited for the first to come back.
    """

    own: Model | Confined
    common: Model
    v: Model
    m: Model
    start: Model | Confined
    newest: dict[str, Newest]
    averages: dict[str, Newest]
    round: int = 0
    phase: str = ""
    waiting: set[str] = field(default_factory=set)
    total: Confined | None = None
    answers: int = 0
    links: int = 0
    averaged: int = 0
    away: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    staleness_sum: int = 0
    staleness_most: int = 0
    unanswered: int = 0
    patience: float = 0.0
    ends: float | None = None
    finished: str = ""
    held: int | None = field(default=None, metadata=NEWER)
