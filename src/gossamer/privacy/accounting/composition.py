"""The sum of many discrete privacy losses, through its moment generating function.

Losses add up, so E exp(z L) of their sum is a product over releases, for every complex z [1]: it is known wherever it
is asked for, with the relative accuracy of a single one. Nothing here needs the losses to lie on a regular grid, so
they can be fine where it matters and wide elsewhere. `FourierBound` turns it into divergences.

`dp_accounting.pld` composes one pair of distributions at a time, on a regular grid; it knows no batches of fixed size
and takes minutes for thousands of rates, or for many releases that reveal next to nothing. The tests compare with it.

**Divergences of a sum** of privacy losses are bounded from above by a Fourier sum. Let ``M(z) = E exp(z L)`` over
finite L, for the sum L of all losses. For an order t > 0 and a period W,

    sum over whole k of exp(t k W) delta(e + k W)
        = exp(-t e) / W  sum over whole n of M(z) exp(-i s e) / (z (z + 1)),    s = 2 pi n / W,  z = t + i s,

which is Poisson's summation formula for exp(t e) delta(e). Every term on the left is positive, so the sum on the right
is never below delta(e), whatever t and W are. With t near the saddle point of the terms at n = 0 and W wide enough it
is delta(e) to any accuracy, and its rounding errors are relative to delta, however small delta is.

The sum on the right has to end. A Gaussian release with a tiny mu is composed with the others: that can only raise
delta, and makes the terms fall like exp(-(mu s)^2 / 2), which bounds what is left out. Rounding errors are bounded and
added as well.

**Losses of single releases** are discretised from above, on any losses one likes. A release's dominating pair (see
`analytic`) is replaced by a discrete pair whose hockey-stick curve joins points of the exact curve by chords, in
exp(loss): it is never below the exact one [2]. Products of such pairs dominate the composition, so every epsilon and
delta computed from them is an upper bound.

A loss l between neighbouring atoms a and b goes to both of them, in such shares that the means of 1 and of exp(-loss)
stay, which adds about (l - a)(b - l) to the variance. Releases are many, so this is what discretising costs; `refined`
places a number of atoms where they add least.

References
----------
[1] Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic function", AISTATS 2022.
[2] Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, "Connect the dots: tighter discrete approximations of privacy
    loss distributions", PoPETs 2022, algorithm 1 and theorem 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.privacy.pairs import Profile

# Relative, on divergences: far more than their formulas lose, and than is lost when chords' masses are added up. With
# the larger one ahead, Q has a mass of at most 1 for certain: of more, losses would be too small by its logarithm.
_MARGIN_AHEAD, _MARGIN_BACK = 2e-10, 1e-10
_LONE = (1e-6, 1e-14)  # shares, tilted and plain, of the other end's density: next to nothing
_SAME = 1e-12  # relative, on losses
_RATIO = 1.25  # of neighbouring losses of the first, coarse grid


class LossGrid(NamedTuple):
    """Losses at which curves are evaluated: increasing, from 0.

    Attributes
    ----------
    ahead, back : ndarray
        Losses for the divergence of P from Q, and of Q from P.
    """

    ahead: FloatArray
    back: FloatArray


class AtomWeights(NamedTuple):
    """Weights of the atoms of laws on a grid: how much each matters.

    Attributes
    ----------
    losses, tilted, plain : ndarray [size]
        The atoms; the probability that counts; the probability itself.
    own : LossGrid
        Losses at which the exact laws have atoms of their own.
    """

    losses: FloatArray
    tilted: FloatArray
    plain: FloatArray
    own: LossGrid = LossGrid(np.empty(0), np.empty(0))


def coarse(least: float, ahead: float, back: float, atoms: Sequence[tuple[float, float]]) -> LossGrid:
    """Losses in geometric progression from ``least`` to ``ahead`` and to ``back``, and those of ``atoms``."""

    def side(top: float, extra: Sequence[float]) -> FloatArray:
        least_here = min(least, top / 2)
        steps = int(np.ceil(np.log(top / least_here) / np.log(_RATIO)))
        return _ordered(np.geomspace(least_here, top, max(steps, 1) + 1), top, extra)

    return LossGrid(side(ahead, [pair[0] for pair in atoms]), side(back, [pair[1] for pair in atoms]))


def refined(grid: LossGrid, weights: AtomWeights, atoms: int) -> LossGrid:
    """A grid with about ``atoms`` more losses, where they lower `roughness` most; all losses of ``grid`` are kept."""
    sides = []
    measures = [np.cbrt(heights) * np.diff(side) for side, heights in zip(grid, _heights(grid, weights))]
    total = sum(float(measure.sum()) for measure in measures)
    for side, measure in zip(grid, measures):
        parts = np.minimum(np.ceil(measure * (atoms / total) if total > 0 else measure + 1), atoms).astype(np.int64)
        parts = np.maximum(parts, 1)
        cell = np.repeat(np.arange(parts.size), parts)
        within = np.arange(cell.size) - np.repeat(np.cumsum(parts) - parts, parts)
        inner = side[cell] + np.diff(side)[cell] * (within / parts[cell])
        sides.append(_ordered(inner, float(side[-1]), [float(side[-1])]))
    return LossGrid(*sides)


def roughness(grid: LossGrid, weights: AtomWeights) -> tuple[float, float]:
    """Variance that chords add to the losses', weighted; and c where n atoms, placed by `refined`, add c / n^2."""
    added = best = 0.0
    for side, heights in zip(grid, _heights(grid, weights)):
        gaps = np.diff(side)
        added += float(np.sum(heights * gaps**3)) / 6
        best += float(np.sum(np.cbrt(heights) * gaps))
    return added, best**3 / 6


def _heights(grid: LossGrid, weights: AtomWeights) -> list[FloatArray]:
    """Weight per unit of loss in each cell of the two sides of a grid.

    What lies inside a cell is at both of its ends: where one of them is an atom of the laws' own, and the other one has
    next to nothing, there is nothing inside.
    """
    found = []
    for side, own_atoms, sign in zip(grid, weights.own, (1, -1)):
        own, plain = (
            values[weights.losses > 0] if sign > 0 else values[weights.losses < 0][::-1]
            for values in (weights.tilted, weights.plain)
        )
        gaps = np.diff(side)
        widths = (gaps + np.append(gaps[1:], gaps[-1])) / 2  # of the atoms side[1], side[2], ...
        ends = [np.stack([np.append(values[0], values[:-1]), values]) / widths for values in (own, plain)]
        lone = np.logical_and(
            *(np.min(each, axis=0) < share * np.max(each, axis=0) for each, share in zip(ends, _LONE))
        )
        atom = _among(side, own_atoms)
        lone &= np.where(ends[1][0] > ends[1][1], atom[:-1], atom[1:])
        found.append(np.where(lone, 0.0, np.mean(ends[0], axis=0)))
    return found


def _among(losses: FloatArray, atoms: FloatArray) -> npt.NDArray[np.bool_]:
    """Mark those of ``losses`` that are ``atoms``, but for rounding."""
    if not atoms.size:
        return np.zeros(losses.size, dtype=bool)
    ordered = np.sort(atoms)
    after = np.minimum(np.searchsorted(ordered, losses), ordered.size - 1)
    nearest = np.minimum(np.abs(ordered[after] - losses), np.abs(ordered[np.maximum(after - 1, 0)] - losses))
    return np.asarray(nearest <= _SAME * losses)


def discretise(profiles: Sequence[Profile], grid: LossGrid) -> Laws:
    """The loss log(P/Q) under P of discrete pairs that dominate the profiles'.

    Only divergences at losses >= 0 are used, where they are small and hence exact: the mass that P has at a negative
    loss -e is exp(-e) times the mass that Q has at the loss e of the reverse.
    """
    ahead = [_masses(profile.forward, grid.ahead, _MARGIN_AHEAD) for profile in profiles]
    with np.errstate(under="ignore"):
        back = np.array([_masses(profile.backward, grid.back, _MARGIN_BACK)[0] for profile in profiles])
        below = back * np.exp(-grid.back[1:])
    probabilities = np.concatenate([below[:, ::-1], np.array([masses for masses, _ in ahead])], axis=1)
    losses = np.concatenate([-grid.back[:0:-1], grid.ahead[1:]])
    return Laws(losses, probabilities, np.array([infinite for _, infinite in ahead]))


def _masses(
    divergence: Callable[[FloatArray], FloatArray], side: FloatArray, margin: float
) -> tuple[FloatArray, float]:
    """Masses at all losses of ``side`` but the first, which is 0, of the chords of a curve; and what is infinite."""
    curve = np.minimum(np.minimum.accumulate(divergence(side)) * (1 + margin), 1.0)
    kept = np.arange(side.size)
    while True:
        masses = chord_masses(side[kept], curve[kept])
        # Rounding may leave a dent between a curve's points: a longer chord goes over it.
        dents = np.flatnonzero(masses < 0) + 1
        dents = dents[dents < kept.size - 1]
        if not dents.size:
            break
        kept = np.delete(kept, dents)
    result = np.zeros(side.size - 1)
    result[kept[1:] - 1] = masses
    return result, float(curve[-1])


def chord_masses(losses: FloatArray, curve: FloatArray) -> FloatArray:
    """P's masses at all but the first of ``losses``: exp(loss) times the change of the chords' slopes in exp(loss)."""
    drops, gaps = -np.diff(curve), np.diff(losses)
    shares = drops / -np.expm1(-gaps)
    with np.errstate(under="ignore"):
        masses: FloatArray = shares - np.append((shares * np.exp(-gaps))[1:], 0.0)
    return masses


def _ordered(losses: FloatArray, top: float, extra: Sequence[float]) -> FloatArray:
    """0, ``losses`` and ``extra``, those below ``top``, and ``top``, in order; no two that are all but equal."""
    found = np.unique(np.concatenate([losses, [loss for loss in extra if 0 < loss < top], [top]]))
    found = found[(found > 0) & (found <= top)]
    apart = np.append(np.diff(found) > 1e-13 * found[:-1], True)
    return np.concatenate([[0.0], found[apart]])


ComplexArray = npt.NDArray[np.complex128]

_MOST_EXPONENT = 690.0  # a law's exp(order loss) beyond exp of this is added up by its logarithms
_TINIEST = 1e-300
_LEAST_LOG = -600.0  # in place of the logarithm of 0


class Laws(NamedTuple):
    """Laws of discretised privacy losses, on the same atoms.

    Attributes
    ----------
    losses : ndarray [atoms]
        Increasing, none of them 0.
    probabilities : ndarray [laws, atoms]
        Probabilities of the finite losses; what is missing to 1, but for ``infinite``, is at the loss 0.
    infinite : ndarray [laws]
        Probability of an infinite loss.
    """

    losses: FloatArray
    probabilities: FloatArray
    infinite: FloatArray


class LawTerms(NamedTuple):
    """``times`` losses that follow law ``upper`` with probability ``weight``, else law ``lower``."""

    lower: int
    upper: int
    weight: float
    times: int


class Moments(NamedTuple):
    """log E exp(order L) of the finite sum, and the law that exp(order L) tilts it to.

    Attributes
    ----------
    order : float
        The tilt.
    log : float
        Infinite where it overflows.
    mean, variance : float
        Mean and variance of the tilted sum.
    absolute : float
        Sum over releases of the tilted mean of abs(loss).
    summed : float
        Sum over releases of `_Tilted.summed`.
    """

    order: float
    log: float
    mean: float
    variance: float
    absolute: float
    summed: float


class _Tilted(NamedTuple):
    """Each law, tilted by exp(order loss).

    Attributes
    ----------
    logs : ndarray [laws]
        log E exp(order loss) over finite losses.
    weights : ndarray [laws, atoms]
        The tilted probabilities.
    summed : ndarray [laws]
        Sizes of the numbers that were added up for ``logs``, all together and relative to E exp(order loss): what
        their rounding errors are relative to.
    """

    logs: FloatArray
    weights: FloatArray
    summed: FloatArray


class ComposedLoss:
    """The sum of independent privacy losses.

    Parameters
    ----------
    laws : Laws
        The laws that occur.
    terms : sequence of LawTerms
        Numbers of times that they occur; positions refer to ``laws``.
    """

    def __init__(self, laws: Laws, terms: Sequence[LawTerms]) -> None:
        self.laws = laws
        self._terms = terms
        self._lower = np.array([term.lower for term in terms])
        self._upper = np.array([term.upper for term in terms])
        self._weight = np.array([term.weight for term in terms])
        self._count = np.array([float(term.times) for term in terms])
        with np.errstate(divide="ignore"):
            self._log_probabilities = np.log(laws.probabilities)
            self._log_weights = np.log1p(-self._weight), np.log(self._weight)
        self._powers = np.stack([laws.losses, laws.losses**2, np.abs(laws.losses)])
        self._plain = bool(np.all((self._lower == self._upper) | (self._weight == 1.0)))
        self._same = bool(np.all(self._lower == self._upper))
        # Searches come back to orders that they have been at.
        self._moments: dict[float, Moments] = {}
        self._last: tuple[float, _Tilted] | None = None
        self._used = np.where(laws.probabilities > 0, laws.losses, 0.0)
        self._ends = np.max(self._used, axis=1), np.min(self._used, axis=1)

    @property
    def infinite(self) -> float:
        """Probability that some loss is infinite."""
        mixed = (1 - self._weight) * self.laws.infinite[self._lower] + self._weight * self.laws.infinite[self._upper]
        with np.errstate(divide="ignore"):
            return -math.expm1(float(np.sum(self._count * np.log1p(-np.minimum(mixed, 1.0)))))

    @property
    def highest(self) -> float:
        """The largest finite value of the sum."""
        used = self.laws.probabilities > 0
        tops = np.max(np.where(used, self.laws.losses, 0.0), axis=1)
        return float(np.sum(self._count * np.maximum(tops[self._lower], tops[self._upper])))

    def without_rare_low(self, probability: float) -> ComposedLoss:
        """The same with 0 in place of the lowest losses, which all releases together have with ``probability``."""
        low = np.cumsum(self.density(0.0)) <= probability
        return ComposedLoss(self.laws._replace(probabilities=np.where(low, 0.0, self.laws.probabilities)), self._terms)

    def exceeded(self, probability: float) -> float:
        """The smallest positive atom that releases exceed with a summed probability of at most ``probability``."""
        beyond = np.cumsum(self.density(0.0)[::-1])[::-1]
        enough = np.flatnonzero((np.append(beyond[1:], 0.0) <= probability) & (self.laws.losses > 0))
        return float(self.laws.losses[enough[0]])

    def moments(self, order: float) -> Moments:
        """The tilt of ``order``, any real number."""
        found = self._moments.get(order)
        if found is None:
            found = self._moments[order] = self._computed(order)
        return found

    def _computed(self, order: float) -> Moments:
        logs, weights, summed = self._tilted(order)
        total = self._of_terms(logs)
        share = self._shares(logs, total)
        first, second, absolute = np.einsum("lj,kj->kl", weights, self._powers)
        mean = self._mixed(first, share)
        variance = np.maximum(self._mixed(second, share) - mean**2, 0.0)
        sums = (total, mean, variance, self._mixed(absolute, share), self._mixed(summed, share))
        return Moments(order, *(float(np.add.reduce(self._count * each)) for each in sums))

    def density(self, order: float) -> FloatArray:
        """Number of releases, tilted by ``order``, at each of the atoms: shape [atoms]."""
        logs, weights, _ = self._tilted(order)
        share = self._shares(logs, self._of_terms(logs))
        uses = np.bincount(self._lower, self._count * (1 - share), minlength=logs.size)
        uses += np.bincount(self._upper, self._count * share, minlength=logs.size)
        return np.asarray(np.sum(uses[:, None] * weights, axis=0))

    def spectrum(self, order: float, step: float, count: int, rounding: float) -> tuple[ComplexArray, FloatArray]:
        """log of M(order + i n step) / M(order), for n = 0, ..., count - 1, and how much larger its real part may be.

        It is a sum of log(1 + f) over releases. A factor that is known up to ``blur`` is at most abs(1 + f) + blur,
        also where it is all but 0. Here f = sum_j w_j (exp(i s l_j) - 1) has, in units of ``rounding``, errors from
        angles and sums, at most those of one addition an atom, times w_j s abs(l_j); from exponents, which are in
        proportion to order abs(l_j) and to the logarithms; and from what the weights are divided by.
        """
        logs, weights, summed = self._tilted(order)
        total = self._of_terms(logs)
        share = self._shares(logs, total)
        found = _turned(weights, self.laws.losses, step, count)
        absolute = np.einsum("lj,j->l", weights, self._powers[2])
        level = self._mixed(100 * (order * absolute + summed) + 8 * np.abs(logs), share)
        slope = (self.laws.losses.size + 110) * self._mixed(absolute, share)
        # And from the shares of mixtures.
        doubt = 10 + np.abs(self._log_weights[1]) + 2 * np.abs(logs[self._upper]) + 2 * np.abs(total)
        slope += share * doubt * (absolute[self._lower] + absolute[self._upper])
        result, larger = np.zeros(count, dtype=np.complex128), np.zeros(count)
        frequencies = step * np.arange(count)
        for k, (lower, upper, part, times) in enumerate(zip(self._lower, self._upper, share, self._count)):
            own = _log1p(found[upper] if part == 1 else (1 - part) * found[lower] + part * found[upper])
            blur = rounding * (level[k] + slope[k] * frequencies)
            result += times * own
            larger += times * (np.log1p(blur * np.exp(-own.real)) + 8 * rounding * np.abs(own))
        return result, larger

    def _tilted(self, order: float) -> _Tilted:
        if self._last is None or self._last[0] != order:
            self._last = order, self._tilt(order)
        return self._last[1]

    def _tilt(self, order: float) -> _Tilted:
        probabilities, infinite = self.laws.probabilities, self.laws.infinite
        exponents = order * self._used
        near = order * self._ends[0 if order >= 0 else 1] < _MOST_EXPONENT
        if not near.all():
            exponents = np.where(near[:, None], exponents, 0.0)
        moved = probabilities * np.expm1(exponents)
        excess = np.add.reduce(moved, axis=1) - infinite
        # Each law by itself: what is lost by logarithms is nothing to large losses, and much to many small ones.
        near &= excess > -0.9
        logs = np.log1p(np.maximum(excess, -0.9))
        summed = np.add.reduce(np.abs(moved), axis=1) * np.exp(-logs)
        exponents -= logs[:, None]
        if not near.all():
            exponents = np.where(near[:, None], exponents, 0.0)
        with np.errstate(under="ignore"):
            weights = probabilities * np.exp(exponents)
        if near.all():
            return _Tilted(logs, weights, summed)
        far, tilted = self._by_logarithms(order)
        return _Tilted(np.where(near, logs, far), np.where(near[:, None], weights, tilted), np.where(near, summed, 2.0))

    def _by_logarithms(self, order: float) -> tuple[FloatArray, FloatArray]:
        """Logarithms and weights of a tilt whose exp(order loss) may overflow."""
        rest = np.maximum(1.0 - self.laws.infinite - np.sum(self.laws.probabilities, axis=1), 0.0)
        tilted = self._log_probabilities + order * self.laws.losses
        peak = np.maximum(np.max(tilted, axis=1), np.log(rest + _TINIEST))
        with np.errstate(under="ignore"):
            sums = np.sum(np.exp(tilted - peak[:, None]), axis=1) + rest * np.exp(-np.maximum(peak, -_MOST_EXPONENT))
            logs = peak + np.log(np.maximum(sums, _TINIEST))
            return logs, np.exp(tilted - logs[:, None])

    def _of_terms(self, logs: FloatArray) -> FloatArray:
        """log E exp(order loss) of each term, from those of the laws."""
        if self._plain:
            return np.asarray(logs[self._upper])
        far = np.logaddexp(self._log_weights[0] + logs[self._lower], self._log_weights[1] + logs[self._upper])
        near = np.abs(logs) < 1.0
        excess = np.expm1(np.where(near, logs, 0.0))
        mixed = np.log1p((1 - self._weight) * excess[self._lower] + self._weight * excess[self._upper])
        single: FloatArray = np.where(near[self._lower] & near[self._upper], mixed, far)
        return np.where(self._lower == self._upper, logs[self._upper], single)

    def _shares(self, logs: FloatArray, total: FloatArray) -> FloatArray:
        """The probability, once tilted, that a term's losses follow its upper law."""
        if self._plain:
            return np.ones(self._count.size)
        share: FloatArray = np.minimum(np.exp(self._log_weights[1] + logs[self._upper] - total), 1.0)
        return np.where((self._lower == self._upper) | (self._weight == 1.0), 1.0, share)

    def _mixed(self, values: FloatArray, share: FloatArray) -> FloatArray:
        if self._same:
            return np.asarray(values[self._upper])
        return np.asarray((1 - share) * values[self._lower] + share * values[self._upper])


def _turned(weights: FloatArray, losses: FloatArray, step: float, count: int) -> ComplexArray:
    """sum_j weights[l, j] (exp(i n step losses[j]) - 1) for all laws l and n = 0, ..., count - 1.

    With n = a B + b it is one table of products: exp(i(x + y)) - 1 = u v + u + v, u = exp(ix) - 1, v = exp(iy) - 1,
    where nothing cancels for small losses.
    """
    from gossamer.privacy.accounting.turned_sums import add_products  # slow to import

    width = max(math.isqrt(count), 1)
    result = np.zeros((weights.shape[0], math.ceil(count / width), width), dtype=np.complex128)
    for first in range(0, losses.size, _BLOCK):
        block = slice(first, first + _BLOCK)
        near = _rotation(step * np.arange(width)[:, None] * losses[block])
        columns = np.ascontiguousarray(near.real.T), np.ascontiguousarray(near.imag.T)
        for start in range(0, result.shape[1], _ROWS):
            rows = np.arange(start, min(start + _ROWS, result.shape[1]))
            far = _rotation(step * width * rows[:, None] * losses[block])
            for law, own in enumerate(weights[:, block]):
                scaled = far * own
                # Not a matrix product: its result would depend on the number of BLAS threads.
                real, imaginary = np.zeros((2, rows.size, width))
                add_products(scaled, *columns, real, imaginary)
                sums = np.sum(scaled, axis=1)[:, None]
                result.real[law, rows] += real + sums.real
                result.imag[law, rows] += imaginary + sums.imag
        for law, own in enumerate(weights[:, block]):
            result[law] += np.sum(near * own, axis=1)
    return result.reshape(weights.shape[0], -1)[:, :count]


_ROWS, _BLOCK = 32, 8192  # frequencies and atoms at a time: tables of a few dozen megabytes


def _rotation(angles: FloatArray) -> ComplexArray:
    """exp(i angle) - 1."""
    result = np.empty(angles.shape, dtype=np.complex128)
    half = np.sin(angles / 2)
    result.real = -2 * half**2
    result.imag = np.sin(angles)
    return result


def _log1p(values: ComplexArray) -> ComplexArray:
    """log(1 + value), exact for small ones and for those near -1; no less than -600 where it would be infinite."""
    size = values.real * (2 + values.real) + values.imag**2
    near = size > -0.5
    modulus = np.log1p(np.where(near, size, 0.0)) / 2
    with np.errstate(divide="ignore"):
        modulus = np.where(near, modulus, np.log(np.hypot(1 + values.real, values.imag)))
    return np.maximum(modulus, _LEAST_LOG) + 1j * np.arctan2(values.imag, 1 + values.real)


_ROUNDING = float(np.finfo(np.float64).eps)
_FALL = 34.0  # the smoothing's exponent at the last frequency
_SUMMED = 1e-14  # relative, on up to 2^17 terms that are added up in pairs


def frequencies(period: float, smoothing: float) -> int:
    """Number of frequencies of a Fourier sum: from the last on, the smoothing leaves less than exp(-`_FALL`)."""
    return math.ceil(math.sqrt(2 * _FALL) / smoothing / (2 * math.pi / period)) + 1


class FourierBound:
    """Upper bounds of the divergence of a sum of losses near the loss that the order belongs to.

    Parameters
    ----------
    loss : ComposedLoss
        The sum.
    order : float
        Order at which the sum is taken, above 0.
    period : float
        W of the module's docstring.
    smoothing : float
        mu of the Gaussian release that is composed with the others.
    """

    def __init__(self, loss: ComposedLoss, order: float, period: float, smoothing: float) -> None:
        self._order, self._period, self._smoothing = order, period, smoothing
        self.infinite, self._highest = loss.infinite, loss.highest
        self._moments = moments = loss.moments(order)
        step, self.count = 2 * math.pi / period, frequencies(period, smoothing)
        self._frequencies = step * np.arange(self.count)
        spectrum, larger = loss.spectrum(order, step, self.count, _ROUNDING)
        z = order + 1j * self._frequencies
        poles = np.log(z / order) + np.log((z + 1) / (order + 1))
        self._terms = spectrum - poles
        # What rounding may have taken from the logarithms of the terms' sizes, and from that of M(order).
        self._larger = larger + _ROUNDING * 8 * (np.abs(spectrum) + np.abs(poles) + 2)
        self._start = _ROUNDING * (40 * (order * moments.absolute + moments.summed) + 8 * (abs(moments.log) + 1))

    def log_delta(self, epsilon: float, smoother: float = 1.0) -> float:
        """log of an upper bound of the divergence at ``epsilon``, what is infinite left out.

        ``smoother``, at least 1, is a factor on the plan's smoothing.
        """
        if epsilon > self._highest * (1 + 1e-12):
            return -math.inf
        order, period, mu = self._order, self._period, self._smoothing * smoother
        s = self._frequencies
        exponents = self._terms - (mu * s) ** 2 / 2 + 1j * s * (mu**2 * (order + 0.5) - epsilon)
        larger = self._larger + _ROUNDING * 8 * (s * (abs(epsilon) + mu**2 * (order + 0.5)) + (mu * s) ** 2)
        with np.errstate(under="ignore"):
            terms = np.exp(exponents)
            sizes = np.abs(terms)
            lost = np.exp(np.minimum(exponents.real + larger, _MOST_EXPONENT))
            errors = np.where(larger < 1, sizes * np.expm1(np.minimum(larger, 1.0)), lost)
        total = float(np.sum(terms.real[1:])) * 2 + 1.0 + 2 * float(np.sum(errors)) + _SUMMED * float(np.sum(sizes))
        last = float(s[-1])
        left_out = period / math.pi * order * (order + 1) * math.exp(-((mu * last) ** 2) / 2) / (mu**2 * last**3)
        factor = self._moments.log - order * epsilon + _ROUNDING * 8 * (abs(self._moments.log) + order * abs(epsilon))
        found = math.log(max(total + left_out, _TINIEST)) - math.log(period * order * (order + 1))
        found += order * (order + 1) * mu**2 / 2
        # Chernoff's bound, exp(order (L - epsilon)) in place of what exceeds epsilon, where the sum is lost in errors.
        return factor + self._start + (min(found, 0.0) if math.isfinite(found) else 0.0)

    def delta(self, epsilon: float, smoother: float = 1.0) -> float:
        """An upper bound of the divergence at ``epsilon``."""
        return min(math.exp(min(self.log_delta(epsilon, smoother), 0.0)) + self.infinite, 1.0)
