"""Links with exceptions: what passes over them arrives later, and everything else as without."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sampling import examples

from gossamer.runtimes.links import Links
from gossamer.runtimes.world import LinkSettings

NAMES = tuple("abcd")
FRAMES = st.lists(st.tuples(st.permutations(range(4)), st.integers(1, 5000), st.floats(0, 3)), min_size=1, max_size=40)
"""(sender and receiver first, bytes, seconds since the frame before)."""
UNRELIABLE = {"jitter": 0.4, "loss": 0.2, "duplicate": 0.3}
EXCEPTIONS = (
    {"edge": [0, 1], "latency": 0.7},
    {"edge": [1, 0], "bandwidth": 800.0},
    {"node": 2, "latency": 0.5, "bandwidth": 2000.0},
)


def arrivals(frames: Any, **given: Any) -> list[tuple[float, ...]]:
    links, now, found = Links(LinkSettings.model_validate(given), NAMES, 3, 100.0), 100.0, []
    for places, size, after in frames:
        now += after
        found.append(links.transmit(NAMES[places[0]], NAMES[places[1]], size, now))
    return found


@pytest.mark.parametrize("exception", EXCEPTIONS)
@given(FRAMES, st.sampled_from([{}, UNRELIABLE]), st.sampled_from([None, 1500.0]))
@settings(max_examples=examples(100))
def test_a_frame_over_a_slow_link_comes_later_and_all_others_as_before(
    exception: dict[str, Any], frames: Any, unreliable: dict[str, float], bandwidth: float | None
) -> None:
    """The same draws too: as many copies come, each as much later as the link takes longer."""
    usual = {"latency": 0.2, "bandwidth": bandwidth, **unreliable}
    before, after = arrivals(frames, **usual), arrivals(frames, **usual, exceptions=[exception])
    for (places, _, _), old, new in zip(frames, before, after, strict=True):
        ends = set(places[:2])
        slow = exception["node"] in ends if "node" in exception else ends == set(exception["edge"])
        assert len(new) == len(old)
        if slow:
            assert all(late > early for late, early in zip(new, old, strict=True))
            assert len({round(late - early, 6) for late, early in zip(new, old, strict=True)}) <= 1
        else:
            assert new == old


@given(FRAMES)
@settings(max_examples=examples(100))
def test_messages_over_a_link_with_a_bandwidth_arrive_in_order_one_after_the_other(frames: Any) -> None:
    """Between two arrivals on a link lies at least the time that the later one takes to pass."""
    found = arrivals(frames, exceptions=[{"node": 0, "bandwidth": 1000.0}])
    last: dict[tuple[int, int], float] = {}
    for (places, size, _), (arrival,) in zip(frames, found, strict=True):
        link = (places[0], places[1])
        if 0 in link:
            assert arrival >= last.get(link, 0.0) + size / 1000.0 - 1e-9
            last[link] = arrival


def test_of_several_exceptions_about_a_link_the_last_one_counts() -> None:
    frames = [((0, 1), 1000, 0.0), ((1, 0), 1000, 0.0), ((0, 2), 1000, 0.0), ((2, 3), 1000, 0.0)]
    exceptions = [{"node": 0, "latency": 2.0, "bandwidth": 100.0}, {"edge": [1, 0], "latency": 5.0}]
    assert arrivals(frames, latency=1.0, exceptions=exceptions) == [(115.0,), (115.0,), (112.0,), (101.0,)]


def test_a_spec_without_exceptions_is_written_as_before() -> None:
    assert "exceptions" not in LinkSettings().model_dump(mode="json")
