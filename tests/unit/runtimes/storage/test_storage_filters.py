"""The ledger of a data set that two filters keep: either admits, both count, series have places, old ledgers go on."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reference.ledgers import AgentLedger, Ledger, UnitLedger

from gossamer.errors import AccountingError, BudgetSpent, SpecError
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.accounting.filters import (
    EitherFilter,
    FilterEntry,
    FilterTotal,
    ReleasePlan,
    RunSeries,
    SeriesPlan,
)
from gossamer.privacy.accounting.gaussian_dp import PlanCurve, release_mu
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, NoNoise, Poisson, ReleaseKind
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, StreamKind
from gossamer.privacy.streams.graph_bounds import AgentNoise
from gossamer.runtimes.storage.ledger import LedgerFile

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
SMALL = ReleaseKind(Gaussian(1.0, 0.9), Poisson(0.01), 3)  # far from Gaussian: the Renyi filter says more of many
LARGE = ReleaseKind(Gaussian(1.0, 5.0), Poisson(1.0), 3)  # exactly Gaussian
MILD = ReleaseKind(Gaussian(1.0, 8.0), Poisson(0.1), 3)
BUDGET = EitherFilter(1.2, 1e-5, ADD, 20.0)
BARE = ReleaseKind(NoNoise(), Poisson(0.1), 3)


# Either admits, both count


def test_a_run_that_renyi_refuses_is_admitted_and_counted_by_both(
    file: LedgerFile, another: Callable[[], LedgerFile]
) -> None:
    plan = {SMALL: 100}
    assert BUDGET.renyi.spent(plan) > BUDGET.renyi.level
    ledger = file.open("a", "wards", "one", BUDGET, plan)
    for _ in range(3):
        ledger.charge(SMALL)
    there = another()
    total = there.total("wards")
    assert total is not None
    assert there.spent("wards") == BUDGET.renyi.spent(plan)
    assert math.sqrt(total.squared) == pytest.approx(PlanCurve.of(plan, ADD).mu(total.failures), rel=2.5e-3)
    (run,) = there.runs("wards")
    assert (run.releases, run.failure, run.series) == (3, total.failures, None)
    assert run.mu == pytest.approx(math.sqrt(total.squared))
    assert there.open("a", "wards", "one", BUDGET, plan).counts == {SMALL: 3}  # it is found again, and paid for
    assert there.total("wards") == total


def test_the_refusal_says_what_it_would_take(file: LedgerFile) -> None:
    """The figure is enough, and a little less is not: by another ledger that begins with that budget."""
    file.open("a", "wards", "one", BUDGET, {SMALL: 100})
    with pytest.raises(BudgetSpent) as caught:
        file.open("a", "wards", "two", BUDGET, {LARGE: 1})
    assert str(caught.value).startswith("a: release refused: data set 'wards' has spent ")
    assert "the plan of run 'two' fits into the rest of neither; it would take epsilon " in str(caught.value)
    needed = float(str(caught.value).partition("it would take epsilon ")[2].split()[0])
    assert str(caught.value).endswith("and the budget is 1.2")
    with pytest.raises(BudgetSpent):
        file.open("a", "wards", "two", replace(BUDGET, epsilon=0.99 * needed), {LARGE: 1})
    file.open("a", "wards", "two", replace(BUDGET, epsilon=needed), {LARGE: 1})


def test_what_passes_is_covered_by_one_filter_throughout(file: LedgerFile) -> None:
    """Runs of two sorts in turn until neither fits; with the tight accountant all of it is within the budget."""
    budget, plans = EitherFilter(2.0, 1e-5, ADD, 11.0), ({SMALL: 20}, {LARGE: 1})
    released: dict[ReleaseKind, int] = {}
    refused: set[int] = set()
    number = 0
    while len(refused) < 2:
        plan = plans[number % 2]
        try:
            file.open("a", "wards", f"run {number}", budget, plan)
            (kind,) = plan
            released[kind] = released.get(kind, 0) + plan[kind]
            refused.discard(number % 2)
        except BudgetSpent:
            refused.add(number % 2)
        number += 1
    total = file.total("wards")
    assert total is not None
    assert budget.covers(file.spent("wards"), total)
    assert 1.2 < epsilon(released, 1e-5, ADD).epsilon <= 2.0


def test_runs_at_the_same_time_never_overrun_either(path: Path, another: Callable[[], LedgerFile]) -> None:
    another().open("a", "wards", "warm", BUDGET, {})
    fit = int(BUDGET.gaussian.level / release_mu(LARGE, ADD) ** 2)
    assert BUDGET.renyi.spent({LARGE: fit + 1}) > BUDGET.renyi.level
    opened: list[int] = []

    def work(number: int) -> None:
        with closing(LedgerFile(path)) as file:
            for attempt in range(fit):
                try:
                    file.open("a", "wards", f"run {number} {attempt}", BUDGET, {LARGE: 1})
                    opened.append(number)
                except BudgetSpent:
                    return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == fit > 1


def test_what_has_no_noise_spends_all_of_both(file: LedgerFile) -> None:
    with pytest.raises(BudgetSpent, match="more than any"):
        file.open("a", "wards", "run", BUDGET, {BARE: 1})
    file.open("a", "wards", "run", replace(BUDGET, epsilon=math.inf), {BARE: 1})
    assert file.total("wards") == FilterTotal(math.inf, 0.0)
    with pytest.raises(BudgetSpent):
        file.open("a", "wards", "two", BUDGET, {LARGE: 1})


STREAM = StreamKind(CorrelatedNoise(Factorisation("independent", 3), 2.0), 3, 5)
NOISE = AgentNoise(scale=100, sensitivity=20.0, size=5)


def test_units_enter_with_their_mu(file: LedgerFile) -> None:
    mu = math.sqrt(BUDGET.gaussian.level)
    too_much = 2 * BUDGET.renyi.level
    file.open("server", "wards", "run", BUDGET, {STREAM: 3}, too_much, FilterEntry(0.6 * mu))
    file.open("agent", "wards", "two", BUDGET, {NOISE: 2}, too_much, terms=b"", entry=FilterEntry(0.7 * mu, 1e-9))
    assert file.total("wards") == FilterTotal(pytest.approx(0.85 * mu**2), 1e-9)
    with pytest.raises(BudgetSpent):
        file.open("agent", "wards", "three", BUDGET, {}, too_much, entry=FilterEntry(0.7 * mu))
    with pytest.raises(BudgetSpent):  # nothing is proved as Gaussian privacy, so nothing more is covered that way
        file.open("agent", "wards", "three", BUDGET, {}, 1e-6)


# Which filter keeps a data set


def test_costs_of_other_libraries_types_are_kept_as_numbers(path: Path, file: LedgerFile) -> None:
    file.open(
        "agent", "wards", "run", BUDGET, {}, np.float32(0.25), entry=FilterEntry(np.float32(0.5), np.float32(0.0))
    )  # type: ignore[arg-type]
    assert (file.spent("wards"), file.total("wards")) == (0.25, FilterTotal(0.25, 0.0))


def test_a_filter_keeps_its_order_and_relation(file: LedgerFile) -> None:
    file.open("a", "beds", "one", BUDGET, {SMALL: 1})
    for change in ({"order": 8.0}, {"relation": NeighboringRelation.REPLACE_ONE}):
        with pytest.raises(SpecError, match="order and relation never change"):
            file.open("a", "beds", "two", replace(BUDGET, **change), {SMALL: 1})  # type: ignore[arg-type]


# RunSeries

SMALL_PLAN = SeriesPlan(runs=2, releases=10, sampling_rate=0.01, noise_multiplier=0.9)
LARGE_PLAN = SeriesPlan(runs=1, releases=500, sampling_rate=0.01, noise_multiplier=2.0)
SERIES = RunSeries(name="monthly", epsilon=1.0, delta=0.5e-5, plans=(SMALL_PLAN, LARGE_PLAN))
SERIES_BUDGET = EitherFilter(1.2, 1e-5, ADD, 20.0, (SERIES,))


def test_a_series_has_so_many_places(file: LedgerFile, another: Callable[[], LedgerFile]) -> None:
    """Runs of the series spend nothing of the rest, which is far too small for one of them."""
    assert SERIES.needed(ADD) <= 1.0
    for number in range(2):
        ledger = another().open("a", "wards", f"small {number}", SERIES_BUDGET, {SMALL: 10})
        ledger.charge(SMALL)
    file.open("a", "wards", "large", SERIES_BUDGET, {replace(SMALL, mechanism=Gaussian(1.0, 2.5)): 400})
    assert file.spent("wards") == 0.0
    assert file.total("wards") == FilterTotal()
    assert file.series("wards") == {SERIES: 3}
    assert {run.series for run in file.runs("wards")} == {"monthly"}
    for plan in ({SMALL: 10}, {replace(SMALL, mechanism=Gaussian(1.0, 2.5)): 400}):
        with pytest.raises(BudgetSpent, match=r"the budget is 1\.2, of which 1 is set aside"):
            file.open("a", "wards", "more", SERIES_BUDGET, plan)
    again = another().open("a", "wards", "small 0", SERIES_BUDGET, {SMALL: 10})
    assert again.counts == {SMALL: 1}
    for _ in range(9):
        again.charge(SMALL)
    with pytest.raises(BudgetSpent, match="all are spent"):
        again.charge(SMALL)
    with pytest.raises(SpecError, match="another plan"):
        file.open("a", "wards", "small 0", SERIES_BUDGET, {SMALL: 9})
    with pytest.raises(SpecError, match="another plan"):
        file.open("a", "wards", "small 0", SERIES_BUDGET, {SMALL: 10}, math.inf)


def test_a_run_of_which_nothing_is_proved_has_no_place(file: LedgerFile) -> None:
    with pytest.raises(BudgetSpent):
        file.open("a", "wards", "run", SERIES_BUDGET, {SMALL: 10}, math.inf)
    file.open("a", "wards", "run", replace(SERIES_BUDGET, epsilon=math.inf), {SMALL: 10}, math.inf)
    assert file.series("wards") == {SERIES: 0}


def test_series_never_change(file: LedgerFile) -> None:
    file.open("a", "wards", "run", SERIES_BUDGET, {SMALL: 10})
    other = RunSeries(name="monthly", epsilon=1.0, delta=0.5e-5, plans=(LARGE_PLAN,))
    for changed in (replace(SERIES_BUDGET, series=()), replace(SERIES_BUDGET, series=(other,))):
        with pytest.raises(SpecError, match="what is set aside never changes"):
            file.open("a", "wards", "two", changed, {SMALL: 10})
    file.open("a", "wards", "two", replace(SERIES_BUDGET, epsilon=1.3), {SMALL: 10})  # the rest may


def test_places_are_taken_once_by_runs_at_the_same_time(path: Path) -> None:
    LedgerFile(path).close()
    taken: list[str] = []

    def work(number: int) -> None:
        with closing(LedgerFile(path)) as file:
            try:
                file.open("a", "wards", f"run {number}", SERIES_BUDGET, {SMALL: 10})
                taken.append(f"run {number}")
            except BudgetSpent:
                pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 2


# Numbers that are none


@pytest.mark.parametrize("count", [-1, -100, 0.5, 2.0, math.nan, math.inf, True])
@pytest.mark.parametrize("budget", [BUDGET, SERIES_BUDGET])
def test_a_plan_counts_whole_releases(file: LedgerFile, budget: Any, count: float) -> None:
    """A count below 0 would pay for other releases: {a: 100, b: -100} cost nothing."""
    with pytest.raises(AccountingError, match="a count of releases is a whole number"):
        file.open("a", "wards", "run", budget, {SMALL: 100_000, LARGE: count})  # type: ignore[dict-item]
    with pytest.raises(AccountingError, match="a count of releases is a whole number"):
        ReleasePlan({SMALL: count})  # type: ignore[dict-item]
    assert file.data_sets == []


@pytest.mark.parametrize("number", [-1, 0.5, math.nan, math.inf, True])
def test_a_unit_counts_whole_records_and_sums(file: LedgerFile, number: float) -> None:
    """Nothing is ever as many as nan, so that a ledger for so many would never be spent."""
    with pytest.raises(SpecError, match="records must be a whole number >= 0"):
        replace(STREAM, records=number)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="a whole number of masked sums"):
        AgentLedger("agent", NOISE, number)  # type: ignore[arg-type]
    for make in (lambda: UnitLedger("server", (), STREAM, number), lambda: AgentLedger("agent", NOISE, 2, number)):  # type: ignore[arg-type]
        with pytest.raises(SpecError, match="a whole number of"):
            make()
    with pytest.raises(AccountingError, match="a count of releases is a whole number"):
        file.open("agent", "wards", "run", BUDGET, {NOISE: number}, 0.1, FilterEntry(0.1))  # type: ignore[arg-type]
    assert file.data_sets == []


@pytest.mark.parametrize(
    "change",
    [
        *({"scale": value} for value in (0, -5, 1.5, math.nan, math.inf, True)),
        *({"sensitivity": value} for value in (-1.0, math.nan, math.inf, True)),
    ],
)
def test_noise_of_agents_has_a_scale(change: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        replace(NOISE, **change)


@pytest.mark.parametrize("count", [-1, 0.5, math.nan, math.inf, True])
def test_a_ledger_in_memory_counts_whole_releases(count: float) -> None:
    with pytest.raises(AccountingError, match="a count of releases is a whole number"):
        Ledger("a", ReleasePlan({SMALL: 1}), {SMALL: count})  # type: ignore[dict-item]


@pytest.mark.parametrize("value", [-0.1, -math.inf, math.nan, True, np.True_, "1", b"1"])
def test_costs_are_numbers(file: LedgerFile, value: float) -> None:
    with pytest.raises(SpecError, match="a divergence is a number, 0 or more"):
        file.open("a", "wards", "run", BUDGET, {SMALL: 1}, value)
    for divergence, entry, expected in (
        (value, FilterEntry(0.1), "a divergence is"),
        (0.1, FilterEntry(value), "a mu is"),
        (0.1, FilterEntry(0.1, value), "a failure is"),
        (0.1, FilterEntry(0.1, 1.0), "a probability below 1"),
    ):
        with pytest.raises(SpecError, match=expected):
            file.open("server", "wards", "run", BUDGET, {STREAM: 3}, divergence, entry)
        with pytest.raises(SpecError, match=expected):
            file.open("agent", "wards", "run", BUDGET, {}, divergence, entry, b"")
    assert file.data_sets == []
