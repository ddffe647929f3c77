"""Reproducible noise: the same bytes each time, and no guarantee wherever one could be looked for."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

import gossamer as gs
from gossamer.cli import main
from gossamer.experiment.audits.canary_audit import audit_run
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy import guarantees

pytestmark = pytest.mark.usefixtures("called_here", "quiet")

NODES = {"name": "gossip", "nodes": 3, "batch_size": 20, "updates_per_node": 3}
UNITS = {"name": "graph_federated", "units": 2, "agents": 3, "local_steps": 2, "batch_size": 5, "rounds": 3}
RUNS: dict[str, dict[str, Any]] = {
    "gossip": {"algorithm": NODES, "privacy": {"noise_multiplier": 1.0}},
    "budget": {"algorithm": NODES, "budget": {"epsilon": [1.0, 2.0, 3.0], "delta": 1e-5}},
    "persons": {"algorithm": NODES, "budget": {"epsilon": 2.0, "delta": 1e-5, "rows_per_person": 2}},
    "l2_laplace": {"algorithm": NODES, "privacy": {"mechanism": "l2_laplace", "epsilon": 1.0}},
    "increasing": {
        "algorithm": {"name": "increasing", "nodes": 2, "gradients": 200},
        "privacy": {"noise_multiplier": 1.0},
    },
    "released units": {"algorithm": {**UNITS, "gradient_at": "released"}, "privacy": {"standard_deviation": 0.5}},
    "masks": {
        "algorithm": {**UNITS, "gradient_at": "hidden", "masking": "secure"},
        "privacy": {"mechanism": "laplace", "standard_deviation": 0.5, "agent_noise": 4.0},
    },
}


@pytest.fixture(params=RUNS)
def sections(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Of a spec with noise, but for where it comes from."""
    if request.param == "masks":
        pytest.importorskip("cryptography")
    return {"dataset": "digits", **RUNS[request.param]}


def reproducible(sections: dict[str, Any]) -> gs.Experiment:
    privacy = {**sections.get("privacy", {}), "noise_secret": "reproducible"}
    return parse_spec({**sections, "privacy": privacy})


def epsilons(value: Any, path: str = "") -> dict[str, Any]:
    """All that is called an epsilon in plain data, or that is listed under a name that could be taken for one."""
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in epsilons(item, f"{path}.{key}").items()}
    if isinstance(value, list):
        return {k: v for index, item in enumerate(value) for k, v in epsilons(item, f"{path}.{index}").items()}
    return {path: value} if any(word in path for word in ("epsilon", "composition", "proved")) else {}


@pytest.mark.some(3)
def test_nothing_that_is_written_looks_like_a_guarantee(sections: dict[str, Any]) -> None:
    """A number that is called epsilon is a paper's claim, a setting, or said to be what would be."""
    result = gs.run(reproducible(sections), "out")
    summary = json.loads(Path("out/summary.json").read_text())
    rows = [json.loads(line) for line in Path("out/metrics.jsonl").read_text().splitlines()]
    assert {row["epsilon_so_far"] for row in rows} == {None}
    numbers = {path for path, value in epsilons(summary).items() if value is not None}
    settings = {".privacy.mechanism.epsilon"} | {f".privacy.nodes.node-{n}.mechanism.epsilon" for n in range(3)}
    others = {path for path in numbers if ".claims." not in path and "would_be" not in path} - settings
    assert others == set()
    assert math.isinf(result.guarantee.epsilon)
    assert all(math.isinf(guarantee.epsilon) for guarantee in result.guarantees.values())
    assert result.secret is None


@pytest.mark.some(3)
def test_it_says_what_it_would_be_with_a_secret(sections: dict[str, Any]) -> None:
    """The same as of the run that has one."""
    drawn, secret = (
        gs.run(experiment).summary["privacy"] for experiment in (reproducible(sections), parse_spec(sections))
    )
    assert drawn["guarantee"]["would_be"] == secret["guarantee"]
    assert (drawn["guarantee"]["epsilon"], drawn["guarantee"]["privacy"]) == (None, "none")
    assert "no guarantee: reproducible noise" in drawn["guarantee"]["proof"]
    for name, entry in secret["nodes"].items():
        assert drawn["nodes"][name]["epsilon"] is None
        assert drawn["nodes"][name]["would_be_epsilon"] == entry["epsilon"] is not None
    assert drawn.get("would_be_compositions") == secret.get("compositions")
    assert "compositions" not in drawn
    for observer, guarantee in secret.get("guarantees", {}).items():
        found = drawn["guarantees"][observer]
        assert found == guarantee if guarantee["epsilon"] is None else found["would_be"] == guarantee
    assert drawn["mechanism"] == secret["mechanism"]


def test_the_plan_says_the_same(sections: dict[str, Any]) -> None:
    drawn, secret = (plan_run(prepare(experiment)) for experiment in (reproducible(sections), parse_spec(sections)))
    assert set(drawn.epsilons.values()) == {math.inf}
    assert drawn.would_be == secret.epsilons
    assert secret.would_be == {}
    assert drawn.noise == secret.noise


@pytest.mark.some(4)
def test_it_is_the_same_each_time_and_no_secret_is_kept(sections: dict[str, Any]) -> None:
    for folder in ("one", "two"):
        gs.run(reproducible(sections), folder, trace=f"{folder}.trace")
    found = [{p.name: p.read_bytes() for p in Path(f).iterdir() if p.name != "timing.json"} for f in ("one", "two")]
    assert found[0] == found[1]
    assert "noise_secret.json" not in found[0]
    assert Path("one.trace").read_bytes() == Path("two.trace").read_bytes()


@pytest.mark.some(3)
@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize("how", ["--reproducible", "privacy.noise_secret=reproducible"])
@pytest.mark.parametrize("name", ["gossip", "masks"])
def test_the_command_says_it(capsys: pytest.CaptureFixture[str], command: str, how: str, name: str) -> None:
    if name == "masks":
        pytest.importorskip("cryptography")
    Path("spec.yaml").write_text(yaml.safe_dump({"dataset": "digits", **RUNS[name]}))
    more = [how] if how.startswith("--") else ["--set", how]
    assert main([command, "spec.yaml", *more]) == 0
    captured = capsys.readouterr()
    said = " ".join(captured.out.split())
    assert "Guarantee: none. This run has no guarantee: reproducible noise follows from the spec's seed" in said
    assert "With a noise secret it would be (" in said
    assert "epsilon spent" not in captured.err + captured.out
    assert said.count("-differential privacy for each") == said.count("With a noise secret it would be (")
    table = captured.out.partition("epsilon planned\n")[2].partition("\n\n")[0].splitlines()
    assert table
    assert {line.split()[-1] for line in table} == {"none"}
    assert main([command, "spec.yaml", *more, "--json", *(["--overwrite"] if command == "run" else [])]) == 0
    assert json.loads(capsys.readouterr().out)["nodes" if command == "check" else "privacy"] is not None


def test_without_noise_it_says_nothing_new() -> None:
    plain = {"dataset": "digits", "algorithm": NODES, "privacy": {"mechanism": "none"}}
    drawn, usual = gs.run(reproducible(plain)), gs.run(parse_spec(plain))
    assert drawn.summary == usual.summary
    assert drawn.guarantee.would_be is None


def test_an_audit_is_held_against_what_would_be_proved() -> None:
    """One that could not be refuted would find no fault in the noise."""
    chosen = {"dataset": "digits", "algorithm": NODES, "privacy": {"noise_multiplier": 1.0}}
    drawn = audit_run(reproducible(chosen), canaries=20, guesses=4)
    secret = audit_run(parse_spec(chosen), canaries=20, guesses=4)
    found, usual = (result.summary["privacy"]["audits"]["one_run"] for result in (drawn, secret))
    assert found["proved_epsilon"] is None
    assert found["would_be_epsilon"] == usual["proved_epsilon"] == drawn.guarantee.would_be.epsilon  # type: ignore[union-attr]
    assert "would_be_epsilon" not in usual


def test_noise_a_hundredth_of_what_it_should_be_refutes_reproducible_audits_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gossamer.privacy.mechanisms import Gaussian

    law = Gaussian.noise
    monkeypatch.setattr(Gaussian, "noise", lambda *arguments: law(*arguments) / 100)
    algorithm = {"name": "gossip", "nodes": 4, "batch_size": 60, "learning_rate": 0.5, "updates_per_node": 60}
    chosen = {"dataset": "digits", "algorithm": algorithm, "budget": {"epsilon": 0.3, "delta": 1e-12}}
    Path("spec.yaml").write_text(yaml.safe_dump(chosen))
    audit = ["attack", "audit", "spec.yaml", "--canaries", "200", "--guesses", "80", "--reproducible"]
    assert main(audit) == 1
    assert "with a noise secret: at most   0.3" in capsys.readouterr().out


def test_a_guarantee_that_is_none_stays_what_it_was() -> None:
    none = guarantees.none("why", gs.NeighboringRelation.REPLACE_ONE)
    assert guarantees.reproducible(none) is none
    proved = guarantees.planned(1.0, 1e-5, gs.NeighboringRelation.REPLACE_ONE, "by proof")
    once = guarantees.reproducible(proved)
    assert guarantees.reproducible(once) is once
    assert once.would_be == proved
    assert "would_be" not in proved.as_dict()
    json.dumps(once.as_dict(), allow_nan=False)
