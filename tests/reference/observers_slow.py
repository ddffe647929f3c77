"""What an observer learns of linear releases, by pseudo-inverses, all sets of draws and many starts, in plain numpy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from gossamer.privacy.observers.system import LinearSystem


@dataclass
class Exchanges:
    """A run of nodes that step and exchange models at random times.

    Attributes
    ----------
    owners : list of int
        Node of each draw.
    messages : list of (int, int, ndarray [draws])
        Sender, receiver and coefficients of each model that is sent.
    models : ndarray [nodes, draws]
        Coefficients of each node's model at the end.
    """

    owners: list[int]
    messages: list[tuple[int, int, np.ndarray]]
    models: np.ndarray


def exchanges(generator: np.random.Generator, nodes: int, draws: int) -> Exchanges:
    """Make a run in which a node steps, and then maybe averages its model with that of another."""
    x, owners, messages = np.zeros((nodes, draws)), [], []
    for draw in range(draws):
        i, j = generator.permutation(nodes)[:2].tolist()
        x[i, draw] -= generator.uniform(0.5, 2.0)
        owners.append(i)
        if generator.random() < 0.7:
            messages += [(i, j, x[i].copy()), (j, i, x[j].copy())]
            x[[i, j]] = (x[i] + x[j]) / 2
    return Exchanges(owners, messages, x)


def allowed(count: int, most: int | None, apart: int) -> Iterator[tuple[int, ...]]:
    """Yield all sets of at most ``most`` of ``count`` draws, ``apart`` from one to the next."""
    for size in range(1, min(most or count, count) + 1):
        for places in combinations(range(count), size):
            if all(b - a >= apart for a, b in pairwise(places)):
                yield places


def mu(rows: np.ndarray, own: list[int], lengths: np.ndarray, sets: Iterator[tuple[int, ...]]) -> float:
    """Largest mean shift, in deviations, of normal ``rows`` z [seen, draws] by changes of the draws ``own``."""
    inverse = np.linalg.pinv(rows @ rows.T, rcond=1e-12, hermitian=True)
    shift = rows[:, own] * lengths
    gram = shift.T @ inverse @ shift
    return max((_largest(gram[np.ix_(places, places)]) for places in sets), default=0.0) ** 0.5


def _largest(gram: np.ndarray) -> float:
    """Return max <gram, D D'> over D with rows of length 1, from several starts: of full rank, none is worse."""
    best, generator, count = 0.0, np.random.default_rng(0), len(gram)
    for _ in range(3):
        d = generator.standard_normal((count, count + 1))
        d /= np.linalg.norm(d, axis=1, keepdims=True)
        value = -1.0
        for _ in range(20_000):
            for t in range(count):
                pull = gram[t] @ d - gram[t, t] * d[t]
                d[t] = pull / np.linalg.norm(pull) if np.linalg.norm(pull) > 1e-15 else d[t]
            before, value = value, float(np.sum(gram * (d @ d.T)))
            if value - before < 1e-14 * value:
                break
        best = max(best, value)
    return best


def mu_of_stretches(
    each: list[np.ndarray], own: list[int], lengths: np.ndarray, sets: Iterator[tuple[int, ...]]
) -> float:
    """Largest mean shift of rows that differ by stretch of entries, over which a change may be spread as it likes."""
    grams = []
    for rows in each:
        shift = rows[:, own] * lengths
        grams.append(shift.T @ np.linalg.pinv(rows @ rows.T, rcond=1e-12, hermitian=True) @ shift)
    best = 0.0
    for places in sets:
        some = [gram[np.ix_(places, places)] for gram in grams]
        for start in range(2):
            d = np.random.default_rng(start).standard_normal((len(some), len(places), len(places) + 1))
            value = -1.0
            for _ in range(4_000):
                d /= np.sqrt((d**2).sum(axis=(0, 2)))[:, None]
                moved = np.array([gram @ part for gram, part in zip(some, d)])
                before, value = value, float((moved * d).sum())
                if value - before < 1e-13 * value:
                    break
                still = (moved**2).sum(axis=(0, 2)) < 1e-30
                d = np.where(still[:, None], d, moved)
            best = max(best, value)
    return best**0.5


def rows(system: LinearSystem, found: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Coefficients [vectors, draws] of vectors, each with its block, by what those at each block's start are."""
    starts = [np.zeros((0, len(system.draws)))]
    for block in system.blocks:
        draws = np.eye(len(system.draws))[block.first : block.first + block.draws]
        starts.append(block.ends @ np.vstack([starts[-1], draws]))
    made = []
    for at, row in found:
        first = sum(block.draws for block in system.blocks[:at])
        base = np.vstack([starts[at], np.eye(len(system.draws))[first:]])
        made.append(row @ base[: len(row)])
    return np.array(made)
