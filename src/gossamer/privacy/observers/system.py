"""Runs whose vectors are linear in noisy gradients, and what each observer sees of them.

Where all that nodes do with gradients is to scale and add them up, by numbers that no data decide, every model and
message is ``public + sum_k R_k (g_k + z_k)``: g_k is the gradient that was released at draw k and z_k its noise, and
where the two are apart, as noise of a server and updates of its agents, one of them is 0. R is found by running the
very nodes of the run on its own clock, with `Combination`s in the place of numbers: vectors that know their
coefficients alone. Whatever is not linear, such as a square root, raises `NotLinear`.

Coefficients are in units of the noise, so that each z_k has a variance of 1 and g_k moves by `Draw.moved`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.errors import SpecError
from gossamer.privacy.observers.sensitivity import EVERY, Draw, Mu, Participation, view_of
from gossamer.vectors import Blank, Vector


class NotLinear(SpecError):
    """Refusal of a run that is not linear in its noisy gradients."""


class Combination(Blank):
    """A vector of which only its coefficients are known, those of noisy gradients: zeros after the last of ``row``."""

    __slots__ = ("row",)

    def __init__(self, size: int, dtype: npt.DTypeLike, row: FloatArray) -> None:
        super().__init__(size, dtype)
        self.row = row

    def astype(self, dtype: npt.DTypeLike) -> Combination:
        return Combination(self.size, dtype, self.row)

    def __getitem__(self, index: slice) -> Combination:
        if index != slice(None) and len(range(*index.indices(self.size))) != self.size:
            raise NotLinear("expected whole vectors, found a part of one")
        return self

    def _plus(self, other: Any, sign: float) -> Combination:
        if not isinstance(other, Combination) or other.size != self.size:
            raise NotLinear(f"expected vectors of one system, found a {type(other).__name__}")
        mine, theirs = self.row, other.row
        if len(mine) >= len(theirs):
            total = mine.copy()
            part = total[: len(theirs)]
            np.add(part, theirs, out=part) if sign > 0 else np.subtract(part, theirs, out=part)
        else:
            total = theirs.copy() if sign > 0 else -theirs
            total[: len(mine)] += mine
        return Combination(self.size, np.result_type(self.dtype, other.dtype), total)

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Vector) else self._plus(other, 1.0)

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Vector) else self._plus(other, -1.0)

    def __mul__(self, factor: Any) -> Any:
        if isinstance(factor, Vector):
            return NotImplemented
        if isinstance(factor, Blank | np.ndarray):
            raise NotLinear("expected a vector times a number, found a product of two vectors")
        return Combination(self.size, self.dtype, self.row * float(factor))

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


@dataclass(frozen=True)
class Seen:
    """One vector that somebody is sent.

    Attributes
    ----------
    sender, receiver : str
        Names of the two nodes.
    row : ndarray [at most draws]
        Its coefficients.
    inside : bool
        Whether it stays inside a unit of nodes that trust each other with raw data.
    """

    sender: str
    receiver: str
    row: FloatArray
    inside: bool = False


@dataclass(frozen=True)
class LinearSystem:
    """Messages of a run, as combinations of its noisy gradients.

    Attributes
    ----------
    draws : sequence of Draw
        Noisy gradients, in the order of time.
    seen : sequence of Seen
        Vectors of messages, in the order of time.
    final : mapping of str to ndarray [at most draws]
        Coefficients of each node's model at the end.
    """

    draws: Sequence[Draw]
    seen: Sequence[Seen]
    final: Mapping[str, FloatArray]

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
        rows: list[FloatArray] = []
        for part in observer.split("+"):
            kind, of = _read(part)
            if kind == "final":
                rows += self.final.values()
            elif kind == "everyone":
                rows += [one.row for one in self.seen if not one.inside]
            elif kind == "link":
                rows += [one.row for one in self.seen if {one.sender, one.receiver} == of]
            else:
                rows += [one.row for one in self.seen if one.receiver in of]
        own = np.array([draw.owner in names for draw in self.draws], bool)
        if names:
            rows = [np.where(own[: len(row)], 0.0, row) for row in rows]
        view = view_of(rows, self.draws)
        places: dict[str, list[int]] = {}
        for number, draw in enumerate(self.draws):
            if draw.moved:
                places.setdefault(draw.owner, []).append(number)
        return {owner: view.mu(draws, participation, loose) for owner, draws in places.items()}


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
            "observers are everyone, final, node:NAME, coalition:NAME,NAME and link:NAME,NAME, joined by plus; "
            f"found {observer!r}"
        )
    return kind, frozenset(names)


def vectors_in(message: Any) -> Iterator[Vector]:
    """Yield the vectors of a message, whose fields are whole numbers and vectors."""
    values = (getattr(message, one.name) for one in fields(message))
    return (value for value in values if isinstance(value, Vector))
