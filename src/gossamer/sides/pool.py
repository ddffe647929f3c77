"""A pool of data sides, which compute together: the whole of a runtime's call at once.

Answers of a party without data, and data sides of a run of which only the schedule is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gossamer.errors import SpecError
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.tasks import Gradient, Round
from gossamer.privacy.unit_tasks import MaskingStep
from gossamer.sides.answers import Answer
from gossamer.sides.home import DRAWING, Home
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import NOTHING_PROVIDED, Due, Rule, Side, Ticket, Together
from gossamer.sides.round_answers import amended
from gossamer.vectors import Blank, Sendable


class NothingRule(Rule):
    """Rule of a party without data: there is nothing to ask it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def due(self, task: Any, charged: int) -> Due:
        raise SpecError(f"{self._name} has no data in this run, found a task for them: {type(task).__name__}")

    def amended(self, task: Any, became: Any) -> Any:
        return self.due(became, 0)

    def release(self, ticket: Ticket, raw: Any) -> Answer:
        raise AssertionError("nothing is ever admitted")


class DryRun:
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
        if not isinstance(task, MaskingStep):
            self.asked[node] = self.asked.get(node, 0) + 1
        if isinstance(task, Gradient | Round):
            kinds = self.counts.setdefault(node, {})
            kinds[task.release] = kinds.get(task.release, 0) + 1
        return task

    def amended(self, ticket: Round, task: Round) -> Round:
        """Return what a round has become."""
        return amended(ticket, task)

    def compute(self, tickets: Sequence[Any]) -> list[Answer]:
        """Answers with nothing in them."""
        return [Answer(_blank(task)) for task in tickets]

    def releases(self, node: str) -> int:
        """Number of things that ``node`` asked for."""
        return self.asked.get(node, 0)


def _blank(task: Any) -> Sendable:
    """An answer with nothing in it."""
    found: Sendable = task.label(Blank(task.answer_size, task.dtype))
    return found


class Pool:
    """The data sides of one process, a `gossamer.sides.answers.Computer`.

    Attributes
    ----------
    sides : dict of str to Side
        Data side of each party.
    home : Home
        World that they live in.

    Parameters
    ----------
    home : Home
        The world that they live in.
    opened : mapping of str to callable
        Function for each party that makes its data side, once a process.
    counted_by : mapping of str to str
        Owner of the ledger that counts the releases of a party that has none of its own, such as its unit.
    """

    def __init__(
        self, home: Home, opened: Mapping[str, Callable[[], Side]], counted_by: Mapping[str, str] | None = None
    ) -> None:
        self.home, self._opened, self._counted_by = home, opened, counted_by or {}
        self.sides = {name: make() for name, make in opened.items()}

    @property
    def ledgers(self) -> list[Ledger]:
        """Ledgers of what was charged, in the order of the parties."""
        return [side.ledger for side in self.sides.values() if side.ledger is not None]

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
        return ticket.side.amended(ticket, task)

    def compute(self, tickets: Sequence[Ticket]) -> list[Answer]:
        """The answers to ``tickets``, in order.

        Raises
        ------
        SpecError
            If one was answered before, and another answer would be another release.
        """
        self.home.crashpoint(DRAWING)
        raws = self.raw(tickets)
        answers: list[Answer | None] = [None] * len(tickets)
        # What was computed is answered first: a message about a sum may be about what was computed in the same call.
        for place in sorted(range(len(tickets)), key=lambda at: raws[at] is None):
            answers[place] = self.release(tickets[place], raws[place])
        return [answer for answer in answers if answer is not None]

    def raw(self, tickets: Sequence[Ticket]) -> list[Any]:
        """Compute ``tickets`` without noise, in order; None where nothing is computed. As private as the data."""
        raws: list[Any] = [None] * len(tickets)
        groups: dict[Together, list[int]] = {}
        inputs = [ticket.side.draw(ticket) for ticket in tickets]
        for place, ticket in enumerate(tickets):
            if (together := ticket.side.rule.together(ticket.task)) is not None:
                groups.setdefault(together, []).append(place)
        for together, places in groups.items():
            for place, found in zip(places, together([inputs[place] for place in places]), strict=True):
                raws[place] = found
        return raws

    def release(self, ticket: Ticket, raw: Any) -> Answer:
        """The answer to a ticket of what it comes to without noise."""
        return ticket.side.release(ticket, raw)

    def releases(self, node: str) -> int:
        """Number of charged releases with the data of ``node``."""
        ledger = self.sides[self._counted_by.get(node, node)].ledger
        return 0 if ledger is None else ledger.releases_of(node)

    def snapshot(self) -> dict[str, Any]:
        """Return all that changes, as data that `protocol.snapshots` encodes.

        Raises
        ------
        SpecError
            If something of it cannot be kept: only of a world whose numbers are the same again.
        """
        if self.home.seed("") is None:
            raise SpecError("data sides can be kept where their noise is the same again, which it is not here")
        return {name: side.snapshot() for name, side in self.sides.items()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Be as the pool was whose `snapshot` this is."""
        for name, side in self.sides.items():
            side.restore(snapshot[name])

    def ticket_snapshot(self, ticket: Ticket) -> tuple[Any, ...]:
        """Return a ticket as such data."""
        return ticket.side.name, ticket.task, ticket.number, ticket.opened

    def ticket_of(self, snapshot: tuple[Any, ...]) -> Ticket:
        """Return the ticket whose `ticket_snapshot` this is."""
        name, task, number, opened = snapshot
        return Ticket(self.sides[name], task, number, NOTHING_PROVIDED, opened)

    def renew(self, name: str) -> None:
        """Open the data side of ``name`` again, as its process does that was started again."""
        if name in self._opened:
            self.sides[name] = self._opened[name]()
