"""Logarithms of features' magnitudes, as sums that can be noised: how a scale of private columns is found.

An example contributes to each of d columns the pair (t z, z) / sqrt(2 d), where z is 1 if its value v is not zero, else
0, and t in [-1, 1] says where log2 |v| lies between public bounds. Both are at most 1, so an example's vector is at
most 1 long, whatever its values are: the sensitivity of the sum rests on nothing but that.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.objectives.objective import Clip, Gradients, Objective, Part

_SHORTENED = 1 - 1e-9
"""Rounding of d squares must not take an example's vector over the length of 1."""


class UnitVectors(Objective):
    """Sums over examples of vectors that are at most 1 long whatever an example is, in the place of gradients."""

    dtype = np.dtype(np.float64)
    l2 = 0.0

    @abstractmethod
    def total(self, data: Split, rows: IndexArray) -> FloatArray:
        """Sum of the vectors of ``rows``, [size]: raw."""

    def initial(self, generator: np.random.Generator) -> FloatArray:
        """Zeros, [size]: sums depend on no model that is trained."""
        return np.zeros(self.size)

    def clipped_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: Clip
    ) -> Gradients:
        """Sums of the vectors over batches; see `Objective.clipped_gradients`.

        Raises
        ------
        SpecError
            If a clip is below 1, to which vectors are bounded by themselves.
        """
        if np.any(np.asarray(clip) < 1):
            raise SpecError(f"vectors are up to 1 long by themselves, and the clip must not be below, found {clip}")
        sums = np.stack([self.total(data, rows) for rows in batches])
        return Gradients(sums, np.zeros(len(batches), np.int64), np.array([len(rows) for rows in batches]))


class Magnitudes(UnitVectors):
    """Sums over examples of their columns' logarithmic magnitudes, in the place of gradients.

    Parameters
    ----------
    columns : sequence of int
        Columns of the features that are looked at.
    least, most : float
        Public bounds of magnitudes, 0 < least < most; what is outside counts as the bound.
    """

    def __init__(self, columns: Sequence[int], least: float, most: float) -> None:
        self._columns = np.asarray(columns, np.int64)
        self.size = 2 * len(self._columns)
        self.parts = (Part("logarithms", (len(columns),)), Part("not_zero", (len(columns),)))
        self._middle = (math.log2(most) + math.log2(least)) / 2
        self._half = (math.log2(most) - math.log2(least)) / 2
        self._share = _SHORTENED / math.sqrt(self.size)

    def total(self, data: Split, rows: IndexArray) -> FloatArray:
        return np.asarray(self.vectors(data, rows).sum(axis=0))

    def vectors(self, data: Split, rows: IndexArray) -> FloatArray:
        """The vector of each of ``rows``, [rows, size], of an L2 norm of at most 1."""
        features = data.features[rows]
        dense = features.toarray() if isinstance(features, sp.csr_array) else features
        values = np.abs(dense.reshape(len(rows), -1)[:, self._columns].astype(np.float64))
        present = values > 0
        places = (np.log2(values, out=np.zeros_like(values), where=present) - self._middle) / self._half
        return np.hstack([np.clip(places, -1, 1) * present, present]) * self._share

    def typical(self, sums: FloatArray, uncertainty: float) -> FloatArray:
        """Geometric mean of each column's magnitudes, [columns], from noisy sums over examples.

        Parameters
        ----------
        sums : ndarray [size]
            Sums of `vectors`, with noise.
        uncertainty : float
            Standard deviation of the noise of an entry; counts below it are taken to be it.
        """
        logarithms, counts = np.split(sums, 2)
        places = np.clip(logarithms / np.maximum(counts, max(uncertainty, 1e-12)), -1, 1)
        return np.asarray(2 ** (self._middle + self._half * places))
