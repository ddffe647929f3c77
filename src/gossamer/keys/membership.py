"""Members of a run, with their roles and keys, and its terms: what an invitation says."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from gossamer.keys.errors import InvitationError
from gossamer.keys.identity import PublicKey

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # a level of an MQTT topic, and a file's name
_ROLE = re.compile(r"[a-z][a-z_]{0,31}")

MOST_EXAMPLES = 10**12


AGENT = "agent"
"""Role of a party in a federated unit, whose server hears what is raw."""


@dataclass(frozen=True)
class Member:
    """One party of a run.

    Attributes
    ----------
    name : str
        Name of its node; letters, digits, dots, hyphens and underscores.
    role : str
        Name that the algorithm has for it: ``worker``, ``server``, ``aggregator``, ``agent``, ...
    key : PublicKey
        Key whose signatures are this party's.
    unit : str, optional
        Unit of an agent, and of nobody else: the unit it belongs to.
    examples : int, optional
        Number of training examples the party has declared, which is public; None where it trains on none, as servers.
    """

    name: str
    role: str
    key: PublicKey
    unit: str | None = None
    examples: int | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if not _ROLE.fullmatch(self.role):
            raise InvitationError(f"expected a member's role to match {_ROLE.pattern}, found {self.role[:80]!r}")
        if self.unit is not None and not _NAME.fullmatch(self.unit):
            raise InvitationError(f"{self.name}: expected a unit to match {_NAME.pattern}, found {self.unit[:80]!r}")
        if (self.role == AGENT) != (self.unit is not None):
            raise InvitationError(f"{self.name}: an agent, and nobody else, has a unit; found {self.role}, {self.unit}")
        if self.examples is not None and not 1 <= self.examples <= MOST_EXAMPLES:
            raise InvitationError(f"{self.name}: expected 1 to {MOST_EXAMPLES} examples, found {self.examples}")


@dataclass(frozen=True)
class Invitation:
    """Contents of an invitation; one that was read has been verified.

    Attributes
    ----------
    run : str
        Random name of the run, 32 hexadecimal digits.
    broker : str
        ``mqtts://host:port`` or ``mqtt://host:port``.
    invited : str
        The name of the member it is for.
    members : tuple of Member
        All of the run, the invited one too, in the same order for everybody: that of the algorithm's nodes.
    spec : str
        The experiment's spec, letter by letter.
    issued, expires : datetime
        Times from which and until which it is valid, with time zones. An invitation from the future is accepted: clocks
        differ.
    organiser : PublicKey
        Party who signed.
    wheel : str, optional
        SHA-256 of the file that the organiser has everybody install, in hexadecimal digits.
    """

    run: str
    broker: str
    invited: str
    members: tuple[Member, ...]
    spec: str
    issued: datetime
    expires: datetime
    organiser: PublicKey
    wheel: str | None = None

    def __post_init__(self) -> None:
        if self.wheel is not None and not re.fullmatch("[0-9a-f]{64}", self.wheel):
            raise InvitationError(f"expected the wheel's hash in 64 hexadecimal digits, found {self.wheel[:80]!r}")
        if not re.fullmatch("[0-9a-f]{32}", self.run):
            raise InvitationError(f"expected a run of 32 hexadecimal digits, found {self.run[:80]!r}")
        _check_broker(self.broker)
        _check_members(self.members, self.invited)
        if any(0xD800 <= ord(letter) < 0xE000 for letter in self.spec):
            raise InvitationError("expected a spec of Unicode text, found half a surrogate pair")
        if self.issued.tzinfo is None or self.expires.tzinfo is None:
            raise InvitationError(f"expected times with a time zone, found {self.issued} and {self.expires}")
        if not self.issued < self.expires:
            raise InvitationError(f"expected it to expire after it is issued, found {self.issued} and {self.expires}")

    @property
    def me(self) -> Member:
        """The member it is for."""
        return next(member for member in self.members if member.name == self.invited)

    @property
    def peers(self) -> tuple[Member, ...]:
        """The other members."""
        return tuple(member for member in self.members if member.name != self.invited)

    @property
    def spec_sha256(self) -> str:
        """SHA-256 of the spec in UTF-8, in hexadecimal digits."""
        return hashlib.sha256(self.spec.encode()).hexdigest()


def check_name(name: str) -> str:
    """``name``, if a member may be called so.

    Raises
    ------
    InvitationError
        If not.
    """
    if not _NAME.fullmatch(name):
        raise InvitationError(f"expected a member's name to match {_NAME.pattern}, found {name[:80]!r}")
    return name


def _check_broker(broker: str) -> None:
    try:
        parts = urlsplit(broker)
        fits = parts.scheme in ("mqtt", "mqtts") and bool(parts.hostname) and bool(parts.port)
    except ValueError:
        fits = False
    if not fits or parts.path or parts.query or parts.fragment or "@" in broker:
        raise InvitationError(f"expected a broker such as mqtts://broker.example.org:8883, found {broker[:80]!r}")


def _check_members(members: tuple[Member, ...], invited: str) -> None:
    for what, values in (("name", [m.name for m in members]), ("key", [str(m.key) for m in members])):
        twice = [value for value, count in Counter(values).items() if count > 1]
        if twice:
            raise InvitationError(f"expected each member to have a {what} of its own, found {twice[0]} twice")
    if invited not in [member.name for member in members]:
        raise InvitationError(f"expected the invited party to be a member, found {invited[:80]!r}")
