"""Roster of a run: the parties with data, the servers that its algorithm adds, and their keys."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from gossamer.algorithms.interface import registered
from gossamer.algorithms.table import ALGORITHMS
from gossamer.bounded import read_file
from gossamer.deployment.founding import layout as papers
from gossamer.errors import CallerError, SpecError, did_you_mean
from gossamer.experiment.specs.spec import Experiment
from gossamer.files import make_own_folder, replaced
from gossamer.keys.errors import IdentityError
from gossamer.keys.identity import Identity, PublicKey
from gossamer.keys.membership import AGENT, Member, check_name

# A party's identity, made on its own machine, and the public halves that an organiser collects.

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


def roster(experiment: Experiment, examples: Mapping[str, int], keys: Mapping[str, PublicKey]) -> tuple[Member, ...]:
    """The members of a run.

    Parameters
    ----------
    experiment : Experiment
        Experiment that they run.
    examples : mapping of str to int
        Number of training examples each party with data has declared; their order is that of the algorithm's nodes.
    keys : mapping of str to PublicKey
        Keys of all parties, servers too.

    Returns
    -------
    tuple of Member
        The parties with data, then the servers.

    Raises
    ------
    SpecError
        If the guarantee rests on nobody seeing whom a party talks to.
    """
    algorithm, names = ALGORITHMS[experiment.algorithm.name], tuple(examples)
    cast, role = algorithm.cast(experiment.algorithm, names), algorithm.roles[0]
    if cast.unseen:
        raise SpecError(
            f"algorithm.{cast.unseen} is for simulations: the broker, and whoever sees its traffic, see whom the "
            f"server talks to, and nobody may; leave {cast.unseen.partition(':')[0]} out, which takes more noise or "
            "fewer releases, or simulate it (gossamer run)"
        )
    units = cast.trust if role == AGENT else {}
    parties = [Member(name, role, keys[name], units.get(name), examples[name]) for name in names]
    return (*parties, *(Member(name, _role(name), keys[name]) for name in cast.servers))


def _role(server: str) -> str:
    return server.partition("-")[0]


ROLES = frozenset(role for algorithm in ALGORITHMS.values() for role in algorithm.roles)
"""All that a party can be, in any run of Gossamer's own algorithms."""


def roles_of(modules: Collection[str]) -> frozenset[str]:
    """All that a party can be in runs of registered algorithms whose code is among the ``modules``; imports those."""
    allowed = [one for one in registered() if one.is_allowed(modules)]
    return frozenset(role for one in allowed for role in one.load().roles)


def check_names(parties: Iterable[str], added: Iterable[str], reserved: Iterable[str]) -> None:
    """Raise SpecError unless each name is its own, beside the servers ``added`` and the files in ``reserved``.

    Names that differ by nothing but the case of letters are the same to some file systems, and for people.
    """
    parties = list(parties)
    taken = Counter(name.lower() for name in [*parties, *added, *reserved])
    for name in parties:
        if taken[name.lower()] > 1:
            what = "another party" if [*map(str.lower, parties)].count(name.lower()) > 1 else "a server or a file here"
            raise SpecError(f"{name} is the name of {what} as well; choose another one")


def check_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise SpecError if ``names`` has one that is none of the ``known``."""
    known = list(known)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SpecError(f"{what}: {unknown[0]} is not in this federation{did_you_mean(unknown[0], known)}")
