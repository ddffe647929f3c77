"""Normal numbers for simulations, sixteen at a time: Philox words, and two normals from each pair by Box and Muller.

A private step of a small model costs less than a library's normals for its noise, which come one by one. These are
made by loops that compilers vectorise, in float32, to a relative error of 2e-6. The law is as fine as its 32 random
bits: the largest is 6.76, beyond which a normal number lies once in 7e10. They are for simulations, as all streams of
`randomness` are; the noise of a deployment is `privacy.exact`'s.

References
----------
Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011: Philox4x32 with ten rounds.
Box and Muller, "A note on the generation of random normal deviates", Annals of Mathematical Statistics 29, 1958.
Moshier, "Methods and programs for mathematical functions", 1989: the polynomials of the logarithm, sine and cosine.
"""

from __future__ import annotations

import numpy as np

from gossamer.machine_code import compiled

BLOCK = 64
"""Counters at a time, each of which gives four numbers."""

_compiled = compiled(fastmath={"contract"})
_inlined = compiled(inline="always")

_FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _WORD = np.uint64(0xFFFFFFFF), np.uint64(32)
_f, _i, _u = np.float32, np.int32, np.uint32
_LN2, _ROOT2 = _f(0.6931471805599453), _f(1.4142135)
_QUARTER = _u(1 << 29)
_ANGLE, _UNIT = _f(2.0 * np.pi / 2.0**32), _f(2.0**-32)
_NEAR = _u(0xB504F400)  # 2^32 / sqrt(2), and a little more


@_inlined
def _rounds(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    """Ten rounds; each word is below 2^32, so that products are exact."""
    for _ in range(10):
        p0 = _FACTORS[0] * c0
        p1 = _FACTORS[1] * c2
        c0, c1, c2, c3 = (p1 >> _WORD) ^ c1 ^ k0, p1 & _LOW, (p0 >> _WORD) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _STEPS[0]) & _LOW, (k1 + _STEPS[1]) & _LOW
    return c0, c1, c2, c3


@_compiled
def philox(counter, key, words):  # type: ignore[no-untyped-def]
    """Write the words of `BLOCK` counters from ``counter`` [4] on, which differ in their first word, [4, `BLOCK`]."""
    first, c1, c2, c3 = counter
    k0, k1 = key
    for i in range(BLOCK):
        a, b, c, d = _rounds((first + np.uint64(i)) & _LOW, c1, c2, c3, k0, k1)
        words[0, i], words[1, i], words[2, i], words[3, i] = _u(a), _u(b), _u(c), _u(d)


@_inlined
def _logarithm(m, e, word):  # type: ignore[no-untyped-def]
    """ln((word + 1/2) / 2^32), which is ln(m 2^e) for m in [1, 2): near 1 by its distance to 1, which m has lost."""
    near = word >= _NEAR
    large = m > _ROOT2
    t = (_f(~word) + _f(0.5)) * -_UNIT if near else (m * _f(0.5) if large else m) - _f(1)
    e = _f(0) if near else (e + _f(1) if large else e)
    z = t * t
    p = _f(7.0376836292e-2)
    p = p * t - _f(1.1514610310e-1)
    p = p * t + _f(1.1676998740e-1)
    p = p * t - _f(1.2420140846e-1)
    p = p * t + _f(1.4249322787e-1)
    p = p * t - _f(1.6668057665e-1)
    p = p * t + _f(2.0000714765e-1)
    p = p * t - _f(2.4999993993e-1)
    p = p * t + _f(3.3333331174e-1)
    return t * z * p - _f(0.5) * z + t + e * _LN2


@_inlined
def _direction(word):  # type: ignore[no-untyped-def]
    """Cosine and sine of 2 pi word / 2^32: those of an angle within pi/4, turned by quarters."""
    quarters = (word + _QUARTER) >> _u(30)
    a = _f(_i(word - (quarters << _u(30)))) * _ANGLE
    z = a * a
    sine = ((_f(-1.9515295891e-4) * z + _f(8.3321608736e-3)) * z - _f(1.6666654611e-1)) * z * a + a
    cosine = (_f(2.443315711809948e-5) * z - _f(1.388731625493765e-3)) * z + _f(4.166664568298827e-2)
    cosine = cosine * z * z - _f(0.5) * z + _f(1)
    odd = (quarters & _u(1)) != _u(0)
    x, y = sine if odd else cosine, cosine if odd else sine
    x = -x if ((quarters + _u(1)) & _u(2)) != _u(0) else x
    y = -y if (quarters & _u(2)) != _u(0) else y
    return x, y


@_compiled
def box_muller(lengths, angles, one, two, bits):  # type: ignore[no-untyped-def]
    """Write two normals for each pair of words; ``bits`` are those of ``one``, [`BLOCK`] each."""
    for i in range(BLOCK):
        one[i] = _f(lengths[i]) + _f(0.5)
    for i in range(BLOCK):
        two[i] = _f((bits[i] >> _i(23)) - _i(127 + 32))
        bits[i] = (bits[i] & _i(0x7FFFFF)) | _i(0x3F800000)
    for i in range(BLOCK):
        squared = _f(-2) * _logarithm(one[i], two[i], lengths[i])
        radius = np.sqrt(squared if squared > _f(0) else _f(0))
        x, y = _direction(angles[i])
        one[i], two[i] = radius * x, radius * y


@_compiled
def fill(key, label, start, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` [size] of float32 with normals that follow from two numbers of 64 bits, and from nothing else.

    They are those from ``start`` on, a multiple of 4 `BLOCK`.
    """
    words = np.empty((4, BLOCK), np.uint32)
    made = np.empty((4, BLOCK), np.float32)
    bits, row = made.view(np.int32), made.reshape(4 * BLOCK)
    at, first = 0, np.uint64(start) // np.uint64(4)
    while at < out.size:
        counter = (first & _LOW, first >> _WORD, label & _LOW, label >> _WORD)
        philox(counter, (key & _LOW, key >> _WORD), words)
        for half in range(0, 4, 2):
            box_muller(words[half], words[half + 1], made[half], made[half + 1], bits[half])
        count = min(4 * BLOCK, out.size - at)
        for i in range(count):
            out[at + i] = row[i]
        at += count
        first += np.uint64(BLOCK)
