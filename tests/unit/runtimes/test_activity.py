"""Counts of what nodes did, and a timeline that stays small."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from gossamer.protocol.node import Node
from gossamer.runtimes.activity import AWAY, COMPUTING, NODES, SENDING, SPANS, Activity, Histogram, Timeline

NAMES = {name: Node(name, None) for name in ("a", "b")}


@pytest.mark.parametrize("most", [3, 63, 64, 1000])
def test_a_histogram_counts_every_value_in_its_bin(most: int) -> None:
    values = np.random.default_rng(most).integers(0, most + 1, 500).tolist()
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    expected = Counter(value // histogram.width for value in values)
    assert {place: count for place, count in enumerate(histogram.counts) if count} == dict(expected)
    assert len(histogram.counts) <= 64
    assert histogram.width == 1 if most < 64 else histogram.width <= 2 * max(values) / 64


def test_a_short_timeline_is_exact() -> None:
    timeline = Timeline(("a", "b"))
    timeline.add(1, COMPUTING, 0.25, 1.5)
    timeline.add(0, SENDING, 1.0)
    assert timeline.as_dict() == {
        "nodes": ["a", "b"],
        "merged_within": 0.0,
        "spans": [[0, "sending", 1.0, 0.0, 1], [1, "computing", 0.25, 1.5, 1]],
    }


def test_a_long_timeline_stays_small_and_loses_no_second() -> None:
    names, timeline, draws = ("a", "b", "c"), Timeline(("a", "b", "c")), np.random.default_rng(1)
    seconds, counts, last = defaultdict(float), Counter[str](), dict.fromkeys(names, 0.0)
    for name, gap, long in zip(draws.choice(names, 20_000), draws.random(20_000), draws.random(20_000), strict=True):
        timeline.add(names.index(name), COMPUTING, last[name] + gap, long)
        last[name] += gap + long
        seconds[name] += long
        counts[name] += 1
    found = timeline.as_dict()
    assert SPANS // 4 < len(found["spans"]) <= SPANS
    assert found["merged_within"] > 1
    for place, name in enumerate(names):
        spans = [span for span in found["spans"] if span[0] == place]
        assert sum(span[3] for span in spans) == pytest.approx(seconds[name], rel=1e-9)
        assert sum(span[4] for span in spans) == counts[name]
        ends = [start + took for _, _, start, took, _ in spans]
        assert all(end <= later[2] + 1e-6 for end, later in zip(ends, spans[1:], strict=False))
        assert ends[-1] <= last[name] + 1e-6


def test_of_many_nodes_some_are_drawn_evenly() -> None:
    names = tuple(f"node-{number}" for number in range(1001))
    chosen = [int(name.removeprefix("node-")) for name in Timeline(names).as_dict()["nodes"]]
    assert len(chosen) == NODES
    assert (chosen[0], chosen[-1]) == (0, 1000)
    assert set(np.diff(chosen).tolist()) <= {20, 21}


def row(activity: Activity, name: str, elapsed: float) -> dict[str, Any]:
    place = list(activity.counts).index(name)
    return {key: column[place].item() for key, column in activity.table(elapsed).items()}


def test_of_a_node_that_is_not_drawn_all_is_counted_and_no_span_kept() -> None:
    activity = Activity({f"node-{number}": Node(f"node-{number}", None) for number in range(1001)}, 100.0)
    for name in ("node-0", "node-1"):
        _begins(activity, name, 101.0, 4.0, 0)
        activity.ended(name, 105.0, 0, 4.0)
        activity.leaves(name, 106.0)
        activity.came_back(name, 107.0)
        done = row(activity, name, 10.0)
        assert (done["updates"], done["computing_seconds"], done["away_seconds"]) == (1, 4.0, 1.0)
    assert {span[0] for span in activity.timeline.as_dict()["spans"]} == {0}


def test_what_a_node_loses_when_it_goes_counts_up_to_then() -> None:
    activity = Activity(NAMES, 100.0)
    _begins(activity, "a", 101.0, 4.0, 0)
    activity.leaves("a", 103.0)
    activity.came_back("a", 108.0)
    _begins(activity, "a", 108.0, 1.0, 0)
    activity.ended("a", 109.0, 0, 1.0)
    _begins(activity, "a", 109.0, 4.0, 0)
    activity.leaves("b", 105.0)
    activity.close(110.0)
    activity.close(110.0)  # nothing is counted twice
    found = row(activity, "a", 10.0)
    assert np.isnan(found.pop("staleness"))
    assert found == {
        "updates": 1,
        "messages": 0,
        "bytes": 0,
        "computing_seconds": 4.0,
        "away_seconds": 5.0,
        "idle_seconds": 1.0,
    }
    assert row(activity, "b", 10.0)["away_seconds"] == 5.0
    kinds = Counter(span[1] for span in activity.timeline.as_dict()["spans"])
    assert kinds == {COMPUTING: 3, AWAY: 2}


def test_staleness_while_computing_is_what_others_did_meanwhile() -> None:
    activity = Activity(NAMES, 0.0, "computing")
    _begins(activity, "a", 0.0, 3.0, 0)
    _begins(activity, "b", 0.0, 1.0, 0)
    activity.ended("b", 1.0, 0, 1.0)
    _begins(activity, "b", 1.0, 1.0, 1)
    activity.ended("b", 2.0, 1, 1.0)
    activity.ended("a", 3.0, 2, 3.0)
    assert activity.table(3.0)["staleness"].tolist() == [2.0, 0.0]
    assert activity.staleness() == {"measured": "computing", "width": 1, "counts": [2, 0, 1]}


def _begins(activity: Activity, name: str, now: float, most: float, updates: int) -> None:
    """A node begins to compute, as the simulator writes it down."""
    counts = activity.counts[name]
    counts.since, counts.most, counts.before = now, most, updates
