"""The linear system of a run, found by running its nodes without data, with the coefficients of noisy gradients."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count, takewhile
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from gossamer.algorithms.persons import spread
from gossamer.algorithms.plan import Plan
from gossamer.arrays import FloatArray, Floats, IndexArray
from gossamer.attacks.canaries import Canaries
from gossamer.data.examples import Split
from gossamer.errors import SpecError, failing_as
from gossamer.experiment.audits.inversion_audit import released_gradients
from gossamer.experiment.preparation.ending import Observer, drive
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.preparation.private_scale import beforehand
from gossamer.experiment.results.summary import all_finite
from gossamer.privacy.accounting.gaussian_dp import full_mu, gaussian_epsilon, release_mu
from gossamer.privacy.guarantees import EXAMPLE, OTHER_NODES, Guarantee
from gossamer.privacy.mechanisms import NoNoise, PairedGaussian
from gossamer.privacy.observers.sensitivity import EVERY, Draw, Mu, Participation
from gossamer.privacy.observers.system import Book, Combination, LinearSystem, NotLinear, Seen, members_of, vectors_in
from gossamer.processes import results
from gossamer.protocol.effects import Compute, Finish, Send
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Completed, Received
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node
from gossamer.protocol.trace import TraceStep, read_steps
from gossamer.runtimes.simulator import Simulator
from gossamer.sides.linear import LinearSides
from gossamer.sides.plan import Trust
from gossamer.threads import available_cores, one_blas_thread
from gossamer.vectors import Confined, Public

MOST = 2 * 2**30
"""Bytes of coefficients that are kept at a time, about."""
_FAINT = 1e-5
"""Part of the largest singular value up to which messages are rounded too much to tell anything."""
_DRAWS = 256
"""Draws of a block of time, about: fewer take little less, and to start a block takes long."""
Traces = Mapping[str, Path]
_epsilon = cache(gaussian_epsilon)  # many pairs have one mu


def linear_system(
    prepared: Prepared,
    plan: Plan,
    receivers: Container[str] | None = None,
    traces: Traces | None = None,
    started: bool = False,
    until: float = math.inf,
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
    started : bool
        Whether the model at the start is the first draw, there is one block of time, and what each node releases is
        kept as a message to itself, as who compares it with vectors of a run needs it.
    until : float
        Moment of `time.monotonic` until which there is time.

    Raises
    ------
    TimeoutError
        If it is over before the run is.
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
    round_of_all = len(context.names) + (len(prepared.graph.edges) if prepared.experiment.terms.paired else 0)
    # Where noise and gradients are apart, there are no blocks.
    book = Book(2**62 if prepared.cast.trust or started else round_of_all * math.ceil(_DRAWS / round_of_all))
    size, dtype = context.initial.size, context.initial.values.dtype
    start = Combination(size, dtype, np.zeros(0), book)
    start = book.drawn(size, dtype, 1.0, Draw("", 0.0)) if started else start
    nodes = prepared.algorithm.build(prepared.experiment.algorithm, replace(context, initial=Public(start)))
    spec = prepared.experiment
    before = 1 if prepared.scaled_privately else 0
    sides = LinearSides(plan, spec.privacy.relation, prepared.objective.l2, spec.rows_per_person, book, before)
    seen: list[Seen] = []
    updates = count()

    def watch(step: TraceStep) -> None:
        event = step.event
        # The first updates have time: what is not linear, and so is refused, mostly shows in them.
        if isinstance(event, Completed) and next(updates) >= len(context.names) and monotonic() > until:
            raise TimeoutError
        if isinstance(event, Received) and (receivers is None or step.node in receivers):
            for vector in vectors_in(event.message):
                if isinstance(vector, Public) and not isinstance(vector.values, Combination):
                    continue  # what follows from no data
                row, inside = _row(vector), isinstance(vector, Confined)
                seen.append(Seen(event.sender, step.node, row, inside, len(book.blocks), vector.values.entries))
        elif started and isinstance(event, Completed):
            seen.append(Seen(step.node, step.node, _row(event.released), inside=True, entries=(0, size)))

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
        If they do something else, or are sent what nobody sends here, as after steps that a trace has not; or if a
        trace ends before its node does, which may have sent more.
    """
    sent: defaultdict[tuple[str, str], deque[tuple[bytes, Message]]] = defaultdict(deque)
    asked: dict[tuple[str, int], Any] = {}
    ended: set[str] = set()

    def happens(name: str, step: TraceStep) -> bool:
        if step.node != name:
            raise NotLinear(f"expected steps of {name} in its trace, found those of {step.node}")
        event = step.event
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
            elif isinstance(effect, Finish):
                ended.add(name)
        return True

    with ExitStack() as stack:
        left = {name: read_steps(stack.enter_context(path.open("rb"))) for name, path in traces.items()}
        due = {name: next(steps, None) for name, steps in left.items()}
        while waiting := {name: step for name, step in due.items() if step is not None}:
            if not (gone := [name for name, step in waiting.items() if happens(name, step)]):
                raise NotLinear(f"expected what {', '.join(waiting)} received in a trace of its sender, found none")
            due |= {name: next(left[name], None) for name in gone}
        if cut := sorted(nodes.keys() - ended):
            raise NotLinear(f"expected traces until nodes end, found none of the end of {', '.join(cut)}")


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
    links : mapping of str to mapping of str to int
        Edges between each party and the nearest node of an observer, by observer; empty for observers without nodes.
    delta : float
        Delta at which epsilons are told.
    guarantee : Guarantee
        Guarantee against everyone, nodes included, which assumes nothing of gradients.
    participation : Participation
        Draws that one change is taken to be in.
    late : set of str
        Observers who were not answered in time, and are told to learn at most what `composed` says.
    """

    found: Mapping[str, Mapping[str, Mu]]
    links: Mapping[str, Mapping[str, int]]
    delta: float
    guarantee: Guarantee
    participation: Participation = EVERY
    late: Set[str] = frozenset()

    @classmethod
    def of(
        cls,
        prepared: Prepared,
        observers: Sequence[str] = (),
        participation: Participation = EVERY,
        loose: float = 1e-3,
        traces: Traces | None = None,
        within: float = math.inf,
        tell: Callable[[str], object] = str,
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
        within : float
            Seconds, once the run is planned, after which observers who are not answered get a looser bound.
        tell : callable
            Called with what is being done.

        Raises
        ------
        SpecError
            If an observer is not in the run, or the run is not linear in its noisy gradients.
        """
        plan, until = plan_run(prepared), monotonic() + within
        nodes = (*prepared.cast.workers, *prepared.cast.servers)
        # What finds a private scale has all examples and noise of its own, and everybody is told.
        before = beforehand(prepared) if prepared.scaled_privately else {}
        scaled = prepared.experiment.rows_per_person * full_mu(before, prepared.experiment.privacy.relation)
        least = dict.fromkeys(prepared.names, Mu(0.0, 0.0))  # of who makes no update
        wanted = list(observers) or [f"node:{name}" for name in nodes]
        members = {one: members_of(one, nodes) for one in wanted}
        for one in wanted:
            if members[one].issuperset(prepared.names):
                raise SpecError(f"{one}: it has all examples of the run itself; take an observer who lacks some")
        rows = plan.updates or 1
        # It hears two vectors an update, written in three of each node, or in the draws of a block.
        each = max(1, MOST // (16 * rows * max(3, _DRAWS // len(nodes))))
        told: dict[str, Mapping[str, Mu]] = {}
        # The first always, as what is not linear shows there.
        for first in takewhile(lambda at: not at or monotonic() < until, range(0, len(wanted), each)):
            some = wanted[first : first + each]
            near: frozenset[str] = frozenset().union(*(members[one] for one in some))
            parts = {part for one in some for part in one.split("+")} - {"final"}  # final models are kept anyway
            everywhere = any(not members_of(part, nodes) for part in parts)
            tell("finding what messages are of noisy gradients")
            with suppress(TimeoutError):
                with failing_as(SpecError, "", "; the guarantee against everyone stands", NotLinear):
                    system = linear_system(prepared, plan, None if everywhere else near, traces, until=until)
                for part in sorted(parts):
                    if part.startswith("link:") and not system.seen_by(part):
                        raise SpecError(f"{part}: no update goes over a link between them; take two neighbours")
                work = [partial(_answer, system, one, participation, loose) for one in some]
                for answer in results(
                    work, available_cores(), in_order=False, inherited=True, until=until, fewer="observers (--observer)"
                ):
                    told |= answer
                    tell(f"finding what observers learn, {len(told)} of {len(wanted)} are answered")
        found: dict[str, Mapping[str, Mu]] = {}
        for one in wanted:
            of = composed(prepared, plan, one, participation)
            if one in told:  # what is proved without a system is proved of whoever was answered, too
                of = {**least, **{name: Mu(mu.least, min(mu.most, of[name].most)) for name, mu in told[one].items()}}
            found[one] = {name: of[name].beside(scaled) for name in nodes if name in of.keys() - members[one]}
        links, late = _links(prepared, nodes, members), members.keys() - told.keys()
        return cls(found, links, prepared.experiment.delta, against_nodes(plan), participation, late)

    def epsilon(self, mu: float) -> float:
        """Return the epsilon of a mu."""
        return _epsilon(mu, self.delta) if mu < math.inf else math.inf

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a record of each pair of observer and party."""
        for observer, of in self.found.items():
            bound = "at most" if observer in self.late else "tight"
            for party, mu in of.items():
                near = {"links": links[party]} if party in (links := self.links.get(observer, {})) else {}
                known = {"mu": mu.most, "epsilon": self.epsilon(mu.most), "bound": bound}
                yield {"observer": observer, "party": party, **near, **known}

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "assumption": "gradients_fixed",
            "delta": self.delta,
            "draws": {"most": self.participation.most, "apart": self.participation.apart},
            "guarantee": self.guarantee.as_dict(),
            "pairs": [all_finite(row) for row in self.rows()],
        }


def _answer(system: LinearSystem, observer: str, draws: Participation, loose: float) -> dict[str, Mapping[str, Mu]]:
    with one_blas_thread():
        return {observer: system.against(observer, draws, loose)}


def composed(prepared: Prepared, plan: Plan, observer: str, participation: Participation) -> dict[str, Mu]:
    """Return bounds of mu of each party from the plan alone: of all its releases, against who knows all else.

    What is seen of a change D is |P D|, of a projection P, and no more than |D|, whatever an observer has. Where a
    server adds the noise, that is against who is sent nothing without it; others may learn anything.
    """
    spec, found = prepared.experiment, dict.fromkeys(prepared.names, math.inf)
    before = Counter(beforehand(prepared) if prepared.scaled_privately else {})
    for name, side in plan.sides.items():
        if (charges := side.charges()) is None:
            continue
        if charges.unit == EXAMPLE and charges.held:
            counts = Counter(charges.kinds) - before
            times = min(-(-counts.total() // participation.apart), participation.most or counts.total())
            law = plan.mechanisms[name]
            own = law.own if isinstance(law, PairedGaussian) else 1.0  # all else of it others may know
            each = max((release_mu(kind, spec.privacy.relation) for kind in counts), default=0.0)
            found[name] = each * math.sqrt(times) / own
        elif charges.owners:
            # Agents are sent what everybody may know where they are told the guarantee against all others.
            told = {*charges.owners} if plan.guarantees.get("own_agents") == plan.guarantee else set()
            raw = ({"final", *side.trusted.scope} - told) & {*re.split("[:,+]", observer)}
            found |= dict.fromkeys(charges.owners, math.inf if raw else side.revealed(Trust.SCOPE).entry.mu)
    return {name: Mu(0.0, spec.rows_per_person * mu) for name, mu in found.items()}


def against_nodes(plan: Plan) -> Guarantee:
    """Return the guarantee against all other nodes, who may know noise that whom the first is about does not."""
    return next((one for one in plan.guarantees.values() if one.observer == OTHER_NODES), plan.guarantee)


def _links(prepared: Prepared, nodes: Sequence[str], members: Mapping[str, Set[str]]) -> dict[str, dict[str, int]]:
    """Count links between each node and the nearest one of each observer that has some."""
    places = {name: place for place, name in enumerate(nodes)}
    links = np.array([(places[name], places[other]) for name in nodes for other in prepared.contacts(name)], np.int64)
    graph = coo_array((np.ones(len(links)), links.reshape(-1, 2).T), (len(nodes), len(nodes))).tocsr()
    away = shortest_path(graph, directed=False, unweighted=True)
    near = {one: away[[places[name] for name in names]].min(axis=0) for one, names in members.items() if names}
    return {one: {name: int(far) for name, far in zip(nodes, of) if far < math.inf} for one, of in near.items()}


@dataclass
class View:
    """View of an observer of a run with data, who scores canaries by what it makes of messages.

    Messages are V = R (G + Z), once what follows from the start is taken off, so who has them can tell as much of G + Z
    as its part in the rows of R. Of all that explain V the shortest, X = R^+ V, has that part and no other: it is what
    reconstruction through a network finds [1], and exact for each gradient that V decides. A change D of a party's
    gradients moves X by P D among noise of covariance P, P the projection on the rows, so <D, X> tells two worlds apart
    best.

    Attributes
    ----------
    prepared : Prepared
        The run, with the examples that slots have without their canaries.
    canaries : Canaries
        Canaries, of which it does not look at ``included``.
    blank : bool
        Whether slots without their canaries hold nothing.
    plan : Plan
        Plan of the run.
    observer : str
        Observer, as `LinearSystem.against` has them; without the models at the end.

    References
    ----------
    [1] El Mrini, Cyffers and Bellet, "Privacy attacks in decentralized learning", ICML 2024, arXiv 2402.10001.
    """

    prepared: Prepared
    canaries: Canaries
    blank: bool
    plan: Plan
    observer: str
    vectors: list[FloatArray] = field(default_factory=list)

    def __post_init__(self) -> None:
        if "final" in self.observer.split("+"):
            raise SpecError(f"audits are of observers of messages, found {self.observer}; leave out final")
        self.system = linear_system(self.prepared, self.plan, started=True)
        if any(one.entries != (0, self.prepared.initial.size) for one in self.system.seen):
            raise SpecError("audits by an observer are of whole vectors, found parts of some; leave it out")
        self.members = members_of(self.observer, self.system.final)
        if not self.system.seen_by(self.observer) or self.members.issuperset(self.prepared.names):
            raise SpecError(
                f"expected an observer that is sent something, and nodes with examples that it is not, found "
                f"{self.observer}; choose another"
            )

    @property
    def mu(self) -> float:
        """Most that the observer learns of any party, if all gradients are fixed."""
        found = NetworkPrivacy.of(self.prepared, [self.observer]).found[self.observer]
        return max(one.most for one in found.values())

    def __call__(self, step: TraceStep) -> None:
        """Record what a node hears, and what it releases."""
        event = step.event
        if isinstance(event, Received):
            self.vectors += (np.asarray(one.values) for one in vectors_in(event.message))
        elif isinstance(event, Completed):
            self.vectors.append(np.asarray(event.released.values))

    def gradients(self) -> FloatArray:
        """Return X [draws, size], in deviations of noise; of a run that `stop` ended early, from what there is."""
        seen = self.system.seen[: len(self.vectors)]
        found = {id(one.row): vector for one, vector in zip(seen, self.vectors, strict=True)}
        kept = [row for _, row in self.system.seen_by(self.observer) if id(row) in found]
        start = np.asarray(self.prepared.initial.values, np.float64)
        rows, values = np.zeros((len(kept), len(self.system.draws))), np.zeros((len(kept), start.size))
        for at, row in enumerate(kept):
            rows[at, : len(row)], values[at] = row, found[id(row)] - row[0] * start
        rows[:, 0] = 0.0
        return np.asarray(np.linalg.lstsq(rows, values, rcond=_FAINT)[0])

    @property
    def scores(self) -> Floats:
        """Log likelihood ratios of each canary being in against out, [canaries], by its gradient at the first model.

        Nothing is said of the observer's own nodes.
        """
        found = self.gradients()
        each = self._at_first(self.canaries.examples, np.arange(len(self.canaries)))
        each -= 0.0 if self.blank else self._at_first(self.prepared.dataset.train, self.canaries.rows)
        scores = np.zeros(len(each))
        for name, shard in zip(self.prepared.names, self.prepared.shards, strict=True):
            if (own := np.isin(self.canaries.rows, shard)).any() and name not in self.members:
                moved = np.array([draw.moved * (draw.owner == name) for draw in self.system.draws])
                scores[own] = each[own] @ (moved @ found)
                scores[own] -= np.median(scores[own])  # all of a node's examples have something in common
        return scores

    def _at_first(self, data: Split, rows: IndexArray) -> FloatArray:
        """Clipped gradients of examples at the first model, [rows, size]."""
        law, start = NoNoise(next(iter(self.plan.mechanisms.values())).clip), self.prepared.initial
        return released_gradients(self.prepared.objective, data, list(rows[:, None]), start, law, seed=0)
