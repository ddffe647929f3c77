"""Who is in a run: the parties with data, and the servers that its algorithm adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import ModuleType

from gossamer.algorithms import ALGORITHMS
from gossamer.errors import SpecError, did_you_mean
from gossamer.experiment.prepare import servers
from gossamer.experiment.spec import Experiment
from gossamer.federation.identity import PublicKey
from gossamer.federation.membership import Member


def roster(experiment: Experiment, examples: Mapping[str, int], keys: Mapping[str, PublicKey]) -> tuple[Member, ...]:
    """The members of a run.

    Parameters
    ----------
    experiment : Experiment
        What they run.
    examples : mapping of str to int
        How many training examples each party with data has declared; their order is that of the algorithm's nodes.
    keys : mapping of str to PublicKey
        Of all parties, servers too.

    Returns
    -------
    tuple of Member
        The parties with data, then the servers.
    """
    role, names = _role_with_data(module := ALGORITHMS[experiment.algorithm.name]), tuple(examples)
    units = module.units(experiment.algorithm, names) if experiment.in_units else {}
    parties = [Member(name, role, keys[name], units.get(name), examples[name]) for name in names]
    return (*parties, *(Member(name, _role(name), keys[name]) for name in servers(experiment)))


def _role_with_data(module: ModuleType) -> str:
    return str(getattr(module, "ROLE", "worker"))


def _role(server: str) -> str:
    return server.partition("-")[0]


ROLES = frozenset({"server", "aggregator", *map(_role_with_data, ALGORITHMS.values())})
"""All that a party can be, in any run."""


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
