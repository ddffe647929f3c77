"""Bugs that are planted in hosts and data sides, for seeds of faults to find."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gossamer.errors import BudgetSpent
from gossamer.protocol.events import Completed, Received
from gossamer.protocol.messages import MessageFrame
from gossamer.runtimes.host import Arrived, DataSideAnswer, Host, Input, Outcome, Resume
from gossamer.sides.home import numbers_of
from gossamer.sides.ledger import Receipt
from gossamer.sides.machine import Side, SideAnswer, Ticket


class DeliversTwice(Host):
    """No deduplication: a message that comes again is handed to the node again."""

    def _take(self, what: Input, now: float) -> None:
        old = (
            isinstance(what, Arrived)
            and isinstance(what.frame, MessageFrame)
            and what.frame.number <= self._seen(what.sender)
        )
        super()._take(what, now)
        if old:
            self._converse([Received(what.sender, what.frame.message)])

    def _seen(self, sender: str) -> int:
        link = self.session.links.get(sender)
        return 0 if link is None else link.delivered


class SendsBeforeItStores(Host):
    """Frames leave at once, and the turn that they come of is stored with the next one."""

    def turn(self, inputs: Sequence[tuple[Input, float]]) -> list[Outcome]:
        self.journal.commit()
        commit, self.journal.commit = self.journal.commit, lambda: None  # type: ignore[method-assign]
        try:
            return super().turn(inputs)
        finally:
            self.journal.commit = commit  # type: ignore[method-assign]


class ChargesAfterTheNoise(Side):
    """What the plan covers is noised, and then charged."""

    __slots__ = ()

    def admit(self, task: Any) -> Ticket:
        ticket = super().admit(task)
        return ticket._replace(number=ticket.number + 1)

    def charge(self, receipt: Receipt) -> int:
        ledger: Any = self.ledger
        reason = ledger.charges.refusal(ledger.counts, receipt)
        if reason is not None:
            raise BudgetSpent(reason)
        return self.releases

    def release(self, ticket: Ticket, raw: Any) -> SideAnswer:
        answer = super().release(ticket, raw)
        super().charge(Receipt(ticket.task.release))
        return answer


class RestoresItsNoise(Side):
    """The stream of noise begins where it began before the restart."""

    __slots__ = ("_drawn",)

    def __init__(self, name: str, rule: Any, ledger: Any, home: Any) -> None:
        rule._noise, rule._sampling = numbers_of(0, name, "noise"), numbers_of(0, name, "sampling")
        super().__init__(name, rule, ledger, home)
        self._drawn = 0

    def admit(self, task: Any) -> Ticket:
        self._drawn += 1
        return super().admit(task)._replace(number=self._drawn)


class AppliesAnAnswerTwice(Host):
    """After a restart, the answer before it is taken for that to the task that is asked then."""

    _newest: Completed | None = None

    def _take(self, what: Input, now: float) -> None:
        super()._take(what, now)
        if isinstance(what, DataSideAnswer) and isinstance(what.event, Completed):
            self._newest = what.event
        if isinstance(what, Resume) and self._newest is not None:
            self._happen(replace(self._newest, id=self.node.state.task))


BUGS: dict[str, tuple[dict[str, Any], str]] = {
    "no deduplication": ({"kind": DeliversTwice}, "takes another message|which sent only|refused"),
    "send before store": ({"kind": SendsBeforeItStores}, "takes message|has message|takes another message|refused"),
    "charge after noise": ({"machine": ChargesAfterTheNoise}, r"the ledger of .* releases, and noise was drawn for"),
    "noise restored": ({"machine": RestoresItsNoise}, "two releases share their noise"),
    "a budget spent alone": ({"alone_after": math.inf}, "is charged though nobody has acknowledged anything"),
    "an answer applied twice": ({"kind": AppliesAnAnswerTwice}, "applies an answer twice"),
}
"""What each puts in the place of a part of a `Trial`, and what is said of it."""
