"""An algorithm of a distribution outside the project, installed by its entry point: in every command, and refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.reference.outside import gossamer, here, installed, python

from gossamer.algorithms.table import KIND, OWN

SPEC = """
dataset: digits
algorithm: {name: mean, nodes: 2, updates_per_node: 6}
budget: {epsilon: 10, delta: 1.0e-4}
evaluation: off
"""
CONTRACT = """
from typing import Any, ClassVar
from mean_of_gradients import Settings
from gossamer.testing.contracts import AlgorithmContract


class TestMean(AlgorithmContract):
    settings: ClassVar[Any] = Settings(nodes=4)
"""
MARK = "from pathlib import Path\nPath(__file__).with_name('was_imported').touch()\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that it is installed in."""
    return installed("mean_of_gradients", tmp_path_factory.mktemp("outside"))


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def without(called_here: None, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The command in this process, where nobody installed it."""
    return partial(here, capsys)


@pytest.fixture
def command(without: Callable[..., str], site: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The command in this process, where it is installed."""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setitem(vars(KIND), "loaded", {})
    return without


def refusal(site: Path | None, *arguments: object) -> str:
    """The one line of a command that is the caller's mistake."""
    done = python(site, "-m", "gossamer", *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    return line.removeprefix("gossamer: error: ")


def code(site: Path) -> dict[str, Any]:
    """What the list of algorithms says of it."""
    return listed(gossamer(site, "algorithms", "--json"))


def listed(output: str) -> dict[str, Any]:
    (found,) = (one for one in json.loads(output)["algorithms"] if one["name"] == "mean")
    assert found["problem"] is None
    return dict(found)


@pytest.mark.slow
def test_it_keeps_the_contract(site: Path, tmp_path: Path) -> None:
    """As its author would test it, in a project of their own."""
    (tmp_path / "test_mean.py").write_text(CONTRACT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = python(site, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 20


def test_it_runs(site: Path, command: Callable[..., str], spec: Path, tmp_path: Path) -> None:
    """In a process of its own, which finds the code that is listed here."""
    summary = json.loads(gossamer(site, "run", spec, "--json", "--out", tmp_path / "out"))
    reference = listed(command("algorithms", "--json"))["code"]
    assert summary["algorithm"] == "mean"
    known = summary["algorithm_code"]
    assert reference == f"{known['distribution']}=={known['version']}@sha256:{known['sha256']}"
    assert (known["distribution"], known["version"], len(known["sha256"])) == ("mean-of-gradients", "1.0", 64)
    assert summary["updates"] == 12
    assert summary["mean"] == {"steps": 12}
    assert 0 < summary["privacy"]["guarantee"]["epsilon"] <= 10
    trusted = (
        "the code of mean-of-gradients 1.0 is trusted: its algorithm plans all that it releases, and sends nothing else"
    )
    assert trusted in summary["privacy"]["guarantee"]["assumptions"]
    assert "mean on digits" in command("check", spec)


@pytest.mark.slow
def test_it_keeps_what_must_hold_in_spite_of_faults(site: Path, spec: Path) -> None:
    assert gossamer(site, "simulate-faults", spec, "--seeds", 40) == "mean: 40 seeds from 0 on, and everything held\n"


@pytest.mark.slow
def test_noise_depends_on_its_source(site: Path, spec: Path, tmp_path: Path) -> None:
    """Reproducible noise is the same again, and another once a byte of the source is."""
    other = tmp_path / "other"
    other.mkdir()
    for path in site.rglob("*"):
        target = other / path.relative_to(site)
        target.mkdir() if path.is_dir() else target.write_bytes(path.read_bytes())

    def model(where: Path, name: str) -> bytes:
        gossamer(where, "run", spec, "--reproducible", "--out", tmp_path / name)
        return (tmp_path / name / "model.safetensors").read_bytes()

    first = model(site, "first")
    assert model(other, "again") == first
    with (other / "mean_of_gradients.py").open("a") as file:
        file.write("# changed\n")
    assert model(other, "changed") != first


def test_what_is_not_installed_is_an_unknown_name(without: Callable[..., str], spec: Path) -> None:
    known = ", ".join(sorted(OWN))
    assert without("run", spec, code=2) == f"{spec}: algorithm: unknown name 'mean'; expected one of {known}"


def test_mistakes_in_its_settings_are_said_as_of_any_other(command: Callable[..., str], spec: Path) -> None:
    for setting, said in (
        ("algorithm.batch_sise=3", "unknown key algorithm.batch_sise; did you mean batch_size?"),
        ("algorithm.learning_rate=-1", "algorithm.learning_rate: input should be greater than 0, found -1"),
        ("algorithm.name=maen", "algorithm: unknown name 'maen'; did you mean mean?"),
    ):
        assert command("check", spec, "--set", setting, code=2) == f"{spec}: {said}"
    assert "mean has no plan of its own" in command("plan", "mean", code=2)


# Deployed parties, whose owners' policies list it or do not


@pytest.mark.slow
def test_it_runs_in_a_federation(site: Path, spec: Path, tmp_path: Path) -> None:
    """Processes over the embedded broker, whose owners' policies allow this code and no other."""
    pytest.importorskip("amqtt", reason="needs the extra broker")
    pytest.importorskip("cryptography", reason="needs the extra secure")
    found = json.loads(gossamer(site, "up", spec, "--out", tmp_path / "up", "--json"))
    assert found["metrics"]["test_accuracy"] > 0
    assert {name: party["finished"] for name, party in found["parties"].items()}["server"] == "all clients left"
    for name in ("node-0", "node-1"):
        party = found["parties"][name]
        assert (party["finished"], party["privacy"]["releases"]) == ("quota", 6)
        known = party["algorithm_code"]
        policy = yaml.safe_load((tmp_path / "up" / name / "policy.yaml").read_text())
        assert policy["modules"] == [f"{known['distribution']}=={known['version']}@sha256:{known['sha256']}"]
        assert policy["modules"] == [code(site)["code"]]


@pytest.fixture(scope="module")
def invited(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a party that is invited to a run of it, by an organiser who has installed it."""
    pytest.importorskip("cryptography", reason="needs the extra secure")
    place = tmp_path_factory.mktemp("founded")
    (place / "spec.yaml").write_text(SPEC)
    options = ["--spec", place / "spec.yaml", "--nodes", "a,b", "--examples", "a=400,b=300"]
    new = gossamer(site, "federation", "new", place / "f", *options, "--broker", "mqtt://127.0.0.1:1", "--json")
    rules = {
        "data": {"wards": {"path": "wards.csv", "epsilon": 10, "delta": 1e-4}},
        "organisers": [json.loads(new)["organiser"]],
        "algorithms": ["mean"],
    }
    (place / "f" / "a" / "policy.yaml").write_text(yaml.safe_dump(rules))
    return place / "f" / "a"


def node(invited: Path, modules: list[str], tmp_path: Path) -> list[object]:
    """The command of the party, with a policy that lists these modules."""
    policy = tmp_path / "policy.yaml"
    rules = yaml.safe_load((invited / "policy.yaml").read_text())
    policy.write_text(yaml.safe_dump({**rules, "modules": modules}))
    return ["node", "--invitation", invited / "invitation.yaml", "--policy", policy, "--store", tmp_path / "state"]


def test_a_party_that_does_not_allow_it_refuses_before_any_of_its_code_runs(
    site: Path, invited: Path, tmp_path: Path
) -> None:
    """It has another source here, which leaves a mark if it is imported."""
    site = Path(shutil.copytree(site, tmp_path / "marked", ignore=shutil.ignore_patterns("__pycache__")))
    source, mark, invitation = site / "mean_of_gradients.py", site / "was_imported", invited / "invitation.yaml"
    source.write_text(source.read_text() + MARK)
    command = node(invited, ["mean-of-gradients==1.1"], tmp_path)
    assert refusal(site, *command) == (
        f"{invitation}: the spec of the invitation: algorithm: mean would have code run on this machine, of "
        "mean-of-gradients 1.0; if that is the algorithm that was agreed on and you trust it, allow it "
        f"(modules: in the policy, or --module {code(site)['code']})"
    )
    assert "mean would have code run on this machine" in refusal(site, "federation", "show", invitation)
    assert not mark.exists()
    assert not (tmp_path / "state").exists()
    gossamer(site, "federation", "show", invitation, "--module", "mean-of-gradients")
    assert mark.exists()


def test_a_party_that_has_not_installed_it(without: Callable[..., str], invited: Path, tmp_path: Path) -> None:
    """Its policy speaks of an algorithm that nobody knows there."""
    assert "algorithms: unknown name 'mean'" in without(*node(invited, ["mean-of-gradients"], tmp_path), code=2)
