"""Parts of shards: moments of virtual time on a clock, orders of events by hand, and what travels between shards."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.runtimes.shard import after, final, in_order, last_moment, packed, ranked, tied, unpacked
from gossamer.vectors import Public, Released


@given(st.floats(2.0**14, 2.0**15), st.floats(0, 1e7))
def test_the_last_moment_is_the_latest_that_runs_round_to_no_more(start: float, seconds: float) -> None:
    moment = last_moment(start, seconds)
    assert round(moment - start, 9) <= seconds < round(math.nextafter(moment, math.inf) - start, 9)


def test_the_order_of_events_of_one_time_is_that_of_their_causes() -> None:
    """At 2.0 the first shard has an event that was scheduled at 1.5, and the second one that was at 1.0, before it.

    That one scheduled another for the same moment, which is the last.
    """
    times = [np.array([1.0, 2.0]), np.array([1.5, 2.0, 2.0])]
    common = tied(times)
    assert common == [2.0]
    causes = [{2.0: [(1.5, 0, 1)]}, {2.0: [(1.0, 0, 3), (2.0, 7, 1)]}]
    ranks = ranked(common, causes, lambda time: 7)
    assert ranks == [{2.0: (7, [8])}, {2.0: (7, [7, 9])}]
    assert in_order(times, ranks).tolist() == [0, 2, 3, 1, 4]
    assert [final((2.0, rank, 0), ranks[1])[1] for rank in (6, 7, 8)] == [6, 7, 9]


def test_right_after_an_event_nothing_else_has_a_place() -> None:
    key = (1.0, (0.5, 3, 2))
    assert key < after(key) < (1.0, (0.5, 3, 3))
    assert (*key, "what happens") < after(key)


def test_what_travels_is_the_same_afterwards() -> None:
    """Labels, bits, and what is one vector in two places; each has memory of its own, which nobody may change."""
    one, other = Released(np.array([1.5, -0.0], np.float32)), Public(np.arange(3.0))
    found = unpacked(packed({"a": [one, other], "b": (one, Public(np.zeros(2, np.float32)))}))
    assert found == {"a": [one, other], "b": (one, Public(np.zeros(2, np.float32)))}
    assert found["a"][0] is found["b"][0]
    assert found["a"][0].values.base is None
    with pytest.raises(ValueError, match="read-only"):
        found["a"][0].values[0] = 1.0
