"""Data sides of agents as they were before `sides`: they charge what they are asked for themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.reference.ledgers import AgentLedger

from gossamer.arrays import FloatArray, IndexArray
from gossamer.privacy.tasks import REFUSED, LocalUpdate, MaskingStep
from gossamer.sides.home import Home, RoundMark, SideStore, numbers_of
from gossamer.sides.machine import SideAnswer
from gossamer.sides.masked_side import MemberRule, Signing
from gossamer.sides.plan import MaskedMember, Members
from gossamer.sides.samples import ShardRows
from gossamer.sides.secure_unit import RoundTerms, SecureUnit
from gossamer.vectors import Confined


@dataclass(frozen=True, slots=True)
class AdmittedUpdate:
    """A local update that will be computed with others."""

    side: AgentSide
    task: LocalUpdate


class AgentSide:
    """The data side of one agent.

    Parameters
    ----------
    name : str
        Of the agent.
    shard : ndarray [examples] of int64
        Rows of the training split that belong to it.
    seed : int or None
        Of reproducible sampling, good for simulation only; None samples by the operating system's randomness.
    """

    def __init__(self, name: str, shard: IndexArray, seed: int | None) -> None:
        self.shard = shard
        self._sampling = numbers_of(seed, name, "sampling")

    def admit(self, task: Any) -> Any:
        """Nothing is charged here: updates do not leave the unit."""
        return AdmittedUpdate(self, task)

    def batches(self, task: LocalUpdate) -> IndexArray:
        """Rows of the training split for each step, [steps, batch]: by the round's own coins."""
        query = task.query
        drawn = self._sampling.at(task.id).integers(len(self.shard), size=(query.steps, query.batch))
        rows: IndexArray = self.shard[drawn]
        return rows

    def answer(self, task: LocalUpdate, update: FloatArray) -> SideAnswer:
        """What the agent hands over."""
        return SideAnswer(Confined(update))


@dataclass(frozen=True, slots=True)
class AdmittedStep:
    """A step that will be answered; if noise is drawn for it, it is charged."""

    side: ChargingMaskedSide
    task: MaskingStep

    def answer(self) -> SideAnswer:
        """The agent's message."""
        return SideAnswer(self.side.step(self.task))


class DeclinedUpdate:
    """An update that is not made."""

    __slots__ = ()

    def answer(self) -> SideAnswer:
        """That there is none; to the node it is as if there were one."""
        return SideAnswer(REFUSED)


class World(Home):
    """What one agent is given by its world.

    Parameters
    ----------
    number : int or None
        Seed of all its numbers.
    mark : RoundMark, optional
        The newest round that it has said something secret in.
    signed_by : Signing, optional
        Needed if the unit's keys are signed.
    """

    def __init__(self, number: int | None, mark: RoundMark | None, signed_by: Signing | None) -> None:
        self._number, self._mark, self._signed_by = number, mark, signed_by

    def seed(self, owner: str, purpose: str = "") -> int | None:
        return self._number

    def kept(self, name: str) -> SideStore | None:
        return self._mark  # type: ignore[return-value]

    def signing(self, name: str) -> Any:
        return self._signed_by


class ChargingMaskedSide(MemberRule, AgentSide):
    """The conversation of a masked sum, at an agent that draws its batches and charges its noise itself.

    Parameters
    ----------
    name, unit, members, terms
        As its plan has them.
    seed, mark, signing
        As its world has them.
    secret : callable, optional
        32 bytes for a round, from elsewhere.
    shard : ndarray [examples] of int64
        Rows of the training split that belong to it.
    ledger : AgentLedger, optional
        Needed if agents add noise.
    """

    def __init__(
        self,
        name: str,
        shard: IndexArray,
        seed: int | None,
        unit: SecureUnit,
        members: Members,
        terms: RoundTerms,
        ledger: AgentLedger | None = None,
        secret: Callable[[int], bytes] | None = None,
        mark: RoundMark | None = None,
        signing: Signing | None = None,
    ) -> None:
        nothing: Any = None
        world: Any = World(seed, mark, signing)
        owned: Any = ledger
        MemberRule.__init__(self, name, MaskedMember(unit, members, terms, 0), ShardRows(shard), nothing, world, owned)
        AgentSide.__init__(self, name, shard, seed)
        self.ledger = ledger
        if secret is not None:
            self._secret = secret  # type: ignore[method-assign]

    def admit(self, task: Any) -> Any:
        """Charge the noise of a masked vector, once a round, when its turn has come."""
        if isinstance(task, LocalUpdate):
            return AgentSide.admit(self, task) if self.taking_part(task) else DeclinedUpdate()
        if self.ledger is not None and self._costs(task):
            self.ledger.charge()
            self.admitted(task)
        return AdmittedStep(self, task)

    def answer(self, task: LocalUpdate, update: FloatArray) -> SideAnswer:
        """Nothing, but that the update is there."""
        self.keep(task, update)
        return SideAnswer(REFUSED)
