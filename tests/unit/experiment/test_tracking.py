"""Trackers: told of a run what they may be told, by names that their packages have, and never in its way."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gossamer as gs
from gossamer.cli import main
from gossamer.experiment.runs import trackers as tracking
from gossamer.experiment.runs.trackers import Tracking
from gossamer.extras import install_line

SPEC = {"algorithm": {"name": "gossip", "nodes": 3, "updates_per_node": 4}, "privacy": {"noise_multiplier": 2}}
SPEC_FILE = "algorithm: {name: gossip, nodes: 3, updates_per_node: 4}\nprivacy: {noise_multiplier: 2}\n"
KNOWN = {"updates", "virtual_seconds", "messages", "bytes", "most_releases", "epsilon_so_far"}


@dataclass
class Called:
    """Calls of a package, in order.

    Attributes
    ----------
    failing : str
        Name of a call that raises.
    calls : list of (str, dict)
        Names, and arguments by name.
    """

    failing: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def function(self, name: str, signature: str, result: Any = None) -> Callable[..., Any]:
        """A function that takes what the package's own takes, and prints as these do."""
        parameters = inspect.signature(eval(f"lambda {signature}: None"))

        def call(*args: Any, **more: Any) -> Any:
            print(f"* {name} says something")
            self.calls.append((name, dict(parameters.bind(*args, **more).arguments)))
            if name == self.failing:
                raise RuntimeError("no network\n")
            return result

        return call

    def of(self, name: str) -> list[dict[str, Any]]:
        return [given for called, given in self.calls if called == name]


class Run:
    """The run of wandb or trackio."""

    def __init__(self, called: Called, log: str, finish: str) -> None:
        self.log, self.finish = called.function("log", log), called.function("finish", finish)


# Parameters as in mlflow 3.17, wandb 0.31 and trackio 0.43.
MLFLOW = {
    "start_run": "run_id=None, experiment_id=None, run_name=None, nested=False, parent_run_id=None, tags=None, "
    "description=None, log_system_metrics=None",
    "log_params": "params, synchronous=None, run_id=None",
    "log_metrics": "metrics, step=None, synchronous=None, run_id=None, timestamp=None, model_id=None, dataset=None",
    "end_run": "status='FINISHED'",
}
WANDB_INIT = (
    "entity=None, project=None, dir=None, id=None, name=None, notes=None, tags=None, config=None, "
    "config_exclude_keys=None, config_include_keys=None, allow_val_change=None, group=None, job_type=None, mode=None, "
    "force=None, reinit=None, resume=None, resume_from=None, fork_from=None, save_code=None, tensorboard=None, "
    "sync_tensorboard=None, monitor_gym=None, settings=None"
)
WANDB_SETTINGS = (
    "*, console='auto', disable_code=False, disable_git=False, save_code=None, x_disable_meta=False, "
    "x_disable_stats=False, x_save_requirements=True"
)
TRACKIO_INIT = (
    "project, name=None, group=None, space_id=None, server_url=None, dataset_id=None, bucket_id=None, config=None, "
    "resume='never', settings=None, private=None, embed=True, auto_log_gpu=None, gpu_log_interval=10.0, "
    "auto_log_cpu=None, cpu_log_interval=10.0, webhook_url=None, webhook_min_level=None"
)


def package(name: str, called: Called) -> ModuleType:
    """Stand-in for a package."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    functions: dict[str, tuple[str, Any]] = {
        "mlflow": {key: (signature, None) for key, signature in MLFLOW.items()},
        "wandb": {
            "Settings": (WANDB_SETTINGS, None),
            "init": (WANDB_INIT, Run(called, "data, step=None, commit=None", "exit_code=None")),
        },
        "trackio": {"init": (TRACKIO_INIT, Run(called, "metrics, step=None", ""))},
    }[name]
    for key, (signature, result) in functions.items():
        setattr(module, key, called.function(key, signature, result))
    return module


LOGGED = {"mlflow": ("log_metrics", "metrics"), "wandb": ("log", "data"), "trackio": ("log", "metrics")}
BEGUN = {"mlflow": ("log_params", "params"), "wandb": ("init", "config"), "trackio": ("init", "config")}
ENDED = {
    "mlflow": ("end_run", {"status": "FINISHED"}, {"status": "KILLED"}),
    "wandb": ("finish", {"exit_code": 0}, {"exit_code": 1}),
    "trackio": ("finish", {}, {}),
}


@pytest.fixture(params=list(LOGGED))
def tracker(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def called(tracker: str, monkeypatch: pytest.MonkeyPatch) -> Called:
    found = Called()
    monkeypatch.setitem(sys.modules, tracker, package(tracker, found))
    return found


def told(tracker: str, called: Called) -> list[tuple[int, dict[str, float]]]:
    name, argument = LOGGED[tracker]
    return [(given["step"], given[argument]) for given in called.of(name)]


def test_by_default_a_tracker_is_told_what_may_be_known(tracker: str, called: Called, tmp_path: Path) -> None:
    result = gs.run(SPEC, tmp_path / "mine", track=tracker)
    assert told(tracker, called) == [
        (row["updates"], {name: row[name] for name in KNOWN if row[name] is not None}) for row in result.metrics
    ]
    name, argument = BEGUN[tracker]
    (facts,) = (given[argument] for given in called.of(name))
    assert facts["epsilon"] == result.guarantee.epsilon
    assert facts["noise_multiplier"] == 2
    assert set(facts) <= {"epsilon", "delta", "planned_updates", "mechanism", "clip", "noise_multiplier"}
    assert "digits" not in json.dumps([facts, *[given for _, given in called.calls]], default=str)
    name, whole, _ = ENDED[tracker]
    assert called.calls[-1] == (name, whole)


def test_all_figures_go_if_somebody_says_so(tracker: str, called: Called) -> None:
    result = gs.run(SPEC, track=[f"{tracker}:all"])
    assert told(tracker, called) == [
        (row["updates"], {name: value for name, value in row.items() if value is not None}) for row in result.metrics
    ]


def test_figures_on_public_examples_go_where_a_guarantee_covers_the_model(
    tracker: str, called: Called, tmp_path: Path
) -> None:
    table = "".join(f"{n % 7},{n % 3},{'yes' if n % 2 else 'no'}\n" for n in range(120))
    for name in ("own.csv", "public.csv"):
        (tmp_path / name).write_text(f"a,b,outcome\n{table}")
    spec = {
        **SPEC,
        "dataset": {"name": "own", "path": str(tmp_path / "own.csv"), "labels": ["no", "yes"], "divide_by": 7},
        "evaluation": {"public_path": str(tmp_path / "public.csv")},
    }
    gs.run(spec, track=tracker)
    public = {"public_accuracy", "public_loss"}
    assert {name for _, figures in told(tracker, called) for name in figures} == KNOWN | public
    called.calls.clear()
    gs.run({**spec, "privacy": "none"}, track=tracker)
    assert {name for _, figures in told(tracker, called) for name in figures} == KNOWN - {"epsilon_so_far"}


SECRET = {
    "algorithm": {"name": "fedavg", "nodes": 6, "rounds": 2, "clients_per_round": 3, "cohorts": "secret"}
    | {"noise_by": "server", "trusted": "server"},
    "privacy": {"noise_multiplier": 2},
}


def test_of_secret_cohorts_a_tracker_is_told_nothing_unless_somebody_says_so(
    tracker: str, called: Called, tmp_path: Path
) -> None:
    with pytest.raises(gs.CallerError, match=rf"^{tracker}: .*secret cohorts.*track with tensorboard.*{tracker}:all"):
        gs.run(SECRET, tmp_path / "mine", track=["tensorboard", tracker])
    assert called.calls == []
    assert list(tmp_path.iterdir()) == []
    gs.run(SECRET, tmp_path / "mine", track=f"{tracker}:all")
    assert told(tracker, called)


def test_what_wandb_sends_by_itself_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    called = Called()
    monkeypatch.setitem(sys.modules, "wandb", package("wandb", called))
    gs.run(SPEC, track="wandb")
    (settings,) = called.of("Settings")
    assert settings["console"] == "off"
    assert settings["disable_code"]
    assert settings["disable_git"]


def test_a_tracker_that_fails_ends_no_run(tracker: str, called: Called) -> None:
    called.failing = LOGGED[tracker][0]
    with pytest.warns(gs.RunWarning, match=f"{tracker} is told no more of this run.*no network") as warned:
        result = gs.run(SPEC, track=tracker)
    assert len(warned) == 1
    assert result.summary["status"] == "finished"
    assert len(called.of(called.failing)) == 1
    assert called.calls[-1] == (ENDED[tracker][0], ENDED[tracker][2])


def test_a_tracker_that_cannot_begin_is_refused_before_the_run(tracker: str, called: Called, tmp_path: Path) -> None:
    called.failing = {"mlflow": "start_run"}.get(tracker, "init")
    with pytest.raises(gs.CallerError, match=rf"^{tracker} cannot begin \(RuntimeError: no network\); put that right"):
        gs.run(SPEC, tmp_path / "mine", track=tracker)
    assert called.of(called.failing)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_does_not_end_says_so(tracker: str, called: Called) -> None:
    def interrupted(*_: Any) -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gs.run(SPEC, track=tracker, measure=interrupted)
    assert called.calls[-1] == (ENDED[tracker][0], ENDED[tracker][2])


def test_standard_output_is_for_results(
    tracker: str, called: Called, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC_FILE)
    assert main(["run", str(spec), "--out", str(tmp_path / "out"), "--track", tracker, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "finished"
    assert "says something" in err


def test_a_tracker_that_is_not_installed_names_its_extra(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC_FILE)
    assert main(["run", str(spec), "--out", str(tmp_path / "out"), "--track", tracker]) == 2
    assert capsys.readouterr().err == (
        f"gossamer: error: tracking with {tracker} needs its package, which is not installed: {install_line(tracker)}\n"
    )
    assert not (tmp_path / "out").exists()


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(gs.CallerError, match=r"track: expected one of tensorboard, .*, found 'tensorbord'; give one"):
        gs.run(SPEC, track="tensorbord")


# TensorBoard


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Figures in files of events, by TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    read = EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
    return {
        tag: [(event.step, float(make_ndarray(event.tensor_proto))) for event in read.Tensors(tag)]
        for tag in read.Tags()["tensors"]
    }


def test_tensorboard_has_what_the_results_folder_has(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    for seed in (0, 1):
        result = gs.run({**SPEC, "seed": seed}, tmp_path / "mine", track="tensorboard", overwrite=seed > 0)
        found = events(tmp_path / "mine" / "tensorboard")
        assert set(found) == {name for row in result.metrics for name, value in row.items() if value is not None}
        for name, points in found.items():
            expected = [(row["updates"], row[name]) for row in result.metrics if row[name] is not None]
            assert points == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected]
    assert (tmp_path / "mine" / "tensorboard").stat().st_mode & 0o077 == 0


def test_tensorboard_needs_a_folder() -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    with pytest.raises(gs.CallerError, match="tensorboard writes into the results folder, found no folder; give one"):
        gs.run(SPEC, track="tensorboard")


def test_trackers_are_not_told_what_is_infinite_or_not_a_number() -> None:
    told: list[dict[str, float]] = []
    run = tracking.Told(lambda figures, step: told.append(figures), lambda whole: None)
    row: Any = {"updates": 3, "test_loss": float("inf"), "epsilon_so_far": float("nan"), "bytes": 10, "loss": None}
    listeners = Tracking()
    listeners.add("one", run, None)
    listeners.looked(row)
    assert told == [{"updates": 3.0, "bytes": 10.0}]
