"""Figures of releases together, by their privacy losses: an epsilon for a delta, or a delta for an epsilon.

Of a single release the divergence is known in closed form. Of more, losses are discretised and
composed (`composition`), as is chosen below. The two directions of a pair, P from Q and Q from P, are
composed separately, and the larger figure counts.

Choice of how a sum of privacy losses is discretised and its Fourier sum taken, so that the bound is close.

Whatever is chosen here, the figures are upper bounds; see `composition`. The choices follow the
answer, which an estimate gives: atoms are placed where the releases' losses, tilted towards the answer,
are; and losses that alone carry the sum beyond it, however low all others are, count as infinite.

Saddle point of the Fourier integral of a composed loss, near which its divergence comes from.

Estimates, good to some tens of percent. They decide how a bound is computed, never what is proved: see `composition`.
The integrand at order t is exp(K(t) - t e) / (t (t + 1)) with K = log E exp(t L), and its saddle point is where

    K'(t) = e + 1/t + 1/(t + 1).

Reference: Butler, "Saddlepoint approximations with applications", Cambridge 2007, chapters 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from gossamer.arrays import FloatArray
from gossamer.privacy.accounting import composition
from gossamer.privacy.pairs import TOLERANCE, Profile, ReleaseGroup

_LEAST_LOG_ORDER, _MOST_LOG_ORDER = math.log(1e-15), math.log(1e18)  # of the logarithm of an order


class Saddle(NamedTuple):
    """A saddle point.

    Attributes
    ----------
    order : float
        Order at which it is.
    epsilon : float
        The loss it belongs to.
    log_delta : float
        Logarithm of the divergence there, roughly; what is infinite left out.
    """

    order: float
    epsilon: float
    log_delta: float


def at_epsilon(loss: composition.ComposedLoss, epsilon: float, start: float) -> Saddle:
    """The saddle point of ``epsilon``; the search starts at the order ``start``."""

    def ahead(log_order: float) -> float:
        moments = loss.moments(math.exp(log_order))
        return _finite(_tilted_epsilon(moments)) - epsilon

    order = math.exp(_crossing(ahead, math.log(start)))
    return Saddle(order, epsilon, _log_delta(loss.moments(order), epsilon))


def at_delta(loss: composition.ComposedLoss, log_delta: float, start: float) -> Saddle:
    """The saddle point of the loss >= 0 whose divergence is exp(log_delta), roughly."""

    def ahead(log_order: float) -> float:
        moments = loss.moments(math.exp(log_order))
        return log_delta - _finite(_log_delta(moments, _tilted_epsilon(moments)), -1e300)

    order = math.exp(_crossing(ahead, math.log(start)))
    # Not the tilted mean, which leaps where few releases have a large loss: there the root is of the leap.
    epsilon = (_log_delta(loss.moments(order), 0.0) - log_delta) / order
    if not 0 < epsilon < math.inf:
        return at_epsilon(loss, 0.0, order)
    return Saddle(order, epsilon, log_delta)


def least_sum(loss: composition.ComposedLoss, surprise: float) -> float:
    """A loss <= 0 below which the sum lies with a probability of about exp(-surprise) or less.

    Single losses as low as are rarer than that among all releases are left out: they would hide how low the others go.
    """
    usual = loss.without_rare_low(math.exp(-surprise))
    order, best = 1.0, math.inf
    while order < 1e18:
        found = (usual.moments(-order).log + surprise) / order
        if not found < best:
            break
        order, best = order * 2, found
    return -max(best, 0.0)


def period_of(loss: composition.ComposedLoss, saddle: Saddle, surprise: float) -> tuple[float, float]:
    """A period and an order whose Fourier sum repeats exp(-surprise) of the divergence after it, or less.

    Orders below the saddle point's need shorter periods where tails are heavy.
    """
    above = [(other, _finite(_surplus(loss, saddle, other))) for other in (saddle.order * part for part in _ABOVE)]
    below = [(0.0, -saddle.log_delta), (saddle.order * _BELOW, _surplus(loss, saddle, saddle.order * _BELOW))]

    def needed(order: float) -> float:
        return max(
            min(max(surplus + surprise, 1.0) / abs(other - order) for other, surplus in side) for side in (above, below)
        )

    return min((needed(saddle.order * part), saddle.order * part) for part in _CONTOURS)


_ABOVE, _BELOW, _CONTOURS = (1.1, 1.35, 1.75, 2.5, 4.0, 10.0, 100.0), 0.4, (1.0, 0.8, 0.6)


def _surplus(loss: composition.ComposedLoss, saddle: Saddle, order: float) -> float:
    """log of Chernoff's bound at ``order`` over the divergence."""
    return loss.moments(order).log - order * saddle.epsilon - saddle.log_delta


def _tilted_epsilon(moments: composition.Moments) -> float:
    return moments.mean - 1 / moments.order - 1 / (moments.order + 1)


def _log_delta(moments: composition.Moments, epsilon: float) -> float:
    order = moments.order
    variance = moments.variance + order**-2 + (order + 1) ** -2
    return moments.log - order * epsilon - math.log(order * (order + 1)) - math.log(2 * math.pi * variance) / 2


def _finite(value: float, otherwise: float = 1e300) -> float:
    return value if math.isfinite(value) else otherwise


def _crossing(increasing: Callable[[float], float], start: float) -> float:
    """Find the order at which a function crosses 0, to a percent; the end of the range if it does not."""
    low = high = min(max(start, _LEAST_LOG_ORDER), _MOST_LOG_ORDER)
    width = 0.5
    if increasing(low) > 0:
        while low > _LEAST_LOG_ORDER and increasing(low := max(low - width, _LEAST_LOG_ORDER)) > 0:
            high, width = low, width * 2
        if increasing(low) > 0:
            return low
    else:
        while high < _MOST_LOG_ORDER and increasing(high := min(high + width, _MOST_LOG_ORDER)) <= 0:
            low, width = high, width * 2
        if increasing(high) <= 0:
            return high
    return float(brentq(increasing, low, high, xtol=1e-3, rtol=1e-3))


_EXCESS = 1e-5  # relative, on epsilon: what discretising may add, and what smoothing may add
_QUICK_EXCESS, _ROUGH_GUESS = 1e-3, 1e-2  # on delta, where a bound or an estimate will do that is not so close
_LEAST_EXCESS, _MOST_EXCESS = 1e-5, 2e-3  # the same, relative, on delta
_NEGLECTED = 16.0  # -log of the share of delta that cut-off tails may add
_HIDDEN = 12.0  # -log of the share of delta that may come of large losses which low ones would have made up for
_GUESSES, _ROUNDS, _AIMS, _PASSES, _NEW_ENDS = 12, 4, 3, 14, 8  # how often things are tried again
_NEAR = 3e-3  # of epsilons, times the order: as good as the same
_ROOT = 1e-9  # relative, on epsilon: of its search
_MOST_ATOMS, _MOST_MASSES, _MOST_FREQUENCIES, _MOST_PRODUCTS = 40_000, 400_000, 2**17, 1e9
_GROWTH = 4  # of the number of atoms, from one pass to the next
_NOTICED, _LESS = 6.0, 0.1  # twice the smoothing may add this many times the excess; if it adds more, less is taken
_LEAST_SHARE, _MOST_DOUBT = 1e-3, 14.0
_CRUDE = 1e-2  # on delta: not worth another search where it is less than the excess of epsilon
_MOST_DELTA = 0.99
_MOST_ORDER = 1e17  # a saddle point beyond belongs to a loss above all that the finite sum can be
_TINIEST = 1e-300
_REVEALING = 4  # releases that a coarse grid has losses of
_TAILS = (1 - 1e-9, 1 - 1e-4, 0.9, 0.5, 0.1, 1e-2, 1e-4, 1e-6, 1e-9, 1e-14)
_SAFE = 1e-8  # relative, on epsilon: rounding of single releases


class Releases:
    """P's losses to Q, of releases together.

    Parameters
    ----------
    groups : sequence of ReleaseGroup
        The releases.

    Attributes
    ----------
    highest : float
        The largest loss that they can have together; infinite if there is none.
    most_atoms : int
        The most that each of the discretised losses may have.
    atoms : list of (float, float)
        Largest losses of each different release, ahead and back; infinite if there is none.
    """

    def __init__(self, groups: Sequence[ReleaseGroup]) -> None:
        self._profiles = list(dict.fromkeys(profile for group in groups for profile in group[:2]))
        position = {profile: index for index, profile in enumerate(self._profiles)}
        self._terms = [
            composition.LawTerms(position[lower], position[upper], weight, n) for lower, upper, weight, n in groups
        ]
        self._number = sum(group.releases for group in groups)
        self.most_atoms = min(_MOST_ATOMS, _MOST_MASSES // len(self._profiles))
        self.atoms = [profile.largest(0.0) for profile in self._profiles]
        self._marked = self.atoms + _middles(self._profiles)
        tops = [ahead for ahead, _ in self.atoms]
        self.highest = math.fsum(n * max(tops[lower], tops[upper]) for lower, upper, _, n in self._terms)
        self._least = max(min(float(profile.forward(np.zeros(1))[0]) for profile in self._profiles) / 100, _TINIEST)

    def coarse(self, ahead: float, back: float) -> composition.LossGrid:
        """A first grid up to the loss ``ahead``, and down to -``back``."""
        return composition.coarse(self._least, ahead, back, self._marked)

    def composed(self, grid: composition.LossGrid) -> composition.ComposedLoss:
        """The sum of the losses, discretised."""
        return composition.ComposedLoss(composition.discretise(self._profiles, grid), self._terms)

    def largest(self, tail: float) -> tuple[float, float]:
        """Losses ahead and back that the releases, all of them, exceed with a probability of at most ``tail``."""
        ends = [profile.largest(max(tail / self._number, _TINIEST)) for profile in self._profiles]
        return max(self._least, *(ahead for ahead, _ in ends)), max(self._least, *(back for _, back in ends))


def _middles(profiles: Sequence[Profile]) -> list[tuple[float, float]]:
    """Losses among those of the most revealing releases: a coarse grid may have all of these in one cell."""
    revealing = sorted(profiles, key=lambda profile: profile.largest(0.5))[-_REVEALING:]
    return [profile.largest(tail) for profile in revealing for tail in _TAILS]


class _Aim(NamedTuple):
    """Aim that a sum is discretised for, and how smooth it is made.

    Attributes
    ----------
    epsilon : float
        The loss that counts.
    least_excess : float
        Excess that discretising and smoothing may each add to delta at least, relative to it.
    most_products : float
        Largest number of products of atoms and frequencies that may be computed.
    delta : float or None
        Divergence at that loss, if it is known.
    smoothing : float
        Share of the usual size.
    """

    epsilon: float
    least_excess: float
    most_products: float
    delta: float | None = None
    smoothing: float = 1.0


class _Found(NamedTuple):
    loss: composition.ComposedLoss
    saddle: Saddle
    excess: float  # of delta, relative: allowed for smoothing
    trust: float  # the factor by which the saddle point was thought to overestimate the finite part of delta


def _epsilon_of(releases: Releases, delta: float, finest: float) -> float:
    """The smallest epsilon >= 0 that is found for ``delta``; infinite if none is."""
    delta = min(delta, _MOST_DELTA)  # one nearer to 1 takes more digits than a bound of delta has
    epsilon, excess = _guess(releases, delta), _QUICK_EXCESS
    for _ in range(_ROUNDS):
        bound, order = _bound(releases, epsilon, excess)
        before, epsilon = epsilon, _root(bound, epsilon, order, delta)
        if math.isinf(epsilon):
            # An estimate of delta that was too large may have let too much count as infinite: it is known here.
            bound, order = _bound(releases, before, excess, delta=delta)
            epsilon = _root(bound, before, order, delta)
        if math.isinf(epsilon):
            break
        # What was chosen for one epsilon is as good as what would be chosen for another that is so near.
        crude = _EXCESS * order * epsilon > _CRUDE  # a percent of delta does not matter to epsilon
        near = max(_NEAR / order, epsilon * (_EXCESS / 10 if crude else _ROOT))
        if abs(epsilon - before) <= near and (excess == finest or epsilon == 0 or crude):
            break
        if abs(epsilon - before) * order < 1 and not crude:
            excess = finest
    return epsilon * (1 + _SAFE)


def _delta_of(releases: Releases, epsilon: float, precision: Precision) -> float:
    """The smallest delta that is found for ``epsilon``."""
    if epsilon > releases.highest * (1 + _SAFE):
        return 0.0
    return _bound(releases, epsilon, precision.finest, precision.products)[0].delta(epsilon)


def _bound(
    releases: Releases,
    epsilon: float,
    least_excess: float,
    most_products: float = _MOST_PRODUCTS / 8,
    delta: float | None = None,
) -> tuple[composition.FourierBound, float]:
    """A bound that is close near ``epsilon``, and its saddle point's order."""
    aim = _Aim(epsilon, least_excess, most_products, delta)
    for _ in range(_AIMS):
        found = _tuned(releases, aim)
        plan, most = _plan(found, aim)
        bound = composition.FourierBound(found.loss, *plan)
        delta = bound.delta(epsilon)
        shrug = _EXCESS * epsilon * found.saddle.order  # a factor exp(shrug) on delta does not matter to epsilon
        rough = bound.count < most and bound.delta(epsilon, 2.0) > delta * (1 + _NOTICED * found.excess)
        if not rough and _trusted(found, epsilon, delta, shrug):
            break
        aim = aim._replace(delta=delta, smoothing=aim.smoothing * (_LESS if rough else 1.0))
    return bound, found.saddle.order


def _guess(releases: Releases, delta: float) -> float:
    """An epsilon that has ``delta``, roughly."""
    limit, back = releases.largest(delta * math.exp(-_NEGLECTED))
    end = releases.composed(releases.coarse(limit, back)).exceeded(delta / 4)
    order = 1.0
    for _ in range(_GUESSES):
        loss = releases.composed(releases.coarse(end, back))
        if loss.infinite > 0.9 * delta:
            if end == limit:
                break
            end = min(2 * end, limit)
            continue
        point = at_delta(loss, math.log(delta - loss.infinite), order)
        order, wanted = point.order, _end(loss, point, delta, limit)
        if 0.5 * end <= wanted <= 1.1 * end:
            return _better_guess(releases, releases.coarse(end, back), loss, point, delta)
        end = wanted
    return end


def _better_guess(
    releases: Releases, grid: composition.LossGrid, loss: composition.ComposedLoss, point: Saddle, delta: float
) -> float:
    """The same on finer grids, until they no longer matter to an estimate."""
    for _ in range(_PASSES):
        weights, factor = _weights(releases, loss, point), point.order * (point.order + 1) / 2
        added, best = (factor * part for part in composition.roughness(grid, weights))
        if added <= 3 * _ROUGH_GUESS or loss.infinite > 0.9 * delta:
            break
        atoms = min(math.ceil(math.sqrt(best / _ROUGH_GUESS)), _GROWTH * weights.losses.size, releases.most_atoms)
        grid = composition.refined(grid, weights, atoms)
        loss = releases.composed(grid)
        point = at_delta(loss, math.log(max(delta - loss.infinite, delta / 10)), point.order)
    return point.epsilon


def _weights(releases: Releases, loss: composition.ComposedLoss, point: Saddle) -> composition.AtomWeights:
    """Weights of the atoms: tilted; but beyond epsilon losses add what is linear in exp(-loss), as chords are."""
    losses = loss.laws.losses
    with np.errstate(under="ignore"):
        faded = np.exp(-point.order * np.maximum(losses - point.epsilon, 0.0))
        own = composition.LossGrid(
            *(np.array([loss for loss in side if loss < math.inf]) for side in zip(*releases.atoms))
        )
        return composition.AtomWeights(losses, loss.density(point.order) * faded, loss.density(0.0), own)


def _end(loss: composition.ComposedLoss, point: Saddle, delta: float, limit: float) -> float:
    """A largest loss: those beyond it bring the sum above epsilon almost surely, and count as infinite."""
    hidden = _HIDDEN + math.log(max(loss.infinite / max(delta, _TINIEST), 1e-4))
    return min(limit, max(point.epsilon - least_sum(loss, hidden), limit * _ROOT) * 1.1)


def _trusted(found: _Found, epsilon: float, delta: float, shrug: float) -> bool:
    """Whether the saddle point overestimates delta by at most twice what was thought, or by a factor exp(shrug)."""
    point = at_epsilon(found.loss, epsilon, found.saddle.order)
    return math.log(_overestimate(point, delta, found.loss.infinite)) <= max(math.log(2 * found.trust), shrug)


def _overestimate(point: Saddle, delta: float, infinite: float) -> float:
    """The factor by which a saddle point overestimates the finite part of ``delta``, at least 1.

    Where few releases' losses are large, most of its estimate is the probability that none is, which adds nothing.
    """
    finite = max(delta - infinite, _LEAST_SHARE * delta, _TINIEST)
    return math.exp(min(max(point.log_delta - math.log(finite), 0.0), _MOST_DOUBT))


def _tuned(releases: Releases, aim: _Aim) -> _Found:
    """The sum discretised for the loss ``aim.epsilon``."""
    limit, back = releases.largest(_TINIEST)
    end, order, trust = min(limit, aim.epsilon + _NEGLECTED), 1.0, 1.0
    grid = releases.coarse(end, back)
    for turn in range(_PASSES):
        loss = releases.composed(grid)
        point = at_epsilon(loss, aim.epsilon, order)
        order, size = point.order, loss.laws.losses.size
        if aim.delta is None:
            delta = math.exp(min(point.log_delta, 0.0)) + loss.infinite
        else:
            delta, trust = aim.delta, _overestimate(point, aim.delta, loss.infinite)
        if turn < _NEW_ENDS:
            # Squared, since a coarse grid may overestimate a small delta by a large factor.
            limit, back = releases.largest(delta**2 * math.exp(-_NEGLECTED))
            wanted = _end(loss, point, delta, limit)
            if not (0.7 if turn < _NEW_ENDS / 2 else 0.3) * end <= wanted <= 1.1 * end:
                end = wanted
                grid = releases.coarse(end, back)
                continue
        excess = min(max(_EXCESS * order * point.epsilon, _LEAST_EXCESS, aim.least_excess), _MOST_EXCESS)
        weights = _weights(releases, loss, point)
        added, best = (order * (order + 1) / 2 * part for part in composition.roughness(grid, weights))
        if added <= 1.5 * excess / trust or size >= releases.most_atoms or order > _MOST_ORDER:
            break
        atoms = min(math.ceil(math.sqrt(best / excess * trust)), _GROWTH * size, releases.most_atoms)
        grid = composition.refined(grid, weights, atoms)
    return _Found(loss, point, excess, trust)


def _plan(found: _Found, aim: _Aim) -> tuple[tuple[float, float, float], float]:
    """Choose the Fourier sum near the saddle point, and the most terms that it may have."""
    order = found.saddle.order
    period, moved = period_of(found.loss, found.saddle, math.log(10 / found.excess * found.trust))
    smoothing = aim.smoothing * math.sqrt(2 * found.excess / (order * (order + 1)))
    count = composition.frequencies(period, smoothing)
    most = min(_MOST_FREQUENCIES, aim.most_products / found.loss.laws.probabilities.size)
    return (moved, period, smoothing if count <= most else smoothing * count / most), most


def _root(bound: composition.FourierBound, start: float, order: float, delta: float) -> float:
    """Find the epsilon whose bound is ``delta``, rounded up, from ``start`` in steps of about 1 / ``order``."""
    if bound.infinite >= delta:
        return math.inf
    target = math.log(delta - bound.infinite)

    def excess(epsilon: float) -> float:
        found = bound.log_delta(epsilon) - target
        return 1e300 if math.isnan(found) else min(max(found, -1e300), 1e300)

    low = high = start
    width = max(0.1 / order, start * _ROOT)
    while excess(high) > 0:
        low, high, width = high, high + width, 2 * width
        if width > 1e3 * (start + 1 / order):
            return math.inf
    while low > 0 and excess(low) <= 0:
        low, high, width = max(low - width, 0.0), low, 2 * width
    if low == 0 and excess(0.0) <= 0:
        return 0.0
    root = float(brentq(excess, low, high, xtol=1e-300, rtol=_ROOT))
    further = 2 * _ROOT * high
    while excess(root) > 0 and root < high:
        root, further = min(root + further, high), 2 * further
    return root


class Precision(NamedTuple):
    """Closeness of figures of many releases to what they bound.

    Attributes
    ----------
    finest : float
        Least excess on delta, relative, that is aimed at.
    products : float
        Largest number of products of atoms and frequencies that a delta may take.
    merging : float
        Relative excess that merging kinds of releases may add (`analytic.TOLERANCE`).
    """

    finest: float
    products: float
    merging: float


FINE = Precision(0.0, _MOST_PRODUCTS, TOLERANCE)
QUICK = Precision(_QUICK_EXCESS, _MOST_PRODUCTS / 8, 10 * TOLERANCE)
"""Upper bounds as well, in a fraction of the time: deltas may be 1 % larger, and epsilons of many rates 0.25 %."""

_SUMS = 8  # Fourier sums that bound the deltas of many losses
_ROUNDING = 1e-10  # relative, on divergences: far more than their formulas lose
_SAFE_ALONE = 1e-7  # the same, on epsilons of a single release


@dataclass(frozen=True)
class Composition:
    """Releases composed: what (epsilon, delta) they satisfy together.

    Attributes
    ----------
    groups : sequence of ReleaseGroup
        Groups of releases, at least one.
    precision : Precision
        By default as close as can be.
    """

    groups: Sequence[ReleaseGroup]
    precision: Precision = FINE

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 that is proved here at ``delta``; infinite where there is none."""
        found, *others = self._directions()
        epsilon = _epsilon(found, delta, self.precision)
        for other in others:
            more = epsilon < math.inf and sum_of_divergences(other, 0.0) > delta
            if more and _delta(other, epsilon, QUICK) > delta:  # else a delta that is small enough is found quickly
                epsilon = max(epsilon, _epsilon(other, delta, self.precision))
        return epsilon

    def delta(self, epsilon: float) -> float:
        """The smallest delta that is proved here for ``epsilon`` >= 0."""
        found, *others = self._directions()
        delta = _delta(found, epsilon, self.precision)
        for other in others:
            quick = _delta(other, epsilon, QUICK)
            if quick > delta:
                delta = max(delta, quick if self.precision is QUICK else _delta(other, epsilon, self.precision))
        return delta

    def deltas(self, losses: FloatArray) -> FloatArray:
        """Deltas proved for many ``losses``, 0 or more and increasing: at most some percent larger than the least."""
        return np.asarray(np.max([_deltas(groups, losses) for groups in self._directions()], axis=0))

    def _directions(self) -> list[Sequence[ReleaseGroup]]:
        if all(profile.symmetric for group in self.groups for profile in group[:2]):
            return [self.groups]
        return [
            self.groups,
            [ReleaseGroup(Turned(g.lower), Turned(g.upper), g.weight, g.releases) for g in self.groups],
        ]


@dataclass(frozen=True)
class Turned:
    """The pair (Q, P) for the pair (P, Q)."""

    profile: Profile
    symmetric = False

    @property
    def rate(self) -> float:
        return self.profile.rate

    @property
    def family(self) -> Hashable:
        return type(self), self.profile.family

    def forward(self, losses: FloatArray) -> FloatArray:
        return self.profile.backward(losses)

    def backward(self, losses: FloatArray) -> FloatArray:
        return self.profile.forward(losses)

    def largest(self, tail: float) -> tuple[float, float]:
        ahead, back = self.profile.largest(tail)
        return back, ahead


def _epsilon(groups: Sequence[ReleaseGroup], delta: float, precision: Precision) -> float:
    if sum_of_divergences(groups, 0.0) <= delta:
        return 0.0
    if sum(group.releases for group in groups) > 1:
        return _epsilon_of(Releases(groups), delta, precision.finest)
    highest = max(profile.largest(delta)[0] for profile in groups[0][:2])
    return _least(lambda e: sum_of_divergences(groups, e) - delta, highest) * (1 + _SAFE_ALONE)


def _delta(groups: Sequence[ReleaseGroup], epsilon: float, precision: Precision) -> float:
    if sum(group.releases for group in groups) > 1:
        return _delta_of(Releases(groups), epsilon, precision)
    return min(sum_of_divergences(groups, epsilon), 1.0)


def _deltas(groups: Sequence[ReleaseGroup], losses: FloatArray) -> FloatArray:
    """The same in one direction: each Fourier sum bounds the losses around the one that it was taken for."""
    if sum(group.releases for group in groups) == 1:
        return np.array([min(sum_of_divergences(groups, float(loss)), 1.0) for loss in losses])
    releases = Releases(groups)
    middles = losses[np.linspace(0, losses.size - 1, _SUMS).round().astype(int)]
    found = np.ones(losses.size)
    for before, middle, after in zip([0.0, *middles[:-1]], middles, [*middles[1:], math.inf], strict=True):
        bound = _bound(releases, float(middle), _QUICK_EXCESS)[0]
        near = (before <= losses) & (losses <= after)
        found[near] = np.minimum(found[near], [bound.delta(float(loss)) for loss in losses[near]])
    found[0] = min(found[0], sum_of_divergences(groups, float(losses[0])))
    return found


def sum_of_divergences(groups: Sequence[ReleaseGroup], epsilon: float) -> float:
    """The sum of the releases' divergences at ``epsilon``, from above.

    Of a single release it is the divergence, and at 0 it is never below that of all releases together.
    """
    at = np.array([epsilon])
    total = math.fsum(
        group.releases * weight * float(profile.forward(at)[0])
        for group in groups
        for profile, weight in ((group.lower, 1 - group.weight), (group.upper, group.weight))
    )
    return total * (1 + _ROUNDING)


def _least(falling: Callable[[float], float], high: float) -> float:
    """The least number >= 0 at which ``falling`` is not above 0, rounded up; or ``high``, if it is above 0 before."""
    if falling(0.0) <= 0:
        return 0.0
    if falling(high) >= 0:
        return high
    found = float(brentq(falling, 0.0, high, xtol=1e-300, rtol=1e-13))
    while falling(found) > 0:
        found *= 1 + 1e-12
    return min(found, high)
