"""What the paper's annotated pseudo-code claims, under generated delays, losses, duplicates and reordering.

Each run's trace is read by an observer that knows nothing of the nodes' code: it numbers the gradient computations as
the paper does (section B.1), and adds up updates itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sampling import examples

from gossamer.algorithms.context import Context
from gossamer.algorithms.increasing import box as increasing
from gossamer.algorithms.increasing.server import GlobalModel, RoundUpdate
from gossamer.algorithms.increasing.settings import WithinTau
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Query, Round
from gossamer.protocol.effects import Compute, Send, Update
from gossamer.protocol.events import Completed, Event, PeerDown, PeerUp, Received, Started
from gossamer.protocol.messages import Message
from gossamer.protocol.trace import TraceStep
from gossamer.randomness import stream
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import LinkSettings, World
from gossamer.testing.contracts import FixedAnswers
from gossamer.topology.kinds import Ring
from gossamer.topology.topologies import build_graph
from gossamer.vectors import Public, Released, spread

SIZE = 7
ROUNDS = 6
SLOPE = {"name": "power", "constant": 10.0, "factor": 0.4, "exponent": 1.0}
"""Sizes that grow as below keep to it, but not for rounds of two broadcasts: clients wait, also within a round."""
GROWING = {"name": "power", "a": 6, "c": 1, "b": 8}


def context(options: increasing.Settings, size: int = SIZE) -> Context:
    names = tuple(f"node-{number}" for number in range(options.nodes))
    return Context(
        seed=5,
        names=names,
        graph=build_graph(Ring(), len(names), stream(2), names),
        initial=Public(stream(1).standard_normal(SIZE) if size == SIZE else np.zeros(size)),
        queries=dict.fromkeys(names, Query(Poisson(0.5), NoNoise(), 1.0)),
        shard_sizes=dict.fromkeys(names, 1000),
        quotas=dict.fromkeys(names, ROUNDS),
    )


class Run:
    """A run in which anything that may happen next does, at random: messages overtake each other, come twice, and
    rounds get any number of steps further."""

    size = SIZE

    def __init__(self, options: increasing.Settings, seed: int, eager: float, duplicate: float) -> None:
        self.options, self.context = options, context(options, self.size)
        self.nodes = increasing.build(options, self.context)
        self.sizes = self.rounds = increasing.PublicRounds(options, self.context.shard_sizes, self.context.seed)
        self.steps: list[TraceStep] = []
        self.became: dict[tuple[str, int], Round] = {}
        self._draw, self._duplicate = np.random.default_rng(seed), duplicate
        self._post: list[tuple[str, str, Message]] = []
        self._running: dict[str, tuple[Round, int]] = {}
        for name in reversed(self.nodes):
            self._happen(name, Started())
        while True:
            self.happen_first()
            able = [name for name, (task, done) in self._running.items() if done < task.until]
            if self._post and not (able and self._draw.random() < eager):
                self._deliver()
            elif able:
                self._compute(able[self._draw.integers(len(able))])
            elif not self.wake():
                break
            assert len(self.steps) < 20_000, "the run does not end"
        waiting = {name for name, node in self.nodes.items() if not node.state.finished}
        assert not waiting, f"{waiting} wait for ever"

    @property
    def clients(self) -> tuple[str, ...]:
        return self.context.names

    def _happen(self, name: str, event: Event) -> None:
        effects = self.nodes[name].handle(event, float(len(self.steps)))
        self.steps.append(TraceStep(float(len(self.steps)), name, event, effects))
        for effect in effects:
            if isinstance(effect, Send):
                self._post.append((name, effect.to, effect.message))
            elif isinstance(effect, Compute):
                self._running[name] = effect.task, 0
            elif isinstance(effect, Update) and name in self._running:
                task, done = self._running[name]
                self._running[name] = task.swapped(done, effect.model, effect.until), done

    def _deliver(self) -> None:
        at = int(self._draw.integers(len(self._post)))
        again = self._draw.random() < self._duplicate
        sender, to, message = self._post[at] if again else self._post.pop(at)
        self._happen(to, Received(sender, message))

    def _compute(self, name: str) -> None:
        task, done = self._running[name]
        done += int(self._draw.integers(1, task.until - done + 1))
        self._running[name] = task, done
        if done == task.steps:
            del self._running[name]
            self.became[name, task.id] = task
            self._happen(name, Completed(task.id, self.answer(name, task), done))

    def answer(self, name: str, task: Round) -> Released:
        return Released(self._draw.standard_normal(task.answer_size))

    def happen_first(self) -> None:
        """What happens besides."""

    def wake(self) -> bool:
        """What happens when nothing else does; whether there was something."""
        return False

    def own_steps(self) -> dict[tuple[str, int], np.ndarray[Any, Any]]:
        """eta_i U of every client and round, on all coordinates."""
        sent = [(s.node, e.message) for s in self.steps for e in s.effects if isinstance(e, Send)]
        return {
            (name, message.round): spread(message.step, self.rounds.where(name, message.round), SIZE).values
            for name, message in sent
            if isinstance(message, RoundUpdate) and name in self.clients
        }

    def computed(self, name: str) -> list[tuple[int, Round]]:
        """(round number, round as it became) of a client, in order."""
        return list(enumerate(self.became[name, task] for task in sorted(t for n, t in self.became if n == name)))


def held(message: GlobalModel, most: int = ROUNDS) -> set[int]:
    return {
        j for j in range(most) if j < message.held or (j > message.held and message.ahead >> (j - message.held - 1) & 1)
    }


rules = st.sampled_from(
    [{"rule": "rounds", "d": 0}, {"rule": "rounds", "d": 1}, {"rule": "rounds", "d": 4}, {"rule": "tau", "tau": SLOPE}]
)
algorithms = st.builds(
    lambda delay, nodes, parts, counts, aggregators: increasing.Settings(
        nodes=nodes, sizes=GROWING, delay=delay, parts=parts, counts=counts, aggregators=aggregators
    ),
    rules,
    st.integers(2, 4),
    st.sampled_from([1, 3]),
    st.sampled_from(["rounded", "coins"]),
    st.sampled_from([(), (2,), (1, 2)]),
)
seeds, eager, duplicates = st.integers(0, 10**6), st.sampled_from([0.1, 0.5, 0.9]), st.sampled_from([0.0, 0.3])
runs = st.builds(Run, algorithms, seeds, eager, duplicates)


@settings(max_examples=examples(40), deadline=None)
@given(runs)
def test_a_broadcast_holds_exactly_what_it_says(run: Run) -> None:
    """v_k = v_0 less all updates of rounds below k, and of those ahead that the clients are told of (the invariant of
    the paper's server)."""
    steps = run.own_steps()
    for step in run.steps:
        told = {e.to: e.message for e in step.effects if isinstance(e, Send) and isinstance(e.message, GlobalModel)}
        if step.node != "server" or set(told) != set(run.nodes["server"].children):
            continue  # some have left: those are told nothing
        below = descendants(run)
        for message in told.values():
            included = {(name, j) for child, news in told.items() for name in below[child] for j in held(news)}
            assert included >= {(name, j) for name in run.clients for j in range(message.k)}
            expected = run.context.initial.values - sum((steps[key] for key in included), start=np.zeros(SIZE))
            np.testing.assert_allclose(message.model.values, expected, rtol=0, atol=1e-9)


def descendants(run: Run) -> dict[str, list[str]]:
    above = increasing.parents(run.options, run.clients)
    found: dict[str, list[str]] = {}
    for name in run.clients:
        child = name
        while above[child] != "server":
            child = above[child]
        found.setdefault(child, []).append(name)
    return found


@settings(max_examples=examples(40), deadline=None)
@given(runs)
def test_a_clients_model_is_the_newest_with_its_own_updates_once(run: Run) -> None:
    """Every model that a client computes at is v less exactly its own earlier updates that v lacks."""
    steps = run.own_steps()
    for name in run.clients:
        news: GlobalModel | None = None
        i, busy = 0, False
        for step in run.steps:
            if step.node != name:
                continue
            event = step.event
            if isinstance(event, Received) and isinstance(event.message, GlobalModel):
                newer = news is None or event.message.k > news.k
                news = event.message if newer else news
                swapped = any(isinstance(effect, Update) for effect in step.effects)
                assert swapped == (newer and busy), "a newer model is folded in at any moment"
            if isinstance(event, Completed) and any(isinstance(e, Send) for e in step.effects):
                i += 1
            busy = (not isinstance(event, Completed) and busy) or any(isinstance(e, Compute) for e in step.effects)
            models = [e.task.swaps[0].model for e in step.effects if isinstance(e, Compute)]
            models += [e.model for e in step.effects if isinstance(e, Update)]
            for model in models:
                v = run.context.initial.values if news is None else news.model.values
                lacking = [j for j in range(i) if news is None or j not in held(news)]
                expected = v - sum((steps[name, j] for j in lacking), start=np.zeros(SIZE))
                np.testing.assert_allclose(model.values, expected, rtol=0, atol=1e-9)


@settings(max_examples=examples(40), deadline=None)
@given(runs)
def test_nobody_waits_but_by_the_rule(run: Run) -> None:
    """Whenever a client is not computing, and has rounds left, the rule holds it back."""
    for name in run.clients:
        k = i = 0
        busy = False
        until = 0
        for step in run.steps:
            if step.node != name:
                continue
            event = step.event
            if isinstance(event, Received) and isinstance(event.message, GlobalModel):
                k = max(k, event.message.k)
            if isinstance(event, Completed):
                busy, i = False, i + 1
            for effect in step.effects:
                if isinstance(effect, Compute):
                    busy, until = True, effect.task.until
                    assert may_step(run, name, i, k, 0), "it computes although the rule holds it back"
                if isinstance(effect, Update):
                    until = effect.until
            if busy:
                assert all(may_step(run, name, i, k, h) for h in range(until))
                if until < run.sizes.of(name, i):
                    assert not may_step(run, name, i, k, until)
            elif i < ROUNDS and isinstance(event, (Started, Received, Completed)):
                assert run.nodes[name].state.finished or not may_step(run, name, i, k, 0)


def may_step(run: Run, name: str, i: int, k: int, h: int) -> bool:
    """The paper's wait loop, literally."""
    s = [run.sizes.total(j) for j in range(i + 1)]
    delay = run.options.delay
    left = run.sizes.of(name, i) - h
    if isinstance(delay, WithinTau):
        t_glob, t_delay = sum(s) - left - 1, sum(s[k:]) - left
        return bool(t_delay < delay.tau.at(t_glob))
    return i <= k + delay.d


@settings(max_examples=examples(30), deadline=None)
@given(seeds, eager, st.integers(2, 4), st.sampled_from(["rounded", "coins"]))
def test_the_sequence_is_consistent_with_tau(seed: int, eager: float, nodes: int, counts: Any) -> None:
    """Theorem 2.1: the model of computation t includes the updates numbered 0 to t - tau(t) - 1."""
    options = increasing.Settings(nodes=nodes, sizes=GROWING, counts=counts, delay={"rule": "tau", "tau": SLOPE})
    run = Run(options, seed, eager, duplicate=0.2)
    number = numbering(run)
    assert sorted(number.values()) == list(range(len(number)))
    tau = options.delay.tau.at
    for name in run.clients:
        for i, became in run.computed(name):
            for swap, following in zip(became.swaps, [*became.swaps[1:], None], strict=True):
                included = whole_rounds(run, name, i, swap.model)
                for h in range(swap.step, following.step if following else became.until):
                    t = number[name, i, h]
                    needed = t - tau(t)
                    missing = [
                        (c, j)
                        for (c, j, g), u in number.items()
                        if u < needed and (c, j) not in included and not (c == name and j == i and g < h)
                    ]
                    assert not missing


def whole_rounds(run: Run, name: str, i: int, model: Any) -> set[tuple[str, int]]:
    """The rounds whose updates a model is made of, found by trying: v of some broadcast, and one's own."""
    steps = run.own_steps()
    own = {(name, j) for j in range(i)}
    candidates = [
        {(c, j) for child, news in told.items() for c in descendants(run)[child] for j in held(news)}
        for told in broadcasts(run)
    ]
    for included in [set(), *candidates]:
        together = included | own
        expected = run.context.initial.values - sum((steps[key] for key in together), start=np.zeros(SIZE))
        if np.allclose(model.values, expected, rtol=0, atol=1e-9):
            return together
    raise AssertionError("a client computes at a model that is made of something else")


def broadcasts(run: Run) -> list[dict[str, GlobalModel]]:
    found = []
    for step in run.steps:
        if step.node == "server":
            told = {e.to: e.message for e in step.effects if isinstance(e, Send) and isinstance(e.message, GlobalModel)}
            if told:
                # Those who have left made all their rounds.
                everyone = dict.fromkeys(run.nodes["server"].children, GlobalModel(0, ROUNDS, 0, run.context.initial))
                found.append({**everyone, **told})
    return found


def numbering(run: Run) -> dict[tuple[str, int, int], int]:
    """rho of section B.1 where clients take turns within a round; any order within a round is one."""
    number: dict[tuple[str, int, int], int] = {}
    for i in range(ROUNDS):
        turns = sorted((h / run.sizes.of(c, i), c, h) for c in run.clients for h in range(run.sizes.of(c, i)))
        for place, (_, c, h) in enumerate(turns):
            number[c, i, h] = run.sizes.before(i) + place
    return number


class Marked(Run):
    """A run in which round i of client c moves a coordinate of its own, so that a model shows which updates it holds;
    children go away from their server or aggregator, and come back."""

    size = 4 * ROUNDS

    def answer(self, name: str, task: Round) -> Released:
        vector = np.zeros(self.size)
        vector[self.place(name, self.nodes[name].state.i)] = 1 / task.step_sizes.first
        return Released(vector)

    def place(self, name: str, i: int) -> int:
        return self.clients.index(name) * ROUNDS + i

    def happen_first(self) -> None:
        gatherers = [name for name in self.nodes if name not in self.clients]
        name = gatherers[self._draw.integers(len(gatherers))]
        child = str(self._draw.choice(list(self.nodes[name].children)))
        if self._draw.random() < 0.2:
            self._happen(name, PeerUp(child) if child in self.nodes[name].state.away else PeerDown(child, "silent"))

    def wake(self) -> bool:
        """Who is away comes back."""
        away = [(name, child) for name, node in self.nodes.items() for child in getattr(node.state, "away", ())]
        for name, child in away:
            self._happen(name, PeerUp(child))
        return bool(away)


@settings(max_examples=examples(60), deadline=None)
@given(
    seeds,
    eager,
    st.sampled_from([(), (2,), (1, 2)]),
    st.sampled_from([{"d": 1}, {"d": 4}, {"rule": "tau", "tau": SLOPE}]),
)
def test_own_updates_are_counted_once_whoever_is_away(seed: int, eager: float, aggregators: Any, delay: Any) -> None:
    options = increasing.Settings(nodes=4, sizes=GROWING, delay=delay, aggregators=aggregators)
    run = Marked(options, seed, eager, duplicate=0.2)
    made: dict[str, set[int]] = {name: set() for name in run.clients}
    for step in run.steps:
        if step.node not in run.clients:
            continue
        for effect in step.effects:
            if isinstance(effect, Send) and isinstance(effect.message, RoundUpdate):
                made[step.node].add(effect.message.round)
        models = [e.task.swaps[0].model for e in step.effects if isinstance(e, Compute)]
        models += [e.model for e in step.effects if isinstance(e, Update)]
        for model in models:
            times = np.round(-model.values, 9)
            assert set(times) <= {0.0, 1.0}
            own = [times[run.place(step.node, i)] for i in range(ROUNDS)]
            assert own == [float(i in made[step.node]) for i in range(ROUNDS)]
    for name, done in made.items():
        held = np.round(-run.nodes["server"].state.v.values, 9)
        assert [held[run.place(name, i)] for i in range(ROUNDS)] == [float(i in done) for i in range(ROUNDS)]


@pytest.mark.parametrize("aggregators", [(), (2,)])
def test_without_delays_nobody_waits(aggregators: Sequence[int]) -> None:
    """Equal clients and quick links: every client computes without a break, d = 1."""
    options = increasing.Settings(nodes=4, sizes=GROWING, aggregators=aggregators)
    sizes = increasing.PublicRounds(options, context(options).shard_sizes, 5)
    ends: dict[str, list[float]] = {}

    def watch(step: TraceStep) -> None:
        if isinstance(step.event, (Started, Completed)):
            ends.setdefault(step.node, []).append(step.now)

    world = World(SpeedSettings(stagger=0.0), LinkSettings(latency=1e-3), servers=increasing.servers(options))
    simulator = Simulator(increasing.build(options, context(options)), FixedAnswers(), world, watch=watch)
    while simulator.next_time is not None and not simulator.settled:
        simulator.step()
    for name in simulator.workers:
        np.testing.assert_allclose(np.diff(ends[name]), [sizes.of(name, i) for i in range(ROUNDS)], atol=1e-6)
