"""A Flower app as the parties of a federation: each owner's machine calls its own, and only noised updates leave.

The app imports a stand-in for Flower; `test_flower_apps.py` has the real one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.founded_broker import FoundedBroker, free_port
from tests.unit.flower.test_flower import APP, SPEC

from gossamer.cli import main
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


def founded(folder: Path, broker: str, algorithm: str, size: str) -> None:
    """A federation of two parties and their server, each party with its app, a row of data and a policy."""
    (folder / "app.py").write_text(textwrap.dedent(APP) + textwrap.dedent(LOOKING))
    (folder / "spec.yaml").write_text(json.dumps(SPEC))
    start = ["--spec", str(folder / "spec.yaml"), "--start", "start.safetensors"]
    assert main(["flower", f"{folder / 'app.py'}:app", *start]) == 0
    Path("federated.yaml").write_text(FEDERATED.replace("ALGORITHM", algorithm).replace("SIZE", size))
    new = ["federation", "new", "f", "--spec", "federated.yaml", "--nodes", "a,b", "--examples", "a=1,b=1"]
    assert main([*new, "--broker", broker]) == 0
    organiser = read_signed("f/federation.yaml").organiser.fingerprint
    for name in ("a", "b"):
        (Path("f") / name / "row.csv").write_text(f"client,there\n{'ab'.index(name)},1\n")
        policy = {
            "data": {"clients": {"epsilon": 60, "delta": 1e-3, "relation": "replace_one", "path": "row.csv"}},
            "organisers": [organiser],
            "smallest_noise_multiplier": 0.1,
        }
        (Path("f") / name / "policy.yaml").write_text(json.dumps(policy))
    for invitation in Path("f").glob("*/invitation.yaml"):
        invitation.with_name("start.safetensors").write_bytes(Path("start.safetensors").read_bytes())


def node(name: str, *more: str) -> list[str]:
    place = Path("f") / name
    own = [] if name == "server" else ["--policy", str(place / "policy.yaml")]
    organiser = read_signed("f/federation.yaml").organiser.fingerprint
    return ["node", "--invitation", str(place / "invitation.yaml"), "--organiser", organiser, *own, *more]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "size"), [("fedavg", "rounds: 3"), ("fedbuff", "buffer: 2, updates_per_node: 3")]
)
def test_parties_train_by_their_own_apps(algorithm: str, size: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Updates of 20 and 40 in w are clipped to a length of 1, so three rounds move each of its 4 numbers by 3/2.

    Of noise 0.5 on each of two updates the mean of three rounds has 0.5 sqrt(3/2): 6 deviations are 3.7.
    """
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    monkeypatch.setenv("PYTHONPATH", str(STUB))
    founded(tmp_path, f"mqtts://{HOST}:{free_port()}", algorithm, size)
    app = ["--app", f"{tmp_path / 'app.py'}:app"]
    with FoundedBroker(Path("f")), ExitStack() as stack:
        started = {
            name: stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "gossamer", *node(name, *([] if name == "server" else app))],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join([str(STUB), *sys.path])},
                )
            )
            for name in ("server", "a", "b")
        }
        stack.callback(lambda: [one.kill() for one in started.values()])
        said = {name: started[name].communicate(timeout=100)[0] for name in ("a", "b")}
        assert not any(started[name].returncode for name in said), said
        said["server"] = started["server"].communicate(timeout=100)[0]
    assert not any(one.returncode for one in started.values()), said
    model = load_file("f/server/state/model.safetensors")
    np.testing.assert_allclose(model["w"], 1 + 1.5, atol=3.7)
    np.testing.assert_allclose(model["b"], 0, atol=3.7)
    assert (model["w"] != 1).all()
    summary = json.loads(Path("f/a/state/summary.json").read_text())
    assert summary["privacy"]["releases"] == 3
    assert "no example of it" in Path("f/a/state/guarantee.json").read_text()


@pytest.mark.parametrize(
    ("app", "more", "line"),
    [
        (None, (), "--app: an app trains where the spec's objective is foreign"),
        ("", ("--test", "f/a/row.csv"), "--test: Gossamer tests models that it can call"),
        ("\ndel server\n", (), "its ServerApp asks no client to train"),
        (
            APP.replace("np.zeros(3, np.float32)", "np.zeros(4, np.float32)"),
            (),
            "expected the model that all start from, [(Part(name='b', shape=(3,))",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_charged(
    app: str | None, more: tuple[str, ...], line: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(STUB))
    founded(tmp_path, "mqtts://broker.example.org:8883", "fedavg", "rounds: 3")
    if app is not None:
        (tmp_path / "app.py").write_text((tmp_path / "app.py").read_text() + textwrap.dedent(app))
        more = ("--app", f"{tmp_path / 'app.py'}:app", *more)
    assert main(node("a", *more)) == 2
    assert line in capsys.readouterr().err.splitlines()[-1]
    assert not Path("f/a/policy.ledger").exists()


def test_an_algorithm_of_gradients_is_refused_before_anything_is_charged(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(STUB))
    founded(tmp_path, "mqtts://broker.example.org:8883", "gossip", "batch_size: 1, updates_per_node: 3")
    assert main(node("a", "--app", f"{tmp_path / 'app.py'}:app")) == 2
    assert "Foreign has no gradients of examples" in capsys.readouterr().err.splitlines()[-1]
    assert not Path("f/a/policy.ledger").exists()
    Path("simulated.yaml").write_text(
        "{dataset: digits, privacy: none, algorithm: {name: fedavg, nodes: 2, rounds: 1}, "
        "objective: {name: foreign, pretrained: start.safetensors}}"
    )
    assert main(["run", "simulated.yaml"]) == 2
    assert "objective.name: foreign is for federations" in capsys.readouterr().err.splitlines()[-1]
    assert main(["run", "simulated.yaml", "--set", "objective.l2=0.1"]) == 2
    assert "foreign code has a loss of its own" in capsys.readouterr().err.splitlines()[-1]
