"""Inversion of what a spec's nodes would release: which examples come back, at which noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.arrays import FloatArray, IntArray
from gossamer.attacks.inversion import clipped_similarity, cosine_similarity, is_linear, recover_input
from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError, counted
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.preparation.private_scale import check_not_private
from gossamer.objectives.objective import Objective
from gossamer.privacy.mechanisms import L2Laplace, Mechanism, NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.randomness import derive
from gossamer.sides.home import Simulated
from gossamer.sides.plan import Samples
from gossamer.sides.pool import open_pool
from gossamer.sides.samples import ShardRows
from gossamer.vectors import Model

# Releases of known batches, as an observer of a data side sees them.


def released_gradients(
    objective: Objective, data: Split, batches: Sequence[IntArray], model: Model, mechanism: Mechanism, seed: int
) -> FloatArray:
    """The noisy mean gradient of each batch at ``model``, without the regulariser's part, as observers know it.

    Each batch is the whole shard of a data side of its own and is sampled with probability 1, so the release is the
    one that a run makes of such a batch. Observers know the model, so they can take the regulariser's gradient off.

    Parameters
    ----------
    objective : Objective
        Objective that is minimised.
    data : Split
        The training examples.
    batches : sequence of index arrays
        Rows of each batch, none of them empty.
    model : Model
        Model at which the gradients are taken.
    mechanism : Mechanism
        Clip and noise.
    seed : int
        Seed of the noise.

    Returns
    -------
    ndarray [batches, size]
    """
    names = [f"batch-{number}" for number in range(len(batches))]
    shards = {name: ShardRows(rows) for name, rows in zip(names, batches)}
    sides = open_pool(dict.fromkeys(names, Samples({}, enforced=False)), shards, objective, data, Simulated(seed))
    tickets = [
        sides.admit(name, Gradient(0, model, Query(Poisson(1.0), mechanism, float(len(rows)))))
        for name, rows in zip(names, batches)
    ]
    released = np.stack([np.asarray(answer.released.values) for answer in sides.compute(tickets)])
    return released - objective.l2 * np.asarray(model.values)


Method = Literal["auto", "linear", "matching"]

_NO_CLIP = 1.0
"""The clip of the levels compared where the spec has none."""


@dataclass(frozen=True)
class NoiseLevel:
    """Examples that came back at one level of noise.

    Attributes
    ----------
    name : str
        Name of the level, for tables and figures.
    mechanism : Mechanism
        Clip and noise.
    recovered : ndarray [groups, ...]
        One recovered example a batch, in the shape of an example.
    similarities : ndarray [groups] or None
        SSIM with the example of the batch that it is most like; None where examples are no pictures.
    cosines : ndarray [groups]
        Cosine similarity with the example of the batch that it is most like.
    """

    name: str
    mechanism: Mechanism
    recovered: FloatArray
    similarities: FloatArray | None
    cosines: FloatArray

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the recovered examples."""
        similarities = self.similarities
        return {
            "level": self.name,
            "mechanism": self.mechanism.describe(),
            "ssim": None if similarities is None else float(similarities.mean()),
            "ssim_each": None if similarities is None else similarities.tolist(),
            "cosine": float(self.cosines.mean()),
            "cosine_each": self.cosines.tolist(),
        }


@dataclass(frozen=True)
class Inversion:
    """An inversion of several batches at several levels of noise.

    Attributes
    ----------
    method : str
        ``linear`` or ``matching``.
    node : str
        Node whose examples they are.
    batch_size : int
        Examples in a batch.
    originals : ndarray [groups, ...]
        Example of each batch that the noise-free recovery is most like.
    low, high : float
        Range of the features.
    levels : tuple of NoiseLevel
        The first is without noise.
    """

    method: str
    node: str
    batch_size: int
    originals: FloatArray
    low: float
    high: float
    levels: tuple[NoiseLevel, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "method": self.method,
            "node": self.node,
            "examples": len(self.originals),
            "batch_size": self.batch_size,
            "levels": [level.as_dict() for level in self.levels],
        }


def invert(
    prepared: Prepared,
    *,
    examples: int = 8,
    batch_size: int = 1,
    epsilons: Sequence[float] = (),
    method: Method = "auto",
) -> Inversion:
    """Release gradients of the first node's first examples at the initial model, and recover examples from them.

    Parameters
    ----------
    prepared : Prepared
        Parts that a run of the spec is made of.
    examples : int
        Number of batches attacked, each of the next ``batch_size`` examples of the shard.
    batch_size : int
        Examples in a batch. With more than one a mixture comes back.
    epsilons : sequence of float
        Levels to compare: noise of `L2Laplace` with this epsilon for one release, at the spec's clip and relation.
    method : {"auto", "linear", "matching"}
        ``auto`` reads the input off a linear first layer, and matches gradients where there is none.

    Raises
    ------
    CallerError
        If the shard is too small, the method does not fit the model, or no gradient of a batch is ever released.
    """
    if examples < 1 or batch_size < 1:
        raise SpecError(f"expected at least 1 example and a batch size of at least 1, found {examples}, {batch_size}")
    if prepared.experiment.terms.rounds:
        how = " --score loss" if prepared.cast.trust else ""
        raise SpecError(
            f"inversion is of the gradient of one batch, and {prepared.experiment.algorithm.name} releases sums of "
            f"whole rounds; take another algorithm, or audit this one with gossamer attack audit{how}"
        )
    check_not_private(prepared, "inversion")
    node, shard = prepared.names[0], prepared.shards[0]
    if examples * batch_size > len(shard):
        raise DataError(
            f"{node} holds {counted(len(shard), 'example')}, fewer than {examples} batches of {batch_size}; take fewer"
        )
    chosen = _chosen(prepared, method)
    if chosen == "matching" and batch_size > 1:
        raise SpecError(f"gradient matching recovers one example, found a batch size of {batch_size}; take 1")
    batches = shard[: examples * batch_size].reshape(examples, batch_size)
    originals = _dense(prepared.dataset.train.features[batches.ravel()]).reshape(examples, batch_size, -1)
    shape = tuple(prepared.dataset.train.features.shape[1:])
    span = _range(prepared.dataset.train)
    attack = _linear(prepared) if chosen == "linear" else _matching(prepared, span)
    levels = []
    for number, (name, mechanism) in enumerate(_levels(prepared, node, epsilons)):
        seed = derive(prepared.experiment.seed, "attack", "inversion", number)
        released = released_gradients(
            prepared.objective, prepared.dataset.train, list(batches), prepared.initial, mechanism, seed
        )
        recovered = np.stack([attack(one, mechanism) for one in released])
        scores = _scores(originals, recovered, shape, span)
        levels.append(NoiseLevel(name, mechanism, recovered.reshape(examples, *shape), *scores))
    best = _most_alike(originals, levels[0].recovered.reshape(examples, -1))
    shown = originals[np.arange(examples), best].reshape(examples, *shape)
    return Inversion(chosen, node, batch_size, shown, *span, tuple(levels))


def _chosen(prepared: Prepared, method: Method) -> str:
    if method != "auto":
        return method
    features = math.prod(prepared.dataset.train.features.shape[1:])
    return "linear" if is_linear(prepared.objective.parts, features) else "matching"


def _levels(prepared: Prepared, node: str, epsilons: Sequence[float]) -> list[tuple[str, Mechanism]]:
    own = plan_run(prepared).mechanisms[node]
    clip = own.clip if math.isfinite(own.clip) else _NO_CLIP
    relation = prepared.experiment.privacy.relation
    return [
        ("no noise", NoNoise(own.clip)),
        *([("the spec's noise", own)] if own.second_moment(prepared.objective.size) > 0 else []),
        *((f"epsilon {epsilon:g}", L2Laplace(clip, epsilon, relation)) for epsilon in epsilons),
    ]


def _dense(features: Any) -> FloatArray:
    return np.asarray(features.toarray() if sp.issparse(features) else features, np.float64)


def _range(data: Split) -> tuple[float, float]:
    values: Any = data.features.data if data.sparse else data.features
    low, high = float(values.min()), float(values.max())
    return (min(low, 0.0), max(high, 0.0)) if data.sparse else (low, high)


def _linear(prepared: Prepared) -> Callable[[FloatArray, Mechanism], FloatArray]:
    features, parts = math.prod(prepared.dataset.train.features.shape[1:]), prepared.objective.parts
    return lambda released, _: recover_input(released, parts, features)


def _matching(prepared: Prepared, span: tuple[float, float]) -> Callable[[FloatArray, Mechanism], FloatArray]:
    # Networks need torch, which is optional.
    from gossamer.attacks.matching import match_gradient

    shape = tuple(prepared.dataset.train.features.shape[1:])
    model = np.asarray(prepared.initial.values)
    seed = derive(prepared.experiment.seed, "attack", "matching")

    def attack(released: FloatArray, mechanism: Mechanism) -> FloatArray:
        found = match_gradient(
            prepared.objective, model, released, shape, low=span[0], high=span[1], clip=mechanism.clip, seed=seed
        )
        return found.ravel()

    return attack


def _scores(
    originals: FloatArray, recovered: FloatArray, shape: tuple[int, ...], span: tuple[float, float]
) -> tuple[FloatArray | None, FloatArray]:
    """SSIM (of pictures) and cosine [groups] of recovered [groups, size], each with the most alike of its batch's
    originals [groups, n, size]."""
    pairs = list(zip(originals, recovered, strict=True))
    cosines = np.array([max(cosine_similarity(x, found) for x in batch) for batch, found in pairs])
    if len(shape) != 3:
        return None, cosines
    alike = [
        max(clipped_similarity(x.reshape(shape), found.reshape(shape), *span) for x in batch) for batch, found in pairs
    ]
    return np.array(alike), cosines


def _most_alike(originals: FloatArray, recovered: FloatArray) -> npt.NDArray[np.intp]:
    """Number of the example of each batch [groups, n, size] nearest in angle to the recovered one [groups, size]."""
    return np.array(
        [np.argmax([cosine_similarity(x, found) for x in batch]) for batch, found in zip(originals, recovered)]
    )
