"""Graph federated learning, slowly: its objective by loops, and its recursion without any of the library.

Rizk and Sayed, "A graph federated architecture with privacy preserving learning": objective (54), recursion (6) to (8)
with mini-batches drawn with replacement and steps of mu/E, noise (47).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Agent = tuple[Array, Array]
"""Features [n, d] and targets [n] of an agent."""


def risk(model: Array, units: Sequence[Sequence[Agent]], l2: float) -> float:
    """(54), halved: mean over units of the mean over agents of the mean of (d - u'w)^2 / 2, and l2/2 |w|^2."""
    total = 0.0
    for agents in units:
        for features, targets in agents:
            for u, d in zip(features, targets, strict=True):
                error = d - sum(u[i] * model[i] for i in range(len(u)))
                total += error**2 / 2 / (len(units) * len(agents) * len(targets))
    return float(total + l2 / 2 * sum(weight**2 for weight in model))


def measures(models: Sequence[Array], optimum: Array) -> dict[str, float]:
    """MSD of the centroid (58), its mean over the models themselves, and the network disagreement (30)."""
    size, count = len(optimum), len(models)
    centroid = [sum(float(model[i]) for model in models) / count for i in range(size)]
    found = {"centroid_msd": sum((centroid[i] - optimum[i]) ** 2 for i in range(size))}
    found["individual_msd"] = sum((m[i] - optimum[i]) ** 2 for m in models for i in range(size)) / count
    found["disagreement"] = sum((m[i] - centroid[i]) ** 2 for m in models for i in range(size)) / count
    return found


def train(
    units: Sequence[Sequence[Agent]],
    matrix: Array,
    *,
    noise: str,
    deviation: float,
    gradient_at: str,
    rounds: int,
    step_size: float,
    l2: float,
    agents_sampled: int,
    local_steps: tuple[int, int],
    batch_size: tuple[int, int],
    generator: np.random.Generator,
    law: str = "laplace",
    clip: float = np.inf,
) -> Array:
    """The models that gradients are taken at, after each round: [rounds, units, d].

    ``deviation`` is of each coordinate of the noise. With ``noise: homomorphic`` a server sends M = psi + g and has
    w = psi - (1 - a_pp) M_p + sum_{m != p} a_pm M_m, so that noise cancels in the mean of all w; agents start from w
    (``gradient_at: hidden``) or from v = sum_m a_pm M_m (``released``). ``random_own_term`` is (8) with noise on
    every term. ``at each receiver``, which the library does not have, is noise whose weighted sum over the messages to
    one server is 0 (Rizk, Vlaski and Sayed, "Local graph-homomorphic processing for privatized distributed systems",
    arXiv 2210.15414): each two of its neighbours share a draw, which one adds and the other subtracts.
    """
    count, size = len(units), units[0][0][0].shape[1]
    steps = [[int(generator.integers(local_steps[0], local_steps[1] + 1)) for _ in agents] for agents in units]
    batches = [[int(generator.integers(batch_size[0], batch_size[1] + 1)) for _ in agents] for agents in units]
    w = [np.zeros(size) for _ in units]
    start = list(w)
    path = np.empty((rounds, count, size))

    def draw() -> Array:
        if law == "laplace":
            return generator.laplace(0, deviation / np.sqrt(2), size)
        return generator.normal(0, deviation, size)

    def cancelling(weights: Array, p: int) -> Array:
        """The noise on the messages to p [units, d], of ``deviation`` at most in each coordinate."""
        added, others = np.zeros((count, size)), [m for m in range(count) if m != p and weights[m] > 0]
        for a, b in itertools.combinations(others, 2):
            shared = draw() * min(weights[m] for m in others) / np.sqrt(len(others) - 1)
            added[a] += shared / weights[a]
            added[b] -= shared / weights[b]
        return added

    noised, own = ("random", "random_own_term"), noise == "random_own_term"
    for number in range(rounds):
        psi = []
        for p, agents in enumerate(units):
            total = np.zeros(size)
            for k in generator.choice(len(agents), agents_sampled, replace=False):
                features, targets = agents[k]
                model = start[p]
                for _ in range(steps[p][k]):
                    rows = generator.integers(0, len(targets), batches[p][k])
                    u = features[rows]
                    gradient = u.T @ (u @ model - targets[rows]) / len(rows) + l2 * model
                    gradient = gradient * min(1.0, clip / max(float(np.linalg.norm(gradient)), 1e-300))
                    model = model - step_size / steps[p][k] * gradient
                total = total + (model - start[p])
            psi.append(w[p] + total / agents_sampled)
        if noise == "homomorphic":
            sent = [one + draw() for one in psi]
            w = [
                psi[p]
                - (1 - matrix[p, p]) * sent[p]
                + sum((matrix[p, m] * sent[m] for m in range(count) if m != p), np.zeros(size))
                for p in range(count)
            ]
            mixed = [sum((matrix[p, m] * sent[m] for m in range(count)), np.zeros(size)) for p in range(count)]
            start = mixed if gradient_at == "released" else w
        elif noise == "at each receiver":
            sent = [cancelling(matrix[p], p) + np.stack(psi) for p in range(count)]  # to p, from all
            start = w = [matrix[p] @ sent[p] for p in range(count)]
        else:
            w = [
                sum(
                    (
                        matrix[p, m] * (psi[m] + (draw() if noise in noised and (m != p or own) else 0))
                        for m in range(count)
                    ),
                    np.zeros(size),
                )
                for p in range(count)
            ]
            start = w
        path[number] = start
    return path
