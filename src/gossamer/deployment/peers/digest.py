"""Digest of a node: the word in which it says how it is to those who watch its federation.

It is a part of the node's status, made by `party.overview`: what its peers and the broker could count, and the node's
problems. Nothing in it is a loss, the size of an update, or a time that a computation took.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gossamer.protocol import encoding

LARGEST_DIGEST = 3072
"""Most bytes of a digest."""
_LARGEST_STATUS = 1 << 17  # bytes of JSON: a few bytes can say very much


@encoding.register("peer.digest")
@dataclass(frozen=True, slots=True)
class Digest:
    """State of a node.

    Attributes
    ----------
    packed : bytes
        Part of its status, as JSON that is compressed (RFC 1950).
    """

    packed: bytes

    def __post_init__(self) -> None:
        if type(self.packed) is not bytes or len(self.packed) > LARGEST_DIGEST:
            raise ValueError(f"expected a digest of at most {LARGEST_DIGEST} bytes")

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> Digest:
        """Digest that says so much of a status; of one that is too long the state alone."""
        packed = zlib.compress(json.dumps(status, separators=(",", ":")).encode(), 9)
        return cls(packed) if len(packed) <= LARGEST_DIGEST else cls.of({"state": status["state"]})

    def status(self) -> dict[str, Any]:
        """What it says, with texts on one line each.

        Raises
        ------
        ValueError
            If it says nothing that can be read.
        """
        try:
            found = json.loads(zlib.decompressobj().decompress(self.packed, _LARGEST_STATUS))
        except (zlib.error, RecursionError):
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("state"), str):
            raise ValueError("expected the status of a node")
        return {key: _plain(value) for key, value in found.items()}


def _plain(value: Any) -> Any:
    """A value, without what would direct a terminal, and without what is no number."""
    if isinstance(value, dict):
        return {_plain(key): _plain(below) for key, below in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("expected numbers")
    return "".join(letter if letter.isprintable() else "?" for letter in value) if isinstance(value, str) else value
