"""Secure aggregation as its sources write it, in plain integers: X25519, HKDF, ChaCha20, Shamir, and the masked vector.

Nothing here uses `cryptography` or numpy arithmetic; the unit tests hold it against the vectors of the RFCs.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from fractions import Fraction

from gossamer.privacy.masking.fixed_point import Group

CURVE_PRIME = 2**255 - 19


def x25519(private: bytes, public: bytes) -> bytes:
    """RFC 7748, section 5: the Montgomery ladder, as written there."""
    scalar = int.from_bytes(bytes([private[0] & 248, *private[1:31], (private[31] & 127) | 64]), "little")
    u = int.from_bytes(public, "little") % 2**255
    p, x1, x2, z2, x3, z3, swap = CURVE_PRIME, u, 1, 0, u, 1, 0
    for t in reversed(range(255)):
        bit = (scalar >> t) & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % p, x1 * (da - cb) ** 2 % p
        x2, z2 = aa * bb % p, e * (aa + 121665 * e) % p
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, p - 2, p) % p).to_bytes(32, "little")


BASE_POINT = bytes([9, *bytes(31)])


def hkdf(key: bytes, salt: bytes, info: bytes, length: int = 32) -> bytes:
    """RFC 5869 with SHA-256."""
    extracted = hmac.digest(salt or bytes(32), key, "sha256")
    out, block, counter = b"", b"", 1
    while len(out) < length:
        block = hmac.digest(extracted, block + info + bytes([counter]), "sha256")
        out, counter = out + block, counter + 1
    return out[:length]


def chacha20_block(key: bytes, counter: int, nonce: bytes) -> bytes:
    """RFC 8439, section 2.3."""
    constants = [int.from_bytes(b"expand 32-byte k"[i : i + 4], "little") for i in range(0, 16, 4)]
    words = [int.from_bytes(part[i : i + 4], "little") for part in (key, nonce) for i in range(0, len(part), 4)]
    start = [*constants, *words[:8], counter, *words[8:]]
    state = list(start)
    columns = [(i, i + 4, i + 8, i + 12) for i in range(4)]
    diagonals = [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]
    for a, b, c, d in (columns + diagonals) * 10:
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) % 2**32
            mixed = state[z] ^ state[x]
            state[z] = (mixed << turn | mixed >> (32 - turn)) % 2**32
    return b"".join(((a + b) % 2**32).to_bytes(4, "little") for a, b in zip(state, start))


def stream(key: bytes, count: int) -> bytes:
    """The first bytes under nonce zero, from block 0."""
    blocks = [chacha20_block(key, i, bytes(12)) for i in range(-(-count // 64))]
    return b"".join(blocks)[:count]


def mask(key: bytes, length: int, bits: int) -> list[int]:
    """Integers below 2^bits, little-endian from the stream."""
    size = bits // 8
    data = stream(key, length * size)
    return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


def masked_vector(
    agent: int, values: Sequence[int], self_key: bytes, pair_keys: Mapping[int, bytes], bits: int
) -> list[int]:
    """y_u = x_u + PRG(k_u) + sum_{v > u} PRG(k_uv) - sum_{v < u} PRG(k_uv) mod 2^bits (Bonawitz et al., section 4)."""
    total = [x + m for x, m in zip(values, mask(self_key, len(values), bits))]
    for other, key in pair_keys.items():
        sign = 1 if other > agent else -1
        total = [y + sign * m for y, m in zip(total, mask(key, len(values), bits))]
    return [y % 2**bits for y in total]


def interpolate(points: Mapping[int, int], at: int, prime: int) -> int:
    """The value at ``at`` of the polynomial through ``points`` modulo ``prime`` (Lagrange, in fractions)."""
    total = 0
    for i, value in points.items():
        weight = Fraction(1)
        for j in points:
            if j != i:
                weight *= Fraction(at - j, i - j)
        total += value * weight.numerator * pow(weight.denominator, -1, prime)
    return total % prime


def nearest_step(value: float, clip: float, fraction_bits: int) -> int:
    """The fixed-point integer of a finite number, in exact fractions: saturate, scale, round half to even."""
    scale = Fraction(2) ** fraction_bits
    limit = int(Fraction(clip) * scale)
    return max(-limit, min(limit, round(Fraction(value) * scale)))


def sha256(data: bytes) -> bytes:
    """FIPS 180-4."""
    return hashlib.sha256(data).digest()


def most_colluders(group: Group) -> int:
    """How many agents may collude with a lying server, and it learns no more than sums of two or more others.

    Both masks of one agent, or two sets of survivors, need 2 (t - c) honest answers of the n - c honest agents, each of
    whom answers once: out of reach for c < 2 t - n.
    """
    return max(0, min(2 * group.threshold - group.size - 1, group.minimum - 2))
