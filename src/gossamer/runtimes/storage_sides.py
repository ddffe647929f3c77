"""Ledgers of data sides in an owner's file: opened for what a plan is charged."""

from __future__ import annotations

from gossamer.errors import SpecError
from gossamer.privacy.ledger import Plan
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.runtimes.storage_filters import Budget
from gossamer.runtimes.storage_ledger import LedgerFile
from gossamer.sides.charges import Charges, CuratorCharges, ReleaseCharges, StreamCharges, SumCharges
from gossamer.sides.ledger import Ledger, MemoryLedger, StoredAccounts, StoredLedger
from gossamer.sides.plan import SidePlan, Trust


def stored_ledger(
    file: LedgerFile, name: str, data_set: str, run: str, budget: Budget, plan: SidePlan, trust: Trust = Trust.SCOPE
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
        As for `LedgerFile.open`; each owner of a curator's sums has a data set of its own.
    plan : SidePlan
        Which is charged.
    trust : Trust
        Whom the owner trusts.

    Raises
    ------
    BudgetSpent
        If the plan does not fit into what is left; nothing is charged.
    SpecError
        If nothing is charged for the plan, the run was opened with another one, or the budget does not count what one
        example moves a whole client's update by.
    StorageError
        If it cannot be written.
    """
    charges = plan.charges()
    _check_relation(charges, budget)
    match charges:
        case ReleaseCharges(policy=Plan() as planned):
            return StoredLedger(file.open(name, data_set, run, budget, planned.most), charges)
        case StreamCharges():
            # What the records reveal is in the ledgers of those whose data they hold.
            ledger = file.open_stream(name, data_set, run, budget, charges.stream, charges.owners, 0.0)
            return StoredLedger(ledger, charges)
        case SumCharges():
            divergence = plan.divergence(budget.order, budget.relation, trust)
            return StoredLedger(
                file.open_agent(name, data_set, run, budget, divergence, charges.noise, charges.sums), charges
            )
        case CuratorCharges(policy=Plan() as planned):
            accounts = {
                owner: file.open(owner, f"{data_set} {owner}", run, budget, planned.most) for owner in charges.owners
            }
            return StoredAccounts(name, accounts, charges)
        case None:
            raise SpecError(f"nothing that {name} releases is charged")
    return MemoryLedger(name, charges)


def _check_relation(charges: Charges | None, budget: Budget) -> None:
    """Refuse releases of whole clients' updates in a budget of examples that come and go.

    One of a client's examples may move its update by twice the bound, and taking all away by the bound alone: in such
    a budget the releases would count as half of what they reveal of one example.
    """
    of_clients = isinstance(charges, CuratorCharges) or (
        isinstance(charges, ReleaseCharges) and charges.protects == "client"
    )
    if of_clients and budget.relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise SpecError(
            "updates of whole clients are charged to a budget of the relation replace_one, found add_or_remove_one: "
            "one example that comes or goes may move an update by twice its bound"
        )
