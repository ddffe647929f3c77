"""A window's gradients together: samples, clipped sums and noise of many parties in a few compiled calls.

A simulation computes thousands of small noisy gradients in one call. Each alone takes some fifty steps of Python, which
cost more than its arithmetic. Here they are made for all at once, by the operations of `samples.SampleRule` in their
order: a charge has the same sample and the same noise in any company, bit for bit.

It is for what simulations of many small models are made of: Poisson samples and normal noise in float32, both drawn
from a seed, so that no answer has to be given only once. All else is answered alone. Nothing is charged here: a ticket
comes with its charge.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.arrays import IndexArray
from gossamer.privacy.mechanisms import Gaussian, Poisson
from gossamer.privacy.tasks import Query
from gossamer.randomness import PART, Stream
from gossamer.sides.machine import SideAnswer
from gossamer.sides.sums import Inputs, Together
from gossamer.vectors import Released, labelled


class GradientTerms(NamedTuple):
    """Numbers that a party's gradients of one query are answered by.

    Attributes
    ----------
    rate : float
        Probability of each example to be in a sample.
    clip : float
        Most length of the gradient of an example.
    deviation : float
        Standard deviation of the noise on their sum.
    normaliser, unit : float
        Divisors of the noisy sum, one after the other.
    place : int
        Place of the party in its window.
    """

    rate: float
    clip: float
    deviation: float
    normaliser: float
    unit: float
    place: int

    @classmethod
    def of(cls, query: Query, place: int = 0) -> GradientTerms | None:
        """Numbers of ``query`` of the party at ``place``; None where its gradients are answered alone."""
        law, sampling = query.mechanism, query.sampling
        if type(law) is not Gaussian or type(sampling) is not Poisson or query.count_share:
            return None
        return cls(sampling.probability, law.clip, law.standard_deviation, query.normaliser, query.unit, place)


class Parties(NamedTuple):
    """Rows and keys of parties, by their places.

    Attributes
    ----------
    rows : ndarray [examples of all] of int64
        Rows of the training split.
    starts : ndarray [parties + 1] of int64
        Place among them where those of each party begin.
    sampling, noise : ndarray [parties, 2] of uint64
        Keys of their samples and of their noise.
    """

    rows: IndexArray
    starts: IndexArray
    sampling: npt.NDArray[np.uint64]
    noise: npt.NDArray[np.uint64]


class GradientWindow:
    """Gradients of all parties of a process, whose examples are rows of one training split.

    Attributes
    ----------
    entered : list of (str, ndarray)
        Parties that were taken in, in the order of their places, each with its rows.

    Parameters
    ----------
    sums : Together
        Sums that they have in common.
    """

    def __init__(self, sums: Together) -> None:
        self._sums = sums
        self.entered: list[tuple[str, IndexArray]] = []
        self._keys: list[tuple[Any, Any]] = []
        self._parties: Parties | None = None  # of all that have entered, once it is asked for

    @classmethod
    def of(cls, sums: Any) -> GradientWindow | None:
        """The window of ``sums``; None where they add noise themselves, or their numbers are not float32, or many."""
        quick = type(sums) is Together and sums.objective.dtype == np.float32 and sums.objective.size <= PART
        return cls(sums) if quick else None

    def enter(self, name: str, rows: IndexArray, sampling: Any, noise: Any) -> int | None:
        """Take in a party with its rows and numbers; its place. None if the numbers do not come from a seed."""
        if type(sampling) is not Stream or type(noise) is not Stream:
            return None
        self.entered.append((name, rows))
        self._keys.append((sampling.key, noise.key))
        self._parties = None
        return len(self.entered) - 1

    def answers(self, asked: Sequence[Inputs]) -> list[SideAnswer]:
        """Draw, sum and release them: the answers, in order."""
        from gossamer.philox import poisson_samples  # a compiler's import takes as long as most commands
        from gossamer.sides.answers import noisy_rows

        parties, objective = self._all(), self._sums.objective
        tickets, table = [item.ticket for item in asked], np.array([item.drawn for item in asked])
        numbers, places = np.array([ticket.number for ticket in tickets]), table[:, 5].astype(np.int64)
        rates, clips = np.ascontiguousarray(table[:, :2].T)
        drawn, begins = poisson_samples(parties.sampling, numbers, rates, places, parties.starts, parties.rows)
        bounds = begins.tolist()
        batches = [drawn[start:end] for start, end in pairwise(bounds)]
        models = self._sums.models(tickets)
        sums, zeroed, _ = self._sums.clipped(models, batches, clips)
        noisy_rows(parties.noise, numbers, table, places, models, objective.l2, sums)
        # Each has an array of its own: a node may keep one for long, and all together are large.
        rows = zip(sums, zeroed.tolist(), strict=True)
        return [SideAnswer(labelled(Released, row.copy()), zeroed) for row, zeroed in rows]

    def _all(self) -> Parties:
        if self._parties is None:
            rows, sampling, noise = zip(
                *((own, *keys) for (_, own), keys in zip(self.entered, self._keys)), strict=True
            )
            starts = np.concatenate(([0], np.cumsum([len(some) for some in rows])))
            self._parties = Parties(np.concatenate(rows, dtype=np.int64), starts, np.array(sampling), np.array(noise))
        return self._parties
