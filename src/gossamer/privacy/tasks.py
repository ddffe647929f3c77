"""Tasks that a node may ask of its data side.

Gradients and rounds of local steps are answered with releases. *Updates* that clients are asked for, of a few local
steps or of a whole local training, by themselves are none: they stay inside a trust scope, `Confined`, or `Masked`
where a server is to see the sum alone. What leaves the scope is noised by `protocol.effects.Release`, or as a curator's
sum (`CuratedSum`). A task of the same fields that is labelled `Released` is answered with noise of the client's own.

*Curators* are servers that clients trust, which add the noise to sums of their updates. Whose updates are summed is
public, or drawn by the curator in secret (`Cohort`): then nobody else knows who is in a sum, and each release reveals
less of everybody.

While a unit's sum is *masked*, an agent's data side is asked for its message of one step (`MaskingStep`). It is known
without cryptography, which masks need and is optional: whoever meets tasks has to tell these apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.errors import (
    SpecError,
    real_number,
    require_counts,
    require_not_negative,
    require_positive,
    require_whole,
    whole_number,
)
from gossamer.privacy.mechanisms import BatchSampling, Mechanism, ReleaseKind
from gossamer.protocol.encoding import frozen, register
from gossamer.vectors import ALL, Confined, Coordinates, Masked, Model, Public, Released

register("coordinates")(Coordinates)


@frozen("query")
class Query:
    """Terms on which a gradient is computed; fixed for a node before the run.

    Attributes
    ----------
    sampling : BatchSampling
        Way in which the batch is drawn.
    mechanism : Mechanism
        The clip and the noise on the sum.
    normaliser : float
        The expected batch size B that a mean divides by: a public constant, never the realised batch size.
    count_share : float
        Share of the release's squared privacy loss that goes to counting the gradients that were not clipped, in
        [0, 1); 0 is no count. Only for Gaussian noise, and none. See `gossamer.privacy.clipping`.
    unit : float
        Unit of the noisy mean gradient, such as the clip.
    """

    sampling: BatchSampling
    mechanism: Mechanism
    normaliser: float
    count_share: float = 0.0
    unit: float = 1.0

    def __post_init__(self) -> None:
        require_positive(normaliser=self.normaliser, unit=self.unit)
        if not 0 <= real_number(self.count_share) < 1:
            raise SpecError(f"count_share lies in [0, 1), found {self.count_share!r}")
        self.mechanism.divided(self.count_share)  # refuses laws of which nothing is proved beside a count

    def release(self, size: int) -> ReleaseKind:
        """The kind of release that a gradient of ``size`` numbers is, with its count if there is one."""
        known: ReleaseKind | None = self.__dict__.get("_kind")
        if known is None or known.size != size:
            known = _kind(self.mechanism.unit(), self.sampling, size)
            object.__setattr__(self, "_kind", known)  # asked for at every update, and always for one size
        return known


@lru_cache(maxsize=1024)
def _kind(law: Mechanism, sampling: BatchSampling, size: int) -> ReleaseKind:
    """One object for all queries of a kind, so that who looks it up need not compare field by field."""
    return ReleaseKind(law, sampling, size)


class AtModel:
    """Common to tasks at a model; see `protocol.effects.Task`."""

    __slots__ = ()

    model: Any
    query: Any

    base = 0
    amendable = kept = False

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of the answer's numbers."""
        found: np.dtype[np.generic] = self.model.values.dtype
        return found

    @property
    def answer_size(self) -> int:
        """The count of numbers in the answer: those of the model, and a count of gradients if that is asked for."""
        return int(self.model.size) + (1 if getattr(self.query, "count_share", 0) else 0)


@register("task.gradient")
@dataclass(frozen=True, slots=True)
class Gradient(AtModel):
    """One noisy mean of clipped gradients, at ``model``.

    The answer is (sum of clipped gradients + noise) / (normaliser unit) + l2 * model, of the model's size, and after
    it, if the query asks for a count, (sum of b_i - 1/2 + noise) / normaliser with b_i 1 for an example that was not
    clipped and 0 for one that was.
    """

    id: int
    model: Model
    query: Query

    label, where = Released, ALL
    steps = 1
    """The time that the task takes, as a multiple of a node's seconds."""

    def __post_init__(self) -> None:
        if self.query.mechanism.whole:
            _check_terms(self.query)

    @property
    def release(self) -> ReleaseKind:
        """The kind of release that is charged."""
        return self.query.release(self.model.size)

    @property
    def work(self) -> tuple[Any, ...]:
        """All that decides how long an answer takes, but for the number of examples."""
        return (Gradient, self.answer_size, type(self.query.mechanism))


@frozen("task.step_sizes")
class StepSizes:
    """Step sizes within a round: step h = 0, 1, ... has ``initial / (1 + beta (start + stride h)^exponent)``.

    With ``stride`` 0 the step size is held over the round.
    """

    initial: float
    beta: float = 0.0
    exponent: float = 1.0
    start: float = 0.0
    stride: float = 0.0

    def __post_init__(self) -> None:
        require_positive(initial=self.initial)
        require_not_negative(exponent=self.exponent, start=self.start, stride=self.stride)
        if not (math.isfinite(real_number(self.beta)) and self.first > 0):
            raise SpecError(f"step sizes are above 0, found {self}")

    def at(self, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The sizes of ``steps`` [any shape], counted from 0 within the round."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # the data side refuses what is no size
            place = self.start + self.stride * np.asarray(steps, np.float64)
            return np.asarray(self.initial / (1.0 + self.beta * place**self.exponent))

    @property
    def first(self) -> float:
        """The size of the round's first step, which its answer is given in units of."""
        return float(self.at(np.zeros((), np.int64)))


@frozen("task.swap")
class Swap:
    """From ``step`` on, counted from 0, a round goes on at ``model`` less what it has done itself."""

    step: int
    model: Model

    def __post_init__(self) -> None:
        if not isinstance(self.model, (Public, Released)):
            raise SpecError(f"a round is at a public or released model, found {type(self.model).__name__}")
        require_whole(step=self.step)


UPDATES: Mapping[str, bool] = {"batch": True, "clipped_sum": True, "sequential": False}
"""The kinds of rounds, and whether a guarantee is proved for them; see `Round`."""


@frozen("task.round")
class Round(AtModel):
    """Some local steps, answered with one noisy sum U of their gradients.

    U = sum_h (eta_h / eta_0) g_h over the steps h that were done, plus noise; on the coordinates ``where`` of every
    D-th, of which g_h is D times the gradient. Nothing is divided by a number of examples.

    | update | steps | what is bounded by the mechanism's clip C | guarantee |
    |---|---|---|---|
    | ``batch`` | all at the models swapped in | each g_h: one example is one of them | that of its release |
    | ``clipped_sum`` | one after the other | U, by C/2: one example changes all later steps | that of its release |
    | ``sequential`` | one after the other | each g_h, but one example changes all later ones | none |

    Attributes
    ----------
    id : int
        Unique within the node.
    swaps : tuple of Swap
        The models, the first from step 0 on. Of several at one step the last counts.
    query : Query
        Terms: the sampling draws the examples of the whole round, the mechanism has clip and noise.
    steps : int
        Public number of steps, at one of which each example drawn takes its turn.
    until : int
        Number of steps that may be taken; where it is below ``steps`` the round waits there for an `effects.Update`. Of
        a round that was cut short: number that were taken.
    step_sizes : StepSizes
        eta_h.
    update : {"batch", "clipped_sum", "sequential"}
        Rule for what is summed.
    where : Coordinates
        Coordinates that are computed, moved and released.

    References
    ----------
    M. van Dijk, N. V. Nguyen, T. N. Nguyen, L. M. Nguyen, Q. Tran-Dinh and P. H. Nguyen, "Asynchronous federated
    learning with reduced number of rounds and with differential privacy from less aggregated Gaussian noise", 2020,
    Algorithm 1 and Appendix C.1. ``sequential`` is the paper's; its Algorithm 1 is given a guarantee that does not
    hold, as one example moves the later gradients of its round too.
    """

    id: int
    swaps: tuple[Swap, ...]
    query: Query
    steps: int
    until: int
    step_sizes: StepSizes
    update: str
    where: Coordinates = field(default_factory=Coordinates)

    label, amendable = Released, True

    def __post_init__(self) -> None:
        _check_swaps(self.swaps, self.steps)
        if (until := whole_number(self.until)) is None or until > self.steps:
            raise SpecError(f"a round of {self.steps} steps takes 0 to {self.steps} of them, found {self.until!r}")
        if self.where.first >= self.model.size:
            raise SpecError(f"coordinates of {self.model.size} numbers start below that, found {self.where}")
        _check_round_query(self)

    @property
    def model(self) -> Model:
        """The model at which the round starts."""
        return self.swaps[0].model

    @property
    def answer_size(self) -> int:
        """The count of numbers in the answer."""
        return self.where.count(self.model.size)

    @property
    def models_provided_for(self) -> int:
        """The number of models that a deadline provides for, where there are so many: the next power of two."""
        return 1 << (len(self.swaps) - 1).bit_length()

    @property
    def work(self) -> tuple[Any, ...]:
        """All that decides how long an answer takes, but for the number of examples."""
        law, models = type(self.query.mechanism), self.models_provided_for
        return (Round, self.answer_size, law, self.update, self.where.step, models)

    @property
    def release(self) -> ReleaseKind:
        """The kind charged; of the whole model's size, so that rounds on different coordinates are of one kind."""
        return self.query.release(self.model.size)

    def swapped(self, step: int, model: Model, until: int) -> Round:
        """The round with ``model`` swapped in after ``step`` steps, which may take ``until`` steps in all."""
        return replace(self, swaps=(*self.swaps, Swap(step, model)), until=until)

    def cut(self, steps: int) -> Round:
        """The round of which only the first ``steps`` steps were taken."""
        return replace(self, until=steps)


def _check_swaps(swaps: tuple[Swap, ...], steps: int) -> None:
    places = [swap.step for swap in swaps]
    if not whole_number(steps) or not places or places[0] != 0 or places != sorted(places) or places[-1] > steps:
        raise SpecError(
            f"a round of at least 1 step has its first model at step 0 and later ones in order, found {steps!r} steps "
            f"and models at {places}"
        )
    if len({swap.model.size for swap in swaps}) > 1:
        raise SpecError(f"all models of a round have one size, found {[swap.model.size for swap in swaps]}")


def _check_terms(query: Query) -> None:
    """Refuse noise that is accounted for on sums clipped as a whole, on a sum of examples clipped one by one."""
    if query.mechanism.whole:
        raise SpecError(f"this noise is for rounds whose sum is clipped as a whole, clipped_sum; found {query}")


def _check_round_query(task: Round) -> None:
    query, sampling = task.query, task.query.sampling
    if task.update not in UPDATES:
        raise SpecError(f"a round's update is one of {', '.join(UPDATES)}, found {task.update!r}")
    if task.update != "clipped_sum":
        _check_terms(query)
    if (query.normaliser, query.count_share, query.unit) != (1.0, 0.0, 1.0):
        raise SpecError(f"a round's sum has normaliser 1, unit 1 and no count, found {query}")
    if getattr(sampling, "batch_size", task.steps) != task.steps:
        raise SpecError(f"a round takes one step for each example of a fixed batch, found {task.steps} and {sampling}")
    if query.mechanism.private and sampling.proved and not UPDATES[task.update]:
        # An accountant would take its releases for those of a round that has a guarantee.
        raise SpecError(f"nothing is proved for {task.update} rounds: sample with replacement, found {sampling}")
    if task.where.step > 1 and query.mechanism.depends_on_size:
        # The other laws depend on how many coordinates are released, and that differs with the first of them.
        raise SpecError(f"a part of the coordinates goes with Gaussian noise or none, found {query.mechanism}")


STEPS = 5
"""Announce, share, mask, confirm, reveal: 0 to 4."""
MASK = 2
"""The step whose message is the masked vector."""
REFUSED = Public(np.empty(0, np.uint8))
"""The answer of a data side that will not say what it was asked for; also what comes before the first step."""


@frozen("task.masking_step")
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


@frozen("task.cohort")
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
        require_counts(clients=self.clients)

    @property
    def answer_size(self) -> int:
        """The count of numbers in the answer."""
        return self.clients


@frozen("task.curated_sum")
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
        if self.cohort is not None:
            require_whole(cohort=self.cohort)

    @property
    def owners(self) -> tuple[str, ...]:
        """The clients whose updates are in it."""
        return tuple(name for name, _ in self.updates)


@frozen("query.local")
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


@frozen("query.training")
class TrainingQuery:
    """Local training of a client, fixed before the run.

    Examples come in shuffled passes: each *epoch* is a fresh shuffle of the whole shard, cut into mini-batches, of
    which the last may be smaller; training goes through such epochs until its steps are done. So E epochs of n examples
    are E ceil(n / batch) steps, and a training may also end in the middle of an epoch. No step is
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
@dataclass(frozen=True, slots=True)
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


@register("task.clipped_update")
@dataclass(frozen=True, slots=True)
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
