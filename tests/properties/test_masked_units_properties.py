"""Whole units with masks, where messages take any order and agents vanish or crash at any step."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reference.shuffled_unit import SERVER, ShuffledUnit
from tests.sampling import examples

from gossamer.algorithms.graph_federated.settings import Settings

SOME = settings(deadline=None, max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow])
STEPS_OF_A_ROUND = 15
"""Messages and computations of an agent in a round: when an accident may fall."""


def unit_settings(agents: int, rounds: int, sampled: int | None = None, **masking: Any) -> Settings:
    return Settings(
        units=1,
        agents=agents,
        agents_sampled=sampled,
        rounds=rounds,
        noise="none",
        gradient_at="hidden",
        timeout=1.0,
        masking={"name": "secure", **masking},
    )


def check_sums(unit: ShuffledUnit) -> None:
    """Every sum is that of all whose updates are in it, at least the minimum, and exact."""
    assert [number for number, _, _ in unit.sums] == list(range(unit.settings.rounds))
    for number, total, names in unit.sums:
        if total is not None:
            assert unit.unit.group.minimum <= len(names) <= len(set(names) & set(unit.sampling.of(number)))
            np.testing.assert_array_equal(total, unit.plain(number, names))


@st.composite
def accidents(draw: st.DrawFn, agents: int, rounds: int, most_gone: int) -> dict[int, tuple[str, str]]:
    """Agents that vanish, at most so many; agents and the server that crash and come back."""
    names = [f"node-{number}" for number in range(agents)]
    at = st.integers(0, rounds * agents * STEPS_OF_A_ROUND)
    gone = draw(st.lists(st.sampled_from(names), max_size=most_gone, unique=True))
    crashes = draw(st.lists(st.sampled_from([*names, SERVER]), max_size=6))
    events = [("vanish", name) for name in gone] + [("crash", name) for name in crashes]
    times = draw(st.lists(at, min_size=len(events), max_size=len(events), unique=True))
    return dict(zip(times, events, strict=True))


@SOME
@given(st.integers(2, 7), st.integers(0, 2**32), st.sampled_from([32, 64]), st.data())
def test_sums_are_exact_while_a_third_vanishes_and_all_crash(
    agents: int, seed: int, bits: int, data: st.DataObject
) -> None:
    """With up to a third of the agents gone, and nobody given up too early, every round has its sum."""
    rounds = 3
    happens = data.draw(accidents(agents, rounds, agents // 3))
    unit = ShuffledUnit(unit_settings(agents, rounds, bits=bits), 3, np.random.default_rng(seed))
    unit.run(happens)
    check_sums(unit)
    assert all(total is not None for _, total, _ in unit.sums)
    assert unit.server.state.sums_refused == 0
    assert not unit.records
    kept = set(unit.names) - unit.gone
    assert all(kept <= set(names) for _, _, names in unit.sums)
    assert unit.server.state.unanswered == sum(agents - len(names) for _, _, names in unit.sums)


@SOME
@given(st.integers(3, 6), st.integers(0, 2**32), st.floats(0.0, 0.1), st.data())
def test_sums_are_exact_or_refused_whoever_vanishes_and_however_hasty_the_server_is(
    agents: int, seed: int, hasty: float, data: st.DataObject
) -> None:
    rounds, sampled = 3, data.draw(st.integers(2, agents))
    happens = data.draw(accidents(agents, rounds, agents))
    unit = ShuffledUnit(unit_settings(agents, rounds, sampled), 2, np.random.default_rng(seed))
    unit.run(happens, hasty)
    check_sums(unit)
    refused = sum(total is None for _, total, _ in unit.sums)
    assert unit.server.state.sums_refused == refused
    assert [record.name for record in unit.records] == ["masked_sum_refused"] * refused
    assert all(record.value < unit.unit.group.minimum for record in unit.records)
    assert unit.server.state.unanswered == sum(sampled - len(names) for _, _, names in unit.sums)


@SOME
@given(st.integers(2, 6), st.integers(0, 2**32))
def test_with_too_few_agents_left_the_model_stands_still(agents: int, seed: int) -> None:
    """All sums are refused, so no update is ever in the server's state: it ends where it began."""
    generator = np.random.default_rng(seed)
    unit = ShuffledUnit(unit_settings(agents, 2), 4, generator)
    for name in generator.permutation(unit.names)[: agents // 3 + 1].tolist():
        unit.vanish(name)
    unit.run()
    assert [total for _, total, _ in unit.sums] == [None, None]
    assert unit.server.state.sums_refused == 2
    assert unit.server.w.values.tolist() == unit.initial.values.tolist()
