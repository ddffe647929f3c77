"""Graph federated learning word for word, on scalar models, with every number kept as a linear form.

A number is a row of coefficients over a basis: the fresh noise z of the unit under test, and the moves d_0, d_1, ... of
its updates between two data sets. What other units draw and know is known to the observer, and moves nothing.
Equations are those of "Privatized graph federated learning".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import sqrtm

Array = np.ndarray


def factor(temporal: str, rounds: int, bands: int | None = None) -> Array:
    """C, [rounds, rounds], as papers write it: a matrix, its square root, the root's diagonals."""
    ones = np.tril(np.ones((rounds, rounds)))
    if temporal == "independent":
        return ones
    if temporal == "random_walk":
        return np.eye(rounds)
    root = np.real(sqrtm(ones)) if rounds > 1 else ones
    return root if bands is None else np.triu(root, -(bands - 1))


def noise_factor(temporal: str, rounds: int, bands: int | None = None) -> Array:
    """B = A C^-1."""
    return np.tril(np.ones((rounds, rounds))) @ np.linalg.inv(factor(temporal, rounds, bands))


def mixing(units: int, generator: np.random.Generator) -> Array:
    """A symmetric doubly stochastic matrix with positive entries: a mean of permutations and their transposes."""
    parts = [np.eye(units)[generator.permutation(units)] for _ in range(3)]
    weights = generator.dirichlet(np.ones(len(parts) + 2))
    matrix = sum(w * (p + p.T) / 2 for w, p in zip(weights, parts)) + weights[-2] * np.eye(units)
    return np.asarray(matrix + weights[-1] / units)


class Seen(NamedTuple):
    """Messages of the unit under test as ``from_noise @ z + from_moves @ d``."""

    from_noise: Array
    from_moves: Array

    def mu(self, moves: Array) -> float:
        """Of N(from_moves d, from_noise from_noise') against the same without a mean: z have variance 1."""
        mean = self.from_moves @ moves
        covariance = self.from_noise @ self.from_noise.T
        return float(np.sqrt(mean @ np.linalg.solve(covariance, mean)))

    def laplace(self, moves: Array) -> float:
        """The largest privacy loss with Laplace z of variance 1: of z itself, which follows from the messages."""
        shift = np.linalg.solve(self.from_noise, self.from_moves @ moves)
        return float(np.sqrt(2) * np.abs(shift).sum())


def homomorphic(
    a: Array, b: Array, step: float, *, released: bool = False, curvature: float = 0.0, others: float = 0.3
) -> Seen:
    """All messages of unit 0, whose update in round i is d_i + curvature * model; other units' are others * model."""
    units, rounds = len(a), len(b)
    basis = 2 * rounds  # z, then d
    w, v = np.zeros((units, basis)), np.zeros((units, basis))
    sent = []
    for i in range(rounds):
        model = v if released else w
        update = np.array([curvature, *[others] * (units - 1)])[:, None] * model
        update[0, rounds + i] += 1
        psi = w - step * update
        g = np.zeros((units, basis))
        g[0, :rounds] = b[i]
        message = psi + g
        own = -(1 - np.diag(a))[:, None] / np.diag(a)[:, None] * g  # eq. 47
        w = np.array(
            [
                sum(a[p, m] * (psi[m] + (own[m] if m == p else g[m])) for m in range(units)) for p in range(units)
            ]  # eq. 8
        )
        v = np.array([sum(a[p, m] * message[m] for m in range(units)) for p in range(units)])
        sent.append(message[0])
    rows = np.array(sent)
    return Seen(rows[:, :rounds], rows[:, rounds:])


def random_links(a: Array, rounds: int, step: float, *, own_noise: bool = False, others: float = 0.3) -> Seen:
    """All messages of unit 0 to all its neighbours, with noise of its own on each; that of the own term comes last."""
    units = len(a)
    neighbours = [m for m in range(1, units) if a[0, m] > 0]
    links = len(neighbours)
    drawn = (links + own_noise) * rounds
    basis = drawn + rounds
    w = np.zeros((units, basis))
    sent = []
    for i in range(rounds):
        update = np.array([0.0, *[others] * (units - 1)])[:, None] * w
        update[0, drawn + i] += 1
        psi = w - step * update
        to = {m: psi[0].copy() for m in range(units)}
        for place, m in enumerate(neighbours):
            to[m][place * rounds + i] += 1
        if own_noise:
            to[0][links * rounds + i] += 1
        w = np.array([a[p, 0] * to[p] + sum(a[p, m] * psi[m] for m in range(1, units)) for p in range(units)])
        sent += [to[m] for m in neighbours]
    rows = np.array(sent)
    return Seen(rows[:, :drawn], rows[:, drawn:])


def signs(rounds: int) -> Iterator[Array]:
    """All sequences of +1 and -1: the corners, where a convex function is largest."""
    for corner in itertools.product((1.0, -1.0), repeat=rounds):
        yield np.array(corner)


class Spread(NamedTuple):
    """Expected squares of the noise in the models after each round, [rounds]; z have variance 1."""

    apart: Array
    centroid: Array


def model_spread(a: Array, b: Array, contraction: float, *, released: bool) -> Spread:
    """Of all units together: each draws z of its own, and a step moves a model x by -(1 - contraction) x."""
    units, rounds = len(a), len(b)
    w, v = np.zeros((units, units * rounds)), np.zeros((units, units * rounds))
    apart, centroid = [], []
    for i in range(rounds):
        psi = w - (1 - contraction) * (v if released else w)
        g = np.kron(np.eye(units), b[i])
        own = -(1 - np.diag(a))[:, None] / np.diag(a)[:, None] * g
        w = a @ (psi + g) + np.diag(a)[:, None] * (own - g)
        v = a @ (psi + g)
        model = v if released else w
        mean = model.mean(axis=0)
        apart.append(((model - mean) ** 2).sum() / units)
        centroid.append((mean**2).sum())
    return Spread(np.array(apart), np.array(centroid))
