"""Masks as key streams of ChaCha20, added modulo 2^bits.

For every pair u < v of agents, u adds a mask that v subtracts; every agent also adds a self-mask of its own. With k_uv
the pair's key and k_u that of the self-mask, agent u sends

    y_u = x_u + PRG(k_u) + sum_{v > u} PRG(k_uv) - sum_{v < u} PRG(k_uv)      (Bonawitz et al., section 4)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from gossamer.privacy.masking.group import Group, UintArray
from gossamer.privacy.masking.keys import agree, derive

_FIRST_BLOCK = bytes(16)  # counter and nonce: each key makes one stream, of at most 2^38 bytes


def keystream(key: bytes, count: int) -> bytes:
    """The first ``count`` bytes of ChaCha20's stream under a key [32 bytes] used for nothing else."""
    return Cipher(ChaCha20(key, _FIRST_BLOCK), mode=None).encryptor().update(bytes(count))


def mask(key: bytes, group: Group) -> UintArray:
    """Uniform integers [group.length] that follow from ``key``."""
    stream = keystream(key, group.length * group.dtype.itemsize)
    return np.frombuffer(stream, group.dtype.newbyteorder("<"))


def self_mask_key(seed: bytes, digest: bytes) -> bytes:
    """The key of an agent's self-mask in the sum that ``digest`` names."""
    return derive(seed, digest, "self-mask")


def pairwise_mask_keys(private: bytes, publics: Mapping[int, bytes], digest: bytes, agent: int) -> dict[int, bytes]:
    """The keys of the masks between ``agent``, whose private mask key this is, and others with public ones."""
    return {
        other: derive(shared, digest, "pairwise mask", min(agent, other), max(agent, other))
        for other, shared in agree(private, publics, "mask").items()
    }


def with_masks(values: UintArray, added: Iterable[bytes], subtracted: Iterable[bytes], group: Group) -> UintArray:
    """``values`` [group.length] plus the masks of some keys, minus those of others, as a new array."""
    total = values.astype(group.dtype)
    for key in added:
        total += mask(key, group)
    for key in subtracted:
        total -= mask(key, group)
    return total
