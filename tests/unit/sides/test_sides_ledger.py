"""Ledgers of data sides: what they are opened for, what they refuse, and that both kinds of them say the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gossamer.errors import AccountingError, BudgetSpent
from gossamer.privacy.guarantees import CLIENT as WHOLE_CLIENT
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, NoNoise, Poisson, ReleaseKind
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, StreamKind
from gossamer.privacy.streams.graph_bounds import AgentNoise
from gossamer.runtimes.storage.ledger import LedgerFile, admits_all, stored_ledger
from gossamer.sides.ledger import Account, Charges, Ledger, MemoryLedger, Receipt
from gossamer.sides.plan import WHOLE, ClientUpdate, Curator, Revealed, SidePlan, Trust

KIND, OTHER = ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.5), 3), ReleaseKind(Gaussian(1.0, 1.0), Poisson(0.5), 3)
CLIENT = ReleaseKind(Gaussian(1.0, 2.0), WHOLE, 3)
STREAM, ANOTHER = (StreamKind(CorrelatedNoise(Factorisation("independent", 2), sd), 2, 3) for sd in (2.0, 1.0))
NOISE, LESS = AgentNoise(50, 4.0, 3), AgentNoise(5, 4.0, 3)
BUDGET = admits_all(NeighboringRelation.ADD_OR_REMOVE_ONE)
OF_CLIENTS = admits_all(NeighboringRelation.REPLACE_ONE)
CASES: dict[str, tuple[Any, Receipt, Receipt]] = {
    "samples": (Charges({KIND: 2}), Receipt(KIND), Receipt(OTHER)),
    "stream": (Charges({STREAM: 2}, owners=("a", "b"), account=Account.STREAM), Receipt(STREAM), Receipt(ANOTHER)),
    "sums": (Charges({NOISE: 2}, observer="own server", account=Account.SUMS), Receipt(NOISE), Receipt(LESS)),
    "curator": (
        Charges({CLIENT: 2}, unit=WHOLE_CLIENT, owners=("a", "b", "c"), curator="server"),
        Receipt(CLIENT, ("a", "b")),
        Receipt(KIND, ("a",)),
    ),
}


class Planned:
    """A plan, of which only the charges matter."""

    def __init__(self, charges: Any) -> None:
        self._charges = charges

    def charges(self) -> Any:
        return self._charges

    def revealed(self, *_: Any) -> Revealed:
        return Revealed(lambda *_: 1.0)


def in_memory(charges: Any) -> Ledger:
    return MemoryLedger("server", charges)


def on_disk(charges: Any) -> Ledger:
    plan: Any = Planned(charges)
    budget = OF_CLIENTS if charges.curator else BUDGET
    return stored_ledger(LedgerFile(":memory:"), "server", "data", "run", budget, plan, Trust.SCOPE)


@pytest.mark.parametrize("made", [in_memory, on_disk])
@pytest.mark.parametrize("name", CASES)
def test_so_many_are_charged_and_numbered_and_no_more(name: str, made: Callable[[Any], Ledger]) -> None:
    charges, receipt, _ = CASES[name]
    ledger = made(charges)
    numbers = [ledger.charge(receipt) for _ in range(2)]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == ledger.releases
    with pytest.raises(BudgetSpent, match="refused"):
        ledger.charge(receipt)
    assert ledger.releases == numbers[-1]


@pytest.mark.parametrize("made", [in_memory, on_disk])
@pytest.mark.parametrize("name", CASES)
def test_another_law_than_planned_is_refused(name: str, made: Callable[[Any], Ledger]) -> None:
    """It would be counted elsewhere, and so never be limited; or as the planned one, which it is not."""
    charges, _, other = CASES[name]
    ledger = made(charges)
    with pytest.raises(BudgetSpent, match="not in the plan"):
        ledger.charge(other)
    assert ledger.releases == 0


@pytest.mark.parametrize("name", CASES)
def test_a_ledger_on_disk_has_the_lines_of_one_in_memory(name: str) -> None:
    charges, receipt, _ = CASES[name]
    made = in_memory(charges), on_disk(charges)
    for ledger in made:
        ledger.charge(receipt)
    assert made[0].lines() == made[1].lines() != []


def test_a_curator_charges_all_whose_updates_are_in_the_sum_or_nobody() -> None:
    charges, receipt, _ = CASES["curator"]
    ledger = MemoryLedger("server", charges)
    for _ in range(2):
        ledger.charge(receipt)
    before = dict(ledger.counts)
    with pytest.raises(BudgetSpent, match="b: release refused"):
        ledger.charge(Receipt(CLIENT, ("c", "b")))
    assert ledger.counts == before
    ledger.charge(Receipt(CLIENT, ("c",)))
    assert [(line["node"], line["releases"]) for line in ledger.lines()] == [("a", 2), ("b", 2), ("c", 1)]


def test_without_noise_everything_is_counted() -> None:
    ledger = MemoryLedger("a", Charges({}, held=False))
    kind = ReleaseKind(NoNoise(1.0), Poisson(0.5), 3)
    assert [ledger.charge(Receipt(kind)) for _ in range(5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("number", [-1, 1.5, True])
def test_what_is_no_number_of_releases_is_refused(number: Any) -> None:
    with pytest.raises(AccountingError):
        MemoryLedger("a", Charges({}, held=False), {KIND: number})
    with pytest.raises(AccountingError):
        Charges({NOISE: number}, account=Account.SUMS)


def test_a_raw_update_is_charged_for_a_replacement_whatever_the_owner_counts_by() -> None:
    """One example that comes or goes moves a whole update by up to twice its length."""
    curator = Curator({CLIENT: 20}, 3, ("a", "b", "c"), 1.0)
    side = ClientUpdate(bound=1.0, scope=curator.scope, behind=curator)
    file = LedgerFile(":memory:")
    stored_ledger(file, "a", "data", "run", BUDGET, side, Trust.SCOPE)
    true = curator.revealed(Trust.SCOPE).divergence(BUDGET.order, NeighboringRelation.REPLACE_ONE)
    assert file.spent("data") == true > curator.revealed(Trust.SCOPE).divergence(BUDGET.order, BUDGET.relation)


def test_a_plan_says_itself_what_it_reveals_and_is_charged() -> None:
    """A kind of plan that says nothing of it is none, and is not taken for one that reveals nothing."""

    class Unsaid(SidePlan):
        pass

    with pytest.raises(TypeError, match=r"apart.*charges.*drawn.*revealed.*said"):
        Unsaid()  # type: ignore[abstract]
