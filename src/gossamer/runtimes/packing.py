"""Messages, states and ledgers on their way between the shards of one simulation.

Objects are pickled without their vectors, which travel as matrices, one of each size: a pickle of thousands of small
arrays would take longer than what was computed. Both ends are processes of one run and of one user, which trust each
other with everything; nothing here is for peers.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NamedTuple

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.vectors import Confined, Masked, Public, Released, Vector

_LABELS: tuple[type[Vector], ...] = (Public, Released, Masked, Confined)
_CODES = {label: code for code, label in enumerate(_LABELS)}


class Packed(NamedTuple):
    """Objects as bytes, and their vectors as matrices.

    Attributes
    ----------
    content : bytes
        The pickle.
    vectors : tuple of ndarray [vectors, size]
        By size and type.
    labels : tuple of bytes
        Label of each row.
    """

    content: bytes
    vectors: tuple[FloatArray, ...]
    labels: tuple[bytes, ...]


class _Packer(pickle.Pickler):
    """Puts a place in a matrix where there was a vector."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._groups: dict[tuple[int, str], int] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self.rows: list[list[Vector]] = []

    def persistent_id(self, obj: Any) -> tuple[int, int] | None:
        if type(obj) not in _CODES or type(obj.values) is not np.ndarray:
            return None
        place = self._places.get(id(obj))  # which nobody else gets: `rows` has it until all is packed
        if place is None:
            group = self._groups.setdefault((obj.values.size, obj.values.dtype.str), len(self.rows))
            if group == len(self.rows):
                self.rows.append([])
            place = self._places[id(obj)] = group, len(self.rows[group])
            self.rows[group].append(obj)
        return place


class _Unpacker(pickle.Unpickler):
    def __init__(self, packed: Packed) -> None:
        super().__init__(io.BytesIO(packed.content))
        self._vectors = [
            # Each with memory of its own: a view would keep the whole matrix as long as anybody has one of its rows.
            [_LABELS[code](row.copy()) for code, row in zip(codes, rows, strict=True)]
            for codes, rows in zip(packed.labels, packed.vectors, strict=True)
        ]

    def persistent_load(self, pid: tuple[int, int]) -> Vector:
        group, row = pid
        return self._vectors[group][row]


def packed(what: Any) -> Packed:
    """Return objects as they travel."""
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(what)
    vectors = tuple(np.stack([vector.values for vector in rows]) for rows in packer.rows)
    labels = tuple(bytes(_CODES[type(vector)] for vector in rows) for rows in packer.rows)
    return Packed(file.getvalue(), vectors, labels)


def unpacked(found: Packed) -> Any:
    """Return the objects again; a vector that was in them twice is one vector in them."""
    return _Unpacker(found).load()
