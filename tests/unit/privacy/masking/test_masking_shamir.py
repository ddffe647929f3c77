"""Shares: any threshold of them give the secret, fewer fit every secret, wrong ones give another."""

from __future__ import annotations

import contextlib
import itertools
import secrets

import pytest
import sympy
from tests.reference.masking_slow import interpolate

from gossamer.errors import PeerError
from gossamer.privacy.masking.shares import PRIME, combine, split

SECRET = bytes(range(200, 232))
INDICES = (1, 2, 5, 9, 70_000)


def numbers(shares: dict[int, bytes]) -> dict[int, int]:
    return {index: int.from_bytes(share, "little") for index, share in shares.items()}


def test_the_prime_is_the_smallest_above_all_secrets() -> None:
    assert sympy.isprime(PRIME)
    assert sympy.nextprime(2**256) == PRIME


@pytest.mark.parametrize("threshold", range(1, 6))
def test_any_threshold_of_shares_give_the_secret(threshold: int) -> None:
    shares = split(SECRET, threshold, INDICES)
    for chosen in itertools.combinations(INDICES, threshold):
        assert combine({index: shares[index] for index in chosen}, threshold) == SECRET
    assert combine(shares, threshold) == SECRET


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_extreme_secrets(secret: bytes) -> None:
    assert combine(split(secret, 3, (1, 2, 3)), 3) == secret


def test_shares_lie_on_a_polynomial_of_the_drawn_coefficients() -> None:
    """64 bytes a coefficient, little-endian modulo the prime, after the secret."""
    drawn = secrets.token_bytes(128)
    shares = numbers(split(SECRET, 3, INDICES, lambda count: drawn[:count]))
    a, b = (int.from_bytes(drawn[i : i + 64], "little") for i in (0, 64))
    assert shares == {i: (int.from_bytes(SECRET, "little") + a * i + b * i * i) % PRIME for i in INDICES}
    assert interpolate(shares, 0, PRIME) == int.from_bytes(SECRET, "little")


def test_fewer_shares_fit_every_secret() -> None:
    """For any other secret there are coefficients that give the same two shares of three: they say nothing of it."""
    shares = numbers(split(SECRET, 3, INDICES))
    known = {index: shares[index] for index in (2, 9)}
    for other in (0, 1, 2**256 - 1):
        through = {0: other, **known}
        shares_of_other = {index: interpolate(through, index, PRIME) for index in (2, 9, 1)}
        assert interpolate(shares_of_other, 0, PRIME) == other
        assert shares_of_other[2] == known[2]


def test_coefficients_are_drawn_anew() -> None:
    assert split(SECRET, 2, INDICES) != split(SECRET, 2, INDICES)
    assert all(share != SECRET + b"\0" for share in split(SECRET, 2, INDICES).values())


def test_fewer_shares_are_refused() -> None:
    shares = split(SECRET, 3, INDICES)
    with pytest.raises(ValueError, match="expected 3 shares, found 2"):
        combine({1: shares[1], 2: shares[2]}, 3)


def test_a_wrong_share_gives_another_secret_or_none() -> None:
    shares = split(SECRET, 2, INDICES)
    wrong = {**shares, 1: (int.from_bytes(shares[1], "little") ^ 1).to_bytes(33, "little")}
    with contextlib.suppress(PeerError):
        assert combine(wrong, 2) != SECRET


def test_the_shares_of_the_smallest_indices_count() -> None:
    shares = split(SECRET, 3, INDICES)
    assert combine({**shares, 9: bytes(33), 70_000: bytes(33)}, 3) == SECRET
    with contextlib.suppress(PeerError):
        assert combine({**shares, 5: bytes(33)}, 3) != SECRET


def test_a_number_that_is_no_secret_is_refused() -> None:
    """The constant polynomial 2^256 has shares below the prime, and is no 32-byte number."""
    with pytest.raises(PeerError, match="do not give a secret"):
        combine(dict.fromkeys((1, 2), (2**256).to_bytes(33, "little")), 2)


@pytest.mark.parametrize("share", [b"", bytes(32), bytes(34), PRIME.to_bytes(33, "little"), b"\xff" * 33])
def test_what_is_no_share_is_refused(share: bytes) -> None:
    with pytest.raises(PeerError, match="the share of index 2 is no number below the prime"):
        combine({1: bytes(33), 2: share}, 2)


@pytest.mark.parametrize("indices", [(0, 1, 2), (1, 2, 2), (-1, 1, 2), (1, 2, PRIME), (True, 2, 3), (1.0, 2, 3)])
def test_bad_indices_are_refused(indices: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="distinct indices from 1"):
        split(SECRET, 2, indices)


def test_bad_indices_are_refused_when_combining() -> None:
    with pytest.raises(ValueError, match="distinct indices from 1"):
        combine({0: bytes(33), 1: bytes(33)}, 2)


@pytest.mark.parametrize("threshold", [0, 6])
def test_a_threshold_beyond_the_shares_is_refused(threshold: int) -> None:
    with pytest.raises(ValueError, match="threshold of 1 to 5"):
        split(SECRET, threshold, INDICES)


@pytest.mark.parametrize("length", [31, 33])
def test_other_secrets_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"a secret of 32 bytes, found {length}"):
        split(bytes(length), 2, INDICES)
