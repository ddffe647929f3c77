"""What is minimised: the one interface between models and everything else.

An objective knows a model only as a flat vector of ``size`` numbers. It computes for *many* models at once
(``width`` of them), because the simulator gathers the pending work of many nodes into one call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.data.split import Split
from gossamer.errors import DataError, SpecError
from gossamer.vectors import Part as Part

FloatArray = npt.NDArray[np.floating]
IndexArray = npt.NDArray[np.int64]
Clip = float | npt.NDArray[np.floating]


class Gradients(NamedTuple):
    """Sums of clipped per-example gradients.

    Attributes
    ----------
    sums : ndarray [width, size]
        Row k is ``sum_i clip(grad f(models[k]; x_i))`` over batch k; a zero row for an empty batch.
    zeroed : ndarray [width] of int64
        How many per-example gradients of batch k were not finite and counted as zero. Raw: it is computed
        from data, so it never leaves the node.
    unclipped : ndarray [width] of int64
        How many per-example gradients of batch k were finite and had a norm of at most the clip: all finite
        ones where the clip is infinite. Raw like ``zeroed``: without noise it never leaves the node.
    """

    sums: FloatArray
    zeroed: npt.NDArray[np.int64]
    unclipped: npt.NDArray[np.int64]


class Evaluation(NamedTuple):
    """What models score on a split, one entry a model.

    Attributes
    ----------
    loss : ndarray [width] of float64
        Mean loss over the examples, without the L2 term.
    accuracy : ndarray [width] of float64
        Share of examples classified correctly, in [0, 1]; NaN for a regression.
    """

    loss: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]


class Objective(ABC):
    """A loss averaged over examples, plus ``l2/2 ||w||^2``, as a function of a flat vector w.

    Attributes
    ----------
    size : int
        Number of parameters, d.
    dtype : numpy dtype
        Of models and gradients, float32 or float64.
    parts : tuple of Part
        The arrays the flat vector consists of, in order (C order inside each).
    l2 : float
        Strength of the L2 term. Its gradient ``l2 * w`` does not depend on data and is *not* part of
        ``clipped_gradients``: the data side adds it after the noise.
    """

    size: int
    dtype: np.dtype[np.floating]
    parts: tuple[Part, ...]
    l2: float

    @abstractmethod
    def initial(self, generator: np.random.Generator) -> FloatArray:
        """A starting point, [size], drawn from public randomness only."""

    @abstractmethod
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
        """

    @abstractmethod
    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
        """Loss and accuracy of each of ``models`` [width, size] on ``split``."""

    def losses(self, models: FloatArray, split: Split) -> npt.NDArray[np.float64]:
        """The loss of each example of ``split`` under each of ``models`` [width, size], without the L2 term.

        What audits compare. This one evaluates example after example; objectives that can do better do.

        Returns
        -------
        ndarray [width, examples]
        """
        singles = (Split(split.features[i : i + 1], split.targets[i : i + 1]) for i in range(len(split)))
        return np.stack([self.evaluate(models, single).loss for single in singles], axis=1)

    def smoothness(self, data: Split) -> float | None:
        """An upper bound of the gradient's Lipschitz constant on ``data`` (L2 term included), or None."""
        return None


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
    return np.array(np.broadcast_to(given, width))
