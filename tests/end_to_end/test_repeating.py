"""A run is repeated with its own secret, byte for byte, and nothing else than that run is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import gossamer as gs
from gossamer.cli import main
from gossamer.errors import DataError, SpecError
from gossamer.experiment.audits.canary_audit import audit_run
from gossamer.experiment.preparation.secrets import FILE
from gossamer.experiment.specs.spec_file import parse_spec

pytestmark = pytest.mark.usefixtures("called_here", "quiet")

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 3, "batch_size": 20, "updates_per_node": 4},
    "privacy": {"noise_multiplier": 1.0},
    "speeds": {"name": "lognormal"},
    "evaluation": {"every_updates": 2},  # each look reads an epsilon, which takes a while
}
UNITS = {"name": "graph_federated", "units": 2, "agents": 3, "local_steps": 2, "batch_size": 5, "rounds": 3}
RUNS: dict[str, dict[str, Any]] = {
    "gossip": {},
    "lossy": {"links": {"loss": 0.1, "jitter": 0.3}, "evaluation": "off"},
    "fixed size": {"privacy": {"noise_multiplier": 1.0, "sampling": "fixed_size"}},
    "l2_laplace": {"privacy": {"mechanism": "l2_laplace", "epsilon": 1.0}},
    "allreduce": {"algorithm": {**SMALL["algorithm"], "name": "allreduce"}},
    "audp": {"algorithm": {"name": "audp", "nodes": 3}, "stop": {"updates": 10}},
    "mapa": {"algorithm": {"name": "mapa", "nodes": 4}, "stop": {"updates": 12}},
    "increasing": {"algorithm": {"name": "increasing", "nodes": 2, "gradients": 200}},
    "units": {"algorithm": UNITS, "privacy": {"standard_deviation": 0.5}},
    "masks": {
        "algorithm": {**UNITS, "masking": "secure", "units": 2},
        "privacy": {"standard_deviation": 0.5, "agent_noise": 2.0},
    },
    "masks without noise": {
        "algorithm": {**UNITS, "masking": "secure", "noise": "none"},
        "privacy": {"mechanism": "none", "clip": 1.0},
    },
}


def spec(**sections: Any) -> gs.Experiment:
    return parse_spec({**SMALL, **sections})


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "timing.json"}


@pytest.mark.some(3)
@pytest.mark.parametrize("name", RUNS)
def test_a_repeat_has_the_bytes_of_the_run_and_another_run_has_not(name: str) -> None:
    if "masks" in name:
        pytest.importorskip("cryptography")
    experiment = spec(**RUNS[name])
    first = gs.run(experiment, "first", trace="first.trace")
    again = gs.repeat_run("first", "again", trace="again.trace")
    assert files(Path("first")) == files(Path("again"))
    assert Path("first.trace").read_bytes() == Path("again.trace").read_bytes()
    assert (first.guarantee, first.secret) == (again.guarantee, again.secret)
    assert gs.replay_run(gs.read_spec("first/spec.yaml"), "again.trace") is None
    gs.run(experiment, "other", trace="other.trace")
    assert files(Path("first"))[FILE] != files(Path("other"))[FILE]
    assert Path("first.trace").read_bytes() != Path("other.trace").read_bytes()


def test_a_run_that_scales_privately_is_repeated() -> None:
    """Its test examples are those of the files, not those that the run scaled by a noisy release."""
    rows = [f"{place % 7},{100 + place},{'ny'[place % 2]}" for place in range(90)]
    Path("t.csv").write_text("\n".join(["steps,pressure,ill", *rows]) + "\n")
    table = {
        "name": "visits",
        "path": str(Path("t.csv").resolve()),
        "target": "ill",
        "labels": ["n", "y"],
        "scale": {"name": "private", "noise_multiplier": 2.0},
    }
    experiment = spec(dataset={**table, "columns": {"steps": "number", "pressure": [80, 200]}}, objective="logistic")
    first = gs.run(experiment, "first")
    assert gs.repeat_run("first", "again").metrics == first.metrics
    Path("t.csv").write_text(Path("t.csv").read_text().replace(",189,", ",188,"))
    with pytest.raises(DataError, match="not what they were"):
        gs.repeat_run("first", "third")


def test_in_python_the_secret_of_a_result_repeats_it() -> None:
    first = gs.run(spec())
    again, other = gs.run(spec(), secret=first.secret), gs.run(spec())
    np.testing.assert_array_equal(first.model["weight"], again.model["weight"])
    assert not np.any(first.model["weight"] == other.model["weight"])
    assert first.metrics == again.metrics


def test_the_command_repeats_and_says_that_it_is_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    gs.run(spec(), "first")
    assert main(["run", "--repeat", "first"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "This is first again, with its noise: the same run, and no second release." in out
    assert out.endswith("Results: runs/first-repeat Next: gossamer report runs/first-repeat")
    assert files(Path("first")) == files(Path("runs/first-repeat"))
    assert main(["run", "--repeat", "runs/first-repeat", "--out", "third", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Path("first/summary.json").read_text())


def test_results_that_are_overwritten_get_a_new_secret() -> None:
    gs.run(spec(), "out")
    before = files(Path("out"))
    gs.run(spec(), "out", overwrite=True)
    after = files(Path("out"))
    assert before[FILE] != after[FILE]
    assert before["model.safetensors"] != after["model.safetensors"]
    gs.run(spec(privacy="none"), "out", overwrite=True)
    assert FILE not in files(Path("out"))


def test_what_was_measured_beside_is_no_difference() -> None:
    gs.run(spec(), "first", measure=lambda prepared, model: {"norm": float(np.linalg.norm(model))})
    gs.repeat_run("first")


def ended_before(status: str) -> None:
    """Turn ``first`` into what a run leaves that is interrupted, or killed while it writes."""
    path = Path("first/metrics.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]) + lines[5][:20])
    summary = json.loads(Path("first/summary.json").read_text())
    Path("first/summary.json").write_text(json.dumps({**summary, "status": status}))


@pytest.mark.parametrize("status", ["interrupted", "running"])
def test_a_run_that_was_cut_off_is_repeated_to_its_end(status: str) -> None:
    whole = gs.run(spec(), "first")
    ended_before(status)
    assert gs.repeat_run("first", "again").metrics == whole.metrics


# What is not the same run


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that is said; nothing is written to ``again``."""
    capsys.readouterr()
    assert main(["run", *arguments]) == 2
    out, err = capsys.readouterr()
    line = err.strip().splitlines()[-1]
    assert (out, line.startswith("gossamer: error: "), "Traceback" in err) == ("", True, False)
    assert not Path("again").exists()
    return line


def changed(path: Path, change: Any) -> None:
    content = path.read_text()
    path.write_text(change(content))
    assert path.read_text() != content


@pytest.mark.some(6)
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["spec.yaml"], "found SPEC as well"),
        (["--set", "seed=1"], "found --set as well"),
        (["--seed", "0"], "found --seed as well"),
        (["--shards", "2"], "found --shards as well"),
        (["--reproducible"], "found --reproducible as well"),
        (["--out", "first", "--overwrite"], "choose another --out"),
        (["--out", "first/../first/.", "--overwrite"], "choose another --out"),
        (["--trace", "first/spec.yaml"], "choose another --trace"),
        (["--trace", "first/new/one.trace"], "choose another --trace"),
        (["--out", "first/again"], "first/again is inside; choose another --out"),
        (["--out", "first/deep/er"], "choose another --out"),
        (["--out", "elsewhere"], "elsewhere exists and is not empty"),
    ],
    ids=str,
)
def test_a_repeat_takes_all_from_the_folder_and_leaves_it_alone(
    capsys: pytest.CaptureFixture[str], more: list[str], expected: str
) -> None:
    gs.run(spec(), "first")
    Path("elsewhere").mkdir()
    Path("elsewhere/mine").write_text("")
    before = files(Path("first"))
    assert expected in refused(capsys, "--repeat", "first", *more)
    assert files(Path("first")) == before
    assert not Path("runs").exists()


def test_a_run_needs_a_spec_or_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert "expected a SPEC to run, or --repeat RESULTS" in refused(capsys)
    Path("file").write_text("")
    for found in ("nowhere", "file"):
        expected = f"expected the results folder of a run, found no folder {found!r}; give another"
        assert expected in refused(capsys, "--repeat", found)
    assert "--repeat: expected the name of a file or folder, found an empty one" in refused(capsys, "--repeat", "")
    with pytest.raises(DataError, match="expected the results folder of a run, found no folder ''"):
        gs.repeat_run("")


def test_a_secret_that_cannot_be_used_gets_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    gs.run(spec(), "first")
    path, repeat = Path("first") / FILE, ("--repeat", "first", "--out", "again")
    path.chmod(0o644)
    assert "others may use this noise secret (mode 0644, expected 0600)" in refused(capsys, *repeat)
    path.chmod(0o600)
    kept = path.read_text()
    path.write_text("{}")
    assert "expected a noise secret as a run wrote it" in refused(capsys, *repeat)
    path.write_text(kept.replace('"gossamer": "', '"gossamer": "9.'))
    assert "made by gossamer 9." in refused(capsys, *repeat)
    path.unlink()
    assert f"expected the run's noise secret, {FILE}, found none" in refused(capsys, *repeat)


def test_a_secret_of_another_run_of_the_same_spec_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for out in ("first", "second"):
        gs.run(spec(), out)
    (Path("first") / FILE).replace(Path("second") / FILE)
    line = refused(capsys, "--repeat", "second", "--out", "again")
    assert f"second: {FILE} is of another run than guarantee.json beside it; bring back" in line
    assert not Path("again").exists()
    (Path("second") / "guarantee.json").unlink()
    with pytest.raises(DataError, match="gave other results than"):  # nothing tells before
        gs.repeat_run("second")


@pytest.mark.parametrize("privacy", ["none", {"noise_multiplier": 1.0, "noise_secret": "reproducible"}], ids=str)
def test_a_run_without_a_secret_is_repeated_by_its_spec(capsys: pytest.CaptureFixture[str], privacy: Any) -> None:
    gs.run(spec(privacy=privacy), "first")
    assert not (Path("first") / FILE).exists()
    line = refused(capsys, "--repeat", "first", "--out", "again")
    assert "gossamer run first/spec.yaml repeats it" in line
    assert main(["run", "first/spec.yaml", "--out", "again"]) == 0
    assert files(Path("first")) == files(Path("again"))


def test_an_audit_overwrites_audits_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the results of a run, nor what a run that was killed has left; with noise that is reproducible, too."""
    once = {"canaries": 20, "guesses": 4}
    for kept in (spec(), spec(privacy={"noise_multiplier": 1.0, "noise_secret": "reproducible"})):
        for folder in (Path("run"), Path("audit")):
            shutil.rmtree(folder, ignore_errors=True)
        gs.run(kept, "run")
        for left in ("whole", "killed"):
            if left == "killed":
                (Path("run") / "summary.json").unlink()
            before = files(Path("run"))
            with pytest.raises(SpecError, match=r"^run has a run that was no audit, .*; choose another --out$"):
                audit_run(kept, "run", overwrite=True, **once)
            assert files(Path("run")) == before
        for _ in range(2):
            audit_run(kept, "audit", overwrite=True, **once)


def test_an_audit_is_not_repeated_as_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    first = audit_run(spec(), "first", canaries=20, guesses=4)
    assert "something else (audit)" in refused(capsys, "--repeat", "first", "--out", "again")
    again = audit_run(spec(), canaries=20, guesses=4, secret=first.secret)
    np.testing.assert_array_equal(first.model["weight"], again.model["weight"])


def examples(value: float) -> None:
    rows = np.random.default_rng(0).standard_normal((60, 3))
    rows[7, 1] = value
    lines = [",".join(f"{x:.6g}" for x in row) + f",{i % 2}" for i, row in enumerate(rows)]
    Path("data.csv").write_text("a,b,c,label\n" + "\n".join(lines) + "\n")


def test_changed_examples_settings_or_seeds_are_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    examples(1.0)
    algorithm = {"name": "gossip", "nodes": 2, "topology": "line", "batch_size": 5, "updates_per_node": 4}
    dataset = {"name": "mine", "path": str(Path("data.csv").resolve()), "scale": "none"}
    gs.run(spec(algorithm=algorithm, dataset=dataset), "first")
    repeat = ("--repeat", "first", "--out", "again")
    examples(1.001)
    assert "this would be another run" in refused(capsys, *repeat)
    examples(1.0)
    written = Path("first/spec.yaml").read_text()
    for old, new in (("noise_multiplier: 1.0", "noise_multiplier: 0.01"), ("seed: 0", "seed: 1")):
        changed(Path("first/spec.yaml"), lambda text, old=old, new=new: text.replace(old, new))
        assert "this would be another run" in refused(capsys, *repeat)
        Path("first/spec.yaml").write_text(written)
    gs.repeat_run("first", "again")


def test_rounding_is_named_where_model_and_figures_both_differ() -> None:
    """As on a machine that rounds otherwise."""
    first = gs.run(spec(), "first")
    other = gs.run(spec(), "other")
    assert first.secret != other.secret
    for file in ("model.safetensors", "metrics.jsonl", "summary.json"):
        (Path("first") / file).write_bytes((Path("other") / file).read_bytes())
    with pytest.raises(DataError, match=r"other results than metrics.jsonl and model.safetensors.*or rounding is"):
        gs.repeat_run("first")


def test_rounding_may_be_why_a_run_that_was_cut_off_differs() -> None:
    gs.run(spec(), "first")
    ended_before("interrupted")
    changed(Path("first/metrics.jsonl"), lambda text: text.replace('"test_loss": ', '"test_loss": 1'))
    with pytest.raises(DataError, match=r"other results than metrics.jsonl, which was changed since the run, or round"):
        gs.repeat_run("first")


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("metrics.jsonl", lambda text: text.replace('"test_loss": ', '"test_loss": 1', 1)),
        ("metrics.jsonl", lambda text: text[text.index("\n") + 1 :]),
        ("metrics.jsonl", lambda text: text[:-5]),
        ("summary.json", lambda text: text.replace('"epsilon": ', '"epsilon": 1', 1)),
        ("ledger.jsonl", lambda text: text.replace('"releases": ', '"releases": 1', 1)),
        ("guarantee.json", lambda text: text.replace('"mu": ', '"mu": 1', 1)),
        ("private.jsonl", lambda text: text + "{}\n"),
    ],
)
def test_a_file_that_was_changed_is_named_and_rounding_is_not_blamed(
    capsys: pytest.CaptureFixture[str], file: str, change: Any
) -> None:
    gs.run(spec(), "first")
    path = Path("first") / file
    before = path.read_text() if path.exists() else ""
    path.write_text(change(before))
    assert path.read_text() != before
    assert main(["run", "--repeat", "first", "--out", "again"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"first: {file} was changed since the run" in line
    assert "round" not in line
    assert (Path("again") / file).exists() == (file != "private.jsonl")


def test_a_model_that_was_changed_is_named() -> None:
    gs.run(spec(), "first")
    gs.run(spec(), "other")
    (Path("first") / "model.safetensors").write_bytes((Path("other") / "model.safetensors").read_bytes())
    with pytest.raises(DataError, match=r"first: model.safetensors was changed since the run"):
        gs.repeat_run("first")


def test_changed_test_examples_are_named_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    examples(1.0)
    algorithm = {"name": "gossip", "nodes": 2, "topology": "line", "batch_size": 5, "updates_per_node": 4}
    Path("test.csv").write_text("a,b,c,label\n1,2,3,0\n0,1,2,1\n")
    dataset = {
        "name": "mine",
        "path": str(Path("data.csv").resolve()),
        "test_path": str(Path("test.csv").resolve()),
        "scale": "none",
    }
    gs.run(spec(algorithm=algorithm, dataset=dataset), "first")
    Path("test.csv").write_text("a,b,c,label\n1,2,3,0\n0,1,2,0\n")
    line = refused(capsys, "--repeat", "first", "--out", "again")
    assert "the test examples are not what they were" in line


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("summary.json", "{", "expected the results folder of a run"),
        ("metrics.jsonl", "{\n", "metrics.jsonl: expected rows of metrics"),
        ("metrics.jsonl", "{}\n5\n", "metrics.jsonl: expected rows of metrics"),
        ("metrics.jsonl", "[" * 100000 + "\n", "metrics.jsonl: expected rows of metrics"),
        ("summary.json", "[" * 100000, "expected the results folder of a run"),
        ("metrics.jsonl", None, "metrics.jsonl: expected rows of metrics"),
        ("model.safetensors", None, "model.safetensors: expected the run's model"),
        ("spec.yaml", None, "cannot read the spec"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], file: str, content: str | None, expected: str
) -> None:
    gs.run(spec(), "first")
    path = Path("first") / file
    path.unlink() if content is None else path.write_text(content)
    assert expected in refused(capsys, "--repeat", "first", "--out", "again")


def test_a_federation_takes_no_reproducible_noise(capsys: pytest.CaptureFixture[str]) -> None:
    from gossamer.deployment.founding.federation_spec import federation_spec

    text = yaml.safe_dump({**SMALL, "privacy": {"noise_multiplier": 1.0, "noise_secret": "reproducible"}})
    with pytest.raises(SpecError, match="reproducible is for simulations"):
        federation_spec(text, 3)
