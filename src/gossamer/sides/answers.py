"""Answers of data sides, and what is done to noisy sums after the noise; `gossamer.sides` has the data sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy.typing as npt

from gossamer.errors import SpecError
from gossamer.privacy.tasks import Gradient
from gossamer.protocol.effects import Record
from gossamer.vectors import Sendable


class Answer(NamedTuple):
    """Answer to a task.

    Attributes
    ----------
    released : Released
        Answer for the node; where there is no receipt, what it may hand on inside its unit.
    not_finite : int
        Per-example gradients that were not finite and counted as zero. Raw: for the node's private log only.
    too_long : int
        Updates of clients that were longer than a curator's noise hides, or not finite, and counted as zero. Raw, too.
    """

    released: Sendable
    not_finite: int = 0
    too_long: int = 0

    @property
    def notes(self) -> tuple[Record, ...]:
        """Records for the node's private log."""
        if not (self.not_finite or self.too_long):
            return ()
        found = {"gradients_not_finite": self.not_finite, "updates_too_long": self.too_long}
        return tuple(Record(name, float(number)) for name, number in found.items() if number)


def post_processed(answer: npt.NDArray[Any], task: Gradient, l2: float) -> npt.NDArray[Any]:
    """Return what a node gets in place of noisy sums: means, and the regulariser's gradient."""
    size = task.model.size
    answer /= task.query.normaliser
    if task.query.unit != 1:
        answer[:size] /= task.query.unit
    if l2:
        answer[:size] += l2 * task.model.values  # the model is public or released
    return answer


class Computer(Protocol):
    """Part of a runtime that computes its nodes' tasks."""

    def admit(self, node: str, task: Any) -> Any:
        """Charge a task and give it a ticket, or raise `BudgetSpent`."""
        ...

    def amended(self, ticket: Any, task: Any) -> Any:
        """The ticket of a round that was admitted and has become ``task``; called right before it is computed."""
        ...

    def compute(self, tickets: Sequence[Any]) -> list[Answer]:
        """The answers to ``tickets``, in order."""
        ...

    def releases(self, node: str) -> int:
        """Number of releases that ``node`` has been charged."""
        ...


@runtime_checkable
class Restorable(Computer, Protocol):
    """A computer whose state can be kept, and given to another one of the same run, as a checkpoint does."""

    def snapshot(self) -> Any:
        """Return all that changes, as data that `protocol.snapshots` encodes.

        Raises
        ------
        SpecError
            If something of it cannot be kept.
        """
        ...

    def restore(self, snapshot: Any) -> None:
        """Be as the computer was whose `snapshot` this is."""
        ...

    def ticket_snapshot(self, ticket: Any) -> Any:
        """Return a ticket that was not computed yet, as such data."""
        ...

    def ticket_of(self, snapshot: Any) -> Any:
        """Return the ticket whose `ticket_snapshot` this is; it is charged already."""
        ...


def restorable(computer: Computer) -> Restorable:
    """Return ``computer``, if its state can be kept.

    Raises
    ------
    SpecError
        If it cannot.
    """
    if not isinstance(computer, Restorable):
        raise SpecError(f"the state of {type(computer).__name__} cannot be kept; run without checkpoints")
    return computer
