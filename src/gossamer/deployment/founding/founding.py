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

from gossamer.deployment.founding import layout as papers
from gossamer.deployment.founding.broker_layout import check_secrecy, configuration, for_broker, has_tls
from gossamer.deployment.founding.federation_spec import federation_spec, start_of
from gossamer.deployment.founding.invitations import Invitation, invite, parse_signed
from gossamer.deployment.founding.roster import check_known, check_names, roster
from gossamer.experiment.prepare import servers
from gossamer.experiment.pretrained import pretrained_file
from gossamer.experiment.reading import read_text
from gossamer.experiment.spec import Experiment
from gossamer.keys.identity import Identity, PublicKey
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
        Of parties that have made their own identities; the others' are made here.
    valid : timedelta, optional
        For how long invitations and certificates are good.
    organiser : Identity, optional
        Who signs; by default a new one, kept in the folder.
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
        By name.
    authority : Authority or None
        Who signs certificates; None without TLS.
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
