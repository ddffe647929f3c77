"""Questions to objectives, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.vectors import Coordinates

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
    deviations: npt.NDArray[np.float64]


@runtime_checkable
class NoisyObjective(Protocol):
    """An objective that adds normal noise to its sums itself."""

    def noisy_gradients(
        self,
        models: FloatArray,
        data: Split,
        batches: Sequence[IndexArray],
        clips: npt.NDArray[np.floating],
        noise: Normals,
    ) -> Gradients:
        """`Objective.clipped_gradients` with the ``noise`` of each row on its sum."""
        ...


Clip = float | npt.NDArray[np.floating]


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
    zeroed: npt.NDArray[np.int64]
    unclipped: npt.NDArray[np.int64]


class Evaluation(NamedTuple):
    """Scores of models on a split, one entry a model.

    Attributes
    ----------
    loss : ndarray [width] of float64
        Mean loss over the examples, without the L2 term.
    accuracy : ndarray [width] of float64
        Share of examples classified correctly, in [0, 1]; NaN for a regression.
    """

    loss: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]


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
    rates: npt.NDArray[np.float64]
    unit: float
    clip: float
    where: Coordinates = Coordinates()


class LocalSums(NamedTuple):
    """Outcome of local rounds.

    Attributes
    ----------
    sums : list of ndarray
        U of each round, [where.count(size)], of the objective's dtype.
    zeroed : ndarray [rounds] of int64
        Number of per-example gradients of each round were not finite and counted as zero. Raw: it is computed from
        data, so it never leaves the node.
    """

    sums: list[FloatArray]
    zeroed: npt.NDArray[np.int64]


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
    not_finite: npt.NDArray[np.int64]


class Differentiable(Protocol):
    """An objective, as far as loops over its gradients use it; see `objective.Objective`."""

    size: int
    dtype: np.dtype[np.floating]
    l2: float

    def clipped_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: Clip
    ) -> Gradients: ...

    def rows(self, models: FloatArray, width: int) -> FloatArray: ...


def clips_of(clip: Clip, width: int) -> npt.NDArray[np.float64]:
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
    clips = np.empty(width)
    clips[:] = given
    return clips
