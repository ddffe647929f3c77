"""What one run charges to one data set, in the file of a ledger: the tables, the plan and the filter.

`storage_ledger` says what they mean. Kinds of releases are bytes here, and what is asked and what is written are one
transaction, so that runs which charge at the same time see each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gossamer.errors import BudgetSpent, SpecError
from gossamer.privacy.accountants import renyi_epsilon, renyi_level
from gossamer.privacy.guarantees import rounded_up
from gossamer.privacy.ledger import RenyiFilter
from gossamer.protocol.encoding import encode
from gossamer.runtimes import storage_contents
from gossamer.runtimes.storage_file import File, Format

FORMAT = Format(
    what="the ledger",
    identifier=int.from_bytes(b"GSML"),
    version=1,
    tables=(
        "CREATE TABLE data_set (name TEXT PRIMARY KEY, renyi_order REAL NOT NULL, relation TEXT NOT NULL)",
        # `divergence` is that of the whole plan; a run without a plan has none of its own.
        "CREATE TABLE run (data_set TEXT NOT NULL, name TEXT NOT NULL, plan BLOB NOT NULL, divergence REAL NOT NULL, "
        "PRIMARY KEY (data_set, name))",
        # `divergence` is that of one release, which a plan has already paid for.
        "CREATE TABLE charge (data_set TEXT NOT NULL, run TEXT NOT NULL, kind BLOB NOT NULL, "
        "divergence REAL NOT NULL, releases INTEGER NOT NULL, PRIMARY KEY (data_set, run, kind))",
        *storage_contents.TABLES,
    ),
)
_UNPLANNED = encode(None)
_ROUNDING = 1 + 1e-9
"""Versions of numerical packages may differ in the last digits of one and the same divergence."""


@dataclass(frozen=True)
class Account:
    """What one run charges to one data set.

    Attributes
    ----------
    file : File
        Of `FORMAT`.
    owner : str
        In messages: the node.
    data_set, run : str
        Names.
    budget : RenyiFilter
        For everything ever released from the data set.
    """

    file: File
    owner: str
    data_set: str
    run: str
    budget: RenyiFilter

    def open(self, plan: Mapping[bytes, int] | None, divergence: float) -> None:
        """Enter the run, with the divergence of its plan; or find it again.

        Raises
        ------
        BudgetSpent
            If the plan does not fit into what is left.
        SpecError
            If the data set was opened for another order or relation, or the run with another plan, or with one that
            reveals less.
        """
        # The order in which a plan's kinds are listed does not matter.
        written = _UNPLANNED if plan is None else encode(tuple(sorted(plan.items())))
        with self.file.transaction():
            self._check_filter()
            statement = "SELECT plan, divergence FROM run WHERE data_set = ? AND name = ?"
            known = self.file.rows(statement, self.data_set, self.run)
            # What was paid is the divergence: the same noise on what moves further is another plan.
            if known and (known[0][0] != written or divergence > known[0][1] * _ROUNDING):
                raise SpecError(
                    f"{self.owner}: run {self.run!r} was opened on data set {self.data_set!r} with another plan, "
                    "which is fixed, an agent's with its spec, server and state folder; go on with that one, or give "
                    "the run another name"
                )
            if plan is not None:
                # An owner who has lowered the budget since has the run refused.
                self._require(0.0 if known else divergence, f"the plan of run {self.run!r}")
            if not known:
                row = self.data_set, self.run, written, divergence
                self.file.execute("INSERT INTO run VALUES (?, ?, ?, ?)", *row)

    def counts(self) -> dict[bytes, int]:
        """What the run has charged, by kind."""
        statement = "SELECT kind, releases FROM charge WHERE data_set = ? AND run = ? ORDER BY rowid"
        return dict(self.file.rows(statement, self.data_set, self.run))

    def charge(self, kind: bytes, what: str, divergence: float, refusal: Callable[[int], str | None] | None) -> int:
        """Charge one release, durably; how many of its kind the run has charged now.

        Parameters
        ----------
        kind : bytes
            What is released.
        what : str
            The same in words.
        divergence : float
            Of one release.
        refusal : callable, optional
            What a plan says against one more after so many; without a plan, the filter decides.

        Raises
        ------
        BudgetSpent
            If it is not covered; nothing is charged.
        """
        where = self.data_set, self.run, kind
        with self.file.transaction():
            found = "SELECT releases FROM charge WHERE data_set = ? AND run = ? AND kind = ?"
            before: int = sum(releases for (releases,) in self.file.rows(found, *where))
            if refusal is None:
                self._require(divergence, what)
            elif (reason := refusal(before)) is not None:
                raise BudgetSpent(f"{self.owner}: release refused: {reason} ({what})")
            self.file.execute(
                "INSERT INTO charge VALUES (?, ?, ?, ?, 1) "
                "ON CONFLICT (data_set, run, kind) DO UPDATE SET releases = releases + 1",
                *where,
                divergence,
            )
        return before + 1

    def _check_filter(self) -> None:
        """The order and the relation of a data set's filter are fixed before anything is released."""
        mine = float(self.budget.order), str(self.budget.relation)
        found = self.file.rows("SELECT renyi_order, relation FROM data_set WHERE name = ?", self.data_set)
        if found and found[0] != mine:
            raise SpecError(
                f"{self.owner}: data set {self.data_set!r} is accounted for at order {found[0][0]:g} under "
                f"{found[0][1]}, found order {mine[0]:g} under {mine[1]}; a filter's order and relation never change"
            )
        if not found:
            self.file.execute("INSERT INTO data_set VALUES (?, ?, ?)", self.data_set, *mine)

    def _require(self, more: float, what: str) -> None:
        """Refuse what does not fit into the budget."""
        budget, spent = self.budget, spent_on(self.file, self.data_set)
        level = math.inf
        if budget.epsilon < math.inf:
            level = renyi_level(budget.order, budget.epsilon, budget.delta)
        if not spent + more <= level:
            raise BudgetSpent(
                f"{self.owner}: release refused: data set {self.data_set!r} has spent divergence {spent:.4g} at order "
                f"{budget.order:g}, {more:.4g} more exceed {level:.4g}, the budget's level ({what}); it would take "
                f"epsilon {rounded_up(renyi_epsilon(budget.order, spent + more, budget.delta))} at delta "
                f"{budget.delta:g}, and the budget is {budget.epsilon:g}"
            )


class Spent(NamedTuple):
    """What one run has spent of one data set.

    Attributes
    ----------
    run : str
        Its name.
    divergence : float
        At the filter's order: of its plan, or of its releases if it has none.
    releases : int
        How many it has charged, of all kinds.
    """

    run: str
    divergence: float
    releases: int


def runs_on(file: File, data_set: str) -> list[Spent]:
    """What each run has spent, in the order in which they were opened."""
    statement = (
        "SELECT run.name, run.divergence + IFNULL(SUM(charge.releases * charge.divergence), 0.0), "
        "IFNULL(SUM(charge.releases), 0) FROM run LEFT JOIN charge "
        "ON charge.data_set = run.data_set AND charge.run = run.name "
        "WHERE run.data_set = ? GROUP BY run.name ORDER BY run.rowid"
    )
    return [Spent(*row) for row in file.rows(statement, data_set)]


def spent_on(file: File, data_set: str) -> float:
    """The divergence at the filter's order of all plans on ``data_set``, and of all releases without one."""
    plans = file.rows("SELECT divergence FROM run WHERE data_set = ?", data_set)
    statement = "SELECT releases * divergence FROM charge WHERE data_set = ?"
    return math.fsum(divergence for (divergence,) in [*plans, *file.rows(statement, data_set)])
