"""Invitations to a run that is under way, issued again: for parties that join, or because the old ones expire.

Everybody gets a new invitation to the same run; the one issued last counts. Keys stay what they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gossamer.bounded import read_file
from gossamer.deployment.founding import layout as papers
from gossamer.deployment.founding.broker_layout import has_tls
from gossamer.deployment.founding.federation_spec import with_parties
from gossamer.deployment.founding.founding import VALID, Founded, issued_files
from gossamer.deployment.founding.invitations import Invitation, invite, parse_signed, read_signed
from gossamer.deployment.founding.roster import check_known, check_names, roster
from gossamer.errors import CallerError, SpecError
from gossamer.experiment.prepare import servers
from gossamer.experiment.reading import read_text
from gossamer.keys.identity import Identity, PublicKey
from gossamer.keys.private_files import read_private
from gossamer.runtimes.mqtt.certificates import Authority

_MOMENT = timedelta(seconds=1)  # times in invitations have whole seconds


def draft_again(
    folder: str | Path,
    parties: Mapping[str, int],
    *,
    keys: Mapping[str, PublicKey] | None = None,
    valid: timedelta = VALID,
    organiser: Identity | None = None,
) -> Founded:
    """New invitations and certificates for all, and for ``parties`` that join; nothing is written.

    Parameters
    ----------
    folder : path
        Where the federation was founded.
    parties : mapping of str to int
        Who joins, and how many training examples each has declared; nobody, to renew what would expire.
    keys : mapping of str to PublicKey, optional
        Of those of them that have made their own identities.
    valid : timedelta, optional
        For how long invitations and certificates are good, from now.
    organiser : Identity, optional
        Who founded the federation, if the key is not in the folder.

    Raises
    ------
    CallerError
        If the folder is not one of a federation, or a name or a number does not fit.
    """
    folder, keys = Path(folder), {} if keys is None else keys
    if folder.is_dir():
        papers.check_own(folder)
    signer = organiser or _signer(folder)
    before = _record(folder, signer)
    check_known("keys", keys, parties)
    spec = _spec(before, parties)
    made = {name: Identity.generate() for name in parties if name not in keys}
    known = {member.name: member.key for member in before.members}
    members = roster(
        read_text(spec),
        {**_examples(before), **parties},
        {**known, **keys, **{name: identity.public_key for name, identity in made.items()}},
    )
    issued = max(datetime.now(UTC), before.issued + _MOMENT)
    invitations = invite(signer, before.broker, members, spec, issued + valid, issued, before.run, before.wheel)
    authority = kept_authority(folder) if has_tls(before.broker) else None
    certificate = folder / papers.BROKER_CERTIFICATE
    files = {
        **{f"{name}/{papers.IDENTITY}": identity.pem for name, identity in made.items()},
        **issued_files(invitations, authority, read_file(certificate) if certificate.exists() else None),
    }
    return Founded(parse_signed(files[papers.RECORD]), tuple(made), files)


def _signer(folder: Path) -> Identity:
    key = folder / papers.ORGANISER_KEY
    if not key.exists():
        raise CallerError(
            f"{folder}: there is no {papers.ORGANISER_KEY}; name the folder that `federation new` made, and the "
            "organiser's key if it lies elsewhere"
        )
    return Identity.load(key)


def _record(folder: Path, signer: Identity) -> Invitation:
    return read_signed(folder / papers.RECORD, signer.public_key.fingerprint)


def _examples(invitation: Invitation) -> dict[str, int]:
    return {m.name: m.examples for m in invitation.members if m.examples is not None}


def _spec(before: Invitation, parties: Mapping[str, int]) -> str:
    """The run's spec, for as many parties as there are now."""
    if not parties:
        return before.spec
    members = {member.name for member in before.members}
    if known := sorted(members & set(parties)):
        raise SpecError(f"{known[0]} is in this federation already; name those who join")
    everybody = [*_examples(before), *parties]
    check_names(everybody, servers(read_text(before.spec)), papers.RESERVED)
    return with_parties(before.spec, len(everybody))


def kept_authority(folder: Path) -> Authority:
    """Authority whose certificate and key are in a folder.

    Raises
    ------
    CallerError
        If they cannot be read, or are none.
    """
    try:
        certificate = read_file(folder / papers.AUTHORITY_CERTIFICATE)
    except OSError as error:
        raise CallerError(
            f"{folder / papers.AUTHORITY_CERTIFICATE}: cannot read the authority's certificate: {error.strerror}"
        ) from None
    return Authority.load(certificate, read_private(folder / papers.AUTHORITY_KEY))
