"""Errors about identities, invitations and sealed datagrams.

CallerError
├── IdentityError       a key file that is missing, open to others, or no Ed25519 key
└── InvitationError     an invitation that is not ours, not genuine, or out of date
PeerError
└── RefusedDatagram     bytes from the broker that do not open; nothing of ours changed
"""

from __future__ import annotations

from enum import StrEnum

from gossamer.errors import CallerError, PeerError


class IdentityError(CallerError):
    """A key or a key file is not what an identity needs."""


class InvitationError(CallerError):
    """An invitation cannot be accepted."""


class Reason(StrEnum):
    """Reason that a datagram was refused, for a caller's counters.

    The last four happen between honest nodes, over links that duplicate and delay and when a node restarts. The others
    do not.
    """

    SIZE = "size"
    FORM = "form"
    VERSION = "version"
    ANOTHER_CHANNEL = "another channel"
    NOT_AUTHENTIC = "not authentic"
    TWO_NODES = "two nodes with one identity"
    BUSY = "too many handshakes"
    STALE = "stale handshake"
    UNKNOWN_SESSION = "unknown session"
    OLD_SESSION = "old session"
    REPEATED = "repeated"


class RefusedDatagram(PeerError):
    """A datagram was refused, and nothing changed.

    Attributes
    ----------
    reason : Reason
        Kind of refusal.
    """

    def __init__(self, reason: Reason, line: str) -> None:
        super().__init__(line)
        self.reason = reason
