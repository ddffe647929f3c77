"""Populations: which runs one compiled loop makes, and what it is made of.

Whatever it cannot make, the simulator makes, and a line says because of which key of the spec.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gossamer.algorithms.context import Context
from gossamer.algorithms.plan import Plan
from gossamer.data.settings import PrivateScale
from gossamer.experiment.preparation.prepare import RUN, Prepared, Sources
from gossamer.experiment.specs.spec import Experiment
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.clipping import FixedClip
from gossamer.randomness import PART
from gossamer.sides.home import Simulated
from gossamer.sides.ledger import Receipt
from gossamer.sides.receipts import Book

LEAST = 5_000
"""Nodes from which on a run is made by the compiled loop, unless the spec says otherwise."""

_KEYS: tuple[tuple[Callable[[Prepared], Any], str], ...] = (
    (lambda p: p.algorithm.population is None, "algorithm.name"),
    (lambda p: p.world.told, "algorithm.learning_rate.clock"),
    (lambda p: not isinstance(p.objective, LinearModel) or p.objective.size > PART, "objective.name"),
    (lambda p: p.objective.dtype != np.float32, "objective.dtype"),
    (lambda p: p.experiment.privacy.mechanism != "gaussian", "privacy.mechanism"),
    (lambda p: p.experiment.privacy.sampling != "poisson", "privacy.sampling"),
    (lambda p: not isinstance(p.clipping.policy, FixedClip), "privacy.clip"),
    # By the spec: what is prepared is scaled by now, and the release by which that was found has the first number.
    (lambda p: isinstance(p.experiment.dataset.scale, PrivateScale), "dataset.scale"),
    (lambda p: p.experiment.links.bandwidth is not None, "links.bandwidth"),
    (lambda p: p.experiment.links.exceptions, "links.exceptions"),
    (lambda p: p.experiment.links.jitter, "links.jitter"),
    (lambda p: p.experiment.links.loss, "links.loss"),
    (lambda p: p.experiment.links.duplicate, "links.duplicate"),
    (lambda p: p.experiment.links.partitions, "links.partitions"),
    (lambda p: p.experiment.faults.away, "faults"),
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
        why: str | None = "every event is traced"
    elif sharded:
        why = "its nodes are on shards"
    elif sources.purpose != RUN or sources.machine is not Sources.machine or prepared.blank is not None:
        why = "it is audited"
    else:
        key = key_against(prepared, plan)
        why = None if key is None else f"of {key}{_said(prepared.experiment, key)}"
    if why is None:
        return True, "engine: compiled, all nodes in one loop; compute.engine: simulator has every node in Python"
    return False, f"engine: simulator, because {why}, which the compiled loop does not take yet"


def _said(experiment: Experiment, key: str) -> str:
    """Value of a spec under a key, after a colon; nothing where that is no name or number."""
    found: Any = experiment
    for part in key.split("."):
        found = getattr(found, part)
    found = getattr(found, "name", getattr(found, "policy", found))
    return f": {found}" if isinstance(found, str | float | int) else ""


Record = Callable[[float, str, str, float], None]


def population_of(
    prepared: Prepared,
    plan: Plan,
    sources: Sources,
    record: Record,
    traced: Any = None,
) -> Any:
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
