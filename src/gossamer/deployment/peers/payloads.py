"""What is inside a sealed datagram: a frame of the session, or a word from party to party.

The first byte says which. A frame is for the node's session (`gossamer.protocol.frames`). A *word* is for whoever looks
after the peers: it is neither stored nor acknowledged nor repeated, and nothing of the run depends on it. There is one,
the heartbeat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.errors import MalformedMessage
from gossamer.protocol import encoding
from gossamer.protocol.frames import Frame, decode_frame, encode_frame
from gossamer.protocol.messages import HEADER, without_header

FRAME, WORD = 0, 1
LONGEST_REASON = 80
"""Most characters of the reason that a heartbeat gives."""
_LARGEST_WORD = 1024


@encoding.register("peer.heartbeat")
@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The sender is there.

    Attributes
    ----------
    seconds : float
        Since its process began.
    finished : str
        Why its node makes no more updates; empty while it does.
    knows : bool
        Whether it has heard that the node of the party this is for makes no more either.
    """

    seconds: float
    finished: str = ""
    knows: bool = False

    def __post_init__(self) -> None:
        if type(self.seconds) is not float or not 0 <= self.seconds < math.inf:
            raise ValueError(f"expected seconds of 0 or more, found {self.seconds!r}")
        if type(self.finished) is not str or len(self.finished) > LONGEST_REASON:
            raise ValueError(f"expected a reason of at most {LONGEST_REASON} characters")
        if type(self.knows) is not bool:
            raise ValueError(f"expected true or false, found {self.knows!r}")


Word = Heartbeat


def encode_content(content: Frame | Word) -> bytes:
    """What is sealed."""
    if isinstance(content, Heartbeat):
        return bytes([WORD]) + HEADER + encoding.encode(content)
    return bytes([FRAME]) + encode_frame(content)


def decode_content(sealed: bytes, largest: int) -> Frame | Word:
    """What was sealed, of at most ``largest`` bytes.

    Raises
    ------
    MalformedMessage
        With the reason.
    """
    kind, rest = sealed[:1], memoryview(sealed)[1:]
    if kind == bytes([FRAME]):
        return decode_frame(rest, largest)
    if kind != bytes([WORD]):
        raise MalformedMessage(f"expected a frame (0) or a word (1), found kind {kind.hex() or 'nothing'}")
    word = encoding.decode(without_header(rest, _LARGEST_WORD), most_values=4)
    if not isinstance(word, Heartbeat):
        raise MalformedMessage(f"expected a word, found {type(word).__name__}")
    return word
