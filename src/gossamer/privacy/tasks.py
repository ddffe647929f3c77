"""Tasks that a node may ask of its data side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.errors import SpecError, real_number, require_not_negative, require_positive, whole_number
from gossamer.privacy.mechanisms import (
    BallGaussian,
    BatchSampling,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    Mechanism,
    NoNoise,
    Poisson,
    ReleaseKind,
    WithReplacement,
)
from gossamer.privacy.paper_noise import PaperNoise
from gossamer.protocol.encoding import register
from gossamer.vectors import ALL, Coordinates, Model, Public, Released

register("mechanism.gaussian")(Gaussian)
register("mechanism.ball_gaussian")(BallGaussian)
register("mechanism.laplace")(Laplace)
register("mechanism.l2_laplace")(L2Laplace)
register("mechanism.paper_noise")(PaperNoise)
register("mechanism.none")(NoNoise)
register("sampling.poisson")(Poisson)
register("sampling.fixed_size")(FixedSize)
register("sampling.with_replacement")(WithReplacement)
register("coordinates")(Coordinates)


@register("query")
@dataclass(frozen=True)
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
            known = ReleaseKind(self.mechanism.unit(), self.sampling, size)
            object.__setattr__(self, "_kind", known)  # asked for at every update, and always for one size
        return known


class AtModel:
    """Common to tasks at a model; see `protocol.effects.Task`."""

    model: Any

    base = 0
    amendable = kept = False

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of the answer's numbers."""
        found: np.dtype[np.generic] = self.model.values.dtype
        return found


@register("task.gradient")
@dataclass(frozen=True)
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
        _check_terms(self.query)

    @property
    def answer_size(self) -> int:
        """The count of numbers in the answer."""
        return self.model.size + (1 if self.query.count_share else 0)

    @property
    def release(self) -> ReleaseKind:
        """The kind of release that is charged."""
        return self.query.release(self.model.size)

    @property
    def work(self) -> tuple[Any, ...]:
        """All that decides how long an answer takes, but for the number of examples."""
        return (Gradient, self.answer_size, type(self.query.mechanism))


@register("task.step_sizes")
@dataclass(frozen=True)
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


@register("task.swap")
@dataclass(frozen=True)
class Swap:
    """From ``step`` on, counted from 0, a round goes on at ``model`` less what it has done itself."""

    step: int
    model: Model

    def __post_init__(self) -> None:
        if not isinstance(self.model, (Public, Released)):
            raise SpecError(f"a round is at a public or released model, found {type(self.model).__name__}")
        if whole_number(self.step) is None:
            raise SpecError(f"a model is swapped in after a whole number of steps, found {self.step!r}")


UPDATES: Mapping[str, bool] = {"batch": True, "clipped_sum": True, "sequential": False}
"""The kinds of rounds, and whether a guarantee is proved for them; see `Round`."""


@register("task.round")
@dataclass(frozen=True)
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
