"""Delay functions of asynchronous rounds, word for word from the paper (section 2, Algorithm 1 and Appendix B.1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

Tau = Callable[[float], float]
Step = tuple[str, int, int]  # (c, i, h): step h of client c in round i


def consistent(tau: Tau, t: int, included: Collection[int]) -> bool:
    """Whether the model of computation t includes the updates 0, 1, ..., t - tau(t) - 1."""
    return all(j in included for j in range(t) if j <= t - tau(t) - 1)


def assignment(names: Sequence[str], sizes: Sequence[Sequence[int]], generator: np.random.Generator) -> list[list[str]]:
    """a(i, t'): the client of computation t' of round i, in a random order with s_ic = ``sizes[i][c]`` of client c."""
    tables = []
    for of_round in sizes:
        table = [name for name, steps in zip(names, of_round) for _ in range(steps)]
        tables.append([table[place] for place in generator.permutation(len(table))])
    return tables


def rho(assigned: Sequence[Sequence[str]]) -> dict[Step, int]:
    """The number t of each step: s_0 + ... + s_{i-1}, and the place of c's h-th entry, from 0, in a(i, .)."""
    numbers: dict[Step, int] = {}
    t = 0
    for i, table in enumerate(assigned):
        for place, c in enumerate(table):
            numbers[c, i, table[:place].count(c)] = t
            t += 1
    return numbers


def steps_before_waiting(tau: Tau, sizes: Sequence[Sequence[int]], c: int, i: int, k: int) -> int:
    """The client's loop with the global model of the rounds below k: its steps of round i until it waits."""
    s = [sum(of_round) for of_round in sizes]
    h = 0
    while h < sizes[i][c]:
        t_glob = sum(s[: i + 1]) - (sizes[i][c] - h) - 1
        t_delay = sum(s[k : i + 1]) - (sizes[i][c] - h)
        if t_delay >= tau(max(t_glob, 0)):
            break
        h += 1
    return h
