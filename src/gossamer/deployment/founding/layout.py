"""Files in the folder of a federation, and how they are written.

    DIR/
      organiser.key         signs the invitations                       } the organiser's, and nobody else's
      authority.key         signs the certificates                      }
      authority.crt         by which others know what it signed; each of them has a copy as ca.crt
      federation.yaml       one of the invitations, from which `add` and `renew` go on
      orders                what the organiser has asked of all while the run goes on, if anything, signed
      start.safetensors     the model that all start from, if there is one: a copy goes to each party
      broker/               for the broker's machine: mosquitto.conf, acl, ca.crt, broker.crt, broker.key
      overview/             for whoever may see how all parties are: federation.yaml, ca.crt, tls.crt, identity.key
      <party>/              for one party: invitation.yaml, ca.crt, tls.crt, and identity.key if it was made here
      runs/NAME/            of a further run: federation.yaml, orders and start.safetensors
      <party>/runs/NAME/    the party's invitation.yaml, ca.crt and tls.crt for that; as well of overview/

A party's certificate is for its identity, so ``identity.key`` is the key that goes with ``tls.crt``.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath

from gossamer.errors import CallerError, SpecError, did_you_mean, failing_as
from gossamer.files import make_own_folder, read_file, replaced
from gossamer.keys.identity import Identity, PublicKey
from gossamer.keys.invitations import WATCHER, Invitation, check_name
from gossamer.keys.orders import FILE
from gossamer.keys.private_files import IdentityError, write_private
from gossamer.protocol.transports import kind_of
from gossamer.runtimes.mqtt.broker import AUTHORITY as AUTHORITY
from gossamer.runtimes.mqtt.broker import CERTIFICATE as CERTIFICATE
from gossamer.runtimes.mqtt.broker import Tls, host_and_port, mosquitto_config
from gossamer.runtimes.mqtt.broker import has_tls as has_tls
from gossamer.runtimes.mqtt.certificates import Authority

ORGANISER_KEY = "organiser.key"
AUTHORITY_KEY = "authority.key"
AUTHORITY_CERTIFICATE = "authority.crt"
RECORD = "federation.yaml"
START, ORDERS = "start.safetensors", FILE
BROKER, RUNS = "broker", "runs"
ACCESS = f"{BROKER}/acl"
BROKER_KEY, BROKER_CERTIFICATE = f"{BROKER}/broker.key", f"{BROKER}/broker.crt"
RESERVED = (ORGANISER_KEY, AUTHORITY_KEY, AUTHORITY_CERTIFICATE, RECORD, START, BROKER, RUNS, WATCHER, ORDERS)
"""Names in the folder that no party can have."""

INVITATION, TRACE = "invitation.yaml", "trace.bin"
IDENTITY = "identity.key"
WATCHER_KEY = f"{WATCHER}/{IDENTITY}"

_LARGEST_KEY = 1024  # a public key has 52 letters
_FOR_ITS_READER_ALONE = ("acl",)  # a Mosquitto warns of access lists that others may read

Files = Mapping[str, bytes]
"""What to write, by its place in the folder."""


def place_of(run: str | None) -> str:
    """Place of a further run's papers below those of the first one, the organiser's and each party's."""
    return "" if run is None else f"{RUNS}/{check_name(run, 'a run')}/"


def known_as(name: str, run: str | None) -> str:
    """Name by which the broker knows a party in a run, so that it may be in several at a time."""
    return name if run is None else f"{name}@{run}"


def check_empty(folder: Path, what: str = "a new federation") -> None:
    """Raise CallerError if ``folder`` exists and is not an empty folder."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise CallerError(f"{folder}: exists and is not an empty folder; choose another one for {what}")


def check_own(folder: Path) -> None:
    """Raise CallerError if one of the folders in a folder cannot be read and written, since another user has it."""
    for place in [folder, *(path for path in sorted(folder.iterdir()) if path.is_dir())]:
        if not os.access(place, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            mine = f"sudo chown -R {os.geteuid()} {shlex.quote(str(folder))}"
            raise CallerError(
                f"{place}: belongs to user {place.stat().st_uid}, and nothing was written; take the folder back "
                f"({mine}), and give its parts to their users again afterwards"
            )


def make_identity(name: str, folder: Path) -> tuple[Identity, Path]:
    """A new identity for the party ``name``, kept in ``folder``, and the file with its public key, for the organiser.

    Raises
    ------
    CallerError
        If the folder has an identity already, or cannot be written.
    """
    check_name(name)
    public = folder / f"{name}.pub"
    with failing_as(CallerError, f"{folder}: cannot make this folder (", "); choose another"):
        make_own_folder(folder)
    identity = Identity.create(folder / IDENTITY)
    with replaced(public, durable=True, opener=lambda beside, flags: os.open(beside, flags, 0o666)) as file:
        file.write(f"{identity.public_key}\n".encode("ascii"))
    return identity, public


def read_keys(folder: Path) -> dict[str, PublicKey]:
    """The public keys in the files ``NAME.pub`` of a folder, by name.

    Raises
    ------
    CallerError
        If there is no such folder, or nothing in it, or a file is no public key.
    """
    if not folder.is_dir():
        raise CallerError(f"{folder}: expected a folder with the parties' public keys, found none")
    if not (files := sorted(folder.glob("*.pub"))):
        raise CallerError(f"{folder}: expected public keys, NAME.pub, as `gossamer federation identity` makes them")
    return {file.stem: _read_key(file) for file in files}


def _read_key(path: Path) -> PublicKey:
    try:
        with failing_as(CallerError, f"{path}: cannot read the public key: "):
            return PublicKey.parse(read_file(path, _LARGEST_KEY).decode("ascii").strip())
    except (UnicodeDecodeError, IdentityError):
        raise CallerError(
            f"{path}: expected a public key such as `gossamer federation identity` makes, found something else; "
            "a private key must never leave its machine"
        ) from None


def check_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise SpecError if ``names`` has one that is none of the ``known``."""
    known = list(known)
    if unknown := sorted(set(names) - set(known)):
        raise SpecError(f"{what}: {unknown[0]} is not in this federation{did_you_mean(unknown[0], known)}")


def write(folder: Path, files: Files) -> None:
    """Write ``files``, each at once or not at all; keys are new, for their owner alone, and are written first."""
    make_own_folder(folder)
    for place in sorted(files, key=lambda place: (not _is_key(place), PurePosixPath(place).name == RECORD)):
        path = folder / place
        make_own_folder(path.parent)
        if _is_key(place):
            write_private(path, files[place])
        else:
            _replace(path, files[place], 0o600 if path.name in _FOR_ITS_READER_ALONE else 0o644)


def _is_key(place: str) -> bool:
    return PurePosixPath(place).suffix == ".key"


def _replace(path: Path, content: bytes, mode: int) -> None:
    with replaced(path, durable=True, opener=lambda beside, flags: os.open(beside, flags, mode)) as file:
        file.write(content)
        if os.geteuid() == 0:  # root writes for those to whom it has given the folders
            owner = path.parent.stat()
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)


# Files for the broker's operator: configuration, certificate, and the list of who may do what.

_NOTES = Path(__file__).with_name("mosquitto.txt").read_text("utf-8")
_NOTE, _NOTE_TLS, _NOTE_SHARED = (f"{note.strip()}\n" for note in _NOTES.split("\n\n"))
"""Comments at the beginning of ``mosquitto.conf``: of a federation's own broker, with TLS, and of a shared one."""

FEWEST, FEWEST_SHARED = 8, 64
"""Members that a broker has room for in any case; to a shared one other federations come later."""


def configuration(broker: str, members: int, place: Path | None = None) -> dict[str, bytes]:
    """``mosquitto.conf`` for the broker at a URL, and so many members or somewhat more; nothing for a store.

    A broker that federations share has its files in a ``place`` of their own, and goes by whole subjects.
    """
    if not is_served(broker):
        return {}
    shared, at = place is not None, place or Path()
    members = max(members, FEWEST_SHARED if shared else FEWEST)
    host, port = host_and_port(broker)
    tls = Tls(at / "ca.crt", at / "broker.crt", at / "broker.key", shared) if has_tls(broker) else None
    listen = host if is_loopback(host) else ""
    note = (_NOTE_SHARED.format(place=place) if shared else _NOTE) + (_NOTE_TLS if tls else "")
    text = note + mosquitto_config(port, listen, tls, None if tls is None else at / "acl", members=members)
    return {f"{BROKER}/mosquitto.conf": text.encode()}


def for_broker(url: str, authority: Authority, until: datetime, certificate: bytes | None = None) -> dict[str, bytes]:
    """A new certificate for the broker, and its key unless it has a certificate already."""
    if certificate is None:
        broker = authority.server("broker", [host_and_port(url)[0]], until)
        made = {BROKER_KEY: broker.key, BROKER_CERTIFICATE: broker.certificate}
    else:
        made = {BROKER_CERTIFICATE: authority.renewed(certificate, until)}
    return {**made, f"{BROKER}/ca.crt": authority.certificate}


def on_broker(invitation: Invitation, removed: Collection[str] = ()) -> list[str]:
    """Names of all that a broker lets in: parties, but for those that were ``removed``, and who watches them."""
    return [one.name for one in (*invitation.members, *invitation.watchers) if one.name not in removed]


def for_party(
    name: str, key: PublicKey, authority: Authority, until: datetime, place: str, run: str | None = None
) -> Files:
    """Certificates for one party, by their places in a folder ``place``; a shared broker's name the run too."""
    certificate = authority.client_of(name, key, until, run)
    return {f"{place}{AUTHORITY}": authority.certificate, f"{place}{CERTIFICATE}": certificate}


def is_served(broker: str) -> bool:
    """Whether somebody runs a broker at this URL, with papers for it; of a store that is nobody's concern here."""
    return kind_of(broker).poll == 0


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine, and cannot be reached from others."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_secrecy(broker: str, insecure: bool) -> None:
    """Raise SpecError if a broker on another machine is to be used without TLS, and nobody said so."""
    if is_served(broker) and not (has_tls(broker) or is_loopback(host_and_port(broker)[0]) or insecure):
        raise SpecError(
            f"{broker} is another machine and has no TLS, so anybody on the way may cut parties off and see who talks "
            "to whom; say mqtts://, or --insecure to do it all the same"
        )
