"""Streams of correlated noise: opened for so many rounds, drawn record by record.

Record i is B z's i-th row for one of the factorisations of `correlated_noise`. A stream keeps nothing itself: what the
next record needs is a `NoiseState`, plain data that goes in and comes out, so that a caller can store it before the
record is sent. A state that is drawn from twice, with the generator of the same record, gives the same bytes.

| temporal | what a state holds, in vectors of the model's size |
|---|---|
| `independent` | nothing |
| `random_walk` | 1: the sum so far |
| `banded` | as many as bands: the sum so far, and the last bands - 1 of its steps |
| `sqrt_toeplitz` | i before record i = 0, 1, ...: all z so far |

With c the kernel of C, `random_walk` and `banded` compute ``B z = A y`` with C y = z, that is ``y_i = z_i - c_1 y_(i-1)
- ... - c_(b-1) y_(i-b+1)`` (c_0 = 1), and the others ``b_0 z_i + b_1 z_(i-1) + ...``: whichever looks back less.

A state is as secret as the noise: with it the running sum can be read from the next message.

Records of correlated noise as a server keeps them, so that later ones can go on from them; see `streams.records`.

The ledger of a federated unit: one stream of noise, opened for so many records, with a line for each agent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import SpecError, did_you_mean
from gossamer.numbers import real_number, whole_number
from gossamer.privacy.streams.correlated_noise import Factorisation


@dataclass(frozen=True)
class StreamRecord:
    """Record of an answer: as private as the unit's data, of which it holds the state.

    Attributes
    ----------
    number : int
        Number of the record, from 0.
    state : ndarray [size] of float64
        s, raw.
    answer : ndarray [size] of float64
        M.
    """

    number: int
    state: FloatArray
    answer: FloatArray


class StreamRecords(Protocol):
    """Place that the newest records are kept in."""

    def kept(self) -> Sequence[StreamRecord]:
        """All that are kept, the oldest first."""
        ...

    def keep(self, record: StreamRecord, most: int) -> None:
        """Keep ``record``, and no more than the newest ``most``; it is durable when this returns."""
        ...


class Moves(Protocol):
    """Bound of how far one change of the data moves a unit's state in a round, such as `graph_bounds.UpdateBound`."""

    @property
    def moved(self) -> float | None:
        """D, in L2 norm; None where nothing is proved."""
        ...

    @property
    def agents_sampled(self) -> int:
        """L, agents whose updates are in a round."""
        ...


class NoiseLaw(StrEnum):
    """The law of every coordinate of z."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"


@dataclass(frozen=True)
class CorrelatedNoise:
    """B z for a factorisation: the noise of all messages of a run, as data.

    Attributes
    ----------
    factorisation : Factorisation
        B, and for how many rounds.
    standard_deviation : float
        Standard deviation of a coordinate of z, under either law.
    law : NoiseLaw
        Law of z. B z with Laplace z is a sum of Laplace variables, except for `independent`.

    Raises
    ------
    SpecError
        The standard deviation is not a finite number > 0, or the law is not known.
    """

    factorisation: Factorisation
    standard_deviation: float
    law: NoiseLaw = NoiseLaw.GAUSSIAN

    def __post_init__(self) -> None:
        if self.law not in list(NoiseLaw):
            raise SpecError(f"noise law {self.law!r} is not known{did_you_mean(str(self.law), NoiseLaw)}")
        object.__setattr__(self, "law", NoiseLaw(self.law))  # decoded, it is a bare string
        if not 0 < real_number(self.standard_deviation) < math.inf:
            raise SpecError(f"noise needs a finite standard deviation > 0, found {self.standard_deviation!r}")

    @property
    def message_standard_deviations(self) -> FloatArray:
        """Standard deviations of a coordinate of the noise in each message, [rounds]."""
        deviations: FloatArray = self.standard_deviation * np.sqrt(self.factorisation.message_variances)
        return deviations

    def describe(self) -> dict[str, Any]:
        """The noise as plain data."""
        return {
            "law": self.law.value,
            "standard_deviation": self.standard_deviation,
            **self.factorisation.describe(),
        }


@dataclass(frozen=True)
class NoiseState:
    """State that the next record of a stream needs: whole numbers and vectors.

    Attributes
    ----------
    record : int
        Number of the next record, from 0.
    total : ndarray [size] or None
        The noise of the last record, where the next one is that and a step.
    past : tuple of ndarray [size]
        Earlier steps, or earlier z, the newest first.
    """

    record: int = 0
    total: FloatArray | None = None
    past: tuple[FloatArray, ...] = field(default=())


class NoiseStream:
    """Draws the records of `CorrelatedNoise`, in order.

    Parameters
    ----------
    noise : CorrelatedNoise
        Noise that is drawn.
    size : int
        Coordinates of a record.
    """

    __slots__ = ("_back", "_sums", "_weights", "noise", "size")

    def __init__(self, noise: CorrelatedNoise, size: int) -> None:
        if size < 1:
            raise SpecError(f"a record of noise needs at least 1 coordinate, found {size!r}")
        self.noise = noise
        self.size = size
        forward, inverse = noise.factorisation.noise_kernel, noise.factorisation.kernel
        self._sums = len(inverse) < len(forward)
        self._weights = -inverse[1:] if self._sums else forward[1:]
        self._back = len(self._weights)

    def draw(self, state: NoiseState, generator: np.random.Generator) -> tuple[FloatArray, NoiseState]:
        """Record number ``state.record`` [size], float64, and the state for the next one.

        Parameters
        ----------
        state : NoiseState
            `NoiseState()` for the first record; it is not changed.
        generator : numpy Generator
            A fresh one for each record, such as ``Stream.at(state.record)``; it must be the same if a record is drawn
            again, and no other record may have it.

        Raises
        ------
        SpecError
            All rounds are drawn, or the state is not one of such a stream.
        """
        self._check(state)
        fresh = _DRAW[self.noise.law](generator, self.size)
        fresh *= self.noise.standard_deviation
        now = fresh.copy()
        for weight, earlier in zip(self._weights, state.past):
            now += weight * earlier
        kept = now if self._sums else fresh
        past = (kept, *state.past)[: self._back]
        record = now.copy() if state.total is None else state.total + now
        return record, NoiseState(state.record + 1, record.copy() if self._sums else None, past)

    def _check(self, state: NoiseState) -> None:
        rounds = self.noise.factorisation.rounds
        if not 0 <= state.record < rounds:
            raise SpecError(f"the stream was opened for {rounds} rounds, found a request for record {state.record + 1}")
        vectors = [*state.past, *([] if state.total is None else [state.total])]
        fits = len(state.past) == min(state.record, self._back) and (state.total is not None) == (
            self._sums and state.record > 0
        )
        if not fits or any(vector.shape != (self.size,) for vector in vectors):
            raise SpecError(
                f"the state of record {state.record} does not belong to this stream of {self.size} coordinates "
                f"({self.noise.describe()}); go on with the state that the last draw returned"
            )


def _laplace(generator: np.random.Generator, size: int) -> FloatArray:
    return generator.laplace(0.0, math.sqrt(0.5), size)  # variance 1


_DRAW: dict[NoiseLaw, Callable[[np.random.Generator, int], FloatArray]] = {
    NoiseLaw.GAUSSIAN: lambda generator, size: generator.standard_normal(size),
    NoiseLaw.LAPLACE: _laplace,
}


@dataclass(frozen=True)
class StreamKind:
    """Kind of a stream's releases, as data.

    Attributes
    ----------
    noise : CorrelatedNoise or None
        Noise of all records together; None adds nothing, and nothing is guaranteed.
    records : int
        Number of records that it is opened for.
    size : int
        Coordinates of a record.

    Raises
    ------
    SpecError
        If the number of records is none.
    """

    noise: CorrelatedNoise | None
    records: int
    size: int

    def __post_init__(self) -> None:
        if whole_number(self.records) is None:
            raise SpecError(f"a stream is opened for a whole number of records, 0 or more, found {self.records!r}")
        if whole_number(self.size) is None:
            raise SpecError(f"a stream is on a whole number of coordinates, found {self.size!r}")

    def describe(self) -> dict[str, Any]:
        """The kind as plain data, for ledgers and summaries."""
        law = {"mechanism": "none"} if self.noise is None else {"mechanism": "stream", **self.noise.describe()}
        return {**law, "records": self.records, "size": self.size}
