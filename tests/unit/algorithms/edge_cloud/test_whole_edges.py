"""Nodes that are protected with all that they have: what is clipped, stages, what is proved, what is refused."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from tests.reference import client_specs
from tests.reference.mapa_slow import first_clip, stage

from gossamer.algorithms.clients.nodes import SERVER, NoisedUpdate, NoisedUpdateAtClip
from gossamer.algorithms.context import Context
from gossamer.algorithms.edge_cloud import box as edge_cloud
from gossamer.algorithms.mapa import box as mapa
from gossamer.cli import main
from gossamer.errors import SpecError
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.clipping import Clipping, FixedClip, StageClip
from gossamer.privacy.mechanisms import Gaussian
from gossamer.privacy.tasks import Query, TrainingQuery
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import World
from gossamer.sides.plan import WHOLE, ClientUpdate, counts_of
from gossamer.testing.contracts import FixedAnswers
from gossamer.topology.graphs import Graph
from gossamer.vectors import Public

pytestmark = pytest.mark.filterwarnings("ignore::gossamer.errors.RunWarning")  # stages that a run does not end

SIZE, Z = 650, 8.0
CONSTANTS = {"gradient_sd": 2.0, "smoothness": 1.0, "loss_gap": 0.5, "kappa": 0.1, "reduction": 0.5}
MAPA = {"name": "mapa", "nodes": 4, "privacy_unit": "client", "updates_per_node": 5, **CONSTANTS}
AUDP = {"name": "audp", "nodes": 4, "privacy_unit": "client", "updates_per_node": 5}
GOSSIP = {"name": "gossip", "nodes": 4, "privacy_unit": "client", "updates_per_node": 5, "batch_size": 64}
SPECS: dict[str, dict[str, Any]] = {
    "gossip": {"dataset": "digits", "algorithm": GOSSIP, "privacy": {"noise_multiplier": Z, "clip": 0.5}},
    "mapa": {"dataset": "digits", "algorithm": MAPA, "privacy": {"noise_multiplier": Z}},
    "audp": {"dataset": "digits", "algorithm": AUDP, "privacy": {"noise_multiplier": Z, "clip": 0.5}},
}


@pytest.mark.parametrize("name", SPECS)
def test_epsilon_is_that_of_one_gaussian_of_all_updates(name: str) -> None:
    """n vectors 2 C apart under noise of z C, whatever C is of each: mu = 2 sqrt(n)/z, whose delta is known."""
    normal = NormalDist()
    for changes in ({}, {"algorithm": {"updates_per_node": None}, "stop": {"updates": 18}}):
        plan = client_specs.planned(client_specs.changed(SPECS[name], **changes))
        found, delta = plan.guarantee.epsilon, plan.guarantee.delta
        mu = 2 * math.sqrt(max(plan.releases.values())) / Z
        exact = [
            normal.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal.cdf(-mu / 2 - epsilon / mu)
            for epsilon in (found, found * 0.995)
        ]
        assert exact[0] <= delta < exact[1]
        assert plan.guarantee.unit == "client with all of its data"
        assert plan.guarantee.neighboring_relation == "replace_one"


def test_a_plan_is_of_whole_gradients_of_one_batch_and_amplifies_none() -> None:
    """A stage's clip comes with the question; the first one is Theorem 3's, with s of single examples."""
    first = float(first_clip(2.0, 1, 0.1))
    for name, clip in (("mapa", first), ("audp", 0.5), ("gossip", 0.5)):
        plan = client_specs.planned(SPECS[name])
        for node, side in plan.sides.items():
            assert isinstance(side, ClientUpdate)
            assert side.bound == pytest.approx(clip, rel=1e-12)
            law, query = Gaussian(side.bound, Z), TrainingQuery(1, 64, 1.0)
            assert side == ClientUpdate(query, side.bound, law, 5, SIZE, follows=name == "mapa")
            assert [(kind.sampling, n) for kind, n in (counts_of(plan.side(node)) or {}).items()] == [(WHOLE, 5)]


def test_a_budget_is_met_by_all_updates_together() -> None:
    for spec in SPECS.values():
        changes = {"privacy": {"noise_multiplier": None}, "budget": {"epsilon": 3.0, "delta": 1e-6}}
        assert 2.95 < client_specs.planned(client_specs.changed(spec, **changes)).guarantee.epsilon <= 3.0


class Asked(FixedAnswers):
    """Data sides that remember what they were asked, and what they answered."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[Any] = []
        self.answered: list[tuple[Any, Any]] = []

    def admit(self, node: str, task: Any) -> Any:
        answer = super().admit(node, task)
        self.tasks.append(task)
        self.answered.append((task.model.values, answer.values))
        return answer


def simulated(settings: Any, clipping: Clipping, size: int = 3) -> tuple[Simulator, Asked]:
    """A whole run of one edge, whose batches would have another divisor if they were asked for."""
    law = Gaussian(clipping.policy.initial_bound or float(first_clip(2.0, 1, 0.1)), Z)
    known = Context(
        seed=0,
        names=("node-0",),
        graph=Graph(1, np.empty((0, 2), int)),
        initial=Public(np.arange(1.0, size + 1)),
        queries={"node-0": Query(WHOLE, law, 64.0)},
        shard_sizes={"node-0": 100},
        quotas={"node-0": 12},
        clipping=clipping,
    )
    sides = Asked()
    build = mapa.build if settings.name == "mapa" else edge_cloud.build
    simulator = Simulator(build(settings, known), sides, World(SpeedSettings(name="constant"), servers=(SERVER,)))
    while simulator.next_time is not None:
        simulator.step()
    return simulator, sides


def test_stages_are_those_of_the_slow_reference_at_a_batch_of_one() -> None:
    """Delta_b = s^2 + d (z G)^2 and dS = 2 G; the course asks for each stage's clip as long as that stage lasts."""
    size = 3
    settings = mapa.Settings(nodes=1, privacy_unit="client", **{**CONSTANTS, "loss_gap": 6e-4})
    simulator, sides = simulated(settings, Clipping(StageClip()), size)
    clip, expected, x = first_clip(2.0, 1, 0.1), [], np.arange(1.0, size + 1)
    while len(expected) < 12:
        moment = size * (Fraction(Z) * clip) ** 2
        _, _, eta, updates = stage(2.0, 1.0, 6e-4, 0, 1, 0.5, clip, moment)
        expected += [(float(clip), float(eta))] * updates
        clip = clip / 2
    assert len({clip for clip, _ in expected[:12]}) > 2  # or the stages were hardly seen
    assert [type(task) for task in sides.tasks] == [NoisedUpdateAtClip] * 12
    np.testing.assert_allclose([task.bound for task in sides.tasks], [clip for clip, _ in expected[:12]], rtol=1e-12)
    for (model, update), (_, eta) in zip(sides.answered, expected, strict=False):
        np.testing.assert_allclose(model, x, rtol=1e-12)
        x = x + eta * update
    np.testing.assert_allclose(simulator.nodes[SERVER].state.x.values, x, rtol=1e-12)


def test_the_step_of_theory_has_the_variance_of_whole_gradients() -> None:
    """AUDP's 1/(L + sqrt(Delta_b (t + 1))/R) with Delta_b = s^2 + d (z C)^2, and a fixed clip that no server says."""
    rate = {"schedule": "agarwal_duchi", "smoothness": 2.0, "gradient_sd": 3.0, "radius": 5.0}
    settings = edge_cloud.Settings(nodes=1, privacy_unit="client", learning_rate=rate)
    simulator, sides = simulated(settings, Clipping(FixedClip(bound=0.5)))
    assert [type(task) for task in sides.tasks] == [NoisedUpdate] * 12
    x = np.arange(1.0, 4.0)
    for t, (_, update) in enumerate(sides.answered):
        x = x + update / (2 + math.sqrt((9 + 3 * (Z * 0.5) ** 2) * (t + 1)) / 5)
    np.testing.assert_allclose(simulator.nodes[SERVER].state.x.values, x, rtol=1e-12)


@pytest.mark.parametrize(("name", "single"), [("audp", "asgd"), ("gossip", "gossip")])
def test_without_noise_and_clip_it_is_that_of_whole_shards(name: str, single: str) -> None:
    """Of all 721 examples of a node at once: one step's update is their mean gradient, turned round."""
    same = {"nodes": 2, "batch_size": 721, "updates_per_node": 6, "learning_rate": 0.3}
    bare = {"dataset": "digits", "privacy": "none", "objective": {"name": "softmax", "l2": 0.01}}
    whole, of_examples = (
        run(parse_spec({**bare, "algorithm": {**same, **algorithm}})).model
        for algorithm in ({"name": name, "privacy_unit": "client"}, {"name": single})
    )
    assert max(np.abs(values).max() for values in whole.values()) > 0.01
    for part, values in whole.items():
        np.testing.assert_allclose(values, of_examples[part], atol=1e-6)


def test_the_ledger_and_the_report_say_so(tmp_path: Path) -> None:
    spec = client_specs.changed(SPECS["mapa"], algorithm={"loss_gap": 1e-6})
    result = run(parse_spec(spec), tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    assert {(line["protects"], line["releases"], line["noise_multiplier"], line["probability"]) for line in lines} == {
        ("client", 5, Z, 1.0)
    }
    stages = result.summary["mapa"]["stages"]
    assert len(stages) > 1
    for found in stages:
        assert found["sensitivity"] == pytest.approx(2 * found["clip"])
        assert found["noise_second_moment"] == pytest.approx(SIZE * (Z * found["clip"]) ** 2)


def test_gossip_claims_nothing_of_single_examples() -> None:
    """Theorem 2 of its paper is of gradients of examples that are clipped one by one."""
    found = run(parse_spec(SPECS["gossip"])).summary["privacy"]
    assert found["claims"] == []
    assert {node["releases"] for node in found["nodes"].values()} == {5}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gossip", {"algorithm": {"noise": "pairwise"}}, "algorithm.noise: pairwise is shared by sums over samples"),
    ("gossip", {"privacy": {"clip": "quantile"}}, "privacy.clip.policy: quantile counts gradients of single examples"),
    (
        "mapa",
        {"privacy": {"mechanism": "l2_laplace", "noise_multiplier": None, "epsilon": 1.0}},
        "gaussian noise or none",
    ),
    (
        "mapa",
        {
            "privacy": {
                "mechanism": "l2_laplace",
                "noise_multiplier": None,
                "epsilon": 1.0,
                "norm": "exponential",
                "noise_scope": "first_layer",
            }
        },
        "gaussian noise or none",
    ),
    ("audp", {"privacy": {"clip": "quantile"}}, "privacy.clip.policy: quantile counts gradients of single examples"),
    ("mapa", {"privacy": {"sampling": "fixed_size"}}, "privacy.sampling: mapa shuffles each client's examples"),
    ("audp", {"privacy": {"neighboring_relation": "add_or_remove_one"}}, "protects clients whose data are replaced"),
    ("audp", {"budget": {"epsilon": 50.0, "rows_per_person": 3}}, "budget.rows_per_person: audp protects all examples"),
    ("audp", {"algorithm": {"paper": "testbed"}, "objective": "cnn_mapa"}, "has constants for gradients of single ex"),
    ("mapa", {"algorithm": {"paper": "testbed"}, "objective": "cnn_mapa"}, "has constants for gradients of single ex"),
    (
        "audp",
        {"algorithm": {"name": "asgd"}, "privacy": {"mechanism": "none", "noise_multiplier": None, "clip": None}},
        "algorithm.privacy_unit: asgd adds no noise, and protects nobody",
    ),
]


@pytest.mark.parametrize(("name", "changes", "said"), REFUSED)
def test_what_a_spec_may_not_say(
    name: str, changes: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = client_specs.changed(SPECS[name], **{key: changes[key] for key in changes if key != "objective"})
    spec |= {key: value for key, value in changes.items() if key == "objective"}
    with pytest.raises(SpecError, match=said):
        client_specs.planned(spec)
    written = tmp_path / "spec.yaml"
    written.write_text(json.dumps(spec))
    assert main(["check", str(written)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
