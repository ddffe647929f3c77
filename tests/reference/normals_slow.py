"""Philox and Box-Muller one number at a time, in integers and double precision."""

from __future__ import annotations

import math

_MASK = 0xFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four words of 32 bits: Philox4x32 with ten rounds (Salmon et al., SC 2011, section 4.3)."""
    (a, b, c, d), (x, y) = counter, key
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ x, second & _MASK, (first >> 32) ^ d ^ y, first & _MASK
        x, y = (x + 0x9E3779B9) & _MASK, (y + 0xBB67AE85) & _MASK
    return a, b, c, d


def box_muller(length: int, angle: int) -> tuple[float, float]:
    """Two normals from two words."""
    radius = math.sqrt(-2.0 * math.log((length + 0.5) / 2.0**32))
    turned = 2.0 * math.pi * angle / 2.0**32
    return radius * math.cos(turned), radius * math.sin(turned)


def normals(key: int, label: int, size: int, block: int) -> list[float]:
    """As `gossamer.normals.fill` arranges them: the first of all first pairs of a block, the second of these, ..."""
    found: list[float] = []
    for first in range(0, -(-size // 4), block):
        rows: list[list[float]] = [[], [], [], []]
        for number in range(first, first + block):
            counter = number & _MASK, number >> 32, label & _MASK, label >> 32
            words = philox(counter, (key & _MASK, key >> 32))
            for row, value in zip(rows, (*box_muller(*words[:2]), *box_muller(*words[2:])), strict=True):
                row.append(value)
        found += [value for row in rows for value in row]
    return found[:size]
