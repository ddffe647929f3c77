"""A pool of data sides, which compute together: the whole of a runtime's call at once.

`open_pool` opens them: the one place that looks at a plan's kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.objectives.objective import Objective
from gossamer.privacy.mechanisms import ReleaseKind
from gossamer.privacy.tasks import Gradient, MaskingStep, Round
from gossamer.protocol.messages import confidants
from gossamer.protocol.snapshots import Kept
from gossamer.sides.client import NoisedRule, UpdateRule, Updates
from gossamer.sides.home import DRAWING, Home, numbers_in
from gossamer.sides.ledger import MOST_NAMED, Ledger, in_groups
from gossamer.sides.machine import Due, Rule, Side, SideAnswer
from gossamer.sides.plan import ClientUpdate, Curator, MaskedMember, Nothing, Samples, SidePlan, StreamPlan
from gossamer.sides.samples import SampleRule, ShardRows
from gossamer.sides.servers import CuratorRule, StreamRule
from gossamer.sides.sums import Inputs, Sums, Ticket, amended, post_processed, with_most_models
from gossamer.sides.window import GradientWindow
from gossamer.vectors import Blank, Sendable


class NothingRule(Rule):
    """Rule of a party without data: there is nothing to ask it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def due(self, task: Any, charged: int) -> Due:
        raise SpecError(f"{self._name} has no data in this run, found a task for them: {type(task).__name__}")


class BlankSides:
    """Admits everything, counts it, and answers with blanks: for computing the schedule alone.

    Attributes
    ----------
    counts : dict of str to dict of ReleaseKind to int
        Requests of each node that are charged, by kind.
    asked : dict of str to int
        Number of requests of each node, messages about masks left out.
    """

    def __init__(self) -> None:
        self.counts: dict[str, dict[ReleaseKind, int]] = {}
        self.asked: dict[str, int] = {}

    def admit(self, node: str, task: Any) -> Any:
        """Count ``task``, and give it back for a ticket."""
        if isinstance(task, (Gradient, Round)):
            kinds, kind = self.counts.setdefault(node, {}), task.release
            kinds[kind] = kinds.get(kind, 0) + 1
        elif isinstance(task, MaskingStep):
            return task
        self.asked[node] = self.asked.get(node, 0) + 1
        return task

    def amended(self, ticket: Round, task: Round) -> Round:
        """Return what a round has become."""
        return amended(ticket, task)

    def compute(self, tickets: Sequence[Any]) -> list[SideAnswer]:
        """Answers with nothing in them."""
        return [SideAnswer(_blank(task)) for task in tickets]

    def releases(self, node: str) -> int:
        """Number of things that ``node`` asked for."""
        return self.asked.get(node, 0)


_blanks = lru_cache(maxsize=64)(Blank)


def _blank(task: Any) -> Sendable:
    """An answer with nothing in it."""
    found: Sendable = task.label(_blanks(task.answer_size, task.dtype))
    return found


class Pool(Kept):
    """The data sides of one process, a `gossamer.sides.machine.Computer`.

    Attributes
    ----------
    sides : dict of str to Side
        Data side of each party.
    home : Home
        World that they live in.
    spread : callable
        Has a method compute what data sides of one call ask it, here or elsewhere.

    Parameters
    ----------
    home : Home
        The world that they live in.
    opened : mapping of str to callable
        Function for each party that makes its data side, once a process.
    counted_by : mapping of str to str
        Owner of the ledger that counts the releases of a party that has none of its own, such as its unit.
    sums : Sums, optional
        Sums that the data sides compute with.
    window : GradientWindow, optional
        Window that answers for many of them together.
    """

    changing = ("sides",)

    def __init__(
        self,
        home: Home,
        opened: Mapping[str, Callable[[], Side]],
        counted_by: Mapping[str, str] | None = None,
        sums: Any = None,
        window: GradientWindow | None = None,
    ) -> None:
        self.home, self._opened, self._counted_by, self.sums = home, opened, counted_by or {}, sums
        self.window = window
        self.sides = {name: make() for name, make in opened.items()}
        self.spread: Callable[[Any, Sequence[Inputs]], Sequence[Any]] = _here

    @property
    def ledgers(self) -> list[Ledger]:
        """Ledgers of what was charged, in the order of the parties."""
        return [side.ledger for side in self.sides.values() if side.ledger is not None]

    def lines(self) -> Iterable[dict[str, Any]]:
        """Records for ``ledger.jsonl``; of very many nodes those that are alike as one, with a list of nodes."""
        found = (line for ledger in self.ledgers for line in ledger.lines())
        return found if len(self.sides) <= MOST_NAMED else in_groups(found)

    def admit(self, node: str, task: Any) -> Ticket:
        """Charge a task and give it a ticket.

        Raises
        ------
        BudgetSpent
            If the party's ledger does not cover it.
        SpecError
            If it is nothing that the party's data side answers; nothing is charged.
        """
        return self.sides[node].admit(task)

    def amended(self, ticket: Ticket, task: Any) -> Ticket:
        """The ticket of a round that was admitted and has become ``task``; called right before it is computed."""
        found: Ticket = ticket.side.amended(ticket, task)
        return found

    def compute(self, tickets: Sequence[Ticket]) -> list[SideAnswer]:
        """The answers to ``tickets``, in order.

        Raises
        ------
        SpecError
            If one was answered before, and another answer would be another release.
        """
        self.home.crashpoint(DRAWING)
        pairs = list(zip(tickets, self.raw(tickets), strict=True))
        # What was computed is answered first: a message about a sum may be about what was computed in the same call.
        answers = [None if raw is None else ticket.side.release(ticket, raw) for ticket, raw in pairs]
        return [
            ticket.side.release(ticket, raw) if answer is None else answer
            for (ticket, raw), answer in zip(pairs, answers, strict=True)
        ]

    def raw(self, tickets: Sequence[Ticket]) -> list[Any]:
        """Compute ``tickets``, in order; None where nothing is computed.

        It is as private as the data: noise is in it only where it was added while it was computed.
        """
        raws: list[Any] = [None] * len(tickets)
        groups: dict[Any, dict[int, Inputs]] = {}
        for place, ticket in enumerate(tickets):
            if (inputs := ticket.side.draw(ticket)) is not None:
                groups.setdefault(inputs.together, {})[place] = inputs
        for together, asked in groups.items():
            for place, found in zip(asked, self.spread(together, [*asked.values()]), strict=True):
                raws[place] = found
        return raws

    def releases(self, node: str) -> int:
        """Number of charged releases with the data of ``node``."""
        ledger = self.sides[self._counted_by.get(node, node)].ledger
        return 0 if ledger is None else ledger.releases_of(node)

    def provided_for(self, ticket: Ticket) -> int:
        """Number of examples that an answer is computed on, unless more are sampled: public, with `Filled` sums."""
        found: int = self.sums.provided_for(ticket)
        return found

    def rehearse(self, ticket: Ticket, count: int) -> None:
        """Do all that an answer of `Filled` sums takes, on ``count`` examples that nobody has, and drop it.

        Nothing is charged and nothing of the shard is used.
        """
        ticket = ticket._replace(task=with_most_models(ticket.task))
        task, total = ticket.task, self.sums.of_nobody(ticket, count)
        numbers = numbers_in(self.home, ticket.side.name, "noise")
        answer = self.home.noise.noisy(total, 0.0, task.query, ticket.provided, numbers, ticket.number)
        if isinstance(task, Gradient):
            post_processed(answer, task, self.sums.objective.l2)

    def before_snapshot(self) -> None:
        if self.home.seed("") is None:
            raise SpecError("data sides can be kept where their noise is the same again, which it is not here")

    def renew(self, name: str) -> None:
        """Open the data side of ``name`` again, as its process does that was started again."""
        if name in self._opened:
            self.sides[name] = self._opened[name]()


def _here(together: Any, asked: Sequence[Inputs]) -> Sequence[Any]:
    found: Sequence[Any] = together(asked)
    return found


Machine = Callable[[str, Rule, Ledger | None, Home], Side]


def open_pool(
    plans: Mapping[str, SidePlan],
    shards: Mapping[str, ShardRows],
    objective: Objective,
    data: Split,
    home: Home,
    machine: Machine = Side,
    trust: Mapping[str, str] | None = None,
) -> Pool:
    """The data sides of one process: of all parties in a simulation, of one in a deployment.

    Parameters
    ----------
    plans : mapping of str to SidePlan
        Plan of each party.
    shards : mapping of str to ShardRows
        Shard of each party with examples.
    objective : Objective
        Common to all.
    data : Split
        The training split that all shards are rows of.
    home : Home
        The world.
    machine : callable
        Function that makes a side; another one has a bug that tests are to find.
    trust : mapping of str to str, optional
        The trust scope of each party that is in one, to hold those of the plans against.

    Raises
    ------
    SpecError
        If the noise of a plan cannot be drawn in this world, or a plan's scope is no trust scope of the run.
    """
    if trust is not None:
        _check_scopes(plans, trust)
    sums, updates = home.sums(objective, data), Updates(objective, data)
    window = GradientWindow.of(sums)

    def opened(name: str, plan: SidePlan) -> Side:
        ledger = None if plan.charges() is None else home.ledger(name, plan)
        return machine(name, _rule(name, plan, shards.get(name), sums, window, updates, home, ledger), ledger, home)

    charged = {name: plan.charges() for name, plan in plans.items()}
    counted_by = {owner: name for name, charges in charged.items() if charges is not None for owner in charges.owners}
    return Pool(home, {name: partial(opened, name, plan) for name, plan in plans.items()}, counted_by, sums, window)


def _check_scopes(plans: Mapping[str, SidePlan], trust: Mapping[str, str]) -> None:
    """Refuse plans by which others hear what is raw than those whom the party trusts."""
    for name, plan in plans.items():
        trusted = confidants(trust, name)
        if (scope := plan.trusted.scope) and scope != trusted:
            raise SpecError(
                f"what is raw of {name} stays with {', '.join(sorted(trusted))}, and its plan shows it to "
                f"{', '.join(sorted(scope))}"
            )


def _rule(
    name: str,
    plan: SidePlan,
    shard: ShardRows | None,
    sums: Sums,
    window: GradientWindow | None,
    updates: Updates,
    home: Home,
    ledger: Ledger | None,
) -> Rule:
    if shard is None and isinstance(plan, Samples | ClientUpdate | MaskedMember):
        raise SpecError(f"{name} needs examples for what is planned, and has none")
    held: Any = shard
    match plan:
        case Samples():
            return SampleRule(name, plan, held, sums, home, window)
        case ClientUpdate():
            return (UpdateRule if plan.noise is None else NoisedRule)(name, plan, held, updates, home)
        case MaskedMember():
            # Masks need cryptography, which is optional, so it is imported only here.
            from gossamer.sides.masked_side import MemberRule

            return MemberRule(name, plan, held, updates, home, ledger)
        case StreamPlan():
            return StreamRule(name, plan, home)
        case Curator():
            return CuratorRule(name, plan, updates.objective, home)
        case Nothing():
            return NothingRule(name)
    raise SpecError(f"no data side is known for the plan of {name}, found {type(plan).__name__}")
