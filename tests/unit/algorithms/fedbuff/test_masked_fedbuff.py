"""FedBuff with masks: sums of cohorts in turn, over a public K, what they cost, and what its server is sent."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from dp_accounting import GaussianDpEvent, NeighboringRelation, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.masked_messages import check_masked
from tests.reference.masked_sides import MaskedAnswers, client_sides

from gossamer.algorithms.clients.nodes import SERVER, Fetch, Leave
from gossamer.algorithms.clients.planning import ALONE
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedbuff import box as fedbuff
from gossamer.algorithms.masked_round import MaskingReply
from gossamer.algorithms.plan import Plan
from gossamer.cli import main
from gossamer.errors import RunWarning
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.results.records import Result
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Query
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import World
from gossamer.testing.contracts import FixedAnswers
from gossamer.topology.graphs import Graph
from gossamer.vectors import Public

CLIP, SIZE = 10.0, 650
GONE = [{"node": 1, "start": 0.0}, {"node": 4, "start": 0.0}]
FEDBUFF = {"name": "fedbuff", "nodes": 6, "buffer": 6, "updates_per_node": 3}
FEDAVG = {"name": "fedavg", "nodes": 6, "rounds": 3}


def spec(algorithm: Any, privacy: Any = None, gone: Any = (), **sections: Any) -> Any:
    return parse_spec(
        {
            "dataset": "digits",
            "algorithm": {"local_steps": 4, "batch_size": 1000, **algorithm},
            "privacy": privacy or {"mechanism": "none", "clip": CLIP},
            **sections,
            **({"faults": {"absences": list(gone)}} if gone else {}),
        }
    )


def masked(privacy: Any = None, gone: Any = (), stop: Any = None, budget: Any = None, **changes: Any) -> Any:
    sections = {key: value for key, value in {"stop": stop, "budget": budget}.items() if value is not None}
    return spec({**FEDBUFF, "masking": "secure", **changes}, privacy, gone, **sections)


def planned(**changes: Any) -> Plan:
    found = plan_run(prepare(masked(**changes)))
    return found


def model(found: Result) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in found.model.values()]).astype(np.float64)


@pytest.mark.parametrize(("gone", "left"), [((), 6), (GONE, 4)])
def test_masked_sums_give_the_unmasked_ones_over_k_to_the_rounding_of_integers(gone: Any, left: int) -> None:
    """A third of the six clients of all buffers vanishes in one case.

    FedAvg of all clients divides by how many have answered, so with ``left``/6 of the rate it has the sums over 6. An
    update becomes integers of 2^-16, each within half a step, and so its share of the step of the server, 1/6 of the
    sum; a client passes on an error of its model at most (steps of a convex smooth loss do not expand): three steps of
    the server add up to 3/2 of 2^-16, in L2 norm sqrt(d) times that. float32 adds a hundredth of that at most.
    """
    plain = model(run(spec({**FEDAVG, "learning_rate": left / 6, "timeout": 50.0}, gone=gone)))
    found = run(masked(gone=gone, timeout=50.0, masking={"name": "secure", "fraction_bits": 16}))
    assert found.summary["fedbuff"] == {"steps": 3, "updates_taken": 3 * left, "masked_sums_refused": 0}
    off = np.linalg.norm(model(found) - plain)
    assert 0 < off <= 1.01 * 1.5 * math.sqrt(SIZE) * 2.0**-16
    if gone:  # a divisor of how many are there would be far away
        other = model(run(spec({**FEDAVG, "timeout": 50.0}, gone=gone)))
        assert np.linalg.norm(other - plain) > 1000 * off


def test_steps_are_sums_of_those_whose_turn_it_is() -> None:
    """Four of seven clients a buffer: the model is the start, and all updates of those that were drawn, over four."""
    settings = fedbuff.Settings(nodes=7, buffer=4, timeout=60.0, masking={"name": "secure", "fraction_bits": 16})
    names = tuple(f"node-{i}" for i in range(7))
    queries = dict.fromkeys(names, Query(Poisson(0.5), NoNoise(100.0), 4.0))
    start = np.array([1.0, -1.0, 2.0])
    known = Context(
        seed=3,
        names=names,
        graph=Graph(7, np.empty((0, 2), int)),
        initial=Public(start),
        queries=queries,
        shard_sizes=dict.fromkeys(names, 8),
        quotas=dict.fromkeys(names, 5),
    )
    rounds = fedbuff.masked_rounds(settings, known, known.quotas, known.updates)
    answers = MaskedAnswers(FixedAnswers(), client_sides(settings, known, rounds, 100.0))
    world = World(SpeedSettings(name="lognormal"), servers=(SERVER,))
    simulator = Simulator(fedbuff.build(settings, known), answers, world)
    while simulator.next_time is not None and not simulator.settled:
        simulator.step()
    assert rounds.count == 5 * 7 // 4 == simulator.nodes[SERVER].state.taken
    drawn = {(name, round) for round in range(rounds.count) for name in rounds.cohort(round)}
    assert set(answers.updates) == drawn
    expected = start + sum(answers.updates.values()) / 4
    # Half a step of 2^-16 an update and coordinate, over four.
    assert np.abs(simulator.nodes[SERVER].state.x.values - expected).max() <= len(drawn) * 2.0**-17 / 4


def test_below_the_threshold_nothing_is_unmasked_and_a_place_is_not_made_up_for() -> None:
    with pytest.warns(RunWarning, match="made 0 of 3 rounds"):
        found = run(masked(gone=[*GONE, {"node": 2, "start": 0.0}], timeout=50.0))
    assert found.summary["fedbuff"] == {"steps": 0, "updates_taken": 0, "masked_sums_refused": 3}


@pytest.mark.some(1)
@pytest.mark.parametrize(("honest", "h"), [(None, 1), (0.8, 3), (1.0, 4)])
def test_what_is_proved_is_what_dp_accounting_finds_for_the_same_sums(honest: float | None, h: int) -> None:
    """Of twelve clients six at a time, 8 sums each: of h clients' noise, and of a client's own against all others."""
    masking = {"name": "secure"} if honest is None else {"name": "secure", "honest": honest}
    plan = planned(masking=masking, privacy={"clip": 0.5, "noise_multiplier": 6.0}, nodes=12, updates_per_node=8)
    assert (plan.updates, plan.figures["honest_clients_counted"]) == (16, h)
    assert {plan.releases[name] for name in plan.mechanisms} == {8}
    noise, delta = plan.side("node-00").noise, plan.guarantee.delta

    def reference(clients: int) -> float:
        multiplier = noise.scale * math.sqrt(clients) / noise.sensitivity
        accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(SelfComposedDpEvent(GaussianDpEvent(multiplier), 8))
        return float(accountant.get_epsilon(delta))

    assert plan.guarantee.epsilon == pytest.approx(reference(h), rel=0.01)
    if h > 1:
        assert plan.guarantees[ALONE].epsilon == pytest.approx(reference(1), rel=0.01)


def test_being_drawn_by_public_coins_amplifies_nothing() -> None:
    """Who is in R of many sums pays as one who is in all of R, however many others there are."""
    options: Any = {"masking": {"name": "secure", "honest": 0.9}, "privacy": {"clip": 0.5, "noise_multiplier": 6.0}}
    plan = planned(**options, nodes=16, updates_per_node=5)
    drawn = Counter(name for round in range(plan.updates) for name in plan.side("node-00").coins(round))
    assert {name: plan.releases[name] for name in drawn} == drawn
    assert set(drawn.values()) <= {4, 5}
    for name, sums in drawn.items():
        alone = planned(**options, updates_per_node=sums)
        assert plan.epsilons[name] == pytest.approx(alone.guarantee.epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("options", "sums", "most"),
    [
        ({"updates_per_node": 3, "nodes": 12}, 6, 3),
        ({"updates_per_node": 3, "nodes": 12, "stop": {"updates": 3}}, 3, 2),
        ({"updates_per_node": None, "nodes": 12, "stop": {"updates": 3}}, 3, 2),
        ({"updates_per_node": None, "nodes": 12, "stop": {"updates": 1}}, 1, 1),
        ({"updates_per_node": None, "local_steps": None, "local_epochs": 2, "stop": {"epochs": 6}}, 3, 3),
        ({"updates_per_node": None, "local_steps": None, "local_epochs": 2}, 10, 10),
    ],
)
def test_how_many_sums_there_are_and_most_of_a_client(options: Any, sums: int, most: int) -> None:
    """As many as fit within the quotas, or `stop.updates`; after 20 epochs where nothing is said."""
    plan = planned(privacy={"clip": 0.5, "noise_multiplier": 6.0}, **options)
    assert plan.updates == sums
    assert max(plan.releases[name] for name in plan.mechanisms) == most


def test_a_budget_is_met_and_hardly_less() -> None:
    plan = planned(privacy={"clip": 0.5}, budget={"epsilon": 3.0, "delta": 1e-4}, nodes=9, updates_per_node=4)
    assert 2.98 < plan.guarantee.epsilon <= 3.0


def test_a_run_charges_what_was_planned_and_no_client_more_than_its_quota() -> None:
    found = run(masked({"clip": 0.5, "noise_multiplier": 6.0}, nodes=9, updates_per_node=2))
    assert found.summary["fedbuff"] == {"steps": 3, "updates_taken": 18, "masked_sums_refused": 0}
    assert [charged["releases"] for charged in found.summary["privacy"]["nodes"].values()] == [2] * 9


def test_a_server_is_sent_nothing_but_masks_and_keys(tmp_path: Path) -> None:
    """All messages of a run that reach it: no vector that is not masked is as long as an update."""
    trace = tmp_path / "trace"
    noisy = {"clip": CLIP, "noise_multiplier": 1.0}
    run(masked(noisy, gone=GONE, timeout=50.0, masking={"name": "secure", "honest": 0.9}), trace=trace)
    check_masked(trace, {Fetch, MaskingReply, Leave}, 3 * 4, SIZE)


@pytest.mark.parametrize(
    ("algorithm", "stop", "expected"),
    [
        ({"buffer": 7}, None, "algorithm.buffer: expected at most the 6 clients that there are, found 7"),
        ({"buffer": 1}, None, "masks need 2 to 65535 agents to hide among, found 1"),
        ({"buffer": 3, "masking": {"name": "secure", "threshold": 4}}, None, "no more than all, found 4"),
        (
            {"buffer": 3, "masking": {"name": "secure", "minimum": 4}},
            None,
            "between the threshold 2 and the 3 agents",
        ),
        ({"masking": {"name": "secure", "honest": 0.5}}, None, "masks with a threshold of 4 hold against 1 at most"),
        ({"staleness_exponent": 0}, None, "made at the newest model, so none is old; leave it out"),
        ({"noise_by": "server", "trusted": "server"}, None, "leave one of the two out"),
        ({"privacy_unit": "example"}, None, "masks share that of whole updates"),
        ({"updates_per_node": None}, {"virtual_seconds": 100}, "give updates_per_node, stop.epochs or stop.updates"),
        ({"updates_per_node": 10**6}, None, "at most 100000 masked sums are drawn before a run, found 1000000"),
        ({"masking": "none", "timeout": 5}, None, "only clients that mask are waited for"),
    ],
)
def test_what_does_not_go_with_masks_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], algorithm: Any, stop: Any, expected: str
) -> None:
    content = {
        "dataset": "digits",
        "algorithm": {**FEDBUFF, "masking": "secure", **algorithm},
        "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
        **({} if stop is None else {"stop": stop}),
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(content))
    assert main(["check", str(tmp_path / "spec.yaml")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.strip().splitlines()
    assert expected in line
