"""Noise that is correlated over the rounds of a running sum: factorisations of the matrix of ones.

In graph federated learning the i-th message of a unit is public terms, less the step size times the *running sum*
x_1 + ... + x_i of its updates, plus noise. Written for all T rounds this is A x + noise with A the T x T
lower-triangular matrix of ones. A factorisation A = B C into lower-triangular matrices makes the noise B z, with z
independent from round to round: then ``A x + B z = B (C x + z)``, and whoever sees the messages knows as much as
somebody who sees C x + z.

| temporal | C, by its first column | B | message i carries |
|---|---|---|---|
| `independent` | 1, 1, 1, ...: A itself | identity | z_i: fresh noise |
| `random_walk` | 1: the identity | A | z_1 + ... + z_i |
| `sqrt_toeplitz` | binom(2j, j)/4^j: the square root of A | the same | all z so far, weighted |
| `banded` | the first ``bands`` of these, then zeros | A C^-1 | a running sum of z filtered |

All matrices are Toeplitz, so that a matrix is its first column, here a *kernel*: as power series c(x) b(x) = 1/(1-x),
and c(x) is (1-x)^-1, 1, (1-x)^-1/2, or the beginning of the last one.

**How far z is moved.** Let one change of the data move each update by at most 1 in L2 norm: by d_j in round j, where
d_j may depend on all that was seen before. Then C x + z is moved by C d, and

    sum_i |sum_j C_ij d_j|^2 = sum_jk (C'C)_jk <d_j, d_k> = <C'C, X>,   X_jk = <d_j, d_k>, X psd, X_jj <= 1.

Its maximum over such X is at most sum_jk |(C'C)_jk|, since |X_jk| <= 1; where C'C has no negative entry the two are
equal, at equal d_j, and are |C 1|^2. That is the square of `Factorisation.sensitivity`, S below.

Normal z of standard deviation s make all messages together S/s-Gaussian differentially private [2], for updates that
are chosen adaptively too [1, theorem 2.1]. Take s = 1. Given what was seen before, record i of C x + z is normal, and
the data sets differ in its mean, by m_i with sum_i |m_i|^2 <= S^2 on every path; add one more record, moved by what is
missing to S^2. The privacy loss is then sum_i <m_i, z_i> + S^2/2 under one data set and that less S^2 under the other,
and the sum is exactly N(0, S^2): in E exp(t sum_i <m_i, z_i>) the last record contributes exp(t^2 |m_T|^2/2), and with
|m_T|^2 = S^2 - (all before) each record in turn cancels its own part, which leaves exp(t^2 S^2/2).

**The least largest noise.** The last row of B times C 1 is T, so by Cauchy-Schwarz |C 1| times the largest standard
deviation of a message is at least T s. `random_walk` has exactly that: T^1/2 and T^1/2. No factorisation is better by
this measure; by the disagreement that noise causes in a network (`graph_federated.noise`) others can be.

**Streams** are opened for so many rounds, and drawn record by record.

Record i of a stream is B z's i-th row. A stream keeps nothing itself: what the
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

References
----------
[1] Denisov, McMahan, Rush, Smith and Thakurta, "Improved differential privacy for SGD via optimal private linear
    operators on adaptive streams", NeurIPS 2022.
[2] Dong, Roth and Su, "Gaussian differential privacy", JRSS-B 2022.
[3] Fichtenberger, Henzinger and Upadhyay, "Constant matters: fine-grained complexity of differentially private
    continual observation", ICML 2023: the square root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import SpecError, require_counts, require_positive, require_whole, whole_number


class Temporal(StrEnum):
    """Relation of one round's noise to that of the rounds before."""

    INDEPENDENT = "independent"
    RANDOM_WALK = "random_walk"
    BANDED = "banded"
    SQRT_TOEPLITZ = "sqrt_toeplitz"


@dataclass(frozen=True)
class Factorisation:
    """A = B C for T rounds; see the module.

    Attributes
    ----------
    temporal : Temporal
        Name of the factorisation.
    rounds : int
        T >= 1.
    bands : int or None
        Nonzero diagonals of C, from 1 to T-1; for `banded`, and for no other.

    Raises
    ------
    SpecError
        There is no such factorisation.
    """

    temporal: Temporal
    rounds: int
    bands: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "temporal", Temporal(self.temporal))  # decoded, it is a bare string
        require_counts(rounds=self.rounds)
        if self.temporal is not Temporal.BANDED:
            if self.bands is not None:
                raise SpecError(f"bands are for temporal: banded, found {self.bands!r} with {self.temporal}; leave out")
        elif not 1 <= (whole_number(self.bands) or 0) < self.rounds:
            raise SpecError(
                f"bands must be a whole number, at least 1 and below the {self.rounds} rounds, found {self.bands!r}; "
                "use sqrt_toeplitz for as many as rounds"
            )

    @property
    def kernel(self) -> FloatArray:
        """The first column of C as far as it is not zero, [at most rounds]. No entry is negative."""
        return _KERNELS[self.temporal][0](self)

    @property
    def noise_kernel(self) -> FloatArray:
        """The first column of B as far as it is not zero, [at most rounds]."""
        return _KERNELS[self.temporal][1](self)

    @property
    def sensitivity(self) -> float:
        """|C 1|: how far z is moved, in L2 norm, if every update is moved by at most 1 in L2 norm. Attained."""
        return float(np.linalg.norm(self._moved()))

    @property
    def absolute_sum(self) -> float:
        """sum_ij |C_ij|: how far z is moved, in L1 norm, if every update is moved by at most 1 in L1 norm. Attained."""
        return float(self._moved().sum())

    @property
    def message_variances(self) -> FloatArray:
        """Variances of a coordinate of the noise in each message, over that of z, [rounds]."""
        return np.cumsum(self._padded(self.noise_kernel) ** 2)

    def sensitivity_after_loss(self, drawn: int) -> float:
        """`sensitivity` of all messages of a run that lost its noise after ``drawn`` records and started anew.

        The new stream is one for the T - drawn rounds that are left, and its first message holds the sum of all
        updates so far. Hence old and new z are moved by C_old (1, ..., 1) and C_new (drawn + 1, 1, ..., 1).

        Raises
        ------
        SpecError
            ``drawn`` is not from 0 to T - 1.
        """
        moved = np.concatenate([self._moved()[:drawn], self.after_loss(drawn)._moved(before=drawn)])
        return float(np.linalg.norm(moved))

    def after_loss(self, drawn: int) -> Factorisation:
        """Return the factorisation for the rounds that are left after ``drawn`` records."""
        if not 0 <= drawn < self.rounds:
            raise SpecError(f"records drawn before a loss must be from 0 to {self.rounds - 1}, found {drawn!r}")
        left = self.rounds - drawn
        if self.bands is not None and self.bands >= left:
            return Factorisation(Temporal.SQRT_TOEPLITZ, left)
        return replace(self, rounds=left)

    def describe(self) -> dict[str, Any]:
        """The factorisation as plain data."""
        bands = {} if self.bands is None else {"bands": self.bands}
        return {"temporal": self.temporal.value, "rounds": self.rounds, **bands}

    def _moved(self, before: int = 0) -> FloatArray:
        """C (before + 1, 1, ..., 1), [rounds]."""
        column = self._padded(self.kernel)
        return np.cumsum(column) + before * column

    def _padded(self, kernel: FloatArray) -> FloatArray:
        """A kernel with its zeros, [rounds]."""
        padded = np.zeros(self.rounds)
        padded[: kernel.size] = kernel
        return padded


def square_root_kernel(count: int) -> FloatArray:
    """binom(2j, j)/4^j for j < count: the coefficients of (1-x)^(-1/2)."""
    j = np.arange(1, count)
    return np.concatenate([[1.0], np.cumprod((2 * j - 1) / (2 * j))])


def _banded_noise(factorisation: Factorisation) -> FloatArray:
    from scipy.signal import lfilter  # slow to import, and seldom needed

    # 1/((1-x) c(x)). The coefficients of c fall, so by Enestrom and Kakeya no root of c is inside the unit circle or on
    # it: errors of the recursion die out.
    impulse = np.zeros(factorisation.rounds)
    impulse[0] = 1.0
    return np.cumsum(lfilter([1.0], factorisation.kernel, impulse))


def _one(factorisation: Factorisation) -> FloatArray:
    return np.ones(1)


def _ones(factorisation: Factorisation) -> FloatArray:
    return np.ones(factorisation.rounds)


def _root(factorisation: Factorisation) -> FloatArray:
    return square_root_kernel(factorisation.bands or factorisation.rounds)


_KERNELS: dict[Temporal, tuple[Callable[[Factorisation], FloatArray], Callable[[Factorisation], FloatArray]]] = {
    Temporal.INDEPENDENT: (_ones, _one),
    Temporal.RANDOM_WALK: (_one, _ones),
    Temporal.BANDED: (_root, _banded_noise),
    Temporal.SQRT_TOEPLITZ: (_root, _root),
}
"""The first columns of C and of B."""


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

    def keep(self, record: StreamRecord, most: int) -> None:
        """Keep ``record``, and no more than the newest ``most``; it is durable when this returns."""


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
        The standard deviation is not a finite number > 0.
    """

    factorisation: Factorisation
    standard_deviation: float
    law: NoiseLaw = NoiseLaw.GAUSSIAN

    def __post_init__(self) -> None:
        object.__setattr__(self, "law", NoiseLaw(self.law))  # decoded, it is a bare string
        require_positive(standard_deviation=self.standard_deviation)

    @property
    def message_standard_deviations(self) -> FloatArray:
        """Standard deviations of a coordinate of the noise in each message, [rounds]."""
        return self.standard_deviation * np.sqrt(self.factorisation.message_variances)

    def describe(self) -> dict[str, Any]:
        """The noise as plain data."""
        return {"law": self.law.value, "standard_deviation": self.standard_deviation, **self.factorisation.describe()}


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


_DRAW: dict[NoiseLaw, Callable[[np.random.Generator, int], FloatArray]] = {
    NoiseLaw.GAUSSIAN: lambda generator, size: generator.standard_normal(size),
    NoiseLaw.LAPLACE: lambda generator, size: generator.laplace(0.0, math.sqrt(0.5), size),  # variance 1
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
        require_whole(records=self.records, size=self.size)

    def describe(self) -> dict[str, Any]:
        """The kind as plain data, for ledgers and summaries."""
        law = {"mechanism": "none"} if self.noise is None else {"mechanism": "stream", **self.noise.describe()}
        return {**law, "records": self.records, "size": self.size}
