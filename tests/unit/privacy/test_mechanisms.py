"""Mechanisms and samplers as data: what follows from what, and what is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from gossamer.errors import SpecError
from gossamer.privacy.mechanisms import (
    BatchSampling,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    Mechanism,
    NeighboringRelation,
    NoNoise,
    PaperNoise,
    Poisson,
    ReleaseKind,
)
from gossamer.randomness import stream

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
MECHANISMS = [Gaussian(0.5, 2.0), L2Laplace(0.5, 0.1, ADD), Laplace(0.5, 3.0), NoNoise(0.5)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sensitivity_follows_from_clip_and_relation(mechanism: Mechanism) -> None:
    """Removing a vector of norm <= C moves a sum by <= C; replacing one by its opposite moves it by 2C."""
    assert mechanism.sensitivity(ADD) == 0.5
    assert mechanism.sensitivity(REPLACE) == 1.0


def test_gaussian_noise_does_not_depend_on_the_relation() -> None:
    assert Gaussian(0.5, 2.0).standard_deviation == 1.0


@pytest.mark.parametrize(("relation", "scale"), [(ADD, 5.0), (REPLACE, 10.0)])
def test_l2_laplace_has_the_scale_of_its_own_relation(relation: NeighboringRelation, scale: float) -> None:
    mechanism = L2Laplace(0.5, 0.1, relation)
    assert mechanism.scale == pytest.approx(scale)
    assert mechanism.release_epsilon(relation) == pytest.approx(0.1)


def test_l2_laplace_under_the_other_relation() -> None:
    assert L2Laplace(0.5, 0.1, ADD).release_epsilon(REPLACE) == pytest.approx(0.2)
    assert L2Laplace(0.5, 0.1, REPLACE).release_epsilon(ADD) == pytest.approx(0.05)


def test_laplace_pays_for_the_l1_norm_of_an_l2_clip() -> None:
    """|v|_1 <= sqrt(d) |v|_2, with equality for a constant vector."""
    assert Laplace(0.5, 3.0).release_epsilon(ADD, 100) == pytest.approx(10 * 0.5 / 3)
    assert Laplace(0.5, 3.0).release_epsilon(REPLACE, 100) == pytest.approx(10 * 1.0 / 3)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_has_the_shape_and_type_asked_for(mechanism: Mechanism, dtype: str) -> None:
    noise = mechanism.noise(stream(0), 5, dtype)
    assert (noise.shape, noise.dtype) == ((5,), np.dtype(dtype))
    assert bool(noise.any()) == mechanism.private


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_same_stream_gives_the_same_noise(mechanism: Mechanism) -> None:
    first, again = (mechanism.noise(stream(3, "a"), 9, "float64") for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("thing", [*MECHANISMS, NoNoise(), Poisson(0.1), FixedSize(10, 2)])
def test_a_description_is_json(thing: Mechanism | BatchSampling) -> None:
    described = thing.describe()
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert type(thing).__name__ in described.values()


def test_equal_kinds_are_one_kind() -> None:
    kinds = {ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.1), 7) for _ in range(2)}
    assert len(kinds) == 1
    assert kinds != {ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.1), 8)}


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_a_clip_is_positive(bad: float) -> None:
    for make in (
        lambda clip: Gaussian(clip, 1.0),
        lambda clip: L2Laplace(clip, 1.0, ADD),
        lambda clip: Laplace(clip, 1.0),
        NoNoise,
    ):
        with pytest.raises(SpecError, match="clip"):
            make(bad)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_noise_is_positive_and_finite(bad: float) -> None:
    for make in (
        lambda noise: Gaussian(1.0, noise),
        lambda noise: L2Laplace(1.0, noise, ADD),
        lambda noise: Laplace(1.0, noise),
    ):
        with pytest.raises(SpecError, match="finite"):
            make(bad)


def test_noise_without_a_clip_is_refused() -> None:
    for make in (lambda: Gaussian(math.inf, 1.0), lambda: L2Laplace(math.inf, 1.0, ADD), lambda: Laplace(math.inf, 1)):
        with pytest.raises(SpecError, match="clip must be a finite number > 0"):
            make()


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.1, math.nan])
def test_a_rate_is_a_probability(bad: float) -> None:
    with pytest.raises(SpecError, match=r"lies in \(0, 1\]"):
        Poisson(bad)


@pytest.mark.parametrize(
    ("size", "batch", "said"),
    [
        (10, 0, "batch_size must be a whole number > 0, found 0"),
        (10, 11, "at most 10 distinct examples, found 11"),
        (0, 0, "dataset_size must be a whole number > 0, found 0"),
    ],
)
def test_a_fixed_batch_fits_its_data(size: int, batch: int, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        FixedSize(size, batch)


def test_a_fixed_batch_of_a_shard_of_another_size_is_refused() -> None:
    """A rate that comes from another size than the shard's would be a wrong epsilon, silently."""
    with pytest.raises(SpecError, match="holds 9 examples, but its sampling says 10"):
        FixedSize(10, 3).draw(stream(0), 9)


@pytest.mark.parametrize("sampling", [Poisson(1.0), FixedSize(6, 6)])
def test_a_full_batch_holds_everything(sampling: BatchSampling) -> None:
    np.testing.assert_array_equal(sampling.draw(stream(0), 6), range(6))
    assert sampling.rate == 1.0


@pytest.mark.parametrize("sampling", [Poisson(0.3), FixedSize(50, 15)])
def test_a_batch_is_sorted_without_repetition(sampling: BatchSampling) -> None:
    for number in range(50):
        batch = sampling.draw(stream(1, number=number), 50)
        assert batch.dtype == np.int64
        assert np.all(np.diff(batch) > 0)
        assert batch.size == 0 or (batch[0] >= 0 and batch[-1] < 50)


@pytest.mark.parametrize("law", [NoNoise, PaperNoise])
def test_a_law_that_guarantees_nothing_is_taken_for_none_that_does(law: type[Mechanism]) -> None:
    """Whoever asks for a proved law by its class never gets one that is not."""
    assert not law.private
    assert not any(base.private for base in law.__mro__[1:] if base not in (Mechanism, object))
