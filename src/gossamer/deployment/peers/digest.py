"""Digest of a node: the word in which it says its state to those who watch its federation.

It is a part of the node's status, made by `party.overview`: what its peers and the broker could count, and the node's
problems. Nothing in it is a loss, the size of an update, or a time that a computation took.
"""

from __future__ import annotations

import json
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
        """Digest that says so much of a status; of one that is too long the state, the version and numbers."""
        packed = zlib.compress(json.dumps(status, separators=(",", ":")).encode(), 9)
        if len(packed) <= LARGEST_DIGEST:
            return cls(packed)
        short = {key: one for key, one in status.items() if isinstance(one, int | float) or key in ("state", "version")}
        return cls.of(short)

    def status(self) -> dict[str, Any]:
        """Status as far as it is of the form of `FORM`, with texts on one line each; unknown keys are left out.

        Raises
        ------
        ValueError
            If it says nothing that can be read, or something of another form.
        """
        try:
            found = json.loads(zlib.decompressobj().decompress(self.packed, _LARGEST_STATUS))
        except (zlib.error, RecursionError):
            found = None
        if not isinstance(found, dict) or "state" not in found:
            raise ValueError("expected the status of a node")
        status: dict[str, Any] = _formed(found, FORM)
        return status


PEER = {"state": "", "seconds": 0.0, "finished": "", "receipts": ""}
"""Keys of a peer's state, with an example of each."""
FORM: Mapping[str, Any] = {
    **{"state": "", "since": 0.0, "version": "", "updates": 0, "releases": 0, "planned_releases": 0, "finished": ""},
    **{"connected": True, "alone": 0.0, "holds": True, "needs": [""], "forgotten": [""], "why": "", "time": 0.0},
    "broker_says": "",
    **{"peers": {"": PEER}, "unacknowledged": {"": {"seconds": 0.0, "why": ""}}, "expires": {"": ""}},
    **{"stalled": {"since": 0.0, "seconds": 0.0, "waits_for": [""]}},
    **{"rounds": {"made": 0, "planned": 0, "empty": 0, "lately": 0}, "orders": {"": ""}, "rehearsal": {"": ""}},
}
"""A digest with an example of each value; an empty key stands for any name."""
_LONGEST, _MOST, _LARGEST = 300, 64, 1e12
"""Most letters of a text, most values of a list, and the largest number."""


def _formed(value: Any, form: Any) -> Any:
    """A value of a form, without what would direct a terminal or fill it."""
    number = isinstance(form, float) and type(value) is int
    if not (number or type(value) is type(form)) or (isinstance(value, int | float) and not abs(value) <= _LARGEST):
        raise ValueError(f"expected a value such as {form!r}")
    if isinstance(value, dict):
        forms = {_formed(key, ""): (below, form.get(key, form.get(""))) for key, below in value.items()}
        return {key: _formed(below, known) for key, (below, known) in forms.items() if known is not None}
    if isinstance(value, list):
        return [_formed(one, form[0]) for one in value[:_MOST]]
    return "".join(letter if letter.isprintable() else "?" for letter in value[:_LONGEST]) if form == "" else value
