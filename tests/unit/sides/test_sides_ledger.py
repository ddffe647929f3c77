"""Ledgers of data sides: what they are opened for, what they refuse, and that both kinds of them say the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gossamer.errors import AccountingError, BudgetSpent, SpecError
from gossamer.privacy.accounting.ledger import Plan, Unlimited
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, NoNoise
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.sampling import Poisson
from gossamer.privacy.streams.agent_noise import AgentNoise
from gossamer.privacy.streams.correlated_noise import Factorisation
from gossamer.privacy.streams.noise_streams import CorrelatedNoise, StreamKind
from gossamer.runtimes.storage.ledger import FileAccounts, LedgerFile, admits_all, stored_ledger
from gossamer.sides.charges import Receipt
from gossamer.sides.charging_rules import NO_CHARGES, CuratorCharges, ReleaseCharges, StreamCharges, SumCharges
from gossamer.sides.ledger import Ledger, MemoryLedger
from gossamer.sides.plan import WHOLE, ClientUpdate, Curator, Trust

KIND, OTHER = ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.5), 3), ReleaseKind(Gaussian(1.0, 1.0), Poisson(0.5), 3)
CLIENT = ReleaseKind(Gaussian(1.0, 2.0), WHOLE, 3)
STREAM, ANOTHER = (StreamKind(CorrelatedNoise(Factorisation("independent", 2), sd), 2, 3) for sd in (2.0, 1.0))
NOISE, LESS = AgentNoise(50, 4.0, 3), AgentNoise(5, 4.0, 3)
BUDGET = admits_all(NeighboringRelation.ADD_OR_REMOVE_ONE)
OF_CLIENTS = admits_all(NeighboringRelation.REPLACE_ONE)
CASES: dict[str, tuple[Any, Receipt, Receipt]] = {
    "samples": (ReleaseCharges(Plan({KIND: 2})), Receipt(KIND), Receipt(OTHER)),
    "stream": (StreamCharges(STREAM, ("a", "b")), Receipt(STREAM), Receipt(ANOTHER)),
    "sums": (SumCharges(NOISE, 2), Receipt(NOISE), Receipt(LESS)),
    "curator": (
        CuratorCharges("server", ("a", "b", "c"), Plan({CLIENT: 2})),
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

    def divergence(self, *_: Any) -> float:
        return 1.0


def in_memory(charges: Any) -> Ledger:
    return MemoryLedger("server", charges)


def on_disk(charges: Any) -> Ledger:
    plan: Any = Planned(charges)
    budget = OF_CLIENTS if isinstance(charges, CuratorCharges) else BUDGET
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
    ledger = MemoryLedger("a", ReleaseCharges(Unlimited()))
    kind = ReleaseKind(NoNoise(1.0), Poisson(0.5), 3)
    assert [ledger.charge(Receipt(kind)) for _ in range(5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("number", [-1, 1.5, True])
def test_what_is_no_number_of_releases_is_refused(number: Any) -> None:
    with pytest.raises(AccountingError):
        MemoryLedger("a", ReleaseCharges(Unlimited()), {KIND: number})
    with pytest.raises(SpecError, match="masked sums"):
        SumCharges(NOISE, number)


def test_a_raw_update_is_charged_for_a_replacement_whatever_the_owner_counts_by() -> None:
    """One example that comes or goes moves a whole update by up to twice its length."""
    curator = Curator({CLIENT: 20}, 3, ("a", "b", "c"), 1.0)
    side = ClientUpdate(bound=1.0, scope=curator.scope, behind=curator)
    file = LedgerFile(":memory:")
    NO_CHARGES.opened("a", FileAccounts(file, "data", "run", BUDGET, side, Trust.SCOPE))
    true = curator.divergence(BUDGET.order, NeighboringRelation.REPLACE_ONE, Trust.SCOPE)
    assert file.spent("data") == true > curator.divergence(BUDGET.order, BUDGET.relation, Trust.SCOPE)
