"""Data sides that answer with coefficients of noisy gradients, for what observers of a run's messages learn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, PairedGaussian
from gossamer.privacy.observers.sensitivity import Draw
from gossamer.privacy.observers.system import Book, Combination, NotLinear
from gossamer.privacy.tasks import UPDATES, Gradient, LocalQuery, LocalUpdate, Round
from gossamer.protocol.effects import Release
from gossamer.sides.machine import SideAnswer
from gossamer.sides.pool import BlankSides


class LinearSides(BlankSides):
    """Answers with the coefficients that new draws have, in a run of the schedule alone.

    Parameters
    ----------
    plan : Plan
        Plan of the run.
    relation : NeighboringRelation
        Relation of data sets that are told apart with difficulty.
    l2 : float
        Strength of the regulariser, whose gradient at a model follows from that.
    rows : int
        Most examples of a person, all of which move a gradient.
    book : Book
        Book of the draws.
    before : int
        Releases that each node has made before the run, which count in the numbers of those that share draws.
    """

    def __init__(
        self, plan: Any, relation: NeighboringRelation, l2: float, rows: int, book: Book, before: int = 0
    ) -> None:
        super().__init__()
        self.book = book
        self._plan, self._relation, self._l2, self._rows = plan, relation, l2, rows
        self._streams: dict[str, list[Combination]] = {}
        self._releases = Counter(dict.fromkeys(plan.releases, before))
        self._shared: dict[tuple[str, str, int], Combination] = {}

    def admit(self, node: str, task: Any) -> Any:
        """Count ``task``, and note whose it is."""
        return node, super().admit(node, task)

    def amended(self, ticket: Any, task: Any) -> Any:
        """Return what a round has become."""
        return ticket[0], super().amended(ticket[1], task)

    def compute(self, tickets: Sequence[Any]) -> list[SideAnswer]:
        """Answers as combinations of noisy gradients."""
        return [SideAnswer(task.label(self._answer(node, task))) for node, task in tickets]

    def _answer(self, node: str, task: Any) -> Combination:
        match task:
            case Gradient() if isinstance(law := task.query.mechanism, Gaussian) and not task.query.count_share:
                gradient = self._noisy(node, task, law)
                return gradient + task.model.values * self._l2 if self._l2 else gradient
            case Round() if isinstance(law := task.query.mechanism, Gaussian) and UPDATES[task.update] and not self._l2:
                return self._noisy(node, task, law)
            case LocalUpdate(query=LocalQuery()):
                return self._drawn(task, 1.0, Draw(node, 2.0 * self._rows * task.query.reach, noisy=False))
            case Release():
                return self._recorded(node, task)
        raise NotLinear(
            f"observers are told apart where each node adds Gaussian noise to gradients of a fixed clip, found {node} "
            "asking for something else: noise of a server or of another law, an adaptive clip, steps of training, or "
            "rounds with l2"
        )

    def _drawn(self, task: Any, scale: float, draw: Draw) -> Combination:
        return self.book.drawn(task.answer_size, task.dtype, scale, draw)

    def _noisy(self, node: str, task: Gradient | Round, law: Gaussian) -> Combination:
        deviation = law.standard_deviation / (task.query.normaliser * task.query.unit)
        moved = self._rows * law.mu(self._relation)
        if not isinstance(law, PairedGaussian):
            return self._drawn(task, deviation, Draw(node, moved))
        # A gradient that moves, moves a release as its node's own draw would.
        found: Combination = self._drawn(task, deviation * law.own, Draw(node, moved / law.own))
        self._releases[node] += 1
        for partner in self._plan.sides[node].partners:
            other = partner.name
            if not (share := partner.share(self._releases[node])):
                continue
            key = (min(node, other), max(node, other), self._releases[node])
            if (shared := self._shared.pop(key, None)) is None:
                shared = self._drawn(task, 1.0, Draw(node, 0.0, also=other))
                if self._plan.releases[other] >= self._releases[node]:
                    self._shared[key] = shared
            found = found + shared * (share * law.shared * deviation * (1 if node < other else -1))
        return found

    def _recorded(self, node: str, task: Release) -> Combination:
        """A server's state with the next noise of its stream, a weighted sum of all draws of the stream so far."""
        law = self._plan.sides[node].law
        past = self._streams.setdefault(node, [])
        past.append(self._drawn(task, 1.0, Draw(node, 0.0)))
        kernel = law.factorisation.noise_kernel * law.standard_deviation
        found: Combination = task.base
        for weight, one in zip(kernel.tolist(), reversed(past)):
            found = found + one * weight
        return found
