"""The benchmark beside other libraries: turns, medians, environments that cannot be made, and its page."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gossamer

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def peers() -> Iterator[Any]:
    """The modules of the benchmark."""
    sys.path.insert(0, str(BENCHMARKS))
    names = ("apart", "driver", "environments", "jobs", "measured", "mnist", "networks", "page", "__main__")
    try:
        yield SimpleNamespace(**{name: importlib.import_module(f"peers.{name}") for name in names})
    finally:
        sys.path.remove(str(BENCHMARKS))


# Modules of other packages


def test_packages_that_cannot_be_had_are_told_in_one_line_and_the_rest_is_tried(
    peers: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    modules = importlib.import_module("modules")
    monkeypatch.setattr(modules, "PACKAGES", ("numpy", "no_such_package", "nor_this"))

    def unavailable(*given: Any) -> Path:
        raise peers.environments.Unavailable("its environment cannot be made: no network")

    monkeypatch.setattr(modules, "python_of", unavailable)
    assert modules.elsewhere(tmp_path) is None
    said = capsys.readouterr().err
    assert said == "without no_such_package, nor_this: its environment cannot be made: no network\n"


def test_packages_that_are_missing_come_from_an_environment_of_their_own(
    peers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In which the program is called again, once, on this source."""
    modules = importlib.import_module("modules")
    monkeypatch.setattr(modules, "PACKAGES", ("no_such_package",))
    monkeypatch.setattr(modules, "python_of", lambda name, cache, pins: Path(sys.executable))
    program = tmp_path / "program.py"
    program.write_text(f"import gossamer, os, sys\nsys.exit(7 if {modules.INSIDE!r} in os.environ else 1)\n")
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert modules.elsewhere(tmp_path) == 7
    monkeypatch.setenv(modules.INSIDE, "1")
    assert modules.elsewhere(tmp_path) is None
    assert peers.environments._torch_pin(modules.PINS) == "torch==2.13.0"


# Jobs


def test_networks_have_the_parameters_that_they_are_said_to_have(peers: Any) -> None:
    found = {name: sum(p.numel() for p in peers.networks.network(name, 0).parameters()) for name in ("cnn", "softmax")}
    assert found == {"cnn": 260 + 2_510 + 1_610, "softmax": 7_850}
    assert sum(p.numel() for p in peers.networks.network("mlp", 0).parameters()) == 199_210
    assert sum(p.numel() for p in peers.networks.network("lenet5 tanh", 0).parameters()) == 61_706


def test_jobs_have_names_of_their_own_and_ways_a_note_and_a_colour(peers: Any) -> None:
    names = [job.name for job in peers.jobs.JOBS]
    assert len(set(names)) == len(names)
    ways = {way for each in peers.jobs.WAYS.values() for _, way in each}
    assert ways == set(peers.jobs.NOTES) == set(peers.page.COLOURS)


def test_clients_have_examples_of_their_own(peers: Any) -> None:
    rows = peers.mnist.shards(0)
    assert rows.shape == (50, 200)
    assert len(np.unique(rows)) == 50 * 200


# Turns


class FakeWorker:
    """Answers with given times, and remembers who was asked when."""

    def __init__(self, peers: Any, said: list[tuple[str, str]], times: dict[str, list[tuple[float, float]]]) -> None:
        self._peers, self._said, self._times = peers, said, times

    def ask(self, what: str, way: str = "", number: int = 0, **_: Any) -> Any:
        self._said.append((what, way))
        if what == "block":
            if number >= len(self._times[way]):
                raise self._peers.driver.Failed("it fell over")
            return self._times[way][number]
        return {"difference": 0.5}


def test_ways_take_turns_and_ratios_are_medians_of_pairs(peers: Any) -> None:
    said: list[tuple[str, str]] = []
    # Medians of times would give 2 / 1; the pairs' ratios are 4, 2 and 3.
    ours, theirs = [(1.0, 4.0), (1.0, 2.0), (0.5, 1.5)], [(1.0, 1.0)] * 3
    workers = {"gossamer": FakeWorker(peers, said, {"Gossamer": ours, "vmap(grad)": theirs})}
    rows = list(peers.driver.measure(peers.jobs.JOBS[0], workers, 3, {}, lambda way, why: pytest.fail(why)))
    assert [way for what, way in said if what == "block"] == ["Gossamer", "vmap(grad)"] * 3
    assert [(row["way"], row["ratio"], row["repeats"]) for row in rows] == [("Gossamer", 3, 3), ("vmap(grad)", 1, 3)]
    assert rows[0]["quartiles"] == [2.5, 3.5]


def test_a_way_that_fails_is_named_and_the_others_go_on(peers: Any) -> None:
    left_out: list[tuple[str, str]] = []
    times = {"Gossamer": [(1.0, 1.0)], "vmap(grad)": [(1.0, 2.0)] * 3}
    workers = {"gossamer": FakeWorker(peers, [], times)}
    rows = list(peers.driver.measure(peers.jobs.JOBS[0], workers, 3, {}, lambda *what: left_out.append(what)))
    assert left_out == [("Gossamer", "it fell over")]
    assert [row["way"] for row in rows] == ["vmap(grad)"]


def test_a_federated_round_in_which_nothing_happened_is_an_error(peers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.apart, "PlainFederation", lambda asked: SimpleNamespace(round=lambda: None))
    turns = peers.apart.Turns(None)
    for number in range(4):
        turns.between(number, [np.full(2, float(number))])
    assert len(turns.pairs) == 1  # the first two rounds are not counted
    with pytest.raises(RuntimeError, match="round 4 changed nothing"):
        turns.between(4, [np.full(2, 3.0)])


def test_updates_of_a_whole_run_are_timed(peers: Any, tmp_path: Path) -> None:
    ways = importlib.import_module("peers.gossamer_ways")
    spec = gossamer.Experiment.model_validate(
        {
            "dataset": "digits",
            "algorithm": {"name": "gossip", "nodes": 3, "batch_size": 4, "updates_per_node": 4},
            "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
            "evaluation": "off",
        }
    )
    assert ways.seconds_an_update(SimpleNamespace(data=tmp_path, job=SimpleNamespace(threads=1)), spec, 3) > 0


# Environments


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    file = tmp_path / "requirements-some.txt"
    file.write_text("# pins\ntorch==2.13.0\nsome==1\n")
    return file


def test_an_environment_that_cannot_be_made_is_one_line_and_leaves_nothing(
    peers: Any, pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments = peers.environments
    monkeypatch.setattr(environments.venv, "create", lambda folder, with_pip: Path(folder).mkdir(parents=True))
    error = "ERROR: No matching distribution found for some==1\nmore\n"
    monkeypatch.setattr(
        environments.subprocess, "run", lambda *a, **k: SimpleNamespace(returncode=1, stderr=error, stdout="")
    )
    with pytest.raises(environments.Unavailable) as found:
        environments.python_of("some", tmp_path / "cache", pins)
    assert str(found.value) == "its environment cannot be made: No matching distribution found for some==1"
    assert list((tmp_path / "cache").iterdir()) == []


def test_torch_goes_first_and_builds_for_graphics_cards_are_refused_before_that(
    peers: Any, pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments, asked = peers.environments, []
    bring = ["torch", "sympy"]

    def run(command: list[str], **_: Any) -> Any:
        asked.append(command[5:])
        report = json.dumps({"install": [{"metadata": {"name": name}} for name in bring]})
        return SimpleNamespace(returncode=0, stderr="", stdout=report)

    monkeypatch.setattr(environments.venv, "create", lambda folder, with_pip: Path(folder).mkdir(parents=True))
    monkeypatch.setattr(environments.subprocess, "run", run)
    python = environments.python_of("some", tmp_path / "cache", pins)
    assert [each[-1] for each in asked] == ["torch==2.13.0", "torch==2.13.0", str(pins)]
    assert "--dry-run" in asked[0]
    asked.clear()
    assert environments.python_of("some", tmp_path / "cache", pins) == python
    assert asked == []  # it is there

    bring.append("nvidia-cublas")
    with pytest.raises(environments.Unavailable, match=r"a build of torch==2\.13\.0 for graphics cards, with nvidia-"):
        environments.python_of("other", tmp_path / "cache", pins)
    assert len(asked) == 1


def test_every_library_has_pins_with_one_torch(peers: Any) -> None:
    for name in set(peers.__main__.PEERS) - {"gossamer"}:
        assert peers.environments._torch_pin(BENCHMARKS / "peers" / f"requirements-{name}.txt") == "torch==2.13.0"


def test_jobs_without_their_data_are_left_out_with_the_reason(
    peers: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers.__main__, "load", lambda: 0.0)  # a busy machine is told, too
    only = ["--peers", "opacus", "--only", "rounds"]  # of which Opacus has none, so no process is started
    assert peers.__main__.main([*only, "--data", str(tmp_path)]) == 1
    (first, second) = capsys.readouterr().err.splitlines()
    assert first == f"peers: rounds logistic 1, 1 thread is left out: a9a needs a9a or a9a.bz2 in {tmp_path / 'libsvm'}"
    assert "MNIST needs train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz in" in second


# The page


def results(**changed: Any) -> dict[str, Any]:
    row = {
        "job": "step cnn 32, 1 thread", "kind": "step", "model": "cnn", "batch": 32, "threads": 1, "steps": 20,
        "base": "plain", "data": "mnist", "way": "Gossamer", "ratio": 0.314, "quartiles": [0.3, 0.33],
        "base_seconds": 0.004, "seconds": 0.00125, "repeats": 30, "difference": 2.9e-7,
    }  # fmt: skip
    machine = {"processor": "Some", "cores": 2, "system": "Linux", "load_before": 0.1, "load_after": 1.0}
    return {
        "benchmark": "peers", "quick": False, "commit": "c" * 40, "date": "2026-01-01", "machine": machine, "seed": 16,
        "versions": {"gossamer": {"torch": "2.13.0"}}, "rows": [row, {**row, "way": "Opacus ew", "ratio": 2.0}],
        "left_out": [{"what": "flower", "why": "gone"}], **changed,
    }  # fmt: skip


def test_figures_of_the_page_are_those_of_the_results(peers: Any) -> None:
    page = peers.page.written("before\n<!-- results -->\nold\n<!-- end -->\nafter\n", results())
    assert page.startswith("before\n<!-- results -->\n")
    assert page.endswith("<!-- end -->\nafter\n")
    assert "old" not in page
    assert "| cnn, batch 32, 1 thread | plain | Gossamer | 0.31 | 0.30 to 0.33 | 1.25 | 3e-07 |" in page
    assert "- flower: gone" in page
    assert "`cccccccccccc`" in page


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"quick": True}, "no measurement"),
        ({"commit": "c" * 40 + "-changed"}, "commit first"),
        ({"benchmark": "other"}, "expected the JSON"),
    ],
)
def test_results_that_are_no_measurement_are_refused(
    peers: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], why: str
) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps(results(**changed)))
    assert peers.page.main([str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_the_plot_is_drawn(peers: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    peers.page.draw(results()["rows"], tmp_path / "plot.svg")
    first = (tmp_path / "plot.svg").read_bytes()
    peers.page.draw(results()["rows"], tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_bytes() == first
    assert b"<svg" in first


def test_the_page_is_that_of_the_results_that_are_kept(peers: Any) -> None:
    kept = json.loads(peers.page.KEPT.read_text(encoding="utf-8")) if peers.page.KEPT.exists() else None
    text = peers.page.PAGE.read_text(encoding="utf-8")
    assert peers.page.written(text, kept) == text, "run: python benchmarks/peers/page.py docs/benchmarks.json"
