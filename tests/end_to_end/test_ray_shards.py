"""Runs over shards on Ray, an actor each: the bytes of one process, and after a kill the run goes on to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossamer.cli import main
from gossamer.errors import CallerError
from gossamer.experiment.preparation.secrets import KeptSecret, NoiseSecret
from gossamer.experiment.results.results_folder import CHECKPOINT
from gossamer.experiment.runs import checkpoints
from gossamer.experiment.runs.checkpoints import read_checkpoint
from gossamer.experiment.runs.repeats import resume_run
from gossamer.experiment.runs.running import run
from gossamer.experiment.runs.trackers import RunProgress
from gossamer.runtimes import ray_shards
from gossamer.runtimes.ray_shards import RayShards

ROOT = Path(__file__).parents[2]
SECRET = NoiseSecret(bytes(range(16)))
DEMO: dict[str, Any] = yaml.safe_load((ROOT / "examples/digits-gossip.yaml").read_text())


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "timing.json"}


NETWORKS = {
    "dataset": "digits",
    "objective": "mlp",
    "algorithm": {"name": "fedavg", "nodes": 4, "rounds": 2, "batch_size": 32},
    "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
}


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "shards"), [(DEMO, 1), (DEMO, 3), (NETWORKS, 2)])
def test_a_run_has_the_bytes_of_one_process(spec: dict[str, Any], shards: int, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    run(spec, tmp_path / "plain", secret=SECRET)
    run(spec, tmp_path / "ray", secret=SECRET, engine=RayShards(shards))
    assert files(tmp_path / "ray") == files(tmp_path / "plain")


class Killer(RunProgress):
    """Kills the process of a shard once there is a checkpoint."""

    def __init__(self, crew: RayShards, out: Path) -> None:
        super().__init__()
        self.crew, self.out, self.killed = crew, out, False

    def updated(self, updates: int) -> None:
        if not self.killed and (self.out / CHECKPOINT).exists() and read_checkpoint(self.out).begun:
            import ray

            self.killed = True
            actor = self.crew.actors[1]
            os.kill(ray.get(actor.__ray_call__.remote(lambda shard: os.getpid())), signal.SIGKILL)


@pytest.mark.slow
def test_a_shard_that_is_killed_ends_the_run_which_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.setattr(checkpoints, "SHARE", 0.5)
    spec, out = DEMO | {"stop": {"virtual_seconds": 40}}, tmp_path / "ray"
    run(spec, tmp_path / "plain", secret=SECRET)
    crew = RayShards(2)
    with pytest.raises(CallerError, match=r"a shard was lost.* gossamer run --resume goes on from") as caught:
        run(spec, out, secret=SECRET, engine=crew, progress=Killer(crew, out), checkpoint=0.1)
    assert "\n" not in str(caught.value)
    assert read_checkpoint(out).begun
    resume_run(out)
    assert files(out) == files(tmp_path / "plain")


OFTEN = """
from gossamer.cli import main
from gossamer.experiment.runs import checkpoints
checkpoints.SHARE = 0.5
main({})
"""
"""A command that makes checkpoints for half of its time."""


@pytest.mark.slow
def test_a_run_whose_coordinator_is_killed_is_resumed(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    spec, out = tmp_path / "spec.yaml", tmp_path / "out"
    spec.write_text(yaml.safe_dump(DEMO | {"stop": {"virtual_seconds": 40}}))
    call = ["run", str(spec), "--shards", "2", "--checkpoint", "0.1s", "--out", str(out)]
    process = subprocess.Popen([sys.executable, "-c", OFTEN.format(call)])
    while not ((out / CHECKPOINT).exists() and read_checkpoint(out).begun):
        assert process.poll() is None, "the run ended before there was a checkpoint"
        time.sleep(0.05)
    process.kill()
    process.wait()
    done = subprocess.run(
        [sys.executable, "-m", "gossamer", "run", "--resume", str(out), "--shards", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run(spec, tmp_path / "plain", secret=KeptSecret.read(out).secret)
    assert files(out) == files(tmp_path / "plain")


@pytest.mark.usefixtures("called_here")
def test_without_ray_its_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["run", str(ROOT / "examples/digits-gossip.yaml"), "--shards", "2", "--out", "out"]) == 2
    assert '-m pip install "ray>=' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shards", "9"], "expected from 1 to 8 shards for 8 nodes, found 9; correct --shards"),
        (["--shards", "0"], "--shards: expected a whole number, 1 or more"),
        (["--shards", "9", "--set", "links.latency=0"], "expected from 1 to 8 shards for 8 nodes, found 9"),
    ],
)
@pytest.mark.usefixtures("called_here", "quiet")
def test_a_mistake_has_one_line(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(ROOT / "examples/digits-gossip.yaml"), *options, "--out", "out"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("called_here", "quiet")
def test_shards_are_where_rays_own_variable_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setattr(ray_shards, "_ANSWER", 1.0)
    assert main(["run", str(ROOT / "examples/digits-gossip.yaml"), "--shards", "2", "--out", "out"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gossamer: error: RAY_ADDRESS=127.0.0.1:1: no Ray cluster answers there (")
    assert not (tmp_path / "out").exists()
