"""Shamir's secret sharing of 32-byte secrets: any ``threshold`` shares give the secret, fewer say nothing of it.

The secret is the constant term of a polynomial of degree ``threshold - 1`` whose other coefficients are uniform, over
the integers modulo the prime 2^256 + 297, the smallest that every 32-byte number is below. The share of index i is the
polynomial's value at i, as 33 bytes. A wrong share gives a wrong secret and no sign of it: whoever needs to know
compares the secret with something that was published, such as its public key.

References
----------
Shamir, "How to share a secret", Communications of the ACM 22, 1979.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping

from gossamer.errors import PeerError

PRIME = (1 << 256) + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
_DRAWN = 64  # bytes reduced modulo the prime: within 2^-255 of uniform


def split(
    secret: bytes,
    threshold: int,
    indices: Collection[int],
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
) -> dict[int, bytes]:
    """The share of ``secret`` for each of ``indices``.

    Parameters
    ----------
    secret : bytes
        Of 32 bytes.
    threshold : int
        How many shares give the secret.
    indices : collection of int
        Distinct numbers from 1.
    random_bytes : callable
        Called once with a number of bytes; whoever can guess what it gives can find the secret from one share.

    Raises
    ------
    ValueError
        If the secret has another length, an index is below 1 or occurs twice, or there are fewer indices than the
        threshold.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"expected a secret of {SECRET_BYTES} bytes, found {len(secret)}")
    _check_indices(indices)
    if not 1 <= threshold <= len(indices):
        raise ValueError(f"expected a threshold of 1 to {len(indices)}, found {threshold}")
    drawn = random_bytes((threshold - 1) * _DRAWN)
    coefficients = [
        int.from_bytes(secret, "little"),
        *(int.from_bytes(drawn[at : at + _DRAWN], "little") % PRIME for at in range(0, len(drawn), _DRAWN)),
    ]
    return {index: _value_at(index, coefficients).to_bytes(SHARE_BYTES, "little") for index in indices}


def _value_at(index: int, coefficients: list[int]) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * index + coefficient) % PRIME
    return value


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret that ``threshold`` of ``shares``, by index, give: those of the smallest indices.

    Raises
    ------
    ValueError
        If an index is below 1, or there are fewer shares than the threshold.
    PeerError
        If a share is no number below the prime, or they give no 32-byte secret, which right shares always do.
    """
    _check_indices(shares)
    if len(shares) < threshold:
        raise ValueError(f"expected {threshold} shares, found {len(shares)}")
    chosen = sorted(shares)[:threshold]
    secret = sum(_number(index, shares[index]) * _weight(index, chosen) for index in chosen) % PRIME
    if secret >= 1 << 8 * SECRET_BYTES:
        raise PeerError("shares do not give a secret: at least one of them is wrong")
    return secret.to_bytes(SECRET_BYTES, "little")


def _number(index: int, share: bytes) -> int:
    number = int.from_bytes(share, "little")
    if len(share) != SHARE_BYTES or number >= PRIME:
        raise PeerError(f"the share of index {index} is no number below the prime")
    return number


def _weight(index: int, indices: list[int]) -> int:
    """Return the weight of the value at ``index`` in that at 0 of the polynomial through ``indices`` (Lagrange)."""
    above, below = 1, 1
    for other in indices:
        if other != index:
            above = above * other % PRIME
            below = below * (other - index) % PRIME
    return above * pow(below, -1, PRIME) % PRIME


def _check_indices(indices: Collection[int]) -> None:
    # At 0 the share would be the secret itself.
    if any(type(index) is not int or not 1 <= index < PRIME for index in indices) or len(set(indices)) < len(indices):
        raise ValueError(f"expected distinct indices from 1, found {sorted(indices)}")
