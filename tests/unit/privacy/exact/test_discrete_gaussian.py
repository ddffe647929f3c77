"""The discrete Gaussian in blocks: its table, and the words at which a decision changes, to the last of 192 bits."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest

from gossamer.errors import SpecError
from gossamer.privacy.exact.grid_noise import (
    DISTANCE,
    WIDEST,
    _blocks,
    discrete_gaussian,
)

SCALES = [16, 31, 32, 1000, 2**20 + 7, 2**44, WIDEST]
EXACT = Context(prec=120)


def exponential(numerator: int, denominator: int) -> Fraction:
    """exp(-numerator/denominator), to 120 digits."""
    return Fraction(EXACT.exp(EXACT.divide(Decimal(-numerator), Decimal(denominator))))


def no_words(count: int) -> np.ndarray:
    raise AssertionError("the first word tells")


def then(number: int) -> object:
    """The two words that follow: the low 128 bits of ``number``."""
    return lambda count: np.array([(number >> 64) % 2**64, number % 2**64], np.uint64)[:count]


def words_of(seed: int) -> object:
    generator = np.random.default_rng(seed)
    return lambda count: generator.integers(0, 2**64, count, dtype=np.uint64)


@pytest.mark.parametrize("scale", [1, 2, 3, 7, 8, 15, *SCALES])
def test_the_table_has_the_blocks_probabilities(scale: int) -> None:
    """In total variation, with what the table leaves out, the blocks are within half of what is promised."""
    blocks = _blocks(scale)
    width = 1 << blocks.bits
    assert width == 1 if scale < 16 else scale / 16 < width <= scale / 8
    number = len(blocks.bounds)
    assert number * width >= 16 * scale
    weights = [exponential((q * width) ** 2, 2 * scale**2) for q in range(2 * number)]
    total = sum(weights)
    found = np.diff([0, *blocks.bounds]).tolist()
    assert blocks.bounds[-1] == 2**192
    distance = sum(abs(Fraction(mass, 2**192) - weight / total) for mass, weight in zip(found, weights, strict=False))
    assert distance + sum(weights[number:]) / total < DISTANCE / 2


@pytest.mark.parametrize("scale", [1, 7, *SCALES])
def test_a_block_changes_where_its_bound_lies(scale: int) -> None:
    blocks = _blocks(scale)
    for index, bound in enumerate(blocks.bounds[:-1]):
        for number, expected in ((bound - 1, index), (bound, index + 1)):
            found = blocks.block(np.array([number >> 128], np.uint64), then(number))
            assert found.tolist() == [expected]
    starts = sorted({bound >> 128 for bound in blocks.bounds[:-1]})
    clear = [s + 1 for s in starts if s + 1 < 2**64 and s + 1 not in starts]
    expected = [sum(bound >> 128 <= word for bound in blocks.bounds) for word in clear]
    assert blocks.block(np.array(clear, np.uint64), no_words).tolist() == expected


@pytest.mark.parametrize("scale", SCALES)
def test_acceptance_changes_where_the_exponential_lies(scale: int) -> None:
    """At 2^192 exp(-x), to the last digit but one. Words clear of it need no more."""
    blocks, generator = _blocks(scale), np.random.default_rng(scale % 97)
    width = 1 << blocks.bits
    for q, r in [(0, 1), (0, width - 1), (len(blocks.bounds) - 1, width - 1)] + [
        (int(generator.integers(len(blocks.bounds))), int(generator.integers(1, width))) for _ in range(50)
    ]:
        exact = exponential((q * width + r) ** 2 - (q * width) ** 2, 2 * scale**2)
        bound = int(exact * 2**192)
        block, rest = np.array([q]), np.array([r])
        for number in (bound - 1, bound + 1):
            accepted = blocks.accept(block, rest, np.array([number >> 128], np.uint64), then(number))
            assert accepted.tolist() == [number < bound]
        for word in (int(exact * (1 - Fraction(1, 2**39)) * 2**64), int(exact * (1 + Fraction(1, 2**39)) * 2**64)):
            if word < 2**64:
                accepted = blocks.accept(block, rest, np.array([word], np.uint64), no_words)
                assert accepted.tolist() == [word < exact * 2**64]
    assert blocks.accept(np.array([5]), np.array([0]), np.array([2**64 - 1], np.uint64), then(0)).all()


def test_bits_are_put_together() -> None:
    """Of one proposal: block, place in the block, sign; minus zero is refused."""
    blocks = _blocks(100)  # blocks of 8
    second_block = (blocks.bounds[1] >> 128) - 1

    def drawn(*words: int) -> list[int]:
        return blocks.draw(lambda count: np.array(words, np.uint64)[:count], 1).tolist()

    assert drawn(second_block, 3, 0) == [8 + 3]
    assert drawn(second_block, 2**63 + 3, 0) == [-11]
    assert drawn(second_block, 2**62 + 8 + 3, 0) == [11]  # bits between place and sign are not used
    assert drawn(0, 0, 0) == [0]
    assert drawn(0, 2**63, 0) == []
    assert drawn(0, 2**63 + 1, 0) == [-1]
    assert drawn(second_block, 3, 2**64 - 1) == []


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 200_000])
def test_as_many_as_are_asked_for(size: int) -> None:
    drawn = discrete_gaussian(words_of(size), 1000, size)
    assert drawn.shape == (size,)
    assert drawn.dtype == np.int64
    assert size < 1000 or 980 < drawn.std() < 1020  # at 65535 draws and more, more than 7 standard errors


@pytest.mark.parametrize("scale", [0, -1, WIDEST + 1, 100.0])
def test_a_scale_is_an_integer_in_its_range(scale: object) -> None:
    with pytest.raises(SpecError, match="an integer scale of 1 to"):
        discrete_gaussian(words_of(0), scale, 1)  # type: ignore[arg-type]
