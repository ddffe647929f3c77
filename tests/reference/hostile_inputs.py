"""What a hostile peer may send: bytes that are nearly right, and messages of right types with wrong contents."""

from __future__ import annotations

import random
import types
import typing
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from gossamer.protocol.messages import Message
from gossamer.vectors import Confined, Masked, Public, Released, Vector

INTEGERS = [0, 1, -1, 2, 3, 7, 31, 32, 33, 61, 62, 63, 64, 255, 2**20, 2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1]
INTEGERS += [2**62, 2**63 - 1, -(2**31), -(2**53), -(2**63)]
ENTRIES = [0.0, 1.0, -1.0, 1e-40, 1e11, 1e12, -1e12, 1.1e12, 1e19, 3e38, -3e38, 1e300, np.inf, -np.inf, np.nan]
DTYPES = [np.dtype(code) for code in ("f4", "f8", "i4", "i8", "u4", "u8", "u1")]
LABELS: list[type[Vector]] = [Public, Released, Masked, Confined]


class Junk:
    """Draws from one generator.

    Parameters
    ----------
    seed : int
        The same gives the same.
    size, dtype
        Of honest vectors.
    """

    def __init__(self, seed: int, size: int = 11, dtype: str = "f8") -> None:
        self.random = random.Random(seed)
        self.size, self.dtype = size, np.dtype(dtype)

    def integer(self) -> int:
        pick = self.random.random()
        if pick < 0.6:
            return self.random.randrange(8)
        return self.random.choice(INTEGERS) if pick < 0.95 else self.random.getrandbits(63)

    def vector(self, labels: list[type[Vector]] | None = None, like: Vector | None = None) -> Vector:
        """Mostly of the size and type of honest ones, and then often with a few entries that are not."""
        random = self.random
        size = self.size if like is None else like.size
        dtype = self.dtype if like is None else like.values.dtype
        if random.random() < 0.1:
            size = random.choice([0, 1, 2, size - 1, size + 1, size // 2, 300]) % 1000
        if random.random() < 0.1:
            dtype = random.choice(DTYPES)
        values = np.zeros(size, dtype) if like is None or like.size != size else like.values.astype(dtype)
        if dtype.kind == "f" and size:
            with np.errstate(over="ignore"):
                for _ in range(random.choice([0, 0, 1, 1, 2])):
                    values[random.randrange(size)] = dtype.type(random.choice(ENTRIES))
                if random.random() < 0.2:
                    values[:] = dtype.type(random.choice(ENTRIES))
        elif size and random.random() < 0.7:
            for _ in range(random.choice([1, 1, 2, 5])):
                top = int(np.iinfo(dtype).max)
                values[random.randrange(size)] = random.choice([0, 1, 2, 3, 255 & top, top, random.randrange(top)])
        label = random.choice(labels or LABELS)
        return label(values)

    def message(self, kind: type[Message], like: Message | None = None) -> Message:
        """Of ``kind``; some of its fields are those of ``like``."""
        values: dict[str, Any] = {}
        for name, labels in schema(kind):
            known = None if like is None else getattr(like, name)
            if known is not None and self.random.random() < 0.5:
                values[name] = known
            elif not labels:
                near = known is not None and self.random.random() < 0.5
                values[name] = known + self.random.choice([-1, 1, 2]) if near else self.integer()
            else:
                values[name] = self.vector(list(labels), known)
        return kind(**values)

    def mutated(self, data: bytes, other: bytes = b"") -> bytes:
        """``data`` with a few changes: bytes, cuts, insertions, numbers, or the end of ``other``."""
        random, found = self.random, bytearray(data)
        for _ in range(random.choice([1, 1, 1, 2, 4])):
            place, how = random.randrange(len(found) + 1), random.randrange(8)
            if how <= 2 and place < len(found):
                found[place] = random.choice(
                    [0, 1, 255, found[place] ^ 1 << random.randrange(8), random.randrange(256)]
                )
            elif how == 3:
                del found[place : place + random.choice([1, 1, 2, 8, 64, len(found)])]
            elif how == 4:
                found[place:place] = random.randbytes(random.choice([1, 1, 2, 8, 64]))
            elif how == 5:
                number = random.choice(INTEGERS) % (1 << 64)
                found[place : place + 8] = number.to_bytes(8, "little")
            elif how == 6:
                found[place : place + 4] = random.choice([0, 1, 2**31, 2**32 - 1, len(data)]).to_bytes(4, "little")
            elif other:
                found[place:] = other[random.randrange(len(other)) :]
        return bytes(found)


@cache
def schema(kind: type[Message]) -> list[tuple[str, tuple[type[Vector], ...]]]:
    """The fields of a message, with the labels that may be there; none for an integer."""
    hints = typing.get_type_hints(kind)
    found = []
    for field in fields(kind):
        hint = hints[field.name]
        union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        members = typing.get_args(hint) if union else (hint,)
        found.append((field.name, () if int in members else tuple(members)))
    return found
