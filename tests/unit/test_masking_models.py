"""An own server that asks its agents different questions: one about the model, the others about what it knows already.

Pasquini, Francati and Ateniese, "Eluding secure aggregation in federated learning via model inconsistency", CCS 2022.
All on the real data sides of ten agents with digits. The sums that the server makes are correct ones.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.reference.asked_apart import RUN, added, found_in, parties_of, prepared_of

from gossamer.vectors import Public

TARGET = "node-3"


def far(size: int, length: float) -> Public:
    """A model so long that its L2 term is all of every gradient."""
    direction = np.random.default_rng(0).standard_normal(size)
    return Public((direction * (length / np.linalg.norm(direction))).astype(np.float32))


@pytest.mark.parametrize("run", ["", RUN])
def test_an_update_cannot_be_read_out_of_a_correct_sum(run: str) -> None:
    """The nine others' updates at a model of length 1e12 are -mu B w/|w|, to the last bits, whatever their examples."""
    prepared = prepared_of(run)
    parties = parties_of(prepared)
    model = far(prepared.objective.size, 1e12)
    for name, party in parties.items():
        party.update(0, prepared.initial if name == TARGET else model)
    total = added(parties)
    if total is not None:
        direction = model.values.astype(np.float64) / np.linalg.norm(model.values.astype(np.float64))
        known = dict.fromkeys(set(parties) - {TARGET}, -25.0 * direction)
        found, truth = found_in(total, parties, known), parties[TARGET].kept
        digits = prepared.dataset.train.features[prepared.shards[3]].reshape(-1, 64)
        seen = found.reshape(-1, 64) if found.size == 640 else found
        match = max(abs(np.corrcoef(row, digit)[0, 1]) for row in seen for digit in digits)
        print(f"\nfound to {np.abs(found - truth).max():.2e} of {np.abs(truth).max():.2e}, digit with {match:.9f}")
    assert total is None
