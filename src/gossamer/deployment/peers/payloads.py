"""Payload of a sealed datagram: a frame of the session, a word from party to party, or a probe.

The first byte says which; it may say that a note about receipts comes first (`protocol.witnesses`), which rides on
whatever is sent anyhow. A frame is for the node's session (`gossamer.protocol.frames`). A *word* is for whoever looks
after the peers: it is neither stored nor acknowledged nor repeated, and nothing of the run depends on it. There are
three, the heartbeat, the counters of the messages between the two, and the answer to a *probe*: as many zeros as a
message of the run is long, which show whether such a message gets through before anything is charged.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from gossamer.errors import MalformedMessage
from gossamer.protocol import encoding
from gossamer.protocol.frames import Frame, decode_frame, encode_frame
from gossamer.protocol.link import Counters as Counters
from gossamer.protocol.messages import HEADER, without_header
from gossamer.protocol.witnesses import MOST_LINKS, Note

FRAME, WORD, NOTED, PROBE = 0, 1, 2, 3
LONGEST_REASON = 80
"""Most characters of the reason that a heartbeat gives."""
LARGEST_NOTE = 3 + 32 * MOST_LINKS + 256
"""Most bytes by which a note makes a payload longer."""
_LARGEST_WORD = 1024
_LENGTH = struct.Struct("<H")


@encoding.register("peer.heartbeat")
@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The sender is there.

    Attributes
    ----------
    seconds : float
        Seconds since its process began.
    finished : str
        Reason why its node makes no more updates; empty while it does.
    knows : bool
        Whether it has heard that the node of the party this is for makes no more either.
    version : str
        Version of the software that it runs.
    """

    seconds: float
    finished: str = ""
    knows: bool = False
    version: str = ""

    def __post_init__(self) -> None:
        if type(self.seconds) is not float or not 0 <= self.seconds < math.inf:
            raise ValueError(f"expected seconds of 0 or more, found {self.seconds!r}")
        if type(self.finished) is not str or len(self.finished) > LONGEST_REASON:
            raise ValueError(f"expected a reason of at most {LONGEST_REASON} characters")
        if type(self.knows) is not bool:
            raise ValueError(f"expected true or false, found {self.knows!r}")
        if type(self.version) is not str or len(self.version) > LONGEST_REASON:
            raise ValueError(f"expected a version of at most {LONGEST_REASON} characters")


@encoding.register("peer.passed")
@dataclass(frozen=True, slots=True)
class Passed:
    """A probe has come.

    Attributes
    ----------
    size : int
        Number of bytes that it had.
    """

    size: int

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size < 0:
            raise ValueError(f"expected a number of bytes, 0 or more, found {self.size!r}")


@dataclass(frozen=True, slots=True)
class PeerProbe:
    """So many zeros, for which the peer has no other use than to say that they came."""

    size: int


Word = Heartbeat | Counters | Passed
Content = Frame | Word | PeerProbe


def noted(content: bytes, note: Note | None) -> bytes:
    """Put a note before what is sealed, if there is one."""
    if note is None:
        return content
    first = HEADER + encoding.encode(note)
    return b"".join((bytes([NOTED]), _LENGTH.pack(len(first)), first, content))


def encode_content(content: Content) -> bytes:
    """Encode what is sealed, without a note."""
    if isinstance(content, PeerProbe):
        return bytes([PROBE]) + bytes(content.size)
    if isinstance(content, Word):
        return bytes([WORD]) + HEADER + encoding.encode(content)
    return bytes([FRAME]) + encode_frame(content)


def decode_noted(sealed: bytes, largest: int) -> tuple[Content, Note | None]:
    """Decode what was sealed, of at most ``largest`` bytes without its note, and the note.

    Raises
    ------
    MalformedMessage
        With the reason.
    """
    if sealed[:1] != bytes([NOTED]):
        return decode_content(sealed, largest), None
    end = 1 + _LENGTH.size
    end += int.from_bytes(sealed[1:end], "little")
    note = encoding.decode(without_header(memoryview(sealed)[1 + _LENGTH.size : end], LARGEST_NOTE), most_values=7)
    if not isinstance(note, Note):
        raise MalformedMessage(f"expected a note about receipts, found {type(note).__name__}")
    return decode_content(sealed[end:], largest), note


def decode_content(sealed: bytes, largest: int) -> Content:
    """Decode what was sealed without a note, of at most ``largest`` bytes.

    Raises
    ------
    MalformedMessage
        With the reason.
    """
    kind, rest = sealed[:1], memoryview(sealed)[1:]
    if kind == bytes([FRAME]):
        return decode_frame(rest, largest)
    if kind == bytes([PROBE]) and len(rest) <= largest:
        return PeerProbe(len(rest))
    if kind != bytes([WORD]):
        raise MalformedMessage(f"expected a frame (0), a word (1) or a probe (3), found kind {kind.hex() or 'nothing'}")
    word = encoding.decode(without_header(rest, _LARGEST_WORD), most_values=5)
    if not isinstance(word, Word):
        raise MalformedMessage(f"expected a word, found {type(word).__name__}")
    return word
