"""Cohorts in turn: drawn before the run by public coins, as even as can be, and nobody beyond its quota.

Public coins hide nobody, so a client pays for each cohort that it is in, and the noise of all is planned for the one
that is in most. So T cohorts of K clients are drawn such that this is as few as can be. With quotas q_1, ..., q_N

- there are at most as many as the largest T with sum_i min(q_i, T) >= K T, since a client is in each of them once at
  most;
- somebody is in R or more, the smallest number with sum_i min(q_i, R) >= K T: fewer do not fill the cohorts.

Each cohort takes those who have most left of l_i = min(q_i, R), and coins decide among equals. That comes to the end,
and nobody is in more than R: with r cohorts to go, sum_i min(l_i, r) >= K r, at first because R <= T. So K clients or
more have something left. Where K or more have l_i >= r they have r - 1 or more afterwards, so the sum with r - 1 is
K (r - 1) at least. Where fewer have, all of them are taken, and of each that is taken min(l_i, r) falls by one to
min(l_i - 1, r - 1), while the others have less than r, and so keep theirs: the sum falls by K.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gossamer.arrays import IntArray
from gossamer.errors import SpecError
from gossamer.randomness import Stream

MOST = 100_000
"""Cohorts of a run, which are all known before it."""


@dataclass(frozen=True)
class Turns:
    """Cohorts of a run.

    Attributes
    ----------
    names : tuple of str
        The clients.
    drawn : array
        Their places in ``names``, rising, [cohorts, clients of one].
    """

    names: tuple[str, ...]
    drawn: IntArray = field(repr=False)

    def __call__(self, round: int) -> tuple[str, ...]:
        """The clients of one cohort; nobody where there is none."""
        if not 0 <= round < len(self.drawn):
            return ()
        return tuple(self.names[place] for place in self.drawn[round].tolist())


def draw_turns(coins: Stream, quotas: Mapping[str, int], clients: int, most: int | None = None) -> Turns:
    """As many cohorts of so many ``clients`` as the ``quotas`` of these allow, ``most`` if they allow more.

    Raises
    ------
    SpecError
        If there are more than can be drawn before a run.
    """
    several = np.array(list(quotas.values()), np.int64)

    def places(level: int) -> int:
        return int(np.minimum(several, level).sum())

    def too_many(sums: int) -> bool:
        return places(sums) < clients * sums

    # Once there are too few places there always are: they are concave in the level.
    count = bisect_left(range(1, int(several.sum()) // clients + 1), True, key=too_many)
    count = count if most is None else min(count, most)
    if count > MOST:
        raise SpecError(
            f"algorithm.masking: at most {MOST} masked sums are drawn before a run, found {count}; lower "
            "updates_per_node or stop, or raise buffer"
        )
    level = 1 + bisect_left(range(1, count + 1), clients * count, key=places)
    left = np.minimum(several, level)
    drawn = np.empty((count, clients), np.int64)
    for round in range(count):
        order = np.lexsort((coins.at(round).random(left.size), -left))
        drawn[round] = np.sort(order[:clients])
        left[drawn[round]] -= 1
    return Turns(tuple(quotas), drawn)
