"""Charges of one run to one data set, in the file of a ledger: the tables, the plan and the filters.

`storage.ledger` says what they mean. Kinds of releases are bytes here, and what is asked and what is written are one
transaction, so that runs which charge at the same time see each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import gossamer.privacy.tasks  # noqa: F401  gives mechanisms and sampling schemes their encodings
from gossamer.errors import BudgetSpent, SpecError
from gossamer.numbers import real_number, whole_number
from gossamer.privacy.accounting.accountants import renyi_divergence
from gossamer.privacy.accounting.filters import NOTHING_PROVED, EitherFilter, FilterEntry, FilterTotal
from gossamer.privacy.accounting.gaussian_fit import release_mu
from gossamer.privacy.accounting.series import RunSeries
from gossamer.privacy.guarantees import rounded_up
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.protocol.encoding import decode, encode
from gossamer.runtimes.storage import (
    contents as storage_contents,
)
from gossamer.runtimes.storage import (
    receipts as storage_receipts,
)
from gossamer.runtimes.storage.file import File, Format

Place = tuple[str, int, int]
"""The name of a series, the number of one of its plans, and how many runs that has."""
_UNPLANNED = encode(None)


class Cost(NamedTuple):
    """The price of something, in each of the two filters.

    Attributes
    ----------
    divergence : float
        Divergence at the order of the Renyi filter.
    entry : FilterEntry
        Entry of the Gaussian one.
    """

    divergence: float
    entry: FilterEntry = FilterEntry(math.inf)


PAID = Cost(0.0, FilterEntry(0.0))
"""Of what was paid for before."""


@dataclass(frozen=True)
class Asking:
    """The request with which a run is opened.

    Attributes
    ----------
    plan : mapping of bytes to int, or None
        Releases by kind, or none for a run without a plan.
    divergence : float
        Divergence of the whole plan.
    entry : callable
        Function of what the whole plan enters a Gaussian filter with, after what that has.
    places : sequence of Place
        Places where it would be in a series.
    """

    plan: Mapping[bytes, int] | None
    divergence: float
    entry: Callable[[FilterTotal], FilterEntry]
    places: Sequence[Place] = ()

    @property
    def written(self) -> bytes:
        """The plan; the order in which its kinds are listed does not matter."""
        return _UNPLANNED if self.plan is None else encode(tuple(sorted(self.plan.items())))


def asking_of(budget: EitherFilter, plan: Counts, divergence: float | None) -> Asking:
    """A plan of releases; what it enters a Gaussian filter with is found when it is needed."""
    written = {encoded(kind): number for kind, number in plan.items()}
    if divergence is not None:
        return asking_given(written, divergence, FilterEntry(0.0) if divergence == 0 else NOTHING_PROVED)

    def entry(total: FilterTotal) -> FilterEntry:
        # A budget without end admits what nothing is proved about, too.
        return NOTHING_PROVED if budget.epsilon == math.inf else budget.gaussian.entry(plan, total)

    return Asking(written, known(budget.renyi.spent(plan)), entry, _places(plan, budget))


def _places(plan: Counts, budget: EitherFilter) -> list[Place]:
    """Places that a run of ``plan`` would have in the series of a budget, in their order."""
    listed = [(one.name, number, fixed) for one in budget.series for number, fixed in enumerate(one.plans)]
    return [(name, number, fixed.runs) for name, number, fixed in listed if plan and fixed.fits(plan)]


def asking_given(plan: dict[bytes, int], divergence: float, entry: FilterEntry) -> Asking:
    """A plan whose costs are known."""
    entered = FilterEntry(known(entry.mu, "a mu"), known(entry.failure, "a failure"))
    if not entered.failure < 1:
        raise SpecError(f"a failure is a probability below 1, found {entry.failure!r}")
    return Asking(plan, known(divergence), lambda total: entered)


def release_cost(kind: ReleaseKind, budget: EitherFilter) -> Cost:
    """The price of one release that is in no plan."""
    divergence = known(renyi_divergence(kind, budget.order, budget.relation))
    return Cost(divergence, FilterEntry(release_mu(kind, budget.relation)))


def whole(number: int, what: str) -> int:
    """``number``, if it is a whole one, 0 or more."""
    found = whole_number(number)
    if found is None:
        raise SpecError(f"a ledger is opened for a whole number of {what}, 0 or more, found {number!r}")
    return found


def known(value: Any, what: str = "a divergence") -> float:
    """``value``, if it is one, of the type that files keep as a number."""
    number = real_number(value)
    if not number >= 0:
        raise SpecError(f"{what} is a number, 0 or more (infinite without noise), found {value!r}")
    return number


_CASTS: dict[Any, Any] = {"float": float, "int": int}  # by the names of types in annotations


@lru_cache(maxsize=1024)
def encoded(kind: ReleaseKind) -> bytes:
    """Kinds that are equal, such as of a clip 1 and a clip 1.0, are the same bytes: one count for both."""
    parts = (_cast(kind.mechanism), _cast(kind.sampling), int(kind.size))
    return encode(parts)


def _cast(part: Any) -> Any:
    """A mechanism or a sampling scheme with numbers of the types that it declares."""
    casts = {field.name: _CASTS[field.type] for field in fields(part) if field.type in _CASTS}
    return replace(part, **{name: cast(getattr(part, name)) for name, cast in casts.items()})


@lru_cache(maxsize=1024)
def decoded(kind: bytes) -> ReleaseKind:
    """The kind behind `encoded`."""
    return ReleaseKind(*decode(kind))


_LOWERED = "if that is lost, lower the policy's epsilon by what runs were charged since the copy that you have"
FORMAT = Format(
    what="the ledger",
    identifier=int.from_bytes(b"GSML"),
    version=6,
    tables=(
        "CREATE TABLE data_set (name TEXT PRIMARY KEY, renyi_order REAL NOT NULL, relation TEXT NOT NULL, "
        "series BLOB NOT NULL)",
        # `divergence`, `mu` and `failure` are of the whole plan; a run without a plan, or in a series, has spent none.
        "CREATE TABLE run (data_set TEXT NOT NULL, name TEXT NOT NULL, plan BLOB NOT NULL, divergence REAL NOT NULL, "
        "mu REAL NOT NULL, failure REAL NOT NULL, series TEXT, place INTEGER, PRIMARY KEY (data_set, name))",
        # `divergence` and `mu` are of one release, which a plan has already paid for.
        "CREATE TABLE charge (data_set TEXT NOT NULL, run TEXT NOT NULL, kind BLOB NOT NULL, divergence REAL NOT NULL, "
        "mu REAL NOT NULL, releases INTEGER NOT NULL, PRIMARY KEY (data_set, run, kind))",
        *storage_contents.TABLES,
        *storage_receipts.TABLES,
    ),
    damaged=f"see to its disk, and put the newest copy of it and of its key back; {_LOWERED}",
    older=f"put the newest one back; {_LOWERED}, delete the file that knows of it and go on",
)
_RELEASE = (
    "INSERT INTO charge VALUES (?, ?, ?, ?, ?, 1) "
    "ON CONFLICT (data_set, run, kind) DO UPDATE SET releases = releases + 1"
)
_ROUNDING = 1 + 1e-9
"""Versions of numerical packages may differ in the last digits of one and the same divergence."""


@dataclass(frozen=True)
class Account:
    """Account of what one run charges to one data set.

    Attributes
    ----------
    file : File
        File of `FORMAT`.
    owner : str
        Name in messages: the node.
    data_set, run : str
        Names.
    budget : EitherFilter
        Budget for everything ever released from the data set.
    """

    file: File
    owner: str
    data_set: str
    run: str
    budget: EitherFilter

    def open(self, asking: Asking) -> None:
        """Enter the run, with what its plan costs; or find it again.

        Raises
        ------
        BudgetSpent
            If the plan does not fit into what is left.
        SpecError
            If the data set was opened for another order, relation or series, or the run with another plan, or with one
            that reveals less.
        """
        entry = self._entry(asking)  # it may take seconds, and others wait for a transaction
        with self.file.transaction():
            if not check_filter(self.file, self.data_set, self.budget):
                budget = self.budget
                row = self.data_set, float(budget.order), str(budget.relation), encode(_plain(budget.series))
                self.file.execute("INSERT INTO data_set VALUES (?, ?, ?, ?)", *row)
            if (known := self._find(asking)) is not None:
                # An owner who has lowered the budget since has the run refused.
                if asking.plan is not None and known.series is None:
                    self._require(PAID, f"the plan of run {self.run!r}")
                return
            place = self._free_place(asking)
            if place is not None:
                self._insert(asking, 0.0, FilterEntry(0.0), *place[:2])
                return
            if entry is None:  # another run has taken the place
                entry = asking.entry(total_of(self.file, self.data_set))
            if asking.plan is not None:
                self._require(Cost(asking.divergence, entry), f"the plan of run {self.run!r}")
            self._insert(asking, asking.divergence, entry)

    def counts(self) -> dict[bytes, int]:
        """Number of releases that the run has been charged, by kind."""
        statement = "SELECT kind, releases FROM charge WHERE data_set = ? AND run = ? ORDER BY rowid"
        return dict(self.file.rows(statement, self.data_set, self.run))

    def charge(self, kind: bytes, what: str, cost: Cost, refusal: Callable[[int], str | None] | None) -> int:
        """Charge one release, durably; how many of its kind the run has charged now.

        Parameters
        ----------
        kind : bytes
            Kind of release.
        what : str
            The same in words.
        cost : Cost
            Cost of one release; `PAID` within a plan.
        refusal : callable, optional
            Function of what a plan says against one more after so many; without a plan, the filter decides.

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
                self._require(cost, what)
            elif (reason := refusal(before)) is not None:
                raise BudgetSpent(f"{self.owner}: release refused: {reason} ({what})")
            self.file.execute(_RELEASE, *where, cost.divergence, cost.entry.mu)
        return before + 1

    def _entry(self, asking: Asking) -> FilterEntry | None:
        """Entry that the plan of a new run is counted with; None where it needs none."""
        if self._find(asking) is not None or self._free_place(asking) is not None:
            return None
        return asking.entry(total_of(self.file, self.data_set))

    def _find(self, asking: Asking) -> _Known | None:
        """Return the run with this plan, if it is there."""
        statement = "SELECT plan, divergence, series FROM run WHERE data_set = ? AND name = ?"
        found = self.file.rows(statement, self.data_set, self.run)
        if not found:
            return None
        known = _Known(*found[0])
        paid = known.divergence
        if known.series is not None:
            paid = math.inf if asking.divergence < math.inf else 0.0  # its series has paid for its kinds
        # What was paid is the divergence: the same noise on what moves further is another plan.
        if known.plan != asking.written or asking.divergence > paid * _ROUNDING:
            raise SpecError(
                f"{self.owner}: run {self.run!r} was opened on data set {self.data_set!r} with another plan, "
                "which is fixed, an agent's with its spec, server and state folder; go on with that one, or give "
                "the run another name"
            )
        return known

    def _free_place(self, asking: Asking) -> Place | None:
        """The first place of the plan in a series that has a run left."""
        statement = "SELECT COUNT(*) FROM run WHERE data_set = ? AND series = ? AND place = ?"
        free = (place for place in asking.places if self._one(statement, *place[:2]) < place[2])
        return next(free, None)

    def _one(self, statement: str, *values: Any) -> int:
        found: int = self.file.rows(statement, self.data_set, *values)[0][0]
        return found

    def _insert(
        self, asking: Asking, divergence: float, entry: FilterEntry, series: str | None = None, place: int | None = None
    ) -> None:
        row = self.data_set, self.run, asking.written, divergence, *entry, series, place
        self.file.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)

    def _require(self, more: Cost, what: str) -> None:
        """Refuse what does not fit into the budget."""
        spent = spent_on(self.file, self.data_set)
        total = total_of(self.file, self.data_set)
        divergence, then = spent + more.divergence, total.plus(more.entry)
        if self.budget.covers(divergence, then):
            return
        needed = self.budget.needed(divergence, then)
        take = f"epsilon {rounded_up(needed)} at the same delta" if needed < math.inf else "more than any"
        aside = f", of which {self.budget.set_aside:g} is set aside" if self.budget.series else ""
        raise BudgetSpent(
            f"{self.owner}: release refused: data set {self.data_set!r} has spent "
            f"{_shares(self.budget, spent, total)}, and {what} fits into the rest of neither; it would take {take}, "
            f"and the budget is {self.budget.epsilon:g}{aside}"
        )


class _Known(NamedTuple):
    plan: bytes
    divergence: float
    series: str | None


def check_filter(file: File, data_set: str, budget: EitherFilter) -> bool:
    """Whether a data set's filter is fixed; it is when the data set is first opened.

    Series are fixed at the same time: a part of a budget that was set aside later might have been spent.

    Raises
    ------
    SpecError
        If it is another one than that of ``budget``.
    """
    found = file.rows("SELECT renyi_order, relation FROM data_set WHERE name = ?", data_set)
    if not found:
        return False
    (order, relation), mine = found[0], (float(budget.order), str(budget.relation))
    if (order, relation) != mine:
        raise SpecError(
            f"data set {data_set!r} is accounted for at order {order:g} under {relation}, found order {mine[0]:g} "
            f"under {mine[1]}; a filter's order and relation never change"
        )
    series = series_of(file, data_set)
    if _plain(series) != _plain(budget.series):
        raise SpecError(
            f"data set {data_set!r} was begun with {_listed(series)}, found {_listed(budget.series)}; what is set "
            "aside never changes"
        )
    return True


def _plain(series: Sequence[RunSeries]) -> tuple[object, ...]:
    return tuple(sorted(one.plain() for one in series))


def _listed(series: Sequence[RunSeries]) -> str:
    return ", ".join(f"series {one.plain()!r}" for one in series) or "no series"


def _shares(budget: EitherFilter, divergence: float, total: FilterTotal) -> str:
    renyi, gaussian = budget.shares(divergence, total)
    return f"{100 * renyi:.0f} % of its budget as Renyi divergence and {100 * gaussian:.0f} % as Gaussian privacy"


class Spent(NamedTuple):
    """Amount that one run has spent of one data set.

    Attributes
    ----------
    run : str
        The name.
    divergence : float
        Divergence at the filter's order: of its plan, or of its releases if it has none; 0 in a series.
    releases : int
        Number of releases that it has charged, of all kinds.
    mu : float
        Parameter of Gaussian differential privacy, but for ``failure``; 0 in a series.
    failure : float
        The probability.
    series : str or None
        The name of its series, if it is in one.
    """

    run: str
    divergence: float
    releases: int
    mu: float
    failure: float
    series: str | None


def disagreement(file: File) -> str | None:
    """Say what the two filters and the receipts do not agree on, of what has been charged; None where they do."""
    for (run,) in file.rows("SELECT name FROM run WHERE divergence > 0 AND mu = 0 AND failure = 0"):
        return f"one filter has counted run {run!r} and the other has not"
    for chain, noted in storage_receipts.noted_in(file).items():
        # What a server releases of others' data is kept by the run alone.
        where = "SELECT IFNULL(SUM(releases), 0) FROM charge WHERE run IN (?, ?)"
        ((charged,),) = file.rows(where, chain, chain.rpartition("/")[0])
        if charged != noted:
            return f"it has {charged} releases of {chain}, and receipts of {noted}"
    return None


def runs_on(file: File, data_set: str) -> list[Spent]:
    """List what each run has spent, in the order in which they were opened."""
    statement = (
        "SELECT name, run.divergence + IFNULL(SUM(releases * charge.divergence), 0.0), IFNULL(SUM(releases), 0), "
        "run.mu * run.mu + IFNULL(SUM(releases * charge.mu * charge.mu), 0.0), failure, series FROM run "
        "LEFT JOIN charge ON charge.data_set = run.data_set AND charge.run = run.name "
        "WHERE run.data_set = ? GROUP BY name ORDER BY run.rowid"
    )
    return [
        Spent(name, divergence, releases, math.sqrt(squared), failure, series)
        for name, divergence, releases, squared, failure, series in file.rows(statement, data_set)
    ]


def spent_on(file: File, data_set: str) -> float:
    """The divergence at the filter's order of all plans on ``data_set``, and of all releases without one."""
    plans = file.rows("SELECT divergence FROM run WHERE data_set = ?", data_set)
    statement = "SELECT releases * divergence FROM charge WHERE data_set = ?"
    return math.fsum(divergence for (divergence,) in [*plans, *file.rows(statement, data_set)])


def total_of(file: File, data_set: str) -> FilterTotal:
    """The same as Gaussian differential privacy, but for failures."""
    plans = file.rows("SELECT mu, failure FROM run WHERE data_set = ?", data_set)
    charges = file.rows("SELECT mu, releases FROM charge WHERE data_set = ?", data_set)
    return FilterTotal.of([*plans, *((mu * math.sqrt(releases), 0.0) for mu, releases in charges)])


def series_of(file: File, data_set: str) -> tuple[RunSeries, ...]:
    """Series that were set aside of a data set."""
    found = file.rows("SELECT series FROM data_set WHERE name = ?", data_set)
    return tuple(map(RunSeries.of, decode(found[0][0]))) if found else ()


def runs_in(file: File, data_set: str, series: str) -> int:
    """Number of runs of a series that were begun."""
    found: int = file.rows("SELECT COUNT(*) FROM run WHERE data_set = ? AND series = ?", data_set, series)[0][0]
    return found
