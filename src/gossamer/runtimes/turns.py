"""Turns of the coordinator and the shards of a simulation: orders and what is said to them, as data."""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, IndexArray
from gossamer.runtimes.computations import Counters
from gossamer.runtimes.order import Bound, Key, Ranks, Times, final_rank
from gossamer.vectors import Confined, Masked, Public, Released, Vector

# Messages, states and ledgers on their way between the shards of one simulation.
#
# Objects are pickled without their vectors, which travel as matrices, one of each size: a pickle of thousands of small
# arrays would take longer than what was computed. Both ends are processes of one run and of one user, which trust each
# other with everything; nothing here is for peers.

_LABELS: tuple[type[Vector], ...] = (Public, Released, Masked, Confined)
_CODES = {label: code for code, label in enumerate(_LABELS)}


class Packed(NamedTuple):
    """Objects as bytes, and their vectors as matrices.

    Attributes
    ----------
    content : bytes
        The pickle.
    vectors : tuple of ndarray [vectors, size]
        Vectors by size and type.
    labels : tuple of bytes
        Label of each row.
    """

    content: bytes
    vectors: tuple[FloatArray, ...]
    labels: tuple[bytes, ...]


class _Packer(pickle.Pickler):
    """Puts a place in a matrix where there was a vector."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._groups: dict[tuple[int, str], int] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self.rows: list[list[Vector]] = []

    def persistent_id(self, obj: Any) -> tuple[int, int] | None:
        if type(obj) not in _CODES or type(obj.values) is not np.ndarray:
            return None
        place = self._places.get(id(obj))  # which nobody else gets: `rows` has it until all is packed
        if place is None:
            group = self._groups.setdefault((obj.values.size, obj.values.dtype.str), len(self.rows))
            if group == len(self.rows):
                self.rows.append([])
            place = self._places[id(obj)] = group, len(self.rows[group])
            self.rows[group].append(obj)
        return place


class _Unpacker(pickle.Unpickler):
    def __init__(self, packed: Packed) -> None:
        super().__init__(io.BytesIO(packed.content))
        self._vectors = [
            # Each with memory of its own: a view would keep the whole matrix as long as anybody has one of its rows.
            [_LABELS[code](row.copy()) for code, row in zip(codes, rows, strict=True)]
            for codes, rows in zip(packed.labels, packed.vectors, strict=True)
        ]

    def persistent_load(self, pid: tuple[int, int]) -> Vector:
        group, row = pid
        return self._vectors[group][row]


def packed(what: Any) -> Packed:
    """Return objects as they travel."""
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(what)
    vectors = tuple(np.stack([vector.values for vector in rows]) for rows in packer.rows)
    labels = tuple(bytes(_CODES[type(vector)] for vector in rows) for rows in packer.rows)
    return Packed(file.getvalue(), vectors, labels)


def unpacked(found: Packed) -> Any:
    """Return the objects again; a vector that was in them twice is one vector in them."""
    return _Unpacker(found).load()


RECORD, RECEIPT = "record", "receipt"
"""Channels of notes: private logs, and what was charged."""
BEGUN, ENDED = 1, 2
"""Flags of an event in which a computation was begun, or completed."""


@dataclass(frozen=True)
class Parcel:
    """Messages from one shard to another.

    Attributes
    ----------
    times, causes, ranks, numbers : ndarray [messages]
        The arrivals' keys.
    content : Packed
        Senders, recipients and messages.
    """

    times: Times
    causes: Times
    ranks: IndexArray
    numbers: IndexArray
    content: Packed

    def ranked(self, final: Ranks) -> Parcel:
        """The parcel with final ranks of its causes."""
        if not final:
            return self
        pairs = zip(self.causes.tolist(), self.ranks.tolist(), strict=True)
        return replace(self, ranks=np.array([final_rank(time, rank, final) for time, rank in pairs], np.int64))


@dataclass(frozen=True)
class Orders:
    """Orders to a shard at the beginning of a window.

    Attributes
    ----------
    parcels : sequence of Parcel
        Messages that others have sent it.
    ranks : Ranks
        Final ranks of what it let happen in the last window.
    last : (float, int)
        The time of the last event of all shards, and how many there were of it.
    limit : float
        No event before this time is unknown to it, except those that follow from its own.
    """

    parcels: Sequence[Parcel] = ()
    ranks: Ranks = field(default_factory=dict)
    last: tuple[float, int] = (-math.inf, 0)
    limit: float = -math.inf


class Outlook(NamedTuple):
    """Outlook of a shard up to the limit of a window.

    Attributes
    ----------
    next : Key or None
        The next event's place.
    most : float
        Most computations that will be completed.
    horizon : float
        A time before which none is completed that has not begun.
    working_until : Bound or None
        A place before which some of its nodes may compute again for sure; None if that is beyond the limit.
    last_arrival : Key or None
        The last place at which a message arrives that was sent; looked for where nobody works any more.
    """

    next: Key | None
    most: float
    horizon: float
    working_until: Bound | None
    last_arrival: Key | None


@dataclass(frozen=True)
class Happened:
    """Account of what happened on a shard in a window.

    Attributes
    ----------
    times, nodes, flags : ndarray [events]
        Times, nodes and flags of its events in order: when, at which node, by number, and whether a computation was
        begun or completed.
    parcels : mapping of int to Parcel
        Messages that it sent, by shard.
    notes : sequence of tuple
        (place among its events, `RECORD` or `RECEIPT`, and the arguments of who hears of such).
    drawn : sequence of tuple
        (place among its events, arguments of `Timeline.add`).
    next : Key or None
        The next event's place, as far as it knows.
    working, under_way : int
        Nodes that may compute again; messages that it has sent or got, and that have not been received.
    counters : Counters
        Counters of all that it did so far.
    messages, bytes : int
        Sent by its nodes so far.
    finished : mapping of str to str
        Reason why nodes make no more updates; of those that have finished since the last window.
    now : float
        The time of its last event.
    """

    times: Times
    nodes: npt.NDArray[np.int32]
    flags: npt.NDArray[np.int8]
    parcels: Mapping[int, Parcel]
    notes: Sequence[tuple[Any, ...]]
    drawn: Sequence[tuple[Any, ...]]
    next: Key | None
    working: int
    under_way: int
    counters: Counters
    messages: int
    bytes: int
    finished: Mapping[str, str]
    now: float


def parcel_of(sent: Sequence[tuple[Any, ...]]) -> Parcel:
    """Return messages as they travel: (time, cause, rank, number, sender, recipient, message) of each."""
    times, causes, ranks, numbers, senders, recipients, messages = zip(*sent, strict=True)
    content = packed(list(zip(senders, recipients, messages, strict=True)))
    return Parcel(np.array(times), np.array(causes), np.array(ranks, np.int64), np.array(numbers, np.int64), content)
