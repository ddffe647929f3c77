"""The ledger of a data owner: what each data set has released, over all runs, on disk before the noise is drawn.

A run *opens* its part of the ledger under the name that the owner gave the data set, and then charges its releases:

| run | at opening | each release |
|---|---|---|
| with a plan | what the whole plan reveals enters the filter, and stays | has to be in the plan |
| with a plan that fits into a series | it takes a place in the series | has to be in the plan |
| without | nothing | what it reveals itself enters the filter |

The filter of a data set is an `EitherFilter`. Its order, its relation and its series are fixed when the data set is
first opened: runs are chosen adaptively, and what is proved then takes that these are not. Its epsilon and delta are
the owner's to change, for reasons that do not depend on what was released: what was spent stays spent, and what is
proved is the largest budget that ever applied.

A charge is committed, and only then returns; so a process that is killed has charged all that it released, and at most
one release more. Several runs, in several processes, may use one ledger at the same time.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from gossamer.errors import SpecError
from gossamer.privacy.accounting.filters import NOTHING_PROVED, EitherFilter, FilterEntry, FilterTotal
from gossamer.privacy.accounting.ledger import ReleasePlan
from gossamer.privacy.accounting.series import RunSeries
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.releases import Counts, ReleaseKind, checked_counts
from gossamer.privacy.streams.agent_noise import AgentNoise
from gossamer.privacy.streams.noise_streams import StreamKind
from gossamer.protocol.encoding import encode
from gossamer.runtimes.storage.account import (
    FORMAT,
    PAID,
    Account,
    Asking,
    Spent,
    asking_given,
    asking_of,
    check_filter,
    decoded,
    disagreement,
    encoded,
    release_cost,
    runs_in,
    runs_on,
    series_of,
    spent_on,
    total_of,
    whole,
)
from gossamer.runtimes.storage.contents import Contents
from gossamer.runtimes.storage.file import File
from gossamer.runtimes.storage.receipts import StoredReceipts, Witnessed, witnessed_in
from gossamer.sides.ledger import Ledger, MemoryLedger, StoredLedger
from gossamer.sides.plan import SidePlan, Trust


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
    budget: EitherFilter
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
        divergence = self.plan.revealed(self.trust).divergence(self.budget.order, NeighboringRelation.REPLACE_ONE)
        return self.file.open_agent(owner, self.data_set, self.run, self.budget, divergence, noise, most)


# The durable ledger of what has one law: the records of a unit's stream of noise, or the masked sums of an agent.


class DurableLawLedger:
    """The releases of one law, opened for so many of them.

    Made by `LedgerFile.open_stream`, and by `LedgerFile.open_agent` with what the unit releases already in it.

    Parameters
    ----------
    account : Account
        Account of the unit's server, or of the agent.
    law : StreamKind, AgentNoise or None
        Law of each release; None for an agent that adds no noise.
    most : int
        Number for which it is opened.
    what, spent : str
        One release in words, and what is said once all are charged.

    Attributes
    ----------
    releases : int
        Number of those that are charged.
    """

    def __init__(
        self, account: Account, law: StreamKind | AgentNoise | None, most: int, *, what: str, spent: str
    ) -> None:
        self._account, self._most, self._what, self._spent = account, most, what, spent
        self._kind = encode(None if law is None else law.describe())
        self.releases = sum(account.counts().values())

    @property
    def owner(self) -> str:
        """The unit's server, or the agent."""
        return self._account.owner

    def charge(self) -> None:
        """Charge the next release; as `DurableLedger.charge`."""
        self.releases = self._account.charge(self._kind, self._what, PAID, self._refusal)

    def _refusal(self, before: int) -> str | None:
        return None if before < self._most else self._spent


class LedgerFile:
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
        The secret that it is sealed with; without one it can be read, and `unlock` gives it later.

    Raises
    ------
    WrongStore
        If the file is something else, of another version, or not what was written.
    StorageError
        If it cannot be opened.
    """

    def __init__(self, path: str | Path, key: bytes | None = None) -> None:
        self._file = File(Path(path), FORMAT, {}, alone=False, key=key)
        self.contents = Contents(self._file)
        try:
            with self._file.transaction():
                why = disagreement(self._file)
            if why is not None:
                raise self._file.damage(why)
        except BaseException:
            self.close()
            raise

    def unlock(self, key: bytes) -> None:
        """Have the key that the ledger is sealed with; only with it is anything written to it.

        Raises
        ------
        WrongStore
            If it is sealed with another one.
        """
        self._file.unlock(key)

    def seal_with(self, key: bytes) -> None:
        """Seal the ledger with a new key; inside a transaction."""
        self._file.seal_with(key)

    def back_up(self, copy: Path) -> None:
        """Copy the ledger, with what is in its log, to a file that does not exist yet; runs may go on charging.

        Raises
        ------
        StorageError
            If it cannot be written.
        """
        self._file.back_up(copy)

    def open(
        self,
        owner: str,
        data_set: str,
        run: str,
        budget: EitherFilter,
        plan: Counts | None = None,
        divergence: float | None = None,
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
        plan : mapping of ReleaseKind to int, optional
            The most releases of each kind, fixed from public information.
        divergence : float, optional
            Divergence that the plan is charged with; by default that of its kinds at the budget's order. If it is
            given, no series has a place for the plan, and nothing of Gaussian privacy is proved unless it is 0.

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
        account = Account(self._file, owner, data_set, run, budget)
        if plan is None:
            account.open(Asking(None, 0.0, lambda total: FilterEntry(0.0)))
            return DurableLedger(account, None)
        plan = {kind: number for kind, number in checked_counts(plan).items() if number}
        account.open(asking_of(account.budget, plan, divergence))
        return DurableLedger(account, ReleasePlan(plan))

    def open_stream(
        self,
        owner: str,
        data_set: str,
        run: str,
        budget: EitherFilter,
        stream: StreamKind,
        divergence: float,
        entry: FilterEntry = NOTHING_PROVED,
    ) -> DurableLawLedger:
        """The ledger of a unit's stream of noise, a plan by nature; see `open`.

        Parameters
        ----------
        owner, data_set, run, budget
            The same as there; the owner is the unit's server.
        stream : StreamKind
            Opened for all rounds.
        divergence : float
            An upper bound of the Renyi divergence of all its records together, at the budget's order.
        entry : FilterEntry
            The same as Gaussian differential privacy, but for a failure.
        """
        account = Account(self._file, owner, data_set, run, budget)
        records = whole(stream.records, "records of a stream")
        account.open(asking_given({encode(stream.describe()): records}, divergence, entry))
        spent = f"the stream was opened for {records} records"
        return DurableLawLedger(account, stream, records, what="a record", spent=spent)

    def open_agent(
        self,
        owner: str,
        data_set: str,
        run: str,
        budget: EitherFilter,
        divergence: float,
        noise: AgentNoise | None = None,
        most: int = 0,
        terms: bytes = b"",
        entry: FilterEntry = NOTHING_PROVED,
    ) -> DurableLawLedger:
        """The ledger of an agent of a unit, whose data its unit's server releases; see `open`.

        All that will ever be released of the agent's data in the run enters at once, before the agent joins.

        Parameters
        ----------
        owner, data_set, run, budget
            The same as there; the owner is the agent.
        divergence : float
            An upper bound of the Renyi divergence, at the budget's order, of all that whoever the budget is against
            will see (`gossamer.privacy.streams.agent_noise`).
        noise : AgentNoise, optional
            Noise that the agent adds to its updates itself, if it does.
        most : int
            Number of masked sums.
        terms : bytes
            Bytes of what was agreed on: a run that is opened again on other terms is another run.
        entry : FilterEntry
            The same as Gaussian differential privacy, but for a failure.
        """
        account = Account(self._file, owner, data_set, run, budget)
        most = whole(most, "masked sums")
        plan = {} if noise is None else {encode(noise.describe()): most}
        account.open(asking_given(plan | {encode(("terms", terms)): 0}, divergence, entry))
        spent = f"the ledger was opened for {most} sums"
        return DurableLawLedger(account, noise, most, what="a masked sum", spent=spent)

    def receipts(self, run: str, party: str) -> StoredReceipts:
        """Receipts of what ``party`` has released in ``run``, in the same file as their charges."""
        return StoredReceipts(self._file, run, party)

    def witnessed(self, run: str) -> Witnessed | None:
        """Receipts of a ``run``, as `runs` names it, and who has countersigned them; None if it has none."""
        return witnessed_in(self._file, run)

    def rehearsal(self) -> AbstractContextManager[None]:
        """Whatever is done to the ledger inside: nothing of it stays, but what would be refused is."""
        return self._file.rehearsal()

    def transaction(self) -> AbstractContextManager[None]:
        """Whatever is done to the ledger and its contents inside: all of it or nothing."""
        return self._file.transaction()

    @property
    def data_sets(self) -> list[str]:
        """All that something was spent of, or that was looked at, by name."""
        found = self._file.rows("SELECT name FROM data_set UNION SELECT data_set FROM content")
        return sorted(name for (name,) in found)

    def filter_of(self, data_set: str) -> tuple[float, NeighboringRelation] | None:
        """Order and relation of a data set's filter; None before it was opened."""
        found = self._file.rows("SELECT renyi_order, relation FROM data_set WHERE name = ?", data_set)
        return (found[0][0], NeighboringRelation(found[0][1])) if found else None

    def runs(self, data_set: str) -> list[Spent]:
        """List what each run has spent of ``data_set``, in the order in which they were opened."""
        return runs_on(self._file, data_set)

    def spent(self, data_set: str) -> float:
        """The divergence that ``data_set`` has spent at its filter's order: of plans, and of releases without one."""
        return spent_on(self._file, data_set)

    def total(self, data_set: str) -> FilterTotal:
        """Total that ``data_set`` has spent as Gaussian privacy."""
        return total_of(self._file, data_set)

    def series(self, data_set: str) -> dict[RunSeries, int]:
        """The series of ``data_set``, and how many runs of each were begun."""
        found = series_of(self._file, data_set)
        return {one: runs_in(self._file, data_set, one.name) for one in found}

    def check_filter(self, data_set: str, budget: EitherFilter) -> None:
        """Raise SpecError if ``data_set`` was begun with another filter than that of an owner's ``budget``."""
        check_filter(self._file, data_set, budget)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


class DurableLedger:
    """Ledger of what one run has released from one data set, kept beyond the end of its process.

    Made by `LedgerFile.open`.

    Attributes
    ----------
    counts : dict of ReleaseKind to int
        Numbers of what has been charged.
    """

    def __init__(self, account: Account, plan: ReleasePlan | None) -> None:
        self._account, self._plan = account, plan
        self.counts: dict[ReleaseKind, int] = {decoded(kind): number for kind, number in account.counts().items()}

    @property
    def owner(self) -> str:
        """Owner of the data."""
        return self._account.owner

    @property
    def releases(self) -> int:
        """Number of releases that the run has been charged, of all kinds."""
        return sum(self.counts.values())

    def charge(self, kind: ReleaseKind) -> None:
        """Charge one release. Only after this returns may its noise be drawn.

        Raises
        ------
        BudgetSpent
            If the plan or the budget does not cover it; nothing is charged.
        StorageError
            If it could not be written. Its noise must not be drawn.
        """
        plan, budget = self._plan, self._account.budget
        refusal = None if plan is None else lambda before: plan.refusal({kind: before}, kind)
        # A plan has paid for its releases; what they reveal themselves is of no use.
        cost = release_cost(kind, budget) if plan is None else PAID
        self.counts[kind] = self._account.charge(encoded(kind), str(kind.describe()), cost, refusal)
