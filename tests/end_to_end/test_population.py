"""Runs by the compiled loop: who takes it, what it says, and that their results are those of any run."""

from __future__ import annotations

import json
import signal
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gossamer as gs
from gossamer.cli import main
from gossamer.errors import DataError, RunWarning
from gossamer.experiment.preparation import engines
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import FromMemory, prepare
from gossamer.experiment.results import records, summary
from gossamer.experiment.runs.running import sources_of
from gossamer.experiment.runs.trackers import RunProgress
from gossamer.experiment.specs.spec_file import spec_of
from gossamer.report.records import read_record
from gossamer.runtimes import population as population_runtime
from gossamer.runtimes import population_loop
from gossamer.runtimes.population import Population
from gossamer.sides import pool
from gossamer.topology.graphs import DroppedEdges
from gossamer.verify.gossamer_verify import verify

SECRET = gs.NoiseSecret(b"population tests")
SPEC: dict[str, Any] = {
    "objective": "logistic",
    "algorithm": {"name": "gossip", "nodes": 8, "batch_size": 2, "updates_per_node": 6},
    "privacy": {"noise_multiplier": 1.0},
    "speeds": "lognormal",
    "evaluation": {"every_updates": 7},
}
X = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
DATA = gs.Data(X, np.arange(120) % 2, labels=[0, 1])


class Lines(RunProgress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def remarked(self, line: str) -> None:
        self.said.append(line)


def run(
    out: Path | None = None,
    progress: RunProgress | None = None,
    checkpoint: float | None = 0,
    trace: Path | None = None,
    **changes: Any,
) -> gs.Result:
    more: Any = {"data": DATA, "secret": SECRET, "progress": progress or Lines(), "checkpoint": checkpoint}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        return gs.run(SPEC | changes, out, trace=trace, **more)


def numbers(found: Any) -> Iterator[Any]:
    """All numbers that a nested mapping holds, in order."""
    if isinstance(found, int | float):
        yield found
    if not isinstance(found, Mapping | list):
        return
    for each in found.values() if isinstance(found, Mapping) else found:
        yield from numbers(each)


def test_results_are_those_of_the_simulator_and_receipts_follow(tmp_path: Path) -> None:
    found = {name: run(tmp_path / name, compute={"engine": name}) for name in ("simulator", "compiled")}
    simulated, compiled = (found[name].summary for name in ("simulator", "compiled"))
    assert [compiled.pop("engine"), simulated.pop("engine")] == ["compiled", "simulator"]
    for key in simulated.keys() - {"metrics", "gossip", "scores"}:
        assert compiled[key] == simulated[key]
    assert compiled["gossip"] == pytest.approx(simulated["gossip"])
    said, right = list(numbers(compiled["scores"])), list(numbers(simulated["scores"]))
    assert said == pytest.approx(right, rel=1e-5)
    for one, other in zip(found["simulator"].metrics, found["compiled"].metrics, strict=True):
        assert one == pytest.approx(other, rel=1e-5)
    for file in ("ledger.jsonl", "nodes.json"):
        assert (tmp_path / "simulator" / file).read_text() == (tmp_path / "compiled" / file).read_text()
    checked = verify(tmp_path / "compiled")
    assert checked["follows"]
    assert checked["releases"] == 48


def test_a_node_that_begins_after_the_end_of_the_run_has_released_nothing(tmp_path: Path) -> None:
    changes = {"algorithm": {"name": "gossip", "nodes": 8, "batch_size": 2}, "stop": {"virtual_seconds": 0.4}}
    made = [run(tmp_path / one, compute={"engine": one}, **changes).summary for one in ("simulator", "compiled")]
    assert made[0]["privacy"] == made[1]["privacy"]
    assert {node["releases"] for node in made[1]["privacy"]["nodes"].values()} == {0, 1}
    ledgers = [(tmp_path / one / "ledger.jsonl").read_text() for one in ("simulator", "compiled")]
    assert ledgers[0] == ledgers[1]


def test_of_very_many_nodes_those_that_are_alike_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (population_runtime, pool, records, summary):
        monkeypatch.setattr(module, "MOST_NAMED", 7)
    made = {name: run(tmp_path / name, compute={"engine": name}).summary for name in ("simulator", "compiled")}
    for file in ("ledger.jsonl", "nodes.json", "nodes.npz"):
        assert (tmp_path / "simulator" / file).read_bytes() == (tmp_path / "compiled" / file).read_bytes()
    (line,) = map(json.loads, (tmp_path / "compiled" / "ledger.jsonl").read_text().splitlines())
    assert line["node"] == [f"node-{number}" for number in range(8)]
    assert line["releases"] == 6
    for found in made.values():
        assert "finished" not in found
        assert found["ended"] == {"quota": 8}
        assert found["privacy"]["spread"]["releases"] == {"least": 6, "median": 6, "most": 6}
    assert verify(tmp_path / "compiled")["follows"]
    epochs = read_record(tmp_path / "compiled").metrics["epochs"]
    assert epochs[-1] == pytest.approx(48 * 2 / 96)  # a fifth of 120 examples is for tests
    with (tmp_path / "compiled" / "nodes.npz").open("ab") as file:
        file.write(b"more")
    with pytest.raises(DataError, match=r"compiled: nodes\.npz was changed since the run"):
        gs.repeat_run(tmp_path / "compiled", tmp_path / "again", data=DATA)


def test_many_nodes_take_it_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Lines()
    assert run(progress=progress).summary["engine"] == "simulator"
    assert progress.said == []
    monkeypatch.setattr("gossamer.experiment.preparation.engines.LEAST", 8)
    assert run(progress=progress).summary["engine"] == "compiled"
    assert progress.said[0].startswith("engine: compiled")
    assert run(compute={"engine": "simulator"}).summary["engine"] == "simulator"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"links": {"loss": 0.1}}, "links.loss, which"),
        ({"links": {"bandwidth": 1e6}}, "links.bandwidth, which"),
        ({"faults": {"absences": [{"node": 1, "start": 1, "end": 2}]}}, "faults, which"),
        ({"links": {"exceptions": [{"node": 1, "latency": 1.0}]}}, "links.exceptions, which"),
        ({"objective": {"name": "logistic", "dtype": "float64"}}, "objective.dtype, which"),
        ({"privacy": {"noise_multiplier": 1.0, "sampling": "fixed_size"}}, "privacy.sampling, which"),
        ({"privacy": {"noise_multiplier": 1.0, "clip": {"policy": "quantile"}}}, "privacy.clip, which"),
        ({"speeds": {"scenario": "random_slow"}}, "speeds.scenario, which"),
        ({"algorithm": SPEC["algorithm"] | {"optimizer": "momentum"}}, "algorithm.optimizer, which"),
        ({"algorithm": SPEC["algorithm"] | {"name": "allreduce"}}, "algorithm.name, which"),
    ],
)
def test_what_it_does_not_take_the_simulator_makes_and_a_line_names_the_key(changes: Any, key: str) -> None:
    progress = Lines()
    assert run(progress=progress, compute={"engine": "compiled"}, **changes).summary["engine"] == "simulator"
    assert any(line.startswith(f"engine: simulator, because of {key}") for line in progress.said)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["compute.engine=compiled"], "engine: compiled, all nodes in one loop"),
        (["compute.engine=compiled", "links.loss=0.1"], "engine: simulator, because of links.loss"),
        (["compute.engine=simulator"], None),
    ],
)
def test_a_check_says_who_would_make_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: list[str], line: str | None
) -> None:
    """By the line of a run."""
    spec = SPEC | {"objective": "softmax", "dataset": "digits", "budget": {"epsilon": 5, "delta": 1e-4}, "privacy": {}}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    assert main(["check", str(tmp_path / "spec.yaml"), *(word for one in settings for word in ("--set", one))]) == 0
    said = [one for one in capsys.readouterr().out.splitlines() if one.startswith("engine:")]
    assert [one[: len(line or "")] for one in said] == ([] if line is None else [line])


def test_a_repeat_is_made_by_what_made_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.experiment.preparation.engines.LEAST", 8)
    made = {"traced": {"trace": tmp_path / "trace"}, "plain": {}}
    engines = {}
    for name, more in made.items():
        engines[name] = run(tmp_path / name, **more).summary["engine"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)
            gs.repeat_run(tmp_path / name, tmp_path / f"{name}-again", data=DATA)
    assert engines == {"traced": "simulator", "plain": "compiled"}
    with pytest.raises(
        gs.CallerError, match="made by the compiled loop, of which there is no trace; leave --trace out"
    ):
        gs.repeat_run(tmp_path / "plain", data=DATA, trace=tmp_path / "another")


def test_a_run_on_shards_says_that_the_compiled_loop_does_not_make_it() -> None:
    experiment = spec_of(SPEC | {"compute": {"engine": "compiled"}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        prepared = prepare(experiment, FromMemory(DATA))
        plan = plan_run(prepared)
    taken, line = engines.chosen(prepared, plan, sources_of(prepared, plan, SECRET), watched=False, sharded=True)
    assert not taken
    assert line.startswith("engine: simulator, because its nodes are on shards")


def test_a_scale_that_was_found_privately_has_the_first_number_of_each_ledger(tmp_path: Path) -> None:
    rows = (f"{1e4 + 37 * i},{i % 2}" for i in range(120))
    (tmp_path / "things.csv").write_text("size,good\n" + "\n".join(rows) + "\n")
    dataset = {"name": "things", "path": tmp_path / "things.csv", "target": "good", "labels": [0, 1]}
    dataset |= {"columns": {"size": "number"}, "scale": {"name": "private", "noise_multiplier": 5.0}}
    changes = {"dataset": dataset, "compute": {"engine": "compiled"}, "evaluation": "off"}
    progress = Lines()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        found = gs.run(SPEC | changes, tmp_path / "out", secret=SECRET, progress=progress)
    assert found.summary["engine"] == "simulator"
    assert any(line.startswith("engine: simulator, because of dataset.scale") for line in progress.said)
    assert verify(tmp_path / "out")["releases"] == 8 * 7


@pytest.fixture
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("place", "many"), [("proceed", 1), ("proceed", 2), ("_told", 1)])
def test_what_was_charged_before_an_interrupt_has_receipts_without_checkpoints_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interruptible: None, place: str, many: int
) -> None:
    owner: Any = population_loop if place == "proceed" else Population
    whole = getattr(owner, place)
    left = [many]

    def interrupted(*given: Any) -> Any:
        found = whole(*given) if place == "proceed" else None
        while left[0]:
            left[0] -= 1
            signal.raise_signal(signal.SIGINT)
        return whole(*given) if place == "_told" else found

    monkeypatch.setattr(owner, place, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", checkpoint=None, compute={"engine": "compiled"}, evaluation="off")
    charged = (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()
    receipts = map(json.loads, (tmp_path / "out" / "receipts.jsonl").read_text().splitlines())
    counts = [len(one["of"]) * one.get("count", 1) for one in receipts if isinstance(one.get("of"), list)]
    assert sum(json.loads(line)["releases"] for line in charged) == sum(counts) > 0


def test_a_call_of_the_loop_is_short_however_large_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population_runtime, "WORK", 150)
    calls = []
    whole = population_loop.proceed
    monkeypatch.setattr(population_loop, "proceed", lambda *given: calls.append(given[-2][0]) or whole(*given))
    run(compute={"engine": "compiled"}, evaluation="off")
    assert set(calls) == {10}  # of 5 numbers in a model, for 2 examples and a noise


@pytest.mark.parametrize("engine", ["simulator", "compiled"])
def test_edges_that_nobody_uses_are_told_whoever_makes_the_run(engine: str) -> None:
    algorithm = SPEC["algorithm"] | {"nodes": 7, "exchange": "bipartite"}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gs.run(SPEC | {"algorithm": algorithm, "compute": {"engine": engine}}, data=DATA, secret=SECRET)
    assert DroppedEdges in [one.category for one in told]


@pytest.mark.parametrize("at_once", [population_runtime.AT_ONCE, 5])
def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Its receipts, too: where it was kept, and how often, is not in them."""
    monkeypatch.setattr(population_runtime, "AT_ONCE", at_once)

    class Interrupting(Lines):
        def updated(self, updates: int) -> None:
            if updates >= 20:
                signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run(tmp_path / "whole", compute={"engine": "compiled"})
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "out", Interrupting(), compute={"engine": "compiled"})
    finally:
        signal.signal(signal.SIGINT, before)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        gs.resume_run(tmp_path / "out", data=DATA)
    found, whole = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if path.name != "timing.json"}
        for name in ("out", "whole")
    )
    assert found == whole
