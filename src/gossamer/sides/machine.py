"""The machine that every data side is: it charges, then draws, then answers, whatever leaves and wherever it lives.

A ticket is a task whose charge stands. Its *inputs* are drawn, its *raw* answer is computed together with those of
other tickets, and noise is added when it is *released*. What was charged is never taken back, and no number ever has
two different answers: a rule whose answers could differ has them given once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from gossamer.errors import SpecError
from gossamer.protocol.effects import Record
from gossamer.protocol.snapshots import Kept, kept_whole
from gossamer.sides.home import CHARGING, Home
from gossamer.sides.ledger import Ledger, Receipt
from gossamer.sides.sums import NOTHING_PROVIDED, Inputs, Provided, Ticket
from gossamer.vectors import Sendable


@kept_whole
class SideAnswer(NamedTuple):
    """Answer to a task.

    Attributes
    ----------
    released : Released
        Answer for the node; where there is no receipt, what it may hand on inside its unit.
    not_finite : int
        Per-example gradients that were not finite and counted as zero. Raw: for the node's private log only.
    too_long : int
        Updates of clients that were longer than a curator's noise hides, or not finite, and counted as zero. Raw, too.
    """

    released: Sendable
    not_finite: int = 0
    too_long: int = 0

    @property
    def notes(self) -> tuple[Record, ...]:
        """Records for the node's private log."""
        if not (self.not_finite or self.too_long):
            return ()
        found = {"gradients_not_finite": self.not_finite, "updates_too_long": self.too_long}
        return tuple(Record(name, float(number)) for name, number in found.items() if number)


class Computer(Protocol):
    """Part of a runtime that computes its nodes' tasks."""

    def admit(self, node: str, task: Any) -> Any:
        """Charge a task and give it a ticket, or raise `BudgetSpent`."""

    def amended(self, ticket: Any, task: Any) -> Any:
        """The ticket of a round that was admitted and has become ``task``; called right before it is computed."""

    def compute(self, tickets: Sequence[Any]) -> list[SideAnswer]:
        """The answers to ``tickets``, in order."""

    def releases(self, node: str) -> int:
        """Number of releases that ``node`` has been charged."""


class Due(NamedTuple):
    """Charge and provisions that a task comes to before it is admitted.

    Attributes
    ----------
    receipt : Receipt or None
        Receipt that is charged now; None if that was done before, or nothing is to be charged.
    once : bool
        Whether it is answered once, since a second answer could be another one.
    provided : Provided
        Provisions for its noise.
    """

    receipt: Receipt | None
    once: bool = False
    provided: Provided = NOTHING_PROVIDED


class Rule(Kept):
    """Rules for what leaves one party's data: one kind, whatever the world.

    A rule says what differs from the most common one, which draws nothing, computes nothing and keys its randomness by
    the number of the charge.
    """

    def due(self, task: Any, charged: int) -> Due:
        """Return what ``task`` comes to after so many charges; before anything is charged or drawn.

        Raises
        ------
        SpecError
            If it is nothing that this side answers.
        BudgetSpent
            If it could only be answered beyond the plan.
        """
        raise NotImplementedError

    def admitted(self, task: Any) -> None:
        """Note that ``task`` was charged."""

    def number(self, task: Any, charged: int) -> int:
        """Number that keys the randomness of ``task``, now that so many releases are charged."""
        # Our own count, not the node's id: no node can make two releases share their noise.
        return charged

    def amended(self, task: Any, became: Any) -> Any:
        """``became``, if an admitted ``task`` can have become it.

        Raises
        ------
        SpecError
            If it cannot.
        """
        raise SpecError(f"this data side runs no rounds, found {type(became).__name__}")

    def draw(self, ticket: Ticket) -> Inputs | None:
        """Draw what the raw answer needs, such as a batch; None if there is nothing to compute."""
        return None

    def release(self, ticket: Ticket, raw: Any) -> SideAnswer:
        """The answer, with its noise."""
        raise NotImplementedError


class Side(Kept):
    """The data side of one party.

    Parameters
    ----------
    name : str
        Name of the party.
    rule : Rule
        Rule for what leaves it.
    ledger : Ledger or None
        Ledger that it is charged to; None where nothing is.
    home : Home
        The world.
    """

    __slots__ = ("_open", "_opened", "home", "ledger", "name", "rule")
    changing = ("ledger", "_opened", "_open", "rule")

    def __init__(self, name: str, rule: Rule, ledger: Ledger | None, home: Home) -> None:
        self.name, self.rule, self.ledger, self.home = name, rule, ledger, home
        self._opened, self._open = 0, set[int]()

    @property
    def releases(self) -> int:
        """Number of releases that were charged."""
        return 0 if self.ledger is None else self.ledger.releases

    def admit(self, task: Any) -> Ticket:
        """Charge ``task``.

        Raises
        ------
        BudgetSpent
            If the ledger does not cover it.
        SpecError
            If it is not what this side answers, or its noise cannot be drawn; nothing is charged.
        """
        charged = 0 if self.ledger is None else self.ledger.releases
        due = self.rule.due(task, charged)
        if due.receipt is not None:
            charged = self.home.charged(self.name, task, due.receipt, self.charge)
            self.rule.admitted(task)
        opened = self._opened if due.once else None
        if opened is not None:
            self._open.add(opened)
            self._opened += 1
        return Ticket(self, task, self.rule.number(task, charged), due.provided, opened)

    def charge(self, receipt: Receipt) -> int:
        """Enter a charge, before anything is drawn for it; how many there are since."""
        assert self.ledger is not None, f"{self.name} has no ledger to charge {receipt} to"
        self.home.crashpoint(CHARGING)
        return self.ledger.charge(receipt)

    def amended(self, ticket: Ticket, task: Any) -> Ticket:
        """Return what was admitted, now that its task has become ``task``.

        Raises
        ------
        SpecError
            If ``task`` is another than the one that was admitted.
        """
        return ticket._replace(task=self.rule.amended(ticket.task, task))

    def draw(self, ticket: Ticket) -> Inputs | None:
        """Draw what the raw answer is computed from, if there is anything to compute.

        Raises
        ------
        SpecError
            If the ticket was answered before.
        """
        if ticket.opened is not None:
            if ticket.opened not in self._open:
                raise SpecError(
                    f"a charge is answered once, found task {ticket.task.id} of {self.name} again: the second answer "
                    "would be another release"
                )
            self._open.remove(ticket.opened)
        return self.rule.draw(ticket)

    def release(self, ticket: Ticket, raw: Any) -> SideAnswer:
        """The answer to what a ticket comes to without noise."""
        if type(raw) is SideAnswer:  # a window has added the noise
            return raw
        return self.rule.release(ticket, raw)
