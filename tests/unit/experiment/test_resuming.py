"""Runs that are killed between two events and resumed: their folders are those of runs that were not."""

from __future__ import annotations

import json
import math
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracle.specs import SPECS
from tests.reference.local_crew import Inline

import gossamer as gs
from gossamer.cli.commands import KINDS
from gossamer.cli.main import main
from gossamer.errors import DataError, RunWarning, SpecError
from gossamer.experiment.preparation import engines
from gossamer.experiment.preparation.secrets import KeptSecret
from gossamer.experiment.results.results_folder import CHECKPOINT, ResultsFolder
from gossamer.experiment.runs import checkpoints, running
from gossamer.experiment.runs.checkpoints import Checkpoints
from gossamer.experiment.runs.trackers import RunProgress
from gossamer.protocol.snapshots import Reference

SECRET = gs.NoiseSecret(bytes(range(16)))


class Killed(BaseException):
    """The process is gone."""


class Killing:
    """Has a run kept at some events, and killed some events later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kept, self.killed = math.inf, math.inf
        self.events, keep = 0, Checkpoints.keep

        def count(keeper: Checkpoints) -> None:
            if self.events == self.kept:
                keep(keeper)
            if self.events == self.killed:
                raise Killed
            self.events += 1
            keeper.due = 0.0

        monkeypatch.setattr(Checkpoints, "keep", count)

    def at(self, kept: float, killed: float) -> None:
        """Keep after so many events of the next process, and kill it after so many."""
        self.events, self.kept, self.killed = 0, kept, killed


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Killing:
    return Killing(monkeypatch)


def run(spec: Any, out: Path, **more: Any) -> gs.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        secret = SECRET if gs.parse_spec(spec).secretive else None
        return gs.run(spec, out, secret=secret, checkpoint=0, **more)


def resume(out: Path, **more: Any) -> gs.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        return gs.resume_run(out, checkpoint=0, **more)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "timing.json"}


RUNS: dict[str, Any] = {
    name: {"dataset": "digits", "seed": 7, **SPECS[name]}
    for name in (
        *("gossip-quantile", "gossip-lossy", "allreduce", "mapa-estimated", "increasing-aggregators"),
        *("graph-secure-agent-noise", "graph-walk"),
    )
}
RUNS["audp-wait"] = {
    **{"dataset": "digits", "seed": 7, "speeds": {"name": "lognormal"}, "stop": {"updates": 12}},
    "algorithm": {**SPECS["audp"]["algorithm"], "staleness": {"bound": 1, "on_stale": "wait"}},
    "budget": SPECS["audp"]["budget"],
}
RUNS["none"] = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 3, "updates_per_node": 6},
    "privacy": "none",
}


@pytest.mark.some(2)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_killed_three_times_ends_with_the_same_bytes(
    name: str, killing: Killing, tmp_path: Path
) -> None:
    spec = RUNS[name]
    whole = run(spec, tmp_path / "whole", trace=tmp_path / "whole.trace")
    places = np.random.default_rng(5).integers(0, killing.events // 5, 5)

    out, trace = tmp_path / "out", tmp_path / "out.trace"
    killing.at(math.inf, places[0])  # before the first checkpoint of an event
    with pytest.raises(Killed):
        run(spec, out, trace=trace)
    for kept, more in (places[1:3], places[3:5]):
        killing.at(kept, kept + more)
        with pytest.raises(Killed):
            resume(out, trace=trace)
        assert (out / CHECKPOINT).exists()
    killing.at(math.inf, math.inf)
    found = resume(out, trace=trace)
    assert files(out) == files(tmp_path / "whole")
    assert trace.read_bytes() == (tmp_path / "whole.trace").read_bytes()
    assert found.summary == whole.summary
    assert found.metrics == whole.metrics
    assert found.secret == whole.secret


@pytest.mark.some(2)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_shards_that_was_killed_goes_on_with_any_number_of_them_to_the_bytes_of_one_process(
    name: str, killing: Killing, tmp_path: Path
) -> None:
    spec, out = RUNS[name], tmp_path / "out"
    whole = run(spec, tmp_path / "whole")
    places = np.random.default_rng(5).integers(1, killing.events // 4, 4)
    killing.at(places[0], places[0] + places[1])
    with pytest.raises(Killed):
        run(spec, out, engine=Inline(3))
    killing.at(places[2], places[2] + places[3])
    with pytest.raises(Killed):
        resume(out, engine=Inline(2))
    killing.at(math.inf, math.inf)
    found = resume(out)
    assert files(out) == files(tmp_path / "whole")
    assert found.summary == whole.summary
    assert found.metrics == whole.metrics


@pytest.mark.parametrize("shards", [None, 3])
def test_what_began_a_population_goes_on_with_it(
    shards: int | None, killing: Killing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled loop makes it without shards, and the simulator with them: neither has the other's state."""
    monkeypatch.setattr(engines, "LEAST", 3)
    spec = RUNS["none"] | {"privacy": {"clip": 1.0, "noise_multiplier": 1.0}}
    crew = None if shards is None else Inline(shards)
    run(spec, tmp_path / "whole", engine=crew)
    killing.at(2, 3)
    with pytest.raises(Killed):
        run(spec, tmp_path / "out", engine=crew)
    killing.at(math.inf, math.inf)
    if shards is None:
        with pytest.warns(RunWarning, match="this run is made in one process: the compiled loop began it"):
            gs.resume_run(tmp_path / "out", engine=Inline(3))
    else:
        resume(tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_a_run_that_is_killed_at_its_end_ends_once_more(
    killing: Killing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its last evaluation, whose row is cut off, and before the last files are written."""

    def kill(*given: Any) -> None:
        raise Killed

    run(RUNS["audp-wait"], tmp_path / "whole")
    killing.at(30, math.inf)
    with monkeypatch.context() as patch:
        patch.setattr(running, "divergence", kill)
        with pytest.raises(Killed):
            run(RUNS["audp-wait"], tmp_path / "out")
    rows = (tmp_path / "out" / "metrics.jsonl").read_bytes()
    assert rows == (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    killing.at(math.inf, math.inf)
    resume(tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_a_run_that_scales_privately_releases_the_scale_once(
    killing: Killing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{place % 7},{100 + place},{'ny'[place % 2]}" for place in range(90)]
    (tmp_path / "t.csv").write_text("\n".join(["steps,pressure,ill", *rows]) + "\n")
    dataset = {
        **{"name": "visits", "path": str(tmp_path / "t.csv"), "target": "ill", "labels": ["n", "y"]},
        "columns": {"steps": "number", "pressure": [80, 200]},
        "scale": {"name": "private", "noise_multiplier": 2.0},
    }
    algorithm = {"name": "gossip", "nodes": 3, "batch_size": 10, "updates_per_node": 5}
    spec = {
        **{"dataset": dataset, "objective": "logistic", "algorithm": algorithm},
        "privacy": {"clip": 1.0, "noise_multiplier": 4.0},
    }
    run(spec, tmp_path / "whole")
    killing.at(9, 12)
    with pytest.raises(Killed):
        run(spec, tmp_path / "out")
    monkeypatch.setattr(running, "scaled", lambda *given: pytest.fail("drawn again"))
    killing.at(math.inf, math.inf)
    resume(tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_figures_of_the_caller_go_on(killing: Killing, tmp_path: Path) -> None:
    def measure(prepared: Any, model: Any) -> dict[str, float]:
        return {"length": float(np.linalg.norm(model))}

    spec = RUNS["none"]
    run(spec, tmp_path / "whole", measure=measure)
    killing.at(3, 5)
    with pytest.raises(Killed):
        run(spec, tmp_path / "out", measure=measure)
    killing.at(math.inf, math.inf)
    with pytest.raises(SpecError, match="out: the run was given a measure, found none to go on with"):
        resume(tmp_path / "out")
    (tmp_path / "trace").touch()
    with pytest.raises(SpecError, match="out: the run was given no trace, found one to go on with; leave it out"):
        resume(tmp_path / "out", measure=measure, trace=tmp_path / "trace")
    resume(tmp_path / "out", measure=measure)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


@pytest.fixture
def out(killing: Killing, tmp_path: Path) -> Path:
    """The folder of a private run that was killed."""
    folder = tmp_path / "out"
    killing.at(9, 14)
    with pytest.raises(Killed):
        run(RUNS["audp-wait"], folder)
    killing.at(math.inf, math.inf)
    return folder


def _changed(folder: Path, name: str, change: Any, *, signed: bool = True) -> None:
    """A header of a checkpoint in which something is another thing; ``signed`` with a digest that fits it."""
    first, digest, header, body = (folder / CHECKPOINT).read_bytes().split(b"\n", 3)
    found = json.loads(header)
    found[name] = change(found[name])
    rest = json.dumps(found).encode() + b"\n" + body
    digest = checkpoints._digest((rest,), checkpoints._key(folder)).strip() if signed else digest
    (folder / CHECKPOINT).write_bytes(b"\n".join([first, digest, rest]))


@pytest.mark.parametrize(
    ("name", "value"), [("ranges", None), ("ranges", {"x": 1.0}), ("measured", True), ("spec", "0" * 64)]
)
def test_a_checkpoint_whose_header_was_changed_is_refused(out: Path, name: str, value: Any) -> None:
    before = files(out)
    _changed(out, name, lambda _: value, signed=False)
    with pytest.raises(
        DataError, match=r"checkpoint\.bin: expected a checkpoint as a run wrote it, but it was cut off"
    ):
        resume(out)
    (out / CHECKPOINT).write_bytes(before[CHECKPOINT])
    assert files(out) == before


def test_a_checkpoint_is_that_of_the_moment_at_which_it_was_read(out: Path) -> None:
    """Another one in its place, between the reading of its header and that of its state, is not mixed with it."""
    state = checkpoints.read_checkpoint(out).state()
    found = checkpoints.read_checkpoint(out)
    checkpoints.write_checkpoint(out, found.origin, {**state, "nodes": {}})
    assert found.state()["nodes"] == state["nodes"] != {}


def test_a_run_of_another_spec_version_or_data_is_not_resumed(out: Path) -> None:
    before = (out / CHECKPOINT).read_bytes()

    def refused(match: str) -> None:
        with pytest.raises(DataError, match=match) as caught:
            resume(out)
        assert "\n" not in str(caught.value)
        (out / CHECKPOINT).write_bytes(before)

    _changed(out, "gossamer", lambda version: "0.0.1")
    refused("made by gossamer 0.0.1, and this is")
    _changed(out, "run", lambda mark: "0" * 32)
    refused("the spec, its data, or the files or the code that it names are not what they were")
    spec = (out / "spec.yaml").read_text()
    (out / "spec.yaml").write_text(spec.replace("seed: 7", "seed: 8"))
    refused("of another spec than .*spec.yaml, found beside it")
    (out / "spec.yaml").write_text(spec)
    secret = (out / "noise_secret.json").read_bytes()
    (out / "noise_secret.json").unlink()
    refused("expected the run's noise secret, noise_secret.json, found none")
    KeptSecret.of(gs.NoiseSecret(b"x" * 16), "0" * 32, "run").write(out)
    refused("it was cut off, or changed")
    (out / "noise_secret.json").write_bytes(secret)
    resume(out)
    assert gs.repeat_run(out).secret == SECRET


def test_damaged_checkpoints_are_refused_in_a_line(out: Path) -> None:
    """Whatever byte is missing or another one, nothing but a `DataError` comes of it."""
    before = (out / CHECKPOINT).read_bytes()
    damaged = [
        b"",
        b"gossamer checkpoint 5\n",
        before[:-1],
        before + b"x",
        before[:100],
        before.split(b"\n")[0] + b"\n",
    ]
    generator = np.random.default_rng(3)
    for place in generator.integers(0, len(before), 40):
        damaged.append(before[:place] + bytes([before[place] ^ 1]) + before[place + 1 :])
    for content in damaged:
        (out / CHECKPOINT).write_bytes(content)
        with pytest.raises(DataError) as caught:
            resume(out)
        assert "\n" not in str(caught.value)


def test_a_state_that_does_not_fit_is_refused_in_a_line(out: Path) -> None:
    found = checkpoints.read_checkpoint(out)
    state = found.state()
    for name in state:
        for other in (7, "x", [], {"now": 1.0}):
            checkpoints.write_checkpoint(out, found.origin, {**state, name: other})
            with pytest.raises(DataError, match="does not fit this run") as caught:
                resume(out)
            assert "\n" not in str(caught.value)
    checkpoints.write_checkpoint(out, found.origin, state)


def test_what_is_to_happen_is_events_or_is_refused_in_a_line(out: Path) -> None:
    found = checkpoints.read_checkpoint(out)
    state = found.state()
    heap = state["simulator"]["_heap"]
    acts = [[(*entry[:2], act, *entry[3:]) for entry in heap] for act in (7, None, "_arrive", Reference(0))]
    for wrong in (7, None, {}, tuple(heap), [entry[:3] for entry in heap], [1.0], *acts):
        simulator = state["simulator"] | {"_heap": wrong}
        checkpoints.write_checkpoint(out, found.origin, {**state, "simulator": simulator})
        with pytest.raises(DataError, match="does not fit this run") as caught:
            resume(out)
        assert "\n" not in str(caught.value)


def test_where_there_is_nothing_to_resume_it_says_so(out: Path, tmp_path: Path) -> None:
    for nowhere in (tmp_path / "nowhere", ""):
        with pytest.raises(DataError, match=f"found no folder '{nowhere}'; give another"):
            gs.resume_run(nowhere)
    resume(out)
    assert not (out / CHECKPOINT).exists()
    with pytest.raises(SpecError, match="this run has ended, so there is nothing to resume; gossamer report"):
        resume(out)
    (out / "summary.json").unlink()
    with pytest.raises(DataError, match=r"expected a checkpoint, checkpoint\.bin, found none"):
        resume(out)


def test_a_folder_that_may_not_be_written_to_is_named(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that is mounted for reading alone, also for the superuser."""
    before = files(out)
    monkeypatch.setattr("gossamer.experiment.results.results_folder.os.access", lambda path, mode: path != out)
    with pytest.raises(SpecError, match=r"out: this folder may not be written to; make it writable, or give another$"):
        resume(out)
    with pytest.raises(SpecError, match="out: this folder may not be written to"):
        run(RUNS["none"], out, overwrite=True)
    assert files(out) == before


def test_files_that_have_less_than_they_had_are_refused(killing: Killing, tmp_path: Path) -> None:
    out, trace = tmp_path / "out", tmp_path / "trace"
    killing.at(9, 14)
    with pytest.raises(Killed):
        run(RUNS["audp-wait"], out, trace=trace)
    killing.at(math.inf, math.inf)
    whole = trace.read_bytes()
    trace.write_bytes(whole[:100])
    with pytest.raises(DataError, match="bytes that the checkpoint goes on from, found 100; give the trace"):
        resume(out, trace=trace)
    assert trace.read_bytes() == whole[:100]
    folder = ResultsFolder(out, overwrite=True)
    (out / "private.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"private.jsonl: expected the 5 bytes .* found 3"):
        folder.cut("private.jsonl", 5)
    (out / "private.jsonl").unlink()
    (out / "private.jsonl").symlink_to(trace)
    with pytest.raises(DataError, match="found a link"):
        folder.cut("private.jsonl", 5)


def test_a_checkpoint_that_is_being_written_takes_the_place_of_none(
    killing: Killing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed with half of it on the disk: the one before it stands."""
    out = tmp_path / "out"
    spec = RUNS["none"]
    run(spec, tmp_path / "whole")
    killing.at(5, 9)
    with pytest.raises(Killed):
        run(spec, out)

    def replace(*names: Any) -> None:
        raise Killed

    before = (out / CHECKPOINT).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("gossamer.files.os.replace", replace)
        with pytest.raises(Killed):
            checkpoints.write_checkpoint(out, checkpoints.read_checkpoint(out).origin, {})
    (out / ".checkpoint.bin.new").write_bytes(before[:50])
    assert (out / CHECKPOINT).read_bytes() == before
    killing.at(math.inf, math.inf)
    resume(out)
    assert files(out) == files(tmp_path / "whole")


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, "60"])
def test_intervals_that_are_none_are_refused(seconds: Any) -> None:
    with pytest.raises(SpecError, match="checkpoint: expected a finite number of seconds, 0 or more, or None"):
        gs.run(RUNS["none"], checkpoint=seconds)


def test_what_cannot_be_kept_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    run(RUNS["none"], tmp_path / "whole")
    monkeypatch.setattr(checkpoints, "write_checkpoint", full)
    with pytest.warns(
        RunWarning, match=r"out: no checkpoint from here on \(No space left on device\); the run goes on"
    ):
        gs.run(RUNS["none"], tmp_path / "out", checkpoint=0)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Interrupts are heard, also where the tests were started in the background of a shell, which ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_the_first_interrupt_waits_for_the_checkpoint_and_the_second_for_nothing(tmp_path: Path) -> None:
    """The first comes in an event, which is then completed: the checkpoint is of the moment right after it."""
    spec, interrupted = RUNS["none"], []

    class Interrupting(RunProgress):
        def updated(self, updates: int) -> None:
            if updates == 7 and not interrupted:
                interrupted.append(updates)
                signal.raise_signal(signal.SIGINT)

    run(spec, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        gs.run(spec, tmp_path / "out", progress=Interrupting())
    state = checkpoints.read_checkpoint(tmp_path / "out").state()
    assert state["simulator"]["_computations"]["_counters"]["updates"] == 7
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["status"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resume(tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "whole")

    class Twice(RunProgress):
        def updated(self, updates: int) -> None:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        gs.run(spec, tmp_path / "twice", progress=Twice())
    assert not checkpoints.read_checkpoint(tmp_path / "twice").begun


def test_the_command_resumes(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(RUNS["audp-wait"], tmp_path / "whole")
    assert main(["run", "--resume", str(out), "--checkpoint", "off"]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"Results: {out}\nNext: gossamer report {out}")
    assert files(out) == files(tmp_path / "whole")
    assert main(["run", "--resume", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"this run has ended, so there is nothing to resume; gossamer report {out} shows it")


@pytest.mark.parametrize(("text", "every"), [("90", 90), ("90s", 90), ("5m", 300), ("1.5h", 5400), ("off", math.inf)])
def test_times_between_checkpoints_have_units(text: str, every: float) -> None:
    assert KINDS["interval"](text) == every
