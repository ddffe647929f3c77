"""FedAvg: rounds of local training at a cohort of clients, with noise for whole clients by themselves or by the server.

Server, with the model x, in round t = 0, 1, ..., T - 1:      Client c, whenever it is given a model x:

1. draw a cohort S of the clients                             1. w = x; E epochs: w = w - eta_l grad f(w; batch)
2. give x to those in S                                       2. u = w - x, clipped as a whole to C
3. take their updates u                                       3. u = u + noise, unless the server adds it
4. g = (sum of the updates)/m  [+ noise/m]                    4. push u
5. x = x + eta_g g, or the server's optimizer's move for g

(A client's 1 to 3 happen at its data side, and so do 1 and 4 of a server that adds the noise.) Updates count alike,
however many examples are behind them: a weight by a private number of examples would tell it.

| symbol | here |
|---|---|
| T | `Settings.rounds` |
| m | `Settings.clients_per_round` |
| S | `Settings.cohorts`: m clients by public coins, or each with probability m/N by the server's own |
| E, eta_l | `Settings.local_epochs`, or ``local_steps``; ``local_learning_rate`` |
| eta_g | `Settings.learning_rate`, with `Settings.server_optimizer` |
| C | ``privacy.clip`` |
| x, t | the server's `state.x`, `state.t` |

Where clients add the noise themselves, line 4 divides by how many have answered, which all see; where the server adds
it, by m, which is public. Whoever answers after `Settings.timeout` is left out, and so is whoever is not among the
first m where more are asked (`Settings.over_selection`). Clients that wait for a round of theirs are asked in it; one
that was asked and came late is asked again when it is drawn again.

Clients are in `algorithms.clients`.

References
----------
B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Aguera y Arcas, "Communication-efficient learning of deep networks
from decentralized data", AISTATS 2017, Algorithm 1; B. McMahan, D. Ramage, K. Talwar and L. Zhang, "Learning
differentially private recurrent language models", ICLR 2018, Algorithm 1 (clients drawn by coins of their own, a whole
update clipped, a fixed denominator); S. Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2;
K. Bonawitz et al., "Towards federated learning at scale: system design", MLSys 2019, section 2.2 (more devices are
selected than a round needs).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat

from gossamer.algorithms.clients import parts, planning
from gossamer.algorithms.clients.nodes import SERVER, CohortServer, CohortState, Leave, Push, Waiting, sum_query
from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.context import Context, draw
from gossamer.algorithms.interface import Clips, Figures, SmallRuns
from gossamer.algorithms.plan import Plan, Problem, Spec
from gossamer.files import refusals
from gossamer.privacy.clipping import QuantileClip, bound_of
from gossamer.privacy.mechanisms import Poisson
from gossamer.privacy.tasks import Cohort, CuratedSum
from gossamer.protocol.effects import CancelTimer, Compute, Send
from gossamer.protocol.events import Answered, Completed
from gossamer.protocol.node import Effects, Node, RoundsMade, on
from gossamer.randomness import Stream
from gossamer.sides.plan import WHOLE
from gossamer.vectors import Blank, Confined, Released

Draw = Callable[[int], tuple[str, ...]]
"""Round -> the clients that are asked in it."""


class Settings(ClientSettings):
    """Settings of `fedavg`, beside those of clients.

    Attributes
    ----------
    rounds : int
        T.
    clients_per_round : int, optional
        m, how many clients are in a round, on average where they are drawn in secret; all by default.
    cohorts : {"public", "secret"}
        Draw of the clients of a round. ``public``: m of them, by coins that everybody knows, so that being drawn
        hides nobody. ``secret``: each with probability m/nodes, by coins of a trusted server, which makes each round
        reveal less of everybody.
    timeout : float, optional
        Seconds after which a round goes on without those who have not answered. Without it a round waits for all but
        those that are lost: asked after ``patience``, they were silent for as long as `links.silence` and their own
        earlier times say. With ``cohorts: secret`` it waits for these, too. With ``masking`` it runs for each of the
        five steps of a sum anew.
    patience : float, optional
        Seconds without ``timeout``, after which those that are waited for are asked whether they are there; 30 by
        default, then twice as long each time.
    late : {"awaited", "skipped"}, optional
        Whether, with ``timeout``, later rounds wait for a client that was late in one. ``awaited``, the default: each
        for the whole timeout. ``skipped``: not until it is heard of again and is asked in the round after that, as long
        as others answer, or with ``masking`` are enough for a sum.
    over_selection : float, optional
        Factor on m: as many clients are asked in a round, rounded up; it goes on with the first m that answer, and
        leaves out the others. Every client that is asked is accounted for. With ``public`` cohorts only.
    weights : {"equal", "declared"}, optional
        ``equal``, the default: all updates count alike. ``declared``: each by its client's number of examples, which is
        declared to be public by this.
    """

    name: Literal["fedavg"] = "fedavg"
    rounds: int = Field(default=20, ge=1, le=1_000_000)
    clients_per_round: int | None = Field(default=None, ge=1, le=1_000_000)
    cohorts: Literal["public", "secret"] = "public"
    timeout: PositiveFloat | None = None
    patience: PositiveFloat | None = None
    late: Literal["awaited", "skipped"] | None = None
    over_selection: Annotated[float | None, Field(ge=1, le=1000)] = None
    weights: Literal["equal", "declared", "examples"] | None = None

    @property
    def drawn(self) -> int:
        """m."""
        return self.nodes if self.clients_per_round is None else self.clients_per_round

    @property
    def taken(self) -> int:
        return self.drawn

    @property
    def asked(self) -> int:
        """Number of clients that are asked in a round, m of whom are waited for."""
        return math.ceil(round(self.drawn * (self.over_selection or 1), 6))  # 10 times 1.1 is 11, not a little more

    @property
    def secret(self) -> bool:
        """Whether the server draws the clients of a round in secret."""
        return self.cohorts == "secret" and self.drawn < self.nodes

    @property
    def waiting(self) -> Waiting:
        """Time that the server gives the clients of a round; how long a secret cohort takes is not to show."""
        asks = self.timeout is None and not self.secret
        return Waiting(self.timeout, self.patience, self.late == "skipped", asks)

    @property
    def unseen(self) -> str:
        return "cohorts: secret" if self.secret else ""

    @property
    def sampling(self) -> Poisson:
        """Sampling of the clients of a round, for accounting: secret coins alone hide anybody."""
        return Poisson(self.drawn / self.nodes) if self.secret else WHOLE

    def wrong(self) -> Iterator[str]:
        yield from super().wrong()
        masked, secret, over = self.masking is not None, self.cohorts == "secret", self.over_selection is not None
        rules = {
            "too few clients": self.drawn > self.nodes,
            "too few to select": self.drawn <= self.nodes < self.asked,
            "nobody is late": self.late is not None and self.timeout is None,
            "nobody is asked": self.patience is not None and (self.timeout is not None or secret),
            "masked in secret": masked and secret,
            "masked and cut off": masked and over,
            "masked with weights": masked and self.weights is not None,
            "secret to nobody": secret and not masked and not self.curated,
            "secret of all": secret and self.curated and not masked and self.drawn == self.nodes,
            "secret and cut off": secret and over,
            "private weights": self.weights == "examples",
            "robust weights": self.weights == "declared" and self.aggregation is not None,
            "updates": self.updates_per_node is not None,
        }
        yield from refusals(__file__, rules, s=self)
        if self.masking is not None:
            yield from self.masking.wrong(self.drawn)


def public_cohorts(settings: Settings, seed: int, names: tuple[str, ...]) -> Draw:
    """The clients of each round by public coins: everyone can follow the draws, which depend on no data."""
    return partial(draw, Stream(seed, settings.name, "cohorts"), names, settings.asked)


@dataclass(kw_only=True)
class RoundState(CohortState):
    """State of the server.

    Attributes
    ----------
    task : int
        Newest question to the data side of a server that adds the noise.
    cohort : tuple of str or None
        The clients of the round under way; None while they are drawn, and between its end and the next one.
    drawn : int
        The task that drew them in secret.
    updates : dict of str to vector
        Those that have come.
    waiting : dict of str to int
        Request of each client that waits for a model.
    """

    task: int = 0
    cohort: tuple[str, ...] | None = None
    drawn: int = 0
    updates: dict[str, Released | Confined] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)


class RoundServer(CohortServer):
    """The server: the model, and the round under way."""

    state: RoundState
    settings: Settings

    def __init__(self, context: Context, settings: Settings) -> None:
        super().__init__(RoundState(x=context.initial), context, settings, settings.waiting)
        self.names, self.public = context.names, public_cohorts(settings, context.seed, context.names)
        # A weight is at most 1, so an update that is clipped to C is no longer than C when it is weighted: noise and
        # guarantee are those of equal weights. Weights are known before the run, and sums are divided by what is made
        # of them alone. A weight by a private number of examples would tell it, so there is none.
        sizes, declared = context.shard_sizes, settings.weights == "declared"
        most = max([1, *sizes.values()])
        self.weights = {name: size / most for name, size in sizes.items()} if declared else None
        # As many as are expected of the sum of weights: m, where all are 1.
        mean_weight = 1.0 if self.weights is None else sum(self.weights.values()) / len(self.weights)
        self.query = sum_query(context, settings.drawn * mean_weight, settings.sampling)

    @property
    def awaited(self) -> Set[str]:
        s = self.state
        if s.finished or s.cohort is None or self.settings.secret:  # whom it waits for would show who was drawn
            return frozenset()
        return set(s.cohort) - s.left - s.updates.keys() - self.skipped

    @property
    def skipped(self) -> Set[str]:
        """Late clients whom nobody waits for. All of them late, and nobody heard, may be a server that is cut off."""
        s = self.state
        # One that is heard and was not drawn is a client that can be reached; one that was drawn may yet answer.
        away = {name for name, heard in (s.late or {}).items() if not heard or name in (s.cohort or ())}
        heard = s.updates or (self.asks and self.clients - s.left - away)
        return s.late.keys() if s.late and heard else frozenset()

    @property
    def rounds_made(self) -> RoundsMade:
        return RoundsMade(self.state.t - self.state.empty, self.state.empty, self.settings.rounds)

    def begin(self) -> Effects:
        """Begin the first round.

        After an absence timers are gone, and so is what the data side was asked for: it is asked again, and charged
        again.
        """
        if self.state.finished:
            return
        if self.state.cohort is None or self.settings.secret:  # the data side has forgotten who was drawn
            yield from self.draw()
        else:
            yield from self.set_timers()
        yield from self.close_if_whole()

    def draw(self) -> Effects:
        """Line 1."""
        s = self.state
        s.cohort, s.updates = None, {}
        if not self.settings.secret:
            yield from self.open(self.public(s.t))
            return
        s.task += 1
        s.drawn = s.task
        yield Compute(Cohort(s.task, s.x, len(self.names), self.at_clip(self.query)))

    @on(Answered)
    def was_drawn(self, done: Answered, now: float) -> Effects:
        s = self.state
        if done.id != s.task or s.finished:
            return
        chosen = done.vector.values
        if isinstance(chosen, Blank):  # a run without data: as many as are expected
            yield from self.open(self.names[: self.settings.drawn])
        else:
            yield from self.open(tuple(name for name, is_in in zip(self.names, chosen, strict=True) if is_in > 0.5))
        yield from self.close_if_whole()

    def open(self, cohort: tuple[str, ...]) -> Effects:
        """Line 2, for those of the cohort who are there."""
        s = self.state
        s.cohort = cohort
        self.forget_heard()
        for client in cohort:
            if client in s.waiting:
                yield self.give(client)
        yield from self.set_timers()

    def give(self, client: str) -> Send:
        return Send(client, self.newest(self.state.waiting.pop(client)))

    def offer(self, client: str, request: int) -> Effects:
        """Give a model to whoever is in the round and has not answered; all others wait for a round of theirs."""
        s = self.state
        s.waiting[client] = request
        self.hear(client)
        if s.cohort is not None and client in s.cohort and client not in s.updates and not self.joins_later(client):
            yield self.give(client)
        yield from self.close_if_whole()

    def hear(self, client: str) -> None:
        """Note that a late client is there again, and waits for a model: it joins with the next round at the latest."""
        late = self.state.late
        if late and client in late and client in self.state.waiting:
            late[client] = True

    def joins_later(self, client: str) -> bool:
        """Whether a client was late, and others are at work: asked now, it would hold up a second round."""
        s = self.state
        if s.late is None or client not in s.late:
            return False
        if self.at_work:
            return True
        del s.late[client]
        return False

    @property
    def at_work(self) -> Set[str]:
        """Clients of the round that were not late and have not answered."""
        s = self.state
        return set(s.cohort or ()) - s.left - (s.late or {}).keys() - s.updates.keys()

    def ask_joining(self) -> Effects:
        """Ask late clients that were to join later, once nobody else is at work: they are waited for in this round.

        They stay late, as they may be lost again: the round goes on with the first that answers.
        """
        if not self.at_work:
            for client in sorted(self.awaited & self.state.waiting.keys()):
                yield self.give(client)

    def came(self, sender: str, push: Push, stale: int) -> Effects:
        """Line 3; what comes after its round is left out."""
        s = self.state
        if stale == 0 and s.cohort is not None and sender in s.cohort and sender not in s.updates:
            s.updates[sender] = push.update
        yield from self.answer(sender, push.request)

    @on(Leave, by="clients")
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        self.state.waiting.pop(sender, None)
        yield from super().leaves(sender, leave, now)
        yield from self.close_if_whole()
        yield from self.ask_joining()

    def close_if_whole(self) -> Effects:
        """End the round if nothing is left to wait for, and so with each round that begins by that."""
        while self.is_whole():
            yield from self.close()

    def is_whole(self) -> bool:
        """Whether as many have answered as are wanted, or nobody is left to wait for."""
        s = self.state
        if s.cohort is None or s.finished:
            return False
        # Of a secret cohort all are waited for: who is cut off would show who was drawn before.
        enough = not self.settings.secret and len(s.updates) >= self.settings.drawn
        return enough or s.left.union(s.updates, self.skipped).issuperset(s.cohort)

    def time_is_up(self) -> Effects:
        s = self.state
        if s.cohort is not None:
            if s.late is not None:
                s.late |= dict.fromkeys(set(s.cohort) - s.updates.keys() - s.waiting.keys(), False)
            yield from self.close()
            yield from self.close_if_whole()

    def close(self) -> Effects:
        """Lines 4 and 5: of those who have answered."""
        s = self.state
        if self.asks or self.waiting.timeout is not None:
            yield CancelTimer(self.timer)
        updates, s.updates, s.cohort = tuple(sorted(s.updates.items())), {}, None
        divisor = float(len(updates))
        if self.weights is not None:
            divisor = sum(self.weights[name] for name, _ in updates)
            updates = tuple((name, self.weights[name] * update) for name, update in updates)
        if self.settings.curated and (updates or self.settings.secret):
            s.task += 1
            query, drawn = self.at_clip(self.query), s.drawn if self.settings.secret else None
            yield Compute(CuratedSum(s.task, s.x, updates, query, drawn))
            return
        s.taken += len(updates)
        if self.robust is not None:
            found = self.aggregated([update for _, update in updates])
            s.empty += found is None
            yield from self.advance(0.0 * s.x if found is None else found)
            return
        s.empty += not updates
        total = 0.0 * s.x
        for _, update in updates:
            total = total + update
        yield from self.advance(total / (divisor or 1.0))

    @on(Completed)
    def summed(self, done: Completed, now: float) -> Effects:
        if done.id == self.state.task and not self.state.finished:
            self.state.taken += 1
            yield from self.advance(done.released)
            yield from self.close_if_whole()

    def advance(self, mean: Released) -> Effects:
        """Line 5, and on to the next round."""
        self.move(mean.within())
        if self.state.t == self.settings.rounds:
            yield from self.end("rounds")
        elif self.last is not None and self.state.taken >= self.last:
            yield from self.end("updates")
        else:
            yield from self.draw()


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The clients by name, and the server."""
    if settings.masking is not None:
        return parts.masked_nodes(settings, context, masked_rounds(settings, context))
    return {**parts.clients(settings, context), SERVER: RoundServer(context, settings)}


# Settings that do not go with cohorts that a server draws in secret.
#
# What `sides.plan` proves of them is proved of sums of all who were drawn, and of as many sums as planned. How
# long a round takes depends on who is in it. So whoever is cut off by the clock, or away by it, is missing for a reason
# that depends on who was drawn before; and a run that ends by the clock shows in how many sums there are how long they
# took. Such cohorts amplify nothing.


def check(settings: Settings, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each: also of a clip that follows a quantile, and of secret cohorts."""
    yield from planning.check(settings, spec)
    follows, hides = isinstance(spec.privacy.clip, QuantileClip), settings.secret and spec.private
    rules = {
        "followed steps": follows and settings.stepwise,
        "followed by nobody": follows and not settings.stepwise and not settings.curated,
        "followed weights": follows and settings.weights == "declared",
        "late in secret": hides and settings.timeout is not None,
        "away in secret": hides and spec.disturbed,
        "enough in secret": hides and spec.stop.epochs is not None,
        "clock in secret": hides and spec.ends_by_clock,
    }
    yield from refusals(__file__, rules, s=settings)


def participation_in_rounds(problem: Problem[Settings]) -> planning.Participation:
    """Return the rounds that clients are asked in, known before the run, or all rounds where that is secret."""
    settings, names = problem.settings, problem.names
    if settings.secret:
        return planning.Participation(
            dict.fromkeys(names, settings.rounds), settings.rounds, settings.sampling, len(names)
        )
    draw = public_cohorts(settings, problem.seed, names)
    rounds = Counter(name for round in range(settings.rounds) for name in draw(round))
    most = {name: rounds[name] for name in names}
    return planning.participation_in_updates(problem, most, settings.rounds, settings.drawn)


def masked_rounds(settings: Settings, of: Context | Problem[Settings]) -> planning.MaskedRounds:
    """The rounds of clients that mask."""
    cohorts = public_cohorts(settings, of.seed, of.names)
    return planning.MaskedRounds(cohorts, settings.drawn, settings.rounds, settings.waiting)


def plan(problem: Problem[Settings]) -> Plan:
    """The plan of clients in the rounds that they are asked in."""
    if problem.settings.masking is not None:
        return planning.plan_masked(problem, masked_rounds(problem.settings, problem))
    return planning.plan_clients(problem, participation_in_rounds(problem))


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Rounds; how many clients were in them may be secret."""
    server = nodes[SERVER]
    log_clip = server.state.log_clip
    clip = {} if log_clip is None else {"clip": bound_of(log_clip)}  # it follows from what was released
    return {"steps": server.state.t, **parts.sums_counted(server), **clip}


def small_runs(settings: Settings) -> SmallRuns:
    """Runs for simulated faults; nobody is cut off where that would show a secret cohort."""
    fitting = parts.fitting(settings)
    if settings.masking is not None:
        sizes = [{"nodes": nodes, "rounds": 2, "clients_per_round": drawn} for nodes, drawn in ((4, None), (5, 3))]
        return parts.masked_runs(settings, fitting, sizes)
    over = None if settings.over_selection is None or settings.aggregation is not None else 1.5
    waits = settings.cohorts == "secret"
    some = ((3, 3, 2 if over or waits else None), (5, 3, 2), (4, 4, 2))
    sizes = [{"nodes": nodes, "rounds": rounds, "clients_per_round": drawn} for nodes, rounds, drawn in some]
    runs = SmallRuns(tuple(sizes), {**fitting, "over_selection": over}, parts.asks(settings), waits=waits)
    return runs.of_more(settings.aggregation, "nodes", "clients_per_round")


ALGORITHM = parts.algorithm(
    Settings,
    build,
    terms=lambda settings: parts.terms(settings, settings.rounds),
    check=check,
    plan=plan,
    figures=Figures(count=parts.count, report=report, remarks=parts.remarks, advice=parts.advice),
    clips=Clips(("fixed", "quantile"), laws=parts.LAWS),
    small_runs=small_runs,
)
