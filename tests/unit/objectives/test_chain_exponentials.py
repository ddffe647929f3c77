"""tanh, sigmoid and exponentials of chains against a wider type, and whether they are loops without calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit

from gossamer.objectives.chains import exponentials
from gossamer.objectives.chains.kernels import U


@njit
def tanh(z: Any) -> None:
    exponentials.tanh(z, U(0), U(z.size))


@njit
def sigmoid(z: Any) -> None:
    exponentials.sigmoid(z, U(0), U(z.size))


@njit
def exponential(z: Any) -> None:
    for i in range(z.size):
        z[i] = exponentials.exponential(z[i])


@njit
def softmax(z: Any, d: Any) -> None:
    exponentials.softmax_residual(d, U(0), z, U(z.size), 2)


LOOPS: dict[str, tuple[Callable[[Any], None], Callable[[Any], Any], int]] = {
    "tanh": (tanh, np.tanh, 7),
    "sigmoid": (sigmoid, lambda z: 1 / (1 + np.exp(-z)), 5),
    "exponential": (exponential, np.exp, 5),
}
"""Each loop, the function, and the units of roundoff that `exponentials` allows it."""
LEAST = {np.float32: 87.0, np.float64: 708.0}


def points(dtype: type) -> np.ndarray:
    """All magnitudes, and densely where the functions bend; both sides of every rounding to a whole power of two."""
    powers = (np.arange(128)[:, None] + 0.5) * np.log(2) * (1 + np.linspace(-1e-6, 1e-6, 21))
    found = np.concatenate([np.logspace(-20, 2.9, 100_001), np.linspace(0, 100, 400_001), powers.ravel()])
    return -found.astype(dtype)


@pytest.mark.some(4)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", LOOPS)
def test_they_are_right_to_what_is_derived(name: str, dtype: type) -> None:
    loop, function, allowed = LOOPS[name]
    assert np.finfo(np.longdouble).eps < np.finfo(np.float64).eps / 100, "needs a wider type to compare with"
    for z in (points(dtype), -points(dtype)):
        if name == "exponential" and z.max() > 0:
            continue
        found = z.copy()
        loop(found)
        with np.errstate(over="ignore", under="ignore"):
            exact = function(z.astype(np.longdouble))
        normal = (z >= -LEAST[dtype]) | (np.abs(exact) > 0.1)
        errors = np.abs(found - exact) / np.maximum(np.abs(exact), np.finfo(dtype).tiny)
        assert errors[normal].max() <= allowed * np.finfo(dtype).eps / 2
        assert not found[~normal].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_are_none_and_ends_of_numbers(dtype: type) -> None:
    given = np.array([np.nan, np.inf, -np.inf, 0, 1e-310 if dtype == np.float64 else 1e-40], dtype)
    small = given[-1]
    for loop, expected in ((tanh, [np.nan, 1, -1, 0, small]), (sigmoid, [np.nan, 1, 0, 0.5, 0.5])):
        found = given.copy()
        loop(found)
        np.testing.assert_array_equal(found, np.array(expected, dtype))
    found = -np.abs(given)
    exponential(found)
    np.testing.assert_array_equal(found, np.array([np.nan, 0, 0, 1, 1], dtype))


def test_the_softmax_is_that_of_a_wider_type() -> None:
    scores = np.random.default_rng(0).normal(0, 30, (500, 10)).astype(np.float32)
    exact = np.exp(scores.astype(np.float64) - scores.max(1)[:, None])
    exact /= exact.sum(1)[:, None]
    exact[:, 2] -= 1
    for z, expected in zip(scores, exact, strict=True):
        found = np.empty_like(z)
        softmax(z, found)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-7)


def libraries(z: Any) -> None:
    for i in range(z.size):
        z[i] = np.tanh(z[i])


def called(loop: Callable[[Any], None], dtype: str) -> set[str]:
    """Functions of mathematics that the compiled loop calls."""
    (text,) = njit(f"void({dtype}[::1])")(loop).inspect_llvm().values()
    names = re.findall(r"call[^@\n]*@\"?([\w.]+)", text)
    return {name for name in names if re.fullmatch(r"(llvm\.)?(exp|exp2|expm1|tanh|pow|ldexp|log)f?(\.\w+)?", name)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_library_is_called(dtype: str) -> None:
    """Whose functions branch on their argument: C's tanh takes from 5 to 12 ns."""
    for loop, _, _ in LOOPS.values():
        assert called(loop.py_func, dtype) == set()  # type: ignore[attr-defined]
    assert any("tanh" in name for name in called(libraries, dtype)), "this test would see a call"
