"""Settings of `fedbuff`.

References
----------
Levin and May, "A note on difference-delay equations", Theoretical Population Biology 9 (1976).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np
from pydantic import Field, PositiveFloat

from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.optimizer import OneRate
from gossamer.arrays import IntArray
from gossamer.errors import SpecError
from gossamer.randomness import Stream

STALENESS = 0.5
_MARGIN = 0.7
"""Share of the largest steady rate that the default takes."""


class Settings(ClientSettings):
    """Settings of `fedbuff`, beside those of clients.

    Attributes
    ----------
    buffer : int
        K, updates that the server waits for before it takes a step; of K clients where the server adds the noise,
        or clients mask.
    learning_rate : float
        Learning rate of the server, for the mean update. By default 1; where the server adds the noise and takes
        updates as they are, 0.7 of the largest with which updates as old as nodes/buffer makes them cannot swing, and
        at most 1.
    staleness_exponent : float, optional
        a >= 0: an update that is tau steps of the server old counts (1 + tau)^-a. With ``masking`` none is old. By
        default 0.5, as in the paper, and 0 where the server adds noise, which weights would not make smaller.
    timeout : float, optional
        Seconds, with ``masking``, after which each of the five steps of a sum goes on without those who have not
        answered. Without it all are waited for but those that are lost, as in `fedavg`.
    patience : float, optional
        Seconds, with ``masking`` and without ``timeout``, after which those that are waited for are asked whether they
        are there; 30 by default, then twice as long each time.
    """

    name: Literal["fedbuff"] = "fedbuff"
    buffer: int = Field(default=5, ge=1, le=1_000_000)
    learning_rate: OneRate = Field(default=1.0, gt=0, le=1e6)
    staleness_exponent: float | None = Field(default=None, ge=0, le=10)
    timeout: PositiveFloat | None = None
    patience: PositiveFloat | None = None

    def weight(self, stale: int) -> float:
        """s, at most 1, of an update that is so many steps old."""
        exponent = STALENESS if self.staleness_exponent is None else self.staleness_exponent
        return float((1 + stale) ** -exponent)

    def decided(self, private: bool) -> Self:
        """Fill in the defaults that depend on who adds noise, and on whether there is any."""
        found: dict[str, float] = {}
        if self.staleness_exponent is None:
            found["staleness_exponent"] = 0.0 if self.curated and private else STALENESS
        if self.curated and self.server_optimizer is None and "learning_rate" not in self.model_fields_set:
            found["learning_rate"] = min(1.0, float(f"{_MARGIN * self.steady:.2g}"))
        return self.model_copy(update=found) if found else self

    @property
    def steady(self) -> float:
        """Largest rate, of updates that all count in full, with which a run is steady.

        Where all clients are as fast as each other an update is tau = nodes/K - 1 steps old, rounded up. Were local
        training to reach its optimum x*, the server's model would be x_t+1 = x_t - eta_g (x_t-tau - x*), which tends to
        x* if and only if eta_g < 2 cos(pi tau/(2 tau + 1)) (Levin and May). Training that goes less far allows more.
        """
        age = -(-self.nodes // self.buffer) - 1
        return round(2 * math.cos(math.pi * age / (2 * age + 1)), 12)

    def wrong(self) -> Iterator[str]:
        yield from super().wrong()
        if self.buffer > self.nodes:
            yield f"algorithm.buffer: expected at most the {self.nodes} clients that there are, found {self.buffer}"
        if self.patience is not None and self.timeout is not None:
            yield "algorithm.patience: sums with a timeout ask nobody; leave it out"
        if self.masking is None:
            for name in ("timeout", "patience"):
                if getattr(self, name) is not None:
                    yield (
                        f"algorithm.{name}: only clients that mask are waited for; leave it out, or say masking: secure"
                    )
            return
        yield from self.masking.wrong(self.buffer)
        if self.staleness_exponent not in (None, STALENESS):
            yield (
                "algorithm.staleness_exponent: updates that are masked together are all made at the newest model, so "
                "none is old; leave it out"
            )


# Cohorts in turn: drawn before the run by public coins, as even as can be, and nobody beyond its quota.
#
# Public coins hide nobody, so a client pays for each cohort that it is in, and the noise of all is planned for the one
# that is in most. So T cohorts of K clients are drawn such that this is as few as can be. With quotas q_1, ..., q_N
#
# - there are at most as many as the largest T with sum_i min(q_i, T) >= K T, since a client is in each of them once at
#   most;
# - somebody is in R or more, the smallest number with sum_i min(q_i, R) >= K T: fewer do not fill the cohorts.
#
# Each cohort takes those who have most left of l_i = min(q_i, R), and coins decide among equals. That comes to the end,
# and nobody is in more than R: with r cohorts to go, sum_i min(l_i, r) >= K r, at first because R <= T. So K clients or
# more have something left. Where K or more have l_i >= r they have r - 1 or more afterwards, so the sum with r - 1 is
# K (r - 1) at least. Where fewer have, all of them are taken, and of each that is taken min(l_i, r) falls by one to
# min(l_i - 1, r - 1), while the others have less than r, and so keep theirs: the sum falls by K.

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
        Places of the drawn in ``names``, rising, [cohorts, clients of one].
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
