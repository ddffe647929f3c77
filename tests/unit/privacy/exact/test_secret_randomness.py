"""Randomness that is kept nowhere. Statistical tests draw anew in every run; their levels are 1e-9 each, 5 in all."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("cryptography", reason="needs the extra: secure")

from gossamer.errors import SpecError
from gossamer.privacy.exact import secret_randomness
from gossamer.privacy.exact.grid_noise import discrete_gaussian
from gossamer.privacy.exact.secret_randomness import LARGEST, MOST_BYTES, SecretRandomness
from gossamer.privacy.masking.keys import keystream

LEVEL = 1e-9


class Given(SecretRandomness):
    """Words that are given, in order."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> np.ndarray:
        drawn, self.left = self.left[:count], self.left[count:]
        assert len(drawn) == count
        return np.array(drawn, np.uint64)


def test_every_call_takes_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [bytes([number]) * 32 for number in range(4)]
    left = iter(keys)

    def urandom(count: int) -> bytes:
        assert count == 32
        return next(left)

    monkeypatch.setattr(secret_randomness.os, "urandom", urandom)
    source = SecretRandomness()
    assert source.bytes(100) == keystream(keys[0], 100)
    assert source.bytes(100) == keystream(keys[1], 100)
    assert source.words(3).tolist() == np.frombuffer(keystream(keys[2], 24), "<u8").tolist()
    assert source.integers(2**63, 2).tolist() == [
        int(word) % 2**63 for word in np.frombuffer(keystream(keys[3], 16), "<u8")
    ]


def test_seeds_do_not_reach_it() -> None:
    drawn = set()
    for source in (SecretRandomness(), SecretRandomness()):
        np.random.seed(1)
        random.seed(1)
        drawn |= {source.bytes(32), source.bytes(32)}
    assert len(drawn) == 4


def test_a_fork_shares_nothing() -> None:
    program = (
        "import os\n"
        "from gossamer.privacy.exact.secret_randomness import SecretRandomness\n"
        "source = SecretRandomness()\n"
        "source.words(10)\n"
        "child = os.fork()\n"
        "os.write(1, source.bytes(16).hex().encode() + b'\\n')\n"
        "child and os.waitpid(child, 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = done.stdout.split()
    assert first != second


def test_it_is_never_stored() -> None:
    source = SecretRandomness()
    for store in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="never stored or copied"):
            store(source)
    with pytest.raises(AttributeError):
        source.state = 1  # type: ignore[attr-defined]


def test_integers_are_drawn_again_and_not_folded() -> None:
    """Each of three bits' values below 5 stands for itself; 5, 6 and 7 are drawn again, however often it takes."""
    assert Given(*range(8), 5, 0, 7, 2, 6, 3).integers(5, 8).tolist() == [0, 1, 2, 3, 4, 2, 0, 3]
    assert Given(8 + 4, 16 + 1).integers(5, 2).tolist() == [4, 1]
    assert Given(9, 2**64 - 1).integers(1, 2).tolist() == [0, 0]
    assert Given(2**64 - 1, 2**63).integers(LARGEST, 2).tolist() == [2**63 - 1, 0]
    assert Given(4, 3).integers(4, 2).tolist() == [0, 3]
    assert SecretRandomness().integers(7, 0).tolist() == []


@pytest.mark.parametrize("high", [0, -1, LARGEST + 1, 2.0, "3"])
def test_integers_need_a_bound(high: object) -> None:
    with pytest.raises(SpecError, match="lie below an integer"):
        SecretRandomness().integers(high, 1)  # type: ignore[arg-type]


def test_a_call_has_its_limit() -> None:
    for count in (-1, MOST_BYTES + 1):
        with pytest.raises(SpecError, match="draw them in parts"):
            SecretRandomness().bytes(count)
    assert SecretRandomness().bytes(0) == b""


def test_coins_have_exactly_their_probability() -> None:
    half, last = 2**63, 2**64 - 1
    assert Given(half - 1, half, last, 0, 0).coins(0.5, 4).tolist() == [True, False, False, True]
    # 3 2^-64 takes one word, 5 2^-66 = 2^-64 + 2^-66 a second one where the first is 1
    assert Given(2, 3, 0).coins(3 * 2.0**-64, 2).tolist() == [True, False]
    assert Given(0, 1, 1, 2**62 - 1, 2**62).coins(5 * 2.0**-66, 3).tolist() == [True, True, False]
    assert Given(last, last).coins(1.0, 2).tolist() == [True, True]
    assert Given(0, 0, 0, 0).coins(0.0, 2).tolist() == [False, False]
    for probability in (-0.1, 1.1, float("nan"), 2.0**-65):
        with pytest.raises(SpecError, match="a coin's probability"):
            SecretRandomness().coins(probability, 1)


def test_the_numbers_are_uniform() -> None:
    source, count = SecretRandomness(), 600_000
    assert stats.chisquare(np.bincount(np.frombuffer(source.bytes(count), np.uint8), minlength=256)).pvalue > LEVEL
    assert stats.chisquare(np.bincount(source.integers(6, count), minlength=6)).pvalue > LEVEL
    assert stats.kstest(source.words(count) * 2.0**-64, "uniform").pvalue > LEVEL
    assert stats.binomtest(int(source.coins(0.01, count).sum()), count, 0.01).pvalue > LEVEL


def test_the_exact_sampler_takes_it() -> None:
    drawn = discrete_gaussian(SecretRandomness().words, 3, 100_000)
    values = np.arange(-9, 10)
    expected = np.exp(-(values**2) / 18)
    expected *= np.count_nonzero(np.abs(drawn) < 10) / expected.sum()
    assert stats.chisquare([np.count_nonzero(drawn == value) for value in values], expected).pvalue > LEVEL
