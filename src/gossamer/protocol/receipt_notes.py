"""Notes about receipts: what a party claims of its own, and what a witness has seen of them and signs.

A party's receipts are a chain (`sides.receipts`): the state after each follows from the one before and 32 bytes, its
link. A note says how far a chain goes, in states and links alone, and nothing of what the receipts say. It goes with
what is sent anyhow (`deployment.peers.payloads`); the rules are those of `protocol.witnesses`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from gossamer.protocol.encoding import encode, register

PURPOSE = "witness of receipts"
"""Purpose of a witness's signature."""
MOST_LINKS = 256
"""Most links in a claim; one that needs more is made of several, in messages one after another."""
LINK = 32
"""Bytes of a link, and of a state."""
_SIGNATURE = 64


def following(state: bytes, link: bytes) -> bytes:
    """State of a chain after a line, whose SHA-256 is ``link``."""
    return hashlib.sha256(state + link).digest()


class Seen(NamedTuple):
    """Length of a chain, and its state there.

    Attributes
    ----------
    releases : int
        How many receipts it had.
    head : bytes
        State after the last of them.
    """

    releases: int
    head: bytes


@register("receipts.note")
@dataclass(frozen=True, slots=True)
class Note:
    """Claim of the sender about its own receipts, and what it has seen of the receiver's.

    Attributes
    ----------
    releases : int
        Of how many the sender has receipts; 0 where there is no claim.
    head : bytes
        State after them [32 bytes]; empty without a claim.
    links : bytes
        Of the newest of them, 32 bytes each.
    seen : int
        Of how many of the receiver's the sender has seen; 0 for none.
    seen_head : bytes
        State after them [32 bytes].
    signature : bytes
        The sender's, of `countersigned` [64 bytes].
    """

    releases: int = 0
    head: bytes = b""
    links: bytes = b""
    seen: int = 0
    seen_head: bytes = b""
    signature: bytes = b""

    def __post_init__(self) -> None:
        for count, head in ((self.releases, self.head), (self.seen, self.seen_head)):
            if type(count) is not int or count < 0 or type(head) is not bytes or len(head) != LINK * bool(count):
                raise ValueError("expected a number of receipts, and the 32 bytes of the state after them")
        if type(self.links) is not bytes or len(self.links) % LINK or len(self.links) > LINK * MOST_LINKS:
            raise ValueError(f"expected at most {MOST_LINKS} links of {LINK} bytes")
        if type(self.signature) is not bytes or len(self.signature) != _SIGNATURE * bool(self.seen):
            raise ValueError("expected a signature of 64 bytes with what was seen, and none without")


def countersigned(run: str, party: str, seen: Seen) -> bytes:
    """Content that a witness signs: what it has seen of a party's receipts in a run."""
    return encode((run, party, *seen))
