"""Drills: scripts of incidents, what they come to, and that what does not hold is seen."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from tests.reference.drill_script import HERE, processes

from gossamer.cli import main
from gossamer.cli.runs.drilling import recall
from gossamer.errors import SpecError
from gossamer.experiment.reading import parse_spec, read_spec
from gossamer.faults.drills import ALL, SINGLE, Drill, deadline_of
from gossamer.faults.incidents import FAULTS, Incident, Script
from gossamer.faults.network import Partition
from gossamer.faults.schedules import Kill

SCRIPT = Script.read(HERE / "incidents.yaml")
SPECS = ("gossip", "fedbuff", "fedavg", "graph")


@cache
def drill(name: str) -> Drill:
    return Drill.of(read_spec(HERE / f"{name}.yaml"), SCRIPT, recall)


@pytest.mark.some(4)
@pytest.mark.parametrize(("name", "seed"), [*(("gossip", n) for n in range(4)), *(("fedbuff", n) for n in range(4))])
def test_seeds_hold(name: str, seed: int) -> None:
    """Nobody waits for a party that something befalls, and it comes back with no more than its outage and a retry."""
    found = drill(name).run(seed)
    assert found.problems == ()
    unhurt = [fate for fate in found.fates[SINGLE] if fate.incident == "none" and fate.delay is not None]
    assert [fate.party for fate in unhurt] == ["node-0", "node-6", "node-7"]
    assert [fate.delay for fate in unhurt] == [0.0] * 3
    assert {fate.party: fate.end for fate in found.fates[ALL]}["node-4"] == "gone"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seeds"), [*((name, 50) for name in SPECS), ("fedavg-masked", 12)])
def test_many_seeds_hold(name: str, seeds: int) -> None:
    """The thousand of each is `make drill-seeds`."""
    for seed in range(4, 4 + seeds):
        found = drill(name).run(seed)
        assert found.problems == (), (name, seed)


@pytest.mark.some(2)
@pytest.mark.parametrize(("name", "seed"), [("graph", 0), ("graph", 1), ("fedavg", 0), ("fedavg", 19)])
def test_rounds_are_delayed_by_a_deadline_at_most(name: str, seed: int) -> None:
    found = drill(name).run(seed)
    assert found.problems == ()
    assert set(found.fates) == {*(f"node-{number} alone" for number in range(1, 6)), SINGLE, ALL}
    for title, fates in found.fates.items():
        if title.endswith("alone"):
            assert max(fate.delay or 0.0 for fate in fates) <= 3600.0


def test_sums_under_masks_wait_once_for_whoever_is_late_and_sum_without_whoever_is_gone() -> None:
    """Its ledger has one line a sum, of five messages; and after 2.5 h a hospital is in the sums that are left."""
    pytest.importorskip("cryptography", reason="needs the extra secure")
    found = drill("fedavg-masked").run(0)
    assert found.problems == ()
    assert max(fate.delay or 0.0 for fate in found.fates["node-4 alone"]) <= 3600.0
    charged = {fate.party: fate.charged or 0 for fate in found.fates["node-2 alone"]}
    assert charged["node-0"] == 24
    assert 24 - 2.5 * 3600 / 1800 <= charged["node-2"] < 24
    gone = next(one.at for one in SCRIPT.moved(0).incidents if one.kind == "gone")
    alone = {fate.party: fate.charged for fate in found.fates["node-4 alone"]}
    assert alone["node-4"] == gone // 1800, "the sums of whole rounds of half an hour before it was gone"


def test_a_seed_gives_the_same_again_and_another_another() -> None:
    first, again, other = (drill("gossip").run(seed) for seed in (5, 5, 6))
    assert first == again
    assert first.fates[ALL] != other.fates[ALL]


def test_who_saves_is_killed_before_it_is_done_and_an_old_copy_is_refused() -> None:
    lines: list[str] = []
    found = drill("gossip").run(0, lines.append)
    assert any("node-3 killed before committing" in line for line in lines)
    assert any("node-5 comes back with an old copy: node-" in line for line in lines)
    note = next(fate.note for fate in found.fates[ALL] if fate.party == "node-5")
    assert "more of it" in note


def test_an_old_copy_that_is_not_refused_is_found() -> None:
    """Its peers know of messages that it has forgotten."""
    made = drill("fedbuff")
    found = replace(made, course=replace(made.course, recall=lambda links, theirs: None)).run(0)
    said = [line.partition(": ")[2] for line in found.problems]
    assert len(said) == 2
    for line in said:
        numbers = re.fullmatch(r"server has message (\d+) of node-5, which has stored (\d+)", line)
        assert numbers is not None, line
        assert int(numbers[1]) > int(numbers[2])


def test_rounds_that_wait_for_whoever_is_gone_are_found() -> None:
    """A server that waits for its clients in every round anew, 3 h each: a party that is gone costs many deadlines."""
    content = {
        "algorithm": {"name": "fedavg", "nodes": 8, "rounds": 6, "timeout": 10_800, "privacy_unit": "example"},
        "privacy": {"noise_multiplier": 1.0},
        "speeds": {"name": "constant", "seconds": 120},
        "links": {"retry_after": 8, "silence": 60},
    }
    script = Script(incidents=(Incident(kind="gone", party="node-1", at=900.0),))
    found = Drill.of(parse_spec(content), script, recall).run(0)
    assert any("later, expected" in problem for problem in found.problems)


def test_whoever_waits_without_end_is_not_drilled() -> None:
    with pytest.raises(SpecError, match=r"waits without end; give algorithm\.timeout"):
        Drill.of(parse_spec({"algorithm": {"name": "fedavg", "nodes": 8}, "privacy": "none"}), SCRIPT, recall)


@pytest.mark.parametrize(
    ("name", "nodes", "servers"),
    [("gossip", 24, ()), ("fedbuff", 24 * 5, (None,)), ("fedavg", 24, (None,)), ("graph", None, (24, 24))],
)
def test_a_drill_has_as_many_releases_as_its_spec_says(
    name: str, nodes: int | None, servers: tuple[int | None, ...]
) -> None:
    """24 updates of each node, in fedbuff of five noisy steps; where units release, 24 sums of each server."""
    charged = drill(name).course.run(0, Script.model_construct(incidents=())).charged
    assert tuple(charged.values()) == (nodes,) * 8 + servers


def test_what_is_other_than_the_spec_says_is_said() -> None:
    content = {
        "algorithm": {"name": "gossip", "nodes": 4, "updates_per_node": 3},
        "objective": {"name": "softmax", "l2": 0.1},
        "privacy": {"noise_multiplier": 3.0},
        "links": {"latency": 2, "loss": 0.25, "retry_after": 4},
        "faults": {"absences": [{"node": 1, "start": 2, "end": 9}]},
        "evaluation": "off",
    }
    made = Drill.of(parse_spec(content), Script(incidents=(Incident(kind="gone", party="node-1", at=1.0),)), recall)
    assert made.replaced == (
        "dataset: zeros of 4 features instead of digits, as many for each node",
        "objective.name: squared instead of softmax",
        "objective.l2: 0.0 instead of 0.1",
        "objective.dtype: float64 instead of float32",
        "objective.intercept: no instead of yes",
        "links.latency: 0.1 instead of 2.0",
        "links.loss: 0.0 instead of 0.25",
        "faults.absences: the default instead of [{start: 2.0, end: 9.0, node: 1}]",
    )
    assert made.course.small.prepared.experiment.privacy.noise_multiplier == 3.0


def test_an_incident_that_would_come_after_the_end_is_found() -> None:
    script = Script(incidents=(Incident(kind="broker", at=1e9, seconds=60.0),))
    (problem,) = Drill.of(read_spec(HERE / "gossip.yaml"), script, recall).run(0).problems
    assert re.fullmatch(
        r"all incidents: it is over after 1\d.* h, before broker away for 1 min happens \(.* h\)", problem
    )


# Scripts


def test_every_kind_has_its_faults_in_virtual_time_and_with_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = set(get_args(Incident.model_fields["kind"].annotation))
    assert set(FAULTS) == kinds
    assert {incident.kind for incident in SCRIPT.incidents} == kinds
    pytest.importorskip("cryptography", reason="needs the extra secure")
    assert set(processes(monkeypatch).ACTIONS) == kinds
    assert {incident.kind for incident in Script.read(HERE / "incidents-processes.yaml").incidents} == kinds


def test_with_processes_a_round_may_wait_a_deadline_for_each_incident(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a party as long as it is away itself, with the broker's 1.2 s, and what it takes to go on."""
    pytest.importorskip("cryptography", reason="needs the extra secure")
    module, script = processes(monkeypatch), Script.read(HERE / "incidents-processes.yaml")
    deadline = deadline_of(read_spec(HERE / "graph-processes.yaml"))
    assert deadline == 36.0
    assert deadline_of(read_spec(HERE / "gossip-processes.yaml")) == 0.0
    alone = module.SLACK + 1.2 + module.RECONNECT
    assert module.most_later("node-0", script, 0.0) == pytest.approx(alone)
    assert module.most_later("node-0", script, deadline) == pytest.approx(alone + 6 * 36.0)
    assert module.most_later("node-2", script, 0.0) == pytest.approx(alone + 90.0 + module.RECONNECT)
    assert module.most_later("node-5", script, 0.0) == pytest.approx(alone + 6.0 + module.START)


def test_what_a_script_comes_to() -> None:
    script = Script(
        incidents=(
            Incident(kind="network", party="a", at=10.0, seconds=5.0),
            Incident(kind="broker", at=20.0, seconds=2.0),
            Incident(kind="gone", party="b", at=30.0),
            Incident(kind="backup", party="a", at=40.0, seconds=6.0, copied=15.0),
        )
    )
    cut, first, second, gone, backup = script.faults(0, ("a", "b"))
    assert cut == Partition(10.0, 15.0, frozenset({"a"}))
    assert [first, second] == [Partition(20.0, 22.0, frozenset({name})) for name in ("a", "b")]
    assert isinstance(gone, Kill)
    assert (gone.party, gone.at, gone.away, gone.saving) == ("b", 30.0, math.inf, False)
    assert isinstance(backup, Kill)
    assert (backup.at, backup.away, backup.copied) == (40.0, 6.0, 25.0)
    assert [str(one) for one in script.of("a")] == ["no network for 5 s", "old backup, 6 s"]
    assert script.without_broker().parties == ("a", "b")


def test_a_seed_moves_each_incident_by_no_more_than_the_spread() -> None:
    moved = SCRIPT.moved(1)
    moves = [one.at - before.at for one, before in zip(moved.incidents, SCRIPT.incidents, strict=True)]
    assert all(0.0 < abs(by) <= SCRIPT.spread for by in moves)
    assert SCRIPT.moved(1) == moved != SCRIPT.moved(2)


ONE = "kind: network, party: node-1, at: 10, seconds: 5"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ": expected the key incidents with a list, found nothing; write such as incidents: [{kind: network, "),
        (
            "hello",
            ": expected the key incidents with a list, found 'hello'; write such as incidents: [{kind: network, ",
        ),
        ("incidents: []", ": incidents: expected 1 or more of them, found 0"),
        ("incidents: {kind: gone}", ": incidents: expected a list, found {kind: gone}"),
        ("incidents: [1]", ": incidents.0: expected keys with their values, found 1"),
        ("spread: 5", ": incidents is missing: expected a list, found {spread: 5}; add incidents"),
        (f"sprad: 5\nincidents: [{{{ONE}}}]", ": unknown key sprad; did you mean spread?"),
        (f"dataset: a\nincidents: [{{{ONE}}}]", ": unknown key dataset; expected one of incidents, spread"),
        (
            f"incidents: [{{{ONE}, duration: 3}}]",
            ": unknown key incidents.0.duration; expected one of at, copied, kind, party, seconds",
        ),
        (f"incidents: [{{{ONE}}}, {{{ONE}, node: 3}}]", ": unknown key incidents.1.node; expected one of at, copied"),
        (
            "incidents: [{kind: flood, at: 1}]",
            ": incidents.0.kind: unknown name 'flood'; expected one of backup, broker, gone, killed, network",
        ),
        (
            "incidents: [{party: a, at: 1}]",
            ": incidents.0.kind is missing: expected one of network, broker, killed, gone, backup, found {party: a, "
            "at: 1}; add kind",
        ),
        ("incidents: [{kind: network, at: 1, seconds: 2}]", ": incidents.0: network needs party; add it"),
        (
            "incidents: [{kind: broker, at: 1, seconds: 2, party: node-1}]",
            ": incidents.0: broker has no party; leave it out",
        ),
        (
            "incidents: [{kind: gone, at: 1, seconds: 2, party: node-1}]",
            ": incidents.0: gone has no seconds; leave it out",
        ),
        (
            "incidents: [{kind: backup, at: 1, seconds: 2, copied: 5, party: node-1}]",
            ": incidents.0: a copy is made in the run, found copied 5 s before 1 s; lower copied, or raise at",
        ),
        (
            "incidents: [{kind: gone, at: 1, party: a}, {kind: killed, at: 9, seconds: 3, party: a}]",
            ": incidents: a has no process that could be hit at 9 s (killed while it saves, 3 s), as it is away from "
            "1 s on (gone for ever); let one of the two happen at another time",
        ),
        (
            "spread: 90\nincidents: [{kind: killed, at: 1, seconds: 3, party: a}, {kind: gone, at: 9, party: a}]",
            ": incidents: a has no process that could be hit at 9 s (gone for ever), as it is away from 1 s on (killed "
            "while it saves, 3 s), and a seed moves each by up to 90 s; let one of the two happen at another time",
        ),
        (
            "incidents: [{kind: network, at: 1, seconds: 1.0e+300, party: a}]",
            ": incidents.0.seconds: input should be less than or equal to 10000000, found 1e+300",
        ),
        (f"incidents: [{{{ONE}, at: 3}}]", ", line 1: 'at' is given twice, first in line 1; keep one"),
    ],
)
def test_wrong_incidents_are_refused_in_a_line_that_is_about_them_alone(text: str, said: str, tmp_path: Path) -> None:
    """Neither a list that is too short because of what is wrong in it, nor the keys of specs."""
    file = tmp_path / "incidents.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        Script.read(file)
    error = str(caught.value)
    assert error.startswith(f"{file}{said}")
    assert "\n" not in error
    assert ("of them, found" in error) == (text == "incidents: []")
    assert "algorithm" not in error


def test_a_party_that_there_is_not(tmp_path: Path) -> None:
    script = Script(incidents=(Incident(kind="gone", party="node-8", at=1.0),))
    with pytest.raises(
        SpecError, match=r"incidents\.0\.party: expected one with data, node-0, .* found 'node-8'; name"
    ):
        Drill.of(read_spec(HERE / "gossip.yaml"), script, recall)
    all_gone = Script(incidents=tuple(Incident(kind="gone", party=f"node-{n}", at=1.0) for n in range(8)))
    with pytest.raises(SpecError, match=r"are gone for ever; leave one of them there"):
        Drill.of(read_spec(HERE / "gossip.yaml"), all_gone, recall)


def test_the_command_prints_who_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(HERE / "fedbuff.yaml"), "--incidents", str(HERE / "incidents.yaml")]
    assert main(["simulate-faults", *words]) == 0
    said, remarks = capsys.readouterr()
    assert "dataset: zeros of 4 features instead of digits, as many for each node" in remarks
    assert "fedbuff, seed 0: all incidents, in virtual time" in said
    assert "node-4  gone for ever" in said
    assert "1 of 1 seed from 0 on: everything held" in said
