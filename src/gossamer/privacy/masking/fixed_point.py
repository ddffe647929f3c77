"""Numbers as integers modulo 2^bits, so that masks are uniform and sums are exact.

A number x stands for the integer nearest to ``x 2^f``, where f is ``fraction_bits``, in two's complement.
Each number saturates at ``clip``, and ``group`` of them cannot leave the range of the sum:

    group * floor(clip 2^f) <= 2^(bits - 1) - 1

which is checked when the encoding is made. Integer sums are exact; rounding moves each number by at most 2^-(f+1), the
sum of m by at most m 2^-(f+1), and the L2 norm of d numbers by at most sqrt(d) 2^-(f+1).

**Folding.** Whoever has a vector in a sum may add any integers. Modulo M = 2^bits the sum s then wraps around, and read
in two's complement it jumps by M where the others' part moves it over the edge of the range by one step. Let instead

    fold(s) = s for |s| <= M/4, and back to 0 at both ends of the range: sign(s) (M/2 - |s|).

That is a triangle wave of period M: a function on the circle of integers modulo M, which moves by 1 from each of them
to the next. So sums whose honest parts differ by v have folds that differ, in each coordinate and in every norm, by no
more than v, whatever integers others have added. It is the sum itself where honest ones stay within a quarter of M, and
that much room is needed: if they reach R, M - 2R steps lead from R to -R outside of their range, and a fold that goes
2R there in steps of 1 needs M >= 4R.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from gossamer.errors import PeerError, SpecError, real_number
from gossamer.protocol.encoding import frozen

# Group of a masked sum: what all its members agree on before the first message.

UintArray = npt.NDArray[np.unsignedinteger]
DTYPES: dict[int, np.dtype[np.unsignedinteger]] = {32: np.dtype(np.uint32), 64: np.dtype(np.uint64)}
"""The rings in which is added: integers modulo 2^32 or 2^64."""
SMALLEST = 2
MOST_AGENTS = 1 << 16


class Phase(IntEnum):
    """The five messages of an agent, in order, and the end."""

    ANNOUNCE = 0
    SHARE = 1
    MASK = 2
    CONFIRM = 3
    REVEAL = 4
    DONE = 5


@frozen("masking.group")
class Group:
    """The public parameters of a masked sum; the same for every agent and the server.

    Attributes
    ----------
    size : int
        n, how many agents there are; they have the numbers 1 to n.
    length : int
        Coordinates of each agent's vector.
    bits : {32, 64}
        Vectors are added modulo 2^bits.
    threshold : int
        t, how many agents have to answer for a mask to be removed; more than half of ``size``. 0 takes two thirds
        of ``size``, rounded up, so that up to a third may vanish.
    minimum : int
        Fewest vectors in a sum, at least ``threshold``; 0 takes ``threshold``.
    context : bytes
        Bytes that tell this group from others, such as the run and the unit. Keys depend on it.
    signed : bool
        Whether announcements are signed by the agents' identities. Others are refused then; so are signed ones
        otherwise, since sizes of messages follow from this.

    Raises
    ------
    SpecError
        If a parameter is out of range.
    """

    size: int
    length: int
    bits: int = 32
    threshold: int = 0
    minimum: int = 0
    context: bytes = b""
    signed: bool = False

    def __post_init__(self) -> None:
        numbers = self.size, self.length, self.bits, self.threshold, self.minimum
        if not all(type(each) is int for each in numbers) or self.length < 1 or self.bits not in DTYPES:
            raise SpecError(f"a group has whole numbers, a length of 1 or more and 32 or 64 bits, found {self}")
        if not SMALLEST <= self.size < MOST_AGENTS:
            raise SpecError(f"masks need {SMALLEST} to {MOST_AGENTS - 1} agents to hide among, found {self.size}")
        if self.threshold == 0:
            object.__setattr__(self, "threshold", -(-2 * self.size // 3))
        if not self.size < 2 * self.threshold <= 2 * self.size:
            raise SpecError(
                f"a threshold must be more than half of the {self.size} agents, and no more than all, "
                f"found {self.threshold}: with fewer, a server could ask two halves of them for both masks"
            )
        if self.minimum == 0:
            object.__setattr__(self, "minimum", self.threshold)
        if not self.threshold <= self.minimum <= self.size:
            raise SpecError(
                f"a minimum lies between the threshold {self.threshold} and the {self.size} agents, "
                f"found {self.minimum}"
            )

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The type of the vectors' numbers."""
        return DTYPES[self.bits]

    def has(self, agent: object) -> bool:
        """Whether ``agent`` is the number of an agent."""
        return type(agent) is int and 1 <= agent <= self.size


SMALLEST_CLIP, LARGEST_CLIP = 1e-30, 1e30  # so that 2^f is far from the ends of float64


@dataclass(frozen=True)
class FixedPoint:
    """Fixed-point numbers of which ``group`` can be added without overflow.

    Attributes
    ----------
    clip : float
        Largest magnitude of a number; larger ones saturate. A bound on a vector's L2 norm bounds each coordinate.
    group : int
        Most numbers in a sum.
    bits : {32, 64}
        Size of the integers.
    fraction_bits : int, optional
        Binary digits after the point; negative for steps larger than 1. By default the most that fit.

    Raises
    ------
    SpecError
        If a parameter is out of range, or ``clip``, ``group`` and ``fraction_bits`` do not fit into ``bits``.
    """

    clip: float
    group: int
    bits: int = 32
    fraction_bits: int | None = None

    def __post_init__(self) -> None:
        whole = type(self.bits) is type(self.group) is int
        summed = whole and self.bits in DTYPES and 1 <= self.group < 1 << (self.bits - 1)
        if not summed or not SMALLEST_CLIP <= real_number(self.clip) <= LARGEST_CLIP:
            raise SpecError(
                f"numbers of 32 or 64 bits have a clip of {SMALLEST_CLIP:g} to {LARGEST_CLIP:g}, and 1 to half of "
                f"their range are in a sum, found {self}"
            )
        finest = self._finest()
        if self.fraction_bits is None:
            object.__setattr__(self, "fraction_bits", finest)
        if type(self.fraction_bits) is not int or self.fraction_bits > finest:
            raise SpecError(
                f"{self.group} numbers of up to {self.clip:g} with {self.fraction_bits!r} fraction bits do not fit "
                f"into {self.bits} bits: use at most {finest}, more bits, or a smaller clip"
            )
        if self.limit < 1:
            raise SpecError(
                f"with {self.fraction_bits} fraction bits every number up to the clip {self.clip:g} is zero: "
                f"use more, up to {finest}"
            )

    def _finest(self) -> int:
        """The most fraction bits whose sums fit."""
        # clip >= 2^(digits - 1), so that with more bits than this not even one number fits.
        digits = math.frexp(self.clip)[1]
        bits = self._most_of_one.bit_length() - digits
        while _steps(self.clip, bits) > self._most_of_one:
            bits -= 1
        return bits

    @property
    def _most_of_one(self) -> int:
        return ((1 << (self.bits - 1)) - 1) // self.group

    @property
    def _fraction_bits(self) -> int:
        assert self.fraction_bits is not None
        return self.fraction_bits

    @property
    def resolution(self) -> float:
        """The distance 2^-fraction_bits between neighbouring numbers."""
        return math.ldexp(1.0, -self._fraction_bits)

    @property
    def limit(self) -> int:
        """The integer at which a number saturates."""
        return _steps(self.clip, self._fraction_bits)

    @property
    def quarter(self) -> int:
        """The integer from which sums are folded."""
        return 1 << (self.bits - 2)

    def encode(self, values: npt.ArrayLike) -> UintArray:
        """The integers [size] of ``values`` [size].

        Never refuses a value, since a refusal would say something of it: what is out of range saturates, and NaN
        is zero.

        Raises
        ------
        ValueError
            If ``values`` is no flat vector.
        """
        numbers = np.asarray(values, np.float64)
        if numbers.ndim != 1:
            raise ValueError(f"expected a flat vector, found shape {numbers.shape}")
        numbers = np.nan_to_num(np.clip(numbers, -self.clip, self.clip), nan=0.0)
        steps = np.clip(np.rint(np.ldexp(numbers, self._fraction_bits)), -self.limit, self.limit)
        signed = steps.astype(np.int64 if self.bits == 64 else np.int32)
        return signed.view(DTYPES[self.bits])

    def decode_sum(self, total: UintArray, count: int) -> npt.NDArray[np.float64]:
        """The sum [size] of ``count`` vectors, of their encodings' sum ``total`` [size] modulo 2^bits.

        Exact as long as it has at most 53 significant binary digits, which 32 bits always have.

        Raises
        ------
        ValueError
            If ``count`` is more than the group, or ``total`` has another dtype.
        PeerError
            If a coordinate is more than ``count`` vectors in range can give. (A vector out of range is not always
            noticed.)
        """
        if not 1 <= count <= self.group:
            raise ValueError(f"a sum has 1 to {self.group} vectors, found {count}")
        signed, most = self._signed(total), count * self.limit
        if np.any(signed > most) or np.any(signed < -most):
            raise PeerError(f"a sum of {count} vectors is out of their range: one of them was not encoded as agreed")
        return self._number(signed)

    def folded_sum(self, total: UintArray) -> npt.NDArray[np.float64]:
        """The sum [size] of vectors, any of which may be false, of their integers' sum ``total`` [size] modulo 2^bits.

        Exact as `decode_sum` is, for sums within half the range.

        Raises
        ------
        ValueError
            If ``total`` has another dtype.
        """
        signed = self._signed(total)
        edge = np.clip(signed, -self.quarter, self.quarter)
        folded: npt.NDArray[np.signedinteger] = edge - (signed - edge)
        return self._number(folded)

    def _signed(self, total: UintArray) -> npt.NDArray[np.signedinteger]:
        """A sum in two's complement."""
        if total.dtype != DTYPES[self.bits]:
            raise ValueError(f"expected a sum of {DTYPES[self.bits]}, found {total.dtype}")
        return total.view(np.int64 if self.bits == 64 else np.int32)

    def _number(self, steps: npt.NDArray[np.signedinteger]) -> npt.NDArray[np.float64]:
        return np.ldexp(steps.astype(np.float64), -self._fraction_bits)


def _steps(clip: float, fraction_bits: int) -> int:
    """floor(clip 2^fraction_bits), exactly."""
    numerator, denominator = clip.as_integer_ratio()
    if fraction_bits >= 0:
        return (numerator << fraction_bits) // denominator
    return numerator // (denominator << -fraction_bits)
