"""Digest of a node: the word in which it says how it is to those who watch its federation.

It has what its peers and the broker could count, and the problems that the node has. Nothing in it is a loss, the size
of an update, or a time that a computation took; `party.overview` makes it of the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from gossamer.protocol import encoding

LONGEST_TEXT = 160
"""Most characters of a text."""
MOST_ENTRIES = 8
"""Most peers, and problems, that are named."""
MOST_VALUES = 16 + 10 * MOST_ENTRIES
"""Most values of a digest as bytes."""
_LARGEST = 1e12


@encoding.register("peer.late")
@dataclass(frozen=True, slots=True)
class Late:
    """A peer that a node does not reach, or not hear.

    Attributes
    ----------
    name : str
        The peer.
    state : str
        State of it, as `PeerState` names it.
    unacknowledged : float
        Seconds for which it has acknowledged nothing of what it was sent; 0 where that is not so.
    why : str
        Reason, as far as the node's side of the way knows it; empty where it does not.
    """

    name: str
    state: str
    unacknowledged: float
    why: str

    def __post_init__(self) -> None:
        _check(self)


@encoding.register("peer.problem")
@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that somebody should look at: its level (1 or 2), its kind and its text, as of `party.health.Alert`."""

    level: int
    kind: str
    text: str

    def __post_init__(self) -> None:
        _check(self)
        if self.level not in (1, 2):
            raise ValueError(f"expected level 1 or 2, found {self.level}")


@encoding.register("peer.digest")
@dataclass(frozen=True, slots=True)
class Digest:
    """State of a node, in few words.

    Attributes
    ----------
    version : str
        Version of the software that it runs.
    time : float
        Seconds since 1970 by its machine's clock.
    state : str
        State, as its status has it.
    since : float
        Seconds since 1970 at which it came to be in that state.
    updates : int
        Whole updates since its process began.
    releases, planned : int
        Releases since the run began, and of the plan; -1 where there is no plan.
    up, peers : int
        Number of peers that are up, and of those that it keeps in touch with.
    late : tuple of Late
        Those of them that are not reached, the worst first.
    problems : tuple of Problem
        Problems of it, the worst first.
    """

    version: str
    time: float
    state: str
    since: float
    updates: int
    releases: int
    planned: int
    up: int
    peers: int
    late: tuple[Late, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __post_init__(self) -> None:
        _check(self)
        for entries, kind in ((self.late, Late), (self.problems, Problem)):
            if len(entries) > MOST_ENTRIES or any(type(entry) is not kind for entry in entries):
                raise ValueError(f"expected at most {MOST_ENTRIES} of {kind.__name__}")


_PLAIN: Mapping[str, type] = {"str": str, "int": int, "float": float}


def _check(value: object) -> None:
    """Raise ValueError where a field is not of its type, or out of bounds: a peer may say anything."""
    for field in fields(value):  # type: ignore[arg-type]
        found, kind = getattr(value, field.name), _PLAIN.get(str(field.type), tuple)
        if type(found) is not kind or (isinstance(found, str) and len(found) > LONGEST_TEXT):
            raise ValueError(f"expected {field.name} to be a short {kind.__name__}")
        if isinstance(found, int | float) and not -1 <= found < _LARGEST:
            raise ValueError(f"expected a number from -1 for {field.name}, found {found!r}")
