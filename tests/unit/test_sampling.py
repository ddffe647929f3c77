"""The sample of a test's cases that runs by default."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sampling import sampled, spread

pytest_plugins = ["pytester"]

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=3)


@given(SIZES, st.integers(1, 40))
def test_as_many_cases_as_wanted_and_none_twice(sizes: list[int], number: int) -> None:
    cases = [*product(*map(range, sizes))]
    places = spread(cases, number)
    assert places == sorted(set(places))
    assert len(places) == min(number, len(cases))
    assert all(0 <= place < len(cases) for place in places)


@given(SIZES)
def test_every_value_of_every_parameter_comes(sizes: list[int]) -> None:
    """As many cases as the parameters have values together are always enough."""
    cases = [*product(*map(range, sizes))]
    chosen = [cases[place] for place in spread(cases, sum(sizes))]
    for axis, size in enumerate(sizes):
        assert {case[axis] for case in chosen} == set(range(size))


def test_one_parameter_is_spread_evenly() -> None:
    """No gap between neighbours is over twice the even one, nor at the ends."""
    places = spread([(i,) for i in range(100)], 10)
    assert max(b - a for a, b in zip([-1, *places], [*places, 100])) <= 20


SOURCE = """
import pytest

@pytest.mark.some(3)
@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", [*range(3), pytest.param(9, marks=pytest.mark.slow)])
def test_many(a, b): ...

@pytest.mark.parametrize("a", range(4))
def test_all(a): ...

@pytest.mark.some(3)
def test_without_cases(): ...
"""


def test_only_marked_tests_are_cut_and_slow_cases_do_not_count(pytester: pytest.Pytester) -> None:
    # When it is done, that plugin would look for garbage several times, among everything that other tests have left.
    pytester.makeini("[pytest]\nmarkers = some(n): n cases\n slow: long\naddopts = -p no:unraisableexception")
    items = pytester.getitems(SOURCE)
    kept = [item.nodeid.partition("::")[2] for item in sampled(items)]
    of_many = [name for name in kept if name.startswith("test_many")]
    assert len([name for name in of_many if "[9-" in name]) == 4  # the mark slow skips these
    assert len(of_many) == 4 + 3
    assert kept[len(of_many) :] == [f"test_all[{a}]" for a in range(4)] + ["test_without_cases"]
