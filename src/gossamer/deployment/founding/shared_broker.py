"""One broker for several federations: an authority of its own, and certificates that name the run.

    BROKER/
      authority.key             signs the certificates of all who use this broker; its operator's alone
      authority.crt             by which others know what it signed
      federations/RUN.yaml      an invitation of each federation that is served, as its organiser signed it
      broker/                   for the broker's machine: mosquitto.conf, acl, ca.crt, broker.crt, broker.key
      parties/RUN/PARTY/        for one party: ca.crt and tls.crt, in place of those that its federation came with

A broker shows one certificate to everybody, and parties trust the authority of their own federation alone, so one port
for several federations takes an authority that they share. Its certificates name the run beside the party, and the
broker goes by both: nearly every federation has a party ``server``. No secret of an organiser is needed, since an
invitation has the public keys of all members, and no invitation changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from gossamer.deployment.founding import layout as papers
from gossamer.deployment.founding.founding import kept_authority
from gossamer.deployment.founding.invitations import Invitation, content_of, parse_signed
from gossamer.deployment.founding.layout import has_tls, host_and_port, is_loopback
from gossamer.errors import CallerError, SpecError
from gossamer.keys.errors import InvitationError
from gossamer.runtimes.mqtt.broker import ServerTls, access_list, mosquitto_config
from gossamer.runtimes.mqtt.certificates import Authority, user_name

FEDERATIONS = "federations"
PARTIES = "parties"
_FEWEST = 64  # members that a broker has room for, since other federations come later

_NOTE = """\
# For Mosquitto 2.0 or later, which several federations share. Start it from anywhere:
#     mosquitto -c {place}/mosquitto.conf
# Paths are absolute: where these files move, change them here. Started by root it becomes the user mosquitto.
# The user that it runs as must own these files and reach their folder; nobody else may read broker.key and acl.
# When acl has changed, reload it (SIGHUP, or systemctl reload mosquitto): connections go on.
# Mosquitto lets every client with a certificate subscribe to everything, and holds back on delivery what acl forbids.
"""


@dataclass(frozen=True)
class Served:
    """A federation that a broker serves.

    Attributes
    ----------
    invitation : Invitation
        Any of those that its organiser signed.
    record : bytes
        The same as it was written.
    """

    invitation: Invitation
    record: bytes = field(repr=False)


@dataclass(frozen=True)
class SharedBroker:
    """A shared broker's papers.

    Attributes
    ----------
    federations : tuple of Invitation
        All that are served.
    issued : tuple of Invitation
        Those whose parties get certificates now.
    files : mapping of str to bytes
        Everything that is written, by its place in the folder.
    """

    federations: tuple[Invitation, ...]
    issued: tuple[Invitation, ...]
    files: papers.Files = field(repr=False)

    def write(self, folder: Path) -> None:
        """Write everything; keys must be new there, and all else is replaced."""
        papers.write(folder, self.files)


def papers_of(run: str) -> str:
    """Folder of the certificates of a run's parties, in the broker's folder."""
    return f"{PARTIES}/{run}"


def share(folders: Iterable[Path], out: Path, place: Path | None = None) -> SharedBroker:
    """Papers of a new shared broker; nothing is written.

    Parameters
    ----------
    folders : iterable of path
        Folders of federations, as ``federation new`` made them, or invitations of theirs.
    out : path
        A new folder.
    place : path, optional
        The folder of the broker's files on its machine; by default ``broker`` in ``out``.

    Raises
    ------
    CallerError
        If a folder is no federation's, or they cannot share one broker.
    """
    papers.check_empty(out, "a new broker, or give this one to --join")
    new = _read_all(folders)
    if not new:
        raise CallerError("expected the folder of a federation, found none; name those that the broker is to serve")
    url = _one_broker(new.values())
    authority = Authority("gossamer broker")
    host, port = host_and_port(urlsplit(url))
    broker = authority.server("broker", [host])
    files = {
        papers.AUTHORITY_KEY: authority.key,
        papers.AUTHORITY_CERTIFICATE: authority.certificate,
        papers.BROKER_KEY: broker.key,
        papers.BROKER_CERTIFICATE: broker.certificate,
        f"{papers.BROKER}/ca.crt": authority.certificate,
        f"{papers.BROKER}/mosquitto.conf": _configuration(host, port, _place(place or out / papers.BROKER), new),
        **_issued(new, authority),
        **_access(new),
    }
    invitations = tuple(served.invitation for served in new.values())
    return SharedBroker(invitations, invitations, files)


def join(folders: Iterable[Path], folder: Path) -> SharedBroker:
    """Papers of federations that come to a shared broker, or have new invitations; nothing is written.

    Others keep what they have. A federation whose file in ``federations`` was deleted is let in no more.

    Parameters
    ----------
    folders : iterable of path
        The same as of `share`.
    folder : path
        Folder of the broker, as `share` made it.

    Raises
    ------
    CallerError
        If the folder is no shared broker's, or as `share`.
    """
    authority, before, new = _authority(folder), _known(folder), _read_all(folders)
    for run in new.keys() & before.keys():
        _check_successor(before[run].invitation, new[run].invitation)
    served = {**before, **new}
    if not served:  # and an access list of nobody would let everybody in
        raise CallerError(f"{folder}: no federation is left in {FEDERATIONS}; stop the broker instead")
    _one_broker(served.values())
    files = {**_issued(new, authority), **_access(served)}
    return SharedBroker(
        tuple(one.invitation for one in served.values()), tuple(one.invitation for one in new.values()), files
    )


def _read_all(folders: Iterable[Path]) -> dict[str, Served]:
    """Federations by their runs."""
    found: dict[str, tuple[Path, Served]] = {}
    for folder in folders:
        served = _read(folder)
        run = served.invitation.run
        if run in found:
            raise CallerError(f"{folder}: run {run} is that of {found[run][0]} as well; name each federation once")
        found[run] = folder, served
    return {run: served for run, (_, served) in found.items()}


def _read(folder: Path) -> Served:
    record = folder / papers.RECORD if folder.is_dir() else folder
    if folder.is_dir() and not record.exists():
        raise CallerError(
            f"{folder}: no federation, for it has no {papers.RECORD}; name a folder that `federation new` made, or an "
            "invitation"
        )
    served = _signed(record)
    invitation = served.invitation
    if not has_tls(invitation.broker):
        raise CallerError(
            f"{folder}: {invitation.broker} has no TLS, without which a broker cannot tell federations apart; found "
            "the federation with mqtts://"
        )
    if invitation.expires <= datetime.now(UTC):
        raise CallerError(f"{folder}: it expired at {invitation.expires.isoformat()}; `federation renew` it first")
    return served


def _signed(path: Path) -> Served:
    content = content_of(path)
    try:
        return Served(parse_signed(content), content)
    except InvitationError as error:
        raise InvitationError(f"{path}: {error}") from None


def _known(folder: Path) -> dict[str, Served]:
    """Federations that a broker serves already, by their runs."""
    records = (_signed(path) for path in sorted((folder / FEDERATIONS).glob("*.yaml")))
    return {served.invitation.run: served for served in records}


def _authority(folder: Path) -> Authority:
    if not (folder / FEDERATIONS).is_dir():
        raise CallerError(f"{folder}: no shared broker; name a folder that `federation broker --out` made")
    try:
        return kept_authority(folder)
    except SpecError as error:
        raise SpecError(
            f"{folder}: {error}; restore {papers.AUTHORITY_CERTIFICATE} and {papers.AUTHORITY_KEY}"
        ) from None


def _check_successor(before: Invitation, after: Invitation) -> None:
    """Raise CallerError if an invitation is not by the organiser of the one that is known, or is older."""
    if after.organiser != before.organiser:
        raise CallerError(
            f"run {after.run}: expected its organiser {before.organiser.fingerprint}, found another one, "
            f"{after.organiser.fingerprint}; ask who sent it"
        )
    if after.issued < before.issued:
        raise CallerError(
            f"run {after.run}: this was issued {after.issued.isoformat()}, and the broker has what was issued "
            f"{before.issued.isoformat()}; give the latest"
        )


def _one_broker(served: Iterable[Served]) -> str:
    """The broker's URL, which all must agree on."""
    brokers = {one.invitation.broker: one.invitation.run for one in served}
    if len(brokers) > 1:
        (one, _), (other, run) = list(brokers.items())[:2]
        raise CallerError(
            f"run {run} goes to {other}, and others to {one}; a shared broker has one address, so found the "
            "federations with the same --broker"
        )
    return next(iter(brokers))


def _place(folder: Path) -> Path:
    place = folder.absolute()
    if not str(place).isprintable():
        raise CallerError(f"{str(place)!r}: expected a path that mosquitto.conf can hold, of printable letters")
    return place


def _configuration(host: str, port: int, place: Path, served: Mapping[str, Served]) -> bytes:
    tls = ServerTls(place / "ca.crt", place / "broker.crt", place / "broker.key", whole_subject=True)
    listen = host if is_loopback(host) else ""
    members = max(_FEWEST, sum(len(one.invitation.members) for one in served.values()))
    text = mosquitto_config(port, listen, tls, place / "acl", members=members)
    return (_NOTE.format(place=place) + text).encode()


def _issued(new: Mapping[str, Served], authority: Authority) -> dict[str, bytes]:
    """Certificates of the parties of federations, and the federations' records."""
    files: dict[str, bytes] = {}
    for run, served in new.items():
        for member in served.invitation.members:
            mine = f"{papers_of(run)}/{member.name}"
            files[f"{mine}/{papers.AUTHORITY}"] = authority.certificate
            files[f"{mine}/{papers.CERTIFICATE}"] = authority.client_of(
                member.name, member.key, served.invitation.expires, run
            )
        files[f"{FEDERATIONS}/{run}.yaml"] = served.record
    return files


def _access(served: Mapping[str, Served]) -> dict[str, bytes]:
    lists = (
        access_list(run, [member.name for member in one.invitation.members], partial(user_name, run=run))
        for run, one in sorted(served.items())
    )
    return {f"{papers.BROKER}/acl": "\n".join(lists).encode()}
