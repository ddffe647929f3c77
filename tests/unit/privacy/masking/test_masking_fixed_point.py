"""Numbers as integers: the range that was promised, saturation, and exact sums."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.reference.masking_slow import nearest_step

from gossamer.errors import PeerError, SpecError
from gossamer.privacy.masking import FixedPoint


@pytest.mark.parametrize("bits", [32, 64])
def test_the_default_precision_is_the_finest_that_fits(bits: int) -> None:
    """group * floor(clip 2^f) <= 2^(bits-1) - 1, in exact fractions, and not for f + 1."""
    for clip, group in itertools.product(
        [1e-30, 0.3, 1.0, 2.5, 1000, 1e30, np.nextafter(1.0, 0), np.nextafter(1.0, 2)], [1, 2, 3, 20, 1000]
    ):
        found = FixedPoint(clip, group, bits)
        f = found.fraction_bits
        assert f is not None
        most = 2 ** (bits - 1) - 1
        assert group * math.floor(Fraction(clip) * Fraction(2) ** f) <= most
        assert group * math.floor(Fraction(clip) * Fraction(2) ** (f + 1)) > most
        assert found.limit == math.floor(Fraction(clip) * Fraction(2) ** f)
        assert Fraction(found.resolution) == Fraction(1, 2) ** f
        with pytest.raises(SpecError, match=f"use at most {f}, more bits, or a smaller clip"):
            FixedPoint(clip, group, bits, f + 1)


@pytest.mark.parametrize("bits", [32, 64])
def test_all_agents_at_the_clip_do_not_overflow(bits: int) -> None:
    fixed = FixedPoint(0.7, 9, bits)
    both = fixed.encode([0.7, -0.7])
    total = sum([both] * 9, np.zeros_like(both))
    assert fixed.decode_sum(total, 9) == pytest.approx([6.3, -6.3], abs=9 * fixed.resolution)


def test_encoding_by_hand() -> None:
    """Two fraction bits: steps of 1/4; the clip 1.6 is at step floor(6.4) = 6; -1/4 is 2^32 - 1."""
    fixed = FixedPoint(1.6, 3, 32, 2)
    assert fixed.limit == 6
    values = [0, 0.25, -0.25, 0.3, 0.375, 0.625, 1.6, -1.6, 5, -1e300, math.inf, -math.inf, math.nan]
    steps = [0, 1, -1, 1, 2, 2, 6, -6, 6, -6, 6, -6, 0]
    encoded = fixed.encode(values)
    assert encoded.dtype == np.uint32
    assert encoded.tolist() == [step % 2**32 for step in steps]
    assert fixed.decode_sum(encoded, 1).tolist() == [step / 4 for step in steps]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("fraction_bits", [None, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_encoding_is_exact_rounding(bits: int, fraction_bits: int | None, dtype: str) -> None:
    generator = np.random.default_rng(3)
    values = (generator.standard_normal(300) * 5).astype(dtype)
    fixed = FixedPoint(7.3, 11, bits, fraction_bits)
    assert fixed.fraction_bits is not None
    expected = [nearest_step(float(value), 7.3, fixed.fraction_bits) % 2**bits for value in values]
    assert fixed.encode(values).tolist() == expected
    assert len(set(expected)) > 50


def test_negative_fraction_bits_are_steps_larger_than_one() -> None:
    fixed = FixedPoint(1e9, 100, 32)
    assert fixed.fraction_bits == -6  # 100 floor(1e9/2^5) = 3.1e9 is beyond 2^31, 100 floor(1e9/2^6) = 1.6e9 is not
    assert fixed.resolution == 64
    assert fixed.decode_sum(fixed.encode([1000.0]), 1).tolist() == [1024.0]


def test_sums_are_of_the_rounded_numbers() -> None:
    fixed = FixedPoint(2.0, 5, 64, 10)
    vectors = np.random.default_rng(0).uniform(-2, 2, (5, 40))
    total = sum((fixed.encode(vector) for vector in vectors), np.zeros(40, np.uint64))
    expected = [sum(nearest_step(x, 2.0, 10) for x in column) / 2**10 for column in vectors.T]
    assert fixed.decode_sum(total, 5).tolist() == expected
    assert np.abs(np.array(expected) - vectors.sum(0)).max() <= 5 / 2**11


def test_a_sum_out_of_range_is_refused() -> None:
    fixed = FixedPoint(1.0, 4, 32, 8)
    edge = np.array([2 * 256, -2 * 256], np.int32).view(np.uint32)
    assert fixed.decode_sum(edge, 2).tolist() == [2.0, -2.0]
    for off in ([2 * 256 + 1, 0], [0, -2 * 256 - 1]):
        with pytest.raises(PeerError, match="a sum of 2 vectors is out of their range"):
            fixed.decode_sum(np.array(off, np.int32).view(np.uint32), 2)


def test_a_fold_by_hand() -> None:
    """Up to 2^30 steps as they are; 2^30 + 5 is 2^30 - 5, and at both ends of the range nothing is left."""
    fixed, quarter = FixedPoint(1.0, 4, 32, 8), 2**30
    steps = [0, 512, -512, quarter, quarter + 5, -quarter, -quarter - 5, 2**31 - 1, -(2**31)]
    folded = fixed.folded_sum(np.array(steps, np.int32).view(np.uint32))
    assert (folded * 256).tolist() == [0, 512, -512, quarter, quarter - 5, -quarter, 5 - quarter, 1, 0]
    with pytest.raises(ValueError, match="expected a sum of uint32, found uint64"):
        fixed.folded_sum(np.zeros(1, np.uint64))


@pytest.mark.parametrize("count", [0, 5])
def test_a_sum_has_as_many_as_the_group_at_most(count: int) -> None:
    with pytest.raises(ValueError, match="a sum has 1 to 4 vectors"):
        FixedPoint(1.0, 4).decode_sum(np.zeros(1, np.uint32), count)


def test_the_dtype_of_a_sum_and_the_shape_of_a_vector() -> None:
    with pytest.raises(ValueError, match="expected a sum of uint32, found uint64"):
        FixedPoint(1.0, 4).decode_sum(np.zeros(1, np.uint64), 1)
    with pytest.raises(ValueError, match=r"flat vector, found shape \(1, 2\)"):
        FixedPoint(1.0, 4).encode(np.zeros((1, 2)))


@pytest.mark.parametrize(
    ("clip", "group", "bits", "fraction_bits", "words"),
    [
        (1.0, 3, 16, None, "of 32 or 64 bits .*bits=16"),
        (1.0, 3, 32.0, None, "of 32 or 64 bits .*bits=32.0"),
        (1.0, True, 32, None, "1 to half of their range are in a sum, .*group=True"),
        (0.0, 3, 32, None, "a clip of 1e-30 to 1e"),
        (math.nan, 3, 32, None, "a clip of 1e-30 to 1e"),
        (math.inf, 3, 32, None, "a clip of 1e-30 to 1e"),
        (1.0, 0, 32, None, "1 to half of their range are in a sum, .*group=0"),
        (1.0, 2**31, 32, None, "1 to half of their range"),
        (1.0, 2.0, 32, None, "1 to half of their range"),
        (1.0, 20, 32, 27, "20 numbers of up to 1 with 27 fraction bits do not fit into 32 bits: use at most 26"),
        (1.0, 20, 32, 2.0, "with 2.0 fraction bits do not fit"),
        (0.1, 20, 32, 3, "every number up to the clip 0.1 is zero: use more, up to 30"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_start(
    clip: float, group: int, bits: int, fraction_bits: int | None, words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        FixedPoint(clip, group, bits, fraction_bits)


def test_the_largest_group_of_a_ring_has_one_step_each() -> None:
    fixed = FixedPoint(1.0, 2**31 - 1, 32)
    assert (fixed.limit, fixed.fraction_bits) == (1, 0)
