"""Sweeps on Ray: the same bytes as without it, whatever becomes of a worker, and one line where Ray cannot be had."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest

import gossamer as gs
from gossamer.cli.main import main
from gossamer.experiment.preparation.secrets import FILE, KeptSecret
from gossamer.experiment.results.results_folder import packed, unpack
from gossamer.extras import install_line
from gossamer.runtimes import ray_shards
from gossamer.studies.runs import MOST_TRIES, RayTasks, StudyRun, Workers, each_seed, made_there, workers_of
from gossamer.studies.sweep import Paper, plan_sweep

SPEC = """
algorithm: {name: gossip, nodes: 3, batch_size: 20, updates_per_node: 2}
budget: {epsilon: 5, delta: 1.0e-4}
evaluation: "off"
"""
LONG = ["algorithm.updates_per_node=2000", "stop.virtual_seconds=1e6", "budget=null", "privacy.noise_multiplier=5"]
Files = dict[str, bytes]


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(SPEC)
    return path


def files_of(folder: Path) -> Files:
    """All that runs wrote, but for times."""
    found = [path for path in sorted(folder.glob("*-seed*/*")) if path.name != "timing.json"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


# A run that another machine makes


def first_run(spec: Path, out: Path, *changes: str) -> StudyRun:
    from gossamer.studies.study import experiment_of

    return each_seed("tiny", experiment_of(spec, changes), 1, out, 0)[0]


def test_a_run_made_elsewhere_is_the_same_as_one_made_here(spec: Path, tmp_path: Path) -> None:
    one = first_run(spec, tmp_path / "there")
    secret = one.begin()
    assert secret is not None
    outcome, files = made_there(one, secret, gs.__version__)
    assert outcome.error == ""
    assert {path.name for path in one.folder.iterdir()} == {"spec.yaml", FILE}  # it made nothing here
    unpack(files, one.folder)
    gs.run(one.experiment, tmp_path / "here" / one.folder.name, secret=secret)
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
    assert one.finished
    assert {path.stat().st_mode & 0o777 for path in one.folder.iterdir()} == {0o600}


def test_a_run_that_was_begun_keeps_its_secret_until_it_is_finished(spec: Path, tmp_path: Path) -> None:
    one = first_run(spec, tmp_path)
    first = one.begin()
    one.check_folder()  # by the same command, as it goes on
    assert first is not None
    assert first == one.begin() == KeptSecret.read(one.folder).secret
    with pytest.raises(
        gs.DataError, match="expected the results folder of a run"
    ):  # it is no finished run, so nothing repeats it
        gs.repeat_run(one.folder, tmp_path / "again")
    other = first_run(spec, tmp_path, "algorithm.batch_size=10")
    with pytest.raises(gs.DataError, match="made from another spec"):
        other.check_folder()


def test_a_run_without_secrets_is_begun_with_none(spec: Path, tmp_path: Path) -> None:
    one = first_run(spec, tmp_path, "privacy.noise_secret=reproducible")
    assert one.begin() is None
    assert not one.folder.exists()


def test_what_fails_elsewhere_names_the_machine(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "box-7")
    one = first_run(spec, tmp_path, "privacy.noise_secret=reproducible")
    lost = one.experiment.dataset.model_copy(update={"name": "csv", "path": tmp_path / "gone.csv"})
    broken = replace(one, experiment=one.experiment.model_copy(update={"dataset": lost}))
    outcome, files = made_there(broken, None, gs.__version__)
    assert outcome.error.startswith("on box-7: ")
    assert "gone.csv" in outcome.error
    assert files == {}
    outcome, _ = made_there(one, None, "0.0.1")
    assert outcome.error.startswith(f"box-7 has gossamer {gs.__version__}, expected 0.0.1")


def test_results_that_are_too_large_to_send(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.experiment.results.results_folder.MOST_PACKED", 2**10)
    outcome, files = made_there(first_run(spec, tmp_path), None, gs.__version__)
    assert "expected results of at most 0 MiB to send" in outcome.error
    assert files == {}


def test_files_of_an_earlier_attempt_go(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("old")
    (tmp_path / "private.jsonl").write_text("old")
    (tmp_path / "notes.txt").write_text("a person's own")
    unpack({"spec.yaml": b"new", "summary.json": b"{}", "../elsewhere": b""}, tmp_path)
    assert packed(tmp_path) == {"spec.yaml": b"new", "summary.json": b"{}"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "spec.yaml", "summary.json"]


# Tasks, with a Ray that makes them one by one, in this process


class Lost(Exception):
    """Ray's own error of a worker that is gone, and of one that could not begin."""


class Refused(Lost):
    pass


class Ended(Lost):
    """Ray's own errors of a Ray that is gone."""


class FakeRay:
    """The few functions of Ray that are used; ``lost`` counts down how often each task loses its worker."""

    class exceptions:
        RayError = Lost
        RayTaskError = Refused
        LocalRayletDiedError = RaySystemError = Ended

    def __init__(self, lost: dict[str, int] | None = None, refused: str = "", ends_after: int | None = None) -> None:
        self.lost, self.refused, self.left = lost or {}, refused, ends_after
        self.asked: list[str] = []
        self.open = self.most_open = 0
        self.cancelled: list[Any] = []

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def remote(self, **limits: int) -> Callable[[Any], Any]:
        assert limits == {"num_cpus": 1, "max_retries": 0}  # retries are told of, and counted
        return lambda function: _Task(self, function)

    def wait(self, tasks: list[Any], **more: Any) -> tuple[list[Any], list[Any]]:
        return tasks[:1], tasks[1:]

    def get(self, task: tuple[str, Any, tuple[Any, ...]]) -> Any:
        name, function, given = task
        self.open -= 1
        if self.left is not None:
            if self.left == 0:
                raise Ended
            self.left -= 1
        if self.lost.get(name, 0):
            self.lost[name] -= 1
            raise Lost
        if self.refused:
            raise Refused(self.refused)
        return function(*given)

    def cancel(self, task: Any) -> None:
        self.cancelled.append(task)


class _Task:
    def __init__(self, ray: FakeRay, function: Any) -> None:
        self.ray, self.function, self.name = ray, function, ""

    def options(self, name: str, num_gpus: int) -> _Task:
        assert num_gpus == 0  # no spec here names one
        self.name = name
        return self

    def remote(self, *given: Any) -> tuple[str, Any, tuple[Any, ...]]:
        self.ray.asked.append(self.name)
        self.ray.open += 1
        self.ray.most_open = max(self.ray.most_open, self.ray.open)
        return self.name, self.function, given


def swept(spec: Path, out: Path, ray: Any, jobs: int | None = None, tell: Callable[[str], None] = print) -> gs.Sweep:
    found = plan_sweep(spec, {}, out, 5, jobs, [], Paper(), tell)
    found.make(RayTasks(ray, jobs), tell)
    return found


def test_a_run_whose_worker_was_lost_is_taken_up_again(spec: Path, tmp_path: Path) -> None:
    told: list[str] = []
    ray = FakeRay({"run tiny-seed1": MOST_TRIES - 1})
    found = swept(spec, tmp_path / "out", ray, tell=told.append)
    assert ray.asked.count("run tiny-seed1") == MOST_TRIES
    assert told.count("tiny, seed 1: its worker was lost, and it is taken up again") == MOST_TRIES - 1
    assert [len(found.finished), found.errors] == [5, {}]
    one = found.runs[1]
    gs.run(one.experiment, tmp_path / "here" / one.folder.name, secret=KeptSecret.read(one.folder).secret)
    assert files_of(tmp_path / "here").items() <= files_of(tmp_path / "out").items()


def test_a_run_that_loses_every_worker_fails_and_stops_no_other(spec: Path, tmp_path: Path) -> None:
    found = swept(spec, tmp_path, FakeRay({"run tiny-seed0": MOST_TRIES}))
    assert found.errors == {
        tmp_path / "tiny-seed0": "3 workers were lost with it, one after another, as happens where memory runs out"
    }
    assert len(found.finished) == 4


def test_where_ray_itself_ends_no_run_is_blamed(spec: Path, tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(
        gs.CallerError, match=r"^Ray itself has ended, or cannot be reached; .* goes on with what is left"
    ):
        swept(spec, tmp_path, FakeRay(ends_after=2), tell=told.append)
    assert not [line for line in told if "lost" in line or "failed" in line]
    assert len(swept(spec, tmp_path, FakeRay()).finished) == 5


def test_a_worker_that_cannot_begin_says_why(spec: Path, tmp_path: Path) -> None:
    found = swept(
        spec, tmp_path, FakeRay(refused="Traceback:\n  somewhere\nModuleNotFoundError: No module named 'x'\n")
    )
    assert {*found.errors.values()} == {
        "a worker could not begin it: ModuleNotFoundError: No module named 'x'; install gossamer and the spec's own "
        "packages on every machine"
    }


@pytest.mark.parametrize(("jobs", "most"), [(None, 4), (1, 1), (3, 3)])
def test_no_more_runs_are_asked_for_than_there_is_work_for(
    spec: Path, tmp_path: Path, jobs: int | None, most: int
) -> None:
    """Twice as many as there are processors, or as many as ``--jobs`` allows."""
    ray = FakeRay()
    swept(spec, tmp_path, ray, jobs)
    assert ray.most_open == most
    assert RayTasks(ray, jobs).at_once == (jobs or 2)


def test_an_interrupted_sweep_leaves_no_task_and_goes_on_with_the_same_secrets(spec: Path, tmp_path: Path) -> None:
    def interrupted(line: str) -> None:
        raise KeyboardInterrupt

    ray = FakeRay()
    with pytest.raises(KeyboardInterrupt):
        swept(spec, tmp_path, ray, tell=interrupted)
    assert len(ray.cancelled) == 3
    begun = {path.parent.name: KeptSecret.read(path.parent).secret for path in tmp_path.glob(f"*/{FILE}")}
    assert len(begun) == 4  # one is done, three were under way
    found = swept(spec, tmp_path, FakeRay())
    assert len(found.finished) == 5
    secrets = {one.folder.name: KeptSecret.read(one.folder).secret for one in found.runs}
    assert begun.items() <= secrets.items()
    assert len({*secrets.values()}) == 5


# Ray itself


with_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """Two workers on this machine, started once."""
    with workers_of("ray", jobs=2) as found:
        yield found


def below(process: int) -> Iterator[int]:
    """A process and all that it started, and they."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents.setdefault(int(entry.read_text().rpartition(")")[2].split()[1]), []).append(int(entry.parent.name))
    left = [process]
    while left:
        left += parents.get(one := left.pop(), [])
        yield one


def at_work() -> list[int]:
    """Workers of this process's own Ray that are making a run, which Ray names them by."""
    found = []
    for process in below(os.getpid()):
        with suppress(OSError):
            if Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::run "):
                found.append(process)
    return found


def kill_one_in_the_middle(killed: list[int]) -> None:
    """Kill a worker at work once a run has begun to release: its secret is in the folder that it is made in."""

    def begun() -> set[Path]:
        return {*Path(gettempdir()).glob(f"gossamer-*/run/{FILE}")}

    before = begun()
    while not killed:
        time.sleep(0.02)
        if begun() - before and (found := at_work()):
            os.kill(found[0], signal.SIGKILL)
            killed.append(found[0])


@with_ray
@pytest.mark.slow
def test_ray_makes_the_same_runs_as_processes_do(spec: Path, tmp_path: Path, workers: Workers) -> None:
    more: dict[str, Any] = {"seeds": 2, "settings": ["privacy.noise_secret=reproducible"]}
    grid = {"algorithm.batch_size": [10, 20]}
    here = gs.sweep(spec, grid, out=tmp_path / "here", **more)
    there = gs.sweep(spec, grid, out=tmp_path / "there", engine="ray", **more)
    assert files_of(tmp_path / "here") == files_of(tmp_path / "there")
    assert here.as_dict() == there.as_dict()


@with_ray
@pytest.mark.slow
def test_a_run_whose_worker_is_killed_is_made_again_with_the_same_bytes(
    spec: Path, tmp_path: Path, workers: Workers, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two long runs, one of which loses its worker; what comes of both is what their secrets give here."""
    killed: list[int] = []
    told: list[str] = []
    killer = threading.Thread(target=kill_one_in_the_middle, args=(killed,), daemon=True)
    killer.start()
    found = gs.sweep(spec, out=tmp_path / "out", seeds=2, settings=LONG, engine="ray", tell=told.append)
    killer.join(timeout=60)
    assert len(killed) == 1
    assert capsys.readouterr().out == ""  # where Ray would tell of it
    assert [line.partition(": ")[2] for line in told if "lost" in line] == [
        "its worker was lost, and it is taken up again"
    ]
    assert len(found.finished) == 2
    for one in found.runs:
        secret = KeptSecret.read(one.folder).secret
        gs.run(one.experiment, tmp_path / "here" / one.folder.name, secret=secret)
    assert files_of(tmp_path / "here") == files_of(tmp_path / "out")


@with_ray
@pytest.mark.slow
def test_what_is_started_here_listens_here_alone(workers: Workers) -> None:
    """No process of it has a socket that listens at another address than 127.0.0.1."""
    own = {*below(os.getpid())}
    sockets = {os.readlink(file) for one in own for file in Path(f"/proc/{one}/fd").glob("*") if file.is_symlink()}
    listening = [
        line.split()
        for kind in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    ]
    here = [row[1].partition(":")[0] for row in listening if f"socket:[{row[9]}]" in sockets]
    assert len(here) > 5
    assert {place[-8:] for place in here} == {"0100007F"}


@with_ray
@pytest.mark.slow
def test_the_command_says_what_ray_does_not_guard(
    spec: Path, tmp_path: Path, workers: Workers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", str(spec), "--seeds", "2", "--engine", "ray", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().err
    assert "warning: Ray has no access control of its own" in said
    assert "2 of 2: tiny, seed " in said


@with_ray
@pytest.mark.slow
def test_an_address_is_that_of_a_cluster_on_this_machine(spec: Path, tmp_path: Path) -> None:
    """A head that `ray start` makes, which listens here alone, and the command in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "t" * 40}
    around = {**os.environ, **variables, "HOME": str(tmp_path)}
    ray, head = [sys.executable, "-m", "ray.scripts.scripts"], f"127.0.0.1:{port}"
    start = ["start", "--head", "--block", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
    begun = subprocess.Popen([*ray, *start], env=around, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(60):
            if subprocess.run([*ray, "status", "--address", head], env=around, capture_output=True).returncode == 0:
                break
            time.sleep(1)
        command = [sys.executable, "-m", "gossamer", "sweep", str(spec), "--seeds", "2", "--engine", "ray"]
        around |= {"RAY_ADDRESS": head}
        made = subprocess.run(command, env=around, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        assert "2 of 2: tiny, seed " in made.stderr
        other = {**around, "RAY_AUTH_TOKEN": "u" * 40}
        made = subprocess.run(command, env=other, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert made.returncode == 2
        assert f"RAY_ADDRESS={head}: no Ray cluster answers there (" in made.stderr
        assert "token" in made.stderr
    finally:
        begun.terminate()
        begun.wait()


# What cannot be


def refused(spec: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The line of a sweep on Ray that is refused, with which it begins no run."""
    out = spec.parent / "refused"
    assert main(["sweep", str(spec), "--seeds", "1", "--out", str(out), "--engine", "ray"]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert not out.exists()
    return line


def test_without_ray_the_extra_is_named(
    spec: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    words = f"work on Ray needs the optional package ray, which is not installed: {install_line('ray')}"
    assert refused(spec, capsys) == f"gossamer: error: {words}"


@with_ray
def test_an_address_where_something_else_answers(
    spec: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_shards, "_ANSWER", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        line = refused(spec, capsys)
    assert f"RAY_ADDRESS={address}: no Ray cluster answers there (" in line
    assert "); give HOST:PORT of the cluster's head" in line


@with_ray
@pytest.mark.parametrize("address", ["somewhere", "ray://127.0.0.1:10001", "127.0.0.1:x", ":6379", "127.0.0.1:0"])
def test_what_is_no_address(
    spec: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(ray_shards, "_ANSWER", 5.0)
    assert f"RAY_ADDRESS={address}: no Ray cluster answers there (" in refused(spec, capsys)


def test_an_engine_that_is_none(spec: Path, tmp_path: Path) -> None:
    with pytest.raises(gs.CallerError, match="expected the engine processes or ray, found 'dask'"):
        gs.sweep(spec, out=tmp_path, engine="dask")
