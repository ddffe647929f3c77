"""The ledger of a data owner: what each data set has released, over all runs, on disk before the noise is drawn.

A run *opens* its part of the ledger under the name that the owner gave the data set, and then charges its releases:

| run | at opening | each release |
|---|---|---|
| with a plan that fits into a series | it takes a place in the series | has to be in the plan |
| with any other plan | what the whole plan reveals enters the filter, and stays | has to be in the plan |

The filter of a data set is an `EitherFilter`. Its order, its relation and its series are fixed when the data set is
first opened: runs are chosen adaptively, and what is proved then takes that these are not. Its epsilon and delta are
the owner's to change, for reasons that do not depend on what was released: what was spent stays spent, and what is
proved is the largest budget that ever applied.

A charge is committed, and only then returns; so a process that is killed has charged all that it released, and at most
one release more. Several runs, in several processes, may use one ledger at the same time.

Kinds of releases are bytes in the file, and what is asked and what is written are one transaction, so that runs which
charge at the same time see each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import gossamer.privacy.tasks  # noqa: F401  gives mechanisms and sampling schemes their encodings
from gossamer.errors import BudgetSpent, SpecError, real_number
from gossamer.privacy.accounting.filters import (
    NOTHING_PROVED,
    EitherFilter,
    FilterEntry,
    FilterTotal,
    ReleasePlan,
    RunSeries,
)
from gossamer.privacy.guarantees import rounded_up
from gossamer.privacy.mechanisms import Counts, NeighboringRelation, ReleaseKind, checked_counts
from gossamer.protocol.encoding import decode, encode
from gossamer.runtimes.storage.contents import Contents
from gossamer.runtimes.storage.file import File, Format, tables_of
from gossamer.runtimes.storage.receipts import StoredReceipts, Witnessed, noted_in, witnessed_in
from gossamer.sides.ledger import NO_CHARGES, Account, Kind, Ledger
from gossamer.sides.plan import SidePlan, Trust

Place = tuple[str, int, int]
"""The name of a series, the number of one of its plans, and how many runs that has."""


def admits_all(relation: NeighboringRelation) -> EitherFilter:
    """Return a budget without end: what it admits is counted, and no more."""
    return EitherFilter(math.inf, 0.5, relation, 16.0)


def stored_ledger(
    file: LedgerFile, name: str, data_set: str, run: str, budget: EitherFilter, plan: SidePlan, trust: Trust
) -> Ledger:
    """The durable ledger of one party, with all that its plan reveals in it; with what was charged, if it was there.

    What has no noise is counted in memory alone: nothing is proved of it, and nothing can be held to a plan.

    Parameters
    ----------
    file : LedgerFile
        The owner's.
    name : str
        The party.
    data_set, run, budget
        The same as for `LedgerFile.open`; each owner of a curator's sums has a data set of its own.
    plan : SidePlan
        Plan that is charged.
    trust : Trust
        Party whom the owner trusts.

    Raises
    ------
    BudgetSpent
        If the plan does not fit into what is left; nothing is charged.
    SpecError
        If the run was opened with another one, or the budget does not count what one
        example moves a whole client's update by.
    StorageError
        If it cannot be written.
    """
    charges = plan.charges() or NO_CHARGES

    def opened(part: str) -> DurableLedger:
        # What records of a stream reveal is in the ledgers of those whose data they hold.
        divergence = None if charges.account is Account.RELEASES else 0.0
        if charges.account is Account.SUMS:
            # A whole update moves as far as a replacement does, whatever relation the budget counts examples by.
            divergence = plan.revealed(trust).divergence(budget.order, NeighboringRelation.REPLACE_ONE)
        terms = b"" if charges.account is Account.SUMS else None
        where = f"{data_set} {part}" if part else data_set
        return file.open(name, where, run, budget, charges.kinds, divergence, NOTHING_PROVED, terms)

    return charges.stored(name, budget.relation, opened)


class _RunRequest(NamedTuple):
    """Request with which a run is opened.

    Attributes
    ----------
    plan : bytes
        Releases by kind; the order in which these are listed does not matter.
    divergence : float
        Divergence of the whole plan.
    entry : callable
        Function of what the whole plan enters a Gaussian filter with, after what that has.
    places : sequence of Place
        Places where it would be in a series.
    """

    plan: bytes
    divergence: float
    entry: Callable[[FilterTotal], FilterEntry]
    places: Sequence[Place] = ()


def _request(
    plan: Mapping[Any, int], budget: EitherFilter, divergence: float | None, entry: FilterEntry, terms: bytes | None
) -> _RunRequest:
    """A plan of releases, or one whose costs are known."""
    more = {} if terms is None else {encode(("terms", terms)): 0}
    written = encode(tuple(sorted({**{encoded(kind): number for kind, number in plan.items()}, **more}.items())))
    if divergence is None:

        def computed(total: FilterTotal) -> FilterEntry:  # when it is needed
            # A budget without end admits what nothing is proved about, too.
            return NOTHING_PROVED if budget.epsilon == math.inf else budget.gaussian.entry(plan, total)

        return _RunRequest(written, known(budget.renyi.spent(plan)), computed, _places(plan, budget))
    entered = FilterEntry(known(entry.mu, "a mu"), known(entry.failure, "a failure"))
    if not entered.failure < 1:
        raise SpecError(f"a failure is a probability below 1, found {entry.failure!r}")
    return _RunRequest(written, known(divergence), lambda total: entered)


def _places(plan: Counts, budget: EitherFilter) -> list[Place]:
    """Places that a run of ``plan`` would have in the series of a budget, in their order."""
    listed = [(one.name, number, fixed) for one in budget.series for number, fixed in enumerate(one.plans)]
    return [(name, number, fixed.runs) for name, number, fixed in listed if plan and fixed.fits(plan)]


def known(value: Any, what: str = "a divergence") -> float:
    """``value``, if it is one, of the type that files keep as a number."""
    number = real_number(value)
    if not number >= 0:
        raise SpecError(f"{what} is a number, 0 or more (infinite without noise), found {value!r}")
    return number


_CASTS: dict[Any, Any] = {"float": float, "int": int}  # by the names of types in annotations


@lru_cache(maxsize=1024)
def encoded(kind: Kind) -> bytes:
    """Kinds that are equal, such as of a clip 1 and a clip 1.0, are the same bytes: one count for both."""
    if not isinstance(kind, ReleaseKind):
        return encode(kind.describe())
    parts = (_cast(kind.mechanism), _cast(kind.sampling), int(kind.size))
    return encode(parts)


def _cast(part: Any) -> Any:
    """A mechanism or a sampling scheme with numbers of the types that it declares."""
    casts = {field.name: _CASTS[field.type] for field in fields(part) if field.type in _CASTS}
    return replace(part, **{name: cast(getattr(part, name)) for name, cast in casts.items()})


_LOWERED = "if that is lost, lower the policy's epsilon by what runs were charged since the copy that you have"
FORMAT = Format(
    what="the ledger",
    identifier=int.from_bytes(b"GSML"),
    version=9,
    tables=tables_of("ledger"),
    damaged=f"see to its disk, and put the newest copy of it and of its key back; {_LOWERED}",
    older=f"put the newest one back; {_LOWERED}, delete the file that knows of it and go on",
)
_RELEASE = (
    "INSERT INTO charge VALUES (?, ?, ?, 1) ON CONFLICT (data_set, run, kind) DO UPDATE SET releases = releases + 1"
)
_ROUNDING = 1 + 1e-9
"""Versions of numerical packages may differ in the last digits of one and the same divergence."""


class LedgerFile(File):
    """The ledgers of one owner's data sets, in a file that outlives runs.

    Attributes
    ----------
    contents : Contents
        Contents of the data sets.

    Parameters
    ----------
    path : str or Path
        Made if it does not exist. ``:memory:`` keeps it in memory, for tests of crashes in virtual time: what was
        charged stays there as long as this object.
    key : bytes, optional
        The secret that it is sealed with; without one it can be read, and `File.unlock` gives it later.

    Raises
    ------
    WrongStore
        If the file is something else, of another version, or not what was written.
    StorageError
        If it cannot be opened.
    """

    def __init__(self, path: str | Path, key: bytes | None = None) -> None:
        super().__init__(Path(path), FORMAT, {}, alone=False, key=key)
        self.contents = Contents(self)
        try:
            with self.transaction():
                why = self._disagreement()
            if why is not None:
                raise self.damage(why)
        except BaseException:
            self.close()
            raise

    def open(
        self,
        owner: str,
        data_set: str,
        run: str,
        budget: EitherFilter,
        plan: Mapping[Any, int],
        divergence: float | None = None,
        entry: FilterEntry = NOTHING_PROVED,
        terms: bytes | None = None,
    ) -> DurableLedger:
        """The ledger of ``run`` on ``data_set``; with what was charged, if the run was there before.

        Parameters
        ----------
        owner : str
            Name in messages and lines: the node.
        data_set, run : str
            Names.
        budget : EitherFilter
            Budget for everything ever released from the data set. With an infinite epsilon all is admitted, and
            counted.
        plan : mapping of Kind to int
            The most releases of each kind, fixed from public information.
        divergence : float, optional
            Divergence that the plan is charged with, at the budget's order; by default that of its kinds. It is given
            for the records of a stream, and for all that whoever the budget is against will see of an agent
            (`gossamer.privacy.streams.graph_bounds`). Then no series has a place for the plan.
        entry : FilterEntry, optional
            The same as Gaussian differential privacy, but for a failure; by default nothing is proved of it.
        terms : bytes, optional
            Terms of an agent, whose data its unit's server releases: a run that is opened again on other terms is
            another run.

        Raises
        ------
        BudgetSpent
            If the plan does not fit into what is left; nothing is charged.
        SpecError
            If the data set was opened for another order, relation or series, or the run with another plan.
        AccountingError
            If nothing is proved about a kind in the plan, or a number in it is none.
        StorageError
            If it cannot be written.
        """
        plan = {kind: number for kind, number in checked_counts(plan).items() if number}
        found = DurableLedger(self, owner, data_set, run, budget, ReleasePlan(plan))
        found.open(_request(plan, budget, divergence, entry, terms))
        return found

    def receipts(self, run: str, party: str) -> StoredReceipts:
        """Receipts of what ``party`` has released in ``run``, in the same file as their charges."""
        return StoredReceipts(self, run, party)

    def witnessed(self, run: str) -> Witnessed | None:
        """Receipts of a ``run``, as `runs` names it, and who has countersigned them; None if it has none."""
        return witnessed_in(self, run)

    @property
    def data_sets(self) -> list[str]:
        """All that something was spent of, or that was looked at, by name."""
        found = self.rows("SELECT name FROM data_set UNION SELECT data_set FROM content")
        return sorted(name for (name,) in found)

    def filter_of(self, data_set: str) -> tuple[float, NeighboringRelation] | None:
        """Order and relation of a data set's filter; None before it was opened."""
        found = self.rows("SELECT renyi_order, relation FROM data_set WHERE name = ?", data_set)
        return (found[0][0], NeighboringRelation(found[0][1])) if found else None

    def runs(self, data_set: str) -> list[Spent]:
        """List what each run has spent of ``data_set``, in the order in which they were opened."""
        statement = (
            "SELECT name, divergence, IFNULL(SUM(releases), 0), mu, failure, series FROM run "
            "LEFT JOIN charge ON charge.data_set = run.data_set AND charge.run = run.name "
            "WHERE run.data_set = ? GROUP BY name ORDER BY run.rowid"
        )
        return [Spent(*row) for row in self.rows(statement, data_set)]

    def spent(self, data_set: str) -> float:
        """The divergence at the filter's order of all plans on ``data_set``."""
        rows = self.rows("SELECT divergence FROM run WHERE data_set = ?", data_set)
        return math.fsum(divergence for (divergence,) in rows)

    def total(self, data_set: str) -> FilterTotal:
        """Total that ``data_set`` has spent as Gaussian differential privacy, but for failures."""
        return FilterTotal.of(self.rows("SELECT mu, failure FROM run WHERE data_set = ?", data_set))

    def series(self, data_set: str) -> dict[RunSeries, int]:
        """The series that were set aside of ``data_set``, and how many runs of each were begun."""
        count = "SELECT COUNT(*) FROM run WHERE data_set = ? AND series = ?"
        found = self.rows("SELECT series FROM data_set WHERE name = ?", data_set)
        listed = map(RunSeries.of, decode(found[0][0])) if found else ()
        return {one: self.rows(count, data_set, one.name)[0][0] for one in listed}

    def check_filter(self, data_set: str, budget: EitherFilter) -> bool:
        """Whether a data set's filter is fixed; it is when the data set is first opened.

        RunSeries are fixed at the same time: a part of a budget that was set aside later might have been spent.

        Raises
        ------
        SpecError
            If it is another one than that of an owner's ``budget``.
        """
        found = self.rows("SELECT renyi_order, relation FROM data_set WHERE name = ?", data_set)
        if not found:
            return False
        (order, relation), series = found[0], tuple(self.series(data_set))
        mine = float(budget.order), str(budget.relation)
        if (order, relation) != mine or _plain(series) != _plain(budget.series):
            raise SpecError(
                f"data set {data_set!r} was begun at order {order:g} under {relation} with {_listed(series)}, found "
                f"{mine[0]:g}, {mine[1]}, {_listed(budget.series)}; a filter's order and relation never change, and "
                "what is set aside never changes"
            )
        return True

    def _disagreement(self) -> str | None:
        """Say what the two filters and the receipts do not agree on, of what has been charged; None where they do."""
        for (run,) in self.rows("SELECT name FROM run WHERE divergence > 0 AND mu = 0 AND failure = 0"):
            return f"one filter has counted run {run!r} and the other has not"
        for chain, noted in noted_in(self).items():
            # What a server releases of others' data is kept by the run alone.
            where = "SELECT IFNULL(SUM(releases), 0) FROM charge WHERE run IN (?, ?)"
            ((charged,),) = self.rows(where, chain, chain.rpartition("/")[0])
            if charged != noted:
                return f"it has {charged} releases of {chain}, and receipts of {noted}"
        return None


class Spent(NamedTuple):
    """Amount that one run has spent of one data set.

    Attributes
    ----------
    run : str
        The name.
    divergence : float
        Divergence of its plan at the filter's order; 0 in a series.
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


class DurableLedger:
    """Ledger of what one run has released from one data set, kept beyond the end of its process.

    Made by `LedgerFile.open`.

    Attributes
    ----------
    file : LedgerFile
        File that it is in.
    owner : str
        Name in messages: the node.
    data_set, run : str
        Names.
    budget : EitherFilter
        Budget for everything ever released from the data set.
    plan : ReleasePlan
        The most releases of each kind.
    counts : dict of Kind to int
        Numbers of what has been charged.
    """

    def __init__(
        self, file: LedgerFile, owner: str, data_set: str, run: str, budget: EitherFilter, plan: ReleasePlan
    ) -> None:
        self.file, self.owner, self.data_set, self.run, self.budget = file, owner, data_set, run, budget
        self.plan, self.counts = plan, dict[Any, int]()

    def open(self, request: _RunRequest) -> None:
        """Enter the run, with what its plan costs; or find it again, with what was charged.

        Raises
        ------
        BudgetSpent
            If the plan does not fit into what is left.
        SpecError
            If the data set was opened for another order, relation or series, or the run with another plan, or with one
            that reveals less.
        """
        self._enter(request)
        kinds = {encoded(kind): kind for kind in self.plan.most}
        statement = "SELECT kind, releases FROM charge WHERE data_set = ? AND run = ? ORDER BY rowid"
        counted = self.file.rows(statement, self.data_set, self.run)
        self.counts = {kinds[kind]: number for kind, number in counted}

    def _enter(self, request: _RunRequest) -> None:
        entry = self._entry(request)  # it may take seconds, and others wait for a transaction
        with self.file.transaction():
            if not self.file.check_filter(self.data_set, self.budget):
                budget = self.budget
                row = self.data_set, float(budget.order), str(budget.relation), encode(_plain(budget.series))
                self.file.execute("INSERT INTO data_set VALUES (?, ?, ?, ?)", *row)
            if (known := self._find(request)) is not None:
                # An owner who has lowered the budget since has the run refused.
                if known[-1] is None:  # the series
                    self._require(0.0, FilterEntry(0.0))
                return
            place = self._free_place(request)
            if place is not None:
                self._insert(request, 0.0, FilterEntry(0.0), place[:2])
                return
            if entry is None:  # another run has taken the place
                entry = request.entry(self.file.total(self.data_set))
            self._require(request.divergence, entry)
            self._insert(request, request.divergence, entry)

    @property
    def releases(self) -> int:
        """Number of releases that the run has been charged, of all kinds."""
        return sum(self.counts.values())

    def charge(self, kind: Any) -> None:
        """Charge one release. Only after this returns may its noise be drawn.

        Raises
        ------
        BudgetSpent
            If the plan or the budget does not cover it; nothing is charged.
        StorageError
            If it could not be written. Its noise must not be drawn.
        """
        where = self.data_set, self.run, encoded(kind)
        with self.file.transaction():
            found = "SELECT releases FROM charge WHERE data_set = ? AND run = ? AND kind = ?"
            before: int = sum(releases for (releases,) in self.file.rows(found, *where))
            if (reason := self.plan.refusal({kind: before}, kind)) is not None:
                raise BudgetSpent(f"{self.owner}: release refused: {reason} ({kind.describe()})")
            self.file.execute(_RELEASE, *where)
        self.counts[kind] = before + 1

    def _entry(self, request: _RunRequest) -> FilterEntry | None:
        """Entry that the plan of a new run is counted with; None where it needs none."""
        if self._find(request) is not None or self._free_place(request) is not None:
            return None
        return request.entry(self.file.total(self.data_set))

    def _find(self, request: _RunRequest) -> tuple[bytes, float, str | None] | None:
        """Return plan, divergence and series of the run with this plan, if it is there."""
        statement = "SELECT plan, divergence, series FROM run WHERE data_set = ? AND name = ?"
        found = self.file.rows(statement, self.data_set, self.run)
        if not found:
            return None
        plan, paid, series = found[0]
        if series is not None:
            paid = math.inf if request.divergence < math.inf else 0.0  # its series has paid for its kinds
        # What was paid is the divergence: the same noise on what moves further is another plan.
        if plan != request.plan or request.divergence > paid * _ROUNDING:
            raise SpecError(
                f"{self.owner}: run {self.run!r} was opened on data set {self.data_set!r} with another plan, "
                "which is fixed, an agent's with its spec, server and state folder; go on with that one, or give "
                "the run another name"
            )
        return plan, paid, series

    def _free_place(self, request: _RunRequest) -> Place | None:
        """The first place of the plan in a series that has a run left."""
        statement = "SELECT COUNT(*) FROM run WHERE data_set = ? AND series = ? AND place = ?"
        for place in request.places:
            if self.file.rows(statement, self.data_set, *place[:2])[0][0] < place[2]:
                return place
        return None

    def _insert(
        self,
        request: _RunRequest,
        divergence: float,
        entry: FilterEntry,
        place: tuple[str | None, int | None] = (None, None),
    ) -> None:
        row = self.data_set, self.run, request.plan, divergence, *entry, *place
        self.file.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)

    def _require(self, more: float, entry: FilterEntry) -> None:
        """Refuse a plan that does not fit into the budget."""
        spent = self.file.spent(self.data_set)
        total = self.file.total(self.data_set)
        divergence, then = spent + more, total.plus(entry)
        if self.budget.covers(divergence, then):
            return
        needed = self.budget.needed(divergence, then)
        take = f"epsilon {rounded_up(needed)} at the same delta" if needed < math.inf else "more than any"
        aside = f", of which {self.budget.set_aside:g} is set aside" if self.budget.series else ""
        raise BudgetSpent(
            f"{self.owner}: release refused: data set {self.data_set!r} has spent "
            f"{_shares(self.budget, spent, total)}, and the plan of run {self.run!r} fits into the rest of neither; "
            f"it would take {take}, and the budget is {self.budget.epsilon:g}{aside}"
        )


def _plain(series: Sequence[RunSeries]) -> tuple[object, ...]:
    return tuple(sorted(one.plain() for one in series))


def _listed(series: Sequence[RunSeries]) -> str:
    return ", ".join(f"series {one.plain()!r}" for one in series) or "no series"


def _shares(budget: EitherFilter, divergence: float, total: FilterTotal) -> str:
    renyi, gaussian = budget.shares(divergence, total)
    return f"{100 * renyi:.0f} % of its budget as Renyi divergence and {100 * gaussian:.0f} % as Gaussian privacy"
