"""What leaves the agents of a unit that masks, and what its server gets, as distributions.

Seeds are fixed, so a test passes or fails for good. The level of each p-value is 1e-6, and there are fewer than 40.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.properties.test_masked_units_properties import unit_settings
from tests.reference.shuffled_unit import SERVER, ShuffledUnit

from gossamer.algorithms.masked_round import MaskingReply
from gossamer.privacy.tasks import MASK
from gossamer.protocol.messages import decode_message

LEVEL = 1e-6
SIZE = 40_000


class Constant(ShuffledUnit):
    """Every agent has the same small update in all rounds: what is easiest to see through masks."""

    def update(self, name: str, round: int) -> np.ndarray:
        return np.full(self.size, 0.1 * self.unit.longest / np.sqrt(self.size))


def masked_vectors(unit: ShuffledUnit) -> dict[tuple[str, int], np.ndarray]:
    """Whatever was sent to the server as a masked vector, by agent and round."""
    found: dict[tuple[str, int], np.ndarray] = {}
    while not unit.server.state.finished:
        for (sender, to), queue in unit.flying.items():
            for data in queue:
                message: Any = decode_message(data)
                if to == SERVER and isinstance(message, MaskingReply) and message.step == MASK:
                    found[sender, message.round] = message.content.values
        unit.step()
    return found


def uniform(values: np.ndarray) -> float:
    """The least p-value of chi-squared tests of each byte."""
    columns = values.astype(values.dtype.newbyteorder("<")).view(np.uint8).reshape(len(values), -1)
    return min(float(stats.chisquare(np.bincount(column, minlength=256)).pvalue) for column in columns.T)


def test_messages_are_uniform_and_so_is_the_difference_between_rounds() -> None:
    """Of one agent in two rounds with the very same update, and of two agents in one round."""
    unit = Constant(unit_settings(3, 2), SIZE, np.random.default_rng(1))
    found = masked_vectors(unit)
    assert len(found) == 6
    for values in found.values():
        assert uniform(values) > LEVEL
    for name in unit.names:
        assert uniform(found[name, 0] - found[name, 1]) > LEVEL
    assert uniform(found["node-0", 0] + found["node-1", 0]) > LEVEL
    assert uniform(unit.unit.encode(unit.update("node-0", 0))) < LEVEL  # without masks the test sees it
    assert [total is not None for _, total, _ in unit.sums] == [True, True]


@pytest.mark.parametrize("bits", [32, 64])
def test_the_sum_has_the_noise_of_all_its_agents(bits: int) -> None:
    """What is left of the sum without the updates is normal, of variance h s^2; 3 % more or less is rejected."""
    agents = 3
    unit = Constant(unit_settings(agents, 1, bits=bits), SIZE, np.random.default_rng(1), agent_noise=0.7)
    masked_vectors(unit)
    ((_, total, names),) = unit.sums
    assert len(names) == agents
    noise = unit.unit.noise
    assert noise is not None
    one = unit.unit.reach * 0.7
    assert noise.scale * unit.unit.fixed.resolution == pytest.approx(one, rel=1e-5)
    left = total - agents * unit.update("node-0", 0)
    for factor, fits in ((1.0, True), (1.03, False), (0.97, False)):
        normal = stats.norm(scale=factor * np.sqrt(agents) * one)
        variance = np.sum((left / normal.std()) ** 2)
        two_sided = 2 * min(stats.chi2(SIZE).cdf(variance), stats.chi2(SIZE).sf(variance))
        assert bool(two_sided > LEVEL) is fits
    assert stats.kstest(left, stats.norm(scale=np.sqrt(agents) * one).cdf).pvalue > LEVEL
