"""Whole runs in rounds of growing size, from spec to results."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gossamer as gs
from gossamer.cli import main
from gossamer.errors import CallerError, RunWarning, SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.runs.repeats import replay_run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.accounting import accountants
from gossamer.privacy.mechanisms import BallGaussian, Gaussian, NeighboringRelation, Poisson, ReleaseKind

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
GROWING = {"name": "power", "a": 8, "c": 1, "b": 40}
BASE: dict[str, Any] = {"name": "increasing", "nodes": 4, "sizes": GROWING, "learning_rate": 0.2, "rounds": 12}
LOSSY = {"latency": 1.0, "jitter": 20.0, "loss": 0.2, "duplicate": 0.2, "retry_after": 5.0, "silence": 200.0}


def spec(*, algorithm: dict[str, Any] | None = None, **sections: Any) -> gs.Experiment:
    looks = {"every_updates": 16}  # each reads an epsilon, which takes a while
    common = {"dataset": "digits", "privacy": "none", "evaluation": looks}
    content = {**common, **sections, "algorithm": {**BASE, **(algorithm or {})}}
    return parse_spec({key: value for key, value in content.items() if value is not None})


def private(*, algorithm: dict[str, Any] | None = None, **sections: Any) -> gs.Experiment:
    return spec(algorithm=algorithm, **{"privacy": {}, "budget": {"epsilon": 4, "delta": 1e-5}, **sections})


def test_nothing_is_clipped_where_the_spec_says_so() -> None:
    """About 100 steps of at most 0.5 * 1e-3 stay near the start, whose loss is ln 10; unclipped ones of 0.5 do not."""
    few = {"rounds": 2, "learning_rate": 0.5}
    losses = [
        gs.run(spec(algorithm=few, privacy={"mechanism": "none", "clip": clip})).metrics[-1]["mean_model_test_loss"]
        for clip in (1e-3, "none")
    ]
    assert losses[0] == pytest.approx(np.log(10), abs=0.1)
    assert abs(losses[1] - np.log(10)) > 0.5
    with pytest.raises(SpecError, match="noise is a multiple of the clip, found none"):
        gs.run(spec(algorithm=few, privacy={"noise_multiplier": 1, "clip": "none"}))


def test_one_client_without_noise_is_plain_sgd() -> None:
    """Against a loop over single examples, in float64 to 1e-9; the examples are those that the data side drew."""
    chosen = spec(
        algorithm={"nodes": 1, "rounds": 3, "learning_rate": {"schedule": "diminishing1", "initial": 0.5, "beta": 0.1}},
        objective={"name": "softmax", "dtype": "float64", "l2": 0.01},
    )
    prepared = prepare(chosen)
    drawn: list[np.ndarray[Any, Any]] = []
    objective = prepared.objective
    original = objective.local_steps

    def watched(steps: Any, data: Any) -> Any:
        drawn.append(steps.examples)
        return original(steps, data)

    from gossamer.experiment.runs.running import Run, sources_of

    objective.local_steps = watched  # type: ignore[method-assign]
    result = Run(prepared, plan := plan_run(prepared), sources_of(prepared, plan, purpose="test")).go()
    features = prepared.dataset.train.features.reshape(len(prepared.dataset.train), -1).astype(np.float64)
    targets = prepared.dataset.train.targets
    w, b, t = np.zeros((10, 64)), np.zeros(10), 0
    for row in np.concatenate(drawn):
        z = w @ features[row] + b
        r = np.exp(z - z.max())
        r /= r.sum()
        r[targets[row]] -= 1
        rate = 0.5 / (1 + 0.1 * t)
        w, b, t = w - rate * (np.outer(r, features[row]) + 0.01 * w), b - rate * (r + 0.01 * b), t + 1
    assert t == 40 + 48 + 56
    np.testing.assert_allclose(result.model["weight"], w, rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.model["bias"], b, rtol=0, atol=1e-9)


@pytest.mark.parametrize("update", ["batch", "clipped_sum", "sequential"])
@pytest.mark.parametrize("delay", [{"rule": "rounds", "d": 0}, {"rule": "rounds", "d": 3}], ids=["d=0", "d=3"])
def test_it_learns_whatever_a_rounds_update_is(update: str, delay: dict[str, Any]) -> None:
    sizes = {"name": "power", "a": 2, "b": 20}
    rate = {"schedule": "diminishing1", "initial": 0.02, "beta": 1e-3}
    chosen = {"round_update": update, "delay": delay, "rounds": 60, "sizes": sizes, "learning_rate": rate}
    result = gs.run(spec(algorithm=chosen))
    assert result.summary["status"] == "finished"
    assert result.summary["metrics"]["mean_model_test_accuracy"] > 0.85
    assert result.summary["increasing"]["rounds"] == 60
    assert result.summary["metrics"]["consensus_distance"] == 0


def test_the_plan_has_a_rate_for_each_round() -> None:
    prepared = prepare(private())
    plan = plan_run(prepared)
    size = prepared.shard_sizes["node-0"]
    totals = [40 + 8 * i for i in range(12)]
    law = plan.mechanisms["node-0"]
    assert isinstance(law, Gaussian)
    schedule = Counter(Poisson((total // 4) / size) for total in totals)
    counts = {ReleaseKind(law.unit(), sampling, 650): n for sampling, n in schedule.items()}
    assert plan.side("node-0").charges().kinds == counts
    proved = accountants.epsilon(counts, 1e-5, ADD).epsilon
    assert plan.epsilons["node-0"] == proved <= 4
    assert proved == pytest.approx(4, rel=3e-3)


def test_a_clipped_sum_gets_twice_the_noise_for_the_same_budget() -> None:
    """One example moves a sum by 2C, so the noise on it is twice that of a batch: same plan, same multiplier of 2C."""
    batch, whole = (
        plan_run(prepare(private(algorithm={"round_update": kind}, privacy={"clip": 0.5}))).mechanisms["node-0"]
        for kind in ("batch", "clipped_sum")
    )
    assert isinstance(batch, Gaussian)
    assert isinstance(whole, Gaussian)
    assert whole.noise_multiplier == batch.noise_multiplier
    assert (batch.clip, whole.clip) == (0.5, 1.0)


def test_a_given_multiplier_is_halved_for_the_accountant_of_a_clipped_sum() -> None:
    """sigma = 4 of C: a standard deviation of 4C, which is 2 of the sensitivity 2C."""
    given = {"privacy": {"noise_multiplier": 4.0, "clip": 0.5}, "budget": None}
    laws = {
        kind: plan_run(prepare(private(algorithm={"round_update": kind}, **given))).mechanisms["node-0"]
        for kind in ("batch", "clipped_sum", "sequential")
    }
    assert laws["batch"] == laws["sequential"] == Gaussian(0.5, 4.0)
    assert laws["clipped_sum"] == Gaussian(1.0, 2.0)


REPLACED = {"neighboring_relation": "replace_one", "clip": 0.5}


@pytest.mark.some(1)
@pytest.mark.parametrize(("sampling", "most"), [("fixed_size", 0.502), ("poisson", 0.98)])
def test_a_clipped_sum_needs_no_more_noise_where_an_example_is_replaced(sampling: str, most: float) -> None:
    """A replaced example moves it by 2C too, from one end of its ball to the other, and the sum of a batch by 2C.

    On batches of fixed size both need the same noise; before, that of a clipped sum was twice as much. On Poisson
    samples it is less than that, by half for much noise and by little for as little as here.
    """
    privacy = {**REPLACED, "sampling": sampling}
    batch, whole = (
        plan_run(prepare(private(algorithm={"round_update": kind}, privacy=privacy))).mechanisms["node-0"]
        for kind in ("batch", "clipped_sum")
    )
    assert type(batch) is Gaussian
    assert type(whole) is BallGaussian
    assert whole.clip == 2 * batch.clip == 1.0
    assert 0.499 < whole.standard_deviation / (2 * batch.standard_deviation) < most


def test_the_plan_of_a_clipped_sum_is_what_its_rounds_are_charged() -> None:
    result = gs.run(private(algorithm={"round_update": "clipped_sum"}, privacy={**REPLACED, "sampling": "fixed_size"}))
    assert result.guarantee.epsilon == pytest.approx(4, rel=3e-3)
    assert result.guarantee.neighboring_relation == "replace_one"
    for node in result.summary["privacy"]["nodes"].values():
        assert node["releases"] == node["planned_releases"] == 12


def test_where_examples_come_and_go_a_clipped_sum_is_charged_as_before() -> None:
    law = plan_run(prepare(private(algorithm={"round_update": "clipped_sum"}))).mechanisms["node-0"]
    assert type(law) is Gaussian


@pytest.mark.parametrize("update", ["batch", "clipped_sum"])
def test_releases_are_within_the_plan(update: str) -> None:
    result = gs.run(private(algorithm={"round_update": update}))
    assert result.guarantee.epsilon == pytest.approx(4, rel=3e-3)
    for node in result.summary["privacy"]["nodes"].values():
        assert node["releases"] == node["planned_releases"] == 12


def test_nothing_is_proved_of_the_papers_own_rounds(tmp_path: Path) -> None:
    chosen = private(
        algorithm={"round_update": "sequential"}, privacy={"noise_multiplier": 4.0, "clip": 0.1}, budget=None
    )
    result = gs.run(chosen, tmp_path / "run")
    assert result.guarantee.epsilon == np.inf
    assert "nothing" not in result.guarantee.proof
    assert "sequential" in str(result.guarantee)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [claim["theorem"] for claim in summary["privacy"]["claims"]]
    assert summary["privacy"]["guarantee"]["epsilon"] is None
    assert summary["privacy"]["nodes"]["node-0"]["epsilon"] is None


def test_a_written_spec_says_what_was_done(tmp_path: Path) -> None:
    gs.run(private(), tmp_path / "noise")
    gs.run(spec(), tmp_path / "none")
    assert "round_update: batch" in (tmp_path / "noise" / "spec.yaml").read_text()
    assert "round_update: sequential" in (tmp_path / "none" / "spec.yaml").read_text()


@pytest.mark.parametrize("aggregators", [(), (2,)])
def test_lossy_links_change_when_things_happen_and_not_what_is_charged(aggregators: tuple[int, ...]) -> None:
    result = gs.run(private(algorithm={"aggregators": aggregators, "patience": 50.0}, links=LOSSY))
    assert result.summary["status"] in ("finished", "diverged")  # whether so much noise leaves anything is no matter
    assert result.summary["increasing"]["rounds"] == 12
    assert {node["releases"] for node in result.summary["privacy"]["nodes"].values()} == {12}


def test_a_client_that_crashes_holds_nobody_up_for_ever() -> None:
    faults = {"absences": [{"node": 1, "start": 30.0, "end": 400.0}, {"node": 2, "start": 100.0}]}
    result = gs.run(spec(algorithm={"patience": 20.0}, links={**LOSSY, "silence": 60.0}, faults=faults))
    assert result.summary["finished"]["node-0"] == result.summary["finished"]["node-3"] == "quota"
    assert result.summary["increasing"]["rounds"] == 12
    assert result.summary["gone"] == ["node-2"]


def test_parts_shrink_what_is_sent() -> None:
    """Rounds are sent as a quarter of the model; broadcasts are whole, one for each round and client."""
    whole, parts = (
        gs.run(spec(algorithm={"parts": parts, "round_update": "batch"}, evaluation="off")).summary for parts in (1, 4)
    )
    assert whole["messages"] == parts["messages"]
    saved = whole["bytes"] - parts["bytes"]
    assert saved == pytest.approx(4 * 12 * 650 * 4 * 3 / 4, rel=0.01)


def test_a_trace_replays(tmp_path: Path) -> None:
    chosen = private(links=LOSSY)
    gs.run(chosen, tmp_path / "run", trace=tmp_path / "trace")
    assert replay_run(chosen, tmp_path / "trace") is None


def test_the_server_ends_a_run_of_so_many_updates() -> None:
    result = gs.run(private(algorithm={"rounds": None}, stop={"updates": 30}))
    assert result.summary["updates"] == 30
    assert result.summary["finished"]["server"] == "updates"
    for node in result.summary["privacy"]["nodes"].values():
        assert node["releases"] <= node["planned_releases"]


def test_epochs_and_gradients_bound_a_run() -> None:
    by_gradients = plan_run(prepare(spec(algorithm={"rounds": None, "gradients": 1000})))
    assert by_gradients.quotas == dict.fromkeys(by_gradients.quotas or {}, 12)  # 40 + ... + 128 = 1008
    by_epochs = plan_run(prepare(spec(algorithm={"rounds": None}, stop={"epochs": 0.5})))
    examples = sum(len(shard) for shard in prepare(spec()).shards)
    rounds = next(iter((by_epochs.quotas or {}).values()))
    totals = np.cumsum([40 + 8 * i for i in range(rounds)])
    assert totals[-1] >= examples / 2 > totals[-2]


DELAY = {"rule": "tau", "tau": {"name": "power", "constant": 30, "factor": 0.1}}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"algorithm": {"weights": [0.5, 0.3, 0.1, 0.2]}}, "1.1"),
        ({"algorithm": {"weights": [0.5, 0.5]}}, "weights"),
        ({"algorithm": {"sizes": 4 * 600, "round_update": "batch"}}, "round 0"),
        ({"algorithm": {"sizes": {"name": "power", "a": 300, "b": 40}, "round_update": "clipped_sum"}}, "round 5"),
        ({"algorithm": {"delay": DELAY}}, "from round 0 on every client waits for ever"),
        ({"algorithm": {"aggregators": [9]}}, "aggregators"),
        ({"algorithm": {"parts": 651}}, "parts is at most the model's size 650"),
        ({"privacy": {"mechanism": "l2_laplace"}, "budget": {"epsilon": 4}}, "increasing knows gaussian and none"),
        ({"privacy": {}, "budget": {"epsilon": 4}, "algorithm": {"round_update": "sequential"}}, "meets no budget"),
        ({"privacy": {"clip": {"policy": "quantile"}}, "budget": {"epsilon": 4}}, "increasing knows fixed"),
        ({"algorithm": {"sizes": {"name": "theory", "m": 2, "d": 1}}}, "m must be at least"),
        ({"algorithm": {"rounds": None, "gradients": 10**18, "sizes": 1}}, "rounds"),
        ({"algorithm": {"sizes": 10**9, "round_update": "sequential"}}, "at most 10,000,000 steps in a round"),
        ({"algorithm": {"sizes": 10**30}}, "sizes"),
        (
            {"algorithm": {"learning_rate": {"schedule": "diminishing1", "initial": 0.1, "beta": 1e308}}},
            "learning_rate",
        ),
        ({"algorithm": {"patience": 1e-9}}, "patience"),
    ],
)
def test_bad_input_is_one_clear_line(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(CallerError) as caught:
        plan_run(prepare(spec(**sections)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sizes_that_break_the_papers_condition_are_said_and_run() -> None:
    tau = {"name": "power", "constant": 60, "factor": 0.1}
    with pytest.warns(RunWarning, match=r"fails first at i = 2\b"):
        result = gs.run(spec(algorithm={"delay": {"rule": "rounds", "d": 1, "tau": tau}}))
    assert result.summary["status"] in ("finished", "diverged")


def test_the_command_says_where_a_schedule_breaks_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.yaml"
    sizes = "{name: power, a: 300, b: 40}"
    algorithm = f"{{name: increasing, nodes: 4, sizes: {sizes}, round_update: batch, rounds: 20}}"
    path.write_text(f"dataset: digits\nprivacy: none\nalgorithm: {algorithm}\n")
    assert main(["run", str(path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "round 5" in error


def test_what_is_spent_so_far_is_read_of_rounds_of_many_rates() -> None:
    """Up to the whole plan, which has 12 rates."""
    rows = gs.run(private(evaluation={"every_updates": 8})).metrics
    readings = [row["epsilon_so_far"] for row in rows]
    assert readings[0] == 0
    assert readings == sorted(readings)
    assert readings[-1] == pytest.approx(4, rel=3e-3)


def test_the_reading_is_of_the_node_that_spent_most_whatever_its_noise() -> None:
    """node-1 samples little with little noise: its epsilon is the larger one."""
    noise = {"noise_multiplier": [2.0, 0.3]}
    chosen = private(algorithm={"nodes": 2, "weights": [0.93, 0.07]}, privacy=noise, budget=None)
    result = gs.run(chosen)
    spent = [node["epsilon"] for node in result.summary["privacy"]["nodes"].values()]
    assert spent[1] > 2 * spent[0]
    assert result.metrics[-1]["epsilon_so_far"] == result.guarantee.epsilon == spent[1]


@pytest.mark.some(2)
@pytest.mark.parametrize("update", ["batch", "clipped_sum"])
@pytest.mark.parametrize("parts", [1, 4])
def test_an_audit_of_a_run_stays_below_what_is_proved(update: str, parts: int) -> None:
    """False alarm: 1e-3 for each of the four, as the bound's confidence is 0.999."""
    from gossamer.experiment.audits.canary_audit import audit_run

    chosen = private(algorithm={"round_update": update, "parts": parts})
    found = audit_run(chosen, canaries=60, guesses=30, confidence=0.999)
    assert not found.summary["privacy"]["audits"]["one_run"]["refuted"]


def test_a_claim_that_does_not_apply_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "dataset: digits\nbudget: {epsilon: 4}\nalgorithm: {name: increasing, sizes: 200, rounds: 3, delay: {d: 2}}\n"
    )
    assert main(["run", str(path), "--out", str(tmp_path / "out")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Theorem 3 (first) says nothing of it: the largest round is" in printed


def test_under_the_rule_of_tau_a_breach_of_the_condition_means_waiting() -> None:
    tau = {"name": "power", "constant": 80, "factor": 0.2}
    with pytest.warns(RunWarning, match="clients may have to wait there"):
        plan_run(prepare(spec(algorithm={"delay": {"rule": "tau", "tau": tau}, "rounds": 4})))


def test_seconds_that_vanish_take_no_time() -> None:
    """A spread of 60 makes most times underflow to zero, and a few enormous."""
    result = gs.run(spec(speeds={"name": "lognormal", "seconds": 1e-6, "spread": 60}))
    assert result.summary["increasing"]["rounds"] == 12


def test_inversion_is_refused_as_no_gradient_is_released() -> None:
    from gossamer.experiment.audits.inversion_audit import invert

    with pytest.raises(CallerError, match="increasing releases sums of whole rounds"):
        invert(prepare(private()))
