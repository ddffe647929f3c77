"""A party's data, their ledger, the data side that its node asks, and the file of what that keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.algorithms.plan import Plan, differing
from gossamer.deployment.owner.owned_data import OwnedData, Spending, spending_of
from gossamer.deployment.owner.policy import relies
from gossamer.deployment.party.agreement import Agreed, Invited, PartyOptions, asked
from gossamer.deployment.party.data import load_party_split
from gossamer.deployment.party.release_deadline import has_deadline, of_samples, paced
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import DataError, SpecError
from gossamer.experiment.preparation.held_out import OBSERVER, SUM, released
from gossamer.experiment.preparation.held_out_rows import SUFFIX
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.keys.invitations import AGENT
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Foreign
from gossamer.objectives.released_scores import ReleasedScores
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import OPEN_TIMES, PUBLIC_TIMES, NeighboringRelation, Poisson
from gossamer.privacy.streams.correlated_noise import StreamRecord
from gossamer.privacy.tasks import Query
from gossamer.protocol.encoding import encode
from gossamer.runtimes.storage.file import LOST, Format, NodeFile
from gossamer.runtimes.storage.ledger import DurableLedger, LedgerFile, admits_all, stored_ledger
from gossamer.runtimes.storage.receipts import StoredReceipts
from gossamer.sides.deployed import Deployed, Receipts
from gossamer.sides.guarantees import deployed_bound, deployed_guarantee
from gossamer.sides.home import SideStore
from gossamer.sides.ledger import NO_CHARGES, Account, Ledger, MemoryLedger, StoredLedger
from gossamer.sides.masked_side import Signing
from gossamer.sides.plan import Drawn, Samples, SidePlan, Times, Trust, counts_of, most_of, smallest_sum
from gossamer.sides.pool import Pool, open_pool
from gossamer.sides.receipts import PURPOSE as RECEIPTS
from gossamer.sides.samples import ShardRows
from gossamer.sides.sums import Filled, InPieces, nobody_like

# The data side of one deployed party, whatever its algorithm and its part in it, and what is then guaranteed.
#
# | party | asked for | charged for |
# |---|---|---|
# | node with examples of its own | noisy sums on samples of them | each, by its kind |
# | server of a federated unit | the next record of the unit's stream | each, with a line for each agent |
# | agent of a unit | its update, or messages of a masked sum | each sum, if agents add noise |
# | client that masks | messages of a masked sum | each sum, if clients add noise |
# | server without data | nothing | - |


def deployed_computer(
    prepared: Prepared,
    plan: Plan,
    name: str,
    ledger: Ledger | None,
    *,
    kept: SideStore | None = None,
    signing: Signing | None = None,
    receipts: Receipts | None = None,
) -> Pool:
    """The data side of party ``name``, in a process of its own.

    Parameters
    ----------
    prepared : Prepared
        Run whose training examples are this party's, all of its shard.
    plan : Plan
        Plan of the run.
    name : str
        The party.
    ledger : Ledger or None
        Opened for what the party's plan is charged, and durable; None if it is charged nothing.
    kept : SideStore, optional
        State of a server or an agent of a unit; durable. Agents of masked sums need it, and without it correlated noise
        cannot go on after a restart, and is refused.
    signing : Signing, optional
        Needed by agents of masked sums, in a run that has a name.
    receipts : Receipts, optional
        Book in which receipts of the releases are noted.

    Raises
    ------
    CallerError
        If something is missing, or the planned noise cannot be drawn.
    """
    rows = dict(zip(prepared.names, prepared.shards, strict=True)).get(name)
    objective, data = prepared.objective, prepared.dataset.train
    filled = Filled(objective, data, len(rows)) if rows is not None and has_deadline(prepared, plan) else None

    def opened(name: str, plan: SidePlan) -> Ledger:
        if ledger is None:
            raise DataError(f"{name} needs a ledger to charge what it releases to")
        return ledger

    sums = InPieces if filled is None else lambda objective, data: filled
    home = Deployed(opened, kept, signing, sums, receipts)
    shards = {} if rows is None else {name: ShardRows(rows)}
    sides = {name: side_with_queries(prepared, plan, name)}
    return open_pool(sides, shards, objective, data, home, trust=prepared.cast.trust)


def side_with_queries(prepared: Prepared, plan: Plan, name: str) -> SidePlan:
    """Plan of what leaves party ``name``, with the queries that its node will ask at the first clip."""
    side = plan.side(name)
    if not isinstance(side, Samples):
        return side
    clipping, law = prepared.clipping, plan.mechanisms[name]

    def queries() -> tuple[Query, ...]:
        # Drawn anew: a generator takes bytes of the operating system's, and what a party takes has to stay as it is.
        first = clipping.initial(prepared.drawn_initial())
        return tuple(clipping.query(Query(kind.sampling, law, 1.0), first) for kind in side.kinds)

    return replace(side, queries=queries)


# What is guaranteed


def deployed_guarantees(prepared: Prepared, plan: Plan) -> tuple[Guarantee, Mapping[str, Guarantee]]:
    """The plan's guarantee in a deployment, and those by observer where they differ."""
    drawn = _drawn(prepared, plan)
    by_observer = {o: deployed_guarantee(guarantee, drawn[o]) for o, guarantee in plan.guarantees.items()}
    return next(iter(by_observer.values())), differing(by_observer)


def deployed_epsilon(prepared: Prepared, plan: Plan, name: str) -> float:
    """Return the epsilon proved for party ``name``, at the delta of `deployed_guarantees`; infinite where none is."""
    epsilon = plan.epsilons[name]
    if not math.isfinite(epsilon):
        return epsilon
    return deployed_bound(epsilon, prepared.experiment.delta, drawn_by(prepared, plan))[0]


def drawn_by(prepared: Prepared, plan: Plan) -> Drawn:
    """Numbers of the party that draws most for its plan, against whom the noise is planned."""
    return next(iter(_drawn(prepared, plan).values()))


def _drawn(prepared: Prepared, plan: Plan) -> Mapping[str, Drawn]:
    """The same by observer."""
    sides = plan.sides.values()
    most = max(
        (side.drawn() for side in sides), key=lambda drawn: (drawn.floating_point, drawn.numbers), default=Drawn()
    )
    if of_samples(plan):
        # Updates of clients and units are shortened as a whole, whosever gradients they are made of.
        network = not isinstance(prepared.objective, LinearModel)
        counts = [(counts_of(side) or {}).items() for side in sides]
        late = max(sum(n for kind, n in found if isinstance(kind.sampling, Poisson)) for found in counts)
        times = Times(PUBLIC_TIMES, late) if has_deadline(prepared, plan) else Times(OPEN_TIMES)
        most = replace(most, network=network, times=times)
    # Against other observers nothing is proved, or by what members of masked sums draw.
    masked = [side.drawn() for side in sides if smallest_sum(side) is not None]
    others = max(masked, key=lambda drawn: drawn.numbers, default=Drawn())
    observer = plan.guarantee.observer
    found = {who: most if told.observer == observer else others for who, told in plan.guarantees.items()}
    if plan.held_out is None:
        return found
    drawn = plan.held_out.drawn()
    return {**found, OBSERVER: drawn, SUM: replace(drawn, numbers=drawn.numbers * len(prepared.names))}


# State that data sides keep over restarts, in one SQLite file: the mark of who masks, the records of a unit's server.
#
# Whoever masks its updates marks the newest round that it has said something secret in (`sides.home`); a unit's
# server keeps the answers that later ones go on from (`privacy.streams.records`). No noise, key or sample is ever in
# it. A server's records hold its raw state, so the file is as private as the unit's data.

FORMAT = Format(
    what="what a data side keeps",
    identifier=int.from_bytes(b"GSMD"),
    version=3,
    tables=(
        "CREATE TABLE mark (round INTEGER NOT NULL)",
        "CREATE TABLE record (number INTEGER PRIMARY KEY, state BLOB NOT NULL, answer BLOB NOT NULL)",
    ),
    damaged=LOST,
    older=LOST,
)
_NUMBERS = np.dtype("<f8")


class SideFile(NodeFile):
    """The file of one node of one run: a `RoundMark`, and `StreamRecords`; see `NodeFile`."""

    layout = FORMAT

    def __init__(self, path: Path, run: str, node: str, key: bytes | None = None) -> None:
        super().__init__(path, run, node, key)
        self.round = max((round for (round,) in self.rows("SELECT round FROM mark")), default=-1)

    def reached(self, round: int) -> None:
        """Mark ``round``; it is durable when this returns."""
        with self.transaction():
            self.execute("DELETE FROM mark")
            self.execute("INSERT INTO mark VALUES (?)", max(round, self.round))
        self.round = max(round, self.round)

    def kept(self) -> list[StreamRecord]:
        """The newest records, the oldest first.

        Raises
        ------
        DataError
            If their vectors are not of one size.
        """
        rows = self.rows("SELECT number, state, answer FROM record ORDER BY number")
        found = [StreamRecord(number, _vector(state), _vector(answer)) for number, state, answer in rows]
        sizes = {vector.size for record in found for vector in (record.state, record.answer)}
        if len(sizes) > 1:
            raise DataError(f"{self.path}: records have {sorted(sizes)} numbers, expected one size; it is damaged")
        return found

    def keep(self, record: StreamRecord, most: int) -> None:
        """Keep ``record``, and no more than the newest ``most``; it is durable when this returns."""
        with self.transaction():
            content = (vector.astype(_NUMBERS).tobytes() for vector in (record.state, record.answer))
            self.execute("INSERT INTO record VALUES (?, ?, ?)", record.number, *content)
            self.execute("DELETE FROM record WHERE number <= ?", record.number - most)


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
    held_out : StoredLedger or None
        Ledger of what is released of held-out examples; None where nothing is, and before `charge`.
    receipts : StoredReceipts or None
        Receipts of that; None for a party that is charged nothing, or whose releases nothing holds to a plan.

    Raises
    ------
    GossamerError
        If the data do not fit, or changed, or have not enough of their budget left.
    """

    def __init__(self, options: PartyOptions, invited: Invited, folder: StateFolder, *, begun: bool = False) -> None:
        """``begun`` says that the node goes on: faults of an app's client count as zero by now."""
        self._invited, self._folder, agreed = invited, folder, invited.agreed
        self._name, self._run = agreed.me.name, agreed.invitation.run
        self._side = invited.agreed.plan.side(self._name)
        self._owned: OwnedData | None = None
        self._kept: SideFile | None = None
        self._unit: LedgerFile | None = None
        self._trainer: Foreign | None = None
        self.ledger: Ledger | None = None
        self.held_out: StoredLedger | None = None
        self.charged = 0
        self.agreed, self.test = invited.agreed, None
        if invited.data is None and options.trainer is not None:
            raise SpecError("--app: an app trains on a party's own data, and this party has none; leave it out")
        if invited.data is not None:
            settings, budget = agreed.experiment.dataset, agreed.experiment.budget
            each = None if budget is None else budget.rows_per_person
            most, tested = {"examples": agreed.me.examples, "rows_per_person": each}, agreed.plan.held_out is not None
            train, test = load_party_split(
                settings, invited.data, options.test, **most, evaluated=tested, say=folder.tell_owner
            )
            self.agreed = invited.agreed.with_data(train, test)
            prepared, nobody = self.agreed.prepared, nobody_like(train)
            if bool(prepared.objective.whose) != (options.trainer is not None):
                raise SpecError(
                    "--app: an app trains where the spec's objective is foreign: give it there and only there"
                )
            if options.trainer is not None and test is not None:
                raise SpecError("--test: Gossamer tests models that it can call, and an app's it cannot; leave it out")
            if options.trainer is not None:
                place = prepared.names.index(self._name), len(prepared.names)
                self._trainer = options.trainer(prepared.objective, *place)
                if not begun:
                    self._trainer.tried()
                self.agreed = replace(self.agreed, prepared=replace(prepared, objective=self._trainer))
            else:  # what a module cannot do here shows at its first gradient, and nothing may be charged by then
                start = prepared.objective.initial(np.random.default_rng(0))
                prepared.objective.steady().clipped_gradients(start[None], nobody, [np.arange(1)], 1.0)
            self.test = None if test is None else self.agreed.prepared.dataset.test
            if agreed.plan.held_out is not None and test is None:
                raise DataError(
                    "evaluation.release: private needs held-out examples at every party, found none; give --test PATH"
                )
            assert invited.policy is not None  # or it would not have been accepted
            self._owned = OwnedData.open(invited.policy, options.data_name, invited.data)
            for line in self._owned.check(used=len(train.targets)):
                folder.tell_owner(line)
            with self._owned.file.rehearsal():  # whether the ledger would refuse the plan; nothing is entered
                found = self._ledger()
                self.charged = 0 if found is None else found.releases
        elif (charges := self._side.charges()) is not None and charges.owners:
            self._unit = LedgerFile(folder.path / UNIT_LEDGER, invited.state_key)
        self.receipts = self._receipts()

    def charge(self) -> None:
        """Enter the plan of the whole run in the ledger.

        Raises
        ------
        BudgetSpent
            If another run has taken what was left.
        """
        self.ledger, held_out = self._ledger(), self.agreed.plan.held_out
        plans = {self._name: self._side}
        if held_out is not None and isinstance(self.ledger, StoredLedger):
            plans[self._held_out] = held_out
            self.held_out = self.ledger.beside(self._held_out, held_out.charges())
        if self.receipts is not None and self.ledger is not None:
            self.receipts.begin(plans, self._invited.identity.public_key.raw.hex())

    @property
    def _held_out(self) -> str:
        """Name of the party's held-out examples, in ledger and receipts."""
        return f"{self._name}{SUFFIX}"

    def release_held_out(self, model: Any) -> ReleasedScores:
        """Charge, and release then, how a model scores the held-out examples: once, and never again.

        Raises
        ------
        BudgetSpent
            If that was charged before.
        SpecError
            If the model may not be seen by everybody.
        """
        assert self.held_out is not None
        assert self.test is not None
        ledger, rows = self.held_out, ShardRows(np.arange(len(self.test.targets)))
        agreed, keys = self.agreed, {member.name: member.key for member in self.agreed.invitation.members}
        signing = Signing(self._invited.identity, {name: keys[name] for name in agreed.names})
        home = Deployed(lambda name, plan: ledger, signing=signing, receipts=self.receipts)
        own, spec = {self._held_out: rows}, agreed.invitation.spec_sha256
        return released(agreed.prepared, agreed.plan, model, own, home, spec=spec).scores

    def _receipts(self) -> StoredReceipts | None:
        """Receipts beside the charges; none where nothing is charged, or nothing holds what is released to a plan."""
        charges = self._side.charges()
        file = self._unit if self._owned is None else self._owned.file
        if charges is None or charges.most is None or file is None:
            return None
        return file.receipts(self._run, self._name)

    def _ledger(self) -> Ledger | None:
        """The ledger that the data side of this party charges, with the whole plan in it."""
        if self._owned is not None:
            return _owners_ledger(self.agreed, self._owned, self._folder)
        if self._unit is None:
            return None
        # How much a server releases of others' data. What that reveals is in the ledgers of the owners.
        anything = admits_all(NeighboringRelation.REPLACE_ONE)
        return stored_ledger(self._unit, self._name, "unit", self._run, anything, self._side, Trust.SCOPE)

    def open(self) -> None:
        """Make the data side, which charges each release to the ledger."""
        trusted = self._side.trusted
        # What data sides that mask, hand over or sum what is raw keep must outlive a crash.
        if trusted.scope or trusted.marked:
            self._kept = SideFile(self._folder.path / "side.sqlite", self._run, self._name, self._invited.state_key)
        # Keys of masked sums are signed by the members, as the invitation names them.
        signing = Signing(self._invited.identity, {m.name: m.key for m in self.agreed.invitation.members})
        own = self.agreed.prepared, self.agreed.plan, self._name
        ledger = None if self._side.charges() is None else self.ledger
        computer = deployed_computer(*own, ledger, kept=self._kept, signing=signing, receipts=self.receipts)
        self.computer = paced(computer, self.agreed.prepared, self._folder.tell_owner)

    @property
    def planned_releases(self) -> int | None:
        """Most releases that this party's ledger is opened for; None for one that is charged nothing."""
        return most_of(self._side)

    @property
    def computations_per_update(self) -> int:
        """Answers of the data side that an update takes: one, or one for each step where steps are released."""
        if self._name not in self.agreed.invitation.sizes:
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
        releases = 0 if self.ledger is None else self.ledger.releases
        if not self.agreed.holds_data:
            return {"releases": releases}
        epsilon = deployed_epsilon(self.agreed.prepared, self.agreed.plan, self._name)
        guarantee, by_observer = self.guarantees
        others = {observer: found.as_dict() for observer, found in by_observer.items()}
        # Guarantees in words, each observer's once.
        said = {one.observer: one.beside for one in by_observer.values() if one.observer != guarantee.observer}
        lines = [line for ledger in (self.ledger, self.held_out) if ledger is not None for line in ledger.lines()]
        return {
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "releases": releases,
            "planned_releases": self.planned_releases,
            "guarantee": guarantee.as_dict(),
            **({"guarantees": others} if others else {}),
            "said": [str(guarantee), *said.values()],
            "ledger": lines,
        }

    def sign_receipts(self, head: bytes) -> bytes:
        """Sign the head of the receipts by the party's key."""
        return self._invited.identity.sign(RECEIPTS, head)

    def close(self) -> None:
        """Give ledger and files back."""
        for held in (self._trainer, self._owned, self._kept, self._unit):
            if held is not None:
                held.close()


def _owners_ledger(agreed: Agreed, owned: OwnedData, folder: StateFolder) -> Ledger:
    """The ledger of a party with data, in the file of its owner."""
    name, run = agreed.me.name, agreed.invitation.run
    side = agreed.plan.side(name)
    charges = side.charges() or NO_CHARGES
    if charges.most is None:
        # What nothing is proved of has spent all that its data had left, and no number of releases is more than that:
        # nor is none, since nothing holds the node to what was planned.
        owned.ledger(run, name, counts_of(side) or {}, math.inf)
        return MemoryLedger(name, charges)

    def opened(part: str) -> DurableLedger:
        """All that the run reveals is in the account before the party joins."""
        proved = math.isfinite(agreed.plan.epsilons[name]) or not any(charges.kinds.values())
        with _once_where_shared(agreed, side, owned):
            if charges.account is Account.RELEASES:
                return owned.ledger(run, name, agreed.plan.counts(name) or {}, None if proved else math.inf)
            # A whole update moves as far as a replacement does, whatever relation the owner counts its examples by.
            revealed = side.revealed(Trust.SCOPE if _trusting(agreed, owned) else Trust.NOBODY)
            divergence = revealed.divergence(owned.budget.order, NeighboringRelation.REPLACE_ONE)
            return owned.ledger(run, name, charges.kinds, divergence, revealed.entry, unit_terms(agreed, folder))

    return charges.stored(name, owned.budget.relation, opened)


def _trusting(agreed: Agreed, owned: OwnedData) -> bool:
    """Whether the owner trusts those whom the plan counts on: an agent's server, or others to add their noise."""
    if agreed.me.role == AGENT:
        return owned.policy.trust_own_server
    return relies(owned.policy, asked(agreed, owned.name))


def _once_where_shared(agreed: Agreed, side: SidePlan, owned: OwnedData) -> AbstractContextManager[None]:
    """Entering of a plan, where the noise that counts is that of a sum and not of what this party sends, or masks."""
    me, masked = agreed.me, agreed.experiment.evaluation.by == "federation"
    if side.trusted.counts_on(me.name) is None and not side.trusted.scope and not masked:
        return nullcontext()
    return owned.once_in(agreed.invitation.run, me.name)


def unit_terms(agreed: Agreed, folder: StateFolder) -> bytes:
    """Terms of an agent's unit with its data: the spec, whom it trusts with that, and from which folder.

    An agent that came back without its state would hand over the updates of rounds that it took part in before.
    """
    unit = [(m.name, m.role, str(m.key)) for m in agreed.invitation.members if m.name == agreed.me.unit]
    return encode((agreed.invitation.spec_sha256, agreed.me.name, unit, folder.instance))


def planned_divergence(plan: Plan, name: str, order: float, relation: NeighboringRelation) -> float:
    """The Renyi divergence of all that a run's plan releases of a party's data; infinite where nothing is proved."""
    if not math.isfinite(plan.epsilons[name]):
        return math.inf
    held_out = 0.0 if plan.held_out is None else plan.held_out.revealed(Trust.SCOPE).divergence(order, relation)
    return plan.side(name).revealed(Trust.SCOPE).divergence(order, relation) + held_out
