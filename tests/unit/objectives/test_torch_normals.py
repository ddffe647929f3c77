"""Normal numbers by torch: those of the compiled generator, which is held against the slow reference elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from tests.reference import normals_slow

from gossamer.normals import BLOCK, fill
from gossamer.objectives.device import device as torch_normals
from gossamer.objectives.device.device import add_normals

torch = pytest.importorskip("torch")


def keys(rows: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**64, (rows, 2), dtype=np.uint64)


def test_words_are_those_of_the_slow_reference() -> None:
    (key, label), counters = (0x0123456789ABCDEF, 0xFEDCBA9876543210), (0, 1, 63, 2**32 - 1, 2**32, 2**33 + 5)
    given = torch.from_numpy(np.array([[key, label]], np.uint64).view(np.int64))
    found = torch.stack(torch_normals._philox(torch.tensor(counters), given))[:, 0]
    for place, counter in enumerate(counters):
        low = 2**32 - 1
        words = normals_slow.philox((counter & low, counter >> 32, label & low, label >> 32), (key & low, key >> 32))
        assert tuple(found[:, place].tolist()) == words


@pytest.mark.parametrize("size", [1, 5, 4 * BLOCK, 4 * BLOCK + 1, 7850])
def test_numbers_are_those_of_the_compiled_generator(size: int) -> None:
    """To 2e-6 of 6.76, the largest there is: a few units in the last place of float32."""
    given, deviations = keys(5), np.array([1.0, 2.0, 0.0, 1.0, 0.5])
    sums = torch.full((5, size), 3.0)
    add_normals(sums, given, deviations)
    for row in range(5):
        expected = np.zeros(size, np.float32)
        fill(*given[row], 0, expected)
        np.testing.assert_allclose(sums[row], 3 + deviations[row] * expected, atol=4e-6, rtol=0)


def test_extreme_words_give_finite_numbers() -> None:
    """Words near 0 and 2^32, where the logarithm is large or nearly zero, as the compiled loop has them."""
    words = np.array([0, 1, 2**31 - 1, 2**31, 0xB504F3FF, 0xB504F400, 2**32 - 2, 2**32 - 1], np.uint32)
    lengths = np.resize(np.repeat(words, len(words)), BLOCK)
    angles = np.resize(np.tile(words, len(words)), BLOCK)
    one, two = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    from gossamer.normals import box_muller

    box_muller(lengths, angles, one, two, one.view(np.int32))
    found = torch_normals._box_muller(*(torch.from_numpy(each.astype(np.int64)) for each in (lengths, angles)))
    for expected, each in zip((one, two), found, strict=True):
        assert each.isfinite().all()
        np.testing.assert_allclose(each, expected, atol=4e-6)


def test_pieces_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    given, deviations = keys(6), np.ones(6)
    whole = torch.zeros(6, 1000)
    add_normals(whole, given, deviations)
    monkeypatch.setattr(torch_normals, "AT_ONCE", 2 * BLOCK)
    parts = torch.zeros(6, 1000)
    add_normals(parts, given, deviations)
    assert torch.equal(whole, parts)
