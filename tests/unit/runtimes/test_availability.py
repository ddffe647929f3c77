"""Availability: when nodes are there by day and night or by a trace, and what a simulation makes of it."""

from __future__ import annotations

import json
import math
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from gossamer.cli import main
from gossamer.errors import DataError, SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec, write_spec
from gossamer.runtimes.world import DayAndNight, FaultSettings, Span, Trace
from gossamer.sides.plan import counts_of


def is_away(spans: list[Span], second: float) -> bool:
    return any(start <= second < end for start, end in spans)


@pytest.mark.parametrize(("there", "spread"), [(0.5, 1.0), (0.25, 1.0), (0.9, 0.3), (0.5, 0.0)])
def test_every_node_is_there_for_the_same_share_of_each_day(there: float, spread: float) -> None:
    """Of its own days, which begin in its morning."""
    days = DayAndNight(day=100.0, there=there, spread=spread)
    for spans in days.away(30, 4):
        found = list(islice(spans, 6))
        for (start, end), (next_start, next_end) in pairwise(found):
            assert start < end < next_start
            assert next_end - end == pytest.approx(100.0)
            assert next_start - end == pytest.approx(100.0 * there)


def test_mornings_are_spread_and_public() -> None:
    """Of 400 nodes about half are away at any second of the second day: a binomial of sd 10, so 60 is six of them."""
    days = DayAndNight(day=100.0)
    found = [list(islice(spans, 4)) for spans in days.away(400, 4)]
    for second in (100.0, 125.0, 160.0, 199.0):
        assert abs(sum(is_away(spans, second) for spans in found) - 200) < 60
    assert found == [list(islice(spans, 4)) for spans in days.away(400, 4)]
    assert found != [list(islice(spans, 4)) for spans in days.away(400, 5)]
    together = [list(islice(spans, 2)) for spans in DayAndNight(day=100.0, spread=0).away(3, 4)]
    assert together == [[(50.0, 100.0), (150.0, 200.0)]] * 3


def trace(folder: Path, text: str, every: float | None = None) -> Trace:
    path = folder / "trace.csv"
    path.write_text(text)
    return Trace(path=path, every=every)


def test_a_trace_says_when_nodes_are_there(tmp_path: Path) -> None:
    found = trace(tmp_path, "# node,from,to\n0,0,10\n1,5,20\n0,30,\n\n1,20,25\n")
    assert [list(spans) for spans in found.away(2, 0)] == [[(10, 30)], [(0, 5), (25, math.inf)]]


def test_a_trace_may_begin_again(tmp_path: Path) -> None:
    """The end of one time and the beginning of the next are one absence, or none."""
    found = trace(tmp_path, "0,0,10\n0,40,50\n1,5,20\n2,0,\n3,0,9\n3,9,50\n", every=50)
    first, second, *there_for_ever = found.away(4, 0)
    assert list(islice(first, 3)) == [(10, 40), (60, 90), (110, 140)]
    assert list(islice(second, 3)) == [(0, 5), (20, 55), (70, 105)]
    assert [list(spans) for spans in there_for_ever] == [[], []]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0,0,10\n", "node 1 has no line; say when it is there"),
        ("0,0,10\n1,5\n", r"line 2: expected node,from,to with a node from 0 to 1 and from < to, found '1,5'"),
        ("0,0,10\n2,5,9\n", "line 2: expected"),
        ("node,from,to\n0,0,10\n1,0,\n", "line 1: expected .*, found 'node,from,to'; put # before a heading"),
        ("0,0,10\n1,five,\n", "line 2: expected .*, found '1,five,'; correct the line"),
        ("0,9,9\n", "line 1: expected"),
        ("0,-1,9\n", "line 1: expected"),
        ("0,nan,9\n", "line 1: expected"),
        ("0,0,10\n0,9,12\n1,0,\n", "node 0 is there twice at second 9; join these lines"),
    ],
)
def test_traces_that_say_nothing_clear(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        trace(tmp_path, text).away(2, 0)


def test_a_trace_that_is_not_there_or_longer_than_its_period(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the trace \(No such file or directory\)"):
        Trace(path=tmp_path / "none.csv").away(2, 0)
    with pytest.raises(DataError, match="and up to 50, found '1,40,60'"):
        trace(tmp_path, "0,0,10\n1,40,60\n", every=50).away(2, 0)


def spec(algorithm: dict[str, Any], faults: dict[str, Any], **others: Any) -> dict[str, Any]:
    privacy = {"mechanism": "none"}
    return {"dataset": "digits", "algorithm": {"nodes": 4, **algorithm}, "privacy": privacy, "faults": faults, **others}


def test_a_trace_is_the_same_as_its_absences(tmp_path: Path) -> None:
    """Same schedule: a trace is nothing but absences that somebody measured. (Specs that differ share no samples.)"""
    path = tmp_path / "trace.csv"
    path.write_text("0,0,\n1,0,20\n1,35,\n2,4,\n3,0,15\n3,22,31\n3,40,\n")
    gone = [(1, 20, 35), (2, 0, 4), (3, 15, 22), (3, 31, 40)]
    said = {"absences": [{"node": node, "start": start, "end": end} for node, start, end in gone]}
    read = {"availability": {"name": "trace", "path": str(path)}}
    for algorithm in (
        {"name": "fedbuff", "buffer": 2, "updates_per_node": 8},
        {"name": "gossip", "updates_per_node": 40},
    ):
        first, second = (run(parse_spec(spec(algorithm, faults))) for faults in (said, read))
        for key in ("updates", "virtual_seconds", "messages", "bytes", "most_releases"):
            assert [row[key] for row in first.metrics] == [row[key] for row in second.metrics]
        assert first.summary["finished"] == second.summary["finished"]


@pytest.mark.parametrize("name", ["fedavg", "fedbuff", "fedasync", "gossip", "asgd"])
def test_runs_go_on_day_after_day(name: str) -> None:
    """Each is finished by all of its nodes, although days have no end, and is longer than without nights."""
    algorithm: dict[str, Any] = {"name": name}
    algorithm |= {"rounds": 20} if name == "fedavg" else {"updates_per_node": 20}
    algorithm |= {"buffer": 2} if name == "fedbuff" else {}
    nights = {"availability": {"name": "day_and_night", "day": 30.0}}
    found = run(parse_spec(spec(algorithm, nights)))
    without = run(parse_spec(spec(algorithm, {})))
    assert found.summary["status"] == "finished"
    assert found.metrics[-1]["virtual_seconds"] > without.metrics[-1]["virtual_seconds"]


def test_a_node_that_the_trace_has_no_more_of_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("0,0,\n1,0,\n2,0,\n3,0,12\n")
    read = {"availability": {"name": "trace", "path": str(path)}}
    found = run(parse_spec(spec({"name": "fedbuff", "buffer": 2, "updates_per_node": 6}, read)))
    assert found.summary["gone"] == ["node-3"]


@pytest.mark.parametrize("name", ["fedavg", "fedbuff", "fedasync"])
@pytest.mark.parametrize("noise_by", ["client", "server"])
@pytest.mark.filterwarnings("ignore:fedbuff. with noise_by:gossamer.errors.RunWarning")
def test_days_and_nights_amplify_nothing(name: str, noise_by: str) -> None:
    """Epsilon is that of Gaussian releases with all of a client's data, as many as it may make: no less for nights."""
    if (name, noise_by) == ("fedasync", "server"):
        pytest.skip("fedasync has no sums")
    algorithm: dict[str, Any] = {"name": name, "noise_by": noise_by, "nodes": 6}
    algorithm |= {"trusted": "server"} if noise_by == "server" else {}
    algorithm |= {"rounds": 4} if name == "fedavg" else {"updates_per_node": 4}
    private = {"clip": 0.5, "noise_multiplier": 8.0}
    nights = {"availability": {"name": "day_and_night", "day": 30.0}}
    plans = [plan_run(prepare(parse_spec(spec(algorithm, f) | {"privacy": private}))) for f in ({}, nights)]
    assert plans[1].guarantee.epsilon >= plans[0].guarantee.epsilon * (1 - 1e-9)
    assert "secret coins" not in str(plans[1].guarantee)
    for name_, side in ((n, plans[1].side(n)) for n in ("node-0", "server")):
        for kind in counts_of(side) or {}:
            assert kind.sampling.probability == 1, name_  # type: ignore[union-attr]


def test_secret_cohorts_need_all_there() -> None:
    algorithm = {"name": "fedavg", "noise_by": "server", "trusted": "server", "cohorts": "secret"}
    algorithm |= {"clients_per_round": "2"}
    nights = {"availability": "day_and_night"}
    with pytest.raises(SpecError, match=r"faults.availability or links.partitions; leave these out"):
        parse_spec(spec(algorithm, nights) | {"privacy": {"noise_multiplier": 8.0, "clip": 1.0}})


def test_bad_inputs_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {
        "there": ({"availability": {"name": "day_and_night", "there": 1.5}}, "faults.availability.there"),
        "kind": ({"availability": "weekly"}, "faults.availability: unknown name 'weekly'"),
        "path": ({"availability": {"name": "trace", "path": "none.csv"}}, "cannot read the trace"),
        "both": (
            {"availability": "day_and_night", "absences": [{"node": 1, "start": 2}]},
            "1 absence does; say one of them",
        ),
    }
    for name, (faults, said) in bad.items():
        written = tmp_path / f"{name}.yaml"
        written.write_text(json.dumps(spec({"name": "fedbuff", "buffer": 2}, faults)))
        assert main(["check", str(written)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_specs_without_it_are_written_as_before() -> None:
    assert "availability" not in write_spec(parse_spec(spec({"name": "fedbuff", "buffer": 2}, {})))
    nights = parse_spec(spec({"name": "fedbuff", "buffer": 2}, {"availability": "day_and_night"}))
    assert isinstance(nights.faults, FaultSettings)
    assert nights.faults.away
    assert "day_and_night" in write_spec(nights)
