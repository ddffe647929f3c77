"""Data sides of examples that a model is tested on: one histogram of scores each, with exact noise in every world.

Where parties are not to be told apart, each adds masks to its histogram that cancel in the sum over all of them: on the
grid it is integers already, so modulo 2^64 the sum is exact, and nothing is rounded, clipped or folded. Two parties
agree on the mask between them by their identities alone, so no message is sent, and nobody has to be there with others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.protocol.encoding import encode
from gossamer.sides.home import GridNoise, Simulated
from gossamer.sides.receipts import Noting

# Masks and identities need cryptography, which is optional, so they are imported only where they are made.
if TYPE_CHECKING:
    from gossamer.keys.identity import Identity
    from gossamer.sides.masked_side import Signing


class SimulatedExactly(Simulated):
    """A simulated world whose Gaussian noise is on a grid, and where the identities of parties follow from the seed."""

    noise = GridNoise()

    def __init__(self, seed: int, parties: Sequence[str], book: Noting | None = None) -> None:
        super().__init__(seed, book=book)
        self._parties = parties

    @cached_property
    def _identities(self) -> dict[str, Identity]:
        from gossamer.keys.identity import Identity
        from gossamer.privacy.masking.keys import reproducible_secret

        return {name: Identity.of_seed(reproducible_secret(self._seed, name)) for name in self._parties}

    def signing(self, name: str) -> Signing:
        from gossamer.sides.masked_side import Signing

        return Signing(self._identities[name], {one: of.public_key for one, of in self._identities.items()})


def masked_part(
    released: FloatArray, step: float, name: str, signing: Signing, context: bytes
) -> npt.NDArray[np.unsignedinteger]:
    """Return a party's noisy vector [size], multiples of ``step``, behind masks, as integers modulo 2^64.

    Parameters
    ----------
    released : ndarray [size]
        The vector with the party's noise.
    step : float
        Step of the grid.
    name : str
        The party.
    signing : Signing
        Its identity, and the keys of all whose vectors are to be summed.
    context : bytes
        Public words on what is released: in two contexts masks are independent, and each has one vector of a party.
    """
    from gossamer.privacy.masking import Group
    from gossamer.privacy.masking.keys import pairwise_mask_keys, with_masks

    numbers = {other: number for number, other in enumerate(sorted(signing.keys), 1)}
    members = tuple((other, signing.keys[other].raw) for other in numbers)
    digest = sha256(encode(("gossamer held-out examples", context, members))).digest()
    publics = {numbers[other]: key.agreement for other, key in signing.keys.items() if other != name}
    masks = pairwise_mask_keys(signing.identity.agreement, publics, digest, numbers[name])
    added, taken = [[key for other, key in masks.items() if (other > numbers[name]) is more] for more in (True, False)]
    values = np.rint(released.astype(np.float64) / step).astype(np.int64).view(np.uint64)
    return with_masks(values, added, taken, Group(len(numbers), values.size, 64))
