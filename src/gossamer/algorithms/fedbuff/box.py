"""FedBuff: buffered asynchronous aggregation of whole clients' updates, with noise of each client's or of the server.

Client c, for ever:                                     Server, with the model x and an empty buffer:

1. fetch the newest x, of version v                     1. take the next update u, of version v
2. w = x; Q times: w = w - eta_l grad f(w; batch)       2. put it into the buffer, times s(t - v)
3. u = w - x, clipped as a whole to C                   3. if the buffer has K updates:
4. u = u + noise                                               x = x + eta_g (sum of the buffer)/K
5. push (u, v), which fetches again                            empty the buffer, t = t + 1
                                                        4. answer with the newest x, of version t

(2 to 4 of a client happen at its data side, which shuffles the client's examples and takes them in turn; steps may have
momentum, and FedProx's term.) Nobody waits: a client that comes by gets what is there, and with noise of its own may be
in one buffer several times. The paper's u has the other sign. Clients are in `algorithms.clients`.

| symbol | here |
|---|---|
| K | `Settings.buffer` |
| Q, eta_l | `Settings.local_steps`, or those of `Settings.local_epochs`; `Settings.local_learning_rate` |
| eta_g | `Settings.learning_rate`; with `Settings.server_optimizer` line 3 takes its move in the place of the mean |
| s(tau) = (1 + tau)^-a | `Settings.staleness_exponent`, a = 1/2 as in the paper |
| C | ``privacy.clip`` |
| x, t | the server's `state.x`, `state.t` |

When the run ends, what is left in the buffer is applied as well, over K.

Every noised update is a Gaussian release of all that its client has (`gossamer.sides.plan`); its ledger covers
the updates of its quota.

**A trusted server.** Where the server adds the noise, clients leave out their line 4, and line 3 of the server is
x = x + eta_g (sum of the buffer + noise)/K, summed at its data side (`TrustedServer`). The noise hides one update of
length C, so the K updates are those of K clients: a second one of a client waits for the next buffer, while the client
goes on. Weights are at most 1, and so keep updates within C. What is left at the end is dropped. Who is in a buffer is
public: nothing is amplified, and each client is charged for the buffers that it is in.

**Masks.** Where clients mask, the server learns the sum of a buffer alone, and masks are bound to one model: so the K
clients of each step are drawn before the run, in turn (`draw_turns`), all are given the same x, and line 3 waits for
them. All weights are 1, and the sum is over K however many of them have vanished (`clients.masked`).

References
----------
J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek and D. Huba, "Federated learning with buffered
asynchronous aggregation", AISTATS 2022: Algorithm 1 (server), Algorithm 2 (client), section 5.1 for s. The paper's
privacy is a trusted server's, by `noise_by: server`; by default nobody is trusted with an update. `Settings.steady`:
S. Levin and R. May, "A note on difference-delay equations", Theoretical Population Biology 9, 1976.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, PositiveFloat

from gossamer.algorithms.clients import nodes as clients
from gossamer.algorithms.clients import parts, planning
from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Figures, SmallRuns
from gossamer.algorithms.optimizer import OneRate
from gossamer.algorithms.plan import Plan, Problem, Spec
from gossamer.algorithms.sample_planning import quotas_of
from gossamer.arrays import IntArray
from gossamer.errors import SpecError, counted
from gossamer.files import refusals
from gossamer.privacy.tasks import CuratedSum
from gossamer.protocol.effects import Compute
from gossamer.protocol.events import Completed
from gossamer.protocol.node import Effects, Node, RoundsMade, on
from gossamer.randomness import Stream
from gossamer.vectors import Confined, Model

STALENESS = 0.5
_MARGIN = 0.7
"""Share of the largest steady rate that the default takes."""


class Settings(ClientSettings):
    """Settings of `fedbuff`, beside those of clients.

    Attributes
    ----------
    buffer : int
        K, updates that the server waits for before it takes a step; of K clients where the server adds the noise,
        or clients mask.
    learning_rate : float
        Learning rate of the server, for the mean update. By default 1; where the server adds the noise and takes
        updates as they are, 0.7 of the largest with which updates as old as nodes/buffer makes them cannot swing, and
        at most 1.
    staleness_exponent : float, optional
        a >= 0: an update that is tau steps of the server old counts (1 + tau)^-a. With ``masking`` none is old. By
        default 0.5, as in the paper, and 0 where the server adds noise, which weights would not make smaller.
    timeout : float, optional
        Seconds, with ``masking``, after which each of the five steps of a sum goes on without those who have not
        answered. Without it all are waited for but those that are lost, as in `fedavg`.
    patience : float, optional
        Seconds, with ``masking`` and without ``timeout``, after which those that are waited for are asked whether they
        are there; 30 by default, then twice as long each time.
    """

    name: Literal["fedbuff"] = "fedbuff"
    buffer: int = Field(default=5, ge=1, le=1_000_000)
    learning_rate: OneRate = Field(default=1.0, gt=0, le=1e6)
    staleness_exponent: float | None = Field(default=None, ge=0, le=10)
    timeout: PositiveFloat | None = None
    patience: PositiveFloat | None = None

    def weight(self, stale: int) -> float:
        """s, at most 1, of an update that is so many steps old."""
        exponent = STALENESS if self.staleness_exponent is None else self.staleness_exponent
        return float((1 + stale) ** -exponent)

    def decided(self, private: bool) -> Self:
        """Fill in the defaults that depend on who adds noise, and on whether there is any."""
        found: dict[str, float] = {}
        if self.staleness_exponent is None:
            found["staleness_exponent"] = 0.0 if self.curated and private else STALENESS
        if self.curated and self.server_optimizer is None and "learning_rate" not in self.model_fields_set:
            found["learning_rate"] = min(1.0, float(f"{_MARGIN * self.steady:.2g}"))
        return self.model_copy(update=found) if found else self

    @property
    def taken(self) -> int:
        return min(self.buffer, self.nodes)

    @property
    def steady(self) -> float:
        """Largest rate, of updates that all count in full, with which a run is steady.

        Where all clients are as fast as each other an update is tau = nodes/K - 1 steps old, rounded up. Were local
        training to reach its optimum x*, the server's model would be x_t+1 = x_t - eta_g (x_t-tau - x*), which tends to
        x* if and only if eta_g < 2 cos(pi tau/(2 tau + 1)) (Levin and May). Training that goes less far allows more.
        """
        age = -(-self.nodes // self.buffer) - 1
        return round(2 * math.cos(math.pi * age / (2 * age + 1)), 12)

    def wrong(self) -> Iterator[str]:
        yield from super().wrong()
        masked = self.masking is not None
        rules = {
            "too few clients": self.buffer > self.nodes,
            "nobody is asked": self.patience is not None and self.timeout is not None,
            "no timeout": not masked and self.timeout is not None,
            "no patience": not masked and self.patience is not None,
            "none is old": masked and self.staleness_exponent not in (None, STALENESS),
        }
        yield from refusals(__file__, rules, s=self)
        if self.masking is not None:
            yield from self.masking.wrong(self.buffer)


# Cohorts in turn: drawn before the run by public coins, as even as can be, and nobody beyond its quota.
#
# Public coins hide nobody, so a client pays for each cohort that it is in, and the noise of all is planned for the one
# that is in most. So T cohorts of K clients are drawn such that this is as few as can be. With quotas q_1, ..., q_N
#
# - there are at most as many as the largest T with sum_i min(q_i, T) >= K T, since a client is in each of them once at
#   most;
# - somebody is in R or more, the smallest number with sum_i min(q_i, R) >= K T: fewer do not fill the cohorts.
#
# Each cohort takes those who have most left of l_i = min(q_i, R), and coins decide among equals. That comes to the end,
# and nobody is in more than R: with r cohorts to go, sum_i min(l_i, r) >= K r, at first because R <= T. So K clients or
# more have something left. Where K or more have l_i >= r they have r - 1 or more afterwards, so the sum with r - 1 is
# K (r - 1) at least. Where fewer have, all of them are taken, and of each that is taken min(l_i, r) falls by one to
# min(l_i - 1, r - 1), while the others have less than r, and so keep theirs: the sum falls by K.

MOST = 100_000
"""Cohorts of a run, which are all known before it."""


@dataclass(frozen=True)
class Turns:
    """Cohorts of a run.

    Attributes
    ----------
    names : tuple of str
        The clients.
    drawn : array
        Places of the drawn in ``names``, rising, [cohorts, clients of one].
    """

    names: tuple[str, ...]
    drawn: IntArray = field(repr=False)

    def __call__(self, round: int) -> tuple[str, ...]:
        """The clients of one cohort; nobody where there is none."""
        if not 0 <= round < len(self.drawn):
            return ()
        return tuple(self.names[place] for place in self.drawn[round].tolist())


def draw_turns(coins: Stream, quotas: Mapping[str, int], clients: int, most: int | None = None) -> Turns:
    """As many cohorts of so many ``clients`` as the ``quotas`` of these allow, ``most`` if they allow more.

    Raises
    ------
    SpecError
        If there are more than can be drawn before a run.
    """
    several = np.array(list(quotas.values()), np.int64)

    def places(level: int) -> int:
        return int(np.minimum(several, level).sum())

    # Once there are too few places there always are: they are concave in the level.
    most_sums = range(1, int(several.sum()) // clients + 1)
    count = bisect_left(most_sums, True, key=lambda sums: places(sums) < clients * sums)
    count = count if most is None else min(count, most)
    if count > MOST:
        raise SpecError(
            f"algorithm.masking: at most {MOST} masked sums are drawn before a run, found {count}; lower "
            "updates_per_node or stop, or raise buffer"
        )
    level = 1 + bisect_left(range(1, count + 1), clients * count, key=places)
    left = np.minimum(several, level)
    drawn = np.empty((count, clients), np.int64)
    for round in range(count):
        order = np.lexsort((coins.at(round).random(left.size), -left))
        drawn[round] = np.sort(order[:clients])
        left[drawn[round]] -= 1
    return Turns(tuple(quotas), drawn)


@dataclass(kw_only=True)
class BufferState(clients.ServerState):
    """State of the server.

    Attributes
    ----------
    total : Public or Released
        The weighted sum of the ``held`` updates in the buffer.
    voices : dict of str to Public or Released
        That sum for each client, where there is a robust rule; ``total`` is nothing until it is applied.
    """

    total: Model
    held: int = 0
    voices: dict[str, Model] = field(default_factory=dict)


class BufferServer(clients.AtOnceServer):
    """The server: the model, and a buffer of updates."""

    state: BufferState
    settings: Settings

    def __init__(self, context: Context, settings: Settings) -> None:
        self.empty: Model = 0.0 * context.initial
        super().__init__(BufferState(x=context.initial, total=self.empty), context, settings)

    def take(self, client: str, update: Any, stale: int) -> None:
        """Lines 2 and 3."""
        s, weighted, buffer = self.state, self.settings.weight(stale) * update, self.settings.buffer
        s.held, fewest = s.held + 1, 0
        if self.robust is None:
            s.total = (s.total + weighted).within()
        else:
            s.voices[client] = (s.voices.get(client, self.empty) + weighted).within()
            # More than half of those that could be in it: the quick are not alone, and nobody waits for the silent.
            fewest = max(self.robust.least, min(buffer, len(self.clients - s.left | s.voices.keys())) // 2 + 1)
        if s.held >= buffer and len(s.voices) >= fewest:
            self.apply()

    def apply(self) -> None:
        """Take a step with the mean of the buffer, over K however many are in it, and empty it."""
        s = self.state
        if s.voices and (found := self.aggregated(s.voices.values())) is not None:
            s.total = len(s.voices) * found
        self.move(s.total / self.settings.buffer)
        s.total, s.held, s.voices = self.empty, 0, {}

    def end(self, reason: str) -> Effects:
        """End the run, with what is left in the buffer."""
        if self.state.held and not self.state.finished:
            self.apply()
        yield from super().end(reason)


@dataclass(kw_only=True)
class SummingState(clients.ServerState):
    """State of a server that adds the noise.

    Attributes
    ----------
    held : list of (str, int, vector)
        Updates that are in no sum yet, in the order in which they came: client, version and the raw update.
    task : int
        Newest sum that the data side was asked for.
    summing : bool
        Whether it is under way.
    owed : dict of str to int
        Request of each client that came meanwhile.
    summed : int
        Updates that were put into sums.
    able : int or None
        Number of clients, where updates were too few for another sum, that had, or would have made, another update.
    """

    held: list[tuple[str, int, Confined]] = field(default_factory=list)
    task: int = 0
    summing: bool = False
    owed: dict[str, int] = field(default_factory=dict)
    summed: int = 0
    able: int | None = None


MOST_HELD = 1000
"""Updates of a client that wait for a sum, where neither a quota nor the number of sums says how many there may be."""


class TrustedServer(clients.ClientServer):
    """The server that adds the noise itself: whenever it has updates of K clients, its data side adds these up.

    The noise hides one update of length C, so a client is in a sum once: a second update of it stays here, for a later
    sum. Nobody waits for that, nor for anybody else: a client goes on at once from the newest model, which it is given
    a moment later where the data side is just computing that. Who is in a sum is public, so nothing is amplified.
    """

    state: SummingState
    settings: Settings

    def __init__(self, context: Context, settings: Settings) -> None:
        super().__init__(SummingState(x=context.initial), context, settings)
        self.buffer, self.quotas = settings.buffer, context.quotas
        self.query = clients.sum_query(context, settings.buffer)

    @property
    def rounds_made(self) -> RoundsMade | None:
        """Sums, of as many as there can be of all clients' updates."""
        most = [] if self.last is None else [self.last]
        most += [] if self.quotas is None else [sum(self.quotas.values()) // self.buffer]
        return RoundsMade(self.state.taken, 0, min(most)) if most else None

    def begin(self) -> Effects:
        """After an absence a sum that was under way is lost: it may be charged, and no update is to be in two sums."""
        self.state.summing = False
        yield from self.go_on()

    def came(self, sender: str, push: clients.Push, stale: int) -> Effects:
        """Keep an update until the data side is handed K."""
        s = self.state
        assert isinstance(push.update, Confined)
        if sum(client == sender for client, _, _ in s.held) < self.room(sender):
            s.held.append((sender, push.version, push.update))
        s.owed[sender] = push.request
        yield from self.go_on()

    def room(self, client: str) -> int:
        """Most updates of a client that may wait: no more than it makes, or than there will be sums."""
        quota = MOST_HELD if self.quotas is None else self.quotas[client]
        return quota if self.last is None else min(quota, self.last - self.state.taken)

    @on(clients.Leave, by="clients")
    def leaves(self, sender: str, leave: clients.Leave, now: float) -> Effects:
        self.state.left.add(sender)
        yield from self.go_on()

    def offer(self, client: str, request: int) -> Effects:
        """Give the newest model; while the data side computes it, once that is done."""
        if self.state.summing:
            self.state.owed[client] = request
        else:
            yield from super().offer(client, request)

    def go_on(self) -> Effects:
        """Ask for the next sum, or end a run that can have none, or answer those who wait; none of it during a sum."""
        s = self.state
        if s.finished or s.summing:
            return
        first: dict[str, tuple[int, Confined]] = {}
        for client, version, update in s.held:
            first.setdefault(client, (version, update))
        able = len(self.clients) - len(s.left - first.keys())
        if len(first) >= self.buffer:
            yield from self.ask(dict(islice(first.items(), self.buffer)))
        elif able < self.buffer:
            s.able = able
            yield from self.end("all clients left" if s.left >= self.clients else "too few clients left")
        else:
            owed, s.owed = s.owed, {}
            for client, request in owed.items():
                yield from self.answer(client, request)

    def ask(self, buffer: dict[str, tuple[int, Confined]]) -> Effects:
        """Hand a buffer to the data side: from here on it is in no other sum, whatever becomes of this one."""
        s, weighted, kept = self.state, [], []
        for client, (version, update) in buffer.items():
            stale = s.t - version
            s.note(stale)
            weighted.append((client, self.settings.weight(stale) * update))
        for one in s.held:
            if buffer.pop(one[0], None) is None:  # the first of each client in it goes
                kept.append(one)
        s.held, s.summed = kept, s.summed + len(weighted)
        s.task, s.summing = s.task + 1, True
        yield Compute(CuratedSum(s.task, s.x, tuple(weighted), self.query))

    @on(Completed)
    def step(self, done: Completed, now: float) -> Effects:
        """Take a step with the sum."""
        s = self.state
        if done.id != s.task or not s.summing or s.finished:
            return
        s.summing, s.taken = False, s.taken + 1
        self.move(done.released.within())
        if s.taken == self.last:
            yield from self.end("updates")
        yield from self.go_on()

    def end(self, reason: str) -> Effects:
        """End the run, without what is left: the noise for K updates would drown fewer of them, at the same price."""
        self.state.held, self.state.owed = [], {}
        yield from super().end(reason)


def left_over(server: Node) -> list[str]:
    """Reason for fewer sums than clients' quotas are enough for, where too few of them were left for another."""
    state = server.state
    if not isinstance(server, TrustedServer) or server.quotas is None or not state.able:
        return []
    enough = sum(server.quotas.values()) // server.buffer
    if state.taken >= enough:
        return []
    return [
        f"{server.settings.name}: with noise_by: server each client is in a sum once, and {state.taken} sums were made "
        f"of the {enough} that all updates are enough for: only {counted(state.able, 'client')} had updates left, and "
        f"a sum takes {server.buffer}; a smaller buffer leaves fewer"
    ]


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The clients by name, and the server."""
    if settings.masking is not None:
        rounds = masked_rounds(settings, context, context.quotas, context.updates)
        return parts.masked_nodes(settings, context, rounds)
    server = TrustedServer if settings.curated else BufferServer
    return {**parts.clients(settings, context), clients.SERVER: server(context, settings)}


def masked_rounds(
    settings: Settings, of: Context | Problem[Settings], quotas: Mapping[str, int] | None, updates: int | None
) -> planning.MaskedRounds:
    """The buffers of clients that mask: ``updates`` of them, or as many as the clients' ``quotas`` allow."""
    if quotas is None:  # a client may be in each; there is neither where nodes are built to be looked at alone
        quotas = dict.fromkeys(of.names, updates or 1)
    turns = draw_turns(Stream(of.seed, settings.name, "cohorts"), quotas, settings.buffer, updates)
    waiting = clients.Waiting(settings.timeout, settings.patience, skips=False, asks=settings.timeout is None)
    return planning.MaskedRounds(turns, settings.buffer, len(turns.drawn), waiting, settings.buffer)


def check(settings: Settings, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each."""
    yield from planning.check(settings, spec)
    stop = spec.ending
    if settings.masking is not None and not (settings.updates_per_node or stop.epochs or stop.updates):
        yield (
            "algorithm.masking: who masks with whom is drawn before the run, which needs a number of sums; give "
            "updates_per_node, stop.epochs or stop.updates"
        )


def plan(problem: Problem[Settings]) -> Plan:
    """The plan of clients that go on until their quota, or the end of the run."""
    settings = problem.settings
    if settings.masking is not None:
        rounds = masked_rounds(settings, problem, quotas_of(problem), problem.spec.ending.updates)
        return planning.plan_masked(problem, rounds)
    if settings.curated:
        return planning.plan_clients(problem, planning.participation_in_sums(problem, settings.buffer))
    return planning.plan_clients(problem, planning.participation_by_quota(problem))


def advice(settings: Settings, context: Context, updates: int) -> list[str]:
    """Warnings about a run; also of a trusted server whose steps swing, or whose weights shrink sums and no noise."""
    found = parts.advice(settings, context, updates)
    if not settings.curated:
        return found
    rate, exponent = settings.learning_rate, settings.staleness_exponent
    if not exponent and settings.server_optimizer is None and rate >= settings.steady:
        found.append(
            f"fedbuff: learning_rate {rate:g} may swing wider and wider, since updates of {settings.nodes} clients are "
            f"old when {settings.buffer} of them make a step; below {settings.steady:.2g} it cannot, and without "
            "learning_rate it is chosen so"
        )
    if exponent and any(query.mechanism.private for query in context.queries.values()):
        found.append(
            f"fedbuff: with noise_by: server, staleness_exponent {exponent:g} makes sums smaller and leaves their "
            "noise as it is; 0 hides as much, and was more accurate where the two were compared"
        )
    return found


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Steps of the server, and how stale updates were; or how many sums of masked ones there were too few for."""
    server = nodes[clients.SERVER]
    state = server.state
    if masked := parts.sums_counted(server):
        return {"steps": state.taken, "updates_taken": state.summed, **masked}
    trusted = isinstance(server, TrustedServer)
    updates, left = (state.summed, {"clients_left_over": state.able or 0}) if trusted else (state.taken, {})
    return {"steps": state.t, "updates_taken": updates, **left, **state.staleness(updates)}


def small_runs(settings: Settings) -> SmallRuns:
    """Runs for simulated faults: where clients mask, of all of them in a buffer, and of some."""
    fitting = parts.fitting(settings)
    if settings.masking is not None:
        masked = (
            {"nodes": 4, "updates_per_node": 2, "buffer": 4},
            {"nodes": 5, "updates_per_node": 2, "buffer": 3, "stop": {"updates": 2}},
        )
        return parts.masked_runs(settings, fitting, masked)
    sizes = (
        {"nodes": 3, "updates_per_node": 3, "buffer": 2},
        {"nodes": 5, "updates_per_node": 2, "buffer": 3},
        {"nodes": 4, "updates_per_node": 3, "buffer": 2, "stop": {"updates": 5}},
    )
    return SmallRuns(sizes, fitting=fitting).of_more(settings.aggregation, "nodes", "buffer")


# That the server's model is the sum of its buffers is tested against a reference.
ALGORITHM = parts.algorithm(
    Settings,
    build,
    check=check,
    plan=plan,
    figures=Figures(
        count=parts.count,
        staleness=parts.staleness,
        report=report,
        remarks=lambda nodes: [*parts.remarks(nodes), *left_over(nodes[clients.SERVER])],
        advice=advice,
    ),
    grows=True,
    decided=Settings.decided,
    small_runs=small_runs,
)
