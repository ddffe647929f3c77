"""A curator's noisy sums of clients' raw updates: released to everybody, by a server that clients trust.

The curator checks the norm of each update that it was handed, since it is the bound on that which its noise hides: one
that is longer, or not finite, counts as 0. It charges the line of every client whose update is in the sum, before it
draws. It sees all updates itself, and is outside of what is proved.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import SpecError
from gossamer.objectives.objective import Objective
from gossamer.privacy.unit_tasks import CuratedSum
from gossamer.sides.answers import Answer
from gossamer.sides.charges import Receipt
from gossamer.sides.client import SLACK
from gossamer.sides.home import Home
from gossamer.sides.machine import Due, Rule, Ticket
from gossamer.sides.plan import WHOLE, Curator
from gossamer.sides.sum_rounding import Rounding
from gossamer.vectors import Released


class CuratorRule(Rule):
    """Sums over the updates of clients, with noise of the curator's own."""

    def __init__(self, name: str, plan: Curator, objective: Objective, home: Home) -> None:
        if name != plan.name:
            raise SpecError(f"the plan is for the curator {plan.name!r}, found {name!r}")
        self._name, self._plan, self._home, self._dtype = name, plan, home, objective.dtype
        self._numbers = home.numbers(name, "noise")
        of_clipped = Rounding.of_clipped_sum(objective)
        # All updates are added in float64, each clipped there before.
        self._rounding = replace(of_clipped, most=plan.cohort, piece=plan.cohort, dtype=np.dtype(np.float64))

    def due(self, task: Any, charged: int) -> Due:
        if not isinstance(task, CuratedSum):
            raise SpecError(f"{self._name} sums updates of clients, found {type(task).__name__}")
        strangers = sorted(set(task.owners) - set(self._plan.owners))
        if strangers or not 1 <= len(task.owners) <= self._plan.cohort:
            raise SpecError(
                f"{self._name} sums the updates of 1 to {self._plan.cohort} of its own clients, found "
                f"{len(task.owners)}{', with ' + ', '.join(strangers) if strangers else ''}"
            )
        query = task.query
        if query.sampling != WHOLE or query.mechanism.clip != self._plan.bound or query.count_share:
            raise SpecError(f"{self._name} adds all of a sum, of updates of length {self._plan.bound:g}, found {query}")
        provided = self._home.provided(query, task.size, lambda: self._rounding)
        return Due(Receipt(query.release(task.size), task.owners), not self._home.repeats, provided)

    def amended(self, task: Any, became: Any) -> Any:
        raise SpecError(f"a curator runs no rounds, found {type(became).__name__}")

    def release(self, ticket: Ticket, raw: None) -> Answer:
        """The sum of updates with noise, divided by what is public; with how many of them counted as 0."""
        task: CuratedSum = ticket.task
        total, refused = np.zeros(task.size), 0
        for _, update in task.updates:
            found = checked(np.asarray(update.values), self._plan.bound)
            total, refused = (total, refused + 1) if found is None else (total + found, refused)
        generator = self._numbers.at(ticket.number)
        answer = self._home.noisy(total, 0.0, task.query, ticket.provided, generator)
        answer /= task.query.normaliser
        with np.errstate(over="ignore"):
            values = np.nan_to_num(answer.astype(self._dtype), copy=False)
        return Answer(Released(values), too_long=refused)


def checked(update: FloatArray, bound: float) -> FloatArray | None:
    """``update`` [size] in float64, no longer than ``bound``; None if it is longer by more than rounding explains."""
    whole = update.astype(np.float64)
    norm = float(np.linalg.norm(whole))
    if not norm <= bound * (1 + SLACK):  # also one that is not a number
        return None
    return whole * (bound / norm) if norm > bound else whole
