"""The ledger of a data owner: it carries over, and is never short."""

from __future__ import annotations

import math
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.reference.ledgers import AgentLedger, Ledger, UnitLedger

from gossamer.errors import AccountingError, BudgetSpent, SpecError
from gossamer.privacy.accounting.accountants import renyi_divergence, renyi_epsilon, renyi_level
from gossamer.privacy.accounting.filters import NOTHING_PROVED, EitherFilter, ReleasePlan
from gossamer.privacy.guarantees import rounded_up
from gossamer.privacy.mechanisms import (
    BallGaussian,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    NeighboringRelation,
    NoNoise,
    PaperNoise,
    Poisson,
    ReleaseKind,
    WithReplacement,
)
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, StreamKind
from gossamer.privacy.streams.graph_bounds import AgentNoise
from gossamer.runtimes.storage.file import StorageError, WrongStore
from gossamer.runtimes.storage.ledger import LedgerFile
from gossamer.runtimes.storage.store import SqliteStore
from gossamer.sides.ledger import NO_CHARGES, Account, Charges, StoredLedger

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
KIND = ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.1), 10)
OTHER = ReleaseKind(Gaussian(1.0, 4.0), Poisson(0.2), 10)
BUDGET = EitherFilter(2.0, 2e-5, ADD, 16.0)
UNLIMITED = replace(BUDGET, epsilon=math.inf)
LEVEL = renyi_level(16.0, 2.0, 1e-5)
ONE = renyi_divergence(KIND, 16.0, ADD)
FIT = int(LEVEL / ONE)
"""How many releases of KIND fit into the budget."""


def test_the_budget_of_these_tests_is_for_a_few_releases() -> None:
    assert 10 < FIT < 10_000


def test_a_plan_is_kept_to_and_found_again(file: LedgerFile, another: Callable[[], LedgerFile]) -> None:
    ledger = file.open("a", "wards", "run", BUDGET, {KIND: 2, OTHER: 1})
    for kind in (KIND, OTHER):
        ledger.charge(kind)
    assert (ledger.counts, ledger.releases) == ({KIND: 1, OTHER: 1}, 2)
    again = another().open("a", "wards", "run", BUDGET, {OTHER: 1, KIND: 2})
    assert again.counts == {KIND: 1, OTHER: 1}
    again.charge(KIND)
    for kind in (KIND, OTHER):
        with pytest.raises(
            BudgetSpent, match=r"a: release refused: the plan covers \d releases? of this kind, and all"
        ):
            again.charge(kind)
    with pytest.raises(BudgetSpent, match="not in the plan"):
        again.charge(replace(KIND, size=11))
    assert another().open("a", "wards", "run", BUDGET, {KIND: 2, OTHER: 1}).counts == {KIND: 2, OTHER: 1}


def test_lines_are_those_of_a_ledger_in_memory(file: LedgerFile) -> None:
    plan = {KIND: 3, OTHER: 1}
    durable, simple = file.open("a", "wards", "run", BUDGET, plan), Ledger("a", ReleasePlan(plan))
    for kind in (OTHER, KIND, KIND):
        durable.charge(kind)
        simple.charge(kind)
    assert StoredLedger("a", {"": durable}, Charges(plan)).lines() == simple.lines()
    assert (durable.owner, durable.counts, durable.releases) == (simple.owner, simple.counts, simple.releases)
    again = file.open("a", "wards", "run", BUDGET, plan)
    assert StoredLedger("a", {"": again}, Charges(plan)).lines() == simple.lines()


def test_a_plan_enters_the_filter_as_a_whole_and_stays(file: LedgerFile) -> None:
    assert file.spent("wards") == 0.0
    file.open("a", "wards", "one", BUDGET, {KIND: FIT - 1})  # and releases nothing
    assert file.spent("wards") == pytest.approx((FIT - 1) * ONE, rel=1e-12)
    total = file.total("wards")
    with pytest.raises(BudgetSpent) as caught:
        file.open("a", "wards", "two", BUDGET, {KIND: FIT})
    mu, both = BUDGET.shares(0.0, total)[1], total.plus(BUDGET.gaussian.entry({KIND: FIT}, total))
    assert str(caught.value) == (
        f"a: release refused: data set 'wards' has spent {100 * (FIT - 1) * ONE / LEVEL:.0f} % of its budget as Renyi "
        f"divergence and {100 * mu:.0f} % as Gaussian privacy, and the plan of run 'two' fits into the rest of "
        f"neither; it would take epsilon {rounded_up(BUDGET.needed((2 * FIT - 1) * ONE, both))} at the same delta, and "
        "the budget is 2"
    )
    file.open("a", "wards", "two", BUDGET, {KIND: 1}).charge(KIND)  # the refused plan has left nothing behind
    file.open("a", "other wards", "two", BUDGET, {KIND: FIT})  # data sets are apart
    with pytest.raises(BudgetSpent):
        file.open("a", "other wards", "three", BUDGET, {KIND: FIT})


def test_releases_within_a_plan_are_paid_for(file: LedgerFile) -> None:
    ledger = file.open("a", "wards", "run", BUDGET, {KIND: FIT})
    spent = file.spent("wards")
    for _ in range(5):
        ledger.charge(KIND)
    assert file.spent("wards") == spent
    file.open("a", "wards", "run", BUDGET, {KIND: FIT}).charge(KIND)  # and so is the run that comes back
    assert file.spent("wards") == spent


def test_runs_at_the_same_time_never_overrun_the_budget(path: Path, another: Callable[[], LedgerFile]) -> None:
    """Eight threads with a connection each: what is asked and what is written are one transaction."""
    another().open("a", "wards", "warm", UNLIMITED, {})
    budget = replace(BUDGET, epsilon=renyi_epsilon(16.0, 20.5 * ONE, 1e-5))
    charged: list[int] = []

    def work(number: int) -> None:
        passed = 0
        with closing(LedgerFile(path)) as file, suppress(BudgetSpent):
            while True:
                file.open("a", "wards", f"run {number} {passed}", budget, {KIND: 1}, ONE).charge(KIND)
                passed += 1
        charged.append(passed)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(charged) == 8
    assert sum(charged) == 20


def test_a_run_has_one_plan(file: LedgerFile) -> None:
    file.open("a", "wards", "run", BUDGET, {KIND: 2})
    file.open("a", "wards", "empty", BUDGET, {})
    for run, plan in (("run", {KIND: 3}), ("run", {}), ("empty", {KIND: 1})):
        with pytest.raises(SpecError, match="with another plan, which is fixed"):
            file.open("a", "wards", run, BUDGET, plan)
    file.open("a", "wards", "run", BUDGET, {KIND: 2, OTHER: 0})  # that is the same plan


@pytest.mark.parametrize("change", [{"order": 8.0}, {"relation": REPLACE}])
def test_a_filters_order_and_relation_are_fixed(file: LedgerFile, change: dict[str, object]) -> None:
    file.open("a", "wards", "run", BUDGET, {KIND: 1})
    with pytest.raises(SpecError, match="order and relation never change"):
        file.open("a", "wards", "two", replace(BUDGET, **change), {KIND: 1})  # type: ignore[arg-type]
    file.open("a", "other wards", "two", replace(BUDGET, **change), {KIND: 1})  # type: ignore[arg-type]


def test_the_owner_may_change_the_budget(file: LedgerFile) -> None:
    file.open("a", "wards", "run", BUDGET, {KIND: FIT})
    less, more = replace(BUDGET, epsilon=0.5), replace(BUDGET, epsilon=2.5)
    for run in ("run", "two"):
        with pytest.raises(BudgetSpent):
            file.open("a", "wards", run, less, {KIND: FIT if run == "run" else 1})
    file.open("a", "wards", "two", more, {KIND: 1})
    with pytest.raises(BudgetSpent):
        file.open("a", "wards", "three", BUDGET, {KIND: FIT})


def test_what_has_no_noise_is_refused_by_every_budget_and_spends_all(file: LedgerFile) -> None:
    bare = ReleaseKind(NoNoise(), Poisson(0.1), 3)
    with pytest.raises(BudgetSpent):
        file.open("a", "wards", "run", BUDGET, {bare: 1})
    ledger = file.open("a", "wards", "open", UNLIMITED, {bare: 2})
    ledger.charge(bare)
    assert file.spent("wards") == math.inf
    assert file.open("a", "wards", "open", UNLIMITED, {bare: 2}).counts == {bare: 1}
    with pytest.raises(BudgetSpent):
        file.open("a", "wards", "later", BUDGET, {KIND: 1})
    file.open("a", "other wards", "run", BUDGET, {KIND: 1, bare: 0})


def test_what_nobody_accounts_for_is_no_plan(file: LedgerFile) -> None:
    with pytest.raises(AccountingError):
        file.open("a", "wards", "run", BUDGET, {ReleaseKind(Gaussian(1.0, 1.0), FixedSize(10, 2), 3): 1})
    assert file.spent("wards") == 0.0


@pytest.mark.parametrize(
    "kind",
    [
        KIND,
        ReleaseKind(BallGaussian(1.0, 2.0), FixedSize(10, 2), 7),
        ReleaseKind(L2Laplace(1.0, 0.5, ADD), Poisson(1.0), 7),
        ReleaseKind(Laplace(1.0, 3.0), FixedSize(10, 10), 7),
        ReleaseKind(NoNoise(), WithReplacement(10, 2), 7),
        ReleaseKind(PaperNoise(1.0, 0.5, ADD, "gamma"), Poisson(0.5), 7),
    ],
)
def test_kinds_come_back(another: Callable[[], LedgerFile], kind: ReleaseKind) -> None:
    relation = REPLACE if isinstance(kind.sampling, FixedSize) else ADD
    budget = replace(UNLIMITED, relation=relation)
    another().open("a", "wards", "run", budget, {kind: 1}, math.inf).charge(kind)
    found = another().open("a", "wards", "run", budget, {kind: 1}, math.inf)
    assert found.counts == {kind: 1}
    assert StoredLedger("a", {"": found}, Charges({kind: 1}, held=False)).lines() == [
        {"node": "a", "releases": 1, **kind.describe()}
    ]


def test_kinds_that_are_equal_share_one_count(file: LedgerFile) -> None:
    """Or else a plan for two releases could cover four: 1 and 1.0 are one number in many encodings."""
    same = [ReleaseKind(Gaussian(1, 2), Poisson(0.1), 10), ReleaseKind(Gaussian(np.float64(1), 2.0), Poisson(0.1), 10)]
    ledger = file.open("a", "wards", "run", BUDGET, {same[0]: 2})
    for kind in same:
        ledger.charge(kind)
    for kind in [*same, KIND]:
        with pytest.raises(BudgetSpent, match="all are spent"):
            ledger.charge(kind)
    assert file.open("a", "wards", "run", BUDGET, {KIND: np.int64(2)}).counts == {KIND: 2}


# Units

STREAM = StreamKind(CorrelatedNoise(Factorisation("independent", 3), 2.0), 3, 5)


def test_a_stream_is_a_plan(file: LedgerFile, another: Callable[[], LedgerFile]) -> None:
    arguments = ("server", "wards", "run", BUDGET, {STREAM: 3}, 0.7 * LEVEL)
    ledger, simple = file.open(*arguments), UnitLedger("server", ("a", "b"), STREAM)
    assert file.spent("wards") == 0.7 * LEVEL
    for number in range(3):
        again = another().open(*arguments)
        assert again.releases == number
        again.charge(STREAM)
        simple.charge()
    assert (
        StoredLedger("server", {"": again}, Charges({STREAM: 3}, owners=("a", "b"), account=Account.STREAM)).lines()
        == simple.lines()
    )
    assert (again.owner, again.releases) == ("server", 3)
    for stale in (ledger, again):  # the older one has not seen the charges of the newer ones
        with pytest.raises(
            BudgetSpent, match="server: release refused: the plan covers 3 releases of this kind, and all"
        ):
            stale.charge(STREAM)
    assert file.spent("wards") == 0.7 * LEVEL
    with pytest.raises(BudgetSpent):
        file.open("server", "wards", "two", BUDGET, {STREAM: 3}, 0.4 * LEVEL)
    with pytest.raises(SpecError, match="another plan"):
        file.open("server", "wards", "run", BUDGET, {replace(STREAM, records=4): 4}, 0.0)


def test_the_same_noise_on_what_moves_further_is_another_plan(file: LedgerFile) -> None:
    arguments = ("server", "wards", "run", BUDGET, {STREAM: 3})
    file.open(*arguments, 0.5 * LEVEL)
    file.open(*arguments, 0.5 * LEVEL * (1 + 1e-12))  # another version of a numerical package
    file.open(*arguments, 0.4 * LEVEL)
    with pytest.raises(SpecError, match="another plan"):
        file.open(*arguments, 0.51 * LEVEL)
    assert file.spent("wards") == 0.5 * LEVEL


NOISE = AgentNoise(scale=100, sensitivity=20.0, size=5)


def test_what_a_unit_will_release_enters_an_agents_ledger_at_once(
    file: LedgerFile, another: Callable[[], LedgerFile]
) -> None:
    arguments = ("agent", "wards", "run", BUDGET, {NOISE: 2}, 0.6 * LEVEL, NOTHING_PROVED, b"")
    ledger, simple = file.open(*arguments), AgentLedger("agent", NOISE, 2)
    assert file.spent("wards") == 0.6 * LEVEL
    for number in range(2):
        again = another().open(*arguments)
        assert again.releases == number
        again.charge(NOISE)
        simple.charge()
    assert (
        StoredLedger("agent", {"": again}, Charges({NOISE: 2}, observer="own server", account=Account.SUMS)).lines()
        == simple.lines()
    )
    assert again.owner == "agent"
    for stale in (ledger, again):
        with pytest.raises(
            BudgetSpent, match="agent: release refused: the plan covers 2 releases of this kind, and all are"
        ):
            stale.charge(NOISE)
    assert another().spent("wards") == 0.6 * LEVEL
    with pytest.raises(BudgetSpent):
        file.open("agent", "wards", "two", BUDGET, {}, 0.5 * LEVEL, terms=b"")
    for changed in ({NOISE: 3}, {replace(NOISE, scale=99): 2}, {}):
        with pytest.raises(SpecError, match="another plan"):
            file.open("agent", "wards", "run", BUDGET, changed, 0.6 * LEVEL, terms=b"")


def test_on_other_terms_a_run_of_the_same_name_is_another_one(file: LedgerFile) -> None:
    """Nothing is counted here that would tell an agent's second run from the one that was charged."""
    arguments = ("agent", "wards", "run", BUDGET, {}, 0.6 * LEVEL)
    file.open(*arguments, terms=b"a spec and a server")
    file.open(*arguments, terms=b"a spec and a server")
    for terms in (b"another spec", b""):
        with pytest.raises(SpecError, match="another plan"):
            file.open(*arguments, terms=terms)
    assert file.spent("wards") == 0.6 * LEVEL


def test_an_agent_without_noise_draws_none(file: LedgerFile) -> None:
    ledger = file.open("agent", "wards", "run", BUDGET, {}, 0.6 * LEVEL, terms=b"")
    assert (ledger.releases, StoredLedger("agent", {"": ledger}, NO_CHARGES).lines()) == (0, [])
    with pytest.raises(BudgetSpent, match="not in the plan"):
        ledger.charge(NOISE)


def test_what_each_run_has_spent(file: LedgerFile) -> None:
    assert (file.runs("wards"), file.filter_of("wards")) == ([], None)
    for run, plan in (("two", {KIND: 3, OTHER: 2}), ("one", {KIND: 2, OTHER: 1})):
        ledger = file.open("a", "wards", run, BUDGET, plan)
        for kind in (KIND, OTHER, KIND):
            ledger.charge(kind)
    file.open("agent", "wards", "three", BUDGET, {}, 0.1)
    file.open("a", "others", "two", BUDGET, {KIND: 1}).charge(KIND)
    other = renyi_divergence(OTHER, 16.0, ADD)
    found = file.runs("wards")
    assert [(run.run, run.releases) for run in found] == [("two", 3), ("one", 3), ("three", 0)]
    assert [run.divergence for run in found] == pytest.approx([3 * ONE + 2 * other, 2 * ONE + other, 0.1])
    assert file.spent("wards") == pytest.approx(sum(run.divergence for run in found), rel=1e-12)
    assert file.filter_of("wards") == (16.0, ADD)


@pytest.mark.parametrize("divergence", [-0.1, math.nan])
def test_a_divergence_is_not_negative(file: LedgerFile, divergence: float) -> None:
    with pytest.raises(SpecError, match="a divergence is a number, 0 or more"):
        file.open("server", "wards", "run", UNLIMITED, {STREAM: 3}, divergence)


# Files


def test_a_full_disk_charges_nothing(file: LedgerFile, another: Callable[[], LedgerFile]) -> None:
    plan = {KIND: 1, OTHER: 1, **{replace(KIND, size=size + 100): 1 for size in range(1000)}}
    ledger = file.open("a", "wards", "run", UNLIMITED, plan, math.inf)
    ledger.charge(KIND)
    file._connection.execute("PRAGMA max_page_count=1")  # SQLite takes the number of pages that there are

    def charge_until_full() -> None:
        for size in range(1000):  # a page holds a number of kinds
            ledger.charge(replace(KIND, size=size + 100))

    with pytest.raises(StorageError, match="disk is full; nothing was written"):
        charge_until_full()
    there = another().open("a", "wards", "run", UNLIMITED, plan, math.inf)
    assert ledger.counts == there.counts
    file._connection.execute("PRAGMA max_page_count=100000")  # there is room again
    ledger.charge(OTHER)
    assert another().open("a", "wards", "run", UNLIMITED, plan, math.inf).counts == {**there.counts, OTHER: 1}


def test_a_store_is_no_ledger_and_one_of_another_version_is_refused(path: Path, tmp_path: Path) -> None:
    SqliteStore(tmp_path / "a.store", "run", "a").close()
    with pytest.raises(WrongStore, match="expected the ledger, found another SQLite file"):
        LedgerFile(tmp_path / "a.store")
    LedgerFile(path).close()
    with pytest.raises(WrongStore, match="expected the store, found another SQLite file"):
        SqliteStore(path, "run", "a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for version, age in ((8, "an older"), (10, "a newer")):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version={version}")
        with pytest.raises(WrongStore, match=rf"{age} version of gossamer \(format {version}, expected 9\)"):
            LedgerFile(path)


def test_a_ledger_synchronises_every_commit(file: LedgerFile) -> None:
    assert [file.rows(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous")] == ["wal", 2]


def test_a_ledger_in_memory_ends_with_its_object() -> None:
    file = LedgerFile(":memory:")
    file.open("a", "wards", "run", BUDGET, {KIND: 1}).charge(KIND)
    assert file.open("a", "wards", "run", BUDGET, {KIND: 1}).counts == {KIND: 1}
    with closing(LedgerFile(":memory:")) as other:
        assert other.open("a", "wards", "run", BUDGET, {KIND: 1}).counts == {}
    file.close()
