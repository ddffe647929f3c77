"""Answers of a party without data, and data sides of a run of which only the schedule is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gossamer.errors import SpecError
from gossamer.privacy.masking_step import MaskingStep
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.tasks import Gradient, Round
from gossamer.sides.answers import Answer
from gossamer.sides.machine import Due, Rule, Ticket
from gossamer.sides.round_answers import amended
from gossamer.vectors import Blank, Sendable


class NothingRule(Rule):
    """Rule of a party without data: there is nothing to ask it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def due(self, task: Any, charged: int) -> Due:
        raise SpecError(f"{self._name} has no data in this run, found a task for them: {type(task).__name__}")

    def amended(self, task: Any, became: Any) -> Any:
        return self.due(became, 0)

    def release(self, ticket: Ticket, raw: Any) -> Answer:
        raise AssertionError("nothing is ever admitted")


class DryRun:
    """Admits everything, counts it, and answers with blanks: for computing the schedule alone.

    Attributes
    ----------
    counts : dict of str to dict of ReleaseKind to int
        What each node asked for that is charged by its kind.
    asked : dict of str to int
        How much each node asked for, messages about masks left out.
    """

    def __init__(self) -> None:
        self.counts: dict[str, dict[ReleaseKind, int]] = {}
        self.asked: dict[str, int] = {}

    def admit(self, node: str, task: Any) -> Any:
        """Count ``task``, and give it back for a ticket."""
        if not isinstance(task, MaskingStep):
            self.asked[node] = self.asked.get(node, 0) + 1
        if isinstance(task, Gradient | Round):
            kinds = self.counts.setdefault(node, {})
            kinds[task.release] = kinds.get(task.release, 0) + 1
        return task

    def amended(self, ticket: Round, task: Round) -> Round:
        """Return what a round has become."""
        return amended(ticket, task)

    def compute(self, tickets: Sequence[Any]) -> list[Answer]:
        """Answers with nothing in them."""
        return [Answer(_blank(task)) for task in tickets]

    def releases(self, node: str) -> int:
        """Number of things that ``node`` asked for."""
        return self.asked.get(node, 0)


def _blank(task: Any) -> Sendable:
    """An answer with nothing in it."""
    found: Sendable = task.label(Blank(task.answer_size, task.dtype))
    return found
