"""Files in the folder of a federation, and how they are written.

    DIR/
      organiser.key         signs the invitations                       } the organiser's, and nobody else's
      authority.key         signs the certificates                      }
      authority.crt         by which others know what it signed; each of them has a copy as ca.crt
      federation.yaml       one of the invitations, from which `add` and `renew` go on
      start.safetensors     the model that all start from, if there is one: a copy goes to each party
      broker/               for the broker's machine: mosquitto.conf, acl, ca.crt, broker.crt, broker.key
      <party>/              for one party: invitation.yaml, ca.crt, tls.crt, and identity.key if it was made here

A party's certificate is for its identity, so ``identity.key`` is the key that goes with ``tls.crt``.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from gossamer.errors import CallerError
from gossamer.files import make_own_folder, replaced
from gossamer.keys.private_files import write_private

ORGANISER_KEY = "organiser.key"
AUTHORITY_KEY = "authority.key"
AUTHORITY_CERTIFICATE = "authority.crt"
RECORD = "federation.yaml"
START = "start.safetensors"
BROKER = "broker"
BROKER_KEY, BROKER_CERTIFICATE = f"{BROKER}/broker.key", f"{BROKER}/broker.crt"
RESERVED = (ORGANISER_KEY, AUTHORITY_KEY, AUTHORITY_CERTIFICATE, RECORD, START, BROKER)
"""Names in the folder that no party can have."""

INVITATION = "invitation.yaml"
IDENTITY = "identity.key"
AUTHORITY = "ca.crt"
CERTIFICATE = "tls.crt"

_FOR_ITS_READER_ALONE = ("acl",)  # a Mosquitto warns of access lists that others may read

Files = Mapping[str, bytes]
"""What to write, by its place in the folder."""


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


def write(folder: Path, files: Files) -> None:
    """Write ``files``, each at once or not at all; keys are new, for their owner alone, and are written first."""
    make_own_folder(folder)
    for place in sorted(files, key=lambda place: (not _is_key(place), place == RECORD)):
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
