"""Loops of what is made of exponentials: tanh, sigmoid, softmax. A library's functions take longer for some numbers.

With n the whole number nearest to y / ln 2 and r = y - n ln 2, so that |r| <= 0.35, e^y is 2^n (1 + p(r)). p is the
Taylor polynomial of e^r - 1, and 2^n is put together from its bits: there is no branch, no table and no call, all
numbers take as long, and loops vectorise. n is found by adding a number so large that nothing below 1 is kept.

Cut off behind r^7 in float32, and behind r^14 in float64, p errs by at most |r|^7/8! and |r|^14/15! of r, times 1.05:
0.27 and 0.003 units of roundoff u. With roundings 1 + p is right to 2 u and p to 2.6 u; so e^y and sigmoid are right to
5 u, and tanh to 7 u: 2.6 u times 0.7 and one u more by adding 2^n - 1 (n = -1 is worst), times 1.5 by the quotient, and
2 u for its own two operations. Tests find half of that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from gossamer.objectives.chains.kernels import U, in_order, total

_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.1219444005469057e-4
"""ln 2 in two parts, of which the first has nine bits: its product with n is exact."""
_TERMS = tuple(1 / math.factorial(n) for n in range(13, 1, -1))
_SHORT = tuple(map(np.float32, _TERMS[-5:]))
"""Coefficients of the Taylor polynomials behind the first, the highest first."""


def _single(y: Any) -> tuple[Any, Any]:
    """Return e^r - 1 and 2^n of float32, for y <= 0; 2^n is 0 where e^y would be no normal number."""
    least, shift = np.float32(-87), np.float32(1.5 * 2**23)
    x = least if y < least else y
    t = x * np.float32(_LOG2E) + shift
    n = t - shift
    r = (x - n * np.float32(_LN2_HIGH)) - n * np.float32(_LN2_LOW)
    p = np.float32(1 / 5040)
    for term in _SHORT:
        p = p * r + term
    bits = np.uint32((np.float32(t).view(np.uint32) << np.uint32(23)) + np.uint32(127 << 23))
    return p * (r * r) + r, np.float32(0) if y < least else bits.view(np.float32)


def _double(y: Any) -> tuple[Any, Any]:
    """Return the same of float64."""
    least, shift = -708.0, 1.5 * 2.0**52
    x = least if y < least else y
    t = x * _LOG2E + shift
    n = t - shift
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = 1 / 87178291200
    for term in _TERMS:
        p = p * r + term
    bits = np.uint64((np.float64(t).view(np.uint64) << np.uint64(52)) + np.uint64(1023 << 52))
    return p * (r * r) + r, 0.0 if y < least else bits.view(np.float64)


def _parts(y: Any) -> tuple[Any, Any]:
    """Return what `_single` or `_double` does, by the type of y."""
    return (_single if y.dtype == np.float32 else _double)(y)


@overload(_parts, jit_options={"error_model": "numpy", "fastmath": {"contract", "nsz"}, "forceinline": True})
def _parts_of_type(y: Any) -> Any:
    return _single if y == types.float32 else _double


@in_order
def exponential(y):
    """Return e^y for y <= 0, and 0 where that would be no normal number."""
    p, power = _parts(y)
    return power * p + power


@in_order
def tanh(z, zo, n):
    """z = (1 - e^(-2 |z|)) / (1 + e^(-2 |z|)), with the sign of z."""
    zero, one, two = z.dtype.type(0), z.dtype.type(1), z.dtype.type(2)
    for i in range(n):
        x = z[zo + i]
        p, power = _parts(two * x if x < zero else -two * x)
        less = power * p + (power - one)
        found = less / (two + less)
        z[zo + i] = found if x < zero else -found


@in_order
def tanh_back(d, do, a, ao, n):
    """d *= the derivative of tanh, where it is a."""
    one = a.dtype.type(1)
    for p in range(n):
        d[do + p] *= one - a[ao + p] * a[ao + p]


@in_order
def sigmoid(z, zo, n):
    """z = e^z / (1 + e^z), by e^(-|z|), which does not overflow."""
    zero, one = z.dtype.type(0), z.dtype.type(1)
    for p in range(n):
        x = z[zo + p]
        e = exponential(x if x < zero else -x)
        z[zo + p] = (e if x < zero else one) / (one + e)


@in_order
def sigmoid_back(d, do, a, ao, n):
    """d *= the derivative of the sigmoid, where it is a."""
    one = a.dtype.type(1)
    for p in range(n):
        d[do + p] *= a[ao + p] * (one - a[ao + p])


@in_order
def largest(z, n):
    """Return the largest of z."""
    top = z[0]
    for c in range(U(1), n):
        top = max(top, z[c])
    return top


@in_order
def softmax_residual(d, do, z, n, target):
    """d = the derivatives of the cross-entropy by the scores z."""
    top = largest(z, n)
    for c in range(n):
        d[do + c] = exponential(z[c] - top)
    found = total(d, do, n)
    for c in range(n):
        d[do + c] = d[do + c] / found - z.dtype.type(1 if c == U(target) else 0)


@in_order
def cross_entropy(z, n, target):
    """Return the cross-entropy of the scores z."""
    top = largest(z, n)
    found = np.float64(0.0)
    for c in range(n):
        found += np.float64(exponential(z[c] - top))
    return np.float64(top - z[U(target)]) + math.log(found)
