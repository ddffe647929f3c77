"""A Flower app as the parties of a federation: each owner's machine calls its own, and only noised updates leave.

The app imports a stand-in for Flower, but in one test, which has the real one in an environment of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.end_to_end.test_flower_apps import HERE, apps_python, summary_of
from tests.end_to_end.test_flower_apps import SPEC as REAL
from tests.reference.founded_broker import FoundedBroker, free_port
from tests.unit.flower.test_flower import APP, SPEC

from gossamer.cli import main
from gossamer.data.examples import Split
from gossamer.flower.app import FlowerApp
from gossamer.keys.invitations import read_signed
from gossamer.runtimes.mqtt.broker import HOST, Mosquitto

pytestmark = pytest.mark.usefixtures("called_here")

STUB = Path(__file__).resolve().parents[1] / "unit" / "flower" / "stub"
LOOKING = """
    import sys
    def fit(w, b, message, context):
        assert not any(name.startswith("GOSSAMER") for name in os.environ), "told what is Gossamer's"
        opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        assert not [place for place in opened if "state" in place or "ledger" in place or "key" in place], opened
        assert len([place for place in opened if "socket:" in place]) == 1, opened  # by which it was asked
        return w + 10 * (1 + context.node_config["partition-id"]), b
"""
FEDERATED = """
dataset: {name: clients, format: csv, target: there, labels: ["0", "1"], columns: {client: [0, 9]}}
objective: {name: foreign, pretrained: start.safetensors}
algorithm: {name: ALGORITHM, nodes: 2, SIZE}
privacy: {noise_multiplier: 0.5, clip: 1.0, delta: 0.001}
"""
NEW = ["federation", "new", "f", "--spec", "federated.yaml", "--nodes", "a,b", "--examples", "a=1,b=1", "--broker"]


def started(folder: Path, app: Path | None = None, interpreter: Path | str = sys.executable) -> list[str]:
    """Options that name an app, by default that of the stand-in; its parties start from the file ``start``."""
    if app is None:
        app = folder / "app.py"
        app.write_text(textwrap.dedent(APP) + textwrap.dedent(LOOKING))
    (folder / "spec.yaml").write_text(json.dumps(SPEC))
    own, by = f"{app}:app", ["--python", str(interpreter)]
    start = ["--spec", str(folder / "spec.yaml"), "--start", "start.safetensors"]
    assert main(["flower", own, *start, *by]) == 0
    return ["--app", own, *by]


def founded(broker: str, algorithm: str, size: str, federated: str = FEDERATED) -> None:
    """A federation of two parties, and their server if they have one, each party with a row of data and a policy."""
    Path("federated.yaml").write_text(federated.replace("ALGORITHM", algorithm).replace("SIZE", size))
    assert main([*NEW, broker]) == 0
    organiser = read_signed("f/federation.yaml").organiser.fingerprint
    for name in ("a", "b"):
        (Path("f") / name / "row.csv").write_text(f"client,there\n{'ab'.index(name)},1\n")
        policy = {
            "data": {"clients": {"epsilon": 1e6, "delta": 1e-3, "relation": "replace_one", "path": "row.csv"}},
            "organisers": [organiser],
            "smallest_noise_multiplier": 0.01,
        }
        (Path("f") / name / "policy.yaml").write_text(json.dumps(policy))
    for invitation in Path("f").glob("*/invitation.yaml"):
        invitation.with_name("start.safetensors").write_bytes(Path("start.safetensors").read_bytes())


def node(name: str, *more: str) -> list[str]:
    place = Path("f") / name
    own = [] if name == "server" else ["--policy", str(place / "policy.yaml")]
    organiser = read_signed("f/federation.yaml").organiser.fingerprint
    return ["node", "--invitation", str(place / "invitation.yaml"), "--organiser", organiser, *own, *more]


def joined(app: list[str]) -> dict[str, dict[str, Any]]:
    """All parties of the federation as processes, over a real broker, to the end; summaries of the two."""
    names = [name for name in ("server", "a", "b") if (Path("f") / name).exists()]
    with FoundedBroker(Path("f")), ExitStack() as stack:
        processes = {
            name: stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "gossamer", *node(name, *([] if name == "server" else app))],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), *sys.path])},
                )
            )
            for name in names
        }
        stack.callback(lambda: [one.kill() for one in processes.values()])
        said = {name: processes[name].communicate(timeout=200)[0] for name in reversed(names)}
        assert not any(one.returncode for one in processes.values()), said
    return {name: json.loads(Path(f"f/{name}/state/summary.json").read_text()) for name in ("a", "b")}


def skip_without_broker() -> None:
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "size", "models"),
    [
        ("fedavg", "rounds: 3", ["server"]),
        ("fedbuff", "buffer: 2, updates_per_node: 3", ["server"]),
        ("gossip", "updates_per_node: 3, privacy_unit: client", ["a", "b"]),
    ],
)
def test_parties_train_by_their_own_apps(
    algorithm: str, size: str, models: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    """Updates of 20 and 40 in w are clipped to a length of 1, so three rounds move each of its 4 numbers by 3/2.

    Of noise 0.5 on each of two updates the mean of three rounds has 0.5 sqrt(3/2): 6 deviations are 3.7. The mean of
    two models that gossip may lack a share that is on its way when one of them ends, which is less than they differ.
    """
    skip_without_broker()
    monkeypatch.setenv("PYTHONPATH", str(STUB))
    app = started(tmp_path)
    founded(f"mqtts://{HOST}:{free_port()}", algorithm, size)
    for summary in joined(app).values():
        assert summary["privacy"]["releases"] == 3
        assert "counted_as_zero" not in summary
    found = [load_file(f"f/{name}/state/model.safetensors") for name in models]
    w, b = (np.mean([each[part] for each in found], axis=0) for part in ("w", "b"))
    np.testing.assert_allclose(w, 1 + 1.5, atol=3.7)
    np.testing.assert_allclose(b, 0, atol=3.7)
    assert (w != 1).all()
    assert "no example of it" in Path("f/a/state/guarantee.json").read_text()


@pytest.mark.slow
def test_real_flower_is_as_good_over_a_broker(tmp_path: Path, monkeypatch: Any) -> None:
    """The simulator's accuracy within two points of 72 tests of each of two clients, with next to no noise."""
    skip_without_broker()
    python = apps_python(monkeypatch)
    real = {**REAL, "algorithm": {"name": "fedavg", "nodes": 2, "rounds": 10}}
    expected = summary_of(python, tmp_path, "NumPy", **real)["metrics"]["mean_model_test_accuracy"]
    app = started(tmp_path, HERE / "numpy_digits.py", python)
    little = FEDERATED.replace("noise_multiplier: 0.5, clip: 1.0", "noise_multiplier: 0.01, clip: 10.0")
    founded(f"mqtts://{HOST}:{free_port()}", "fedavg", "rounds: 10", little)
    assert [summary["privacy"]["releases"] for summary in joined(app).values()] == [10, 10]
    tested = FlowerApp(app[1], 2, str(python), 0, 60.0)
    arrays = load_file("f/server/state/model.safetensors")
    model = np.concatenate([arrays[part.name].ravel() for part in tested.parts])
    found = tested.evaluate(model[None], Split(np.arange(2.0)[:, None], np.arange(2))).accuracy[0]
    tested.close()
    assert expected > 0.8
    assert found == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("name", "app", "more", "line"),
    [
        ("a", None, (), "--app: an app trains where the spec's objective is foreign"),
        ("a", "", ("--test", "f/a/row.csv"), "--test: Gossamer tests models that it can call"),
        ("a", "\ndel server\n", (), "its ServerApp asks no client to train"),
        (
            "a",
            APP.replace("np.zeros(3, np.float32)", "np.zeros(4, np.float32)"),
            (),
            "expected the model that all start from, [(Part(name='b', shape=(3,))",
        ),
        ("a", "\ndef fit(w, b, *_):\n    return 1 / 0\n", (), "no client's first answer is an update, so nothing can"),
        ("server", "", (), "--app: an app trains on a party's own data, and this party has none; leave it out"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_charged(
    name: str, app: str | None, more: tuple[str, ...], line: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(STUB))
    monkeypatch.setattr("warnings.warn", lambda *said, **how: None)
    named = started(tmp_path)
    founded("mqtts://broker.example.org:8883", "fedavg", "rounds: 3")
    if app is not None:
        (tmp_path / "app.py").write_text((tmp_path / "app.py").read_text() + textwrap.dedent(app))
        more = (*named, *more)
    assert main(node(name, *more)) == 2
    assert line in capsys.readouterr().err.splitlines()[-1]
    assert not Path("f/a/policy.ledger").exists()


def test_a_node_that_has_begun_goes_on_without_a_first_answer(tmp_path: Path, monkeypatch: Any) -> None:
    """By now its client may fail as others do; its store and its network are not what this is about."""
    monkeypatch.setenv("PYTHONPATH", str(STUB))
    named = started(tmp_path)
    founded("mqtts://broker.example.org:8883", "fedavg", "rounds: 3")
    asked = tmp_path / "asked"
    failing = f"\ndef fit(w, b, *_):\n    open({str(asked)!r}, 'w').close()\n    return 1 / 0\n"
    (tmp_path / "app.py").write_text((tmp_path / "app.py").read_text() + failing)
    for name, found in (("is_stored", True), ("stored_node", SimpleNamespace(begun=True)), ("connected", None)):
        monkeypatch.setattr(f"gossamer.deployment.party.party.{name}", lambda *_, found=found: found)
    assert main(node("a", *named)) == 0
    assert not asked.exists()


@pytest.mark.parametrize(
    ("algorithm", "size", "line"),
    [
        (
            "gossip",
            "updates_per_node: 3",
            "only whole updates can be clipped, which protects whole clients; say client",
        ),
        (
            "d_psgd",
            "updates_per_node: 3",
            "so it runs by fedavg, fedasync, fedbuff or gossip, found d_psgd; choose one of these",
        ),
        ("fedavg", "rounds: 3, local_epochs: 2", "algorithm.local_epochs: the app brings its own data"),
        ("fedavg", "rounds: 3, local_steps: 1", "algorithm.local_steps: the app brings its own data"),
        (
            "fedbuff",
            "buffer: 2, updates_per_node: 3, batch_size: 16",
            "algorithm.batch_size: the app brings its own data",
        ),
    ],
)
def test_what_no_app_can_do_is_refused_when_it_is_founded(algorithm: str, size: str, line: str, capsys: Any) -> None:
    Path("federated.yaml").write_text(FEDERATED.replace("ALGORITHM", algorithm).replace("SIZE", size))
    assert main([*NEW, "mqtts://broker.example.org:8883"]) == 2
    assert line in capsys.readouterr().err.splitlines()[-1]
    assert not Path("f").exists()


def test_foreign_code_is_for_federations(capsys: Any) -> None:
    Path("simulated.yaml").write_text(
        "{dataset: digits, privacy: none, algorithm: {name: fedavg, nodes: 2, rounds: 1}, "
        "objective: {name: foreign, pretrained: start.safetensors}}"
    )
    save_file({"w": np.zeros(2, np.float32)}, "start.safetensors")
    assert main(["run", "simulated.yaml"]) == 2
    assert "objective.name: foreign is for federations" in capsys.readouterr().err.splitlines()[-1]
    assert main(["run", "simulated.yaml", "--set", "objective.l2=0.1"]) == 2
    assert "foreign code has a loss of its own" in capsys.readouterr().err.splitlines()[-1]
