"""Founding a federation: keys, invitations and the broker's configuration, in one folder.

    founded = found("federation", spec=text, parties={"a": 341, "b": 210}, broker="mqtts://broker.example.org:8883")
    print(founded.organiser.fingerprint)      # to be told to every party by another way

What lies where is said in `papers`.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gossamer.bounded import read_file
from gossamer.deployment.founding import layout as papers
from gossamer.deployment.founding.federation_spec import federation_spec, start_of, with_parties
from gossamer.deployment.founding.invitations import Invitation, invite, parse_signed, read_signed
from gossamer.deployment.founding.layout import check_secrecy, configuration, for_broker, has_tls
from gossamer.deployment.founding.roster import check_known, check_names, roster
from gossamer.errors import CallerError, SpecError
from gossamer.experiment.preparation.objective import pretrained_file
from gossamer.experiment.preparation.prepare import servers
from gossamer.experiment.specs.reading import read_text
from gossamer.experiment.specs.spec import Experiment
from gossamer.keys.identity import Identity, PublicKey
from gossamer.keys.private_files import read_private
from gossamer.runtimes.mqtt.certificates import Authority

VALID = timedelta(days=90)
"""For how long invitations and certificates are good, unless something else is said."""


@dataclass(frozen=True)
class Founded:
    """A federation's papers.

    Attributes
    ----------
    invitation : Invitation
        One of those that were signed; all say the same, but for whom they are.
    made : tuple of str
        The parties whose private keys were made here, since they had sent no public key.
    files : mapping of str to bytes
        Everything that is written, by its place in the folder.
    """

    invitation: Invitation
    made: tuple[str, ...]
    files: papers.Files = field(repr=False)

    @property
    def organiser(self) -> PublicKey:
        """The key of who signed."""
        return self.invitation.organiser

    def write(self, folder: str | Path) -> None:
        """Write everything; keys must be new there, and all else is replaced."""
        papers.write(Path(folder), self.files)


def found(
    folder: str | Path,
    *,
    spec: str,
    parties: Mapping[str, int],
    broker: str,
    keys: Mapping[str, PublicKey] | None = None,
    valid: timedelta = VALID,
    organiser: Identity | None = None,
    insecure: bool = False,
) -> Founded:
    """Found a federation in a new folder: `draft`, and written.

    Raises
    ------
    CallerError
        As `draft`, and if the folder has something in it.
    """
    papers.check_empty(Path(folder))
    founded = draft(
        spec=spec, parties=parties, broker=broker, keys=keys, valid=valid, organiser=organiser, insecure=insecure
    )
    founded.write(folder)
    return founded


def draft(
    *,
    spec: str,
    parties: Mapping[str, int],
    broker: str,
    keys: Mapping[str, PublicKey] | None = None,
    valid: timedelta = VALID,
    organiser: Identity | None = None,
    insecure: bool = False,
    beside: Path | None = None,
    wheel: bytes | None = None,
) -> Founded:
    """The papers of a new federation; nothing is written.

    Parameters
    ----------
    spec : str
        The experiment, in YAML; see `federation_spec` for what becomes of it.
    parties : mapping of str to int
        The parties with data, in the order of the algorithm's nodes, and how many training examples each has declared.
    broker : str
        ``mqtts://host:port``, with TLS and client certificates. ``mqtt://`` has neither, and is for this machine.
    keys : mapping of str to PublicKey, optional
        Keys of parties that have made their own identities; the others' are made here.
    valid : timedelta, optional
        Time for which invitations and certificates are good.
    organiser : Identity, optional
        Party who signs; by default a new one, kept in the folder.
    insecure : bool, optional
        Whether ``mqtt://`` may name another machine.
    beside : Path, optional
        The folder that a path in the spec is taken from; by default the working directory.
    wheel : bytes, optional
        Content of the file that everybody is to install; its hash goes into the invitations.

    Raises
    ------
    CallerError
        If something does not fit together.
    """
    keys = {} if keys is None else keys
    text = federation_spec(spec, len(parties), beside)
    experiment = read_text(text)
    added = servers(experiment)
    check_names(parties, added, papers.RESERVED)
    check_known("keys", keys, [*parties, *added])
    made = {name: Identity.generate() for name in [*parties, *added] if name not in keys}
    members = roster(experiment, parties, {**keys, **{name: identity.public_key for name, identity in made.items()}})
    signer = organiser or Identity.generate()
    run, issued = secrets.token_hex(16), datetime.now(UTC)
    installed = None if wheel is None else hashlib.sha256(wheel).hexdigest()
    invitations = invite(signer, broker, members, text, issued + valid, issued, run, installed)
    record = next(iter(invitations.values()))
    invitation = parse_signed(record.encode())
    check_secrecy(broker, insecure)
    authority = Authority(f"gossamer {run}") if has_tls(broker) else None
    files = {
        **_start(spec, beside, experiment),
        **({papers.ORGANISER_KEY: signer.pem} if organiser is None else {}),
        **({} if authority is None else _kept(authority)),
        **{f"{name}/{papers.IDENTITY}": identity.pem for name, identity in made.items()},
        **configuration(broker, len(members)),
        **issued_files(invitations, authority),
    }
    return Founded(invitation, tuple(made), files)


def _start(spec: str, beside: Path | None, agreed: Experiment) -> dict[str, bytes]:
    """The model that all start from: the file of the organiser's spec, which has the hash in that of the parties."""
    start, known = start_of(read_text(spec), beside), agreed.objective.pretrained
    if start is None or known is None:
        return {}
    return {papers.START: pretrained_file(start.model_copy(update={"sha256": known.sha256}))[0]}


def _kept(authority: Authority) -> dict[str, bytes]:
    return {papers.AUTHORITY_KEY: authority.key, papers.AUTHORITY_CERTIFICATE: authority.certificate}


def issued_files(
    invitations: Mapping[str, str], authority: Authority | None, broker: bytes | None = None
) -> dict[str, bytes]:
    """Files that are written anew whenever invitations are: these, certificates, and the organiser's record of them.

    Parameters
    ----------
    invitations : mapping of str to str
        Invitations by name.
    authority : Authority or None
        Party who signs certificates; None without TLS.
    broker : bytes, optional
        Certificate of the broker, if it has one already.
    """
    record = next(iter(invitations.values())).encode()
    files: dict[str, bytes] = {}
    if authority is not None:
        invitation = parse_signed(record)
        files |= for_broker(invitation, authority, broker)
        for member in invitation.members:
            certificate = authority.client_of(member.name, member.key, invitation.expires)
            files[f"{member.name}/{papers.AUTHORITY}"] = authority.certificate
            files[f"{member.name}/{papers.CERTIFICATE}"] = certificate
    # A node that runs from this folder begins anew as soon as it sees another invitation, so that comes last.
    files |= {f"{name}/{papers.INVITATION}": text.encode() for name, text in invitations.items()}
    return {**files, papers.RECORD: record}


# Invitations to a run that is under way, issued again: for parties that join, or because the old ones expire.
#
# Everybody gets a new invitation to the same run; the one issued last counts. Keys stay what they were.

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
        Place where the federation was founded.
    parties : mapping of str to int
        Parties who join, and how many training examples each has declared; nobody, to renew what would expire.
    keys : mapping of str to PublicKey, optional
        Keys of those who have made their own identities.
    valid : timedelta, optional
        Time for which invitations and certificates are good, from now.
    organiser : Identity, optional
        Party who founded the federation, if the key is not in the folder.

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
