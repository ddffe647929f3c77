"""Apps as Flower's own quickstarts are, with the real package: unchanged, as good as by Flower, and private.

They run in an environment of their own, of `flower_apps/requirements.txt`; no line of an app is about Gossamer. By
Flower they run with its ServerApp and strategy, and without Ray (`flower_apps/by_flower.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.cli import main

HERE = Path(__file__).with_name("flower_apps")
ROOT = Path(__file__).resolve().parents[2]
APPS = {
    "PyTorch": "../../../examples/flower/torch_digits",
    "scikit-learn": "sklearn_digits",
    "NumPy": "numpy_digits.py:app",
    "state": "with_state",
    "layers": "layers",
}
PARTITIONS = 6
SPEC = {"algorithm": {"name": "fedavg", "nodes": PARTITIONS, "rounds": 10}, "privacy": "none", "evaluation": "off"}
BUFFERED = {"name": "fedbuff", "nodes": PARTITIONS, "buffer": 3, "updates_per_node": 4}
GOSSIP = {"name": "gossip", "nodes": PARTITIONS, "privacy_unit": "client", "topology": "complete"}
PRIVATE = {"privacy": {"clip": 1.0}, "budget": {"epsilon": 8, "delta": 0.01}}

pytestmark = pytest.mark.slow


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The interpreter of the apps' environment."""
    return apps_python(monkeypatch)


def apps_python(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same for others; a test that cannot have it is skipped."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from peers.environments import Unavailable, default_cache, python_of  # type: ignore[import-not-found]

    try:
        found: Path = python_of("flower-apps", default_cache(), HERE / "requirements.txt")
    except Unavailable as problem:
        pytest.skip(str(problem))
    return found


def summary_of(python: Path, folder: Path, app: str, **spec: Any) -> dict[str, Any]:
    """Summary of a run of the command, which says the accuracy of the server's model at clients."""
    (folder / "spec.yaml").write_text(json.dumps(spec))
    options = ["--spec", str(folder / "spec.yaml"), "--python", str(python), "--out", str(folder / "out")]
    assert main(["flower", str(HERE / APPS[app]), *options]) == 0
    found: dict[str, Any] = json.loads((folder / "out" / "summary.json").read_text())
    return found


@pytest.mark.parametrize("app", APPS)
def test_an_unchanged_app_is_as_good_as_by_flower(app: str, python: Path, tmp_path: Path) -> None:
    """Both are seeded, and learn the same in 10 rounds but for the order of examples: within 2 points of 360 tests.

    Apps without random numbers are the same to the last test.
    """
    by_flower = subprocess.run(
        [str(python), str(HERE / "by_flower.py"), str(HERE / APPS[app].partition(":")[0]), str(PARTITIONS)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    expected = float(by_flower.stdout.split()[-1])
    found = summary_of(python, tmp_path, app, **SPEC)["metrics"]["mean_model_test_accuracy"]
    assert expected > 0.8
    assert found == pytest.approx(expected, abs=1e-9 if app in ("scikit-learn", "NumPy") else 0.02)


@pytest.mark.parametrize("app", ["NumPy", "state"])
def test_gossip_of_models_is_as_good_as_the_servers(app: str, python: Path, tmp_path: Path) -> None:
    """The mean of all models after as many updates of each client: within 3 points of 360 tests."""
    spec = {**SPEC, "algorithm": {**GOSSIP, "updates_per_node": 10}}
    found = summary_of(python, tmp_path, app, **spec)["metrics"]["mean_model_test_accuracy"]
    (tmp_path / "beside").mkdir()
    expected = summary_of(python, tmp_path / "beside", app, **SPEC)["metrics"]["mean_model_test_accuracy"]
    assert expected > 0.8
    assert found == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("name", ["fedavg", "fedbuff", "gossip"])
def test_a_private_run_has_a_guarantee_and_a_ledger(app: str, name: str, python: Path, tmp_path: Path) -> None:
    of = {"fedavg": SPEC["algorithm"], "fedbuff": BUFFERED, "gossip": {**GOSSIP, "updates_per_node": 4}}
    algorithm = of[name]
    found = summary_of(python, tmp_path, app, **{**SPEC, "algorithm": algorithm, **PRIVATE})
    guarantee = json.loads((tmp_path / "out" / "guarantee.json").read_text())
    assert "no example of it" in json.dumps(guarantee)
    assert 7.9 < max(node["epsilon"] for node in found["privacy"]["nodes"].values()) <= 8
    lines = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    most = 10 if name == "fedavg" else 4
    assert [(line["protects"], line["releases"]) for line in lines] == [("client", most)] * PARTITIONS


def test_clients_without_a_server_start_from_their_own_parameters(python: Path, tmp_path: Path) -> None:
    """A ``client_fn`` is enough."""
    text = (HERE / "numpy_digits.py").read_text()
    (tmp_path / "alone.py").write_text(text.partition("\n\ndef weighted_average")[0])
    (tmp_path / "spec.yaml").write_text(json.dumps({**SPEC, "algorithm": {"name": "fedavg", "nodes": 2, "rounds": 2}}))
    options = ["--spec", str(tmp_path / "spec.yaml"), "--python", str(python), "--out", str(tmp_path / "out")]
    assert main(["flower", f"{tmp_path / 'alone.py'}:client_fn", *options]) == 0
    metrics = json.loads((tmp_path / "out" / "summary.json").read_text())["metrics"]
    assert metrics["mean_model_test_accuracy"] > 0.5


def test_a_client_without_an_evaluate_has_no_scores(python: Path, tmp_path: Path) -> None:
    """Flower answers for it, with a loss of 0 on no examples."""
    before, _, after = (HERE / "numpy_digits.py").read_text().partition("    def evaluate")
    (tmp_path / "untested.py").write_text(f"{before}\n\ndef client_fn{after.partition('def client_fn')[2]}")
    (tmp_path / "spec.yaml").write_text(json.dumps({**SPEC, "algorithm": {"name": "fedavg", "nodes": 2, "rounds": 2}}))
    options = ["--spec", str(tmp_path / "spec.yaml"), "--python", str(python), "--out", str(tmp_path / "out")]
    assert main(["flower", f"{tmp_path / 'untested.py'}:app", *options]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["metrics"]["mean_model_test_loss"] is None
    assert "ended_worse" not in summary


def test_a_mod_guards_a_client_of_flowers_own_server(python: Path, tmp_path: Path) -> None:
    """Its update leaves 100 long in each number, but for the mod: 0.25 in all, and noise of 2, in 3 planned rounds.

    It finds this library where the tests do. Six deviations in 120 numbers are passed in 1 of 4 million runs.
    """
    if subprocess.check_output([python, "-c", "import sys; print(sys.version_info[:2])"], text=True).strip() != str(
        sys.version_info[:2]
    ):
        pytest.skip("the apps' environment has another Python than the tests, whose packages it cannot import")
    (tmp_path / "wards.csv").write_text("age,label\n" + "".join(f"{row},{row % 5}\n" for row in range(60)))
    (tmp_path / "policy.yaml").write_text("data: {wards: {epsilon: 10, delta: 1.0e-5, path: wards.csv}}\n")
    places = [str(ROOT / "src"), *(place for place in sys.path if "site-packages" in place)]
    done = subprocess.run(
        [python, HERE / "with_mod.py", tmp_path / "policy.yaml", tmp_path / "out", *places],
        env={**os.environ, "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    trained = [answer for answer in found["answers"] if answer["kind"] == "train"]
    assert [one["error"] is None for one in trained] == [True, True, True, False]
    assert "its plan has left 0 of 3" in trained[3]["error"]
    tested = [one["error"] for one in found["answers"] if one["kind"] == "evaluate"]
    assert tested == ["the ledger covers updates alone, and a server asked to evaluate; let it test by itself"] * 4
    assert [one["metrics"] for one in trained[:3]] == [{"num-examples": 1}] * 3
    before = np.zeros(40)
    for one in trained[:3]:  # the other client sends what it was sent
        moved = np.array(one["w"]) - before
        assert np.abs(moved).max() < 6 * 2.1
        assert moved.std() > 1
        before = (before + one["w"]) / 2
    assert found["releases"] == 3
    assert main(["verify", str(tmp_path / "out")]) == 0
