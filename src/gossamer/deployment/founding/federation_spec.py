"""The spec that a federation agrees on, without what only the organiser's machine knows, and who takes part in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gossamer.algorithms.plan import PrivacySettings
from gossamer.algorithms.table import ALGORITHMS, KIND, registered_as
from gossamer.data.datasets import blank_dataset, declared, declared_form
from gossamer.data.settings import PrivateScale
from gossamer.errors import CallerError, SpecError, counted
from gossamer.experiment.preparation.objective import build_objective, pretrained_file
from gossamer.experiment.specs.spec import NOTHING_FROZEN, Experiment, PretrainedSettings, of_others, resolved
from gossamer.experiment.specs.spec_file import read_text, write_spec
from gossamer.keys.identity import PublicKey
from gossamer.keys.invitations import AGENT, Member

# Who takes part: parties with data, and the servers that the algorithm adds.


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
    return (*parties, *(Member(name, name.partition("-")[0], keys[name]) for name in cast.servers))


ROLES = frozenset(role for algorithm in ALGORITHMS.values() for role in algorithm.roles)
"""All that a party can be, in any run of Gossamer's own algorithms."""


def roles_of(modules: Collection[str]) -> frozenset[str]:
    """All that a party can be in runs of registered algorithms whose code is among the ``modules``; imports those."""
    allowed = [one for one in KIND.registered() if one.is_allowed(modules)]
    return frozenset(role for one in allowed for role in KIND.load(one).roles)


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


def federation_spec(text: str, parties: int, folder: Path | None = None) -> str:
    """The spec in ``text`` for so many parties with data, every default written out.

    So parties whose versions of Gossamer have other defaults agree on it. The paths of data sets are left out: each
    party says where its own lie. Of a model that all start from its hash is what they agree on; ``folder`` is where its
    path is taken from, by default the working directory.

    Raises
    ------
    SpecError
        If it is not a spec, is for another number of parties, leaves to the data what parties must know beforehand,
        or names files that other parties do not have.
    """
    experiment = _for_parties(text, parties)
    check_deployed(experiment)
    own = experiment if folder is None else resolved(experiment, folder)
    dataset = experiment.dataset.model_copy(update={"columns": own.dataset.complete().columns})
    # What the path says of the format is kept.
    dataset = declared(dataset).model_copy(update={"path": None, "test_path": None})
    declared_form(dataset)
    experiment = experiment.model_copy(update={"dataset": dataset})
    if (start := start_of(experiment, folder)) is not None:
        experiment = with_start(experiment, path=None, sha256=pretrained_file(start)[1].sha256)
    check_no_files(experiment)
    return write_spec(_with_frozen(experiment))


def _with_frozen(experiment: Experiment) -> Experiment:
    """The experiment with what its network holds and nobody trains, as a hash, where the code for it is here."""
    objective = experiment.objective
    if objective.module is None and objective.adapters is None:
        return experiment
    try:
        frozen = build_objective(experiment, blank_dataset(experiment.dataset)).frozen or NOTHING_FROZEN
    except CallerError:  # an organiser need not have the code that parties run
        return experiment
    return experiment.model_copy(update={"objective": objective.model_copy(update={"frozen": frozen})})


def start_of(experiment: Experiment, folder: Path | None = None) -> PretrainedSettings | None:
    """The file that a run starts from, its path taken from ``folder``."""
    return (experiment if folder is None else resolved(experiment, folder)).objective.pretrained


def with_start(experiment: Experiment, **changes: Any) -> Experiment:
    """The experiment with another place, or hash, of the file that it starts from, if there is one."""
    if (start := experiment.objective.pretrained) is None:
        return experiment
    objective = experiment.objective.model_copy(update={"pretrained": start.model_copy(update=changes)})
    return experiment.model_copy(update={"objective": objective})


def check_deployed(experiment: Experiment) -> None:
    """Raise SpecError if the spec wants what only a simulation has: draws that can be repeated, or a common clock."""
    for key, why in _of_simulations(experiment):
        raise SpecError(f"{key} is for simulations, and {why}; leave it out")


def _of_simulations(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Keys that deployed parties do not have, and why."""
    compute, evaluation = experiment.compute, experiment.evaluation
    if experiment.reproducible:
        yield "privacy.noise_secret: reproducible", "deployed parties draw noise that nobody can repeat"
    if experiment.faults.hostile is not None:
        yield "faults.hostile", "nobody tells deployed parties to lie"
    if experiment.privacy.shared_samples:
        yield "privacy.shared_samples", "deployed parties draw batches that nobody can repeat"
    if experiment.terms.told:
        why = f"deployed nodes of {experiment.algorithm.name} are not told how many updates others have made"
        yield "algorithm.learning_rate.clock: global", why
    if experiment.terms.paired:
        yield "algorithm.noise: pairwise", "deployed parties have no secrets to draw noise from that two share"
    together = {"rounding": "reproducible", "strategy": "vmap"}
    for key in (key for key, value in together.items() if getattr(compute, key) == value):
        yield f"compute.{key}: {together[key]}", "deployed parties compute each example for itself, which is exact"
    if compute.device is not None:
        why = "deployed parties draw their noise exactly, on a grid, and not in floating point"
        yield f"compute.device: {compute.device}", why
    if isinstance(experiment.dataset.scale, PrivateScale):
        declare = f"declare one for {_bare(experiment)} under dataset.columns"
        yield "dataset.scale: private", f"parties of a federation agree on ranges before they start: {declare}"
    if evaluation.release is not None and not experiment.private:
        why = "deployed parties tell nobody exactly how their test examples are scored"
        yield "evaluation.release: private without noise", why


def _bare(experiment: Experiment) -> str:
    """Names of the columns that nothing says the range of, as far as the spec has them."""
    columns = experiment.dataset.columns if isinstance(experiment.dataset.columns, dict) else {}
    bare = [name for name, column in columns.items() if column.is_number and not column.scaled]
    return ", ".join(bare) or "each number"


_LIVED = {"links": ("retry_after", "silence"), "faults": ()}
"""Sections on what happens to simulated nodes, with their keys that deployed parties go by as well."""


def left_out(experiment: Experiment) -> list[str]:
    """A line on the keys of a spec that are for simulations alone; none if it says none of them."""
    usual = Experiment(privacy=PrivacySettings(mechanism="none"))
    found = ["speeds"] if experiment.speeds != usual.speeds else []
    for section, others in _LIVED.items():
        here, default = getattr(experiment, section), getattr(usual, section)
        keys = [key for key in type(here).model_fields if key not in others]
        found += [f"{section}.{key}" for key in keys if getattr(here, key) != getattr(default, key)]
    found += ["compute.engine"] if experiment.compute.engine is not None else []
    found += ["stop.accuracy"] if experiment.stop.accuracy is not None else []
    if not found:
        return []
    are, them = ("are", "them") if found[1:] else ("is", "it")
    return [
        f"{', '.join(found)} {are} for simulations and left out: a federation's parties and networks are as they are, "
        f"and nobody tests its model before the end; only a plan that goes by the clock counts on {them}"
    ]


def own_code(experiment: Experiment) -> list[str]:
    """Code that the spec has run beside Gossamer's own, of its model, its algorithm and more; see `Terms.of`."""
    module, algorithm = experiment.objective.module, registered_as(experiment.algorithm.name)
    found = [*([] if module is None else [module]), *([] if algorithm is None else [algorithm.code])]
    return list(dict.fromkeys([*found, *(one.code for _, one in of_others(experiment))]))


def check_no_files(experiment: Experiment) -> None:
    """Raise SpecError if the spec names a file: what each party read there would be its own."""
    if here := sorted(_paths(experiment)):
        raise SpecError(f"{here[0]}: this file is on one machine, and other parties do not have it; leave it out")


def with_parties(text: str, parties: int) -> str:
    """The spec in ``text`` with another number of parties with data.

    Raises
    ------
    SpecError
        If its algorithm has a fixed number of parties, or not so many.
    """
    experiment = read_text(text)
    if not _counted(experiment):
        raise SpecError(
            f"{experiment.algorithm.name} has units of a fixed size, so nobody can join; found a new federation"
        )
    return write_spec(read_text(text, [f"algorithm.nodes={parties}"]))


def _for_parties(text: str, parties: int) -> Experiment:
    experiment = read_text(text)
    if _counted(experiment) and "nodes" not in experiment.algorithm.model_fields_set:
        return read_text(text, [f"algorithm.nodes={parties}"])
    if experiment.algorithm.nodes != parties:
        raise SpecError(
            f"the spec is for {counted(experiment.algorithm.nodes, 'node')} with data, and "
            f"{counted(parties, 'party is', 'parties are')} named; name as many, or correct the spec"
        )
    return experiment


def _counted(experiment: Experiment) -> bool:
    """Whether the spec says the number of nodes, and not only their units."""
    return "nodes" in type(experiment.algorithm).model_fields


def _paths(value: Any, key: str = "") -> Iterator[str]:
    """The keys of a spec that name files."""
    if isinstance(value, Path):
        yield key
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _paths(getattr(value, name), f"{key}.{name}" if key else name)
