"""Runs over shards on Ray, an actor each: the bytes of one process, also where a shard's process is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossamer.cli import main
from gossamer.errors import RunWarning
from gossamer.experiment.preparation.secrets import KeptSecret, NoiseSecret
from gossamer.experiment.results.results_folder import CHECKPOINT
from gossamer.experiment.runs.checkpoints import read_checkpoint
from gossamer.experiment.runs.running import run
from gossamer.experiment.runs.trackers import RunProgress
from gossamer.runtimes import shards as crew_module
from gossamer.runtimes.ray_shards import RayCrew, RayShards

ROOT = Path(__file__).parents[2]
SECRET = NoiseSecret(bytes(range(16)))
DEMO: dict[str, Any] = yaml.safe_load((ROOT / "examples/digits-gossip.yaml").read_text())


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "timing.json"}


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 2, 4])
def test_the_demo_has_the_bytes_of_one_process(shards: int, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    run(DEMO, tmp_path / "plain", secret=SECRET)
    run(DEMO, tmp_path / "ray", secret=SECRET, engine=RayShards(shards))
    assert files(tmp_path / "ray") == files(tmp_path / "plain")


class Killer(RunProgress):
    """Kills the process of a shard in the middle of a run."""

    def __init__(self, crews: list[RayCrew]) -> None:
        self.crews, self.killed = crews, 0

    def updated(self, updates: int) -> None:
        if updates >= 100 * (self.killed + 1) and self.killed < 2:
            import ray

            actor = self.crews[0].actors[self.killed]
            os.kill(ray.get(actor.__ray_call__.remote(lambda shard: os.getpid())), signal.SIGKILL)
            self.killed += 1


@pytest.mark.slow
def test_a_shard_that_is_killed_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    crews: list[RayCrew] = []
    start = RayCrew.start
    monkeypatch.setattr(RayCrew, "start", lambda crew: (crews.append(crew), start(crew)))
    monkeypatch.setattr(crew_module, "EVERY", 0.2)
    monkeypatch.setattr(crew_module, "SHARE", 0.5)
    spec = DEMO | {"stop": {"virtual_seconds": 40}}
    run(spec, tmp_path / "plain", secret=SECRET)
    killer = Killer(crews)
    with pytest.warns(RunWarning, match="told again what it was told since its last snapshot") as warned:
        run(spec, tmp_path / "ray", secret=SECRET, engine=RayShards(2), progress=killer)
    assert killer.killed == crews[0].restarts == 2
    turns = [int(found[1]) for one in warned if (found := re.search(r"\((\d+) turns?\)", str(one.message)))]
    assert 0 < turns[1] < 400, "the second is told of more than 500 windows if there is no snapshot"
    assert files(tmp_path / "ray") == files(tmp_path / "plain")


OFTEN = "from gossamer.runtimes import shards; from gossamer.cli import main; shards.SHARE = 0.5; main({})"
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
    assert read_checkpoint(out).origin.shards == 2
    done = subprocess.run(
        [sys.executable, "-m", "gossamer", "run", "--resume", str(out)], capture_output=True, text=True, check=False
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
    assert main(["run", str(ROOT / "examples/digits-gossip.yaml"), "--shards", "2", "--out", "out"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "gossamer: error: RAY_ADDRESS=127.0.0.1:1: nothing answers there (Connection refused); give "
    )
    assert not (tmp_path / "out").exists()
