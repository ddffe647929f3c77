"""Over-selection: more clients are asked than a round needs; all are accounted for, and nothing is amplified."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reference import client_specs
from tests.unit.algorithms.fedavg.test_fedavg import (
    SECRET,
    SIZE,
    TRUSTED,
    accounted,
    context,
    given,
    planned,
    server,
    spec,
    told,
    trusted,
    update,
)

from gossamer.algorithms.clients.nodes import SERVER, Fetch, Leave, Push
from gossamer.algorithms.fedavg.box import Settings
from gossamer.cli import main
from gossamer.errors import SpecError
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.mechanisms import Gaussian
from gossamer.privacy.tasks import CuratedSum, Query
from gossamer.protocol.effects import Compute
from gossamer.protocol.events import Completed, Started
from gossamer.sides.plan import WHOLE
from gossamer.vectors import Confined

SOME = {"clients_per_round": 2, "over_selection": 1.5, "rounds": 9}
"""Three of six are asked, two are waited for."""


@pytest.mark.parametrize(
    ("m", "factor", "asked"), [(10, 1.3, 13), (10, 1.1, 11), (3, 1.1, 4), (7, 1.0, 7), (7, None, 7), (100, 1.13, 113)]
)
def test_so_many_clients_are_asked(m: int, factor: float | None, asked: int) -> None:
    assert Settings(nodes=200, clients_per_round=m, over_selection=factor).asked == asked


def test_a_round_goes_on_with_the_first_and_leaves_out_who_comes_later() -> None:
    """Two of three; the third pushes its late update, which counts nowhere, and is asked again at once."""
    node = server(clients_per_round=2, over_selection=1.5)
    node.handle(Started(), 0.0)
    asked = [name for i in range(3) for name in given(told(node, f"node-{i}", Fetch(1)))]
    assert asked == ["node-0", "node-1", "node-2"]
    assert told(node, "node-2", Push(2, 0, update(3, 0, 0))) == []
    assert given(told(node, "node-0", Push(2, 0, update(0, 3, 0)))) == ["node-0", "node-2"]
    np.testing.assert_allclose(node.state.x.values, [2.5, 0.5, 2.0])  # the mean of two
    assert given(told(node, "node-1", Push(2, 0, update(9, 9, 9)))) == ["node-1"]
    np.testing.assert_allclose(node.state.x.values, [2.5, 0.5, 2.0])
    assert node.state.updates == {}


def test_clients_that_leave_are_made_up_for() -> None:
    """As long as there are so many; with fewer a round goes on with those there are."""
    node = server(clients_per_round=2, over_selection=1.5)
    node.handle(Started(), 0.0)
    for i in range(3):
        told(node, f"node-{i}", Fetch(1))
    told(node, "node-1", Leave())
    assert given(told(node, "node-0", Push(2, 0, update(2, 0, 0)))) == []
    assert given(told(node, "node-2", Push(2, 0, update(0, 2, 0)))) == ["node-0", "node-2"]
    told(node, "node-2", Leave())
    assert given(told(node, "node-0", Push(3, 1, update(0, 0, 4)))) == ["node-0"]
    np.testing.assert_allclose(node.state.x.values, [2.0, 0.0, 6.0])


def test_a_trusted_server_sums_the_first_and_divides_by_m() -> None:
    """An update that comes while the data side is at it is in no sum."""
    node = trusted(clients_per_round=2, over_selection=1.5)
    node.handle(Started(), 0.0)
    for i in range(3):
        told(node, f"node-{i}", Fetch(1))
    first, second, late = (Confined(np.full(SIZE, 0.1 * i)) for i in range(3))
    told(node, "node-2", Push(2, 0, first))
    _, asked = told(node, "node-0", Push(2, 0, second))
    updates = (("node-0", second), ("node-2", first))
    assert asked == Compute(CuratedSum(1, context(3).initial, updates, Query(WHOLE, Gaussian(0.5, 2.0), 2.0)))
    assert told(node, "node-1", Push(2, 0, late)) == []
    assert given(node.handle(Completed(1, update(1, 2, 3), 0), 0.0)) == ["node-0", "node-1", "node-2"]
    assert node.state.updates == {}


@pytest.mark.parametrize("algorithm", [{}, TRUSTED])
def test_it_is_not_amplified_and_all_rounds_that_a_client_is_asked_in_count(algorithm: dict[str, Any]) -> None:
    """Gaussian releases with all of its data, in every round that it may turn out to be in: no luck is counted on."""
    from dp_accounting import NeighboringRelation

    plan = planned(algorithm={**algorithm, **SOME})
    draw = client_specs.cohorts(spec(algorithm={**algorithm, **SOME}))
    assert {len(draw(round)) for round in range(9)} == {3}
    counts = Counter(name for round in range(9) for name in draw(round))
    most = max(counts.values())
    assert 5 <= most < 9
    expected = accounted(1.0, most, 4.0, NeighboringRelation.ADD_OR_REMOVE_ONE)  # 2 C apart under noise of 8 C
    assert plan.guarantee.epsilon == pytest.approx(expected, rel=0.01)
    without = planned(algorithm={**algorithm, **SOME, "over_selection": None})
    assert plan.guarantee.epsilon > without.guarantee.epsilon  # it costs privacy, and hides nobody
    assert "secret coins" not in str(plan.guarantee)
    if algorithm:
        assert plan.updates == 9  # sums
    else:
        assert {name: plan.releases[name] for name in plan.mechanisms} == dict(sorted(counts.items()))


@pytest.mark.parametrize("algorithm", [{}, TRUSTED])
def test_a_run_goes_on_without_the_slow_and_keeps_to_its_plan(algorithm: dict[str, Any], tmp_path: Path) -> None:
    """One of six is ten times slower: with over-selection nobody waits for it, and what it makes late is charged."""
    slow = {"scenario": {"name": "one_slow", "factor": 10}}
    found = {}
    for name, more in (("over", SOME), ("all", {**SOME, "over_selection": None})):
        out = tmp_path / name
        read = parse_spec(spec(algorithm={**algorithm, **more}, speeds=slow))
        result = run(read, out)
        assert result.summary["finished"][SERVER] == "rounds"
        assert result.summary["fedavg"]["steps"] == 9
        lines = [json.loads(line) for line in (out / "ledger.jsonl").read_text().splitlines()]
        charged = {line["node"]: line["releases"] for line in lines}
        assert all(line["probability"] == 1 for line in lines)
        draw = client_specs.cohorts(spec(algorithm=more))
        counts = Counter(name for round in range(9) for name in draw(round))
        assert all(releases <= counts[name] for name, releases in charged.items())
        assert result.metrics[-1]["epsilon_so_far"] <= result.guarantee.epsilon
        taken = sum(charged.values())
        assert taken == 18 if algorithm or name == "all" else 18 < taken <= 27
        found[name] = result.metrics[-1]["virtual_seconds"]
    assert found["over"] < 19 < 36 < found["all"]  # 9 rounds of 2 steps of a second; one of them with 20 slow seconds


def test_secret_cohorts_cut_nobody_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line from the command, with noise or without."""
    written = tmp_path / "spec.yaml"
    for privacy in ({}, {"mechanism": "none", "noise_multiplier": None, "clip": None}):
        written.write_text(json.dumps(spec(algorithm={**SECRET, "over_selection": 1.3}, privacy=privacy)))
        assert main(["check", str(written)]) == 2
        error = capsys.readouterr().err
        assert "algorithm.over_selection: who is among the first depends on who is fast" in error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ({"over_selection": 1.3}, "1.3 times 6 are 8 clients, and there are 6; lower it, or clients_per_round"),
        ({"clients_per_round": 2, "over_selection": 0.5}, "algorithm.over_selection"),
        ({"clients_per_round": 2, "over_selection": True}, "input should be a number, found true"),
    ],
)
def test_what_a_spec_may_not_say_of_it(algorithm: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        planned(algorithm=algorithm)
