"""Computation of clipped sums over samples: all of a call together, or each alone and in pieces.

They are raw: for the data side only. The kinds of rounds of local steps stand in `tasks.Round`; each bounds what one
example can move the sum by, by other means:

- ``batch``: the model and the weight at which an example is evaluated depend on its own slot and on what was released,
  so another example changes nothing about it. Its share is clipped to C, and weighted by eta_h/eta_0 <= 1.
- ``clipped_sum``: one example may change all that comes after it, so the whole sum is clipped to C/2. Two such sums
  are at most C apart, whatever the data. The unclipped sum is not kept.
- ``sequential``: nothing is bounded.

In all of them only slots below ``until`` are used, a number that is public.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import SpecError, beginning
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Gradients, LocalRound, LocalSum, Objective, clipped_on
from gossamer.privacy.exact.grid_noise import LARGEST, MOST, GridGaussian, Words, summation_error
from gossamer.privacy.mechanisms import BatchSampling, Gaussian, provided_for
from gossamer.privacy.tasks import Gradient, Round, Swap
from gossamer.protocol.snapshots import kept_whole

# Distance of a computed sum of clipped gradients from a sum of vectors that are no longer than the clip.
#
# A guarantee bounds what one example moves the *computed* sum by. Three things stand between that and the clip, and
# noise on a grid has room for each of them (`GridGaussian.error`, and a clip that is a little larger).
#
# **Additions.** In the objective's own type, the sum of so many vectors errs by `summation_error`, which grows with
# their square. So a batch is computed in *pieces*, and these are added in float64: with K examples in pieces of k, K k
# units of roundoff in the place of K^2.
#
# **How many are added.** A Poisson sample may be the whole shard, which would cost far more noise than all samples that
# ever occur. What is provided for is K, which it exceeds with a probability of at most `UNLIKELY`: by Bernstein's
# inequality, for mean m and L = -log(UNLIKELY), ``K = m + L/3 + sqrt(L^2/9 + 2 L m)`` does. Were the noiseless sum of a
# larger sample the true one, everything here would be proved; what is drawn differs from that with that probability,
# which is added to delta for every sample (`deployed_guarantee`). The realised size itself enters nowhere.
#
# **Other examples.** What is clipped has to be a function of the example and the model, which a peer may have chosen.
# The kernels of linear models go through examples one by one, always in the same way. Those of networks are the
# library's own, and round differently for another number of rows: a network's examples are computed one at a time.
#
# **Norms.** Gradients of a linear model are scaled by norms computed in float64: their own rounding, and that of the
# products, is 2 units of roundoff and `size` of float64's. Norms of networks are sums in float32, whose order is the
# library's own. Room is left for 2^-10 of them; that this suffices is an assumption of the guarantee.
#
# A clipped sum, and the count that an adaptive clip asks for, as one vector with noise on one grid.
#
# Of n examples in a batch, with clip C, the sum s of gradients gets noise of standard deviation z C, and the centred
# count c = sum_i (b_i - 1/2) of those that were not clipped s_b, where (`clipping`; m the multiplier, r the share of
# the count)
#
#     z = m / sqrt(1 - r),        s_b = m / (2 sqrt(r)).
#
# So the noise on a c, with a = 2 C sqrt(r/(1-r)), has the standard deviation a s_b = z C, that on s. The vector (s, a
# c) is a sum over the examples, however many they are, of (g_i, a (b_i - 1/2)), of length at most
#
#     sqrt(C^2 + a^2/4) = C / sqrt(1 - r) = C',        and z C = m C'.
#
# It is one Gaussian query of clip C' and multiplier m, in one coordinate more. An example that comes or goes moves it
# by its own vector, of length C' at most, and one that is replaced by two of them; n, which depends on who is drawn and
# on who is there, needs no argument of its own. Everything that decides the grid is public: C, m, r, the size, and how
# many examples there may be. What is done after it, dividing by a among the rest, is post-processing.
#
# References
# ----------
# Casacuberta, Shoemate, Vadhan and Wagaman, "Widespread underestimation of sensitivity in differentially private
# libraries and how to fix it", CCS 2022.

UNLIKELY = 2.0**-170
"""Most probability of a Poisson sample that is larger than what is provided for."""
SHARE = 2.0**-8
"""How much of the clip the error of additions may be, where that takes no pieces smaller than `SMALLEST_PIECE`."""
SMALLEST_PIECE = 16
NETWORK_SLACK = 2.0**-10
"""What is left for errors of a network's norms, relative to the clip."""


def largest_batch(sampling: BatchSampling, count: int) -> int:
    """The most examples that a sample of ``count`` has, but for a probability of `UNLIKELY`; at least 1."""
    size = getattr(sampling, "batch_size", None)
    if size is None:
        mean, log = count * sampling.rate, -math.log(UNLIKELY)
        size = min(count, math.ceil((mean + log / 3 + math.sqrt(log**2 / 9 + 2 * log * mean)) * (1 + 1e-12)))
    return max(int(size), 1)


@dataclass(frozen=True)
class Rounding:
    """Provisions for rounding in sums of at most ``most`` gradients: public numbers.

    Attributes
    ----------
    most : int
        K.
    piece : int
        k, the most examples whose gradients are added in the objective's type.
    dtype : dtype
        Type that these are added in.
    slack : float
        Part of the clip by which a gradient may be longer than that.
    """

    most: int
    piece: int
    dtype: np.dtype[np.floating]
    slack: float

    @classmethod
    def of(cls, objective: Objective, sampling: BatchSampling, count: int) -> Rounding:
        """Provide for samples of ``count`` examples, and this objective's gradients."""
        most, unit = largest_batch(sampling, count), float(np.finfo(objective.dtype).eps) / 2
        # Kernels of networks round differently for batches of different sizes, so that a model made for it would turn
        # the gradients of all when one example comes or goes. Each is computed on its own: then it depends on the
        # example and the model alone.
        alone = not isinstance(objective, LinearModel)
        piece = 1 if alone else max(SMALLEST_PIECE, int(min(SHARE / (most * unit), most)))
        return cls(most, piece, objective.dtype, clip_slack(objective))

    @classmethod
    def of_clipped_sum(cls, objective: Objective) -> Rounding:
        """Provide for sums that are clipped as a whole, in float64, after all additions."""
        return cls(1, 1, objective.dtype, _float64_slack(objective))

    def clip(self, clip: float) -> float:
        """The most length of a gradient that was clipped to ``clip``."""
        return clip * (1 + self.slack)

    def error(self, clip: float) -> float:
        """Most that the computed sum is off, in L2 norm, from that of vectors of length `clip` of ``clip``.

        Two examples more than are added pay for the rounding of products and that of a piece's sum.
        """
        piece = min(self.piece, self.most)
        pieces = -(-self.most // piece)
        inside = pieces * summation_error(self.clip(clip), piece + 2, self.dtype)
        return inside + summation_error(self.clip(clip) * piece, pieces + 2, np.float64)

    def pieces(self, count: int) -> Iterator[slice]:
        """Runs of at most `piece` of ``count`` examples; one empty run where there are none."""
        for start in range(0, max(count, 1), self.piece):
            yield slice(start, start + self.piece)


def clip_slack(objective: Objective) -> float:
    """Most that a clipped gradient may be longer than the clip, relative to it."""
    return _float64_slack(objective) if isinstance(objective, LinearModel) else NETWORK_SLACK


def _float64_slack(objective: Objective) -> float:
    """Relative slack of a norm in float64, and of numbers that are rounded to the objective's type once."""
    return float(np.finfo(objective.dtype).eps) + (objective.size + 16) * 2.0**-52


_UP = 1 + 1e-12


@dataclass(frozen=True)
class GridQuery:
    """Draw of one release: its noise, and what an example counts for.

    Attributes
    ----------
    noise : GridGaussian
        Noise of all coordinates.
    per_example : float
        a, what one example counts for; 0 where nothing is counted.
    """

    noise: GridGaussian
    per_example: float

    @classmethod
    def of(
        cls, law: Gaussian, size: int, rounding: Rounding, count_share: float = 0.0, *, any_clip: bool = False
    ) -> GridQuery:
        """Make the draw for sums of ``size`` coordinates.

        Parameters
        ----------
        law : Gaussian
            The noise on the sum; of all that is released, if something is counted.
        size : int
            d.
        rounding : Rounding
            Provisions for rounding in the sum.
        count_share : float
            r; 0 counts nothing.
        any_clip : bool
            Whether noise of this multiplier has to be within the range for every other clip of `bound_of`, too. Steps
            are powers of two, so that another clip can make it twice as many of them.

        Raises
        ------
        SpecError
            If noise like ``law`` is out of the range of the grid.
        """
        clip, error, a = rounding.clip(law.clip), rounding.error(law.clip), 0.0
        if count_share:
            a = 2 * clip * math.sqrt(count_share / (1 - count_share))
            clip = clip / math.sqrt(1 - count_share) * _UP
            error += a * rounding.most * 2.0**-52
        with beginning(f"noise of {law.noise_multiplier:g} times the clip cannot be drawn", SpecError):
            noise = GridGaussian.like(replace(law, clip=clip), size + bool(count_share), error=error)
        room = 2 if any_clip else 1
        if not room * (rounding.most * clip + error) < MOST * noise.step:
            raise SpecError(
                f"noise of {law.noise_multiplier:g} times the clip is too little for sums of up to {rounding.most} "
                "gradients on a grid, which would saturate: use more noise"
            )
        if not room * noise.scale <= LARGEST:
            raise SpecError(f"noise of {law.noise_multiplier:g} times the clip is too much for a grid: use less noise")
        return cls(noise, a)

    def release(self, total: npt.NDArray[np.floating], count: float, words: Words) -> FloatArray:
        """The sum [size] with noise, and after it the count, if there is one.

        Parameters
        ----------
        total : ndarray [size]
            The clipped sum.
        count : float
            c: a whole number or a half.
        words : callable
            Random words that are used for nothing else.
        """
        answer = self.noise.release(self.vector(total, count), words)
        if self.per_example:
            answer[-1] /= self.per_example
        return answer

    def vector(self, total: npt.NDArray[np.floating], count: float) -> npt.NDArray[np.floating]:
        """Return the vector that gets the noise: raw."""
        return np.append(total.astype(np.float64), self.per_example * count) if self.per_example else total


@kept_whole
@dataclass(frozen=True, slots=True)
class Provided:
    """Provisions for one release's sum and noise: public, and fixed before its charge.

    Attributes
    ----------
    rounding : Rounding or None
        Rounding of the sum; None where it is not covered.
    grid : GridQuery or None
        The noise; None for laws that are drawn in floating point, and for none.
    """

    rounding: Rounding | None = None
    grid: GridQuery | None = None


NOTHING_PROVIDED = Provided()


_NUMBERS = 2**20  # of models that are held at once


class DrawnTurns(NamedTuple):
    """Raw: the examples that a round has drawn.

    Attributes
    ----------
    rows : ndarray [drawn] of int64
        Rows of the training split.
    slots : ndarray [drawn] of int64
        Step at which each takes its turn.
    """

    rows: IndexArray
    slots: IndexArray


class RoundSum(NamedTuple):
    """Sum of a round.

    Attributes
    ----------
    total : ndarray [answer_size]
        Raw, to be noised: of the objective's dtype.
    zeroed : int
        Raw: gradients, or sums to be clipped, that were not finite and counted as zero.
    public : ndarray [answer_size] or float
        Added after the noise: made of released models and public numbers only.
    """

    total: FloatArray
    zeroed: int
    public: FloatArray | float = 0.0


def round_sum(task: Round, turns: DrawnTurns, objective: Objective, data: Split) -> RoundSum:
    """The sum of ``task`` over the examples whose slot was reached."""
    reached = turns.slots < task.until
    # In the order of their slots; of several in one slot the first of the shard goes first.
    order = np.argsort(turns.slots[reached], kind="stable")
    taken = DrawnTurns(turns.rows[reached][order], turns.slots[reached][order])
    return _SUMS[task.update](task, taken, objective, data)


def rates_of(task: Round) -> npt.NDArray[np.float64]:
    """The step sizes of all steps of ``task``, [steps].

    Raises
    ------
    SpecError
        If one is not positive; or, for ``batch``, above the first, which would let one example weigh more than C.
    """
    rates = task.step_sizes.at(np.arange(task.steps))
    if not (np.isfinite(rates).all() and (rates > 0).all()):
        raise SpecError(f"step sizes are positive in all {task.steps} steps of a round, found {task.step_sizes}")
    if task.update == "batch" and not (rates <= rates[0]).all():
        raise SpecError(
            f"no step of a batch round is larger than its first, as the clip bounds that, found {task.step_sizes}"
        )
    return rates


def amended(task: Round, became: Round) -> Round:
    """``became``, if ``task`` can have become it: models swapped in after its own, and another ``until``.

    Raises
    ------
    SpecError
        If anything else has changed, such as what was charged.
    """
    admitted = (task.id, task.query, task.steps, task.step_sizes, task.update, task.where)
    found = (became.id, became.query, became.steps, became.step_sizes, became.update, became.where)
    if found != admitted or became.swaps[: len(task.swaps)] != task.swaps:
        raise SpecError(
            f"only models are swapped into the admitted round {task.id}, after those it has; found another round, "
            f"{became.id}: submit it as a task of its own"
        )
    return became


def _models(task: Round, dtype: np.dtype[np.floating]) -> FloatArray:
    return np.stack([swap.model.values for swap in task.swaps]).astype(dtype, copy=False)


def _starts(task: Round) -> IndexArray:
    """Slots from which on each model counts."""
    return np.array([swap.step for swap in task.swaps], np.int64)


def _batch(task: Round, taken: DrawnTurns, objective: Objective, data: Split) -> RoundSum:
    models, rates = _models(task, objective.dtype), rates_of(task)
    weights = rates / rates[0]
    model_of = np.searchsorted(_starts(task), np.arange(task.steps), side="right") - 1
    # Slots in a row that share model and weight are computed together.
    changes = (np.diff(model_of) != 0) | (np.diff(weights) != 0)
    begins = np.concatenate(([0], np.flatnonzero(changes) + 1))
    group = np.searchsorted(begins, taken.slots, side="right") - 1
    groups, firsts = np.unique(group, return_index=True)
    batches = np.split(taken.rows, firsts[1:]) if len(groups) else []
    total, zeroed = np.zeros(task.answer_size), 0
    width = max(1, _NUMBERS // objective.size)
    for start in range(0, len(groups), width):
        some = slice(start, start + width)
        slots = begins[groups[some]]
        clips, wheres = np.full(len(slots), task.query.mechanism.clip), [task.where] * len(slots)
        found = clipped_on(objective, models[model_of[slots]], data, batches[some], clips, wheres)
        for weight, row in zip(weights[slots], found.sums, strict=True):
            total += weight * row
        zeroed += int(found.zeroed.sum())
    return RoundSum(total.astype(objective.dtype), zeroed, _decay(task, models, model_of, weights, objective.l2))


def _decay(
    task: Round, models: FloatArray, model_of: IndexArray, weights: npt.NDArray[np.float64], l2: float
) -> FloatArray | float:
    """The L2 term of all slots that were reached, whether or not an example was drawn for them: a public number."""
    if not l2:
        return 0.0
    held = np.bincount(model_of[: task.until], weights[: task.until], minlength=len(models))
    decay = np.zeros(task.answer_size)
    for weight, model in zip(held, models, strict=True):
        decay += task.where.step * l2 * weight * model[task.where.slice]
    return decay


def _local_sums(task: Round, taken: DrawnTurns, clip: float, objective: Objective, data: Split) -> LocalSum:
    models, rates = _models(task, objective.dtype), rates_of(task)
    starts = np.searchsorted(taken.slots, _starts(task)).astype(np.int64)
    steps = LocalRound(models, starts, taken.rows, rates[taken.slots], float(rates[0]), clip, task.where)
    return objective.local_steps(steps, data)


def _clipped_sum(task: Round, taken: DrawnTurns, objective: Objective, data: Split) -> RoundSum:
    found = _local_sums(task, taken, math.inf, objective, data)
    total, zeroed = found.total.astype(np.float64), found.zeroed
    norm, most = float(np.linalg.norm(total)), task.query.mechanism.clip / 2
    if not math.isfinite(norm):
        return RoundSum(np.zeros(task.answer_size, objective.dtype), zeroed + 1)
    if norm > most:
        total *= most / norm
    return RoundSum(total.astype(objective.dtype), zeroed)


def _sequential(task: Round, taken: DrawnTurns, objective: Objective, data: Split) -> RoundSum:
    found = _local_sums(task, taken, task.query.mechanism.clip, objective, data)
    return RoundSum(found.total, found.zeroed)


_SUMS: Mapping[str, Callable[[Round, DrawnTurns, Objective, Split], RoundSum]] = {
    "batch": _batch,
    "clipped_sum": _clipped_sum,
    "sequential": _sequential,
}


class Total(NamedTuple):
    """Raw: what a batch gave. The clipped sum [size], and of how many ``examples`` which were zeroed or not clipped."""

    total: FloatArray
    zeroed: int
    unclipped: int
    examples: int


class Noisy(NamedTuple):
    """Sum of a batch with its noise already on it, and after it the noisy count, if one is asked for: [size] or one
    more.

    How many gradients in it were ``zeroed`` is raw.
    """

    answer: FloatArray
    zeroed: int


@kept_whole
class Ticket(NamedTuple):
    """A task that will be answered; if it costs anything, it is charged.

    Attributes
    ----------
    side : DataSide
        Side of the party (`machine`).
    task : task
        Task that is answered, as it is by now.
    number : int
        Number that its randomness is keyed by: of the charge, or the task's own where there is none.
    provided : Provided
        Provisions for its noise.
    opened : int or None
        Number among those that are answered once.
    """

    side: Any
    task: Any
    number: int
    provided: Provided = NOTHING_PROVIDED
    opened: int | None = None


class Inputs(NamedTuple):
    """A ticket with what was drawn for it.

    Attributes
    ----------
    ticket : Ticket
        Ticket that is answered.
    drawn : object
        Rows of a gradient, or the numbers that a window draws them by; the turns of a round; the rows of local steps.
    together : callable
        Function that computes the raw answer, with those of others that are computed by the same.
    """

    ticket: Ticket
    drawn: Any
    together: Callable[[Sequence[Any]], Sequence[Any]]


class Sums(Protocol):
    """Computes what is raw, of any number of tickets."""

    @property
    def objective(self) -> Objective:
        """Common to all."""

    def gradients(self, asked: Sequence[Inputs]) -> Sequence[Total | Noisy]:
        """The clipped sums of gradients; with noise only where a home draws it there."""

    def rounds(self, asked: Sequence[Inputs]) -> list[RoundSum]:
        """Compute the sums of rounds of local steps."""


class Together:
    """All gradients of a call in one, which is where a simulation's speed comes from."""

    def __init__(self, objective: Objective, data: Split) -> None:
        self.objective, self._data = objective, data
        self._models = np.empty((0, objective.size), objective.dtype)  # reused from call to call

    def models(self, tickets: Sequence[Ticket]) -> FloatArray:
        """The models [width, size] of gradients, which the next call overwrites."""
        if len(self._models) < len(tickets):
            self._models = np.empty((len(tickets), self.objective.size), self.objective.dtype)
        models = self._models[: len(tickets)]
        np.stack([ticket.task.model.values for ticket in tickets], out=models)
        return models

    def gathered(self, asked: Sequence[Inputs]) -> tuple[FloatArray, list[IndexArray], FloatArray]:
        """Models [width, size], which the next call overwrites, batches and clips [width]."""
        models, batches = self.models([item.ticket for item in asked]), [item.drawn for item in asked]
        return models, batches, np.array([item.ticket.task.query.mechanism.clip for item in asked])

    def clipped(self, models: FloatArray, batches: Sequence[IndexArray], clips: FloatArray) -> Gradients:
        """The clipped sums over ``batches`` of gradients at ``models`` [width, size]."""
        return self.objective.clipped_gradients(models, self._data, batches, clips)

    def gradients(self, asked: Sequence[Inputs]) -> Sequence[Total | Noisy]:
        models, batches, clips = self.gathered(asked)
        found = self.clipped(models, batches, clips)
        sums = zip(found.sums, found.zeroed.tolist(), found.unclipped.tolist(), map(len, batches), strict=True)
        return [Total(*row) for row in sums]

    def rounds(self, asked: Sequence[Inputs]) -> list[RoundSum]:
        return [round_sum(item.ticket.task, item.drawn, self.objective, self._data) for item in asked]


class InPieces:
    """Each sum alone, in pieces that are added in float64, so that its rounding is what was provided for."""

    def __init__(self, objective: Objective, data: Split) -> None:
        self.objective, self.data = objective, data

    def gradients(self, asked: Sequence[Inputs]) -> list[Total]:
        return [self.gradient(item.ticket, item.drawn, self.data) for item in asked]

    def rounds(self, asked: Sequence[Inputs]) -> list[RoundSum]:
        return [self.round(item.ticket, item.drawn, self.data) for item in asked]

    def gradient(self, ticket: Ticket, rows: IndexArray, data: Split) -> Total:
        """The sum over ``rows`` of ``data``."""
        task: Gradient = ticket.task
        models, clip = task.model.values[None], task.query.mechanism.clip
        pieces = (
            [rows[piece] for piece in _rounding(ticket).pieces(len(rows))] if task.query.mechanism.private else [rows]
        )
        total, counts = np.zeros(self.objective.size), np.zeros(2, np.int64)
        for piece in pieces:
            found = self.objective.clipped_gradients(models, data, [piece], clip)
            total = found.sums[0] if len(pieces) == 1 else np.add(total, found.sums[0], out=total)
            counts += found.zeroed[0], found.unclipped[0]
            del found  # of a large model, before the next takes as much
        return Total(total, int(counts[0]), int(counts[1]), len(rows))

    def round(self, ticket: Ticket, turns: DrawnTurns, data: Split) -> RoundSum:
        """The sum of a round; of a ``batch``, whose examples do not depend on each other, in pieces."""
        task: Round = ticket.task
        # Only examples whose turn came: were there pieces for others too, time would tell how many were drawn.
        reached = turns.slots < task.until
        turns = DrawnTurns(turns.rows[reached], turns.slots[reached])
        rounding = _rounding(ticket)
        if not task.query.mechanism.private or task.update != "batch" or len(turns.rows) <= rounding.piece:
            return round_sum(task, turns, self.objective, data)
        parts = [
            round_sum(task, DrawnTurns(turns.rows[piece], turns.slots[piece]), self.objective, data)
            for piece in rounding.pieces(len(turns.rows))
        ]
        total = np.stack([part.total for part in parts]).sum(axis=0, dtype=np.float64)
        return RoundSum(total, sum(part.zeroed for part in parts), parts[0].public)


def _rounding(ticket: Ticket) -> Rounding:
    rounding = ticket.provided.rounding
    assert rounding is not None, "pieces need a home that provides for their rounding"
    return rounding


def post_processed(answer: npt.NDArray[Any], task: Gradient, l2: float) -> npt.NDArray[Any]:
    """Return what a node gets in place of noisy sums: means, and the regulariser's gradient."""
    size = task.model.size
    answer /= task.query.normaliser
    if task.query.unit != 1:
        answer[:size] /= task.query.unit
    if l2:
        answer[:size] += l2 * task.model.values  # the model is public or released
    return answer


class Filled(InPieces):
    """Each sum alone, in pieces, and on as many examples for every release, however many were sampled.

    After those of the sample come examples that nobody has, up to a public number (`provided_for`), and what comes of
    them is dropped. So neither the time that an answer takes, nor how soon the machine does something else meanwhile,
    such as acknowledging a message, tells how many were sampled. The gradient of each example is computed in the same
    way whatever its numbers are (`Objective.steady`).

    Parameters
    ----------
    objective : Objective
        Objective of the run.
    data : Split
        The party's training examples.
    count : int
        Number of examples of its shard: public.
    """

    def __init__(self, objective: Objective, data: Split, count: int) -> None:
        super().__init__(objective.steady(), data)
        self._count, self._nobody = count, nobody_like(data)

    def provided_for(self, ticket: Ticket) -> int:
        """Number of examples that the answer to ``ticket`` is computed on, unless more are sampled."""
        task = ticket.task
        until, steps = (task.until, task.steps) if isinstance(task, Round) else (1, 1)
        return provided_for(task.query.sampling, self._count, until, steps)

    def gradient(self, ticket: Ticket, rows: IndexArray, data: Split) -> Total:
        found = super().gradient(ticket, rows, data)
        self.fill(ticket, self.provided_for(ticket) - len(rows))
        return found

    def round(self, ticket: Ticket, turns: DrawnTurns, data: Split) -> RoundSum:
        found = super().round(ticket, turns, data)
        self.fill(ticket, self.provided_for(ticket) - int(np.count_nonzero(turns.slots < ticket.task.until)))
        return found

    def of_nobody(self, ticket: Ticket, count: int) -> Any:
        """The sum over no examples, and as long as over ``count``; what comes of these is dropped."""
        total = self._sum(ticket, np.empty(0, np.int64), self.data).total
        self.fill(ticket, count)
        return total

    def fill(self, ticket: Ticket, count: int) -> None:
        """Compute on ``count`` examples more, if that is any."""
        if count > 0:
            self._sum(ticket, np.zeros(count, np.int64), self._nobody)

    def _sum(self, ticket: Ticket, rows: IndexArray, data: Split) -> Total | RoundSum:
        if not isinstance(ticket.task, Round):
            return super().gradient(ticket, rows, data)
        # Each at another step: examples that share neither model nor step size are computed one by one.
        return super().round(ticket, DrawnTurns(rows, np.arange(len(rows)) % max(ticket.task.until, 1)), data)


def with_most_models(task: Any) -> Any:
    """``task`` with as many models as its deadline provides for, from steps that lie as far apart as they can."""
    if not isinstance(task, Round):
        return task
    count = task.models_provided_for
    return replace(task, swaps=tuple(Swap(number * task.steps // count, task.model) for number in range(count)))


def nobody_like(data: Split) -> Split:
    """One made-up example of the form of ``data``: as many features, none of them zero, and the first target."""
    shape = (1, *data.features.shape[1:])
    features = np.random.default_rng(0).normal(size=shape).astype(data.features.dtype)
    targets = np.zeros((1, *data.targets.shape[1:]), data.targets.dtype)
    return Split(sp.csr_array(features) if data.sparse else features, targets)
