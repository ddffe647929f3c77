"""What agents of a federated unit are asked for: the update of a few local steps, for their server to sum.

It is no release. It stays inside the unit, `Confined`, or `Masked` where the server is to see the sum alone; what
leaves the unit is noised by `protocol.effects.Release`, or as a curator's sum (`curated_tasks`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.errors import SpecError
from gossamer.numbers import real_number, whole_number
from gossamer.privacy.tasks import AtModel
from gossamer.protocol.encoding import register
from gossamer.vectors import Confined, Model


@register("query.local")
@dataclass(frozen=True)
class LocalQuery:
    """How an agent makes its update; fixed before the run.

    Attributes
    ----------
    steps : int
        E, local steps of a round.
    batch : int
        Examples of a step, drawn with replacement.
    rate : float
        mu, of the whole round: each step has mu/E.
    clip : float
        B, the most L2 norm of a step's mean gradient with the regulariser's; an update is at most mu B long.

    Raises
    ------
    SpecError
        If a value is out of its range.
    """

    steps: int
    batch: int
    rate: float
    clip: float = math.inf

    def __post_init__(self) -> None:
        if not (whole_number(self.steps) and whole_number(self.batch)):
            raise SpecError(f"a local update has 1 step and 1 example or more, found {self.steps!r} and {self.batch!r}")
        if not 0 < real_number(self.rate) < math.inf:
            raise SpecError(f"a step size is a finite number above 0, found {self.rate!r}")
        if not real_number(self.clip) > 0:
            raise SpecError(f"clip must be a positive number, found {self.clip!r}")

    @property
    def reach(self) -> float:
        """mu B, the most L2 norm of an update."""
        return self.rate * self.clip


@register("task.local_update")
@dataclass(frozen=True)
class LocalUpdate(AtModel):
    """The update of local steps from ``model``: w_E - w_0 [size].

    ``id`` is the round. A round may be asked for again, at the same model, and is answered with the same numbers.
    """

    id: int
    model: Model | Confined
    query: LocalQuery

    label = Confined

    @property
    def steps(self) -> int:
        """How many times a node's seconds the task takes."""
        return self.query.steps

    @property
    def answer_size(self) -> int:
        """How many numbers the answer has."""
        return self.model.size
