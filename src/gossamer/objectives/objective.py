"""Objectives, which runs minimise: the one interface between models and everything else.

An objective knows a model only as a flat vector of ``size`` numbers. It computes for *many* models at once
(``width`` of them), because the simulator gathers the pending work of many nodes into one call.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, Floats, IndexArray, IntArray
from gossamer.data.examples import Features, Split
from gossamer.errors import DataError, ModelError, SpecError
from gossamer.vectors import Coordinates
from gossamer.vectors import Part as Part

_KEPT = {"compiled": "kept for next time", "in memory": "not kept"}
"""What becomes of kernels that were just compiled, by where they are from."""


@dataclass(frozen=True)
class Computing:
    """A way to gradients; it changes speed, and results in the last digits.

    Attributes
    ----------
    strategy : str
        ``linear``, or that of a network.
    unchained : str
        Reason why a network has no kernels, where they would have been taken; empty where nobody needs to know.
    kernels : str or None
        Origin of the kernels; see `chains.compiled.Made`.
    seconds : float
        Wall time that it took to have kernels.
    products : bool
        Whether kernels leave wide linear layers to BLAS, by a table of sizes and a trial.
    device : str or None
        Device on which sums of gradients are computed, if one was asked for.
    """

    strategy: str
    unchained: str = ""
    kernels: str | None = None
    seconds: float = 0.0
    products: bool = False
    device: str | None = None

    @property
    def remark(self) -> str | None:
        """A line for whoever waits for a run."""
        if self.unchained:
            return f"network: {self.unchained}, so gradients are computed by strategy '{self.strategy}'"
        kept = _KEPT.get(self.kernels or "")
        return None if kept is None else f"network: compiling its kernels took {self.seconds:.1f} s ({kept})"

    def figures(self) -> dict[str, Any]:
        """Entries of ``timing.json``."""
        return {
            "strategy": self.strategy,
            "kernels": self.kernels,
            "kernel_seconds": round(self.seconds, 3),
            "wide_layers_by_blas": self.products,
            **({} if self.device is None else {"device": self.device}),
        }


class Normals(NamedTuple):
    """Normal noise for each row of a sum, as `gossamer.normals` makes it.

    Attributes
    ----------
    keys : ndarray [width, 2] of uint64
        Key and label of the numbers of each row.
    deviations : ndarray [width] of float64
        Standard deviation of each row's noise; 0 for a row without.
    """

    keys: npt.NDArray[np.uint64]
    deviations: Floats


@runtime_checkable
class NoisyObjective(Protocol):
    """An objective that adds normal noise to its sums itself."""

    def noisy_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clips: FloatArray, noise: Normals
    ) -> Gradients:
        """`Objective.clipped_gradients` with the ``noise`` of each row on its sum."""


Clip = float | FloatArray


class Gradients(NamedTuple):
    """Sums of clipped per-example gradients.

    Attributes
    ----------
    sums : ndarray [width, size]
        Row k is ``sum_i clip(grad f(models[k]; x_i))`` over batch k; a zero row for an empty batch.
    zeroed : ndarray [width] of int64
        Number of per-example gradients of batch k were not finite and counted as zero. Raw: it is computed from data,
        so it never leaves the node.
    unclipped : ndarray [width] of int64
        Number of per-example gradients of batch k were finite and had a norm of at most the clip: all finite ones where
        the clip is infinite. Raw like ``zeroed``: without noise it never leaves the node.
    """

    sums: FloatArray
    zeroed: IntArray
    unclipped: IntArray


class Evaluation(NamedTuple):
    """Scores of models on a split, one entry a model.

    Attributes
    ----------
    loss : ndarray [width] of float64
        Mean loss over the examples, without the L2 term.
    accuracy : ndarray [width] of float64
        Share of examples classified correctly, in [0, 1]; NaN for a regression.
    """

    loss: Floats
    accuracy: Floats


class LocalRound(NamedTuple):
    """Sequential SGD: one step an example, in order; the model may be swapped between steps.

    Attributes
    ----------
    models : ndarray [segments, size]
        The model at the round's start and at each swap, without what the round itself has done.
    starts : ndarray [segments] of int64
        Number of ``examples`` evaluated before each model counts: ``starts[0]`` is 0, and they never fall. Of several
        swaps at one place the last counts.
    examples : ndarray [count] of int64
        Rows of the split in the order of evaluation. May be empty; an index may occur several times.
    rates : ndarray [count] of float64
        Step size of each step.
    unit : float
        The step size that the result is given in units of.
    clip : float
        C > 0, the most L2 norm of one example's loss gradient; ``math.inf`` leaves gradients as they are.
    where : Coordinates
        Only these coordinates are computed and moved.
    """

    models: FloatArray
    starts: IndexArray
    examples: IndexArray
    rates: Floats
    unit: float
    clip: float
    where: Coordinates = Coordinates()


class LocalSum(NamedTuple):
    """Outcome of a local round.

    Attributes
    ----------
    total : ndarray [where.count(size)]
        U, of the objective's dtype.
    zeroed : int
        Number of per-example gradients that were not finite and counted as zero. Raw: it is computed from data, so it
        never leaves the node.
    """

    total: FloatArray
    zeroed: int


class Minibatches(NamedTuple):
    """Mini-batches of one training, which may differ in length.

    Attributes
    ----------
    examples : ndarray [drawn] of int64
        Rows of the split: those of the first step, of the second, and so on. A row may occur several times.
    lengths : ndarray [steps] of int64
        Number of examples of each step, 1 or more.
    """

    examples: IndexArray
    lengths: IndexArray


class Training(NamedTuple):
    """A client's whole local training: SGD with momentum, and a term that holds it near where it starts.

    Attributes
    ----------
    batches : Minibatches
        One a step.
    rate : float
        Step size of each step.
    momentum : float
        m in [0, 1), of the heavy ball; 0 is plain SGD.
    proximal : float
        mu >= 0 of FedProx's ``mu/2 |w - w_0|^2``, which is added to the objective.
    """

    batches: Minibatches
    rate: float
    momentum: float = 0.0
    proximal: float = 0.0


class LocalUpdates(NamedTuple):
    """Moves of agents' models in mini-batch steps, one entry an agent.

    Attributes
    ----------
    updates : ndarray [width, size]
        The last model less the first, of the objective's dtype; finite whatever happened.
    not_finite : ndarray [width] of int64
        Number of mean gradients were not finite. Raw: it is computed from data, so it never leaves the node.
    """

    updates: FloatArray
    not_finite: IntArray


def slices(count: int, size: int) -> Iterator[slice]:
    """``count`` places, at most ``size`` at a time."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def check_indices(indices: IndexArray, count: int) -> None:
    """Raise DataError unless all of ``indices`` are in 0..count-1."""
    if indices.size and not 0 <= indices.min() <= indices.max() < count:
        raise DataError(f"batch indices must be in 0..{count - 1}, found {indices.min()}..{indices.max()}")


def check_classes(targets: npt.NDArray[Any], classes: int, otherwise: str) -> None:
    """Raise DataError unless ``targets`` [n] are numbers of classes; ``otherwise`` is what may help but other ones."""
    known = (targets >= 0) & (targets < classes) & (targets == np.floor(targets))
    if not known.all():
        raise DataError(
            f"targets must be classes 0..{classes - 1}, found {targets[~known][0]:g}; relabel the targets "
            f"or {otherwise}"
        )


def clips_of(clip: Clip, width: int) -> Floats:
    """The clip of each of ``width`` models, [width], from one for all or one for each.

    Raises
    ------
    SpecError
        If one is not positive.
    DataError
        If there is not one for each model.
    """
    given = np.asarray(clip, np.float64)
    positive = given > 0
    if not positive.all():
        raise SpecError(f"every clip must be a positive number, found {given[~positive].flat[0]:g}")
    if given.shape not in ((), (width,)):
        raise DataError(f"expected one clip, or an array [{width}] with one for each model, found {list(given.shape)}")
    return np.full(width, given)


# What agents compute is said in `Objective.local_updates` (clipped steps) and `local_training` (steps with momentum).
# Both are one `Descent`.


class Descent(NamedTuple):
    """Steps of many agents, one behind the other.

    Attributes
    ----------
    steps : ndarray [width] of int64
        Number of steps of each agent.
    lengths : ndarray [all steps] of int64
        Number of examples of each step.
    examples : ndarray [drawn] of int64
        Examples of the first agent's first step, of its second step, and so on.
    rates : ndarray [width] of float64
        Size of each agent's steps.
    settings : tuple of ndarray [width] of float64
        Either the clips of mean gradients, or momenta and strengths of proximal terms.
    bounds : ndarray [width] of float64
        Most L2 norm of each agent's update.
    """

    steps: IndexArray
    lengths: IndexArray
    examples: IndexArray
    rates: Floats
    settings: tuple[Floats, ...]
    bounds: Floats


def clipped_descent(batches: Sequence[IndexArray], rates: Floats, clips: Floats, count: int) -> Descent:
    """The steps that `Objective.local_updates` is asked for, of ``count`` examples.

    Raises
    ------
    SpecError
        If a clip or rate is not positive, or a rate not finite.
    DataError
        If the arguments do not fit each other or the examples.
    """
    width, shapes = len(batches), [batch.shape for batch in batches]
    clips, rates = clips_of(clips, width), np.ascontiguousarray(rates, np.float64)
    if rates.shape != (width,):
        raise DataError(f"expected rates [{width}], one for each model, found {list(rates.shape)}")
    if wrong := [shape for shape in shapes if len(shape) != 2]:
        raise DataError(f"expected batches [steps, examples], found one of {list(wrong[0])}")
    steps, lengths = np.fromiter(chain.from_iterable(shapes), np.int64, 2 * width).reshape(width, 2).T.copy()
    _check_rates(rates)
    examples = _joined([batch.ravel() for batch in batches], count)
    every = _checked_lengths(np.repeat(lengths, steps))
    return Descent(steps, every, examples, rates / np.maximum(steps, 1), (clips,), rates * clips)


def momentum_descent(trainings: Sequence[Training], count: int) -> Descent:
    """The steps that `Objective.local_training` is asked for, of ``count`` examples.

    Raises
    ------
    SpecError
        If a number is out of its range.
    DataError
        If batches do not fit each other or the examples.
    """
    for (drawn, lengths), _, momentum, proximal in trainings:
        if not (0 <= momentum < 1 and 0 <= proximal < math.inf):
            raise SpecError(f"expected momentum in [0, 1) and proximal in [0, inf), found {momentum}, {proximal}")
        if lengths.sum() != drawn.size:
            raise DataError(f"expected as many examples as batches are long, {lengths.sum()}, found {drawn.size}")
    numbers = [(each.rate, each.momentum, each.proximal) for each in trainings]
    rates, *rule = np.array(numbers, np.float64).reshape(-1, 3).T.copy()
    _check_rates(rates)
    batches = [each.batches for each in trainings]
    examples = _joined([each.examples for each in batches], count)
    steps = np.fromiter((len(each.lengths) for each in batches), np.int64, len(batches))
    lengths = _checked_lengths(_joined([each.lengths for each in batches]))
    return Descent(steps, lengths, examples, rates, tuple(rule), np.full(len(rates), math.inf))


def _check_rates(rates: Floats) -> None:
    if rates.size and not (rates.min() > 0 and rates.max() < math.inf):
        wrong = rates[~((rates > 0) & (rates < math.inf))]
        raise SpecError(f"rates must be positive and finite, found {wrong[0]:g}")


def _checked_lengths(lengths: IndexArray) -> IndexArray:
    if lengths.size and lengths.min() < 1:
        raise DataError("a batch needs at least 1 example, found one of none")
    return lengths


def _joined(arrays: Sequence[IndexArray], count: int | None = None) -> IndexArray:
    """One array behind the other, with every number in 0..count-1."""
    try:
        found = np.concatenate((np.empty(0, np.int64), *filter(len, arrays)), dtype=np.int64, casting="same_kind")
    except (TypeError, ValueError):
        wrong = next(each for each in arrays if each.ndim != 1 or each.dtype.kind not in "iu")
        raise DataError(f"expected whole numbers in a row, found {wrong.dtype} {list(wrong.shape)}") from None
    if count is not None:
        check_indices(found, count)
    return found


def _mean_gradients(objective: Objective, places: Floats, data: Split, rows: Sequence[IndexArray]) -> Iterator[Floats]:
    """The mean gradient [size] at each of ``places`` with the L2 term; NaN where it is not finite."""
    models = places.astype(objective.dtype)
    found = objective.clipped_gradients(models, data, rows, math.inf)
    for place, model, total, zeroed, examples in zip(places, models, found.sums, found.zeroed, rows):
        sound = not zeroed and np.isfinite(model).all()
        yield total / np.float64(len(examples)) + objective.l2 * place if sound else np.full(len(total), np.nan)


def _clipped_step(total: Floats, start: FloatArray, gradient: Floats, rate: float, clip: float, most: float) -> bool:
    """Change ``total`` by one step, if it is finite; without a clip ``start + total`` stops at ``most``."""
    sound = (norm := _norm(gradient)) < math.inf
    if sound:
        total -= rate * (gradient if norm <= clip else clip / norm * gradient)
    if clip == math.inf:
        place = start + total
        stopped = ~(sound & (np.abs(place) <= most))
        total[stopped] = np.where(place < 0, -most, most)[stopped] - start[stopped]
    return sound


def _momentum_step(
    total: Floats, velocity: Floats, gradient: Floats, rate: float, momentum: float, proximal: float
) -> bool:
    """Change ``total`` and ``velocity`` by one step, if it is finite."""
    gradient += proximal * total
    if sound := bool(np.isfinite(gradient).all()):
        velocity[:] = momentum * velocity + gradient
        total -= rate * velocity
    return sound


def _finish(total: Floats, bound: float, most: float, tiny: float) -> None:
    """Make ``total`` at most ``bound`` long, whatever rounding did, and of numbers that its dtype holds."""
    norm = _norm(total)
    if norm > bound:
        total *= bound / norm
    total[np.isnan(total)] = most
    np.clip(total, -most, most, out=total)
    total[np.abs(total) < tiny] = 0  # a subnormal number may be rounded up by half of itself


def _norm(vector: Floats) -> float:
    """The L2 norm, where squares overflow or vanish too; not finite where an entry is not."""
    peak = float(np.abs(vector).max(initial=0))
    return peak * math.sqrt(np.square(vector / peak).sum()) if 0 < peak < math.inf else peak


# Local rounds of any objective, one call of its `clipped_gradients` a step.
#
# What a round is, and what it computes, is said in `LocalRound` and `Objective.local_steps`.

# With ``D = where.step``, an example's share of a sum is ``clip(D * gradient[where])``: the clip comes after masking
# and scaling, so that no example moves the sum by more than the clip.

_NUMBERS = 2**23  # of per-example gradients that are held at once: 32 MiB in float32


class CoordinateSums(NamedTuple):
    """Sums of clipped per-example gradients, each on coordinates of its own.

    Attributes
    ----------
    sums : list of ndarray
        Sum of each row k, [wheres[k].count(size)].
    zeroed, unclipped : ndarray [width] of int64
        Numbers as in `Gradients`, and raw like those.
    """

    sums: list[FloatArray]
    zeroed: IntArray
    unclipped: IntArray


def clipped_on(
    objective: Objective,
    models: FloatArray,
    data: Split,
    batches: Sequence[IndexArray],
    clips: Clip,
    wheres: Sequence[Coordinates],
) -> CoordinateSums:
    """Sum over each batch of ``clip(D * gradient[where])``, in bounded memory.

    Rows of all coordinates are exactly what `Objective.clipped_gradients` gives for them. The others take every
    per-example gradient, some at a time; one with a component that is not finite counts as zero, wherever the
    component is.

    Parameters
    ----------
    objective : Differentiable
        Objective that is differentiated.
    models : ndarray [width, size]
        Row k is the model at which batch k is evaluated.
    data : Split
        The training examples that the indices refer to.
    batches : sequence of ``width`` index arrays [batch_k] of int64
        May be empty and of different lengths.
    clips : float or ndarray [width]
        Most L2 norm of an example's share, positive; common to all rows or one for each.
    wheres : sequence of ``width`` Coordinates
        Each with its first coordinate below ``size``.

    Raises
    ------
    SpecError
        If a clip is not positive.
    DataError
        If the arguments do not fit each other.
    """
    if not len(models) == len(batches) == len(wheres):
        raise DataError(f"expected {len(models)} batches and coordinates, found {len(batches)} and {len(wheres)}")
    limits = clips_of(clips, len(models))
    if beyond := [where for where in wheres if where.first >= objective.size]:
        raise DataError(f"coordinates of {objective.size} numbers start below {objective.size}, found {beyond[0]}")
    sums: list[FloatArray] = [np.zeros(where.count(objective.size)) for where in wheres]
    zeroed, unclipped = np.zeros((2, len(wheres)), np.int64)
    if whole := [k for k, where in enumerate(wheres) if where.step == 1]:
        found = objective.clipped_gradients(models[whole], data, [batches[k] for k in whole], limits[whole])
        for k, total in zip(whole, found.sums):
            sums[k] = total
        zeroed[whole], unclipped[whole] = found.zeroed, found.unclipped
    masked = [(k, rows[i : i + 1]) for k, rows in enumerate(batches) if wheres[k].step > 1 for i in range(len(rows))]
    most = float(np.finfo(objective.dtype).max)
    for some in slices(len(masked), max(1, _NUMBERS // objective.size)):
        rows, examples = zip(*masked[some])
        found = objective.clipped_gradients(models[list(rows)], data, examples, math.inf)
        found.sums[found.zeroed > 0] = np.nan
        for k, gradient in zip(rows, found.sums):
            with np.errstate(over="ignore"):
                share = wheres[k].step * gradient[wheres[k].slice].astype(np.float64)
                norm = math.sqrt(np.square(share).sum())
            if not norm <= most:
                zeroed[k] += 1
                continue
            unclipped[k] += norm <= limits[k]
            sums[k] += share * min(1.0, limits[k] / norm) if norm > 0 else 0.0
    return CoordinateSums([total.astype(objective.dtype, copy=False) for total in sums], zeroed, unclipped)


def checked(given: LocalRound, size: int, count: int) -> LocalRound:
    """``given`` with arrays of the documented types, for a model of ``size`` numbers and ``count`` examples.

    Raises
    ------
    SpecError
        If a clip, unit or step size is not positive, or a unit or step size not finite.
    DataError
        If the arrays do not fit each other, the model or the examples.
    """
    models, starts, examples, rates = arrays_of(given, size)
    steps = len(examples)
    if starts[0] != 0 or starts[-1] > steps or (starts[1:] < starts[:-1]).any():
        raise DataError(f"starts of a round must rise from 0 to at most {steps}, found {starts.tolist()[:8]}")
    _check_rates(rates)
    check_indices(examples, count)
    return given._replace(models=models, starts=starts, examples=examples, rates=rates)


def arrays_of(
    given: LocalRound, size: int, dtype: np.dtype[Any] | None = None
) -> tuple[FloatArray, IndexArray, IndexArray, Floats]:
    """The first four fields, contiguous and of the documented types and shapes; their entries are not looked at.

    Raises
    ------
    SpecError, DataError
        As `checked`, for anything but the entries of arrays.
    """
    models, rates = np.ascontiguousarray(given.models, dtype), np.ascontiguousarray(given.rates, np.float64)
    starts, examples = _joined([given.starts]), _joined([given.examples])
    if not (given.clip > 0 and 0 < given.unit < math.inf):
        raise SpecError(f"expected a positive clip and a positive finite unit, found {given.clip:g}, {given.unit:g}")
    if models.shape != (len(starts), size) or not len(models):
        raise DataError(f"a round needs models [{len(starts)}, {size}], one a start, found {list(models.shape)}")
    if rates.shape != examples.shape:
        raise DataError(f"a round of {len(examples)} examples needs as many step sizes, found {list(rates.shape)}")
    if given.where.first >= size:
        raise DataError(f"coordinates of {size} numbers start below {size}, found {given.where}")
    return models, starts, examples, rates


def _model(of: LocalRound, total: FloatArray, step: int, dtype: np.dtype[np.floating]) -> FloatArray:
    """The model [size] at which the example of ``step`` is evaluated."""
    last = np.searchsorted(of.starts, step, side="right") - 1
    model: FloatArray = of.models[last].astype(np.float64)
    model[of.where.slice] -= of.unit * total
    return model.astype(dtype, copy=False)


Known = TypeVar("Known")


class KnownSplits(WeakKeyDictionary[Split, Known]):
    """Memory of the splits that an objective has seen; copies and pickles of it start empty."""

    def __reduce__(self) -> tuple[type[KnownSplits[Known]], tuple[()]]:
        return KnownSplits, ()

    def __deepcopy__(self, memo: object) -> KnownSplits[Known]:
        return KnownSplits()


class Objective(ABC):
    """A loss averaged over examples, plus ``l2/2 ||w||^2``, as a function of a flat vector w.

    Attributes
    ----------
    size : int
        Number of parameters, d.
    dtype : numpy dtype
        Type of models and gradients, float32 or float64.
    parts : tuple of Part
        The arrays the flat vector consists of, in order (C order inside each).
    l2 : float
        Strength of the L2 term. Its gradient ``l2 * w`` does not depend on data and is *not* part of
        ``clipped_gradients``: the data side adds it after the noise.
    squared_error : float or None
        Mean squared error for each unit of loss, of a loss that is one.
    foreign : bytes
        Digest of code that is not Gossamer's and computes it; empty of others.
    whose : str
        Whose that code is, in words.
    faults : mapping of str to mapping
        Answers of that code that counted as zero, so far: of whom, and how many for each reason.
    """

    size: int
    dtype: np.dtype[np.floating]
    parts: tuple[Part, ...]
    l2: float
    squared_error: float | None = None
    foreign: bytes = b""
    whose: str = ""
    faults: Mapping[str, Mapping[str, int]] = MappingProxyType({})

    def tried(self) -> None:
        """See before a run whether code that is not Gossamer's computes anything; a `ModelError` if it does not."""
        return None

    @abstractmethod
    def initial(self, generator: np.random.Generator) -> FloatArray:
        """A starting point, [size], drawn from public randomness only."""

    def clipped_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: Clip
    ) -> Gradients:
        """Sum over each batch of per-example loss gradients, each scaled to an L2 norm of at most ``clip``.

        Parameters
        ----------
        models : ndarray [width, size]
            Row k is the model at which batch k is evaluated.
        data : Split
            The training examples that the indices refer to.
        batches : sequence of ``width`` index arrays [batch_k] of int64
            May be empty and of different lengths; an index may occur in several batches.
        clip : float or ndarray [width]
            C > 0, common to all models or one for each of them; ``math.inf`` leaves gradients as they are.
            The result of one example never depends on which others are in its batch, and that of one model
            never on the clips of others.

        Returns
        -------
        Gradients
            With ``sums`` of the objective's dtype. A per-example gradient with a component that is not
            finite counts as zero.

        Raises
        ------
        SpecError
            If a clip is not positive.
        DataError
            If there is not one clip for each model.
        ModelError
            If the objective has none.
        """
        raise ModelError(f"{type(self).__name__} has no gradients of examples")

    def local_steps(self, given: LocalRound, data: Split) -> LocalSum:
        """Sequential SGD, one step an example.

        With D = ``where.step``, the k-th step, at the example n and with the step size eta_k, is::

            w = models[s] - unit U  on where, and models[s] elsewhere       (s: the last swap at or before k)
            g = clip(D * gradient of n's loss at w, on where) + D l2 w      (on where)
            U = U + eta_k / unit * g                                        (U = 0 before the first step)

        so that w moves by ``-eta_k g``. The clip comes after masking and scaling, and the L2 term stays outside of
        it. Without coordinates of its own (D = 1) this is plain SGD.

        Parameters
        ----------
        given : LocalRound
            Steps to take.
        data : Split
            The training examples that the indices refer to.

        Returns
        -------
        LocalSum
            With U. A per-example gradient with a component that is not finite counts as zero.

        Raises
        ------
        SpecError
            If a clip, unit or step size is not positive, or a unit or step size not finite.
        DataError
            If the arrays of a round, or a round and ``data``, do not fit each other.

        References
        ----------
        Van Dijk et al., "Asynchronous federated learning with reduced number of rounds and with differential
        privacy from less aggregated Gaussian noise", arXiv:2007.09208, Algorithm 1 and Appendix C.1.
        """
        given = checked(given, self.size, len(data))
        where, total, zeroed = given.where, np.zeros(given.where.count(self.size)), 0
        with np.errstate(over="ignore", invalid="ignore"):  # a model that is no longer finite has zeroed gradients
            for step in range(len(given.examples)):
                model = _model(given, total, step, self.dtype)
                found = clipped_on(self, model[None], data, [given.examples[step : step + 1]], given.clip, [where])
                zeroed += int(found.zeroed[0])
                move = found.sums[0].astype(np.float64)
                if self.l2 > 0:  # zero times what is not finite would be no zero
                    move += where.step * self.l2 * model[where.slice]
                total += given.rates[step] / given.unit * move
            return LocalSum(total.astype(self.dtype), zeroed)

    def local_updates(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], rates: Floats, clips: Floats
    ) -> LocalUpdates:
        """Mini-batch SGD of many agents, each from a model of its own.

        Agent k starts at ``w = models[k]`` and takes E steps, one a row of ``batches[k]`` [E, examples]::

            g = mean over the row of the loss gradients at w, plus l2 w
            w = w - rates[k] / E * g min(1, clips[k] / |g|)

        The clip comes after the mean and holds for the L2 term too, so that no data moves the update by more than
        ``2 rates[k] clips[k]``. Where g or its norm is not finite it counts as zero, but without a clip such a step
        takes every entry of w to the largest finite number of its sign, so that divergence stays in sight.

        Parameters
        ----------
        models : ndarray [width, size]
            Model that each agent starts at.
        data : Split
            The training examples that the indices refer to.
        batches : sequence of ``width`` index arrays [steps_k, examples_k] of int64
            An index may occur several times. Without steps the update is zero.
        rates : ndarray [width] of float64
            Step size of each agent's whole update, positive and finite: every step has its share.
        clips : ndarray [width] of float64
            The most L2 norm of each agent's mean gradients, positive; ``math.inf`` leaves them as they are.

        Returns
        -------
        LocalUpdates
            With ``|updates[k]| <= rates[k] clips[k]``, up to the rounding of each entry to the objective's dtype. The
            result of one agent does not depend on the others.

        Raises
        ------
        SpecError
            If a clip or rate is not positive, or a rate not finite.
        DataError
            If the arguments do not fit each other, or a batch has no examples.

        References
        ----------
        Rizk, Vlaski and Sayed, "Privatized graph federated learning", eq. 6.
        """
        return self.descended(models, data, clipped_descent(batches, rates, clips, len(data)))

    def local_training(self, models: FloatArray, data: Split, trainings: Sequence[Training]) -> LocalUpdates:
        """Whole local trainings of many clients, each from a model of its own: SGD with momentum, held near its start.

        Client k starts at ``w = models[k]`` with the velocity ``v = 0``, and takes a step for each mini-batch::

            g = mean over the batch of the loss gradients at w, plus l2 w + proximal (w - models[k])
            v = momentum v + g
            w = w - rate v

        which is ``torch.optim.SGD`` without dampening, on the objective with FedProx's term. Nothing is clipped here: a
        whole update is, by whoever sends it. A step whose g is not finite is left out, with w and v as they were, and
        counted. A w that its dtype does not hold has no finite g, so a training that diverges stops where numbers end,
        and its update is as large as they are: divergence stays in sight.

        Parameters
        ----------
        models : ndarray [width, size]
            Model that each client starts at.
        data : Split
            The training examples that the indices refer to.
        trainings : sequence of ``width`` Training
            Training of each client. Without steps the update is zero.

        Returns
        -------
        LocalUpdates
            The result of one client does not depend on the others.

        Raises
        ------
        SpecError
            If a rate is not positive and finite, a momentum not in [0, 1), or a proximal term negative or infinite.
        DataError
            If the arguments do not fit each other, or a batch has no examples.

        References
        ----------
        McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017,
        Algorithm 1 (ClientUpdate). Li et al., "Federated optimization in heterogeneous networks", MLSys 2020, eq. 2
        (the proximal term). Polyak, "Some methods of speeding up the convergence of iteration methods", 1964: momentum.
        """
        return self.descended(models, data, momentum_descent(trainings, len(data)))

    def descended(self, models: FloatArray, data: Split, given: Descent) -> LocalUpdates:
        """Updates of `local_updates` and of `local_training` from ``models`` [width, size]."""
        steps, lengths, examples, rates, settings, bounds = given
        width, limits = len(steps), np.finfo(self.dtype)
        most, tiny = float(limits.max), float(limits.tiny)
        models = self.rows(models, width)
        totals, velocities = np.zeros((2, width, self.size))
        not_finite, firsts = np.zeros(width, np.int64), np.cumsum(steps) - steps
        batches = np.split(examples, np.cumsum(lengths)[:-1])
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is counted
            for step in range(steps.max(initial=0)):
                running = [k for k in range(width) if step < steps[k]]
                places, rows = models[running] + totals[running], [batches[firsts[k] + step] for k in running]
                for k, gradient in zip(running, _mean_gradients(self, places, data, rows)):
                    own = [each[k] for each in settings]
                    if len(own) == 1:
                        sound = _clipped_step(totals[k], models[k], gradient, rates[k], own[0], most)
                    else:
                        sound = _momentum_step(totals[k], velocities[k], gradient, rates[k], *own)
                    not_finite[k] += not sound
            for total, bound in zip(totals, bounds):
                _finish(total, bound, most, tiny)
        return LocalUpdates(totals.astype(self.dtype), not_finite)

    def rows(self, models: FloatArray, width: int) -> FloatArray:
        """Models [width, size], one a row, of the objective's type.

        Raises
        ------
        DataError
            If they are of another shape.
        """
        if models.shape != (width, self.size):
            raise DataError(f"expected models [{width}, {self.size}], one a row, found {list(models.shape)}")
        return np.ascontiguousarray(models, self.dtype)

    def steady(self) -> Objective:
        """The same objective, whose gradients take as long whatever numbers they are made of, if it can say so.

        Its results may differ where numbers leave the range of their type. Linear models are as they are.
        """
        return self

    @property
    def frozen(self) -> str | None:
        """SHA-256 of the numbers that the loss has beside its model; None if there are none."""
        return None

    def computing(self) -> Computing:
        """Return how gradients are computed."""
        return Computing("linear")

    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
        """Loss and accuracy of each of ``models`` [width, size] on ``split``; a `ModelError` if there are none."""
        raise ModelError(f"{type(self).__name__} is no loss")

    def losses(self, models: FloatArray, split: Split) -> Floats:
        """The loss of each example of ``split`` under each of ``models`` [width, size], without the L2 term.

        What audits compare. This one evaluates example after example; objectives that can do better do.

        Returns
        -------
        ndarray [width, examples]
        """
        singles = (Split(split.features[i : i + 1], split.targets[i : i + 1]) for i in range(len(split)))
        return np.stack([self.evaluate(models, single).loss for single in singles], axis=1)

    def scores(self, model: FloatArray, features: Features) -> Floats:
        """Return what a ``model`` [size] makes of examples, from which its predictions follow.

        Parameters
        ----------
        model : ndarray [size]
            The parameters.
        features : ndarray [n, ...] or csr_array [n, features] of float32
            Features as in a `Split`.

        Returns
        -------
        ndarray [n, outputs]
            Scores of classes, or one real number an example.

        Raises
        ------
        ModelError
            If the objective predicts nothing.
        """
        raise ModelError(f"{type(self).__name__} gives no scores, so nothing can be predicted with it")

    def smoothness(self, data: Split) -> float | None:
        """An upper bound of the gradient's Lipschitz constant on ``data`` (L2 term included), or None."""
        return None


FOREIGN = "foreign"
"""Name of what code that is not Gossamer's minimises, as specs and cards say it."""


class Foreign(Objective):
    """Whatever code that is not Gossamer's minimises: a model's arrays are known of it, and nothing else.

    Parameters
    ----------
    parts : tuple of Part
        Arrays of the model.
    dtype : numpy dtype
        Type of them all.
    """

    l2 = 0.0
    loss = FOREIGN
    whose = "each party's own app"

    def __init__(self, parts: tuple[Part, ...], dtype: np.dtype[Any]) -> None:
        self.parts, self.dtype = parts, dtype
        self.size = sum(math.prod(part.shape) for part in parts)

    def initial(self, generator: np.random.Generator) -> FloatArray:
        return np.zeros(self.size, self.dtype)  # all start from a file

    def close(self) -> None:
        """End what it started."""
