"""A party's data, their ledger, the data side that its node asks, and the file of what that keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.algorithms.plan import Plan
from gossamer.data.examples import Split
from gossamer.deployment.owner.owned_data import OwnedData
from gossamer.deployment.owner.policy_rules import relies
from gossamer.deployment.owner.spending import Spending, spending_of
from gossamer.deployment.party.agreement import Agreed
from gossamer.deployment.party.computing import deployed_computer, deployed_epsilon, deployed_guarantees, paced
from gossamer.deployment.party.data import load_party_split
from gossamer.deployment.party.joining import Invited, PartyOptions, asked
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import DataError
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.keys.membership import AGENT
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.streams.correlated_noise import StreamRecord
from gossamer.protocol.encoding import encode
from gossamer.runtimes.storage.file import LOST, File, Format
from gossamer.runtimes.storage.ledger import DurableLedger, LedgerFile, admits_all, stored_ledger
from gossamer.runtimes.storage.receipts import StoredReceipts
from gossamer.sides.filled import nobody_like
from gossamer.sides.ledger import NO_CHARGES, Account, Ledger, MemoryLedger
from gossamer.sides.masked_side import Signing
from gossamer.sides.plan import SidePlan, Trust, counts_of, most_of
from gossamer.sides.receipts import PURPOSE as RECEIPTS

# State that data sides keep over restarts, in one SQLite file: the mark of who masks, the records of a unit's server.
#
# Whoever masks its updates marks the newest round that it has said something secret in (`sides.home`); a unit's
# server keeps the answers that later ones go on from (`privacy.streams.records`). No noise, key or sample is ever in
# it. A server's records hold its raw state, so the file is as private as the unit's data.

FORMAT = Format(
    what="what a data side keeps",
    identifier=int.from_bytes(b"GSMD"),
    version=2,
    tables=(
        "CREATE TABLE mark (round INTEGER NOT NULL)",
        "CREATE TABLE record (number INTEGER PRIMARY KEY, state BLOB NOT NULL, answer BLOB NOT NULL)",
    ),
    damaged=LOST,
    older=LOST,
)
_NUMBERS = np.dtype("<f8")


class SideFile:
    """The file of one node of one run: a `RoundMark`, and `StreamRecords`.

    Parameters
    ----------
    path : Path
        Made if it does not exist, readable by its owner alone.
    run, node : str
        Names of the run and of the node that it is of.
    key : bytes, optional
        The node's secret, by which the file is sealed.

    Raises
    ------
    WrongStore
        If it is something else, another node's, or in use.
    StorageError
        If it cannot be read or written.
    """

    def __init__(self, path: Path, run: str, node: str, key: bytes | None = None) -> None:
        self._file = File(path, FORMAT, {"run": run, "node": node}, alone=True, key=key)
        self.round = max((round for (round,) in self._file.rows("SELECT round FROM mark")), default=-1)

    def reached(self, round: int) -> None:
        """Mark ``round``; it is durable when this returns."""
        with self._file.transaction():
            self._file.execute("DELETE FROM mark")
            self._file.execute("INSERT INTO mark VALUES (?)", max(round, self.round))
        self.round = max(round, self.round)

    def kept(self) -> list[StreamRecord]:
        """The newest records, the oldest first.

        Raises
        ------
        DataError
            If their vectors are not of one size.
        """
        rows = self._file.rows("SELECT number, state, answer FROM record ORDER BY number")
        found = [StreamRecord(number, _vector(state), _vector(answer)) for number, state, answer in rows]
        sizes = {vector.size for record in found for vector in (record.state, record.answer)}
        if len(sizes) > 1:
            raise DataError(
                f"{self._file.path}: records have {sorted(sizes)} numbers, expected one size; it is damaged"
            )
        return found

    def keep(self, record: StreamRecord, most: int) -> None:
        """Keep ``record``, and no more than the newest ``most``; it is durable when this returns."""
        with self._file.transaction():
            content = (vector.astype(_NUMBERS).tobytes() for vector in (record.state, record.answer))
            self._file.execute("INSERT INTO record VALUES (?, ?, ?)", record.number, *content)
            self._file.execute("DELETE FROM record WHERE number <= ?", record.number - most)

    def close(self) -> None:
        """Let others have it."""
        self._file.close()


def _vector(content: bytes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.frombuffer(content, _NUMBERS).astype(np.float64)


UNIT_LEDGER = "unit.ledger"
"""File in the state folder of a server that releases others' data."""


class DataHeld:
    """Data that a party holds, their ledger and their data side.

    Parameters
    ----------
    options : PartyOptions
        Place where the data are.
    invited : Invited
        Party whose policy has let the run pass.
    folder : StateFolder
        Taken.

    Attributes
    ----------
    agreed : Agreed
        Terms with this party's examples, if it has any.
    test : Split or None
        Examples to test the model on.
    computer : Computer
        The data side.
    charged : int
        Releases of this run that the ledger had before this process.
    ledger : ledger or None
        Ledger of what was charged; None for a party that releases nothing, and before `charge`.
    receipts : StoredReceipts or None
        Receipts of that; None for a party that is charged nothing, or whose releases nothing holds to a plan.

    Raises
    ------
    GossamerError
        If the data do not fit, or changed, or have not enough of their budget left.
    """

    def __init__(self, options: PartyOptions, invited: Invited, folder: StateFolder) -> None:
        self._invited, self._folder = invited, folder
        self._owned: OwnedData | None = None
        self._kept: SideFile | None = None
        self._unit: LedgerFile | None = None
        self.ledger: Ledger | None = None
        self.charged = 0
        self.agreed, self.test = invited.agreed, None
        if invited.data is not None:
            train, test = self._load(options, invited)
            self.agreed = invited.agreed.with_data(train, test)
            # What a module cannot do in a deployment shows at its first gradient, and nothing may be charged by then.
            prepared, nobody = self.agreed.prepared, nobody_like(train)
            start = prepared.objective.initial(np.random.default_rng(0))
            prepared.objective.steady().clipped_gradients(start[None], nobody, [np.arange(1)], 1.0)
            self.test = None if test is None else self.agreed.prepared.dataset.test
            self._open(options, invited, train, folder)
            self._rehearse()
        elif (charges := self.agreed.plan.side(self._name).charges()) is not None and charges.owners:
            self._unit = LedgerFile(folder.path / UNIT_LEDGER, invited.state_key)
        self.receipts = self._receipts()

    def _rehearse(self) -> None:
        """See whether the ledger would refuse the plan; nothing is entered."""
        assert self._owned is not None
        with self._owned.file.rehearsal():
            found = self._ledger()
            self.charged = 0 if found is None else found.releases

    def charge(self) -> None:
        """Enter the plan of the whole run in the ledger.

        Raises
        ------
        BudgetSpent
            If another run has taken what was left.
        """
        self.ledger = self._ledger()
        if self.receipts is not None and self.ledger is not None:
            self.receipts.begin(self.agreed.plan.side(self._name), self._invited.identity.public_key.raw.hex())

    def _receipts(self) -> StoredReceipts | None:
        """Receipts beside the charges; none where nothing is charged, or nothing holds what is released to a plan."""
        charges = self.agreed.plan.side(self._name).charges()
        file = self._unit if self._owned is None else self._owned.file
        if charges is None or charges.most is None or file is None:
            return None
        return file.receipts(self.agreed.terms.invitation.run, self._name)

    def _ledger(self) -> Ledger | None:
        """The ledger that the data side of this party charges, with the whole plan in it."""
        if self._owned is not None:
            return _owners_ledger(self.agreed, self._owned, self._folder)
        if self._unit is None:
            return None
        side, run = self.agreed.plan.side(self._name), self.agreed.terms.invitation.run
        return _server_ledger(side, self._name, run, self._unit)

    def open(self) -> None:
        """Make the data side, which charges each release to the ledger."""
        side = self.agreed.plan.side(self._name)
        kept = self._kept = _side_file(self.agreed, side, self._folder, self._invited.state_key)
        computer = deployed_computer(
            self.agreed.prepared,
            self.agreed.plan,
            self._name,
            None if side.charges() is None else self.ledger,
            kept=kept,
            signing=_signing(self._invited),
            receipts=self.receipts,
        )
        self.computer = paced(computer, self.agreed.prepared, self._folder.tell_owner)

    @property
    def _name(self) -> str:
        return self.agreed.terms.me.name

    def _load(self, options: PartyOptions, invited: Invited) -> tuple[Split, Split | None]:
        assert invited.data is not None
        terms = invited.agreed.terms
        settings, budget = terms.experiment.dataset, terms.experiment.budget
        return load_party_split(
            settings,
            invited.data,
            options.test,
            examples=terms.sizes[self._name],
            rows_per_person=None if budget is None else budget.rows_per_person,
            say=self._folder.tell_owner,
        )

    def _open(self, options: PartyOptions, invited: Invited, train: Split, folder: StateFolder) -> None:
        assert invited.policy is not None  # or it would not have been accepted
        self._owned = OwnedData.open(invited.policy, options.data_name, invited.data)
        for line in self._owned.check(train, used=len(train.targets)):
            folder.tell_owner(line)

    @property
    def planned_releases(self) -> int | None:
        """Most releases that this party's ledger is opened for; None for one that is charged nothing."""
        return most_of(self.agreed.plan.side(self._name))

    @property
    def computations_per_update(self) -> int:
        """Answers of the data side that an update takes: one, or one for each step where steps are released."""
        if self._name not in self.agreed.terms.sizes:
            return 1
        return sum(self.agreed.prepared.workload.counts(self._name, 1).values())

    @property
    def spending(self) -> Spending | None:
        """Spending of the owner's data set by all runs; None for a party without data of an owner."""
        return None if self._owned is None else spending_of(self._owned.policy, self._owned.file, self._owned.name)

    @cached_property
    def guarantees(self) -> tuple[Guarantee, Mapping[str, Guarantee]]:
        """The guarantee of a party with data, and those by observer where they differ."""
        return deployed_guarantees(self.agreed.prepared, self.agreed.plan)

    @property
    def policy_charged(self) -> dict[str, float] | None:
        """Epsilon that the policy allows, and what is charged to it by all runs; None without one, or a proof."""
        spending = self.spending
        if spending is None or spending.budget is None:
            return None
        charged, shares = spending.epsilon, spending.shares
        if charged is None or shares is None or not math.isfinite(charged):
            return None
        return {"epsilon": spending.budget.epsilon, "epsilon_charged": charged, "share_charged": min(shares)}

    def describe(self) -> dict[str, Any]:
        """Describe what is proved of this party's data, and what was released, as plain data."""
        plan, prepared, ledger = self.agreed.plan, self.agreed.prepared, self.ledger
        releases = 0 if ledger is None else ledger.releases
        if not self.agreed.terms.holds_data:
            return {"releases": releases}
        guarantee, by_observer = self.guarantees
        others = {observer: found.as_dict() for observer, found in by_observer.items()}
        return {
            "epsilon": _finite(deployed_epsilon(prepared, plan, self._name)),
            "releases": releases,
            "planned_releases": self.planned_releases,
            "guarantee": guarantee.as_dict(),
            **({"guarantees": others} if others else {}),
            "said": _said(guarantee, by_observer),
            "ledger": [] if ledger is None else ledger.lines(),
        }

    def sign_receipts(self, head: bytes) -> bytes:
        """Sign the head of the receipts by the party's key."""
        return self._invited.identity.sign(RECEIPTS, head)

    def close(self) -> None:
        """Give ledger and files back."""
        for held in (self._owned, self._kept, self._unit):
            if held is not None:
                held.close()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _said(guarantee: Guarantee, others: Mapping[str, Guarantee]) -> list[str]:
    """Guarantees in words, each observer's once."""
    by_name = {other.observer: other for other in others.values() if other.observer != guarantee.observer}
    return [str(guarantee), *(other.beside for other in by_name.values())]


def _side_file(agreed: Agreed, side: SidePlan, folder: StateFolder, key: bytes) -> SideFile | None:
    """File in which data sides that mask, hand over or sum what is raw keep what must outlive a crash."""
    if not (side.trusted.scope or side.trusted.marked):
        return None
    return SideFile(folder.path / "side.sqlite", agreed.terms.invitation.run, agreed.terms.me.name, key)


def _signing(invited: Invited) -> Signing:
    """Signing of the keys of masked sums by the members, as the invitation names them."""
    return Signing(invited.identity, {m.name: m.key for m in invited.agreed.terms.invitation.members})


def _owners_ledger(agreed: Agreed, owned: OwnedData, folder: StateFolder) -> Ledger:
    """The ledger of a party with data, in the file of its owner."""
    name, run = agreed.terms.me.name, agreed.terms.invitation.run
    side = agreed.plan.side(name)
    charges = side.charges() or NO_CHARGES
    if charges.most is None:
        # What nothing is proved of has spent all that its data had left, and no number of releases is more than that:
        # nor is none, since nothing holds the node to what was planned.
        owned.ledger(run, name, counts_of(side) or {}, proved=False, enforced=False)
        return MemoryLedger(name, charges)

    def opened(part: str) -> DurableLedger:
        """All that the run reveals is in the account before the party joins."""
        proved = math.isfinite(agreed.plan.epsilons[name])
        with _once_where_shared(agreed, side, owned):
            if charges.account is Account.RELEASES:
                return owned.ledger(run, name, charges.kinds, proved=proved)
            # A whole update moves as far as a replacement does, whatever relation the owner counts its examples by.
            revealed = side.revealed(Trust.SCOPE if _trusting(agreed, owned) else Trust.NOBODY)
            divergence = revealed.divergence(owned.budget.order, NeighboringRelation.REPLACE_ONE)
            return owned.unit_share(run, name, divergence, charges.kinds, unit_terms(agreed, folder), revealed.entry)

    return charges.stored(name, owned.budget.relation, opened)


def _trusting(agreed: Agreed, owned: OwnedData) -> bool:
    """Whether the owner trusts those whom the plan counts on: an agent's server, or others to add their noise."""
    if agreed.terms.me.role == AGENT:
        return owned.policy.trust_own_server
    return relies(owned.policy, asked(agreed, owned.name))


def _once_where_shared(agreed: Agreed, side: SidePlan, owned: OwnedData) -> AbstractContextManager[None]:
    """Entering of a plan, where the noise that counts is that of a sum and not of what this party sends."""
    me = agreed.terms.me
    if side.trusted.counts_on(me.name) is None and not side.trusted.scope:
        return nullcontext()
    return owned.once_in(agreed.terms.invitation.run, me.name)


def _server_ledger(side: SidePlan, name: str, run: str, file: LedgerFile) -> Ledger:
    """Ledger of how much a server releases of others' data. What that reveals is in the ledgers of the owners."""
    return stored_ledger(file, name, "unit", run, admits_all(NeighboringRelation.REPLACE_ONE), side, Trust.SCOPE)


def unit_terms(agreed: Agreed, folder: StateFolder) -> bytes:
    """Terms of an agent's unit with its data: the spec, whom it trusts with that, and from which folder.

    An agent that came back without its state would hand over the updates of rounds that it took part in before.
    """
    terms = agreed.terms
    unit = [(m.name, m.role, str(m.key)) for m in terms.invitation.members if m.name == terms.me.unit]
    return encode((terms.invitation.spec_sha256, terms.me.name, unit, folder.instance))


def planned_divergence(prepared: Prepared, plan: Plan, name: str, order: float, relation: NeighboringRelation) -> float:
    """The Renyi divergence of all that a run's plan releases of a party's data; infinite where nothing is proved."""
    if not math.isfinite(plan.epsilons[name]):
        return math.inf
    return plan.side(name).revealed(Trust.SCOPE).divergence(order, relation)
