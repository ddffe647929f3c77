"""Synchronous gossip as its formula says: all models as rows of a matrix, X <- P(W) (X - eta G), in plain numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gossamer.topology.graphs import Graph

Gradients = Callable[[np.ndarray, int], np.ndarray]
"""(models [nodes, size], round) -> gradients [nodes, size]."""


def metropolis_weights(graph: Graph) -> np.ndarray:
    """W [nodes, nodes] of Xiao, Boyd and Kim, entry by entry."""
    w = np.zeros((graph.nodes, graph.nodes))
    for i in range(graph.nodes):
        for j in graph.neighbours(i):
            w[i, j] = 1 / (1 + max(len(graph.neighbours(i)), len(graph.neighbours(j))))
        w[i, i] = 1 - w[i].sum()
    return w


def second_order_weight(w: np.ndarray) -> float:
    """gamma of Muffliato's Algorithm 1, 2 (1 - sqrt(gap (1 - gap/4))) / (1 - gap/2)^2."""
    gap = 1 - np.sort(np.abs(np.linalg.eigvalsh(w)))[-2]
    return float(2 * (1 - np.sqrt(gap * (1 - gap / 4))) / (1 - gap / 2) ** 2)


def averaged(x: np.ndarray, w: np.ndarray, steps: int, gamma: float = 1.0) -> np.ndarray:
    """The models [nodes, size] after some gossip steps."""
    before, x = x, w @ x
    for _ in range(steps - 1):
        before, x = x, gamma * (w @ x) + (1 - gamma) * before
    return x


def loop(
    x: np.ndarray, w: np.ndarray, gradients: Gradients, eta: float, rounds: int, steps: int = 1, gamma: float = 1.0
) -> np.ndarray:
    """The models [nodes, size] after some rounds from ``x``."""
    for number in range(rounds):
        x = averaged(x - eta * gradients(x, number), w, steps, gamma)
    return x
