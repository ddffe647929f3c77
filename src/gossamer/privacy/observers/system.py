"""Runs whose vectors are linear in noisy gradients, and what each observer sees of them.

Where all that nodes do with gradients is to scale and add them up, by numbers that no data decide, every model and
message is ``public + sum_k R_k (g_k + z_k)``: g_k is the gradient that was released at draw k and z_k its noise, and
where the two are apart, as noise of a server and updates of its agents, one of them is 0. R is found by running the
very nodes of the run on its own clock, with `Combination`s in the place of numbers: vectors that know their
coefficients alone. Whatever is not linear, such as a square root, raises `NotLinear`.

Coefficients are in units of the noise, so that each z_k has a variance of 1 and g_k moves by `Draw.moved`.

No vector has as many of them as there are draws. After every so many, a `Book` ends a block of time: the vectors that
there are then, a few of each node, are what later ones are written in, with the draws since. So a long run is a chain
of small sparse matrices, which `gossamer.privacy.observers.states` never multiplies out. Where noise and gradients are
apart, messages are looked at all together, and there is one block.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gossamer.arrays import BoolArray, FloatArray
from gossamer.errors import SpecError
from gossamer.privacy.observers.sensitivity import EVERY, ROUNDING, Draw, Mu, Participation, mu_of, shifts
from gossamer.privacy.observers.states import Block, grams
from gossamer.vectors import Blank, Vector

_FAINT = 1e-10
"""Part of the largest step from which on rounding does not hide one."""
_FEW_SUMS = 8
"""Averages one after the other after which models may differ by so little that rounding hides it."""


class NotLinear(SpecError):
    """Refusal of a run that is not linear in its noisy gradients."""


class Combination(Blank):
    """A vector of which only its coefficients are known: zeros after the last of ``row``, which is of a ``book``.

    It is a sum of sums of ..., ``sums`` deep, of vectors of which one is a draw, and has their entries from ``first``.
    """

    __slots__ = ("__weakref__", "book", "first", "row", "sums")

    def __init__(
        self, size: int, dtype: npt.DTypeLike, row: FloatArray, book: Book | None = None, sums: int = 0, first: int = 0
    ) -> None:
        super().__init__(size, dtype)
        self.row, self.book, self.sums, self.first = row, book, sums, first
        if book is not None:
            book.there.append(ref(self))

    def astype(self, dtype: npt.DTypeLike) -> Combination:
        return Combination(self.size, dtype, self.row, self.book, self.sums, self.first)

    @property
    def entries(self) -> tuple[int, int]:
        """First entry of whole vectors that it has, and the one after the last."""
        return self.first, self.first + self.size

    def __getitem__(self, index: slice) -> Combination:
        entries = range(self.size)[index]
        if entries.step != 1:
            raise NotLinear("expected vectors and stretches of them, found some entries of one")
        return Combination(len(entries), self.dtype, self.row, self.book, self.sums, self.first + entries.start)

    def joined(self, parts: Sequence[Any]) -> Combination:
        """Return the vector that ``parts`` are stretches of."""
        apart = any(one.entries[1] != other.first for one, other in pairwise(parts))
        if apart or (self.book is not None and not self.book.alike([one.row for one in parts])):
            raise NotLinear("expected stretches of one vector, found those of several")
        return Combination(
            sum(one.size for one in parts), self.dtype, self.row, self.book, max(one.sums for one in parts), self.first
        )

    def mixed(self, others: Sequence[Any], shares: Sequence[float]) -> Combination:
        return self._with(others, shares, 1.0 - math.fsum(shares), 1 + (len(others) > 1))

    def _plus(self, other: Any, sign: float) -> Combination:
        return self._with([other], [sign], 1.0, 1)

    def _with(self, others: Sequence[Any], factors: Sequence[float], own: float, deeper: int) -> Combination:
        """Return ``own`` times it plus ``factors`` times others, that many sums deeper."""
        for one in (self, *others):
            if not isinstance(one, Combination) or one.entries != self.entries:
                raise NotLinear(f"expected vectors of one system, found a {type(one).__name__}")
            if one.book is not None and not one.sums:
                one.book.used(one.row)
        total = np.zeros(max(len(one.row) for one in (self, *others)))
        for one, factor in zip((self, *others), (own, *factors), strict=True):
            total[: len(one.row)] += one.row if factor == 1.0 else factor * one.row
        dtype = np.result_type(self.dtype, *(one.dtype for one in others))
        sums = min(one.sums for one in (self, *others)) + deeper
        book = next((one.book for one in (self, *others) if one.book is not None), None)
        return Combination(self.size, dtype, total, book, sums, self.first)

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Vector) else self._plus(other, 1.0)

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Vector) else self._plus(other, -1.0)

    def __mul__(self, factor: Any) -> Any:
        if isinstance(factor, Vector):
            return NotImplemented
        if isinstance(factor, Blank | np.ndarray):
            raise NotLinear("expected a vector times a number, found a product of vectors, as in adaptive optimizers")
        return Combination(self.size, self.dtype, self.row * float(factor), self.book, self.sums, self.first)

    def __rmul__(self, factor: Any) -> Any:
        return self * factor

    def __truediv__(self, divisor: Any) -> Any:
        if isinstance(divisor, Blank | np.ndarray):
            raise NotLinear("expected a vector over a number, found one over another vector")
        return self * (1.0 / divisor)

    def __radd__(self, other: Any) -> Any:
        return self._plus(other, 1.0)

    def __rsub__(self, other: Any) -> Any:
        return self._plus(other, 1.0)  # of what is no combination, which is refused


@dataclass
class Book:
    """Draws of a run, and the vectors that there are.

    Attributes
    ----------
    each : int
        Draws in a block of time.
    draws : list of Draw
        Noisy gradients so far.
    blocks : list of Block
        Blocks that are over.
    there : list of weak references to Combination
        Vectors that may still be there.
    largest : float
        Largest coefficient with which a draw was first added to something.
    """

    each: int
    draws: list[Draw] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    there: list[ref[Combination]] = field(default_factory=list)
    largest: float = 0.0

    def used(self, row: FloatArray) -> None:
        """Refuse a draw that is added with a coefficient that rounding hides beside those of others."""
        if len(row) <= (self.blocks[-1].ends.shape[0] if self.blocks else 0) or not (size := abs(float(row[-1]))):
            return  # a draw of an earlier block, or one that nothing follows from
        self.largest = max(self.largest, size)
        if size < _FAINT * self.largest:
            raise NotLinear(
                f"expected steps of one order, found one {size / self.largest:.1e} times as long as another, which "
                "rounding hides; let learning rates fall less"
            )

    def alike(self, rows: Sequence[FloatArray]) -> bool:
        """Whether ``rows`` are of one vector but for rounding, in whatever vectors of earlier times it is written."""
        long = max(map(len, rows))
        left = np.array([np.append(row, np.zeros(long - len(row))) for row in rows])
        left[1:] -= left[0]
        for ends in (*(block.ends for block in reversed(self.blocks)), csr_array((0, 0))):
            rounded = ROUNDING * left.shape[1] * np.abs(left[0]).max(initial=0.0)
            off = np.abs(left[1:]).max(axis=0, initial=0.0) > rounded
            if not off.any() or off[ends.shape[0] :].any():
                break
            left = left[:, : ends.shape[0]] @ ends[: left.shape[1]]
        return not off.any()

    def drawn(self, size: int, dtype: npt.DTypeLike, scale: float, draw: Draw) -> Combination:
        """Return ``scale`` times a new draw."""
        if len(self.draws) >= self.each * (1 + len(self.blocks)):
            self._end_block()
        self.draws.append(draw)
        base = self.blocks[-1].ends.shape[0] if self.blocks else 0
        row = np.zeros(base + len(self.draws) - self.each * len(self.blocks))
        row[-1] = scale
        return Combination(size, dtype, row, self)

    def _end_block(self) -> None:
        """Let the vectors that there are be those that others are written in from now on."""
        left = [one for reference in self.there if (one := reference()) is not None and one.row.any()]
        of = {id(one.row): one.row for one in left}  # copies of one vector are one
        block = _open(self.blocks, len(self.draws))
        self.blocks.append(replace(block, ends=_stacked(list(of.values()), block)))
        units = {key: np.append(np.zeros(place), 1.0) for place, key in enumerate(of)}
        for one in left:
            one.row = units[id(one.row)]
        self.there = [ref(one) for one in left]


def _open(blocks: Sequence[Block], draws: int) -> Block:
    """Return the block after ``blocks``, of what is drawn since and without an end, once there are so many draws."""
    first, base = (blocks[-1].first + blocks[-1].draws, blocks[-1].ends.shape[0]) if blocks else (0, 0)
    return Block(first, base, draws - first, csr_array((0, base + draws - first)))


def _stacked(rows: Sequence[FloatArray], block: Block) -> csr_array:
    """Return ``rows`` of a block as a sparse matrix [rows, base + draws]."""
    places = [np.flatnonzero(row) for row in rows]
    ends = np.cumsum([0, *map(len, places)])
    values = np.concatenate([np.zeros(0), *(row[place] for row, place in zip(rows, places, strict=True))])
    of = np.concatenate([np.zeros(0, np.int64), *places])
    return csr_array((values, of, ends), (len(rows), block.base + block.draws))


@dataclass(frozen=True)
class Seen:
    """One vector that somebody is sent.

    Attributes
    ----------
    sender, receiver : str
        Names of the two nodes.
    row : ndarray [at most base + draws]
        Its coefficients, of vectors at the start of a block and draws since.
    inside : bool
        Whether it stays inside a unit of nodes that trust each other with raw data.
    block : int
        Number of the block.
    entries : tuple of int
        First entry of models that it has, and the one after the last.
    """

    sender: str
    receiver: str
    row: FloatArray
    inside: bool = False
    block: int = 0
    entries: tuple[int, int] = (0, 1)


@dataclass(frozen=True)
class LinearSystem:
    """Messages of a run, as combinations of its noisy gradients.

    Attributes
    ----------
    draws : sequence of Draw
        Noisy gradients, in the order of time.
    seen : sequence of Seen
        Vectors of messages, in the order of time.
    final : mapping of str to ndarray
        Coefficients of each node's model at the end, in the last block.
    blocks : sequence of Block
        Blocks of time but for the last, at whose end nothing follows.
    sums : int
        Most `Combination.sums` of a model at the end.
    """

    draws: Sequence[Draw]
    seen: Sequence[Seen]
    final: Mapping[str, FloatArray]
    blocks: Sequence[Block] = ()
    sums: int = 0

    def against(self, observer: str, participation: Participation = EVERY, loose: float = 1e-6) -> dict[str, Mu]:
        """Return mu of each party against an observer, if all gradients are fixed; see `sensitivity`.

        Parameters
        ----------
        observer : str
            ``everyone``, who reads all messages; ``final``, who has the models at the end; ``node:NAME``, or
            ``coalition:NAME,NAME``, who get messages and know their own gradients and noise; ``link:NAME,NAME``. Parts
            that are joined by a plus are one observer.
        participation : Participation
            Draws that one change may be in.
        loose : float
            Share of mu^2 that need not be searched for.

        Raises
        ------
        SpecError
            If it is none of these, or names a node that is not in the run.
        """
        names = members_of(observer, self.final)
        all_new = "final" in observer.split("+") and self.sums > _FEW_SUMS
        own = np.array([draw.owner in names or draw.also in names for draw in self.draws], bool)
        places, lengths = self._moving
        views = [self.seen_by(observer, entries) for entries in pairwise(self._cuts or (0, 1))]
        views = list({tuple((at, id(row)) for at, row in found): found for found in views}.values())
        if all(draw.noisy for draw in self.draws):
            each = [self.parts(found, own, places, all_new) for found in views]
        else:
            assert not self.blocks, "where noise and gradients are apart, there is one block"
            [found] = views  # of whole vectors
            rows = [np.where(own[: len(row)], 0.0, row) for _, row in found]
            moves, escapes = shifts(rows, self.draws)
            each = [{owner: moves[of] @ moves[of].T for owner, of in places.items() if not escapes[of].any()}]
        known = {
            owner: mu_of(np.stack([parts[owner] for parts in each]), lengths[owner], participation, loose)
            for owner in each[0]
        }
        return {owner: known.get(owner, Mu(math.inf, math.inf)) for owner in places}

    @cached_property
    def _moving(self) -> tuple[dict[str, list[int]], dict[str, FloatArray]]:
        """Draws of each party that its data move, and by what lengths."""
        places: dict[str, list[int]] = {}
        for number, draw in enumerate(self.draws):
            if draw.moved:
                places.setdefault(draw.owner, []).append(number)
        return places, {owner: np.array([self.draws[one].moved for one in of]) for owner, of in places.items()}

    @cached_property
    def _heard(self) -> dict[str, list[Seen]]:
        """Messages to each node."""
        found: dict[str, list[Seen]] = {}
        for one in self.seen:
            found.setdefault(one.receiver, []).append(one)
        return found

    @cached_property
    def _cuts(self) -> list[int]:
        """Entries at which a vector begins or ends."""
        return sorted({cut for one in self.seen for cut in one.entries})

    def parts(
        self,
        found: Sequence[tuple[int, FloatArray]],
        own: BoolArray,
        places: Mapping[str, Sequence[int]],
        all_new: bool = False,
    ) -> dict[str, FloatArray]:
        """Return P of the draws in ``places`` of each party, against who has ``found`` and knows its ``own`` draws.

        If ``all_new``, a vector that seems to follow from others leaves unclear what is known.
        """
        blocks = [*self.blocks, _open(self.blocks, len(self.draws))]
        seen: list[list[FloatArray]] = [[] for _ in blocks]
        for at, row in found:
            seen[at].append(row)
        matrices = [_stacked(rows, one) for rows, one in zip(seen, blocks, strict=True)]
        return grams(blocks, matrices, own, places, all_new)

    def seen_by(self, observer: str, entries: tuple[int, int] | None = None) -> list[tuple[int, FloatArray]]:
        """List what an observer has of all ``entries`` in the order of time, each vector once, with its block."""
        first, last = entries or (math.inf, -math.inf)
        found: list[tuple[int, FloatArray]] = []
        for kind, of in map(_read, observer.split("+")):
            if kind == "final":
                found += [(len(self.blocks), row) for row in self.final.values()]
                continue
            heard = self.seen if kind == "everyone" else [one for name in of for one in self._heard.get(name, ())]
            found += [
                (one.block, one.row)
                for one in heard
                if one.entries[0] <= first
                and last <= one.entries[1]
                and (kind != "everyone" or not one.inside)
                and (kind != "link" or {one.sender, one.receiver} == of)
            ]
        once = {(at, id(row)): (at, row) for at, row in found}
        return sorted(once.values(), key=lambda one: one[0])


def members_of(observer: str, nodes: Container[str]) -> frozenset[str]:
    """Return the nodes that an observer is made of; none of one that only listens.

    Raises
    ------
    SpecError
        If it is no observer, or names a node that is not among ``nodes``.
    """
    found: set[str] = set()
    for kind, names in map(_read, observer.split("+")):
        if unknown := sorted(name for name in names if name not in nodes):
            raise SpecError(f"{observer}: the run has no node {unknown[0]!r}; take one of the run's nodes")
        found |= names if kind != "link" else set()
    return frozenset(found)


def _read(observer: str) -> tuple[str, frozenset[str]]:
    """Read a kind of observer and the nodes that it names."""
    kind, _, rest = observer.partition(":")
    names = rest.split(",") if rest else []
    number = {"everyone": 0, "final": 0, "node": 1, "link": 2, "coalition": max(len(names), 1)}.get(kind)
    if number != len(set(filter(None, names))):
        raise SpecError(
            "observers are everyone, final, node:NAME, coalition:NAME,NAME and link:NAME,NAME, joined by plus, and "
            f"servers are nodes, as node:server or node:server-0; found {observer!r}"
        )
    return kind, frozenset(names)


def vectors_in(message: Any) -> Iterator[Vector]:
    """Yield the vectors of a message, whose fields are whole numbers and vectors."""
    kind: type = type(message)
    values = (getattr(message, name) for name in _names(kind))
    return (value for value in values if isinstance(value, Vector))


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))
