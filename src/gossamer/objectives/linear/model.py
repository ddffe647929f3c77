"""Generalised linear models, with per-example gradient norms in closed form.

Losses, and how gradients are summed fast, stand in `linear.kernels`; here they meet the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.arrays import BoolArray, FloatArray, Floats, IndexArray
from gossamer.data.examples import Features, Split
from gossamer.errors import DataError, SpecError, failing_as
from gossamer.objectives import objective
from gossamer.objectives.linear import kernels, steps, updates
from gossamer.objectives.linear.kernels import LOSSES
from gossamer.vectors import Part

# Examples as the compiled loops take them, checked.


@dataclass(frozen=True, eq=False)
class LinearExamples:
    """A split that was found valid, as the loops take it.

    Attributes
    ----------
    matrix : ndarray or csr_array [n, features]
        The features.
    targets : ndarray [n] of float64
        Class numbers or real values.
    arrays : tuple of ndarray
        Arrays of the matrix, as the loops take them.
    intercept : bool
        Whether models have a bias.
    """

    matrix: Any
    targets: Floats
    arrays: tuple[npt.NDArray[Any], ...]
    intercept: bool

    @cached_property
    def of_steps(self) -> tuple[npt.NDArray[Any], ...]:
        """Arrays as the loops of single steps take them: beside dense rows their squared norms."""
        if sp.issparse(self.matrix):
            return self.arrays
        squares = np.empty(len(self.targets))
        kernels.dense_squares(self.arrays[0], self.intercept, squares)
        return (*self.arrays, frozen(squares))

    @classmethod
    def of(cls, split: Split, features: int, classes: int | None, intercept: bool) -> LinearExamples:
        """The examples of ``split``, for models of so many features, with or without an intercept.

        Raises
        ------
        DataError
            If they do not fit, or are malformed.
        """
        matrix = _matrix(split, features)
        targets = _targets(split, classes)
        arrays = (matrix.data, matrix.indices, matrix.indptr) if sp.issparse(matrix) else (matrix,)
        return cls(matrix, frozen(targets), tuple(map(frozen, arrays)), intercept)


def _matrix(split: Split, features: int) -> Any:
    """The features as an ndarray or csr_array [n, features], checked."""
    matrix: Any = split.features
    if matrix.dtype != np.float32:
        raise DataError(f"features must be float32, found {matrix.dtype}; convert with astype(numpy.float32)")
    count = len(split.targets)
    if matrix.shape[0] != count or math.prod(matrix.shape[1:]) != features:
        raise DataError(f"expected features [{count}, {features}], found {list(matrix.shape)}")
    if not sp.issparse(matrix):
        return np.ascontiguousarray(matrix.reshape(count, features))
    matrix = sp.csr_array(matrix)
    with failing_as(DataError, "the CSR features are malformed (", "); build them anew", ValueError):
        matrix.check_format(full_check=True)
    # Two entries a, b in one place would count a^2 + b^2 in the norm, less than the true (a + b)^2.
    if not matrix.has_canonical_format:
        raise DataError("CSR features must be sorted and without duplicates; call sum_duplicates() on them")
    return matrix


def _targets(split: Split, classes: int | None) -> Floats:
    """A copy of the targets, so that a class number stays one that the kernels may index with."""
    targets = np.array(split.targets, np.float64)
    if targets.ndim != 1:
        raise DataError(f"expected one target an example, found targets {list(targets.shape)}")
    if classes is None:
        return targets
    objective.check_classes(targets, classes, "change the number of classes")
    return targets


def packed(batches: Sequence[IndexArray], count: int) -> tuple[IndexArray, IndexArray]:
    """Ragged batches as (starts [width + 1], packed), with every index in 0..count-1."""
    starts = np.zeros(len(batches) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, batches), np.int64, len(batches)), out=starts[1:])
    packed = np.concatenate((starts[:0], *batches), dtype=np.int64, casting="same_kind")
    objective.check_indices(packed, count)
    return starts, packed


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A read-only view: a kernel is compiled anew for each mixture of writable and read-only arguments."""
    view = array.view()
    view.setflags(write=False)
    return view


def writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, or a copy of one that is read-only: for small arrays, whose views cost more than some loops do."""
    return array if array.flags.writeable else array.copy()


_AT_ONCE = 1024  # held in float64 at once
_EXACT = 1024  # most features for which X'X is formed
_ITERATIONS = 20
_ROUNDING = 1 + 1e-9  # more than float64 sums of so many terms can lose


def largest_eigenvalue(matrix: Any, intercept: bool) -> float:
    """An upper bound of the largest eigenvalue of X'X, where X is ``matrix`` and perhaps a column of ones.

    Up to 1,024 features it is the eigenvalue itself. Beyond that, it is the least of the trace and of
    ``max_i (|X|'|X| v)_i / v_i`` for the v of a power iteration (Collatz and Wielandt): a bound for every
    v > 0, which approaches the eigenvalue where no feature is negative.

    Parameters
    ----------
    matrix : ndarray or csr_array [n, features]
        Matrix with finite entries; a sparse one stays sparse.
    intercept : bool
        Whether X has a column of ones.
    """
    bound = _exact if matrix.shape[1] <= _EXACT else _bound
    return bound(matrix, intercept) * _ROUNDING


def _exact(matrix: Any, intercept: bool) -> float:
    gram = np.zeros((matrix.shape[1] + intercept,) * 2)
    for x in _chunks(matrix, intercept):
        gram = gram + x.T @ x
    return float(np.linalg.eigvalsh(gram)[-1])


def _bound(matrix: Any, intercept: bool) -> float:
    bound = sum(float((x * x).sum()) for x in _chunks(matrix, intercept))
    v = np.ones(matrix.shape[1] + intercept)
    for _ in range(_ITERATIONS if bound > 0 else 0):
        image = np.zeros_like(v)
        for x in map(abs, _chunks(matrix, intercept)):
            image += x.T @ (x @ v)
        bound = min(bound, float((image / v).max()))
        v = np.maximum(image / image.max(), 1e-12)  # v must stay positive where a column is empty
    return bound


def _chunks(matrix: Any, intercept: bool) -> Iterator[Any]:
    """The rows of X, some at a time, in float64."""
    for start in range(0, matrix.shape[0], _AT_ONCE):
        x = matrix[start : start + _AT_ONCE].astype(np.float64)
        ones = np.ones((x.shape[0], int(intercept)))
        yield sp.hstack((x, ones), format="csr") if sp.issparse(x) else np.hstack((x, ones))


# An evaluation holds at once
_ROWS = 1024  # examples,
_OUTPUTS = 2**18  # outputs: about a megabyte, so that they stay in a cache,
_WEIGHTS = 2**24  # and copied weights.


class LinearModel(objective.Objective):
    """A loss of ``z = W x + b``, one of `linear.kernels.LOSSES`.

    Dense examples of any shape are flattened; CSR examples stay sparse throughout. A split is checked the
    first time it is seen and must not be changed afterwards.

    A row of `clipped_gradients` has the same bits whatever other rows are computed with it, and whatever
    number of threads numpy or torch may use. Besides gradients with a component that is not finite, those
    whose norm overflows count as zero, and so do all gradients of a model with an entry that is not finite.

    Parameters
    ----------
    loss : str
        ``logistic``, ``softmax``, ``squared``, ``squared_error``, ``poisson`` or ``hinge``.
    features : int
        Numbers in one example.
    classes : int or None
        Classes of the targets; None for a regression.
    intercept : bool
        Whether there is a bias. It counts in the gradient's norm and in the L2 term like any weight.
    l2 : float
        Strength of the L2 term, at least 0.
    dtype : numpy dtype
        float32 or float64, of models and gradients.
    class_weight : ndarray [classes], optional
        Factor of the loss of each class's examples, which gradients have before they are clipped; see
        `objectives.class_weights`. Evaluations do not have it, and need no correction.
    prevalence : ndarray [classes], optional
        Share of each class, by which the bias is chosen that models start from.

    Attributes
    ----------
    parts : tuple of Part
        ``weight`` [outputs, features] and ``bias`` [outputs], as in ``torch.nn.Linear``.

    Raises
    ------
    SpecError
        For an unknown loss or dtype, no features, or a negative ``l2``.
    DataError
        If the loss is not defined for so many classes.

    LinearExamples
    --------
    >>> LinearModel("softmax", features=784, classes=10).size
    7850
    """

    def __init__(
        self,
        loss: str,
        features: int,
        classes: int | None,
        *,
        intercept: bool = True,
        l2: float = 0.0,
        dtype: npt.DTypeLike = np.float32,
        class_weight: Floats | None = None,
        prevalence: Floats | None = None,
    ) -> None:
        _check_settings(loss, features, classes, l2, dtype)
        _check_classes(loss, intercept, class_weight, prevalence)
        self.loss = LOSSES[loss]
        self.squared_error = {"squared": 2.0, "squared_error": 1.0}.get(loss)
        self.features = features
        self.classes = classes
        self.intercept = intercept
        self.l2 = float(l2)
        self.dtype = np.dtype(dtype)  # type: ignore[assignment]
        self.outputs = self.loss.outputs(classes)
        bias = (Part("bias", (self.outputs,)),) if intercept else ()
        self.parts = (Part("weight", (self.outputs, features)), *bias)
        self.size = sum(part.size for part in self.parts)
        none = np.empty(0)
        self._weights = none if class_weight is None else class_weight.astype(np.float64)
        self._offsets = self._of_outputs(np.log(self._weights))
        self._bias = none if prevalence is None else self._of_outputs(np.log(prevalence))
        self._memory = objective.KnownSplits[LinearExamples]()

    def _of_outputs(self, logs: Floats) -> Floats:
        """Logarithms [classes] as outputs [outputs] have them: of two that share one, the second less the first."""
        return logs[1:] - logs[:1] if len(logs) > self.outputs else logs

    @property
    def _law(self) -> tuple[int, Floats, Floats]:
        """The loss as kernels know it."""
        return self.loss.code, frozen(self._weights), frozen(self._offsets)

    def initial(self, generator: np.random.Generator) -> FloatArray:
        """All zeros, [size], but for a bias that says how frequent the classes are, where that is known.

        The losses are convex, so nothing is gained by drawing a start.
        """
        start = np.zeros(self.size, self.dtype)
        start[self.size - len(self._bias) :] = self._bias
        return start

    def clipped_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: objective.Clip
    ) -> objective.Gradients:
        """See `Objective.clipped_gradients`.

        Raises
        ------
        DataError
            If ``data`` does not fit the model, an index lies outside of it, or there is not one clip a model.
        SpecError
            If a clip is not positive.
        """
        clips = objective.clips_of(clip, len(batches))
        examples = self._examples(data)
        models = self.rows(models, len(batches))
        sums = np.empty_like(models)
        zeroed, unclipped = np.empty(len(models), np.int64), np.empty(len(models), np.int64)
        kernels.clipped_sums(
            self._law,
            frozen(models),
            packed(batches, len(examples.targets)),
            examples.targets,
            frozen(clips),
            (self.outputs, self.features, self.intercept),
            sums,
            zeroed,
            unclipped,
            examples.arrays,
        )
        return objective.Gradients(sums, zeroed, unclipped)

    def compiled_data(self, data: Split) -> tuple[Any, tuple[Any], tuple[Any, Any, Any]]:
        """The objective and ``data`` as `sides.answers` takes them: dense examples and sparse ones, one empty."""
        found, empty = self._examples(data), np.empty(0, np.float32)
        shape = self.outputs, self.features, self.intercept
        dense: Any = (frozen(np.empty((0, self.features), np.float32)),)
        sparse: Any = frozen(empty), frozen(np.empty(0, np.int32)), frozen(np.zeros(1, np.int64))
        if sp.issparse(found.matrix):
            kinds = np.float32, np.int32, np.int64
            sparse = tuple(frozen(one.astype(kind, copy=False)) for one, kind in zip(found.arrays, kinds, strict=True))
        else:
            dense = found.arrays
        return (self._law, shape, found.targets, self.l2), dense, sparse

    def local_steps(self, given: objective.LocalRound, data: Split) -> objective.LocalSum:
        """See `Objective.local_steps`: one compiled loop.

        A sparse example costs time in proportion to its stored features, with an L2 term too; a round and each swap
        of its model cost time in proportion to ``size``.

        Raises
        ------
        SpecError
            If a clip, unit or step size is not positive, or a unit or step size not finite.
        DataError
            If the arrays of a round, or a round and ``data``, do not fit each other or the model.
        """
        examples, where = self._examples(data), given.where
        models, starts, rows, rates = objective.arrays_of(given, self.size, self.dtype)
        total = np.empty(where.count(self.size), self.dtype)
        take = steps.csr_round if sp.issparse(examples.matrix) else steps.dense_round
        zeroed = take(
            self._law,
            (writable(models), writable(starts)),
            (writable(rows), writable(rates)),
            examples.targets,
            (float(given.clip), float(given.unit), self.l2),
            (self.outputs, self.features, self.intercept),
            (int(where.first), int(where.step)),
            total,
            *examples.of_steps,
        )
        if zeroed == steps.WRONG:
            objective.checked(given, self.size, len(data))
        return objective.LocalSum(total, zeroed)

    def descended(self, models: FloatArray, data: Split, given: objective.Descent) -> objective.LocalUpdates:
        """See `Objective.local_updates` and `Objective.local_training`: one compiled loop for all agents."""
        examples, models = self._examples(data), self.rows(models, len(given.steps))
        found, not_finite = np.empty_like(models), np.empty(len(models), np.int64)
        updates.descend(
            self._law,
            frozen(models),
            (frozen(given.steps), frozen(given.lengths), frozen(given.examples)),
            examples.targets,
            (float(self.l2), frozen(given.bounds), frozen(given.rates), *map(frozen, given.settings)),
            (self.outputs, self.features, self.intercept),
            found,
            not_finite,
            examples.arrays,
        )
        return objective.LocalUpdates(found, not_finite)

    def evaluate(self, models: FloatArray, split: Split) -> objective.Evaluation:
        """Loss and accuracy of each of ``models`` [width, size] on ``split``, in bounded memory.

        An output of exactly zero stands for class 0 of two; of equal outputs the first class wins. A model
        that is not finite may score NaN.

        Raises
        ------
        DataError
            If ``split`` is empty or does not fit the model.
        """
        examples = self._examples(split)
        if len(split) == 0:
            raise DataError("an evaluation needs at least 1 example, found an empty split")
        models = self.rows(models, len(models))
        totals = np.zeros((2, len(models)))
        width = max(1, min(_OUTPUTS // (_ROWS * self.outputs), _WEIGHTS // self.size))
        for some in objective.slices(len(models), width):
            weights, bias = self._columns(models[some])
            for rows in objective.slices(len(split), _ROWS):
                losses, right = self._score(examples.matrix[rows], examples.targets[rows], weights, bias)
                totals[:, some] += losses.sum(axis=-1, dtype=np.float64), right.sum(axis=-1)
        loss, accuracy = totals / len(split)
        return objective.Evaluation(loss, accuracy if self.classes else np.full_like(loss, np.nan))

    def losses(self, models: FloatArray, split: Split) -> Floats:
        """The loss of each example under each of ``models``, [width, examples]; see `Objective.losses`.

        Raises
        ------
        DataError
            If ``split`` does not fit the model.
        """
        examples = self._examples(split)
        models = self.rows(models, len(models))
        found = np.empty((len(models), len(split)))
        for row in range(len(models)):
            columns = self._columns(models[row : row + 1])
            for rows in objective.slices(len(split), _ROWS):
                found[row, rows] = self._score(examples.matrix[rows], examples.targets[rows], *columns)[0]
        return found

    def scores(self, model: FloatArray, features: Features) -> Floats:
        """``W x + b`` of each example, computed in float64, [n, outputs]; of counts its exponential, their mean.

        See `Objective.scores`.

        Raises
        ------
        DataError
            If the model or the features do not fit.
        """
        weights, bias = self._columns(self.rows(model[None], 1).astype(np.float64))
        rows: Any = features if features.ndim == 2 else features.reshape(len(features), -1)
        if rows.shape[1] != self.features:
            raise DataError(f"expected examples of {self.features} features, found {rows.shape[1]}")
        found = np.empty((rows.shape[0], self.outputs))
        for some in objective.slices(len(found), _ROWS):
            with np.errstate(over="ignore", invalid="ignore"):
                found[some] = rows[some] @ weights + bias[:, 0, 0]
                if self.loss.code == kernels.POISSON:
                    np.exp(found[some], out=found[some])
        return found

    def smoothness(self, data: Split) -> float | None:
        """``curvature lambda_max(X'X) / n + l2``, never less; None for the hinge and for counts.

        X has a column of ones if there is an intercept; see `largest_eigenvalue` for how far above
        the bound may lie.

        Raises
        ------
        DataError
            If ``data`` is empty, does not fit the model or has a feature that is not finite.
        """
        if self.loss.curvature is None:
            return None
        matrix = self._examples(data).matrix
        if len(data) == 0 or not np.isfinite(matrix.sum(dtype=np.float64)):
            raise DataError("smoothness needs examples with finite features; remove what is missing or infinite")
        curvature = self.loss.curvature * float(self._weights.max(initial=0) or 1)
        return curvature * largest_eigenvalue(matrix, self.intercept) / len(data) + self.l2

    def _columns(self, models: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Weights [features, outputs * width] and bias [outputs, width, 1] of ``models``."""
        width, weights = len(models), self.outputs * self.features
        columns = models[:, :weights].reshape(width, self.outputs, self.features).transpose(2, 1, 0)
        bias = models[:, weights:].T if self.intercept else np.zeros((self.outputs, width), self.dtype)
        return np.ascontiguousarray(columns).reshape(self.features, -1), bias[:, :, None]

    def _score(self, x: Any, targets: Floats, weights: FloatArray, bias: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Loss of each of the rows x, and whether it is in the right class, [width, rows]."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = (x @ weights).T.reshape(*bias.shape[:2], -1) + bias
            losses = self.loss.values(z, targets)
        return losses, (z[0] > 0 if self.outputs == 1 else z.argmax(axis=0)) == targets

    def _examples(self, split: Split) -> LinearExamples:
        if (known := self._memory.get(split)) is not None:
            return known
        found = LinearExamples.of(split, self.features, self.classes, self.intercept)
        if self.loss.code == kernels.POISSON and found.targets.min(initial=0) < 0:
            raise DataError(
                f"the poisson loss is for counts, 0 or more, found {found.targets.min():g}; correct the targets, or "
                "take objective: squared"
            )
        return self._memory.setdefault(split, found)


WEIGHED = ("logistic", "softmax")
"""Losses whose outputs are logarithms of odds, so that they know weights of classes and their shares."""


def _check_classes(loss: str, intercept: bool, class_weight: Floats | None, prevalence: Floats | None) -> None:
    for key, given in (("class_weight", class_weight), ("prevalence", prevalence)):
        if given is not None and loss not in WEIGHED:
            raise SpecError(f"{key} is for logistic, softmax and networks, found {loss}; leave it out")
    if prevalence is not None and not intercept:
        raise SpecError("prevalence says what bias a model starts from; say intercept: true, or leave it out")


def _check_settings(loss: str, features: int, classes: int | None, l2: float, dtype: npt.DTypeLike) -> None:
    if loss not in LOSSES:
        raise SpecError(f"loss is one of {', '.join(LOSSES)}, found {loss!r}")
    if features < 1 or not 0 <= l2 < math.inf or np.dtype(dtype) not in (np.float32, np.float64):
        found = f"{features}, {l2} and {np.dtype(dtype)}"
        raise SpecError(f"expected 1 feature or more, l2 of 0 or more, and float32 or float64, found {found}")
    if not LOSSES[loss].suits(classes):
        found = "real targets" if classes is None else f"{classes} classes"
        raise DataError(f"the {loss} loss is for {LOSSES[loss].wants}, found {found}; choose another loss")
