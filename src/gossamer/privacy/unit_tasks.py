"""Updates that clients are asked for: of a few local steps, or of a whole local training.

By itself an update is no release. It stays inside a trust scope, `Confined`, or `Masked` where a server is to see the
sum alone; what leaves the scope is noised by `protocol.effects.Release`, or as a curator's sum
(`curated_tasks`). A task of the same
fields that is labelled `Released` is answered with noise of the client's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from gossamer.errors import SpecError
from gossamer.numbers import real_number, require_counts, require_positive, whole_number
from gossamer.privacy.tasks import AtModel
from gossamer.protocol.encoding import register
from gossamer.vectors import Confined, Model


@register("query.local")
@dataclass(frozen=True)
class LocalQuery:
    """Terms on which an agent makes its update; fixed before the run.

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


@register("query.training")
@dataclass(frozen=True)
class TrainingQuery:
    """Local training of a client, fixed before the run.

    Examples come in shuffled passes: each *epoch* is a fresh shuffle of the whole shard, cut into mini-batches, of
    which the last may be smaller; training goes through such epochs until its steps are done. So E epochs of n examples
    are E ceil(n / batch) steps, see `of_epochs`, and a training may also end in the middle of an epoch. No step is
    clipped: the whole update is, by the side that it leaves. Passes amplify nothing, and need not, where a whole client
    is protected, whatever it does with its examples.

    How long an update takes follows from the steps, which anybody may know: the number of a client's examples is public
    wherever it decides them.

    Attributes
    ----------
    steps : int
        Mini-batch steps.
    batch : int
        Examples of a step, but for the last of an epoch.
    rate : float
        eta, step size of each.
    momentum : float
        m in [0, 1): v = m v + g and w = w - eta v, from v = 0 in each training; 0 is plain SGD.
    proximal : float
        mu >= 0 of FedProx's mu/2 |w - w_0|^2, which is added to the objective.

    Raises
    ------
    SpecError
        If a value is out of its range.

    References
    ----------
    McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017,
    Algorithm 1. Li et al., "Federated optimization in heterogeneous networks", MLSys 2020, eq. 2.
    """

    steps: int
    batch: int
    rate: float
    momentum: float = 0.0
    proximal: float = 0.0

    def __post_init__(self) -> None:
        require_counts(steps=self.steps, batch=self.batch)
        require_positive(rate=self.rate)
        if not 0 <= real_number(self.momentum) < 1:
            raise SpecError(f"momentum lies in [0, 1), found {self.momentum!r}")
        if not 0 <= real_number(self.proximal) < math.inf:
            raise SpecError(f"a proximal term is a finite number, 0 or more, found {self.proximal!r}")

    @classmethod
    def of_epochs(
        cls, epochs: int, examples: int, batch: int, rate: float, momentum: float = 0.0, proximal: float = 0.0
    ) -> Self:
        """Train for ``epochs`` whole passes over a shard of ``examples``: a public number.

        Raises
        ------
        SpecError
            If a value is out of its range.
        """
        require_counts(epochs=epochs, examples=examples, batch=batch)
        return cls(epochs * -(-examples // batch), batch, rate, momentum, proximal)

    def examples(self, shard: int) -> int:
        """Count the examples that a training on a shard of so many takes, each as often as it does."""
        epochs, more = divmod(self.steps, -(-shard // self.batch))
        return epochs * shard + more * self.batch

    @property
    def reach(self) -> float:
        """The most L2 norm of an update before it is clipped: nothing bounds it."""
        return math.inf


UpdateQuery = LocalQuery | TrainingQuery
"""Questions for an update."""


@register("task.local_update")
@dataclass(frozen=True)
class LocalUpdate(AtModel):
    """The update of local work from ``model``: the last model less the first, [size].

    ``id`` is the round. A round may be asked for again, at the same model, and is answered with the same numbers.
    """

    id: int
    model: Model | Confined
    query: UpdateQuery

    label = Confined

    @property
    def steps(self) -> int:
        """The time that the task takes, as a multiple of a node's seconds."""
        return self.query.steps

    @property
    def answer_size(self) -> int:
        """The count of numbers in the answer."""
        return self.model.size


@register("task.clipped_update")
@dataclass(frozen=True)
class ClippedUpdate(LocalUpdate):
    """A `LocalUpdate` that is clipped as a whole to ``bound``, as a clip moves from round to round.

    Raises
    ------
    SpecError
        If the bound is not a finite number above 0.
    """

    bound: float

    def __post_init__(self) -> None:
        require_positive(bound=self.bound)
