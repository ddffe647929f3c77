"""An algorithm of a distribution outside the project, installed by its entry point: in every command, and refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.reference.outside import installed

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


def python(site: Path | None, *arguments: object) -> subprocess.CompletedProcess[str]:
    """What Python does with what is installed in ``site``."""
    paths = {"PYTHONPATH": os.pathsep.join([*([] if site is None else [str(site)])]), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **paths})


def gossamer(site: Path | None, *arguments: object) -> str:
    """What a command prints that goes well."""
    done = python(site, "-m", "gossamer", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(site: Path | None, *arguments: object) -> str:
    """The one line of a command that is the caller's mistake."""
    done = python(site, "-m", "gossamer", *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    return line.removeprefix("gossamer: error: ")


def code(site: Path) -> dict[str, Any]:
    """What the list of algorithms says of it."""
    (found,) = (
        one for one in json.loads(gossamer(site, "algorithms", "--json"))["algorithms"] if one["name"] == "mean"
    )
    assert found["problem"] is None
    return dict(found)


def test_it_keeps_the_contract(site: Path, tmp_path: Path) -> None:
    """As its author would test it, in a project of their own."""
    (tmp_path / "test_mean.py").write_text(CONTRACT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = python(site, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 20


def test_it_runs(site: Path, spec: Path, tmp_path: Path) -> None:
    summary = json.loads(gossamer(site, "run", spec, "--json", "--out", tmp_path / "out"))
    reference = code(site)["code"]
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
    assert "mean on digits" in gossamer(site, "check", spec)


def test_it_keeps_what_must_hold_in_spite_of_faults(site: Path, spec: Path) -> None:
    assert gossamer(site, "simulate-faults", spec, "--seeds", 40) == "mean: 40 seeds from 0 on, and everything held\n"


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


def test_what_is_not_installed_is_an_unknown_name(spec: Path) -> None:
    known = "allreduce, asgd, audp, csgd, fedbuff, gossip, graph_federated, increasing, mapa"
    assert refusal(None, "run", spec) == f"{spec}: algorithm: unknown name 'mean'; expected one of {known}"


def test_mistakes_in_its_settings_are_said_as_of_any_other(site: Path, spec: Path) -> None:
    for setting, said in (
        ("algorithm.batch_sise=3", "unknown key algorithm.batch_sise; did you mean batch_size?"),
        ("algorithm.learning_rate=-1", "algorithm.learning_rate: input should be greater than 0, found -1"),
        ("algorithm.name=maen", "algorithm: unknown name 'maen'; did you mean mean?"),
    ):
        assert refusal(site, "check", spec, "--set", setting) == f"{spec}: {said}"
    assert "mean has no plan of its own" in refusal(site, "plan", "mean")


class TestInAFederation:
    """Deployed parties, whose owners' policies list it or do not."""

    @pytest.fixture(scope="class")
    def folder(self, site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Of a federation that has run over the embedded broker."""
        pytest.importorskip("amqtt", reason="needs the extra broker")
        pytest.importorskip("cryptography", reason="needs the extra secure")
        place = tmp_path_factory.mktemp("up")
        (place / "spec.yaml").write_text(SPEC)
        found = json.loads(gossamer(site, "up", place / "spec.yaml", "--out", place / "up", "--json"))
        assert not found["failed"]
        for name in ("node-0", "node-1"):
            assert found["parties"][name]["finished"] in ("quota", "halt")
            assert found["parties"][name]["privacy"]["releases"] == 6
            policy = yaml.safe_load((place / "up" / name / "policy.yaml").read_text())
            assert policy["modules"] == [code(site)["code"]]
            assert policy["modules"] == [self.reference(found["parties"][name])]
        return place / "up"

    @staticmethod
    def reference(summary: dict[str, Any]) -> str:
        known = summary["algorithm_code"]
        return f"{known['distribution']}=={known['version']}@sha256:{known['sha256']}"

    def node(self, folder: Path, modules: list[str], tmp_path: Path) -> list[object]:
        """The command of a party whose policy lists these modules."""
        place, policy = folder / "node-0", tmp_path / "policy.yaml"
        rules = yaml.safe_load((place / "policy.yaml").read_text())
        policy.write_text(yaml.safe_dump({**rules, "modules": modules, "algorithms": ["mean"], "roles": ["client"]}))
        options = ["--policy", policy, "--data", place / "data.npz", "--store", tmp_path / "state", "--wait", 0]
        return ["node", "--invitation", place / "invitation.yaml", *options]

    def test_it_runs(self, folder: Path) -> None:
        summary = json.loads((folder / "server" / "state" / "summary.json").read_text())
        assert summary["algorithm"] == "mean"
        assert summary["finished"] == "all clients left"

    @pytest.mark.parametrize("modules", [[], ["other"], ["mean-of-gradients==1.1"]])
    def test_a_party_that_does_not_allow_it_refuses_before_any_of_its_code_runs(
        self, folder: Path, tmp_path: Path, modules: list[str]
    ) -> None:
        """It has another source here, which leaves a mark if it is imported."""
        site = installed("mean_of_gradients", tmp_path / "marked")
        source = site / "mean_of_gradients.py"
        source.write_text(source.read_text() + MARK)
        said = refusal(site, *self.node(folder, modules, tmp_path))
        assert said == (
            f"{folder / 'node-0' / 'invitation.yaml'}: the spec of the invitation: algorithm: mean would have code run "
            "on this machine, of mean-of-gradients 1.0; if that is the algorithm that was agreed on and you trust it, "
            f"allow it (modules: in the policy, or --module {code(site)['code']})"
        )
        shown = refusal(site, "federation", "show", folder / "node-0" / "invitation.yaml")
        assert "algorithm: mean would have code run on this machine, of mean-of-gradients 1.0; " in shown
        assert not (site / "was_imported").exists()
        assert not (tmp_path / "state").exists()
        allowed = ("--module", "mean-of-gradients")
        gossamer(site, "federation", "show", folder / "node-0" / "invitation.yaml", *allowed)
        assert (site / "was_imported").exists()

    def test_a_party_that_pins_another_source_refuses(self, site: Path, folder: Path, tmp_path: Path) -> None:
        pinned = code(site)["code"]
        other = installed("mean_of_gradients", tmp_path / "other")
        (other / "mean_of_gradients.py").write_text((other / "mean_of_gradients.py").read_text() + "\n")
        assert code(other)["code"] != pinned
        assert code(other)["code"] in refusal(other, *self.node(folder, [pinned], tmp_path))

    def test_a_party_that_has_not_installed_it(self, folder: Path, tmp_path: Path) -> None:
        """Its policy speaks of an algorithm that nobody knows there; without that its invitation does."""
        command = self.node(folder, ["mean-of-gradients"], tmp_path)
        assert "algorithms: unknown name 'mean'" in refusal(None, *command)
        policy = tmp_path / "policy.yaml"
        rules = yaml.safe_load(policy.read_text())
        policy.write_text(
            yaml.safe_dump({key: rule for key, rule in rules.items() if key not in ("algorithms", "roles")})
        )
        assert "the spec of the invitation: algorithm: unknown name 'mean'" in refusal(None, *command)
