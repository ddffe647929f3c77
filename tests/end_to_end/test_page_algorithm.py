"""The algorithm that the page on algorithms builds is `fedasync`: bit for bit, in every command and over a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.reference.outside import gossamer, here
from tests.reference.pages import own_distribution
from tests.sampling import examples

import gossamer as gs
from gossamer.algorithms.table import KIND
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.runs import running
from gossamer.experiment.specs.spec_file import parse_spec

COMMON: dict[str, Any] = {"dataset": "digits", "speeds": {"name": "lognormal"}, "evaluation": "off"}
CLIENTS: dict[str, Any] = {"nodes": 6, "mixing": 0.7, "local_steps": 3, "updates_per_node": 5}
WEIGHTS = {
    "fedasync": {"staleness_weight": {"name": "polynomial", "a": 1.5}},
    "my_fedasync_clients": {"staleness": 1.5},
}
NOISY: dict[str, Any] = {"privacy": {"clip": 0.5}, "budget": {"epsilon": 8, "delta": 1e-4}}
NOISELESS: dict[str, Any] = {"privacy": "none"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the page's distribution is in."""
    folder = tmp_path_factory.mktemp("page")
    own_distribution(folder)
    return folder


@pytest.fixture
def registered(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's distribution is installed in this process."""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setitem(vars(KIND), "loaded", {})


def spec(name: str, privacy: dict[str, Any], **settings: Any) -> gs.Experiment:
    weights = {"name": name, **CLIENTS, **WEIGHTS[name], **settings}
    return parse_spec({**COMMON, "algorithm": weights, **privacy})


def test_one_seed_gives_the_model_of_fedasync_bit_for_bit(registered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With noise and without. Noise follows from a spec's text, the algorithm's name included: both get one seed."""
    monkeypatch.setattr(running, "secret_seed", lambda *decided: 7)
    for privacy in (NOISY, NOISELESS):
        real, page = (gs.run(spec(name, privacy)) for name in WEIGHTS)
        assert real.model.keys() == page.model.keys()
        assert [page.model[part].tobytes() for part in real.model] == [part.tobytes() for part in real.model.values()]
        assert [page.summary[key] for key in ("updates", "finished")] == [
            real.summary[key] for key in ("updates", "finished")
        ]
        assert real.summary["fedasync"]["staleness_mean"] > 1  # or weights by age were hardly seen


def test_another_weight_gives_another_model(registered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the comparison can fail."""
    monkeypatch.setattr(running, "secret_seed", lambda *decided: 7)
    one = gs.run(spec("fedasync", NOISELESS))
    other = gs.run(spec("my_fedasync_clients", NOISELESS, staleness=1.4))
    assert not all(np.array_equal(one.model[part], other.model[part]) for part in one.model)


def test_it_is_planned_as_fedasync_is(registered: None) -> None:
    """The same noise, guarantee and releases of each client."""
    real, page = (plan_run(prepare(spec(name, NOISY))) for name in WEIGHTS)
    assert page.mechanisms == real.mechanisms
    trusted = [line for line in page.guarantee.assumptions if "my-fedasync" in line]
    assert len(trusted) == 1
    others = tuple(line for line in page.guarantee.assumptions if line not in trusted)
    assert replace(page.guarantee, assumptions=others) == real.guarantee
    assert page.guarantee.epsilon <= 8
    assert [page.releases[name] for name in page.mechanisms] == [5] * 6


def test_one_step_with_all_examples_is_a_noisy_gradient_at_the_model(registered: None) -> None:
    """The page's first algorithm is `fedasync` of clients that make one local step with all that they have."""
    few = {"dataset": "digits", "speeds": {"name": "lognormal"}, "evaluation": "off"}
    weights = {"nodes": 7, "mixing": 0.7, "batch_size": 206, "updates_per_node": 5}  # 1442 examples
    found = []
    for own in (
        {"name": "fedasync", "local_steps": 1, "local_learning_rate": 0.3},
        {"name": "my_fedasync", "learning_rate": 0.3},
    ):
        found.append(gs.run(parse_spec({**few, "algorithm": {**weights, **own}, "privacy": "none"})))
    real, page = found
    assert real.summary["updates"] == page.summary["updates"] == 35
    for part in real.model:
        # Sums in another order, in single precision.
        np.testing.assert_allclose(page.model[part], real.model[part], rtol=1e-4, atol=1e-6)


# Installed, in commands; one of them in a process of its own


UNITS = {"my_fedasync": "example of a node's shard", "my_fedasync_clients": "client with all of its data"}


def written_spec(folder: Path, name: str) -> Path:
    """The spec of a small run with a budget."""
    sections = {
        "dataset": "digits",
        "algorithm": {"name": name, "nodes": 3, "updates_per_node": 4},
        "budget": {"epsilon": 10, "delta": 1e-4},
        "evaluation": "off",
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


@pytest.fixture
def command(registered: None, called_here: None, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The command in this process."""
    return partial(here, capsys)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", UNITS)
def test_it_is_listed_checked_and_run(site: Path, command: Callable[..., str], tmp_path: Path, name: str) -> None:
    path = written_spec(tmp_path, name)
    assert name in {one["name"] for one in json.loads(command("algorithms", "--json"))["algorithms"]}
    assert f"{name} on digits" in command("check", path)
    summary = json.loads(gossamer(site, "run", path, "--json", "--out", tmp_path / "out"))
    known, guarantee = summary["algorithm_code"], summary["privacy"]["guarantee"]
    assert (known["distribution"], known["version"], summary["updates"]) == ("my-fedasync", "1.0", 12)
    assert 0 < guarantee["epsilon"] <= 10
    assert any(line.startswith("the code of my-fedasync 1.0 is trusted") for line in guarantee["assumptions"])
    assert guarantee["unit"] == UNITS[name]


@pytest.mark.parametrize("name", UNITS)
def test_plan_says_that_check_knows(command: Callable[..., str], name: str) -> None:
    """Like `fedasync`, it has no command of its own among the plans."""
    assert f"{name} has no plan of its own; gossamer check SPEC says" in command("plan", name, code=2)


def test_settings_that_its_server_does_not_know_are_refused(command: Callable[..., str], tmp_path: Path) -> None:
    path = written_spec(tmp_path, "my_fedasync_clients")
    said = command("check", path, "--set", "algorithm.learning_rate=0.5", code=2)
    assert "algorithm.learning_rate: models are mixed in one by one" in said


@pytest.mark.some(1)
@pytest.mark.parametrize("name", UNITS)
def test_it_keeps_what_must_hold_in_spite_of_faults(command: Callable[..., str], tmp_path: Path, name: str) -> None:
    found = command("simulate-faults", written_spec(tmp_path, name), "--seeds", (seeds := examples(40)))
    assert found == f"{name}: {seeds} seeds from 0 on, and everything held\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", UNITS)
def test_it_runs_in_a_federation(site: Path, tmp_path: Path, name: str) -> None:
    """Processes over the embedded broker, whose owners' policies allow this code and no other."""
    pytest.importorskip("amqtt", reason="needs the extra broker")
    pytest.importorskip("cryptography", reason="needs the extra secure")
    path = written_spec(tmp_path, name)
    found = json.loads(gossamer(site, "up", path, "--set", "evaluation=null", "--out", tmp_path / "up", "--json"))
    assert found["parties"]["server"]["finished"] == "all clients left"
    for client in ("node-0", "node-1", "node-2"):
        party = found["parties"][client]
        assert (party["finished"], party["privacy"]["releases"]) == ("quota", 4)
        allowed = yaml.safe_load((tmp_path / "up" / client / "policy.yaml").read_text())["modules"]
        assert [code.partition("@")[0] for code in allowed] == ["my-fedasync==1.0"]
