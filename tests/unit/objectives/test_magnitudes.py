"""Logarithms of magnitudes: bounded by themselves, and turned back into magnitudes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.objectives.magnitudes import Magnitudes

_VALUES = st.floats(allow_nan=False, allow_infinity=False, width=32)


def _split(features: object) -> Split:
    return Split(features, np.zeros(features.shape[0], np.int64))  # type: ignore[arg-type, attr-defined]


@settings(max_examples=100)
@given(arrays(np.float32, (4, 3), elements=_VALUES))
def test_no_example_is_longer_than_one_whatever_its_values(features: np.ndarray) -> None:
    vectors = Magnitudes([0, 1, 2], 1e-3, 1e6).vectors(_split(features), np.arange(4))
    # Exactly: the sensitivity of the release is 1, not 1 and some rounding.
    assert max(float(np.sqrt(sum(map(float, vector**2)))) for vector in vectors) <= 1.0


def test_sums_give_geometric_means_of_what_is_not_zero() -> None:
    features = np.array([[1.0, 100.0, 7.0], [4.0, 0.0, 7.0], [-16.0, 10_000.0, 7.0]], np.float32)
    objective = Magnitudes([0, 1], 1e-3, 1e6)
    found = objective.clipped_gradients(np.zeros((1, 4)), _split(features), [np.arange(3)], 1.0)
    assert objective.typical(found.sums[0], 0.0) == pytest.approx([4.0, 1000.0], rel=1e-6)
    assert (found.zeroed.tolist(), found.unclipped.tolist()) == ([0], [3])


def test_what_is_outside_the_public_bounds_counts_as_the_bound() -> None:
    features = np.array([[1e-9, 1e20]], np.float32)
    objective = Magnitudes([0, 1], 0.5, 8.0)
    sums = objective.clipped_gradients(np.zeros((1, 4)), _split(features), [np.arange(1)], 1.0).sums[0]
    assert objective.typical(sums, 0.0) == pytest.approx([0.5, 8.0], rel=1e-6)


def test_sparse_rows_are_as_dense_ones() -> None:
    features = np.array([[0.0, 3.0, 0.0], [5.0, 0.0, 0.0]], np.float32)
    objective, rows = Magnitudes([0, 1, 2], 1e-3, 1e6), np.arange(2)
    dense, sparse = (objective.vectors(_split(each), rows) for each in (features, sp.csr_array(features)))
    np.testing.assert_array_equal(dense, sparse)


def test_counts_below_the_noise_do_not_blow_up() -> None:
    objective = Magnitudes([0], 1e-3, 1e6)
    assert 1e-3 <= objective.typical(np.array([0.4, -0.2]), 1.0)[0] <= 1e6


def test_a_clip_that_would_cut_is_refused() -> None:
    objective = Magnitudes([0], 1e-3, 1e6)
    with pytest.raises(SpecError, match="up to 1 long"):
        objective.clipped_gradients(np.zeros((1, 2)), _split(np.ones((1, 1), np.float32)), [np.arange(1)], 0.5)
