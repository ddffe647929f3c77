#!/usr/bin/env python3
"""Check a guarantee of differential privacy from receipts alone: python gossamer_verify.py RESULTS|RECEIPTS [GUARANTEE].

This file shares no code with the library that wrote the receipts. It needs Python 3.11, numpy and scipy, and for
signatures `cryptography`. It reads `receipts.jsonl` and `guarantee.json`, never data, and answers three questions.

1. *Are the receipts whole?* Lines are one chain: s_0 is 32 zero bytes, s_(i+1) = SHA-256(s_i, line i with its newline),
   each line begins with 16 hexadecimal digits of s_i, and the last line states all of the head, signed where the header
   names a key. Who drops, doubles, alters or moves a line breaks the chain there; who mends all later links, too, gets
   another head than the guarantee and the signature have.
2. *Did each party keep to its plan?* The plan, fixed before the first release, says how many releases of each law there
   may be. What is guaranteed is the whole plan, however early a run ended.
3. *What follows from the plan?* Epsilon, mu and the best guess, computed here a second time.

**The pair of one release.** sd is noise multiplier times clip C. One release of a law is dominated by a pair (P, Q) of
laws on the line, unit normal laws N(m) with mean m. (Zhu, Dong, Wang, AISTATS 2022: pairs of all releases compose.)

| law | P, Q |
|---|---|
| `one`: Poisson sample of rate q, one example comes or goes; m = C/sd | (1-q) N(0) + q N(m), N(0); and turned |
| `both`: Poisson sample of rate q, one is replaced; m = C/sd | (1-q) N(0) + q N(m), (1-q) N(0) + q N(-m) |
| `fixed`: q of all, exactly, one is replaced; m = 2C/sd | for losses > 0 as `one`, for losses < 0 its mirror |
| a sum clipped as a whole to C/2 (`BallGaussian`), one is replaced; m = C/sd | `fixed`, on both samples |
| all examples, m = C/sd, or 2C/sd where one is replaced | N(m), N(0); of several, m^2 adds up |
| a stream of correlated normal noise with A = B K, each update moved by D at most | N(m), N(0) with m = D |K 1|/sd |

`fixed`: Balle, Barthe, Gaboardi, NeurIPS 2018, theorem 9: H(e) = q H_N(log(1 + (exp(e) - 1)/q)) for e >= 0; the tails
of the loss follow by differentiating in exp(e), and turned around the pair is itself.

**Discretisation.** P's mass between the lattice points a and a + h of the loss log(P/Q) goes to both, in such parts that
P's and Q's masses stay. That can only raise H at every e ("connect the dots", Doroshenko et al., PoPETs 2022). What P
has beyond the last point is taken for an infinite loss, what is below the first one for that one.

**Composition.** L is the sum of all losses, on the lattice, and M(z) = E exp(z L); delta(e) = E max(0, 1 - exp(e - L)).
For any t > 0 the sequence exp(t e) delta(e), e = j h, has the Fourier transform M(z) K(z) at z = t - i s, with
K = x (1-y)/((1-x)(1-x y)), x = exp(-z h), y = exp(-h). Sampled at N frequencies it gives the sequence summed over all
j that agree modulo N. No term is negative, so that is never below the term looked for: an upper bound of delta(e)
whatever t, h and N are; they only make it tight. What rounding may add to Fourier sums is added.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.fft import irfft, rfft
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr, ndtri

FORMAT, LINK, SLACK, LEAST = 1, 16, 1e-3, 1e-10
"""Version of receipts; digits of a link; what two computations may differ by; errors of tests below which mu is blind."""
GRIDS, PROFILE = [1 << k for k in range(12, 23)], 1 << 15
DELTAS = (0.3, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12, 1e-14)


class Unreadable(Exception):
    """What is given is no chain of receipts, or no guarantee."""


class NotVerified(Exception):
    """Nothing is proved here of such a law."""


# 1. One release: tails of the loss, and its lattice


def tails(pair, back, x):
    """P(loss > x) and Q(loss > x) of the loss log(P/Q), x >= 0; of log(Q/P), and Q first, if ``back``."""
    shape, q, m = pair
    if shape == "both":  # the loss is x at the output log(u)/m with u = exp(x/2 + asinh(k sinh(x/2)))
        with np.errstate(divide="ignore"):
            a = m * m / 2 + np.log1p(-q) - math.log(q) + x / 2 + np.log(-np.expm1(-x) / 2)
        o = (x / 2 + np.logaddexp(a, np.logaddexp(2 * a, 0) / 2)) / m
        return (1 - q) * ndtr(-o) + q * ndtr(m - o), (1 - q) * ndtr(-o) + q * ndtr(-m - o)
    if shape == "one" and back:
        ratio = 1 + np.expm1(-x) / q
        with np.errstate(divide="ignore"):
            o = np.log(np.maximum(ratio, 0)) / m + m / 2
        return ndtr(o), (1 - q) * ndtr(o) + q * ndtr(o - m)
    o = np.log1p(np.expm1(x) / q) / m + m / 2
    return (1 - q) * ndtr(-o) + q * ndtr(m - o), ndtr(-o)


def highest(pair, back, tail):
    """A loss that is exceeded with probability ``tail`` at most."""
    shape, q, m = pair
    o = m - ndtri(tail)
    up, down = (math.log1p(q * math.expm1(min(sign * m * o - m * m / 2, 700))) for sign in (1, -1))
    found = up - down if shape == "both" else up
    if shape == "one" and back:
        found = -math.log1p(q * math.expm1(m * ndtri(tail) - m * m / 2))
    if not 0 < found < 600:
        raise NotVerified("it adds next to no noise")
    return found


def lattice(pair, back, h, tail):
    """Probabilities of the losses -n h, ..., -h, 0, h, ...; n; and the probability of an infinite loss."""
    n, top = (max(1, math.ceil(highest(pair, way, tail) / h)) for way in (not back, back))
    mass = np.zeros(n + 1 + top)
    x = h * np.arange(top + 1)
    p, q = tails(pair, back, x)
    inside, other = p[:-1] - p[1:], q[:-1] - q[1:]
    upper = np.clip((inside - other * np.exp(x[:-1])) / -math.expm1(-h), 0, inside)
    mass[n + 1 :] += upper
    mass[n:-1] += inside - upper
    x = h * np.arange(n + 1)
    r, w = tails(pair, not back, x)  # of the loss turned round, under Q and under P
    inside, other = w[:-1] - w[1:], r[:-1] - r[1:]
    lower = np.clip((other * np.exp(-x[:-1]) - inside) / math.expm1(h), 0, inside)
    mass[n::-1][:-1] += inside - lower
    mass[n::-1][1:] += lower
    mass[0] += w[-1]
    mass[n] = max(mass[n] + 1 - mass.sum() - p[-1], 0)
    return mass, n, float(p[-1])


# 2. Many releases


def tilt(pair, back, h, tail, t):
    """log E exp(t loss) of finite losses of one release, its probabilities tilted by that, their variance, n."""
    mass, n, infinite = lattice(pair, back, h, tail)
    x = h * (np.arange(mass.size) - n)
    weight = mass * np.exp(t * x)
    total = weight.sum()
    weight /= total
    return math.log(total), weight, weight @ (x - weight @ x) ** 2, n, infinite


def bounds(laws, back, h, size, tail, t, steps):
    """Upper bounds of delta at the losses h ``steps``, tight near the one that the order ``t`` belongs to."""
    log, infinite, releases, spectrum = 0.0, 0.0, sum(laws.values()), np.zeros(size // 2 + 1, complex)
    for pair, count in laws.items():
        logs, weight, _, n, beyond = tilt(pair, back, h, tail, t)
        folded = np.bincount((np.arange(weight.size) - n) % size, weight, size)
        spectrum += count * np.log(rfft(folded) + 1e-300)
        log, infinite = log + count * logs, infinite + count * beyond
    z = t - 2j * math.pi * np.arange(size // 2 + 1) / (size * h)
    terms = np.exp(spectrum - z * h) * -math.expm1(-h) / (np.expm1(-z * h) * np.expm1(-(z + 1) * h))
    rounding = 4e-16 * (releases + 100) * 2 * np.abs(terms).sum() / size
    found = np.maximum(irfft(terms, size)[steps % size] + rounding, 0)
    return np.minimum(np.exp(np.minimum(log - t * h * steps, 700)) * found + infinite, 1.0)


def plan(laws, back, delta, tail):
    """The order at which Markov's inequality gives the least epsilon, a width in which all lies, and that epsilon."""
    top = max(highest(pair, way, tail) for pair in laws for way in (back, not back))

    def at(log_t):
        t = math.exp(log_t)
        found = [(count, tilt(pair, back, top / 1000, tail, t)) for pair, count in laws.items()]
        moment = sum(count * one[0] for count, one in found) - math.log(delta)
        epsilon = (moment + t * math.log(t) - (1 + t) * math.log1p(t)) / t
        return epsilon, math.sqrt(sum(count * one[2] for count, one in found))

    log_t = minimize_scalar(lambda v: at(v)[0], bounds=(-5, math.log(600 / top)), method="bounded").x
    (most, deviation), t = at(log_t), math.exp(log_t)
    return t, max(20 * deviation + 12 * max(pair[2] for pair in laws), (30 - math.log(delta)) / t), most


def lattices(laws, back, delta):
    """Finer and finer lattices: deltas around the epsilon of ``delta``, and the steps and width that they are for."""
    tail = 1e-8 * delta / sum(laws.values())
    t, width, most = plan(laws, back, delta, tail)
    for size in GRIDS:
        h = width / size
        top = math.ceil(max(most, 0) / h) + 2
        steps = np.arange(max(0, top - size + 1), top + 1)
        yield bounds(laws, back, h, size, tail, t, steps), steps, h


def epsilon_of(laws, back, delta):
    """Epsilon proved of one direction."""
    best = math.inf
    for found, steps, h in lattices(laws, back, delta):
        first = np.flatnonzero(found <= delta)[:1]
        if not first.size:
            continue
        k = int(first[0])
        if steps[k] == 0:
            return 0.0
        before = found[k - 1] if k else 1.0
        share = (delta - found[k]) / (before - found[k])  # of the chord in exp(loss), under which delta lies
        now = h * steps[k] + math.log1p(share * math.expm1(-h))
        if best - now <= 2e-4 * now:
            return min(best, now)
        best = min(best, now)
    return best


def epsilon(laws, delta):
    """The smallest epsilon proved here of ``laws``, a count for each pair."""
    if not laws:
        return 0.0
    if len(laws) == 1 and next(iter(laws))[1] == 1:
        m = next(iter(laws))[2] * 1.0
        return bisect(lambda e: gaussian_delta(m, e) <= delta, 0.0, m * (m / 2 - min(ndtri(delta), 0)) + 1)
    sides = (False, True) if any(pair[0] == "one" for pair in laws) else (False,)
    return max(epsilon_of(laws, back, delta) for back in sides)


def gaussian_delta(m, e):
    """delta at epsilon ``e`` of N(m) and N(0)."""
    return ndtr(m / 2 - e / m) - np.exp(e + log_ndtr(-m / 2 - e / m))


def bisect(enough, low, high):
    """The least number that is enough, or a little more."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def profile(laws, points):
    """Deltas proved of ``laws`` at epsilons ``points``, increasing from 0: of each direction the least of a few bounds."""
    if not laws:
        return np.zeros(points.size)
    sides = (False, True) if any(pair[0] == "one" for pair in laws) else (False,)
    return np.max([np.min([near(laws, back, d, points) for d in DELTAS], axis=0) for back in sides], axis=0)


def near(laws, back, delta, points):
    """Deltas of one direction at ``points``, tight near the epsilon of ``delta``."""
    tail = 1e-8 * delta / sum(laws.values())
    t, width, _ = plan(laws, back, delta, tail)
    h = width / PROFILE
    return bounds(laws, back, h, PROFILE, tail, t, np.floor(points / h).astype(int))


def figures(laws):
    """mu, the least whose N(mu) and N(0) are as easy to tell apart, and the best guess: (1 + delta(0))/2.

    Tests with less than `LEAST` of either error are left out: beyond the loss at which they begin, the tangent counts.
    """
    points = np.linspace(0, min(epsilon(laws, DELTAS[-1]), -math.log(LEAST)), 400)
    deltas = profile(laws, points)
    hits = deltas + np.exp(points) * LEAST
    last = int(np.argmin(hits))
    low, high = np.zeros(last + 1), np.full(last + 1, 100.0)
    for _ in range(60):
        middle = (low + high) / 2
        enough = gaussian_delta(middle, points[: last + 1]) >= deltas[: last + 1]
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return max(high.max(), ndtri(min(hits[last], 1.0)) - ndtri(LEAST)), (1 + deltas[0]) / 2
