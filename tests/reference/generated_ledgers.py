"""Ledgers that nobody chose: releases of a few laws, as a plan has them, each from a seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from dp_accounting import NeighboringRelation as DpRelation
from dp_accounting.pld import privacy_loss_distribution

from gossamer.privacy.mechanisms import (
    BallGaussian,
    BatchSampling,
    FixedSize,
    Gaussian,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
)

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
SIZE = 20_000


class GeneratedLedger(NamedTuple):
    """A ledger.

    Attributes
    ----------
    counts : dict of ReleaseKind to int
        Releases of each kind.
    relation : NeighboringRelation
        Of the guarantee.
    delta : float
        Of the guarantee.
    """

    counts: dict[ReleaseKind, int]
    relation: NeighboringRelation
    delta: float

    @property
    def poisson(self) -> bool:
        """Whether dp-accounting knows all of it: Gaussian noise on Poisson samples."""
        return all(type(kind.mechanism) is Gaussian and isinstance(kind.sampling, Poisson) for kind in self.counts)


def generated(seed: int) -> GeneratedLedger:
    """A ledger of one to four kinds: multipliers of 0.5 to 20, rates of 1e-4 to 1, at most 10,000 releases of each."""
    draw = np.random.default_rng([seed, 0x1ED6E2])
    relation = (ADD, REPLACE)[draw.integers(2)]
    counts: dict[ReleaseKind, int] = {}
    for _ in range(draw.integers(1, 5)):
        rate = min(float(10 ** draw.uniform(-4, 0.3)), 1.0)  # one in 14 is a full batch
        sampling: BatchSampling = Poisson(rate)
        if relation is REPLACE and draw.random() < 0.4:
            sampling = FixedSize(SIZE, max(1, round(rate * SIZE)))
        law = BallGaussian if draw.random() < 0.2 else Gaussian
        multiplier, count = float(np.exp(draw.uniform(np.log(0.5), np.log(20)))), int(10 ** draw.uniform(0, 4))
        if count * (rate / multiplier) ** 2 > 6:  # nobody promises such an epsilon
            count = max(1, int(6 * (multiplier / rate) ** 2))
        counts[ReleaseKind(law(1.0, multiplier), sampling, 10)] = count
    return GeneratedLedger(counts, relation, float(10 ** draw.uniform(-9, -3)))


def optimistic_epsilon(ledger: GeneratedLedger, interval: float) -> float:
    """dp-accounting's lower bound of the epsilon of Gaussian noise on Poisson samples: all losses are rounded down."""
    relation = DpRelation.ADD_OR_REMOVE_ONE if ledger.relation is ADD else DpRelation.REPLACE_ONE
    total = None
    for kind, count in ledger.counts.items():
        assert isinstance(kind.mechanism, Gaussian)
        one = privacy_loss_distribution.from_gaussian_mechanism(
            kind.mechanism.noise_multiplier,
            pessimistic_estimate=False,
            use_connect_dots=False,
            value_discretization_interval=interval,
            sampling_prob=kind.sampling.rate,
            neighboring_relation=relation,
        ).self_compose(count)
        total = one if total is None else total.compose(one)
    assert total is not None
    return float(total.get_epsilon_for_delta(ledger.delta))
