"""Sweeps: resumed ones are the same as whole ones, and what cannot be run is refused before anything is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sampling import examples

import gossamer as gs
from gossamer.cli.main import main
from gossamer.experiment.preparation.secrets import KeptSecret
from gossamer.experiment.results.results_folder import CHECKPOINT
from gossamer.experiment.runs import checkpoints
from gossamer.experiment.runs.checkpoints import Checkpoints
from gossamer.studies import runs as studied
from gossamer.studies.runs import workers_of
from gossamer.studies.sweep import Paper, plan_sweep, sweep

SPEC = """
algorithm: {name: gossip, nodes: 3, batch_size: 20, updates_per_node: 2}
privacy: {noise_secret: reproducible}
budget: {epsilon: 5, delta: 1.0e-4}
evaluation: "off"
"""
GRID = {"algorithm.batch_size": [10, 20]}
NAMES = [f"algorithm.batch_size={batch}-seed{seed}" for batch in (10, 20) for seed in (0, 1)]
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spec") / "tiny.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def whole(spec: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that nothing interrupted."""
    return sweep(spec, GRID, out=tmp_path_factory.mktemp("whole"), seeds=2).out


def files_of(folder: Path) -> Files:
    """All that a sweep wrote, but for times."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "timing.json"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def after(count: int) -> Callable[[str], None]:
    """Interrupt once so many runs are done."""
    left = [count]

    def tell(line: str) -> None:
        left[0] -= " of " in line
        if left[0] == 0:
            raise KeyboardInterrupt

    return tell


@settings(max_examples=examples(12))
@given(cut=st.integers(1, 3), killed=st.sampled_from([None, *range(4)]))
def test_a_resumed_sweep_is_the_same_as_a_whole_one(
    spec: Path, whole: Path, tmp_path_factory: pytest.TempPathFactory, cut: int, killed: int | None
) -> None:
    out = tmp_path_factory.mktemp("cut")
    with pytest.raises(KeyboardInterrupt):
        sweep(spec, GRID, out=out, seeds=2, tell=after(cut))
    if killed is not None and (summary := out / NAMES[killed] / "summary.json").exists():
        summary.write_text(summary.read_text().replace('"status": "finished"', '"status": "running"'))
    sweep(spec, GRID, out=out, seeds=2)
    assert files_of(out) == files_of(whole)


def test_what_is_finished_is_not_run_again(spec: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any, **more: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(studied, "run", never)
    told: list[str] = []
    sweep(spec, GRID, out=whole, seeds=2, tell=told.append)
    named = sweep(spec, GRID, out=whole, seeds=2, labels={"algorithm.batch_size": ["small", "large"]}, tell=told.append)
    assert told == ["finished before: 4 of 4 runs"] * 2  # other names are no reason to release anything again
    assert [one.labels["algorithm.batch_size"] for one in named.article.means] == ["small", "large"]
    sweep(spec, GRID, out=whole, seeds=2)


def test_a_run_that_failed_and_is_made_after_all_has_no_error(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any, **more: Any) -> None:
        raise gs.GossamerError("not this time")

    study = plan_sweep(spec, {}, tmp_path, 2, 1, [], Paper(), list[str]().append)
    with workers_of("processes", 1) as workers:
        with monkeypatch.context() as patch:
            patch.setattr(studied, "run", fails)
            study.make(workers)
        assert {*study.errors.values()} == {"not this time"}
        study.make(workers)
    assert not study.errors
    assert len(study.finished) == 2
    assert not any("error" in one for one in json.loads((tmp_path / "sweep.json").read_text())["runs"])


def test_a_run_that_is_begun_again_has_its_own_noise_and_is_no_second_release(spec: Path, tmp_path: Path) -> None:
    (first,) = sweep(spec, out=tmp_path, seeds=1, settings=["privacy.noise_secret=fresh"]).runs
    before, summary = files_of(first.folder), first.folder / "summary.json"
    summary.write_text(summary.read_text().replace('"status": "finished"', '"status": "interrupted"'))
    sweep(spec, out=tmp_path, seeds=1, settings=["privacy.noise_secret=fresh"])
    assert files_of(first.folder) == before
    assert "noise_secret.json" in before


def test_a_run_that_was_killed_goes_on_from_its_checkpoint(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where the checkpoint is of no use, the run is begun anew."""
    chosen = ["privacy.noise_secret=fresh"]
    (first,) = sweep(spec, out=tmp_path, seeds=1, settings=chosen).runs
    before, secret = files_of(first.folder), KeptSecret.read(first.folder).secret

    def killed(keeper: Checkpoints) -> None:
        keep(keeper)
        if keeper._parts["simulator"].counters.updates == 5:  # type: ignore[attr-defined]
            raise SystemExit

    keep = Checkpoints.keep
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "keep", killed)
        patch.setattr(checkpoints, "SHARE", math.inf)
        with pytest.raises(SystemExit):
            gs.run(gs.read_spec(first.folder / "spec.yaml"), first.folder, overwrite=True, secret=secret, checkpoint=0)
    checkpoint = (first.folder / CHECKPOINT).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(studied, "run", lambda *given, **more: pytest.fail("begun anew"))
        sweep(spec, out=tmp_path, seeds=1, settings=chosen)
    assert files_of(first.folder) == before
    (first.folder / CHECKPOINT).write_bytes(checkpoint[:-1])
    (first.folder / "summary.json").unlink()
    sweep(spec, out=tmp_path, seeds=1, settings=chosen)
    assert files_of(first.folder) == before


@pytest.mark.slow
def test_processes_make_the_same_runs(spec: Path, whole: Path, tmp_path: Path) -> None:
    sweep(spec, GRID, out=tmp_path, seeds=2, jobs=2)
    assert files_of(tmp_path) == files_of(whole)


def test_a_run_that_fails_stops_no_other(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaking(experiment: gs.Experiment, out: Path, **more: Any) -> Any:
        if experiment.seed == 1:
            raise ZeroDivisionError("a bug")
        return gs.run(experiment, out, **more)

    def missing(name: str, *more: str) -> Any:
        raise gs.DataError(f"the package {name} is missing")

    monkeypatch.setattr(studied, "run", breaking)
    monkeypatch.setattr("gossamer.report.drawing.needed", missing)
    command = ["sweep", str(spec), "--grid", "algorithm.batch_size=10,20", "--seeds", "3", "--out", str(tmp_path)]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert "algorithm.batch_size=10-seed1 failed: ZeroDivisionError: a bug" in error
    assert "Traceback" not in error
    assert f"No report: the package altair is missing; then gossamer report {tmp_path}/*-seed*" in error
    found = json.loads((tmp_path / "sweep.json").read_text())
    assert [one["accuracy"]["runs"] for one in found["settings"]] == [2, 2]
    assert found["best"] is None  # settings that lack a run are not compared
    assert [one["folder"] for one in found["runs"] if "error" in one] == [
        f"algorithm.batch_size={batch}-seed1" for batch in (10, 20)
    ]
    monkeypatch.setattr(studied, "run", gs.run)
    assert main(command) == 0
    assert json.loads((tmp_path / "sweep.json").read_text())["best"] is not None


def test_the_command_compares_and_warns(
    spec: Path, whole: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # wide enough that the table stands in one block, whoever runs this
    assert main(["sweep", str(spec), "--grid", "algorithm.batch_size=10,20", "--seeds", "2", "--out", str(whole)]) == 0
    printed = capsys.readouterr()
    best = json.loads((whole / "sweep.json").read_text())["best"]
    (marked,) = [line for line in printed.out.splitlines() if line.startswith("*  ")]
    assert f"algorithm.batch_size={marked.split()[1]}" == best
    assert "spends privacy that no epsilon counts" in printed.err
    assert (whole / "report.html").exists()
    (whole / "report.html").unlink()


def test_budgets_of_runs_on_the_same_data_add_up(spec: Path, tmp_path: Path) -> None:
    """Basic composition: three runs with budgets of 1 at 1e-4 are 3 at 3e-4 at most, and each spends at least 0.9."""
    changes = ["budget.epsilon=1", "privacy.noise_secret=fresh"]
    found = sweep(spec, out=tmp_path, seeds=3, settings=changes)
    spent = float(found.warning.split("to epsilon ")[1].split()[0])
    assert 2.7 < spent <= 3
    assert found.warning.endswith("at delta 0.0003.")
    assert [path.name for path in sorted(tmp_path.glob("*-seed*"))] == [f"tiny-seed{seed}" for seed in range(3)]


def test_a_folder_of_another_spec_is_refused_and_left_as_it_is(spec: Path, whole: Path) -> None:
    before = files_of(whole)
    with pytest.raises(gs.DataError, match=r"batch_size=10-seed0: made from another spec \(algorithm.nodes is 3 there"):
        sweep(spec, GRID, out=whole, seeds=2, settings=["algorithm.nodes=4"])
    assert files_of(whole) == before


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ("algorithm.batchsize=1", "unknown key algorithm.batchsize; did you mean"),
        ("algorithm.batch_size=10,x", "algorithm.batch_size: input should be a whole number"),
        ("algorithm.batch_size=10,100000", "algorithm.batch_size=100000: node-0 holds 481 examples, fewer"),
    ],
)
def test_every_combination_is_checked_before_anything_runs(
    grid: str, said: str, spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", str(spec), "--grid", grid, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_spec_in_python_is_swept_as_well(tmp_path: Path) -> None:
    experiment = gs.Experiment(
        algorithm=gs.Gossip(nodes=3, batch_size=20, updates_per_node=1), privacy="none", evaluation="off"
    )
    found = gs.sweep(experiment, {"algorithm.learning_rate": [0.1, 0.5]}, out=tmp_path, seeds=1)
    assert [one.name for one in found.settings] == ["algorithm.learning_rate=0.1", "algorithm.learning_rate=0.5"]
    assert found.warning.endswith("No run here has a guarantee.")
    head, *lines = repr(found).splitlines()
    assert head == f"Sweep in {tmp_path}, 2 of 2 runs finished"
    assert [line.split(":")[0] for line in lines] == [f"  learning rate {rate}" for rate in (0.1, 0.5)]
    again = gs.sweep(experiment, {"algorithm.learning_rate": [0.1, 0.5]}, out=tmp_path, seeds=1)
    assert again.as_dict() == found.as_dict()


def test_an_interrupt_leaves_what_is_done_and_says_how_to_go_on(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(experiment: gs.Experiment, out: Path, **more: Any) -> Any:
        if experiment.seed == 1:
            raise KeyboardInterrupt
        return gs.run(experiment, out, **more)

    monkeypatch.setattr(studied, "run", interrupted)
    assert main(["sweep", str(spec), "--seeds", "3", "--out", str(tmp_path)]) == 130
    error = capsys.readouterr().err
    assert f"1 of 3 runs are done, in {tmp_path}; the same command goes on from there" in error
    assert error.endswith("gossamer: interrupted\n")
    assert not (tmp_path / "sweep.json").exists()
