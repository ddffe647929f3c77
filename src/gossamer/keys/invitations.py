"""Invitations: one signed file per party that says which run it is asked into, with whom, and on what terms.

Each party makes its own key and gives the organiser the public half; the organiser writes every party's public key into
every invitation. The alternative, a one-time secret that lets its holder enrol some key later, was rejected: whoever
reads such a file on its way could enrol first, and the keys would have to be exchanged through the broker before
anybody can be trusted. Like this an invitation holds no secret and may be mailed. It must not be *changed*, and so it
carries the organiser's signature, and a party compares the organiser's fingerprint by another way.

The file is YAML for people (see `strict_yaml`). What is signed is its content, not its layout.

    format: '1'
    run: 0f3c...                      32 hexadecimal digits
    broker: mqtts://broker.example.org:8883
    invited: hospital-a               one of the members
    members:
    - {name: hospital-a, role: worker, examples: '341', key: 'ed25519:...'}
    - {name: unit-1-agent-2, role: agent, unit: unit-1, examples: '210', key: 'ed25519:...'}
    spec: |                           the spec, letter by letter
      ...
    spec_sha256: ...
    issued: '2026-03-01T12:00:00+00:00'
    expires: '2026-04-01T12:00:00+00:00'
    organiser: 'ed25519:...'
    wheel_sha256: ...                 of the file that all install, if the organiser says one
    overview: 'ed25519:...'           of whoever may see how all parties are, if anybody may
    signature: ...                    base64, over all of the above

A member who joins later comes with new invitations to the same run for everybody; the one issued last counts.

A further run of the same parties has invitations of its own, by the same organiser (`further_run`).
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from gossamer.errors import CallerError, SpecError, beginning, failing_as
from gossamer.files import read_file
from gossamer.keys.identity import Identity, PublicKey, grouped
from gossamer.keys.private_files import IdentityError
from gossamer.mistakes import first_of
from gossamer.protocol.encoding import encode
from gossamer.protocol.transports import kind_of
from gossamer.strict_yaml import canonical, dump_texts, load_texts

FORMAT = 1
LARGEST = 1 << 18
"""Most bytes of an invitation."""
MOST_EXAMPLES = 10**12
AGENT = "agent"
"""Role of a party in a federated unit, whose server hears what is raw."""

_PURPOSE = "invitation"
_TERMS = ("run", "broker", "invited", "members", "spec", "spec_sha256", "issued", "expires", "organiser")
_MORE = ("wheel_sha256", "overview")
_MEMBER, _OF_SOME = ("name", "role", "key"), ("unit", "examples")
WATCHER = "overview"
"""Name, and role, of whoever watches a federation."""
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # a level of an MQTT topic, and a file's name
_ROLE = r"[a-z][a-z_]{0,31}"


class InvitationError(CallerError):
    """An invitation cannot be accepted."""


def _key(found: Any) -> PublicKey:
    with failing_as(InvitationError, "", of=IdentityError):
        return found if isinstance(found, PublicKey) else PublicKey.parse(str(found))


_Key = Annotated[PublicKey, BeforeValidator(_key)]


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

    __pydantic_config__ = ConfigDict(extra="forbid")
    name: str
    role: str
    key: _Key
    unit: str | None = None
    examples: int | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        _check(self.role, _ROLE, f"a member's role to match {_ROLE}")
        _check(self.unit, _NAME, f"{self.name} to have a unit to match {_NAME}")
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
        ``mqtts://host:port``, ``mqtt://host:port``, or a store: ``file:///folder`` or ``s3://bucket/folder``.
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
    wheel_sha256 : str, optional
        SHA-256 of the file that the organiser has everybody install, in hexadecimal digits.
    overview : PublicKey, optional
        Key of whoever may see how all parties are: the organiser, and those to whom the private half was given.
    written : bytes
        The file that it was read from; empty of one that was not.
    """

    run: str
    broker: str
    invited: str
    members: tuple[Member, ...]
    spec: str
    issued: datetime
    expires: datetime
    organiser: _Key
    wheel_sha256: str | None = None
    overview: _Key | None = None
    written: bytes = field(default=b"", repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.wheel_sha256, "[0-9a-f]{64}", "the wheel's hash in 64 hexadecimal digits")
        _check(self.run, "[0-9a-f]{32}", "a run of 32 hexadecimal digits")
        with failing_as(InvitationError, "", of=SpecError):
            kind_of(self.broker)
        _check_members((*self.members, *self.watchers), self.invited)
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
    def sizes(self) -> dict[str, int]:
        """Declared training examples of each party with data, in the order of the algorithm's nodes."""
        return {member.name: member.examples for member in self.members if member.examples is not None}

    @property
    def peers(self) -> tuple[Member, ...]:
        """The other members."""
        return tuple(member for member in self.members if member.name != self.invited)

    @property
    def watchers(self) -> tuple[Member, ...]:
        """Those who may see how all parties are, and take no part."""
        return () if self.overview is None else (Member(WATCHER, WATCHER, self.overview),)

    @property
    def spec_sha256(self) -> str:
        """SHA-256 of the spec in UTF-8, in hexadecimal digits."""
        return hashlib.sha256(self.spec.encode()).hexdigest()


_PARSER = TypeAdapter(Invitation)


def check_name(name: str, whose: str = "a member") -> str:
    """``name``, if a member, or a further run, may be called so.

    Raises
    ------
    InvitationError
        If not.
    """
    _check(name, _NAME, f"{whose}'s name to match {_NAME}")
    return name


def further_run(first: str, name: str, spec: str, members: Iterable[Member]) -> str:
    """Random name of the run that is called ``name``, of the parties of a ``first`` one.

    It follows from all that is agreed, so two who sign different things under one name have signed two runs.
    """
    agreed = encode((first, name, spec, [(member.name, member.examples or 0) for member in members]))
    return hashlib.sha256(encode(("gossamer", "further run", agreed))).hexdigest()[:32]


def check_further(first: Invitation, invitation: Invitation, name: str) -> None:
    """Raise InvitationError unless an invitation is to the run called ``name`` of those who were in the ``first``."""
    if invitation.organiser != first.organiser:
        raise InvitationError(
            f"run {name}: expected the organiser of the first run, {first.organiser.fingerprint}, found another one, "
            f"{invitation.organiser.fingerprint}; one organiser signs all runs of a federation, so ask whose this is"
        )
    if invitation.run != further_run(first.run, name, invitation.spec, invitation.members):
        raise InvitationError(
            f"expected an invitation to run {name} of the federation whose first run is {first.run}, found one of "
            "another federation, or to a run of another name; ask the organiser for the right one"
        )
    keys = {member.name: member.key for member in first.members}
    if swapped := [one for one in invitation.members if keys.get(one.name, one.key) != one.key]:
        known, found = keys[swapped[0].name].fingerprint, swapped[0].key.fingerprint
        raise InvitationError(
            f"run {name}: expected {swapped[0].name} with the key of the first run, {known}, found another one, "
            f"{found}; keys stay what they were, so ask both the organiser and that party"
        )


def _check(text: str | None, pattern: str, what: str) -> None:
    """Raise InvitationError if a text is there, and not of a form."""
    if text is not None and not re.fullmatch(pattern, text):
        raise InvitationError(f"expected {what}, found {text[:80]!r}")


def _check_members(members: tuple[Member, ...], invited: str) -> None:
    for what, values in (("name", [m.name for m in members]), ("key", [str(m.key) for m in members])):
        twice = [value for value, count in Counter(values).items() if count > 1]
        if twice:
            raise InvitationError(f"expected each member to have a {what} of its own, found {twice[0]} twice")
    if invited not in [member.name for member in members]:
        raise InvitationError(f"expected the invited party to be a member, found {invited[:80]!r}")


def invite(
    organiser: Identity,
    broker: str,
    members: Iterable[Member],
    spec: str,
    expires: datetime,
    issued: datetime | None = None,
    run: str | None = None,
    wheel: str | None = None,
    overview: PublicKey | None = None,
) -> dict[str, str]:
    """The text of each member's invitation, by name.

    Parameters
    ----------
    organiser : Identity
        Signs them.
    broker, members, spec, expires, issued, run, wheel, overview
        The same as in `Invitation`. By default issued now, and to a new run.

    Raises
    ------
    InvitationError
        If something is not of its form.
    """
    everyone, run, issued = tuple(members), run or secrets.token_hex(16), issued or datetime.now(UTC)
    key = organiser.public_key
    terms = everyone, spec, issued, expires, key, wheel, overview
    invitations = [Invitation(run, broker, member.name, *terms) for member in everyone]
    return {invitation.invited: _write(invitation, organiser) for invitation in invitations}


def read_signed(path: str | Path, organiser: str | None = None) -> Invitation:
    """The invitation in a file, whoever it is for; see `parse_signed`."""
    content = content_of(Path(path))
    with beginning(str(path), InvitationError):
        return parse_signed(content, None if organiser is None else [organiser])


def parse_invitation(content: bytes, identity: Identity, organisers: Collection[str], now: datetime) -> Invitation:
    """The invitation written in ``content``, after all checks.

    Parameters
    ----------
    content : bytes
        The file; anything at all.
    identity : Identity
        Identity of the party that reads it.
    organisers : collection of str
        Fingerprints that organisers told this party by another way than the file came.
    now : datetime
        Time with a time zone.

    Raises
    ------
    InvitationError
        With the first of: too large, not readable, of a newer version, by somebody else than the organiser, changed
        since it was signed, of wrong form, for another key, expired.
    """
    invitation = parse_signed(content, organisers)
    if invitation.me.key != identity.public_key:
        raise InvitationError(
            f"it is for {invitation.invited} with key {invitation.me.key.fingerprint}, "
            f"found the key {identity.public_key.fingerprint}; use that party's key, or ask for an invitation for yours"
        )
    if invitation.expires <= now:
        raise InvitationError(f"it expired at {invitation.expires.isoformat()}; ask the organiser for a new one")
    return invitation


def parse_signed(content: bytes, organisers: Collection[str] | None = None) -> Invitation:
    """The invitation written in ``content``, whoever it is for and whether or not it has expired.

    Parameters
    ----------
    content : bytes
        The file; anything at all.
    organisers : collection of str, optional
        Fingerprints, of one of which the signature must be. Without these, that it was not changed says nothing about
        who wrote it.

    Raises
    ------
    InvitationError
        As `parse_invitation`, but for whose key it is for and when it expires.
    """
    document = _document(content)
    signer = _key(document["organiser"])
    if organisers is not None and signer.fingerprint not in map(grouped, organisers):
        raise InvitationError(
            f"expected the organiser with fingerprint {' or '.join(organisers)}, found {signer.fingerprint}; "
            f"ask the organiser for theirs by another way than this file came"
        )
    if not signer.signed(_signature(document), _PURPOSE, _content(document)):
        raise InvitationError("it was changed after the organiser signed it; ask for it again")
    return _invitation(document, content)


def content_of(path: Path) -> bytes:
    """Read a file, as far as an invitation may go.

    Raises
    ------
    InvitationError
        If it cannot be read.
    """
    remedy = "; give the file that the organiser sent"
    with failing_as(InvitationError, f"{path}: cannot read the invitation: ", remedy):
        return read_file(path, LARGEST)


def _write(invitation: Invitation, organiser: Identity) -> str:
    document = {"format": str(FORMAT), **_texts(invitation, *_TERMS, *_MORE)}
    signature = organiser.sign(_PURPOSE, _content(document))
    document["signature"] = base64.b64encode(signature).decode()
    text = f"# An invitation to a run. Whoever changes what it says breaks its signature.\n{dump_texts(document)}"
    if len(text.encode()) > LARGEST:
        raise InvitationError(f"expected an invitation of at most {LARGEST} bytes, found more; shorten the spec")
    return text


def _texts(of: Invitation | Member, *names: str) -> dict[str, Any]:
    """Those of these attributes that there are, as a file has them."""
    return {name: _written(value) for name in names if (value := getattr(of, name)) is not None}


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_texts(member, *_MEMBER[:2], *_OF_SOME, *_MEMBER[2:]) for member in value]
    return value.astimezone(UTC).isoformat(timespec="seconds") if isinstance(value, datetime) else str(value)


def _content(document: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed."""
    return canonical({key: value for key, value in document.items() if key != "signature"})


def _document(content: bytes) -> dict[str, Any]:
    """The content of a file: texts, lists and mappings of this version."""
    if len(content) > LARGEST:
        raise InvitationError(f"expected an invitation of at most {LARGEST} bytes, found more")
    try:
        document = load_texts(content.decode())
    except (SpecError, UnicodeDecodeError):
        document = None
    if not isinstance(document, dict) or "format" not in document:
        raise InvitationError("expected an invitation in YAML, found something else; was it damaged on its way?")
    found = str(document["format"])
    if not re.fullmatch("[1-9][0-9]{0,5}", found) or int(found) > FORMAT:
        raise InvitationError(
            f"it is of format {found[:80]}, and this version of gossamer reads format {FORMAT}; update gossamer"
        )
    if different := (set(document) - {*_MORE}) ^ {"format", *_TERMS, "signature"}:
        shown = ", ".join(sorted(different))[:200]
        raise InvitationError(f"expected the keys of an invitation, and these are missing or too many: {shown}")
    return document


def _invitation(document: Mapping[str, Any], content: bytes) -> Invitation:
    found = {key: value for key, value in document.items() if key not in ("format", "signature", "spec_sha256")}
    try:
        invitation = _PARSER.validate_python({**found, "written": content})
    except ValidationError as error:
        wrong = first_of(error).removeprefix("its keys: ")[:300].encode("unicode_escape").decode()
        raise InvitationError(f"{wrong}; this is how it was signed, so ask the organiser for another") from None
    if invitation.spec_sha256 != document["spec_sha256"]:
        raise InvitationError("its spec does not have the hash that it names; ask the organiser for a new one")
    return invitation


def _signature(document: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(document["signature"], validate=True)
    except (TypeError, ValueError):  # binascii's error is one
        return b""
