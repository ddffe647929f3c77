"""Fellow agents that mask any integers: what another agent's data move is no more than they move an honest sum.

Sums are compared in pairs whose honest parts differ by one agent's update. False vectors are drawn near the places
where a sum could jump: the ends of the range, its quarters, and the most that honest sums have.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.test_masked_units_properties import unit_settings
from tests.reference.shuffled_unit import SERVER, ShuffledUnit
from tests.sampling import examples

from gossamer.algorithms.graph_federated.nodes import ServerNode
from gossamer.errors import PeerError
from gossamer.privacy.masking import FixedPoint, MaskedSum
from gossamer.vectors import Confined

MANY = settings(deadline=None, max_examples=examples(200))
SIZE = 3
NEAR = st.integers(-3, 3) | st.integers(-(2**31), 2**31)


@st.composite
def places(draw: st.DrawFn, bits: int, most: int) -> int:
    """An integer on the circle, most often beside an edge of the range, of its quarter, or of honest sums."""
    edge = draw(st.sampled_from([0, most, -most, 2 ** (bits - 2), -(2 ** (bits - 2)), 2 ** (bits - 1)]))
    return (edge + draw(NEAR)) % 2**bits


def fold(value: int, bits: int) -> int:
    """By cases, in whole numbers: as it is up to a quarter, back to zero at half of the circle."""
    centred = (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    size = abs(centred)
    return int(math.copysign(1, centred)) * (size if size <= 2 ** (bits - 2) else 2 ** (bits - 1) - size)


@MANY
@given(st.sampled_from([32, 64]), st.integers(1, 40), st.floats(0.01, 100.0), st.data())
def test_a_fold_is_the_sum_in_range_and_moves_no_further_than_the_integers(
    bits: int, count: int, clip: float, data: st.DataObject
) -> None:
    fixed = FixedPoint(clip, count, bits)
    first = data.draw(places(bits, count * fixed.limit))
    moved = data.draw(st.integers(-9, 9) | st.integers(-2 * fixed.limit, 2 * fixed.limit))
    both = np.array([first, (first + moved) % 2**bits], np.uint64).astype(f"u{bits // 8}")
    expected = [fold(int(value), bits) for value in both]
    assert fixed.folded_sum(both).tolist() == [float(value) * fixed.resolution for value in expected]
    assert abs(expected[1] - expected[0]) <= abs(moved)


@MANY
@given(
    st.sampled_from([32, 64]),
    st.integers(3, 6),
    st.sampled_from([0.0, 3.0]),
    st.floats(0.0, 1.0),
    st.integers(0, 2**32),
    st.data(),
)
def test_another_update_moves_the_server_by_no_more_than_itself_whatever_a_fellow_adds(
    bits: int, agents: int, noise: float, part: float, seed: int, data: st.DataObject
) -> None:
    """Nor by more than 2 mu B/L, which the noise of what is released next is for; no sum is refused.

    The fellow is given what it cannot know, the sum of all others in one of the two worlds.
    """
    found = ShuffledUnit(unit_settings(agents, 1, bits=bits), SIZE, np.random.default_rng(0), noise)
    unit, generator = found.unit, np.random.default_rng(seed)
    honest = data.draw(st.integers(1, agents - 1))
    old, new = (generator.standard_normal(SIZE) * unit.reach * scale for scale in generator.choice([0.1, 1.0, 9.0], 2))
    others = [generator.standard_normal(SIZE) * unit.reach for _ in range(honest - 1)]

    def summed(mine: np.ndarray) -> Any:
        drawn = np.random.default_rng([seed, 1])  # the same noise in both worlds
        return np.sum([unit.encode(update, drawn) for update in (mine, *others)], axis=0, dtype=unit.group.dtype)

    worlds = [summed(old), summed(old + part * (new - old))]
    most = (honest + 1) * unit.fixed.limit
    aimed = data.draw(st.sampled_from([1, SIZE]))  # the other coordinates are well in range
    aim = np.array([data.draw(places(bits, most)) if k < aimed else 0 for k in range(SIZE)], np.uint64)
    false = aim.astype(unit.group.dtype) - worlds[0]
    moved = []
    for world in worlds:
        server: Any = found.fresh(SERVER)
        members = tuple(range(1, honest + 2))
        list(ServerNode.gathered(server, decoded(unit, MaskedSum(world + false, members)), honest + 1))
        moved.append(server.state.own.values)
    apart = float(np.linalg.norm(signed(worlds[1] - worlds[0]))) * unit.fixed.resolution / agents
    found_apart = float(np.linalg.norm(moved[1] - moved[0]))
    rounding = 2.0**-50 * (float(np.linalg.norm(moved[0])) + apart)
    assert found_apart <= apart + rounding
    assert found_apart <= 2 * unit.reach / agents + rounding


def decoded(unit: Any, total: MaskedSum) -> Confined | None:
    """What the server goes on with: nothing, where a sum is refused."""
    try:
        found: Confined = unit.decoded(total)
    except PeerError:
        return None
    return found


def signed(values: np.ndarray) -> np.ndarray:
    return values.view(f"i{values.dtype.itemsize}").astype(np.float64)
