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
from gossamer.privacy.accounting.accountants import renyi_divergence, renyi_epsilon
from gossamer.privacy.accounting.filters import NOTHING_PROVED, EitherFilter, Entry, Total
from gossamer.privacy.accounting.gaussian_fit import release_mu
from gossamer.privacy.accounting.ledger import RenyiFilter
from gossamer.privacy.accounting.series import Series
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

# Spending of data sets that are kept by two filters, in the file of a ledger: entries, and places in series.
#
# A data set is kept either way from its first run on. One that was begun when there was one filter goes on with it, at
# all of delta. Series are fixed at the same time: a part of a budget that was set aside later might have been spent.

Budget = RenyiFilter | EitherFilter
"""Of a data set."""
Place = tuple[str, int, int]
"""The name of a series, the number of one of its plans, and how many runs that has."""

TABLES = (
    "CREATE TABLE either_filter (data_set TEXT PRIMARY KEY, series BLOB NOT NULL)",
    # Of the whole plan; of a run without a plan both are 0.
    "CREATE TABLE gaussian_run (data_set TEXT NOT NULL, run TEXT NOT NULL, mu REAL NOT NULL, failure REAL NOT NULL, "
    "PRIMARY KEY (data_set, run))",
    # Of one release without a plan.
    "CREATE TABLE gaussian_charge (data_set TEXT NOT NULL, run TEXT NOT NULL, kind BLOB NOT NULL, mu REAL NOT NULL, "
    "PRIMARY KEY (data_set, run, kind))",
    "CREATE TABLE series_run (data_set TEXT NOT NULL, run TEXT NOT NULL, series TEXT NOT NULL, plan INTEGER NOT NULL, "
    "PRIMARY KEY (data_set, run))",
)


def series_of(file: File, data_set: str) -> tuple[Series, ...] | None:
    """Series set aside of a data set that is kept by two filters; None of any other."""
    found = file.rows("SELECT series FROM either_filter WHERE data_set = ?", data_set)
    return tuple(map(Series.of, decode(found[0][0]))) if found else None


def is_begun(file: File, data_set: str) -> bool:
    """Whether the filter of a data set is fixed."""
    return bool(file.rows("SELECT 1 FROM data_set WHERE name = ?", data_set))


def kept_by(file: File, data_set: str, budget: Budget) -> Budget:
    """The filter that keeps a data set: ``budget``, or its Renyi filter alone if the data set was begun with that.

    Raises
    ------
    SpecError
        If the data set was begun in a way that does not go with ``budget``.
    """
    if not is_begun(file, data_set):
        return budget
    _require_order(file, data_set, budget)
    series = series_of(file, data_set)
    if series is None:
        if isinstance(budget, RenyiFilter):
            return budget
        if budget.series:
            raise SpecError(
                f"data set {data_set!r} was begun before anything was set aside, so nothing can be; leave series out"
            )
        return RenyiFilter(budget.epsilon, budget.delta, budget.relation, budget.order)
    if isinstance(budget, RenyiFilter):
        raise SpecError(
            f"data set {data_set!r} is kept by two filters, found a Renyi filter alone; use an EitherFilter"
        )
    if _plain(series) != _plain(budget.series):
        raise SpecError(
            f"data set {data_set!r} was begun with {_listed(series)}, found {_listed(budget.series)}; what is set "
            "aside never changes"
        )
    return budget


def _require_order(file: File, data_set: str, budget: Budget) -> None:
    mine = float(budget.order), str(budget.relation)
    found = file.rows("SELECT renyi_order, relation FROM data_set WHERE name = ?", data_set)[0]
    if found != mine:
        raise SpecError(
            f"data set {data_set!r} is accounted for at order {found[0]:g} under {found[1]}, found order {mine[0]:g} "
            f"under {mine[1]}; a filter's order and relation never change"
        )


def begin(file: File, data_set: str, budget: Budget) -> None:
    """Keep a data set that is new by a filter; inside a transaction."""
    file.execute("INSERT INTO data_set VALUES (?, ?, ?)", data_set, float(budget.order), str(budget.relation))
    if isinstance(budget, EitherFilter):
        file.execute("INSERT INTO either_filter VALUES (?, ?)", data_set, encode(_plain(budget.series)))


def total_of(file: File, data_set: str) -> Total:
    """The sums of all entries of a data set, of plans and of releases without one."""
    runs = file.rows("SELECT mu, failure FROM gaussian_run WHERE data_set = ?", data_set)
    statement = (
        "SELECT gaussian_charge.mu, charge.releases FROM gaussian_charge JOIN charge USING (data_set, run, kind) "
        "WHERE data_set = ?"
    )
    charged = [(mu * math.sqrt(releases), 0.0) for mu, releases in file.rows(statement, data_set)]
    return Total.of([*runs, *charged])


def enter(file: File, data_set: str, run: str, entry: Entry) -> None:
    """Enter the plan of a run; inside a transaction."""
    file.execute("INSERT INTO gaussian_run VALUES (?, ?, ?, ?)", data_set, run, *entry)


def enter_release(file: File, data_set: str, run: str, kind: bytes, mu: float) -> None:
    """Enter a release without a plan, which is counted with its charges; inside a transaction."""
    statement = "INSERT INTO gaussian_charge VALUES (?, ?, ?, ?) ON CONFLICT (data_set, run, kind) DO NOTHING"
    file.execute(statement, data_set, run, kind, mu)


def places_for(plan: Counts, budget: Budget) -> list[Place]:
    """Places that a run of ``plan`` would have in the series of a budget, in their order."""
    if isinstance(budget, RenyiFilter) or not plan:
        return []
    listed = [(one.name, number, fixed) for one in budget.series for number, fixed in enumerate(one.plans)]
    return [(name, number, fixed.runs) for name, number, fixed in listed if fixed.fits(plan)]


def free_place(file: File, data_set: str, places: Sequence[Place]) -> Place | None:
    """The first of ``places`` that has a run left."""
    statement = "SELECT COUNT(*) FROM series_run WHERE data_set = ? AND series = ? AND plan = ?"
    return next((place for place in places if file.rows(statement, data_set, *place[:2])[0][0] < place[2]), None)


def take(file: File, data_set: str, run: str, place: Place) -> None:
    """Make a run one of a series; inside a transaction."""
    file.execute("INSERT INTO series_run VALUES (?, ?, ?, ?)", data_set, run, *place[:2])


def is_in_series(file: File, data_set: str, run: str) -> bool:
    """Whether a run has a place in a series."""
    return bool(file.rows("SELECT 1 FROM series_run WHERE data_set = ? AND run = ?", data_set, run))


def runs_in(file: File, data_set: str, series: str) -> int:
    """Number of runs of a series that were begun."""
    statement = "SELECT COUNT(*) FROM series_run WHERE data_set = ? AND series = ?"
    found: int = file.rows(statement, data_set, series)[0][0]
    return found


def _plain(series: tuple[Series, ...]) -> tuple[object, ...]:
    return tuple(sorted(one.plain() for one in series))


def _listed(series: tuple[Series, ...]) -> str:
    return ", ".join(f"series {one.plain()!r}" for one in series) or "no series"


# Requests of a ledger, and their costs: plans as bytes, and their prices in each filter.

_UNPLANNED = encode(None)


class Cost(NamedTuple):
    """The price of something, in each of the filters that may keep a data set.

    Attributes
    ----------
    divergence : float
        At the order of the Renyi filter.
    entry : Entry
        Of the Gaussian one.
    """

    divergence: float
    entry: Entry = Entry(math.inf)


PAID = Cost(0.0, Entry(0.0))
"""Of what was paid for before."""


@dataclass(frozen=True)
class Asking:
    """The request with which a run is opened.

    Attributes
    ----------
    plan : mapping of bytes to int, or None
        Releases by kind, or none for a run without a plan.
    divergence : float
        Of the whole plan.
    entry : callable
        What the whole plan enters a Gaussian filter with, after what that has.
    places : sequence of Place
        Where it would be in a series.
    """

    plan: Mapping[bytes, int] | None
    divergence: float
    entry: Callable[[Total], Entry]
    places: Sequence[Place] = ()

    @property
    def written(self) -> bytes:
        """The plan; the order in which its kinds are listed does not matter."""
        return _UNPLANNED if self.plan is None else encode(tuple(sorted(self.plan.items())))


def asking_of(budget: Budget, plan: Counts, divergence: float | None) -> Asking:
    """A plan of releases; what it enters a Gaussian filter with is found when it is needed."""
    written = {encoded(kind): number for kind, number in plan.items()}
    if divergence is not None:
        return asking_given(written, divergence, Entry(0.0) if divergence == 0 else NOTHING_PROVED)
    filters = budget if isinstance(budget, RenyiFilter) else budget.renyi

    def entry(total: Total) -> Entry:
        return NOTHING_PROVED if isinstance(budget, RenyiFilter) else budget.gaussian.entry(plan, total)

    return Asking(written, known(filters.spent(plan)), entry, places_for(plan, budget))


def asking_given(plan: dict[bytes, int], divergence: float, entry: Entry) -> Asking:
    """A plan whose costs are known."""
    entered = Entry(known(entry.mu, "a mu"), known(entry.failure, "a failure"))
    if not entered.failure < 1:
        raise SpecError(f"a failure is a probability below 1, found {entry.failure!r}")
    return Asking(plan, known(divergence), lambda total: entered)


def release_cost(kind: ReleaseKind, budget: Budget) -> Cost:
    """The price of one release that is in no plan."""
    divergence = known(renyi_divergence(kind, budget.order, budget.relation))
    return Cost(divergence, Entry(release_mu(kind, budget.relation)))


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
    version=5,
    tables=(
        "CREATE TABLE data_set (name TEXT PRIMARY KEY, renyi_order REAL NOT NULL, relation TEXT NOT NULL)",
        # `divergence` is that of the whole plan; a run without a plan, or in a series, has none of its own.
        "CREATE TABLE run (data_set TEXT NOT NULL, name TEXT NOT NULL, plan BLOB NOT NULL, divergence REAL NOT NULL, "
        "PRIMARY KEY (data_set, name))",
        # `divergence` is that of one release, which a plan has already paid for.
        "CREATE TABLE charge (data_set TEXT NOT NULL, run TEXT NOT NULL, kind BLOB NOT NULL, "
        "divergence REAL NOT NULL, releases INTEGER NOT NULL, PRIMARY KEY (data_set, run, kind))",
        *storage_contents.TABLES,
        *TABLES,
        *storage_receipts.TABLES,
    ),
    damaged=f"see to its disk, and put the newest copy of it and of its key back; {_LOWERED}",
    older=f"put the newest one back; {_LOWERED}, delete the file that knows of it and go on",
)
_RELEASE = (
    "INSERT INTO charge VALUES (?, ?, ?, ?, 1) ON CONFLICT (data_set, run, kind) DO UPDATE SET releases = releases + 1"
)
_ROUNDING = 1 + 1e-9
"""Versions of numerical packages may differ in the last digits of one and the same divergence."""


@dataclass(frozen=True)
class Account:
    """Account of what one run charges to one data set; made by `of`.

    Attributes
    ----------
    file : File
        Of `FORMAT`.
    owner : str
        In messages: the node.
    data_set, run : str
        Names.
    budget : RenyiFilter or EitherFilter
        For everything ever released from the data set.
    """

    file: File
    owner: str
    data_set: str
    run: str
    budget: Budget

    @classmethod
    def of(cls, file: File, owner: str, data_set: str, run: str, budget: Budget) -> Account:
        """The account, with the filter that keeps the data set.

        Raises
        ------
        SpecError
            If the data set was begun in a way that does not go with ``budget``.
        """
        return cls(file, owner, data_set, run, kept_by(file, data_set, budget))

    def open(self, asking: Asking) -> None:
        """Enter the run, with what its plan costs; or find it again.

        Raises
        ------
        BudgetSpent
            If the plan does not fit into what is left.
        SpecError
            If the data set was opened for another order or relation, or the run with another plan, or with one that
            reveals less.
        """
        entry = self._entry(asking)  # it may take seconds, and others wait for a transaction
        with self.file.transaction():
            self._check_filter()
            if self._find(asking):
                # An owner who has lowered the budget since has the run refused.
                if asking.plan is not None and not is_in_series(self.file, self.data_set, self.run):
                    self._require(PAID, f"the plan of run {self.run!r}")
                return
            place = free_place(self.file, self.data_set, asking.places)
            if place is not None:
                self._insert(asking, 0.0)
                take(self.file, self.data_set, self.run, place)
                return
            if entry is None:  # another run has taken the place
                entry = asking.entry(total_of(self.file, self.data_set))
            if asking.plan is not None:
                self._require(Cost(asking.divergence, entry), f"the plan of run {self.run!r}")
            self._insert(asking, asking.divergence)
            if isinstance(self.budget, EitherFilter):
                enter(self.file, self.data_set, self.run, entry)

    def counts(self) -> dict[bytes, int]:
        """Number of releases that the run has been charged, by kind."""
        statement = "SELECT kind, releases FROM charge WHERE data_set = ? AND run = ? ORDER BY rowid"
        return dict(self.file.rows(statement, self.data_set, self.run))

    def charge(self, kind: bytes, what: str, cost: Cost, refusal: Callable[[int], str | None] | None) -> int:
        """Charge one release, durably; how many of its kind the run has charged now.

        Parameters
        ----------
        kind : bytes
            What is released.
        what : str
            The same in words.
        cost : Cost
            Of one release; `PAID` within a plan.
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
                self._require(cost, what)
                if isinstance(self.budget, EitherFilter):
                    enter_release(self.file, *where, cost.entry.mu)
            elif (reason := refusal(before)) is not None:
                raise BudgetSpent(f"{self.owner}: release refused: {reason} ({what})")
            self.file.execute(_RELEASE, *where, cost.divergence)
        return before + 1

    def _entry(self, asking: Asking) -> Entry | None:
        """Entry that the plan of a new run is counted with; None where it needs none."""
        if isinstance(self.budget, RenyiFilter) or self._find(asking):
            return Entry(math.inf) if isinstance(self.budget, RenyiFilter) else None
        if free_place(self.file, self.data_set, asking.places) is not None:
            return None
        return asking.entry(total_of(self.file, self.data_set))

    def _find(self, asking: Asking) -> bool:
        """Whether the run is there, with this plan."""
        statement = "SELECT plan, divergence FROM run WHERE data_set = ? AND name = ?"
        known = self.file.rows(statement, self.data_set, self.run)
        if not known:
            return False
        paid = known[0][1]
        if is_in_series(self.file, self.data_set, self.run):
            paid = math.inf if asking.divergence < math.inf else 0.0  # its series has paid for its kinds
        # What was paid is the divergence: the same noise on what moves further is another plan.
        if known[0][0] != asking.written or asking.divergence > paid * _ROUNDING:
            raise SpecError(
                f"{self.owner}: run {self.run!r} was opened on data set {self.data_set!r} with another plan, "
                "which is fixed, an agent's with its spec, server and state folder; go on with that one, or give "
                "the run another name"
            )
        return True

    def _insert(self, asking: Asking, divergence: float) -> None:
        self.file.execute("INSERT INTO run VALUES (?, ?, ?, ?)", self.data_set, self.run, asking.written, divergence)

    def _check_filter(self) -> None:
        """A data set's filter is fixed before anything is released."""
        if not is_begun(self.file, self.data_set):
            begin(self.file, self.data_set, self.budget)
        elif kept_by(self.file, self.data_set, self.budget) != self.budget:
            raise SpecError(f"{self.owner}: data set {self.data_set!r} was just begun by another process; start again")

    def _require(self, more: Cost, what: str) -> None:
        """Refuse what does not fit into the budget."""
        spent = spent_on(self.file, self.data_set)
        if isinstance(self.budget, RenyiFilter):
            self._require_level(self.budget, spent, more.divergence, what)
            return
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

    def _require_level(self, budget: RenyiFilter, spent: float, more: float, what: str) -> None:
        if not spent + more <= budget.level:
            raise BudgetSpent(
                f"{self.owner}: release refused: data set {self.data_set!r} has spent divergence {spent:.4g} at order "
                f"{budget.order:g}, {more:.4g} more exceed {budget.level:.4g}, the budget's level ({what}); it would "
                f"take epsilon {rounded_up(renyi_epsilon(budget.order, spent + more, budget.delta))} at the "
                f"same delta, and the budget is {budget.epsilon:g}"
            )


def _shares(budget: EitherFilter, divergence: float, total: Total) -> str:
    renyi, gaussian = budget.shares(divergence, total)
    return f"{100 * renyi:.0f} % of its budget as Renyi divergence and {100 * gaussian:.0f} % as Gaussian privacy"


class Spent(NamedTuple):
    """Amount that one run has spent of one data set.

    Attributes
    ----------
    run : str
        Its name.
    divergence : float
        At the filter's order: of its plan, or of its releases if it has none; 0 in a series.
    releases : int
        How many it has charged, of all kinds.
    mu : float or None
        Of Gaussian differential privacy, but for ``failure``; None where the data set is kept by a Renyi filter alone.
    failure : float or None
        Its probability.
    series : str or None
        The name of its series, if it is in one.
    """

    run: str
    divergence: float
    releases: int
    mu: float | None = None
    failure: float | None = None
    series: str | None = None


def disagreement(file: File) -> str | None:
    """Say what the two filters and the receipts do not agree on, of what has been charged; None where they do."""
    entered = (
        "SELECT run.name FROM run JOIN either_filter USING (data_set) "
        "LEFT JOIN gaussian_run ON gaussian_run.data_set = run.data_set AND gaussian_run.run = run.name "
        "LEFT JOIN series_run ON series_run.data_set = run.data_set AND series_run.run = run.name "
        "WHERE (mu IS NULL) = (series_run.series IS NULL) OR (divergence > 0 AND mu = 0 AND failure = 0)"
    )
    for (run,) in file.rows(entered):
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
        "SELECT run.name, run.divergence + IFNULL(SUM(charge.releases * charge.divergence), 0.0), "
        "IFNULL(SUM(charge.releases), 0), gaussian_run.mu * gaussian_run.mu "
        "+ IFNULL(SUM(charge.releases * gaussian_charge.mu * gaussian_charge.mu), 0.0), gaussian_run.failure, "
        "series_run.series FROM run "
        "LEFT JOIN charge ON charge.data_set = run.data_set AND charge.run = run.name "
        "LEFT JOIN gaussian_charge ON gaussian_charge.data_set = charge.data_set "
        "AND gaussian_charge.run = charge.run AND gaussian_charge.kind = charge.kind "
        "LEFT JOIN gaussian_run ON gaussian_run.data_set = run.data_set AND gaussian_run.run = run.name "
        "LEFT JOIN series_run ON series_run.data_set = run.data_set AND series_run.run = run.name "
        "WHERE run.data_set = ? GROUP BY run.name ORDER BY run.rowid"
    )
    return [
        Spent(name, divergence, releases, None if squared is None else math.sqrt(squared), failure, series)
        for name, divergence, releases, squared, failure, series in file.rows(statement, data_set)
    ]


def spent_on(file: File, data_set: str) -> float:
    """The divergence at the filter's order of all plans on ``data_set``, and of all releases without one."""
    plans = file.rows("SELECT divergence FROM run WHERE data_set = ?", data_set)
    statement = "SELECT releases * divergence FROM charge WHERE data_set = ?"
    return math.fsum(divergence for (divergence,) in [*plans, *file.rows(statement, data_set)])
