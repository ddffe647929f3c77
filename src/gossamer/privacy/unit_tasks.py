"""Updates that clients are asked for: of a few local steps, or of a whole local training.

By itself an update is no release. It stays inside a trust scope, `Confined`, or `Masked` where a server is to see the
sum alone; what leaves the scope is noised by `protocol.effects.Release`, or as a curator's sum
(`CuratedSum`). A task of the same
fields that is labelled `Released` is answered with noise of the client's own.

Questions to a curator: a server that clients trust, which adds the noise to sums of their updates.

Whose updates are summed is public, or drawn by the curator in secret (`Cohort`): then nobody else knows who is in a
sum, and each release reveals less of everybody.

Question to an agent's data side while its unit's sum is masked: for its message of one step.

It is known without cryptography, which masks need and is optional: whoever meets tasks has to tell these apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from gossamer.errors import SpecError, real_number, require_counts, require_not_negative, require_positive, whole_number
from gossamer.privacy.tasks import AtModel, Query
from gossamer.protocol.encoding import register
from gossamer.vectors import Confined, Masked, Model, Public, Released

STEPS = 5
"""Announce, share, mask, confirm, reveal: 0 to 4."""
MASK = 2
"""The step whose message is the masked vector."""
REFUSED = Public(np.empty(0, np.uint8))
"""The answer of a data side that will not say what it was asked for; also what comes before the first step."""


@register("task.masking_step")
@dataclass(frozen=True)
class MaskingStep:
    """The agent's message of one step; it takes no time.

    A step is asked for again with the same ``incoming``, and is answered with the same bytes. Any other question is
    answered with `REFUSED`.

    Attributes
    ----------
    round : int
        Round of the unit.
    step : int
        0 to 4.
    incoming : Public
        Bytes that the server sent; before the first step, none.
    answer_size : int
        Size of the answer, in numbers.
    bits : int
        Number of bits of each.
    """

    round: int
    step: int
    incoming: Public
    answer_size: int
    bits: int = 8

    steps = base = 0
    amendable, kept = False, True

    @property
    def id(self) -> int:
        """Below 0, so that it is none of the updates' own."""
        return -1 - (self.round * STEPS + self.step)

    @property
    def label(self) -> type[Masked] | type[Public]:
        """Label of the answer's vector."""
        return Masked if self.step == MASK else Public

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """Type of the answer's numbers."""
        return np.dtype(f"u{self.bits // 8}")


def step_of(task: int) -> tuple[int, int] | None:
    """The round and the step that a task's id belongs to; None if it is no masking step's."""
    return divmod(-1 - task, STEPS) if task < 0 else None


@register("task.cohort")
@dataclass(frozen=True)
class Cohort(AtModel):
    """The clients of one sum, drawn by coins that nobody else learns; it takes no time.

    All clients are charged for the sum, in the cohort or not, before it is drawn. The answer has a number for each
    client, in the plan's order: 1 for those who are in it, 0 for all others.

    Attributes
    ----------
    id : int
        Unique within the node.
    model : vector
        Model that the cohort is to start from.
    clients : int
        Number of clients.
    query : Query
        Terms of the sum: the sampling is that of the clients.

    Raises
    ------
    SpecError
        If the number of clients is none.
    """

    id: int
    model: Model
    clients: int
    query: Query

    steps = 0
    label = Confined

    def __post_init__(self) -> None:
        if not whole_number(self.clients):
            raise SpecError(f"a cohort is drawn of a whole number of clients, 1 or more, found {self.clients!r}")

    @property
    def answer_size(self) -> int:
        """The count of numbers in the answer."""
        return self.clients


@register("task.curated_sum")
@dataclass(frozen=True)
class CuratedSum(AtModel):
    """The noisy sum of clients' raw updates, which a curator is asked for; it takes no time.

    If its query asks for a count, a number more comes after the sum: (sum of b_i - 1/2 + noise) / normaliser, with b_i
    1 for an update shorter than the clip and 0 for one that was clipped to it; see `gossamer.privacy.clipping`.

    Attributes
    ----------
    id : int
        Unique within the node.
    model : vector
        Model that the sum is a step of: it has as many numbers, of the same type.
    updates : tuple of (str, vector)
        Update of each client, each once.
    query : Query
        Terms: the mechanism has the bound on updates, and the noise; the normaliser is public.
    cohort : int, optional
        Id of the `Cohort` that the clients were drawn in, which is summed once; None where they are public.

    Raises
    ------
    SpecError
        If a client is in it twice, a vector has another size, or the cohort has no number.
    """

    id: int
    model: Model
    updates: tuple[tuple[str, Model | Confined], ...]
    query: Query
    cohort: int | None = None

    steps = 0
    label = Released

    def __post_init__(self) -> None:
        if len({name for name, _ in self.updates}) < len(self.updates):
            raise SpecError(f"each client is in a sum once, found {[name for name, _ in self.updates]}")
        if any(update.size != self.model.size for _, update in self.updates):
            raise SpecError(f"updates of a sum have {self.model.size} numbers, found others")
        if self.cohort is not None and whole_number(self.cohort) is None:
            raise SpecError(f"a cohort has a number, 0 or more, found {self.cohort!r}")

    @property
    def answer_size(self) -> int:
        """The count of numbers in the answer."""
        return self.model.size + (1 if self.query.count_share else 0)

    @property
    def owners(self) -> tuple[str, ...]:
        """The clients whose updates are in it."""
        return tuple(name for name, _ in self.updates)


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
        require_counts(steps=self.steps, batch=self.batch)
        require_positive(rate=self.rate)
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
        require_not_negative(proximal=self.proximal)

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
