"""Canaries: examples that take part in a training run only if a fair coin says so, for an audit of that run.

Each canary owns a slot of the training data. What a slot holds when its coin says "out" follows from the neighbouring
relation of the guarantee that is audited:

| relation | coin says in | coin says out |
|---|---|---|
| add or remove one | the canary | nothing: the slot is blank, it is sampled as any other and has no gradient |
| replace one | the canary | the example that was there |

so the two outcomes of one coin are neighbours, whatever the other coins say, and the guarantee of the run is one of the
map from coins to everything that was released. The guesses may use all of that. See `one_run.epsilon_one_run`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from gossamer.arrays import BoolArray, FloatArray, Floats, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError

CanaryKind = Literal["random", "mislabelled"]

_NEIGHBOURS = 64
"""Slots whose spread stands for that of all."""
_MOST_TURNED = 2048
"""Features of which a basis is made, within seconds."""
_LENGTH = 3.0
"""Length of random canaries, in root mean squares of the data's."""
_SURE = 1e6
"""The most that one release can say: without noise it may say all."""


@dataclass(frozen=True, eq=False)
class Canaries:
    """Canaries, their slots and their coins.

    Attributes
    ----------
    rows : ndarray [m] of int64
        The rows of the training split that are the slots, ascending; public.
    examples : Split
        The canaries, one a slot; known to the auditor.
    included : ndarray [m] of bool
        Outcomes of the coins; secret until the guesses are made.
    """

    rows: IndexArray
    examples: Split
    included: BoolArray

    def __len__(self) -> int:
        return len(self.rows)


def choose_canaries(
    train: Split,
    held: IndexArray,
    count: int,
    kind: CanaryKind,
    classes: int | None,
    generator: np.random.Generator,
    coins: np.random.Generator,
) -> Canaries:
    """Make ``count`` canaries.

    Parameters
    ----------
    train : Split
        The training examples.
    held : ndarray of int64
        Rows that may become slots: those that nodes hold, one node's after another's.
    count : int
        m.
    kind : {"random", "mislabelled"}
        ``random``: features in directions of a random basis, each direction with one label after the other, so that
        the gradients of a node's canaries are as good as orthogonal, and three times as long as the data's, so that
        these are longer than the clip and what they share by an intercept is little. ``mislabelled``: the slot's own
        example under a wrong label.
    classes : int or None
        Number of classes of the targets.
    generator : Generator
        Generator of slots and canaries.
    coins : Generator
        Generator of the coins; must have nothing to do with the randomness of the run.

    Raises
    ------
    SpecError
        If there are not so many rows, or the kind does not fit the data.
    """
    if not 0 < count <= len(held):
        raise SpecError(f"expected 1 to {len(held)} canaries, one for each example at most, found {count}")
    if kind == "mislabelled" and classes is None:
        raise SpecError("real targets have no wrong labels; take random canaries")
    if kind == "random" and train.sparse:
        raise SpecError("random canaries are dense, and these features are sparse; take mislabelled ones")
    rows = np.sort(generator.choice(np.sort(held), count, replace=False)).astype(np.int64)
    features: Any = train.features[rows]
    targets: Any = train.targets[rows]
    if kind == "mislabelled":
        assert classes is not None
        targets = (targets + generator.integers(1, classes, count)) % classes
    else:
        order = np.argsort(np.argsort(np.argsort(held)[np.searchsorted(np.sort(held), rows)]))
        basis = _basis(math.prod(features.shape[1:]), count, generator)
        length = _LENGTH * float(np.sqrt(np.mean(np.square(train.features, dtype=np.float64)) * basis.shape[1]))
        features = (length * basis[order % len(basis)]).astype(np.float32).reshape(features.shape)
        if classes is None:
            targets = generator.permutation(targets)
        else:
            targets = (generator.integers(0, classes, len(basis))[order % len(basis)] + order // len(basis)) % classes
    return Canaries(rows, Split(features, targets.astype(train.targets.dtype)), coins.random(count) < 0.5)


def _basis(size: int, count: int, generator: np.random.Generator) -> FloatArray:
    """At most ``count`` orthonormal vectors of ``size`` numbers; of many numbers random ones, which are nearly so."""
    vectors = generator.standard_normal((min(size, count), size))
    if size <= _MOST_TURNED:
        return np.ascontiguousarray(np.linalg.qr(vectors.T)[0].T)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def plant(train: Split, canaries: Canaries) -> Split:
    """The training examples with the included canaries in their slots; the other slots keep what they hold."""
    rows = canaries.rows[canaries.included]
    targets: Any = train.targets.copy()
    targets[rows] = canaries.examples.targets[canaries.included]
    features: Any = train.features
    if not train.sparse:  # sparse canaries are mislabelled ones, which have their slots' own features
        features = features.copy()
        features[rows] = canaries.examples.features[canaries.included]
    return Split(features, targets)


class Sum(NamedTuple):
    """One released sum over a sample of a node's examples, as its auditor sees it.

    Attributes
    ----------
    seen : ndarray [coordinates]
        Sum of the clipped gradients of a sample, with noise.
    inside, outside : ndarray [slots, coordinates]
        Clipped gradients that slots have with their canary and without it; zero where that is a blank slot.
    others : ndarray [others, coordinates]
        Gradients of some examples in no slot.
    each : float
        Number of examples that each of ``others`` stands for.
    rate : float
        Probability with which an example is sampled.
    """

    seen: FloatArray
    inside: FloatArray
    outside: FloatArray
    others: FloatArray
    each: float
    rate: float

    def log_likelihood_ratios(self) -> Floats:
        """Logarithms of how much likelier the sum is with each canary than without it, [slots].

        With g a gradient of a slot, and y the inner product of g with the sum, less the mean of all that is not of
        this slot, y is about N(|g|^2, V) if the slot was sampled and N(0, V) if it was not. V is the variance of what
        is not expected of the sum, per coordinate, as it was seen and not as it was promised, times |g|^2; and that of
        the other examples along g. So of a rate q the likelihood is, up to a factor that all g have in common::

            1 - q + q exp((y |g|^2 - |g|^4/2) / V)

        The ratio is that of the gradients inside and outside. Whether the approximation is good decides how powerful
        guesses are, and never whether a bound from them is true.
        """
        expected = self.rate * (0.5 * (self.inside + self.outside).sum(axis=0) + self.each * self.others.sum(axis=0))
        surprise = self.seen - expected
        inside, outside = (self._log_likelihoods(own, surprise) for own in (self.inside, self.outside))
        return np.clip(inside - outside, -_SURE, _SURE)

    def _log_likelihoods(self, own: FloatArray, surprise: FloatArray) -> Floats:
        squares = _products(own, own)
        if not squares.any():
            return squares
        y = own @ surprise + self.rate / 2 * (_products(self.inside, own) + _products(self.outside, own))
        variance = float(np.mean(np.square(surprise, dtype=np.float64))) * squares + self._crowd(own)
        with np.errstate(divide="ignore", invalid="ignore"):  # a rate of 1; a gradient or a variance of 0
            sampled = np.nan_to_num((y * squares - squares**2 / 2) / variance, nan=0.0, posinf=_SURE, neginf=-_SURE)
            found: Floats = np.logaddexp(np.log1p(-self.rate), np.log(self.rate) + sampled)
        return found

    def _crowd(self, own: FloatArray) -> Floats:
        """Variance of the inner products of each of ``own`` with what the other slots and examples add to the sum."""
        count, half = len(own), self.rate / 2
        some = np.linspace(0, count - 1, min(_NEIGHBOURS, count)).astype(np.int64)
        inside, outside = ((side[some] @ own.T if side.any() else 0.0) for side in (self.inside, self.outside))
        spread = np.asarray(half * (inside**2 + outside**2) - (half * (inside + outside)) ** 2, np.float64)
        spread[np.arange(len(some)), some] = 0.0
        others = self.each * np.square(self.others @ own.T).sum(axis=0)
        return np.asarray(spread.sum(axis=0) * (count / len(some)) + self.rate * (1 - self.rate) * others)


def _products(left: FloatArray, right: FloatArray) -> Floats:
    """Inner products of rows."""
    return np.asarray(np.einsum("ij,ij->i", left, right, dtype=np.float64))


def correct_guesses(canaries: Canaries, scores: Floats, guesses: int) -> int:
    """Number of coins that are guessed right from scores.

    The half of the guesses with the highest scores say "in", the other half, with the lowest, "out"; about the canaries
    between them nothing is said. Scores that are equal are taken in the order of the slots, and one that is not a
    number is the lowest.

    Parameters
    ----------
    canaries : Canaries
        Canaries whose coins are guessed.
    scores : ndarray [m]
        Larger where a canary seems included. They may use all that was released, and nothing else.
    guesses : int
        r, fixed before the run.

    Raises
    ------
    DataError
        If there are not so many canaries as guesses and scores.
    """
    if not 0 <= guesses <= len(canaries) or len(scores) != len(canaries):
        raise DataError(f"expected one score for each of {len(canaries)} canaries and no more guesses, found {guesses}")
    order = np.argsort(np.nan_to_num(scores, nan=-np.inf), kind="stable")
    out, ins = order[: guesses // 2], order[len(order) - (guesses - guesses // 2) :]
    return int(canaries.included[ins].sum() + (~canaries.included[out]).sum())
