"""The ledger of a data owner: what each data set has released, over all runs, on disk before the noise is drawn.

A run *opens* its part of the ledger under the name that the owner gave the data set, and then charges its releases:

| run | at opening | each release |
|---|---|---|
| with a plan | the divergence of the whole plan enters the filter, and stays | has to be in the plan |
| without | nothing | its own divergence enters the filter |

The filter is one `RenyiFilter` a data set, whose order and relation are fixed when the data set is first opened: runs
are chosen adaptively, and sums at an order fixed in advance are what is proved then. Its epsilon and delta are the
owner's to change, for reasons that do not depend on what was released: what was spent stays spent, and what is proved
is the largest budget that ever applied.

A charge is committed, and only then returns; so a process that is killed has charged all that it released, and at most
one release more. Several runs, in several processes, may use one ledger at the same time.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gossamer.privacy.tasks  # noqa: F401  gives mechanisms and sampling schemes their encodings
from gossamer.privacy.accountants import renyi_divergence, renyi_epsilon
from gossamer.privacy.agent_noise import AgentNoise
from gossamer.privacy.ledger import Plan, RenyiFilter
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.privacy.unit_ledger import StreamKind
from gossamer.protocol.encoding import decode, encode
from gossamer.runtimes.storage_account import FORMAT, Account, Spent, runs_on, spent_on
from gossamer.runtimes.storage_contents import Contents
from gossamer.runtimes.storage_file import File
from gossamer.runtimes.storage_unit_ledgers import DurableAgentLedger, DurableUnitLedger, known


class LedgerFile:
    """The ledgers of one owner's data sets, in a file that outlives runs.

    Attributes
    ----------
    contents : Contents
        What the data sets consist of.

    Parameters
    ----------
    path : str or Path
        Made if it does not exist. ``:memory:`` keeps it in memory, for tests of crashes in virtual time: what was
        charged stays there as long as this object.

    Raises
    ------
    WrongStore
        If the file is something else, or of another version.
    StorageError
        If it cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = File(Path(path), FORMAT, {}, alone=False)
        self.contents = Contents(self._file)

    def open(
        self,
        owner: str,
        data_set: str,
        run: str,
        budget: RenyiFilter,
        plan: Counts | None = None,
        divergence: float | None = None,
    ) -> DurableLedger:
        """The ledger of ``run`` on ``data_set``; with what was charged, if the run was there before.

        Parameters
        ----------
        owner : str
            In messages and lines: the node.
        data_set, run : str
            Names.
        budget : RenyiFilter
            For everything ever released from the data set. With an infinite epsilon all is admitted, and counted.
        plan : mapping of ReleaseKind to int, optional
            The most releases of each kind, fixed from public information.
        divergence : float, optional
            What the plan is charged with; by default the divergence of its kinds at the budget's order.

        Raises
        ------
        BudgetSpent
            If the plan does not fit into what is left; nothing is charged.
        SpecError
            If the data set was opened for another order or relation, or the run with another plan.
        AccountingError
            If nothing is proved about a kind in the plan.
        StorageError
            If it cannot be written.
        """
        account = Account(self._file, owner, data_set, run, budget)
        if plan is None:
            account.open(None, 0.0)
            return DurableLedger(account, None)
        plan = {kind: int(number) for kind, number in plan.items() if number}
        cost = known(budget.spent(plan) if divergence is None else divergence)
        account.open({_encoded(kind): number for kind, number in plan.items()}, cost)
        return DurableLedger(account, Plan(plan))

    def open_stream(
        self,
        owner: str,
        data_set: str,
        run: str,
        budget: RenyiFilter,
        stream: StreamKind,
        agents: tuple[str, ...],
        divergence: float,
    ) -> DurableUnitLedger:
        """The ledger of a unit's stream of noise, a plan by nature; see `open`.

        Parameters
        ----------
        owner, data_set, run, budget
            As there; the owner is the unit's server.
        stream : StreamKind
            Opened for all rounds.
        agents : tuple of str
            Whose data each record holds.
        divergence : float
            An upper bound of the Renyi divergence of all its records together, at the budget's order.
        """
        account = Account(self._file, owner, data_set, run, budget)
        account.open({encode(stream.describe()): stream.records}, known(divergence))
        return DurableUnitLedger(account, agents, stream)

    def open_agent(
        self,
        owner: str,
        data_set: str,
        run: str,
        budget: RenyiFilter,
        divergence: float,
        noise: AgentNoise | None = None,
        most: int = 0,
        terms: bytes = b"",
    ) -> DurableAgentLedger:
        """The ledger of an agent of a unit, whose data its unit's server releases; see `open`.

        All that will ever be released of the agent's data in the run enters at once, before the agent joins.

        Parameters
        ----------
        owner, data_set, run, budget
            As there; the owner is the agent.
        divergence : float
            An upper bound of the Renyi divergence, at the budget's order, of all that whoever the budget is against
            will see (`gossamer.privacy.unit_divergence`).
        noise : AgentNoise, optional
            What the agent adds to its updates itself, if it does.
        most : int
            In how many masked sums.
        terms : bytes
            What was agreed on: a run that is opened again on other terms is another run.
        """
        account = Account(self._file, owner, data_set, run, budget)
        plan = {} if noise is None else {encode(noise.describe()): most}
        account.open(plan | {encode(("terms", terms)): 0}, known(divergence))
        return DurableAgentLedger(account, noise, most)

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
        """What each run has spent of ``data_set``, in the order in which they were opened."""
        return runs_on(self._file, data_set)

    def spent(self, data_set: str) -> float:
        """The divergence that ``data_set`` has spent at its filter's order: of plans, and of releases without one."""
        return spent_on(self._file, data_set)

    def epsilon(self, data_set: str, delta: float) -> float:
        """What `spent` amounts to at ``delta``: a reading.

        It is proved of runs that were fixed in advance. Of runs that were chosen after earlier ones were seen, and of
        their number, what is proved is the budget.
        """
        found, spent = self.filter_of(data_set), self.spent(data_set)
        return renyi_epsilon(found[0], spent, delta) if found and spent else 0.0

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


class DurableLedger:
    """What one run has released from one data set: a `gossamer.privacy.ledger.Ledger` that outlives its process.

    Made by `LedgerFile.open`.

    Attributes
    ----------
    counts : dict of ReleaseKind to int
        What has been charged.
    """

    def __init__(self, account: Account, plan: Plan | None) -> None:
        self._account, self._plan = account, plan
        self.counts: dict[ReleaseKind, int] = {_decoded(kind): number for kind, number in account.counts().items()}

    @property
    def owner(self) -> str:
        """Whose data."""
        return self._account.owner

    @property
    def releases(self) -> int:
        """How many releases the run has been charged, of all kinds."""
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
        # A plan has paid for its releases; their own divergence is of no use.
        divergence = 0.0 if plan is not None else renyi_divergence(kind, budget.order, budget.relation)
        self.counts[kind] = self._account.charge(_encoded(kind), str(kind.describe()), known(divergence), refusal)

    def lines(self) -> list[dict[str, Any]]:
        """One record a kind, for ``ledger.jsonl``."""
        return [{"node": self.owner, "releases": n, **kind.describe()} for kind, n in self.counts.items()]


_CASTS: dict[Any, Any] = {"float": float, "int": int}  # by the names of types in annotations


def _encoded(kind: ReleaseKind) -> bytes:
    """Kinds that are equal, such as of a clip 1 and a clip 1.0, are the same bytes: one count for both."""
    parts = (_cast(kind.mechanism), _cast(kind.sampling), int(kind.size))
    return encode(parts)


def _cast(part: Any) -> Any:
    """A mechanism or a sampling scheme with numbers of the types that it declares."""
    casts = {field.name: _CASTS[field.type] for field in fields(part) if field.type in _CASTS}
    return replace(part, **{name: cast(getattr(part, name)) for name, cast in casts.items()})


def _decoded(kind: bytes) -> ReleaseKind:
    return ReleaseKind(*decode(kind))
