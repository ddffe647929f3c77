"""Data sides of agents as they were before `sides`: they charge what they are asked for themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.reference.ledgers import AgentLedger

from gossamer.arrays import FloatArray, IndexArray
from gossamer.errors import DataError
from gossamer.privacy.tasks import REFUSED, LocalUpdate, MaskingStep
from gossamer.sides.home import RoundMark, numbers_of
from gossamer.sides.machine import SideAnswer
from gossamer.sides.masked_side import MaskedSide, Members, Signing
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
        return self.side.step(self.task)


class DeclinedUpdate:
    """An update that is not made."""

    __slots__ = ()

    def answer(self) -> SideAnswer:
        """That there is none; to the node it is as if there were one."""
        return SideAnswer(REFUSED)


class ChargingMaskedSide(MaskedSide, AgentSide):
    """The conversation of a masked sum, at an agent that draws its batches and charges its noise itself.

    Parameters
    ----------
    name, seed, unit, members, terms, mark, signing
        As for `MaskedSide`.
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
        if unit.noise is not None and ledger is None:
            raise DataError(f"{name}: an agent that adds noise needs a ledger to charge it to")
        AgentSide.__init__(self, name, shard, seed)
        MaskedSide.__init__(self, name, seed, unit, members, terms, secret, mark, signing)
        self.ledger = ledger

    def admit(self, task: Any) -> Any:
        """Charge the noise of a masked vector, once a round, when its turn has come."""
        if isinstance(task, LocalUpdate):
            return AgentSide.admit(self, task) if self.taking_part(task) else DeclinedUpdate()
        if self.ledger is not None and self.costs(task):
            self.ledger.charge()
            self.charged(task)
        return AdmittedStep(self, task)
