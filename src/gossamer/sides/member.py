"""A member's part of a masked sum, as it leaves: vectors behind masks, of an update that is never shown."""

from __future__ import annotations

from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import DataError, SpecError
from gossamer.privacy.masking_step import REFUSED, MaskingStep
from gossamer.privacy.unit_tasks import LocalUpdate
from gossamer.sides.answers import Answer
from gossamer.sides.charges import Receipt
from gossamer.sides.client import SLACK, clipped
from gossamer.sides.home import Home
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import Due, Rule, Ticket, Together
from gossamer.sides.masked_side import MaskedSide
from gossamer.sides.plan import MaskedMember
from gossamer.sides.samples import Shard
from gossamer.sides.updates import Steps, Update, Updates, steps_of


class MemberRule(Rule):
    """The updates of one member, and its messages of the sums that they are in.

    The conversation itself, with all that is refused in it, is `MaskedSide`, whatever the world; it is handed the
    world's numbers, mark and identities. Here is what it is charged, by the machine that charges everything.
    """

    def __init__(
        self, name: str, plan: MaskedMember, shard: Shard, updates: Updates, home: Home, ledger: Ledger | None
    ) -> None:
        shard.check_whole()
        mark, seed = home.kept(name), home.seed(name)
        if seed is None and mark is None:
            raise DataError(f"{name}: an agent of masked sums needs a durable mark of the rounds it took part in")
        if plan.noise is not None and ledger is None:
            raise DataError(f"{name}: an agent that adds noise needs a ledger to charge it to")
        self._receipt = None if plan.noise is None else Receipt(plan.noise)
        self._name, self._updates, self._reach = name, updates, plan.bound.reach
        self._shard, self._sampling = shard, home.numbers(name, "sampling")
        self._talk = MaskedSide(name, seed, plan.bound, plan.coins, plan.terms, mark=mark, signing=home.signing(name))

    def due(self, task: Any, charged: int) -> Due:
        if isinstance(task, MaskingStep) and self._receipt is not None and self._talk.costs(task):
            return Due(self._receipt)
        if not isinstance(task, MaskingStep | LocalUpdate):
            raise SpecError(f"{self._name} makes local updates for masked sums, found {type(task).__name__}")
        return Due(None)

    def admitted(self, task: MaskingStep) -> None:
        self._talk.charged(task)

    def number(self, task: Any, charged: int) -> int:
        return int(task.id)

    def amended(self, task: Any, became: Any) -> Any:
        raise SpecError(f"agents of a unit run no rounds, found {type(became).__name__}")

    def draw(self, ticket: Ticket) -> Steps | None:
        """Rows of the local steps; a message of a sum draws nothing from the data."""
        if self.together(ticket.task) is None:
            return None
        return steps_of(ticket, self._shard, self._sampling)

    def together(self, task: Any) -> Together | None:
        # An update is not even made, if it is of a round that the member takes no part in.
        made = isinstance(task, LocalUpdate) and bool(self._talk.taking_part(task))
        return self._updates.compute if made else None

    def _whole(self, update: FloatArray) -> FloatArray:
        """The update in its own direction, where it is longer than the bound by more than rounding.

        The encoding bounds each coordinate first, and would turn it. Steps with a clip of their own are never so long.
        """
        too_long = float(np.linalg.norm(update.astype(np.float64))) > self._reach * (1 + SLACK)
        return clipped(update, self._reach) if too_long else update

    def snapshot(self) -> tuple[Any, ...]:
        return self._talk.snapshot()

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        self._talk.restore(snapshot)

    def release(self, ticket: Ticket, raw: Update | None) -> Answer:
        if raw is None:
            return Answer(REFUSED) if isinstance(ticket.task, LocalUpdate) else self._talk.step(ticket.task)
        answer = self._talk.answer(ticket.task, self._whole(raw.update))
        return answer._replace(not_finite=raw.not_finite) if raw.not_finite else answer
