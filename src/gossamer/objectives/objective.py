"""Objectives, which runs minimise: the one interface between models and everything else.

An objective knows a model only as a flat vector of ``size`` numbers. It computes for *many* models at once
(``width`` of them), because the simulator gathers the pending work of many nodes into one call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.arrays import IndexArray as IndexArray
from gossamer.data.examples import Features, Split
from gossamer.errors import DataError, ModelError
from gossamer.objectives import local_steps
from gossamer.objectives.local_training import Descent, clipped_descent, momentum_descent, step_by_step
from gossamer.objectives.questions import (
    Clip,
    Computing,
    Evaluation,
    Gradients,
    LocalRound,
    LocalSums,
    LocalUpdates,
    Training,
)
from gossamer.vectors import Part as Part

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
    """

    size: int
    dtype: np.dtype[np.floating]
    parts: tuple[Part, ...]
    l2: float
    squared_error: float | None = None

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

    def local_steps(self, rounds: Sequence[LocalRound], data: Split) -> LocalSums:
        """Sequential SGD, one step an example, for several rounds at once.

        With D = ``where.step``, the k-th step of a round, at the example n and with the step size eta_k, is::

            w = models[s] - unit U  on where, and models[s] elsewhere       (s: the last swap at or before k)
            g = clip(D * gradient of n's loss at w, on where) + D l2 w      (on where)
            U = U + eta_k / unit * g                                        (U = 0 before the first step)

        so that w moves by ``-eta_k g``. The clip comes after masking and scaling, and the L2 term stays outside of
        it. Without coordinates of its own (D = 1) this is plain SGD.

        Parameters
        ----------
        rounds : sequence of LocalRound
            May be empty. The result of one round does not depend on the others.
        data : Split
            The training examples that the indices refer to.

        Returns
        -------
        LocalSums
            With U of each round. A per-example gradient with a component that is not finite counts as zero.

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
        return local_steps.step_by_step(self, rounds, data)

    def local_updates(
        self,
        models: FloatArray,
        data: Split,
        batches: Sequence[IndexArray],
        rates: npt.NDArray[np.float64],
        clips: npt.NDArray[np.float64],
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
        return step_by_step(self, models, data, given)

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

    def computing(self) -> Computing:
        """Return how gradients are computed."""
        return Computing("linear")

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

    def scores(self, model: FloatArray, features: Features) -> npt.NDArray[np.float64]:
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
