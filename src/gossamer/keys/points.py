"""Public keys of others, from bytes: the one place that reads them, and none that everybody has the private half of.

Curve25519 has eight points of low order. By a signature key that is one of them anybody signs nearly anything, which
Ed25519 does not notice; of an agreement by one everybody knows the secret. Each can be written in several ways: with a
coordinate of the prime or more, and with either of the two values of the first bit. All are refused.

References
----------
Chalkias, Garillot and Nikolaenko, "Taming the many EdDSAs", SSR 2020, section 4; RFC 7748, section 6.1.
"""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

_PRIME: Final = 2**255 - 19
_EIGHTH: Final = 2707385501144840649318225287225658788936804267575313519463743609750303402022
# y of the points of order 1, 2, 4 and 8 on the curve of Ed25519, and u = (1 + y)/(1 - y) of theirs on that of X25519,
# where the point at infinity is none and its place is taken by that of the twist.
_SIGNING: Final = {1, _PRIME - 1, 0, _EIGHTH, _PRIME - _EIGHTH}
_AGREEING: Final = {y if y in (0, 1, _PRIME - 1) else (1 + y) * pow(1 - y, -1, _PRIME) % _PRIME for y in _SIGNING}


def signing_key(raw: bytes) -> Ed25519PublicKey:
    """Return the key that others sign by.

    Raises
    ------
    ValueError
        If the bytes are not 32, or those of a point of low order.
    """
    _check(raw, _SIGNING)
    return Ed25519PublicKey.from_public_bytes(raw)


def agreement_key(raw: bytes) -> X25519PublicKey:
    """Return the key that others agree on a secret by.

    Raises
    ------
    ValueError
        If the bytes are not 32, or those of a point of low order.
    """
    _check(raw, _AGREEING)
    return X25519PublicKey.from_public_bytes(raw)


def _check(raw: bytes, low: set[int]) -> None:
    # The bit that is left out is the sign of a point's other coordinate, or none of X25519's.
    if int.from_bytes(raw, "little") % 2**255 % _PRIME in low:
        raise ValueError("a point of low order")
