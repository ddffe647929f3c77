"""What agents of a federated unit are asked for: the update of a few local steps, for their server to sum.

It is no release. It stays inside the unit, `Confined`, or `Masked` where the server is to see the sum alone; what
leaves the unit is noised by `protocol.effects.Release`, or as a curator's sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gossamer.errors import SpecError
from gossamer.numbers import real_number, whole_number
from gossamer.privacy.tasks import AtModel, Query
from gossamer.protocol.encoding import register
from gossamer.vectors import Confined, Model, Released


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


@register("task.curated_sum")
@dataclass(frozen=True)
class CuratedSum:
    """The noisy sum of clients' raw updates, which a curator is asked for; it takes no time.

    Attributes
    ----------
    id : int
        Unique within the node.
    updates : tuple of (str, vector)
        By client, each once.
    size : int
        Coordinates of each.
    query : Query
        Its mechanism has the bound on updates, and the noise; its normaliser is public.

    Raises
    ------
    SpecError
        If a client is in it twice, a vector has another size, or that is none.
    """

    id: int
    updates: tuple[tuple[str, Model | Confined], ...]
    size: int
    query: Query

    steps = base = 0
    label = Released
    amendable = kept = False

    def __post_init__(self) -> None:
        if not whole_number(self.size):
            raise SpecError(f"a sum has a whole number of coordinates, 1 or more, found {self.size!r}")
        if len({name for name, _ in self.updates}) < len(self.updates):
            raise SpecError(f"each client is in a sum once, found {[name for name, _ in self.updates]}")
        if any(update.size != self.size for _, update in self.updates):
            raise SpecError(f"updates of a sum have {self.size} numbers, found others")

    @property
    def answer_size(self) -> int:
        """How many numbers the answer has."""
        return self.size

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Of the answer."""
        found: np.dtype[np.generic] = self.updates[0][1].values.dtype
        return found

    @property
    def owners(self) -> tuple[str, ...]:
        """Whose updates are in it."""
        return tuple(name for name, _ in self.updates)
