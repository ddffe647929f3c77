"""Around a Flower app: what is sent to its process and comes back, what is refused, and what a guarantee says.

Apps here import a stand-in that has a few of Flower's names; `tests/end_to_end/test_flower_apps.py` has real ones.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import gossamer.flower.app as app_module
from gossamer.cli import main
from gossamer.flower.app import FlowerApp

APP = """
    import os
    import numpy as np
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    app, server = ClientApp(), ServerApp()

    @server.main()
    def main(grid, context):
        w, b = np.ones((2, 2), np.float32), np.zeros(3, np.float32)
        start = ArrayRecord(w=Array(w), n=Array(np.array(7)), b=Array(b))
        content = RecordDict(arrays=start, config=ConfigRecord({"server-round": 1, "lr": 0.5}))
        grid.send_and_receive([Message(content, dst_node_id=1, message_type="train")])

    def fit(w, b, message, context):
        return w + context.node_config["partition-id"], b + message.content["config"]["lr"]

    @app.train()
    def train(message, context):
        print("an app may print")
        arrays = message.content["arrays"]
        assert arrays["n"].numpy() == 7
        w, b = fit(arrays["w"].numpy(), arrays["b"].numpy(), message, context)
        content = RecordDict(arrays=ArrayRecord(w=Array(w), n=Array(np.array(8)), b=Array(b)))
        content["metrics"] = MetricRecord({"num-examples": 10**6, "secret": 4.5})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        examples = 1 + context.node_config["partition-id"]
        found = MetricRecord({"eval_loss": float(examples), "eval_acc": 1 / examples, "num-examples": examples})
        return Message(RecordDict(metrics=found), reply_to=message)
"""
SPEC = {"algorithm": {"name": "fedavg", "nodes": 4, "rounds": 3}, "privacy": "none", "seed": 3}
PRIVATE = {"privacy": {"noise_multiplier": 0.01, "clip": 1.0}}
GOSSIP = {"name": "gossip", "nodes": 4, "updates_per_node": 3, "privacy_unit": "client", "topology": "complete"}

pytestmark = pytest.mark.filterwarnings("always::gossamer.errors.RunWarning")


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("stub")))


def ran(folder: Path, *more: str, app: str = "", spec: Any = SPEC, name: str = "app") -> int:
    """Exit code of the command for the app above, with lines after it."""
    (folder / "given.py").write_text(textwrap.dedent(APP) + textwrap.dedent(app))
    (folder / "spec.yaml").write_text(json.dumps(spec))
    reference = f"{folder / 'given.py'}:{name}"
    return main(["flower", reference, "--spec", str(folder / "spec.yaml"), "--out", str(folder / "out"), *more])


def test_clients_train_and_test_as_the_algorithm_says(tmp_path: Path) -> None:
    """The mean update is that of partitions 0 to 3, and 1/2 from the server's configuration, in each of 3 rounds."""
    assert ran(tmp_path) == 0
    model = load_file(tmp_path / "out" / "model.safetensors")
    assert model.keys() == {"w", "b"}  # what is no floating-point number is not trained
    np.testing.assert_allclose(model["w"], 1 + 3 * np.mean([0, 1, 2, 3]))
    np.testing.assert_allclose(model["b"], 3 * 0.5)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    # Weighted by examples: sum of k k, and of k/k, over the sum of k, for k from 1 to 4.
    assert summary["metrics"]["mean_model_test_loss"] == pytest.approx(30 / 10)
    assert summary["metrics"]["mean_model_test_accuracy"] == pytest.approx(4 / 10)
    assert "secret" not in (tmp_path / "out" / "summary.json").read_text()


def test_an_update_is_clipped_noised_and_charged_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model moves by means of vectors of length 1, with noise of 0.02 at most: 0.1 is 5 deviations in 7 numbers."""
    assert ran(tmp_path, spec={**SPEC, **PRIVATE}) == 0
    updates = np.array([[k] * 4 + [0.5] * 3 for k in range(4)], float)
    expected = 3 * (updates / np.linalg.norm(updates, axis=1, keepdims=True)).mean(axis=0)
    model = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_allclose(np.concatenate([model["w"].ravel() - 1, model["b"]]), expected, atol=0.1)
    said = " ".join(capsys.readouterr().out.split())
    assert "clipped as a whole, so what is protected is a whole client and no example of it" in said
    assert (
        "dropped, but for the loss and accuracy of its evaluate, and that it failed: these are shown without noise"
        in said
    )
    assert "updates of the Flower app given.py:app," in said  # and no folder, as guarantees are shown to others
    lines = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    assert [(line["protects"], line["releases"], line["size"]) for line in lines] == [("client", 3, 7)] * 4


def test_gossip_of_models_moves_them_by_the_clients_updates(tmp_path: Path) -> None:
    """Exchanges keep the sum of all models, so their mean has moved by that of all updates, times 1 by default."""
    assert ran(tmp_path, spec={**SPEC, "algorithm": GOSSIP}) == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["gossip"]["exchanges"] > 0
    model = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_allclose(model["w"], 1 + 3 * np.mean([0, 1, 2, 3]), rtol=1e-6)
    np.testing.assert_allclose(model["b"], 3 * 0.5, rtol=1e-6)


def test_an_update_of_gossip_is_clipped_noised_and_charged_as_a_whole(tmp_path: Path) -> None:
    """As by `fedavg`, 3 updates are 2 C apart under noise of 8 C: mu = 2 sqrt(3)/8.

    The mean of 4 models has the noise 8 sqrt(3/4), and 7 deviations in 7 numbers are passed in 1 of 10^10 runs.
    """
    assert ran(tmp_path, spec={**SPEC, "algorithm": GOSSIP, "privacy": {"noise_multiplier": 8.0, "clip": 1.0}}) == 0
    guarantee = json.loads((tmp_path / "out" / "guarantee.json").read_text())["guarantees"][0]
    mu, normal = 2 * math.sqrt(3) / 8, NormalDist()
    exact = [
        normal.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal.cdf(-mu / 2 - epsilon / mu)
        for epsilon in (guarantee["epsilon"], guarantee["epsilon"] * 0.995)
    ]
    assert exact[0] <= guarantee["delta"] < exact[1]
    assert guarantee["unit"] == "client with all of its data"
    lines = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    assert [(line["protects"], line["releases"], line["probability"]) for line in lines] == [("client", 3, 1.0)] * 4
    model = load_file(tmp_path / "out" / "model.safetensors")
    moved = np.concatenate([model["w"].ravel() - 1, model["b"]])
    assert 1 < np.abs(moved).max() < 3 + 7 * 8 * math.sqrt(3 / 4)


FAULTS = {
    "not finite": "return w * np.nan, b",
    "no such arrays": "return w[:1], b",
    "ZeroDivisionError": "return 1 / 0",
    "ended": "print('\\x1b[31mout of memory\\x1b[0m'); os._exit(9)",
    "no answer in time": "__import__('time').sleep(60)",
}
LINES = {
    "not finite": "what it returned is not finite",
    "no such arrays": "its client is to return arrays as they came: w is (2, 2), found (1, 2)",
    "ZeroDivisionError": "ZeroDivisionError: division by zero (",
    "ended": "its process ended, after 'out of memory'; see that",
    "no answer in time": "it gave no answer in 6 s, after ",
}


@pytest.mark.parametrize("reason", FAULTS)
@pytest.mark.parametrize("more", [{}, {"privacy": {"noise_multiplier": 0.01, "clip": 10.0}}])
def test_one_clients_fault_is_an_update_of_zero_that_is_counted(
    more: dict[str, Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Partition 1 sends nothing, and so the mean of its 3 rounds lacks its 1 and its b; it is charged all the same.

    With noise of 0.1 on each update, that of 3 means of 4 is 0.043: the bound is 7 deviations, and less than 3/4.
    """
    broken = f"""
        def fit(w, b, message, context):
            k = context.node_config["partition-id"]
            if k == 1:
                {FAULTS[reason]}
            return w + k, b + 1
    """
    assert ran(tmp_path, "--timeout", "6" if "time" in reason else "60", app=broken, spec={**SPEC, **more}) == 0
    model = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_allclose(model["w"], 1 + 3 * (0 + 0 + 2 + 3) / 4, atol=0.3 if more else 1e-6)
    np.testing.assert_allclose(model["b"], 3 * 3 / 4, atol=0.3 if more else 1e-6)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["counted_as_zero"] == {"partition 1": {f"train: {reason}": 3}}
    assert {node["releases"] for node in summary["privacy"]["nodes"].values()} == {3}
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("an update of partition 1 counts as zero, and is noised and charged as others are: ") == 1
    assert LINES[reason] in said
    assert f"partition 1 of the app: 3 answers counted as zero (train: {reason} 3)" in said


def test_a_client_that_cannot_test_has_no_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the others the loss is 2 on 2 examples, 3 on 3 and 4 on 4."""
    broken = """
        def failing(message, context, once=app._functions["evaluate"]):
            return once(message, context) if context.node_config["partition-id"] else 1 / 0
        app._functions["evaluate"] = failing
    """
    assert ran(tmp_path, app=broken) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["metrics"]["mean_model_test_loss"] == pytest.approx((4 + 9 + 16) / 9)
    assert summary["counted_as_zero"]["partition 0"].keys() == {"evaluate: ZeroDivisionError"}
    assert "partition 0 has no scores: ZeroDivisionError" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("reason", FAULTS)
def test_an_app_of_which_no_client_answers_is_refused_before_anything_is_written(
    reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = f"\ndef fit(w, b, message, context):\n    {FAULTS[reason]}\n"
    assert ran(tmp_path, "--timeout", "6" if "time" in reason else "60", app=broken) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "no client's first answer is an update, so nothing can be learnt; the last: " in said
    assert LINES[reason] in said
    assert not (tmp_path / "out").exists()


def test_a_first_answer_is_asked_for_once(tmp_path: Path) -> None:
    """What was found before the run counts in it, and clients remember no training that did not."""
    counting = f"""
        def fit(w, b, message, context):
            with open({str(tmp_path / "asked")!r}, "a") as file:
                file.write(str(context.node_config["partition-id"]))
            return w, b
    """
    assert ran(tmp_path, app=counting) == 0
    assert sorted((tmp_path / "asked").read_text()) == sorted("0123" * 3)


def test_a_process_is_not_started_anew_with_other_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changing = """
        def fit(w, b, message, context):
            if context.node_config["partition-id"] == 1:
                open(__file__, "a").write("# changed")
                os._exit(9)
            return w, b
    """
    assert ran(tmp_path, app=changing) == 2
    assert "its files are others than when the run began; run it anew" in capsys.readouterr().err


def test_a_process_is_started_anew_whatever_its_server_draws(tmp_path: Path) -> None:
    """Partition 1 ends it each time; its server's weights have no seed, and those of the beginning stay."""
    drawn = """
        @server.main()
        def main(grid, context):
            w = np.random.default_rng().random((2, 2), np.float32)
            start = ArrayRecord(w=Array(w), n=Array(np.array(7)), b=Array(np.zeros(3, np.float32)))
            content = RecordDict(arrays=start, config=ConfigRecord({"lr": 0.5}))
            grid.send_and_receive([Message(content, dst_node_id=1, message_type="train")])

        def fit(w, b, message, context):
            return (w, b + 1) if context.node_config["partition-id"] != 1 else os._exit(9)
    """
    assert ran(tmp_path, app=drawn) == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["counted_as_zero"] == {
        "partition 1": {"train: ended": 3}
    }
    np.testing.assert_allclose(load_file(tmp_path / "out" / "model.safetensors")["b"], 3 * 3 / 4)


def test_a_process_that_cannot_be_started_anew_is_tried_each_time_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once = f"""
        os.mkdir({str(tmp_path / "scratch")!r})
        def fit(w, b, message, context):
            os._exit(9) if context.node_config["partition-id"] else None
            return w, b
    """
    spec = {**SPEC, "algorithm": {"name": "fedavg", "nodes": 2, "rounds": 3}}
    assert ran(tmp_path, app=once, spec=spec) == 0
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["counted_as_zero"]
    reasons = {reason for counts in found.values() for reason in counts}
    assert reasons == {"train: ended", "train: FileExistsError"}
    assert "unexpected keyword" not in capsys.readouterr().err


def test_state_stays_with_a_partition_and_runs_are_the_same_again(tmp_path: Path) -> None:
    """Round r adds r, which each client counts itself: 1 + 2 + 3; what generators give is the same with one seed."""
    counting = """
        import random
        def fit(w, b, message, context):
            context.state["round"] = context.state.get("round", 0) + 1
            return w + context.state["round"], b + random.random() + np.random.rand()
    """
    found = []
    for _ in range(2):
        assert ran(tmp_path, "--overwrite", app=counting) == 0
        found.append(load_file(tmp_path / "out" / "model.safetensors"))
    np.testing.assert_allclose(found[0]["w"], 1 + 6)
    np.testing.assert_array_equal(found[0]["b"], found[1]["b"])
    assert (found[0]["b"] > 0).all()


@pytest.mark.parametrize(
    ("more", "line"),
    [({}, "what made it repeats it"), (PRIVATE, "as it was made: gs.run(spec, data=gs.Data(...)), or gossamer flower")],
)
def test_its_folder_does_not_repeat_it_and_says_what_does(
    more: dict[str, Any], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(tmp_path, spec={**SPEC, **more}) == 0
    assert main(["run", "--repeat", str(tmp_path / "out"), "--out", str(tmp_path / "again")]) == 2
    assert line in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "again").exists()


NO_EXAMPLES = """
    def untested(message, context):
        found = MetricRecord({"eval_loss": 1.0, "eval_acc": 0.5, "num-examples": 0})
        return Message(RecordDict(metrics=found), reply_to=message)
    app._functions["evaluate"] = untested
"""


@pytest.mark.parametrize("app", ["\ndel app._functions['evaluate']\n", NO_EXAMPLES])
@pytest.mark.parametrize("more", [{}, {"evaluation": "off"}])
def test_an_app_that_tests_nothing_has_no_scores(
    app: str, more: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is it said to have diverged, or to be worse than before, of which nobody knows."""
    assert ran(tmp_path, app=app, spec={**SPEC, **more}) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["metrics"]["mean_model_test_loss"] is None
    assert "ended_worse" not in summary
    said = capsys.readouterr().out
    assert "accuracy: server's model nan" in said
    assert "no longer finite" not in said


def test_clients_without_examples_do_not_count(tmp_path: Path) -> None:
    """Partition 0 has none, and so neither has its loss; of the others the loss is 1 on 1 example, 2 on 2, 3 on 3."""
    some = """
        def some(message, context):
            k = context.node_config["partition-id"]
            found = MetricRecord({"eval_loss": float(k) if k else np.nan, "eval_acc": 1.0, "num-examples": k})
            return Message(RecordDict(metrics=found), reply_to=message)
        app._functions["evaluate"] = some
    """
    assert ran(tmp_path, app=some) == 0
    metrics = json.loads((tmp_path / "out" / "summary.json").read_text())["metrics"]
    assert metrics["mean_model_test_loss"] == pytest.approx((1 + 4 + 9) / 6)


def test_a_server_draws_what_all_start_from_by_the_seed(tmp_path: Path) -> None:
    """As Flower's quickstarts do, without a seed of their own."""
    drawn = """
        @server.main()
        def main(grid, context):
            start = ArrayRecord(w=Array(np.random.rand(2, 2)), n=Array(np.array(7)), b=Array(np.zeros(3)))
            content = RecordDict(arrays=start, config=ConfigRecord({"lr": 0.5}))
            grid.send_and_receive([Message(content, dst_node_id=1, message_type="train")])
    """
    found = []
    for seed in ("3", "3", "4"):
        assert ran(tmp_path, "--overwrite", "--seed", seed, app=drawn) == 0
        found.append(load_file(tmp_path / "out" / "model.safetensors")["w"])
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()


def test_its_process_is_not_told_what_is_gossamers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_PASSPHRASE", "of a ledger")
    looking = """
        def fit(w, b, message, context):
            assert not any(name.startswith("GOSSAMER") for name in os.environ)
            return w, b
    """
    assert ran(tmp_path, app=looking) == 0


REFUSED = {
    "no client": (
        dict(name="nothing"),
        "a client_fn or a ServerApp as nothing in given, found None",
    ),
    "something else": (dict(app="\nnothing = 5\n", name="nothing"), "as nothing in given, found 5"),
    "no train function": (
        dict(app="\nempty = ClientApp()\n", name="empty"),
        "No train function registered",
    ),
    "an import fails": (dict(app="\nimport nowhere\n"), "given.py, line 36, in <module>)"),
    "two models": (
        dict(
            app="""
            def twice(message, context, once=app._functions["train"]):
                reply = once(message, context)
                reply.content["more"] = ArrayRecord(w=Array(np.zeros((2, 2))))
                return reply
            app._functions["train"] = twice
            """
        ),
        "its client is to return one model, an ArrayRecord, found 2",
    ),
    "a long error": (
        dict(app="\ndef fit(w, b, message, context):\n    raise ValueError('x' * 2**21)\n"),
        "given.py, line 37, in fit)",
    ),
    "no number": (
        dict(
            app="""
            @server.main()
            def main(grid, context):
                content = RecordDict(arrays=ArrayRecord(n=Array(np.array(7))))
                grid.send_and_receive([Message(content, dst_node_id=1, message_type="train")])
            """
        ),
        "start from has no floating-point numbers",
    ),
    "no server": (dict(app="\ndel server\n"), "its ServerApp asks no client to train; give a project's folder"),
    "a server that asks otherwise": (
        dict(
            app="""
            @server.main()
            def main(grid, context):
                grid.send_and_receive([Message(RecordDict(), dst_node_id=1, message_type="query")])
            """
        ),
        "its ServerApp asks clients to query before they train, which no noise covers",
    ),
    "gradients": (
        dict(spec={**SPEC, "algorithm": "d_psgd"}),
        "only whole updates can be clipped, so it runs by fedavg, fedasync, fedbuff or gossip, found d_psgd",
    ),
    "whole gradients": (
        dict(spec={**SPEC, "algorithm": {"name": "audp", "privacy_unit": "client", "updates_per_node": 3}}),
        "so it runs by fedavg, fedasync, fedbuff or gossip, found audp",
    ),
    "gossip of examples": (
        dict(spec={**SPEC, "algorithm": {"name": "gossip", "updates_per_node": 3}}),
        "algorithm.privacy_unit: of an app only whole updates can be clipped, which protects whole clients; say client",
    ),
    "a sample's size": (
        dict(spec={**SPEC, "algorithm": {**GOSSIP, "batch_size": 32}}),
        "algorithm.batch_size: the app brings its own data, model and training; leave it out",
    ),
    "examples": (
        dict(spec={**SPEC, "algorithm": {**SPEC["algorithm"], "privacy_unit": "example"}}),  # type: ignore[dict-item]
        "algorithm.privacy_unit: of an app only whole updates can be clipped, which protects whole clients; say client",
    ),
    "weights": (
        dict(spec={**SPEC, "algorithm": {**SPEC["algorithm"], "weights": "declared"}}),  # type: ignore[dict-item]
        "algorithm.weights: the app brings its own data",
    ),
    "training": (
        dict(spec={**SPEC, "algorithm": {**SPEC["algorithm"], "local_epochs": 2}}),  # type: ignore[dict-item]
        "algorithm.local_epochs: the app brings its own data, model and training; leave it out",
    ),
    "data": (dict(spec={**SPEC, "dataset": "mnist"}), "dataset: the app brings its own data"),
    "an end by private scores": (
        dict(spec={**SPEC, "stop": {"accuracy": 0.4}}),
        "stop.accuracy: an app tests on its clients' private data",
    ),
    "private scores": (
        dict(spec={**SPEC, "evaluation": {"release": "private", "epsilon": 1}}),
        "evaluation.release: an app tests on its clients' private data",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_run_is_refused_in_a_line(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, line = REFUSED[case]
    assert ran(tmp_path, **given) == 2  # type: ignore[arg-type]
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("gossamer: error: ")
    assert line in said


@pytest.mark.parametrize("end", ["os._exit(9)", "return 1 / 0", "time.sleep(60)"])
def test_what_a_client_started_ends_with_it(end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process that a client forks keeps the pipe of answers, so whoever reads on would wait for it, too."""
    forking = f"""
        import time
        def fit(w, b, message, context):
            if child := os.fork():
                open({str(tmp_path / "child")!r}, "w").write(str(child))
                {end}
            time.sleep(60)
    """
    began = time.monotonic()
    spec = {**SPEC, "algorithm": {"name": "fedavg", "nodes": 2, "rounds": 3}}
    assert ran(tmp_path, "--timeout", "2", app=forking, spec=spec) == 2
    assert capsys.readouterr().err
    child = int((tmp_path / "child").read_text())
    while is_alive(child):  # whoever adopts it has to hear of its end
        assert time.monotonic() < began + 30
        time.sleep(0.01)


def test_what_has_left_the_group_is_not_waited_for(tmp_path: Path) -> None:
    """A process of its own session outlives the app's and keeps its pipe, for longer than the command's 2 seconds."""
    leaving = f"""
        import time
        def fit(w, b, message, context):
            if context.node_config["partition-id"]:
                if os.fork():
                    os._exit(9)
                os.setsid()
                open({str(tmp_path / "child")!r}, "w").write(str(os.getpid()))
                time.sleep(30)
                os._exit(0)
            return w, b
    """
    spec = {**SPEC, "algorithm": {"name": "fedavg", "nodes": 2, "rounds": 1}}
    assert ran(tmp_path, "--timeout", "2", app=leaving, spec=spec) == 0
    child = int((tmp_path / "child").read_text())
    assert is_alive(child)
    os.kill(child, signal.SIGKILL)


def is_alive(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def test_an_interrupt_ends_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the app is being read, before there is a run."""
    started: list[subprocess.Popen[bytes]] = []

    class Started(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            started.append(self)

    def interrupted(line: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gossamer.flower.app.subprocess.Popen", Started)
    monkeypatch.setattr("gossamer.flower.app.json.loads", interrupted)
    with pytest.raises(KeyboardInterrupt):
        FlowerApp(str(tmp_path), 2, sys.executable, 1, 600.0)
    assert [one.returncode for one in started] == [-signal.SIGKILL]


@pytest.mark.parametrize(
    ("reference", "line"),
    [
        (
            reference,
            "expected a project's folder with pyproject.toml, or FILE.py:NAME of a file, found neither",
        )
        for reference in ("nowhere.py:app", "nowhere.py", ".", "given.py")
    ],
)
def test_what_is_no_app_is_refused(
    reference: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(json.dumps(SPEC))
    (tmp_path / "given.py").write_text("app = None")
    assert main(["flower", reference, "--spec", "spec.yaml"]) == 2
    assert line in capsys.readouterr().err


def test_a_start_takes_no_file_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = tmp_path / "given.py"
    assert ran(tmp_path, "--start", str(start)) == 2
    assert f"--start: {start} exists; choose another name" in capsys.readouterr().err
    assert "ClientApp" in start.read_text()
    assert ran(tmp_path, "--start", str(tmp_path / "start"), "--overwrite") == 0
    assert load_file(tmp_path / "start").keys() == {"w", "b"}


def test_what_is_no_app_is_refused_by_an_installed_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All lines that were gone through are in ``site-packages`` then, and none is an app's."""
    place = tmp_path / "site-packages"
    shutil.copytree(Path(__file__).with_name("stub"), place)
    shutil.copy(app_module.__file__.replace("app.py", "worker.py"), place)
    monkeypatch.setenv("PYTHONPATH", str(place))
    monkeypatch.setattr(app_module, "__file__", str(place / "app.py"))
    (tmp_path / "spec.yaml").write_text(json.dumps(SPEC))
    (tmp_path / "pyproject.toml").touch()
    assert main(["flower", str(tmp_path), "--spec", str(tmp_path / "spec.yaml")]) == 2
    assert "Cannot find pyproject.toml in" in capsys.readouterr().err


def test_an_environment_without_flower_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PYTHONPATH")
    assert ran(tmp_path) == 2
    assert "No module named 'flwr'" in capsys.readouterr().err
