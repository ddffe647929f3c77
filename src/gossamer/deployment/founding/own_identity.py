"""A party's identity, made on its own machine, and the public halves that an organiser collects."""

from __future__ import annotations

import os
from pathlib import Path

from gossamer.bounded import read_file
from gossamer.deployment.founding import layout as papers
from gossamer.errors import CallerError
from gossamer.files import make_own_folder, replaced
from gossamer.keys.errors import IdentityError
from gossamer.keys.identity import Identity, PublicKey
from gossamer.keys.membership import check_name

_LARGEST = 1024  # a public key has 52 letters


def make_identity(name: str, folder: Path) -> tuple[Identity, Path]:
    """A new identity for the party ``name``, kept in ``folder``, and the file with its public key, for the organiser.

    Raises
    ------
    CallerError
        If the folder has an identity already, or cannot be written.
    """
    check_name(name)
    public = folder / f"{name}.pub"
    try:
        make_own_folder(folder)
    except OSError as error:
        raise CallerError(f"{folder}: cannot make this folder ({error.strerror}); choose another") from None
    identity = Identity.create(folder / papers.IDENTITY)
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
    files = sorted(folder.glob("*.pub"))
    if not files:
        raise CallerError(f"{folder}: expected public keys, NAME.pub, as `gossamer federation identity` makes them")
    return {file.stem: _read_key(file) for file in files}


def _read_key(path: Path) -> PublicKey:
    try:
        return PublicKey.parse(read_file(path, _LARGEST).decode("ascii").strip())
    except OSError as error:
        raise CallerError(f"{path}: cannot read the public key: {error.strerror}") from None
    except (UnicodeDecodeError, IdentityError):
        raise CallerError(
            f"{path}: expected a public key such as `gossamer federation identity` makes, found something else; "
            "a private key must never leave its machine"
        ) from None
