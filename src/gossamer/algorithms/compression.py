"""Small messages: a number in eight bits or fewer, and of a change the largest numbers alone, as one setting.

What is sent is made of what was released, rounded and left out by values that are released, too: post-processing, which
costs no epsilon. A top-k of clean values would tell which these are.

- **Bits.** A vector is sent as its scale s, the largest number over m, and for each number v the integer that is
  nearest to v/s. Eight of these, of 2m + 1 values each, are one integer of 8 bits - 1 bits: with the bit that is spared
  a large message, headers included, is no more than bits/32 of one in single precision.
- **Share.** Of n numbers the ceil(share n) are sent that changed most, and a bit for each of the n says whether it is.

What an update lacks, by rounding or as too small, is added to the sender's next one (error feedback). Models that are
exchanged need none: both move by the difference of what was *sent*, so that their sum stays, and a number that is not
sent is not moved; its change counts until it is.

References
----------
Seide, Fu, Droppo, Li and Yu, "1-bit stochastic gradient descent and its application to data-parallel distributed
training of speech DNNs", Interspeech 2014 (error feedback); Stich, Cordonnier and Jaggi, "Sparsified SGD with memory",
NeurIPS 2018 (top-k).
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, Field

from gossamer.arrays import FloatArray
from gossamer.errors import PeerError
from gossamer.section import Section
from gossamer.vectors import Blank, Model, Values, entrywise

_SCALE, _WORD, _TOGETHER = np.dtype("<f4"), np.dtype(">u8"), 8


class Packing(Section):
    """Form of the vectors in messages.

    Attributes
    ----------
    bits : int
        Bits of a number; eight together take one bit less.
    share : float
        Share of the numbers of an update, or of an exchange, that are sent: those that changed most.
    """

    bits: int = Field(default=8, ge=2, le=8)
    share: float = Field(default=1.0, gt=0, le=1)

    def places(self, change: Model) -> Model:
        """Ones [size] for the numbers to send, by how much they changed, and zeros for the others."""

        def chosen(values: FloatArray) -> Values:
            if self.share == 1:
                return np.ones(values.size, np.uint8)
            found = np.zeros(values.size, np.uint8)
            found[np.argsort(-np.abs(values), kind="stable")[: math.ceil(self.share * values.size)]] = 1
            return found

        return entrywise([change], chosen, Blank(change.size, np.uint8))

    def pack(self, vector: Model, places: Model | None = None) -> Model:
        """Bytes of the numbers of ``vector`` [size] in these places, or in all."""
        (width, most, powers), size = self._form, vector.size
        kept = size if places is None else math.ceil(self.share * size)
        places = Packing().places(vector) if places is None else places

        def packed(values: FloatArray, chosen: Values) -> Values:
            sent = values[chosen.astype(bool)]
            scale = np.abs(sent).max(initial=0.0).astype(_SCALE) / np.float32(most) or np.float32(1)
            codes = np.clip(np.rint(sent / scale) + most, 0, 2 * most).astype(np.uint64)
            words = np.pad(codes, (0, -len(codes) % _TOGETHER)).reshape(-1, _TOGETHER) @ powers
            bits = np.packbits(np.unpackbits(words.astype(_WORD)[:, None].view(np.uint8), axis=1)[:, -width:])
            mask = np.packbits(chosen)[: self._mask(size)]
            return np.concatenate([np.array([scale], _SCALE).view(np.uint8), mask, bits])

        return entrywise([vector, places], packed, Blank(self._length(size, kept), np.uint8))

    @property
    def _form(self) -> tuple[int, int, Values]:
        """Bits of numbers that are packed together, m, and powers of 2m + 1: eight are less than 2 to their bits."""
        width = _TOGETHER * self.bits - 1
        most = (int(2 ** (width / _TOGETHER)) - 1) // 2
        return width, most, np.array([(2 * most + 1) ** place for place in range(_TOGETHER)], np.uint64)

    def _mask(self, size: int) -> int:
        """Bytes that say which of so many numbers are sent: none where all are."""
        return -(-size // 8) if self.share < 1 else 0

    def _length(self, size: int, kept: int) -> int:
        return _SCALE.itemsize + self._mask(size) + math.ceil(math.ceil(kept / _TOGETHER) * self._form[0] / 8)

    def places_of(self, packed: Model, size: int) -> Model:
        """Ones and zeros [size], as `places` made them, of bytes that came."""
        start, end = _SCALE.itemsize, self._length(size, 0)

        def found(values: Values) -> Values:
            if values.dtype != np.uint8 or values.size < end:
                raise PeerError(f"expected bytes of a message of {size} numbers, found {values.size} {values.dtype}")
            return np.ones(size, np.uint8) if start == end else np.unpackbits(values[start:end])[:size]

        return entrywise([packed], found, Blank(size, np.uint8))

    def unpack(self, packed: Model, base: Model) -> Model:
        """``base`` [size] with the numbers that came in the place of its own.

        Raises
        ------
        PeerError
            If these are no such bytes.
        """
        (width, most, powers), size = self._form, base.size

        def unpacked(values: Values, chosen: Values, into: FloatArray) -> Values:
            kept = int(chosen.sum())
            if values.size != (expected := self._length(size, kept)):
                raise PeerError(f"expected {expected} bytes of {kept} numbers, found {values.size}")
            bits = np.unpackbits(values[self._length(size, 0) :])[: math.ceil(kept / _TOGETHER) * width]
            words = np.packbits(np.pad(bits.reshape(-1, width), ((0, 0), (64 - width, 0))), axis=1).view(_WORD)
            codes = (words // powers % (2 * most + 1)).ravel()[:kept]
            scale = float(np.frombuffer(values[: _SCALE.itemsize].tobytes(), _SCALE)[0])
            found = into.copy()
            with np.errstate(over="ignore", invalid="ignore"):  # of a scale that nobody honest sends
                found[chosen.astype(bool)] = (codes.astype(np.float64) - most) * scale
            return found

        return entrywise([packed, self.places_of(packed, size), base], unpacked, base.values)


Compression = Annotated[Packing | None, BeforeValidator(lambda value: {"bits": value} if type(value) is int else value)]
"""A number of bits, or a mapping; None sends numbers as they are."""
