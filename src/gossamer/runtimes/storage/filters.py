"""Spending of data sets that are kept by two filters, in the file of a ledger: entries, and places in series.

A data set is kept either way from its first run on. One that was begun when there was one filter goes on with it, at
all of delta. Series are fixed at the same time: a part of a budget that was set aside later might have been spent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gossamer.errors import SpecError
from gossamer.privacy.accounting.filters import EitherFilter, Entry, Total
from gossamer.privacy.accounting.ledger import RenyiFilter
from gossamer.privacy.accounting.series import Series
from gossamer.privacy.releases import Counts
from gossamer.protocol.encoding import decode, encode
from gossamer.runtimes.storage.file import File

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
