"""Canaries: examples that take part in a training run only if a fair coin says so, for an audit of that run.

Each canary owns a slot of the training data. What a slot holds when its coin says "out" follows from the neighbouring
relation of the guarantee that is audited:

| relation | coin says in | coin says out |
|---|---|---|
| add or remove one | the canary | nothing: the slot is blank, it is sampled as any other and has no gradient |
| replace one | the canary | the example that was there |

so the two outcomes of one coin are neighbours, whatever the other coins say, and the guarantee of the run is one of the
map from coins to everything that was released. The guesses may use all of that. See `audit.epsilon_one_run`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, IndexArray
from gossamer.attacks.audit import REPORTED, LowerBound, epsilon_one_run
from gossamer.data.split import Split
from gossamer.errors import DataError, SpecError
from gossamer.objectives.objective import Objective
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.vectors import ALL, Coordinates

CanaryKind = Literal["random", "mislabelled"]


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
        What the coins said; secret until the guesses are made.
    """

    rows: IndexArray
    examples: Split
    included: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rows)


def choose_canaries(
    train: Split,
    candidates: IndexArray,
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
    candidates : ndarray of int64
        Rows that may become slots: those that some node holds.
    count : int
        m.
    kind : {"random", "mislabelled"}
        ``random``: independent signs times the root mean square of all features, so that canaries hardly resemble
        each other, with a random target. ``mislabelled``: the slot's own example under a wrong label.
    classes : int or None
        Of the targets.
    generator : Generator
        Of slots and canaries.
    coins : Generator
        Of the coins; must have nothing to do with the randomness of the run.

    Raises
    ------
    SpecError
        If there are not so many rows, or the kind does not fit the data.
    """
    if not 0 < count <= len(candidates):
        raise SpecError(f"expected 1 to {len(candidates)} canaries, one for each example at most, found {count}")
    if kind == "mislabelled" and classes is None:
        raise SpecError("real targets have no wrong labels; take random canaries")
    if kind == "random" and train.sparse:
        raise SpecError("random canaries are dense, and these features are sparse; take mislabelled ones")
    rows = np.sort(generator.choice(candidates, count, replace=False)).astype(np.int64)
    features: Any = train.features[rows]
    targets: Any = train.targets[rows]
    if kind == "mislabelled":
        assert classes is not None
        targets = (targets + generator.integers(1, classes, count)) % classes
    else:
        scale = float(np.sqrt(np.mean(np.square(train.features, dtype=np.float64))))
        features = (scale * generator.choice([-1.0, 1.0], features.shape)).astype(np.float32)
        targets = generator.permutation(targets) if classes is None else generator.integers(0, classes, count)
    return Canaries(rows, Split(features, targets.astype(train.targets.dtype)), coins.random(count) < 0.5)


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


def gradient_scores(
    objective: Objective,
    model: FloatArray,
    released: FloatArray,
    canaries: Split,
    clip: float,
    where: Coordinates = ALL,
) -> npt.NDArray[np.float64]:
    """Inner products of one released mean gradient with the canaries' own clipped gradients, [canaries].

    Parameters
    ----------
    objective : Objective
        What is minimised.
    model : ndarray [size]
        At which the gradient was taken.
    released : ndarray [size]
        As the data side answered it, with the regulariser's gradient and, behind it, a count if there is one.
    canaries : Split
        The canaries of the node that released it.
    clip : float
        Of that release.
    where : Coordinates
        Those that it has, of every D-th, where it is D times the gradient.
    """
    models = np.broadcast_to(model, (len(canaries), objective.size))
    own = objective.clipped_gradients(models, canaries, list(np.arange(len(canaries))[:, None]), clip).sums
    decay = where.step * objective.l2 * model[where.slice].astype(np.float64)
    seen = released[: where.count(objective.size)].astype(np.float64) - decay
    return own[:, where.slice].astype(np.float64) @ seen


def judge(
    canaries: Canaries,
    scores: npt.NDArray[np.float64],
    guesses: int,
    delta: float,
    relation: NeighboringRelation,
    confidence: float = REPORTED,
) -> tuple[int, LowerBound]:
    """Guess the coins from scores, then count and bound.

    The half of the guesses with the highest scores say "in", the other half, with the lowest, "out"; about the canaries
    between them nothing is said. Scores that are equal are taken in the order of the slots, and one that is not a
    number is the lowest.

    Parameters
    ----------
    canaries : Canaries
        Whose coins are guessed.
    scores : ndarray [m]
        Larger where a canary seems included. They may use all that was released, and nothing else.
    guesses : int
        r, fixed before the run.
    delta, relation, confidence
        Of the bound.

    Returns
    -------
    correct : int
    bound : LowerBound

    Raises
    ------
    DataError
        If there are not so many canaries as guesses and scores.
    """
    if not 0 <= guesses <= len(canaries) or len(scores) != len(canaries):
        raise DataError(f"expected one score for each of {len(canaries)} canaries and no more guesses, found {guesses}")
    order = np.argsort(np.nan_to_num(scores, nan=-np.inf), kind="stable")
    out, ins = order[: guesses // 2], order[len(order) - (guesses - guesses // 2) :]
    correct = int(canaries.included[ins].sum() + (~canaries.included[out]).sum())
    return correct, epsilon_one_run(len(canaries), guesses, correct, delta, relation, confidence)
