"""What is learnt of nodes whose noise cancels between neighbours: a column for every draw, and pseudo-inverses."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from tests.reference.observers_slow import _largest


def draws(edges: Sequence[tuple[int, int]], nodes: int, own: float, shared: float) -> np.ndarray:
    """Coefficients of a release of each node [nodes, nodes + edges]: a draw of its own, and each of its edges'."""
    found = np.zeros((nodes, nodes + len(edges)))
    found[:, :nodes] = own * np.eye(nodes)
    for number, (i, j) in enumerate(edges):
        found[i, nodes + number], found[j, nodes + number] = shared, -shared
    return found


def synchronous(
    matrix: np.ndarray, edges: Sequence[tuple[int, int]], rounds: int, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A [nodes rounds, nodes rounds] and B of all messages of D-PSGD, and who sends each, in rounds of all."""
    nodes, columns = noise.shape
    signal, random = np.zeros((nodes, nodes * rounds)), np.zeros((nodes, columns * rounds))
    a, b = [], []
    for now in range(rounds):
        signal[:, now * nodes : (now + 1) * nodes] -= np.eye(nodes)
        random[:, now * columns : (now + 1) * columns] -= noise
        a.append(signal.copy())
        b.append(random.copy())
        signal, random = matrix @ signal, matrix @ random
    return np.vstack(a), np.vstack(b), np.tile(np.arange(nodes), rounds)


def mu(
    a: np.ndarray, b: np.ndarray, edges: Sequence[tuple[int, int]], nodes: int, node: int, members: Collection[int]
) -> float:
    """Mu of a node's gradients against who has these rows of A and B, and knows all draws of ``members``."""
    known = [number in members for number in range(nodes)] + [bool({*edge} & {*members}) for edge in edges]
    unknown = b[:, ~np.tile(known, b.shape[1] // len(known))]
    moved = a[:, node::nodes]
    inverse = np.linalg.pinv(unknown @ unknown.T, rcond=1e-13, hermitian=True)
    return float(_largest(moved.T @ inverse @ moved) ** 0.5)


def apart(pairs: np.ndarray, own: float, there: Sequence[int]) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Coefficients of releases of those who are ``there``, and the edges of all draws, of variances of pairs of them.

    A draw with a node that is not there is added by the other one alone, and known to both.
    """
    nodes = len(pairs)
    edges = [(i, j) for i in range(nodes) for j in range(i) if pairs[i, j] or pairs[j, i]]
    found = np.zeros((nodes, nodes + len(edges)))
    found[there, there] = own
    for number, (i, j) in enumerate(edges):
        for node, sign in ((i, 1), (j, -1)):
            if node in there:
                found[node, nodes + number] = sign * own * pairs[node, i + j - node] ** 0.5
    return found, edges
