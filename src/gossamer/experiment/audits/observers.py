"""The linear system of a run, found by running its nodes without data, with the coefficients of noisy gradients."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from gossamer.algorithms.persons import spread
from gossamer.algorithms.plan import Plan
from gossamer.arrays import FloatArray
from gossamer.errors import SpecError, failing_as
from gossamer.experiment.preparation.ending import Observer, drive
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.results.summary import all_finite
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon
from gossamer.privacy.guarantees import OTHER_NODES, Guarantee
from gossamer.privacy.observers.sensitivity import EVERY, Mu, Participation
from gossamer.privacy.observers.system import Book, Combination, LinearSystem, NotLinear, Seen, members_of, vectors_in
from gossamer.protocol.effects import Compute, Send
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Completed, Received
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node
from gossamer.protocol.trace import TraceStep, read_steps
from gossamer.runtimes.simulator import Simulator
from gossamer.sides.linear import LinearSides
from gossamer.threads import available_cores, in_order, one_blas_thread
from gossamer.vectors import Confined, Public

MOST = 2 * 2**30
"""Bytes of coefficients that are kept at a time, about."""
Traces = Mapping[str, Path]


def linear_system(
    prepared: Prepared, plan: Plan, receivers: Container[str] | None = None, traces: Traces | None = None
) -> LinearSystem:
    """Return what a run's messages are of its noisy gradients.

    Parameters
    ----------
    prepared, plan
        Run, as it was prepared and planned.
    receivers : container of str, optional
        Nodes whose messages are kept, since all of them may take much memory; by default those of all.
    traces : mapping of str to Path, optional
        Trace of each node, of a run that was deployed; by default it is the one that a simulation has.

    Raises
    ------
    NotLinear
        If they are not linear in them, or traces do not tell.
    """
    if spread(prepared.experiment, prepared.holdings):
        raise NotLinear(
            "observers are told apart where all examples of a person are at one node, found some at several"
        )
    if not prepared.experiment.terms.linear:
        raise NotLinear("expected averages that are linear, found algorithm.aggregation or algorithm.compression")
    if prepared.experiment.faults.hostile is not None:
        raise NotLinear("expected nodes that send what they have, found faults.hostile")
    context = prepared.context(plan.mechanisms, plan.quotas, blank=True, lengths=plan.lengths)
    shared = len(prepared.graph.edges) if prepared.experiment.terms.paired else 0
    # Where noise and gradients are apart, there are no blocks.
    book = Book(2**62 if prepared.cast.trust else len(context.names) + shared)
    start = Combination(context.initial.size, context.initial.values.dtype, np.zeros(0), book)
    nodes = prepared.algorithm.build(prepared.experiment.algorithm, replace(context, initial=Public(start)))
    spec = prepared.experiment
    sides = LinearSides(plan, spec.privacy.relation, prepared.objective.l2, spec.rows_per_person, book)
    seen: list[Seen] = []

    def watch(step: TraceStep) -> None:
        event = step.event
        if isinstance(event, Received) and (receivers is None or step.node in receivers):
            for vector in vectors_in(event.message):
                if isinstance(vector, Public) and not isinstance(vector.values, Combination):
                    continue  # what follows from no data
                seen.append(Seen(event.sender, step.node, _row(vector), isinstance(vector, Confined), len(book.blocks)))

    if traces is not None:
        _replay(nodes, sides, traces, watch)
    else:
        with closing(Simulator(nodes, sides, prepared.world, watch=watch, count=prepared.count)) as simulator:
            drive(simulator, plan.stop, Observer())
    models = {name: prepared.algorithm.model_of(node) for name, node in nodes.items()}
    final = {name: _row(model) for name, model in models.items()}
    sums = max(model.values.sums for model in models.values())
    return LinearSystem(book.draws, seen, final, book.blocks, sums)


def _replay(nodes: Mapping[str, Node], sides: LinearSides, traces: Traces, watch: Callable[[TraceStep], None]) -> None:
    """Have nodes see what their traces say, with the messages and answers that there are here in the place of those.

    All that is sent is taken to arrive: what a node refuses is not in its trace.

    Raises
    ------
    NotLinear
        If they do something else, or are sent what nobody sends here, as after steps that a trace has not.
    """
    sent: defaultdict[tuple[str, str], deque[tuple[bytes, Message]]] = defaultdict(deque)
    asked: dict[tuple[str, int], Any] = {}

    def happens(step: TraceStep) -> bool:
        name, event = step.node, step.event
        lacks = NotLinear(f"expected the trace of {name} to have all that the node saw, found steps missing")
        if isinstance(event, Received):
            under_way, wanted = sent[event.sender, name], encode(event.message)
            while under_way and under_way[0][0] != wanted:  # which the receiver refused
                under_way.popleft()
            if not under_way:
                return False
            event = replace(event, message=under_way.popleft()[1])
        elif isinstance(event, Completed):
            if (task := asked.pop((name, event.id), None)) is None:
                raise lacks
            answer: Any = sides.compute([sides.admit(name, task)])[0].released
            event = replace(event, released=answer)
        effects = nodes[name].handle(event, step.now)
        if [*map(type, effects)] != [*map(type, step.effects)]:
            raise lacks
        for effect, told in zip(effects, step.effects, strict=True):
            if isinstance(effect, Send) and isinstance(told, Send):
                sent[name, effect.to].append((encode(told.message), effect.message))
                watch(TraceStep(step.now, effect.to, Received(name, effect.message), []))
            elif isinstance(effect, Compute):
                asked[name, effect.task.id] = effect.task
        return True

    with ExitStack() as stack:
        left = {name: read_steps(stack.enter_context(path.open("rb"))) for name, path in traces.items()}
        due = {name: next(steps, None) for name, steps in left.items()}
        while waiting := {name: step for name, step in due.items() if step is not None}:
            if not (gone := [name for name, step in waiting.items() if happens(step)]):
                raise NotLinear(f"expected what {', '.join(waiting)} received in a trace of its sender, found none")
            due |= {name: next(left[name], None) for name in gone}


def _row(vector: Any) -> FloatArray:
    if not isinstance(vector.values, Combination):
        raise NotLinear(f"expected messages of noisy gradients alone, found {vector!r}")
    return vector.values.row


@dataclass(frozen=True)
class NetworkPrivacy:
    """Knowledge of observers about parties, if all gradients are fixed.

    Attributes
    ----------
    found : mapping of str to mapping of str to Mu
        Gaussian differential privacy of each party, by observer.
    hops : mapping of str to mapping of str to int
        Edges between each party and the nearest node of an observer, by observer; empty for observers without nodes.
    delta : float
        Delta at which epsilons are told.
    guarantee : Guarantee
        Guarantee against everyone, nodes included, which assumes nothing of gradients.
    """

    found: Mapping[str, Mapping[str, Mu]]
    hops: Mapping[str, Mapping[str, int]]
    delta: float
    guarantee: Guarantee

    @classmethod
    def of(
        cls,
        prepared: Prepared,
        observers: Sequence[str] = (),
        participation: Participation = EVERY,
        loose: float = 1e-3,
        traces: Traces | None = None,
    ) -> NetworkPrivacy:
        """Account for what observers of a run learn.

        Parameters
        ----------
        prepared : Prepared
            Run, as it was prepared.
        observers : sequence of str
            Observers, as `LinearSystem.against` has them; by default each node.
        participation : Participation
            Draws that one change may be in.
        loose : float
            Share of mu^2 that need not be searched for.
        traces : mapping of str to Path, optional
            Trace of each node, of a run that was deployed.

        Raises
        ------
        SpecError
            If an observer is not in the run, or the run is not linear in its noisy gradients.
        """
        plan = plan_run(prepared)
        nodes = (*prepared.cast.workers, *prepared.cast.servers)
        wanted = list(observers) or [f"node:{name}" for name in nodes]
        members = {one: members_of(one, nodes) for one in wanted}
        rows = plan.updates or 1
        each = max(1, MOST // (48 * rows))  # it hears two vectors an update, written in three of each node
        found: dict[str, Mapping[str, Mu]] = {}
        for first in range(0, len(wanted), each):
            some = wanted[first : first + each]
            near: frozenset[str] = frozenset().union(*(members[one] for one in some))
            parts = {part for one in some for part in one.split("+")} - {"final"}  # final models are kept anyway
            everywhere = any(not members_of(part, nodes) for part in parts)
            with failing_as(SpecError, "", "; the guarantee against everyone stands", NotLinear):
                system = linear_system(prepared, plan, None if everywhere else near, traces)
            against = partial(system.against, participation=participation, loose=loose)
            with one_blas_thread():
                for one, all_of_it in zip(some, in_order(against, some, available_cores()), strict=True):
                    found[one] = {name: all_of_it[name] for name in nodes if name in all_of_it.keys() - members[one]}
        # Nodes may know draws of noise that whom the first guarantee is about does not.
        told = next((one for one in plan.guarantees.values() if one.observer == OTHER_NODES), plan.guarantee)
        return cls(found, _hops(prepared, nodes, members), prepared.experiment.delta, told)

    def epsilon(self, mu: float) -> float:
        """Return the epsilon of a mu."""
        return gaussian_epsilon(mu, self.delta) if mu < math.inf else math.inf

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a record of each pair of observer and party."""
        for observer, of in self.found.items():
            for party, mu in of.items():
                near = {"hops": hops[party]} if party in (hops := self.hops.get(observer, {})) else {}
                yield {"observer": observer, "party": party, **near, "mu": mu.most, "epsilon": self.epsilon(mu.most)}

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "assumption": "gradients_fixed",
            "delta": self.delta,
            "guarantee": self.guarantee.as_dict(),
            "pairs": [all_finite(row) for row in self.rows()],
        }


def _hops(prepared: Prepared, nodes: Sequence[str], members: Mapping[str, Set[str]]) -> dict[str, dict[str, int]]:
    """Count links between each node and the nearest one of each observer that has some."""
    places = {name: place for place, name in enumerate(nodes)}
    links = np.array([(places[name], places[other]) for name in nodes for other in prepared.contacts(name)], np.int64)
    graph = coo_array((np.ones(len(links)), links.reshape(-1, 2).T), (len(nodes), len(nodes))).tocsr()
    away = shortest_path(graph, directed=False, unweighted=True)
    near = {one: away[[places[name] for name in names]].min(axis=0) for one, names in members.items() if names}
    return {one: {name: int(hops) for name, hops in zip(nodes, of) if hops < math.inf} for one, of in near.items()}
