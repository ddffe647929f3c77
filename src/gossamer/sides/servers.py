"""A curator's noisy sums of clients' raw updates: released to everybody, by a server that clients trust.

The curator checks the norm of each update that it was handed, since it is the bound on that which its noise hides: one
that is longer, or not finite, counts as 0. It charges the line of every client whose update is in the sum, before it
draws the noise; where it draws the clients too, the line of every client there is, before it draws them. It sees all
updates itself, and is outside of what is proved.

Where it also counts the updates that are shorter than the clip, it tells that from their norms, and believes nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import BudgetSpent, SpecError
from gossamer.objectives.objective import Objective
from gossamer.privacy.streams.correlated_noise import StreamRecord
from gossamer.privacy.tasks import Cohort, CuratedSum, Query
from gossamer.protocol.effects import Release
from gossamer.protocol.snapshots import kept_whole
from gossamer.sides.client import SLACK
from gossamer.sides.home import Home, numbers_in, saturated
from gossamer.sides.ledger import Receipt
from gossamer.sides.machine import Due, Rule, SideAnswer
from gossamer.sides.plan import WHOLE, Curator, StreamPlan
from gossamer.sides.sums import Rounding, Ticket
from gossamer.vectors import Confined, Released


class StreamRule(Rule):
    """The records of one unit's stream of noise, which its server draws.

    A record is charged, then drawn, and drawn once. After a crash the server's node is what its journal says, and asks
    for the next record, or for the last one again. One that was answered is answered with the same bytes; one that was
    charged and not kept was given to nobody, and is drawn now under the charge that stands. Records that later ones
    are made of are kept before they are answered (`streams.records`).
    """

    changing = ("_past", "_noise")

    def __init__(self, name: str, plan: StreamPlan, home: Home) -> None:
        self._name, self._receipt = name, Receipt(plan.kind)
        self._noise, self._kept = home.noise.stream(plan, numbers_in(home, name, "noise")), home.kept(name)
        self._needed = self._noise.needed
        self._past = list(self._kept.kept()) if self._kept is not None and self._needed else []

    def due(self, task: Any, charged: int) -> Due:
        if not isinstance(task, Release):
            raise SpecError(f"{self._name} releases records of a stream, found {type(task).__name__}")
        if task.id not in (charged, charged - 1) or task.id < 0:
            raise SpecError(f"{self._name}: the next record is {charged}, found {task.id}")
        if not self._answered(task.id):
            self._before(task.id)
        return Due(self._receipt if task.id == charged else None)

    def number(self, task: Release, charged: int) -> int:
        return task.id

    def release(self, ticket: Ticket, raw: None) -> SideAnswer:
        """The state with the record's noise; with the very same bytes if it was answered before.

        Raises
        ------
        SpecError
            If the state is another than before: two states with the same noise give their difference away.
        """
        number, values = ticket.number, ticket.task.vector.values
        state: FloatArray = values.astype(np.float64)
        if not self._answered(number):
            before = self._before(number)
            record = StreamRecord(number, state, self._noise.answer(number, state, before))
            if self._kept is not None and self._needed:
                self._kept.keep(record, self._needed)
            self._past = [*before, record][-max(self._needed, 1) :]
        kept = self._past[-1]
        if kept.state.tobytes() != state.tobytes():
            raise SpecError(f"{self._name}: record {number} was another state's; its noise is used once")
        return SideAnswer(Released(saturated(kept.answer, values.dtype)))

    def _answered(self, number: int) -> bool:
        """Whether a record has an answer, which is kept."""
        return bool(self._past) and self._past[-1].number == number

    def _before(self, number: int) -> list[StreamRecord]:
        """The records that one is made of.

        Raises
        ------
        BudgetSpent
            If they are lost.
        """
        wanted = list(range(max(number - self._needed, 0), number))
        found = [record for record in self._past if record.number in wanted]
        if [record.number for record in found] != wanted:
            raise BudgetSpent(
                f"{self._name}: release refused: record {number} goes on from records before it, which ended "
                "with an earlier process; a new stream of noise is not in the plan"
            )
        return found


@kept_whole
@dataclass
class _DrawnCohort:
    """The newest cohort, until its sum is asked for: `number` is that of its charge, which keys the noise too."""

    id: int
    query: Query
    number: int
    members: frozenset[str] | None = None


class CuratorRule(Rule):
    """Sums over the updates of clients, with noise of the curator's own.

    Of the cohorts that it draws it knows the newest alone, and none after a restart: a sum that was not asked for by
    then stays charged, and is lost.
    """

    changing = ("_drawn",)

    def __init__(self, name: str, plan: Curator, objective: Objective, home: Home) -> None:
        if name != plan.name:
            raise SpecError(f"the plan is for the trusted server {plan.name!r}, found {name!r}")
        self._name, self._plan, self._home, self._dtype = name, plan, home, objective.dtype
        self._once = home.seed(name) is None  # then a second answer could be another one
        self._numbers, self._coins = numbers_in(home, name, "noise"), numbers_in(home, name, "sampling")
        self._drawn: _DrawnCohort | None = None
        of_clipped = Rounding.of_clipped_sum(objective)
        # All updates are added in float64, each clipped there before.
        self._rounding = replace(of_clipped, most=plan.cohort, piece=plan.cohort, dtype=np.dtype(np.float64))
        for kind in plan.kinds if plan.count_share else ():  # better now than when the clip has moved
            query = Query(kind.sampling, kind.mechanism, 1.0, plan.count_share)
            home.noise.provided(query, kind.size, lambda: self._rounding, any_clip=True)

    def due(self, task: Any, charged: int) -> Due:
        if isinstance(task, Cohort):
            return self._cohort_due(task)
        if not isinstance(task, CuratedSum):
            raise SpecError(f"{self._name} sums updates of clients, found {type(task).__name__}")
        self._check_members(task)
        self._check_query(task.query)
        kind = task.query.release(task.model.size)
        provided = self._home.noise.provided(task.query, task.model.size, lambda: self._rounding)
        if task.cohort is not None:
            return Due(None, True, provided)  # charged with its cohort
        if kind.sampling != WHOLE:
            raise SpecError(f"{self._name} adds all of a sum whose clients are public, found {task.query.sampling}")
        return Due(Receipt(kind, task.owners, task.query.mechanism.clip), self._once, provided)

    def _cohort_due(self, task: Cohort) -> Due:
        self._check_query(task.query)
        if task.clients != len(self._plan.owners) or task.query.sampling == WHOLE:
            raise SpecError(
                f"{self._name} draws some of its {len(self._plan.owners)} clients, found {task.clients} and "
                f"{task.query.sampling}"
            )
        provided = self._home.noise.provided(task.query, task.model.size, lambda: self._rounding)
        receipt = Receipt(task.query.release(task.model.size), self._plan.owners, task.query.mechanism.clip)
        return Due(receipt, self._once, provided)

    def _check_members(self, task: CuratedSum) -> None:
        """Refuse sums of others than the clients, or than those that were drawn for it."""
        strangers = sorted(set(task.owners) - set(self._plan.owners))
        least = 1 if task.cohort is None else 0  # that nobody was drawn is not to be seen
        if strangers or not least <= len(task.owners) <= self._plan.cohort:
            raise SpecError(
                f"{self._name} sums the updates of {least} to {self._plan.cohort} of its own clients, found "
                f"{len(task.owners)}{', with ' + ', '.join(strangers) if strangers else ''}"
            )
        if task.cohort is None:
            return
        drawn = self._drawn
        if drawn is None or drawn.members is None or drawn.id != task.cohort:
            raise SpecError(f"{self._name} sums the newest cohort, once, after it was drawn; found {task.cohort}")
        if not drawn.members.issuperset(task.owners) or drawn.query != task.query:
            raise SpecError(f"{self._name} sums the cohort that was drawn, by its query, found others than those in it")

    def _check_query(self, query: Query) -> None:
        share = self._plan.count_share
        if query.count_share != share:
            raise SpecError(f"{self._name} counts updates for a share of {share:g} of each release, found {query}")
        if not share and query.mechanism.clip != self._plan.bound:
            raise SpecError(f"{self._name} adds up all of updates of length {self._plan.bound:g}, found {query}")

    def number(self, task: Cohort | CuratedSum, charged: int) -> int:
        if isinstance(task, Cohort):
            self._drawn = _DrawnCohort(task.id, task.query, charged)
        elif task.cohort is not None:
            assert self._drawn is not None, "a sum is due for a cohort that was drawn"
            charged, self._drawn = self._drawn.number, None
        return charged

    def release(self, ticket: Ticket, raw: None) -> SideAnswer:
        return self._cohort(ticket) if isinstance(ticket.task, Cohort) else self._sum(ticket)

    def _cohort(self, ticket: Ticket) -> SideAnswer:
        """The clients that were drawn, which nobody outside the scope is to learn."""
        task: Cohort = ticket.task
        found = task.query.sampling.draw(self._coins.at(ticket.number), task.clients)
        if self._drawn is not None and self._drawn.number == ticket.number:
            self._drawn.members = frozenset(self._plan.owners[place] for place in found)
        chosen = np.zeros(task.clients, task.dtype)
        chosen[found] = 1
        return SideAnswer(Confined(chosen))

    def _sum(self, ticket: Ticket) -> SideAnswer:
        """The sum of updates with noise, divided by what is public; with how many of them counted as 0."""
        task: CuratedSum = ticket.task
        size, bound = task.model.size, task.query.mechanism.clip
        total, count, refused = np.zeros(size), 0.0, 0
        for _, update in task.updates:
            found = checked(np.asarray(update.values), bound)
            if found is None:
                refused += 1
            else:
                total, count = total + found, count + vote(found, bound)
        answer = self._home.noise.noisy(total, count, task.query, ticket.provided, self._numbers, ticket.number)
        answer /= task.query.normaliser
        answer[:size] /= task.query.unit
        return SideAnswer(Released(saturated(answer, self._dtype)), too_long=refused)


def checked(update: FloatArray, bound: float) -> FloatArray | None:
    """``update`` [size] in float64, no longer than ``bound``; None if it is longer by more than rounding explains."""
    whole = update.astype(np.float64)
    with np.errstate(over="ignore"):
        norm = float(np.linalg.norm(whole))
    if not norm <= bound * (1 + SLACK):  # also one that is not a number
        return None
    return whole * (bound / norm) if norm > bound else whole


def vote(update: FloatArray, bound: float) -> float:
    """Vote of a `checked` update [size]: 1/2 below ``bound``, -1/2 at it.

    An update of 0 counts 0: blanking a client's data is to take away all that it has in a release.
    """
    norm = float(np.linalg.norm(update))
    if norm == 0:
        return 0.0
    return 0.5 if norm < bound * (1 - SLACK) else -0.5
