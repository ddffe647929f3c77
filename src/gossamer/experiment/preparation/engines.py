"""Engines beside the simulator: a compiled loop for populations, and shards that compute; for which runs, and of what.

Whatever they cannot make, the simulator makes, and a line says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from gossamer.algorithms.context import Context
from gossamer.algorithms.plan import Plan
from gossamer.arrays import IndexArray
from gossamer.data.datasets import Dataset
from gossamer.data.settings import PrivateScale
from gossamer.errors import SpecError, counted, whole_number
from gossamer.experiment.preparation.objective import build_objective
from gossamer.experiment.preparation.prepare import RUN, Prepared, Sources
from gossamer.experiment.specs.spec import Experiment
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.clipping import FixedClip
from gossamer.randomness import PART
from gossamer.runtimes.ray_shards import Maker, Seeds
from gossamer.sides.client import Updates
from gossamer.sides.home import Simulated, numbers_in
from gossamer.sides.ledger import Receipt
from gossamer.sides.pool import Pool
from gossamer.sides.receipts import Book
from gossamer.sides.window import GradientWindow

LEAST = 5_000
"""Nodes from which on a run is made by the compiled loop, unless the spec says otherwise."""

_LINKS = tuple(f"links.{key}" for key in ("bandwidth", "exceptions", "jitter", "loss", "duplicate", "partitions"))
_KEYS: tuple[tuple[Callable[[Prepared], Any], str], ...] = (
    (lambda p: p.algorithm.population is None, "algorithm.name"),
    (lambda p: p.world.told, "algorithm.learning_rate.clock"),
    (lambda p: p.experiment.terms.paired, "algorithm.noise"),
    (lambda p: not isinstance(p.objective, LinearModel) or p.objective.size > PART, "objective.name"),
    (lambda p: p.objective.dtype != np.float32, "objective.dtype"),
    (lambda p: p.experiment.privacy.mechanism != "gaussian", "privacy.mechanism"),
    (lambda p: p.experiment.privacy.sampling != "poisson", "privacy.sampling"),
    (lambda p: not isinstance(p.clipping.policy, FixedClip), "privacy.clip"),
    # By the spec: what is prepared is scaled by now, and the release by which that was found has the first number.
    (lambda p: isinstance(p.experiment.dataset.scale, PrivateScale), "dataset.scale"),
    *((attrgetter(f"experiment.{key}"), key) for key in _LINKS),
    (lambda p: p.experiment.faults.away or p.experiment.faults.hostile, "faults"),
    (lambda p: p.experiment.speeds.name == "file", "speeds.name"),
    (lambda p: p.experiment.speeds.scenario.name == "random_slow", "speeds.scenario"),
    (lambda p: p.experiment.compute.device, "compute.device"),
)
"""Conditions under which the compiled loop does not make a run, and the key of the spec that says so."""


def key_against(prepared: Prepared, plan: Plan) -> str | None:
    """Return the key of a spec because of which the simulator makes a run; None if the compiled loop can make it."""
    if (key := next((key for found, key in _KEYS if found(prepared)), None)) is not None:
        return key
    assert prepared.algorithm.population is not None
    rates = len({*prepared.shard_sizes.values()}) * max(plan.releases.values())
    return prepared.algorithm.population().against(prepared.experiment.algorithm, rates)


def chosen(prepared: Prepared, plan: Plan, sources: Sources, watched: bool, sharded: bool = False) -> tuple[bool, str]:
    """Whether the compiled loop makes a run, and a line on that where somebody should know.

    Parameters
    ----------
    prepared, plan
        The run.
    sources : Sources
        Sources of its data sides.
    watched : bool
        Whether every event is written down.
    sharded : bool
        Whether nodes are dealt out to shards.
    """
    asked = prepared.experiment.compute.engine
    if asked == "simulator" or (asked is None and len(prepared.names) < LEAST):
        return False, ""
    if watched:
        why = "every event is traced"
    elif sharded:
        why = "its nodes are on shards"
    elif sources.purpose != RUN or sources.machine is not Sources.machine or prepared.blank is not None:
        why = "it is audited"
    elif (key := key_against(prepared, plan)) is not None:
        why = f"of {key}"
    else:
        return True, "engine: compiled, all nodes in one loop; compute.engine: simulator has every node in Python"
    return False, f"engine: simulator, because {why}, which the compiled loop does not take yet"


Record = Callable[[float, str, str, float], None]


def population_of(prepared: Prepared, plan: Plan, sources: Sources, record: Record, traced: Any = None) -> Any:
    """Make the population of a run that `chosen` allows.

    Parameters
    ----------
    prepared, plan, sources
        The run.
    record : callable
        The same as for a `simulator.Simulator`.
    traced : callable, optional
        The same as for a `population.Population`.
    """
    from gossamer.randomness import stream_keys
    from gossamer.runtimes.population import Population, PopulationSides  # a compiler's import takes long
    from gossamer.sides.window import GradientTerms

    assert prepared.algorithm.population is not None
    assert not sources.ledgers, "numbers of charges begin at 1 here, and each has its noise once"
    names, rules, objective = prepared.names, prepared.algorithm.population(), prepared.objective
    assert isinstance(objective, LinearModel)
    context = prepared.context(plan.mechanisms, plan.quotas)
    home = Simulated(sources.noise, sources.ledgers, sources.samples)
    queries = {id(query): query for query in context.queries.values()}
    place = {number: row for row, number in enumerate(queries)}
    terms = [GradientTerms.of(query) for query in queries.values()]
    known: dict[Any, Any] = {}
    charges = []
    for name in names:
        law = id(context.queries[name]), plan.releases[name]
        if law not in known:
            known[law] = plan.side(name).charges()
        charges.append(known[law])
    sides = PopulationSides(
        stream_keys(home.seed("", "sampling"), names, "sampling"),
        stream_keys(home.seed("", "noise"), names, "noise"),
        np.array(terms, np.float64),
        np.array([place[id(context.queries[name])] for name in names], np.int64),
        np.concatenate(([0], np.cumsum([len(shard) for shard in prepared.shards]))).astype(np.int64),
        np.concatenate(prepared.shards, dtype=np.int64),
        objective.compiled_data(prepared.dataset.train),
        charges,
    )
    most = max(plan.releases.values())
    begun, initial = rules.start(prepared.experiment.algorithm, context, most), context.initial.values
    found = Population(names, rules, begun, initial, sides, prepared.world, context.deadline, record, traced)
    if isinstance(book := sources.book, Book):
        book.late = partial(_note, book, found, context)
    return found


def _note(book: Book, population: Any, context: Context) -> None:
    """Note in a book of receipts what was charged since it was asked for."""
    from gossamer.privacy.tasks import Gradient

    for names, count in population.fresh():
        query = context.queries[names[0]]
        charge = Receipt(Gradient(1, context.initial, query).release, clip=query.mechanism.clip)
        book.add_alike(names, count, Gradient, charge)  # as `samples.SampleRule` charges a gradient


# Shards: which runs they compute for, and what each is made of.


def _bits_by_company(prepared: Prepared) -> bool:
    compute = prepared.experiment.compute
    return compute.rounding != "exact" and prepared.objective.computing().strategy not in ("linear", "compiled")


_ALONE: tuple[tuple[Callable[[Prepared], Any], str], ...] = (
    (lambda p: p.code, "its module was given from memory"),
    (lambda p: p.experiment.compute.device, "a device's gradients round by what is computed beside them"),
    (_bits_by_company, "its network's gradients round by what is computed beside them; compute.rounding: exact helps"),
)
"""Conditions under which a run is not one for shards, and what is said of each."""


def check_number(shards: int, nodes: int) -> None:
    """Raise SpecError unless what so many nodes compute can be dealt out to so many shards."""
    if not 1 <= (whole_number(shards) or 0) <= nodes:
        raise SpecError(
            f"expected from 1 to {nodes} shards for {counted(nodes, 'node')}, found {shards!r}; correct --shards"
        )


def reason_against(prepared: Prepared) -> str | None:
    """Return why a run is made in one process, in words; None if shards can compute for it."""
    return next((why for found, why in _ALONE if found(prepared)), None)


def maker_of(prepared: Prepared, sides: Pool) -> Maker:
    """Return what makes a shard of a run, each with an objective of its own: one may hold what cannot be pickled."""
    entered = () if sides.window is None else tuple(sides.window.entered)
    return partial(_shard, prepared.experiment, prepared.dataset, entered)


def _shard(
    experiment: Experiment, dataset: Dataset, entered: Sequence[tuple[str, IndexArray]], seeds: Seeds
) -> list[Any]:
    """Make what computes for the data sides of a run, as `open_pool` does; ``entered`` are those of a window."""
    noise, samples = seeds
    home, objective = Simulated(noise, samples=samples), build_objective(experiment, dataset)
    sums = home.sums(objective, dataset.train)
    if (window := GradientWindow.of(sums)) is None:
        return [sums, Updates(objective, dataset.train)]
    for name, rows in entered:
        window.enter(name, rows, numbers_in(home, name, "sampling"), numbers_in(home, name, "noise"))
    return [sums, Updates(objective, dataset.train), window]
