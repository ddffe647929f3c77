"""Privacy of examples in FedAvg, FedBuff and FedAsync: runs against a loop by hand, and what is charged and proved."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from tests.reference import client_specs

from gossamer.algorithms.clients.nodes import SERVER, Fetch, Leave, Newest, Push
from gossamer.algorithms.fedavg.box import public_cohorts
from gossamer.algorithms.plan import Plan
from gossamer.algorithms.table import ALGORITHMS
from gossamer.cli import main
from gossamer.errors import BudgetUnreachable, SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.mechanisms import FixedSize, Poisson
from gossamer.privacy.tasks import Gradient
from gossamer.protocol.effects import Compute, Effect, Finish, Send
from gossamer.protocol.events import Completed, Event, Received, Refused, Resumed, Started
from gossamer.protocol.node import Node
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import World
from gossamer.sides.plan import counts_of
from gossamer.testing.contracts import AlgorithmContract, FixedAnswers
from gossamer.vectors import Released

STEPS, RATE, MOMENTUM, MU = 3, 0.2, 0.6, 0.3
LOCAL = {"local_steps": STEPS, "local_learning_rate": RATE, "local_momentum": MOMENTUM, "proximal": MU}
NAMES = ("fedavg", "fedbuff", "fedasync")
SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {
        "name": "fedavg",
        "nodes": 6,
        "rounds": 4,
        "privacy_unit": "example",
        "local_steps": 2,
        "batch_size": 24,
    },
    "privacy": {"clip": 0.5, "noise_multiplier": 2.0},
}
LENGTH = {"name": "fedbuff", "updates_per_node": 5}
IN_BUFFERS: dict[str, Any] = {
    **SPEC,
    "algorithm": {key: value for key, value in SPEC["algorithm"].items() if key != "rounds"} | LENGTH,
}


def spec(base: dict[str, Any] = SPEC, **changes: Any) -> dict[str, Any]:
    """The spec with other sections, or other keys in them."""
    return {**base, **{key: {**base[key], **value} if key in base else value for key, value in changes.items()}}


def planned(base: dict[str, Any] = SPEC, **changes: Any) -> Plan:
    found = plan_run(prepare(parse_spec(spec(base, **changes))))
    return found


class Kept(FixedAnswers):
    """Data sides that remember at which models they were asked, and what they answered."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: dict[str, list[tuple[Any, Any]]] = {}

    def admit(self, node: str, task: Any) -> Any:
        assert type(task) is Gradient
        answer = super().admit(node, task)
        self.answered.setdefault(node, []).append((task.model.values, answer.values))
        return answer


def simulated(name: str, **settings: Any) -> tuple[Simulator, list[TraceStep], Kept, Any]:
    """A whole run of four clients of very different speeds, and where it starts."""
    made = ALGORITHMS[name].Settings(**{"name": name, "nodes": 4, "privacy_unit": "example", **LOCAL, **settings})

    class Made(AlgorithmContract):
        settings = made

    contract, sides, steps = Made(), Kept(), list[TraceStep]()
    world = World(SpeedSettings(name="lognormal"), servers=(SERVER,))
    simulator = Simulator(contract.nodes(), sides, world, watch=steps.append)
    while simulator.next_time is not None and not simulator.settled:
        simulator.step()
    return simulator, steps, sides, contract.context().initial.values


def update_by_hand(x: Any, released: list[tuple[Any, Any]]) -> Any:
    """The update of `STEPS` steps from x with these gradients, each of which was asked for at the model of its step."""
    w, v = x, 0.0
    assert len(released) == STEPS
    for asked, gradient in released:
        np.testing.assert_allclose(asked, w, rtol=1e-12)
        v = MOMENTUM * v + gradient + MU * (w - x)
        w = w - RATE * v
    return w - x


@pytest.mark.parametrize("name", NAMES)
def test_the_servers_model_is_what_a_loop_gives(name: str) -> None:
    """With the data sides' answers as they were given, noise and all, in the order in which updates came."""
    more = {"fedavg": {"rounds": 6, "learning_rate": 0.5}, "fedbuff": {"buffer": 3}, "fedasync": {"mixing": 0.7}}[name]
    simulator, steps, sides, start = simulated(name, **more)
    events = [step.event for step in steps if step.node == SERVER]
    came = [(e.sender, e.message) for e in events if isinstance(e, Received) and isinstance(e.message, Push)]
    versions, taken, buffer = [start], Counter[str](), []
    for client, push in came:
        number = taken[client]
        taken[client] += 1
        own = sides.answered[client][number * STEPS : (number + 1) * STEPS]
        update = update_by_hand(versions[push.version], own)
        age = len(versions) - 1 - push.version
        assert type(push.update) is Released
        if name == "fedasync":
            mixing = 0.7 / np.sqrt(1 + age)
            versions.append((1 - mixing) * versions[-1] + mixing * (versions[push.version] + update))
            continue
        buffer.append(update / np.sqrt(1 + age) if name == "fedbuff" else update)
        if len(buffer) == {"fedavg": 4, "fedbuff": 3}[name]:
            rate = 0.5 if name == "fedavg" else 1.0
            versions.append(versions[-1] + rate * np.sum(buffer, axis=0) / len(buffer))
            buffer = []
    assert set(taken.values()) == {6}  # rounds, or the contract's quota
    assert not buffer
    np.testing.assert_allclose(simulator.nodes[SERVER].state.x.values, versions[-1], rtol=1e-9)
    assert {name: len(answers) for name, answers in sides.answered.items()} == {name: 6 * STEPS for name in taken}


def test_gradients_are_those_of_the_clients_own_examples() -> None:
    """FedAvg of two clients that take all their 721 examples in each step, clipped one by one, without noise."""
    pytest.importorskip("torch", reason="needs the extra torch")
    from tests.reference.glm_slow import clipped_sum

    changes = {
        "algorithm": {"nodes": 2, "rounds": 2, "batch_size": 721, **LOCAL, "local_steps": 2},
        "privacy": {"mechanism": "none", "noise_multiplier": None, "clip": 3.8},
        "objective": {"name": "softmax", "l2": 0.05, "dtype": "float64"},
    }
    experiment = parse_spec(spec(**changes))
    prepared = prepare(experiment)
    features, targets = prepared.dataset.train.features, prepared.dataset.train.targets
    x = np.asarray(prepared.initial.values)
    for _ in range(2):
        updates = []
        for shard in prepared.shards:
            w, v = x, np.zeros_like(x)
            for _ in range(2):
                total = clipped_sum("softmax", w, features, targets, shard.tolist(), 3.8, 10)
                assert 0 < total.unclipped < 721  # or the clip, or its absence, were not seen
                v = MOMENTUM * v + total.total / 721 + 0.05 * w + MU * (w - x)
                w = w - RATE * v
            updates.append(w - x)
        x = x + np.mean(updates, axis=0)
    model = run(experiment).model
    found = np.concatenate([model[part.name].ravel() for part in prepared.objective.parts])
    np.testing.assert_allclose(found, x, rtol=1e-6, atol=1e-9)


def does(node: Node, event: Event) -> list[Effect]:
    return node.handle(event, 0.0)


def client(**settings: Any) -> tuple[Node, Any]:
    made = ALGORITHMS["fedbuff"].Settings(
        **{"name": "fedbuff", "nodes": 5, "privacy_unit": "example", "local_steps": 2, **settings}
    )

    class Made(AlgorithmContract):
        settings = made

    return Made().nodes()["node-0"], Made().context().initial


def test_a_training_goes_on_after_an_absence_with_a_step_that_is_charged_anew() -> None:
    """And what was lost with the process is ignored, should it still come."""
    node, x = client(local_learning_rate=0.5)
    ones = Released(np.ones(x.size))
    assert does(node, Started()) == [Send(SERVER, Fetch(1))]
    (first,) = does(node, Received(SERVER, Newest(1, 4, x)))
    assert isinstance(first, Compute)
    (second,) = does(node, Completed(first.task.id, ones, 1))
    assert isinstance(second, Compute)
    (again,) = does(node, Resumed(1.0))
    assert isinstance(again, Compute)
    assert again.task.id > second.task.id
    assert again.task.model == second.task.model == x - 0.5 * ones
    assert does(node, Completed(second.task.id, 100.0 * ones, 1)) == []
    (push,) = does(node, Completed(again.task.id, 3.0 * ones, 1))
    assert isinstance(push, Send)
    np.testing.assert_allclose(push.message.update.values, -2.0)
    assert (push.message.request, push.message.version) == (2, 4)
    assert does(node, Resumed(2.0)) == [Send(SERVER, Fetch(3))]  # nothing is under way


def test_momentum_starts_anew_in_each_training_and_a_crash_keeps_it() -> None:
    """v = g; v = 0.5 g + g = 1.5 g: with eta 1 an update of two steps of g = 1 is -2.5."""
    node, x = client(local_learning_rate=1.0, local_momentum=0.5)
    ones = Released(np.ones(x.size))
    does(node, Started())
    for round in (1, 2):
        (task,) = does(node, Received(SERVER, Newest(round, 0, x)))
        assert isinstance(task, Compute)
        does(node, Completed(task.task.id, ones, 1))
        (task,) = does(node, Resumed(1.0))
        assert isinstance(task, Compute)
        (push,) = does(node, Completed(task.task.id, ones, 1))
        assert isinstance(push, Send)
        np.testing.assert_allclose(push.message.update.values, -2.5)


def test_a_client_whose_budget_ends_within_a_training_leaves() -> None:
    node, x = client()
    does(node, Started())
    (task,) = does(node, Received(SERVER, Newest(1, 0, x)))
    assert isinstance(task, Compute)
    does(node, Completed(task.task.id, Released(np.ones(x.size)), 1))
    assert does(node, Refused(1, 3)) == [Send(SERVER, Leave()), Finish("budget")]
    assert does(node, Resumed(1.0)) == []


def bound(probability: float, multiplier: float, steps: int, delta: float) -> float:
    """Epsilon by `dp-accounting`, of so many Gaussian releases of Poisson samples."""
    event = PoissonSampledDpEvent(probability, GaussianDpEvent(multiplier))
    return float(PLDAccountant().compose(SelfComposedDpEvent(event, steps)).get_epsilon(delta))


def test_epsilon_of_each_client_is_that_of_its_steps() -> None:
    """Two steps in each of the rounds that its public coins draw it for: no fewer, and nothing for being drawn."""
    plan = planned(algorithm={"rounds": 9, "clients_per_round": 3})
    prepared = client_specs.problem(spec(algorithm={"rounds": 9, "clients_per_round": 3}))
    draw = public_cohorts(prepared.settings, prepared.seed, prepared.names)
    rounds = Counter(name for round in range(9) for name in draw(round))
    assert len(set(rounds.values())) > 2  # or it is not seen whether they are counted apart
    for name in prepared.names:
        size = prepared.shard_sizes[name]
        ((kind, count),) = counts_of(plan.side(name)).items()
        assert (kind.sampling, count) == (Poisson(24 / size), 2 * rounds[name])
        expected = bound(24 / size, 2.0, 2 * rounds[name], 1e-5)
        assert expected * (1 - 1e-3) <= plan.epsilons[name] <= expected * 1.01
    assert plan.guarantee.epsilon == max(plan.epsilons.values())
    assert plan.guarantee.unit == "example of a node's shard"
    assert plan.updates == 27
    assert str(plan).startswith("27 updates of 6 clients in 54 noisy steps, Gaussian noise")


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["fedbuff", "fedasync"])
def test_epsilon_of_whoever_waits_for_nobody_is_that_of_its_steps_too(name: str) -> None:
    plan = planned(IN_BUFFERS, algorithm={"name": name})
    sizes = client_specs.problem(spec(IN_BUFFERS)).shard_sizes
    for client in plan.mechanisms:
        expected = bound(24 / sizes[client], 2.0, 10, 1e-5)
        assert expected * (1 - 1e-3) <= plan.epsilons[client] <= expected * 1.01


def test_steps_follow_from_epochs_and_public_sizes() -> None:
    """Two passes in batches of 24 are 20 steps of 240 examples, and 22 of 241: 80 and 88 in four rounds."""
    plan = planned(algorithm={"local_steps": None, "local_epochs": 2})
    sizes = client_specs.problem(spec(IN_BUFFERS)).shard_sizes
    assert {(sizes[name], plan.releases[name]) for name in sizes} == {(240, 80), (241, 88)}
    epochs = planned(IN_BUFFERS, algorithm={"updates_per_node": None}, stop={"epochs": 3})
    # Of 48 examples an update, 15 are three passes over 240, and of 241 another one is begun.
    assert {(sizes[name], epochs.releases[name]) for name in sizes} == {(240, 30), (241, 32)}


def test_a_run_that_is_cut_short_covers_the_steps_that_were_begun(tmp_path: Path) -> None:
    """A slow client makes fewer; the ledgers are charged what was planned, or less where a step was under way."""
    changes: dict[str, Any] = {
        "algorithm": {"updates_per_node": None},
        "stop": {"updates": 30},
        "speeds": {"scenario": "one_slow"},
    }
    plan = planned(IN_BUFFERS, **changes)
    steps = sorted(plan.releases[name] for name in plan.mechanisms)
    assert steps[0] < steps[1] / 3
    result = run(parse_spec(spec(IN_BUFFERS, **changes)), tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    charged = {line["node"]: line["releases"] for line in lines}
    assert charged == {name: plan.releases[name] for name in plan.mechanisms}
    assert "budget" not in result.summary["finished"].values()
    assert result.summary["updates"] == 30
    # What a ledger says of sampling follows from public sizes.
    sizes = client_specs.problem(spec(IN_BUFFERS)).shard_sizes
    assert {line["node"]: line["probability"] for line in lines} == {name: 24 / size for name, size in sizes.items()}


def test_clients_that_are_away_redo_a_step_and_no_more_than_is_planned(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"faults": {"absences": [{"node": 0, "start": 2.5, "end": 9.0}]}}
    plan = planned(IN_BUFFERS, **changes)
    names = tuple(plan.mechanisms)
    assert plan.releases[names[0]] == 11  # five updates of two steps, of which one is made twice
    assert {plan.releases[name] for name in names[1:]} == {10}
    run(parse_spec(spec(IN_BUFFERS, **changes)), tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    assert {line["node"]: line["releases"] for line in lines} == {name: plan.releases[name] for name in names}


def test_a_budget_is_met_by_all_steps_together() -> None:
    plan = planned(privacy={"noise_multiplier": None}, budget={"epsilon": 3.0, "delta": 1e-5})
    assert 2.97 < plan.guarantee.epsilon <= 3.0
    with pytest.raises(BudgetUnreachable, match="for the 8 releases of node-"):
        planned(budget={"epsilon": 0.05, "delta": 1e-6})


def test_the_plan_is_that_of_gossip_with_as_many_gradients() -> None:
    """For single examples and for persons with several, other samplings and other relations."""
    for privacy in ({}, {"sampling": "fixed_size"}, {"neighboring_relation": "replace_one"}):
        for rows in (None, 3):
            budget = {"epsilon": 20.0, "delta": 1e-5} | ({"rows_per_person": rows} if rows else {})
            found = planned(privacy={"noise_multiplier": None, **privacy}, budget=budget)
            gossip = {"name": "gossip", "nodes": 6, "batch_size": 24, "updates_per_node": 8}
            other = plan_run(
                prepare(
                    parse_spec({**SPEC, "algorithm": gossip, "budget": budget} | {"privacy": {"clip": 0.5, **privacy}})
                )
            )
            assert found.mechanisms == other.mechanisms
            assert found.epsilons == other.epsilons
            assert found.guarantee.unit == other.guarantee.unit
            assert found.sides == other.sides
    (kind,) = counts_of(planned(privacy={"sampling": "fixed_size"}).side("node-0")) or ()
    assert isinstance(kind.sampling, FixedSize)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_without_noise_learns_and_says_that_nothing_is_proved(name: str) -> None:
    """Ten passes in all over six clients' digits, as in the tests without a privacy unit."""
    length = {"rounds": 10} if name == "fedavg" else {"updates_per_node": 10}
    algorithm = {"name": name, "nodes": 6, "privacy_unit": "example", "local_epochs": 1, "local_learning_rate": 0.5}
    found = run(parse_spec({"dataset": "digits", "algorithm": {**algorithm, **length}, "privacy": "none"}))
    assert found.metrics[-1]["test_accuracy"] > 0.9
    assert found.guarantee.epsilon == float("inf")


def test_nothing_said_is_the_privacy_of_clients() -> None:
    said = parse_spec(spec(algorithm={"privacy_unit": "client"}))
    silent = dict(SPEC)
    silent["algorithm"] = {key: value for key, value in SPEC["algorithm"].items() if key != "privacy_unit"}
    assert said == parse_spec(silent)
    assert "privacy_unit" not in said.model_dump(mode="json")["algorithm"]
    assert parse_spec(SPEC).model_dump(mode="json")["algorithm"]["privacy_unit"] == "example"
    assert plan_run(prepare(said)).guarantee.unit == "client with all of its data"


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"algorithm": {"privacy_unit": "person"}},
        "algorithm.privacy_unit: unknown name 'person'; expected one of client, example",
    ),
    (
        {"algorithm": {"noise_by": "server", "trusted": "server"}},
        "algorithm.noise_by: with privacy_unit: example each client adds the noise to its own steps",
    ),
    (
        {"algorithm": {"masking": "secure"}},
        "algorithm.masking: with privacy_unit: example each client adds the noise to its own steps",
    ),
    ({"algorithm": {"trusted": "server"}}, "algorithm.trusted: nobody is shown anything without noise"),
    (
        {"algorithm": {"cohorts": "secret", "clients_per_round": 3}},
        "algorithm.cohorts: secret coins are those of a server that is trusted",
    ),
    ({"algorithm": {"batch_size": 300}}, "fewer than algorithm.batch_size 300"),
    ({"privacy": {"clip": {"policy": "quantile"}}}, "privacy.clip.policy: fedavg knows fixed, found quantile"),
    ({"privacy": {"mechanism": "l2_laplace", "epsilon": 1.0, "noise_multiplier": None}}, "privacy.mechanism: fedavg"),
    ({"privacy": {"agent_noise": 1.0}}, "privacy.agent_noise is of agents in federated units; fedavg has none"),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_what_a_spec_may_not_say(
    changes: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "spec.yaml"
    written.write_text(json.dumps(spec(**changes)))
    assert main(["check", str(written)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("sampling", ["fixed_size", "poisson"])
def test_persons_of_several_examples_need_the_privacy_of_examples(sampling: str) -> None:
    budget = {"epsilon": 20.0, "delta": 1e-5, "rows_per_person": 3}
    with pytest.raises(SpecError, match="or take privacy_unit: example"):
        plan_run(
            prepare(
                parse_spec(
                    spec(algorithm={"privacy_unit": "client"}, budget=budget, privacy={"noise_multiplier": None})
                )
            )
        )


def test_single_gradients_are_there_to_be_inverted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of any algorithm that releases them; of whole updates they are not."""
    written = tmp_path / "spec.yaml"
    written.write_text(json.dumps(spec()))
    assert main(["attack", "inversion", str(written), "--examples", "2", "--json"]) == 0
    capsys.readouterr()
    written.write_text(json.dumps(spec(algorithm={"privacy_unit": "client"})))
    assert main(["attack", "inversion", str(written), "--examples", "2", "--json"]) == 2
    assert "fedavg releases sums of whole rounds" in capsys.readouterr().err
