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
    signature: ...                    base64, over all of the above

A member who joins later comes with new invitations to the same run for everybody; the one issued last counts.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gossamer.bounded import read_file
from gossamer.errors import SpecError
from gossamer.keys.errors import IdentityError, InvitationError
from gossamer.keys.identity import Identity, PublicKey
from gossamer.keys.membership import Invitation as Invitation
from gossamer.keys.membership import Member as Member
from gossamer.strict_yaml import canonical, dump_texts, load_texts

FORMAT = 1
LARGEST = 1 << 18
"""Most bytes of an invitation."""

_PURPOSE = "invitation"
_KEYS = frozenset(
    ["format", "run", "broker", "invited", "members", "spec", "spec_sha256", "issued", "expires", "organiser"]
) | {"signature"}

_WHEEL = "wheel_sha256"


def invite(
    organiser: Identity,
    broker: str,
    members: Iterable[Member],
    spec: str,
    expires: datetime,
    issued: datetime | None = None,
    run: str | None = None,
    wheel: str | None = None,
) -> dict[str, str]:
    """The text of each member's invitation, by name.

    Parameters
    ----------
    organiser : Identity
        Signs them.
    broker, members, spec, expires, issued, run, wheel
        The same as in `Invitation`. By default issued now, and to a new run.

    Raises
    ------
    InvitationError
        If something is not of its form.
    """
    everyone = tuple(members)
    run = run or secrets.token_hex(16)
    issued = issued or datetime.now(UTC)
    return {
        member.name: _write(
            Invitation(run, broker, member.name, everyone, spec, issued, expires, organiser.public_key, wheel),
            organiser,
        )
        for member in everyone
    }


def read_signed(path: str | Path, organiser: str | None = None) -> Invitation:
    """The invitation in a file, whoever it is for; see `parse_signed`."""
    return _read(Path(path), lambda content: parse_signed(content, organiser))


def parse_invitation(content: bytes, identity: Identity, organiser: str, now: datetime) -> Invitation:
    """The invitation written in ``content``, after all checks.

    Parameters
    ----------
    content : bytes
        The file; anything at all.
    identity : Identity
        Identity of the party that reads it.
    organiser : str
        The fingerprint that the organiser told this party by another way than the file came.
    now : datetime
        Time with a time zone.

    Raises
    ------
    InvitationError
        With the first of: too large, not readable, of a newer version, by somebody else than the organiser, changed
        since it was signed, of wrong form, for another key, expired.
    """
    invitation = parse_signed(content, organiser)
    if invitation.me.key != identity.public_key:
        raise InvitationError(
            f"it is for {invitation.invited} with key {invitation.me.key.fingerprint}, "
            f"found the key {identity.public_key.fingerprint}; use that party's key, or ask for an invitation for yours"
        )
    if invitation.expires <= now:
        raise InvitationError(f"it expired at {invitation.expires.isoformat()}; ask the organiser for a new one")
    return invitation


def parse_signed(content: bytes, organiser: str | None = None) -> Invitation:
    """The invitation written in ``content``, whoever it is for and whether or not it has expired.

    Parameters
    ----------
    content : bytes
        The file; anything at all.
    organiser : str, optional
        The fingerprint of who must have signed it. Without one, that it was not changed says nothing about who wrote
        it.

    Raises
    ------
    InvitationError
        As `parse_invitation`, but for whose key it is for and when it expires.
    """
    document = _document(content)
    signer = _checked(PublicKey.parse, _text(document, "organiser"))
    if organiser is not None and signer.fingerprint != _plain(organiser):
        raise InvitationError(
            f"expected the organiser with fingerprint {organiser}, found {signer.fingerprint}; "
            f"ask the organiser for theirs by another way than this file came"
        )
    if not signer.signed(_signature(document), _PURPOSE, _content(document)):
        raise InvitationError("it was changed after the organiser signed it; ask for it again")
    return _invitation(document, signer)


def content_of(path: Path) -> bytes:
    """Read a file, as far as an invitation may go.

    Raises
    ------
    InvitationError
        If it cannot be read.
    """
    try:
        return read_file(path, LARGEST)
    except OSError as error:
        raise InvitationError(
            f"{path}: cannot read the invitation: {error.strerror}; give the file that the organiser sent"
        ) from None


def _read(path: Path, parse: Callable[[bytes], Invitation]) -> Invitation:
    content = content_of(path)
    try:
        return parse(content)
    except InvitationError as error:
        raise InvitationError(f"{path}: {error}") from None


def _write(invitation: Invitation, organiser: Identity) -> str:
    document: dict[str, Any] = {
        "format": str(FORMAT),
        "run": invitation.run,
        "broker": invitation.broker,
        "invited": invitation.invited,
        "members": [_entry(member) for member in invitation.members],
        "spec": invitation.spec,
        "spec_sha256": invitation.spec_sha256,
        "issued": invitation.issued.astimezone(UTC).isoformat(timespec="seconds"),
        "expires": invitation.expires.astimezone(UTC).isoformat(timespec="seconds"),
        "organiser": str(invitation.organiser),
        **({} if invitation.wheel is None else {_WHEEL: invitation.wheel}),
    }
    signature = organiser.sign(_PURPOSE, _content(document))
    document["signature"] = base64.b64encode(signature).decode()
    text = f"# An invitation to a run. Whoever changes what it says breaks its signature.\n{dump_texts(document)}"
    if len(text.encode()) > LARGEST:
        raise InvitationError(f"expected an invitation of at most {LARGEST} bytes, found more; shorten the spec")
    return text


def _entry(member: Member) -> dict[str, str]:
    unit = {} if member.unit is None else {"unit": member.unit}
    examples = {} if member.examples is None else {"examples": str(member.examples)}
    return {"name": member.name, "role": member.role, **unit, **examples, "key": str(member.key)}


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
    found = _text(document, "format")
    if not re.fullmatch("[1-9][0-9]{0,5}", found) or int(found) > FORMAT:
        raise InvitationError(
            f"it is of format {found[:80]}, and this version of gossamer reads format {FORMAT}; update gossamer"
        )
    if set(document) - {_WHEEL} != _KEYS:
        different = ", ".join(sorted(map(str, (set(document) - {_WHEEL}) ^ _KEYS)))[:200]
        raise InvitationError(f"expected the keys of an invitation, and these are missing or too many: {different}")
    return document


def _invitation(document: Mapping[str, Any], signer: PublicKey) -> Invitation:
    members = document["members"]
    if not isinstance(members, list):
        raise InvitationError("expected a list of members")
    invitation = Invitation(
        run=_text(document, "run"),
        broker=_text(document, "broker"),
        invited=_text(document, "invited"),
        members=tuple(_member(entry) for entry in members),
        spec=_text(document, "spec"),
        issued=_time(document, "issued"),
        expires=_time(document, "expires"),
        organiser=signer,
        wheel=_text(document, _WHEEL) if _WHEEL in document else None,
    )
    if invitation.spec_sha256 != _text(document, "spec_sha256"):
        raise InvitationError("its spec does not have the hash that it names; ask the organiser for a new one")
    return invitation


def _member(entry: Any) -> Member:
    needed, more = {"name", "role", "key"}, {"unit", "examples"}
    if not isinstance(entry, dict) or not needed <= set(entry) <= needed | more:
        raise InvitationError("expected each member to have name, role and key, and an agent a unit")
    unit = _text(entry, "unit") if "unit" in entry else None
    key = _checked(PublicKey.parse, _text(entry, "key"))
    return Member(_text(entry, "name"), _text(entry, "role"), key, unit, _examples(entry))


def _examples(entry: Mapping[str, Any]) -> int | None:
    if "examples" not in entry:
        return None
    found = _text(entry, "examples")
    if not re.fullmatch("[1-9][0-9]{0,12}", found):
        raise InvitationError(f"expected a member's examples to be a number from 1, found {found[:80]!r}")
    return int(found)


def _text(mapping: Mapping[str, Any], key: str) -> str:
    value = mapping.get(key)
    if not isinstance(value, str):
        raise InvitationError(f"expected {key} to be a text")
    return value


def _time(document: Mapping[str, Any], key: str) -> datetime:
    try:
        time = datetime.fromisoformat(_text(document, key))
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvitationError(f"expected {key} to be a time such as 2026-03-01T12:00:00+00:00")
    return time


def _signature(document: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(_text(document, "signature"), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _checked(parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except IdentityError as error:
        raise InvitationError(str(error)) from None


def _plain(fingerprint: str) -> str:
    """A fingerprint as people type it: large or small letters, with or without spaces and hyphens."""
    digits = re.sub(r"[\s:-]", "", fingerprint).lower()
    return "-".join(digits[i : i + 4] for i in range(0, len(digits), 4))
