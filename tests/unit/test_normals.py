"""Normal numbers for simulations: the published generator, the law, and nothing but the stream that they come from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from tests.reference import normals_slow

from gossamer import normals
from gossamer.randomness import Draws, Stream, stream

ONES = 0xFFFFFFFF
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
"""Known answers of Random123, the authors' library, for philox4x32-10."""
MANY = 2_000_000
FALSE_ALARMS = 1e-6
"""Of each test that draws; the seeds are fixed, so it is once for all whether there is one."""


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]) -> None:
    found = np.empty((4, normals.BLOCK), np.uint32)
    normals.philox(tuple(map(np.uint64, counter)), tuple(map(np.uint64, key)), found)
    assert tuple(found[:, 0]) == words
    assert normals_slow.philox(counter, key) == words  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 4 * normals.BLOCK, 4 * normals.BLOCK + 1, 5000])
def test_they_are_those_of_the_slow_reference(size: int) -> None:
    key, label = 0x0123456789ABCDEF, 0xFEDCBA9876543210
    found = np.empty(size, np.float32)
    normals.fill(np.uint64(key), np.uint64(label), 0, found)
    expected = normals_slow.normals(key, label, size, normals.BLOCK)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("cores", [1, 3])
def test_threads_share_the_work_and_not_the_numbers(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.randomness.available_cores", lambda: cores)
    size = 2**17 + 5
    found = stream(7, "noise").standard_normal(size, dtype=np.float32)
    key, label = np.random.Philox(key=stream(7, "noise").bit_generator.state["state"]["key"]).random_raw(2)  # type: ignore[index]
    whole = np.empty(size, np.float32)
    normals.fill(key, label, 0, whole)
    assert np.array_equal(found, whole)


@pytest.mark.parametrize(
    "word",
    [
        0,
        1,
        2**22,
        2**23,
        2**24 + 1,
        2**29,
        2**29 - 1,
        2**30,
        2**31,
        3 * 2**30,
        0xB504F3FF,
        0xB504F400,
        2**32 - 2**8,
        2**32 - 1,
    ],
)
def test_pairs_at_the_edges(word: int) -> None:
    """The longest, the shortest, and angles where a quarter turns into the next."""
    others = np.arange(normals.BLOCK, dtype=np.uint32) * np.uint32(2**26) + np.uint32(12345)
    words = np.full(normals.BLOCK, word, np.uint32)
    for lengths, angles in ((words, others), (others, words)):
        one, two = np.empty((2, normals.BLOCK), np.float32)
        normals.box_muller(lengths, angles, one, two, one.view(np.int32))
        expected = [normals_slow.box_muller(int(a), int(b)) for a, b in zip(lengths, angles, strict=True)]
        np.testing.assert_allclose(np.stack([one, two], 1), expected, rtol=2e-6, atol=1e-6)
        assert (np.hypot(one, two) > 0).all()


def test_the_law_is_normal() -> None:
    found = stream(3, "law").standard_normal(MANY, dtype=np.float32)
    assert found.dtype == np.float32
    assert stats.kstest(found, "norm").pvalue > FALSE_ALARMS
    bound = stats.norm.isf(FALSE_ALARMS / 2)
    assert abs(found.mean(dtype=float)) * MANY**0.5 < bound
    assert abs((found.astype(float) ** 2).mean() - 1) * (MANY / 2) ** 0.5 < bound
    for far in (3.0, 4.0, 4.5):
        expected = 2 * stats.norm.sf(far) * MANY
        beyond = int((np.abs(found) > far).sum())
        assert stats.poisson.ppf(FALSE_ALARMS / 2, expected) <= beyond <= stats.poisson.isf(FALSE_ALARMS / 2, expected)


@pytest.mark.parametrize("apart", [1, normals.BLOCK, 2 * normals.BLOCK, 3 * normals.BLOCK, 4 * normals.BLOCK])
def test_numbers_of_one_draw_are_uncorrelated(apart: int) -> None:
    """Neighbours, the two of a pair, and those of the next block."""
    found = stream(4, "lags").standard_normal(MANY, dtype=np.float32).astype(float)
    for values in (found, found**2 - 1):
        together = (values[:-apart] * values[apart:]).mean() / (values**2).mean()
        assert abs(together) * (MANY - apart) ** 0.5 < stats.norm.isf(FALSE_ALARMS / 2)


def test_draws_of_two_numbers_and_two_draws_of_one_have_nothing_in_common() -> None:
    draws = Stream(1, "node")
    one = draws.at(0).standard_normal(10_000, dtype=np.float32)
    again = draws.at(0)
    first, second = (again.standard_normal(10_000, dtype=np.float32) for _ in range(2))
    other = draws.at(1).standard_normal(10_000, dtype=np.float32)
    assert np.array_equal(one, first)
    for apart in (second, other):
        assert not np.isin(apart, one).mean() > 0.01  # float32 has few enough numbers for some to be equal
        assert abs(np.corrcoef(one, apart)[0, 1]) * 100 < stats.norm.isf(FALSE_ALARMS / 2)


def test_everything_else_is_numpys() -> None:
    ours, numpys = (kind(np.random.Philox(key=5)) for kind in (Draws, np.random.Generator))
    for size in (None, (3, 4)):
        assert np.array_equal(ours.standard_normal(size), numpys.standard_normal(size))
    assert np.array_equal(ours.standard_normal(9), numpys.standard_normal(9))
    assert np.array_equal(ours.random(5), numpys.random(5))
    assert ours.standard_normal((2, 3), dtype=np.float32).shape == (2, 3)
    assert ours.standard_normal(0, dtype=np.float32).shape == (0,)
