"""Ledgers of data sides in an owner's file: opened for what a plan is charged."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.errors import SpecError
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.releases import Counts
from gossamer.privacy.streams.agent_noise import AgentNoise
from gossamer.privacy.streams.unit_ledger import StreamKind
from gossamer.runtimes.storage.filters import Budget
from gossamer.runtimes.storage.ledger import DurableLedger, LedgerFile
from gossamer.runtimes.storage.unit_ledgers import DurableLawLedger
from gossamer.sides.ledger import Ledger, MemoryLedger, StoredLedger
from gossamer.sides.plan import SidePlan, Trust


def stored_ledger(
    file: LedgerFile, name: str, data_set: str, run: str, budget: Budget, plan: SidePlan, trust: Trust
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
    if charges is None:
        raise SpecError(f"nothing that {name} releases is charged")
    ledger = charges.opened(name, FileAccounts(file, data_set, run, budget, plan, trust))
    return MemoryLedger(name, charges) if ledger is None else StoredLedger(name, ledger, charges)


@dataclass(frozen=True)
class FileAccounts:
    """Accounts of one run, in a file."""

    file: LedgerFile
    data_set: str
    run: str
    budget: Budget
    plan: SidePlan
    trust: Trust

    @property
    def relation(self) -> NeighboringRelation:
        return self.budget.relation

    def releases(self, owner: str, most: Counts, part: str = "") -> DurableLedger:
        return self.file.open(owner, f"{self.data_set} {part}" if part else self.data_set, self.run, self.budget, most)

    def stream(self, owner: str, stream: StreamKind) -> DurableLawLedger:
        # What the records reveal is in the ledgers of those whose data they hold.
        return self.file.open_stream(owner, self.data_set, self.run, self.budget, stream, 0.0)

    def sums(self, owner: str, noise: AgentNoise | None, most: int) -> DurableLawLedger:
        # A whole update moves as far as a replacement does, whatever relation the budget counts examples by.
        divergence = self.plan.divergence(self.budget.order, NeighboringRelation.REPLACE_ONE, self.trust)
        return self.file.open_agent(owner, self.data_set, self.run, self.budget, divergence, noise, most)
