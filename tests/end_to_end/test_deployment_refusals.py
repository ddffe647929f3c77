"""What a node does not begin with, or go on with: one clear line, an exit code, nothing joined and nothing lost."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import (
    LONG,
    charges,
    check_answers,
    check_delivery,
    check_lives,
    experiment,
    keep_history,
    life,
    parties,
    until,
)
from tests.reference.founded_broker import FoundedBroker, free_port

from gossamer.cli import main
from gossamer.cli.federation.local_federation import OUTPUT, LocalFederation
from gossamer.deployment.founding.founding import found
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import invite, read_signed
from gossamer.protocol.events import Completed
from gossamer.runtimes.mqtt.broker import HOST, EmbeddedBroker, Mosquitto
from gossamer.runtimes.storage.store import SqliteStore

pytestmark = [
    pytest.mark.usefixtures("called_here"),
    # paho leaves the socket to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SPEC = """
dataset: digits
algorithm: {name: audp, nodes: 2, batch_size: 32, updates_per_node: %d}
budget: {epsilon: 10, delta: 1.0e-4}
links: {retry_after: 0.5}
"""
A, B = "node-0", "node-1"


class Party:
    """A party's folder, and its command."""

    def __init__(self, federation: LocalFederation, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.place, self.capsys = federation.folder / name, capsys
        self.federation, self.name = federation, name

    def refuses(self, *more: object, code: int = 2, without: str = "") -> str:
        """The one line with which the command ends; whatever was there before is there, and nothing else."""
        arguments = self.federation.command(self.name, *map(str, more))
        if without:
            at = arguments.index(without)
            del arguments[at : at + 2]
        before = self.kept()
        assert main(arguments) == code
        assert self.kept() == before, "something was joined, spent or lost"
        lines = self.capsys.readouterr().err.splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("gossamer: error: ")
        return lines[0]

    def started(self, name: str) -> tuple[int, str]:
        """Exit code and words of party ``name`` with the data and the policy of this one; no broker is there."""
        command = self.federation.command(name, "--connect-timeout", "0.1")
        for option, file in (("--policy", "policy.yaml"), ("--data", "data.npz")):
            command[command.index(option) + 1] = str(self.place / file)
        return main(command), self.capsys.readouterr().err

    def kept(self) -> dict[str, bytes]:
        """What a party must not lose, and what it makes when it takes part: its state folder is there or not."""
        names = ("policy.ledger", "policy.ledger.key", "state", "state/store.sqlite", "state/summary.json")
        places = {name: self.place / name for name in names if (self.place / name).exists()}
        return {name: place.read_bytes() if place.is_file() else b"" for name, place in places.items()}

    def store(self) -> Path:
        """A store of the node, as a process leaves it."""
        invitation = read_signed(self.place / "invitation.yaml")
        (self.place / "state").mkdir()
        key = Identity.load(self.place / "identity.key").secret("state")
        SqliteStore(self.place / "state" / "store.sqlite", invitation.run, self.name, key).close()
        return self.place / "state" / "store.sqlite"


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    """A federation whose broker is not there."""
    folder = tmp_path_factory.mktemp("refusals") / "f"
    return LocalFederation.found(experiment(SPEC % 20), folder, f"mqtt://{HOST}:{free_port()}")


@pytest.fixture
def party(founded: LocalFederation, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Party:
    """One that may do with its folder what it wants."""
    shutil.copytree(founded.folder, tmp_path / "f")
    own = LocalFederation(tmp_path / "f", founded.prepared, founded.plan, founded.members, founded.organiser)
    return Party(own, A, capsys)


# Papers


def test_an_invitation_for_another_key(party: Party) -> None:
    shutil.copy(party.place.parent / B / "invitation.yaml", party.place)
    assert "it is for node-1 with key" in party.refuses()


def test_an_invitation_that_was_tampered_with(party: Party) -> None:
    file = party.place / "invitation.yaml"
    text = file.read_text()
    assert "updates_per_node: 20" in text
    file.write_text(text.replace("updates_per_node: 20", "updates_per_node: 30"))
    assert "it was changed after the organiser signed it" in party.refuses()


def test_an_invitation_that_is_cut_off(party: Party) -> None:
    file = party.place / "invitation.yaml"
    file.write_bytes(file.read_bytes()[:500])
    assert str(file) in party.refuses()


def test_an_invitation_that_has_expired(party: Party) -> None:
    record = read_signed(party.place / "invitation.yaml")
    signer = Identity.load(party.place.parent / "organiser.key")
    now = datetime.now(UTC)
    again = invite(
        signer, record.broker, record.members, record.spec, now - timedelta(days=1), now - timedelta(days=2), record.run
    )
    (party.place / "invitation.yaml").write_text(again[A])
    assert "expired" in party.refuses()


def test_another_organisers_fingerprint(party: Party) -> None:
    other = Identity.generate().public_key.fingerprint
    arguments = ["--organiser", other]
    assert other in party.refuses(*arguments)


def test_an_organiser_that_nobody_names(party: Party) -> None:
    policy = party.place / "policy.yaml"
    policy.write_text(
        policy.read_text().replace("organisers:", "peers: null\norganisers: []\n#").replace("\n- ", "\n# - ")
    )
    assert "--organiser" in party.refuses(without="--organiser")


@pytest.mark.parametrize("name", ["invitation.yaml", "policy.yaml", "data.npz", "identity.key"])
def test_a_file_that_is_missing(party: Party, name: str) -> None:
    (party.place / name).unlink()
    assert str(party.place / name) in party.refuses()


@pytest.mark.parametrize(("option", "words"), [("--data", "needs --data"), ("--policy", "needs --policy")])
def test_an_option_that_is_missing(party: Party, option: str, words: str) -> None:
    policy = party.place / "policy.yaml"
    policy.write_text(policy.read_text().replace("path: data.npz", "path: null"))
    assert words in party.refuses(without=option)


def test_data_for_a_server(party: Party) -> None:
    server = Party(party.federation, "server", party.capsys)
    assert "has no examples; leave out --data" in server.refuses("--data", party.place / "data.npz")


# The owner's rules and data


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("algorithms:\n- audp", "algorithms:\n- gossip"),
        ("smallest_noise_multiplier: 0.0", "smallest_noise_multiplier: 50.0"),
        ("epsilon: ", "epsilon: 9.5 #"),
    ],
)
def test_a_policy_that_refuses(party: Party, rule: str, words: str) -> None:
    policy = party.place / "policy.yaml"
    text = policy.read_text()
    assert rule in text
    policy.write_text(text.replace(rule, words))
    key, line = rule.partition(":")[0], text[: text.index(rule)].count("\n") + 1
    said = party.refuses()
    assert "nothing was joined" in said
    assert key in said
    assert f"line {line}" in said
    assert main([one for one in party.federation.command(party.name) if one != "--quiet"]) == 2
    plans, refused = party.capsys.readouterr().err.splitlines()
    assert plans.endswith("plans the run's noise, which may take minutes")
    assert refused == said


@pytest.mark.parametrize("text", ["data: [", "unknown: 1\n", "", "\x00\x01"])
def test_a_policy_that_cannot_be_read(party: Party, text: str) -> None:
    policy = party.place / "policy.yaml"
    policy.write_text(text)
    assert str(policy) in party.refuses()


def test_another_number_of_examples(party: Party) -> None:
    with np.load(party.place / "data.npz") as data:
        arrays = {name: data[name][:-1] if len(data[name]) > 100 else data[name] for name in data.files}
    np.savez(party.place / "data.npz", **arrays)
    assert "examples, as this party has declared, found" in party.refuses()


def test_data_that_changed(party: Party) -> None:
    """Refused until the owner accepts them; what was spent stays spent."""
    start = party.federation.command(A, "--connect-timeout", "0.2")
    assert main(start) == 1  # the data are known from now on
    party.capsys.readouterr()
    with np.load(party.place / "data.npz") as data:
        arrays = {name: data[name].copy() for name in data.files}
    features = next(name for name, array in arrays.items() if array.ndim > 1)
    arrays[features][0] *= 0.5
    np.savez(party.place / "data.npz", **arrays)
    assert "changed: 1 example is new" in party.refuses()
    assert main(["data", "update", str(party.place / "policy.yaml"), "--name", A]) == 0
    party.capsys.readouterr()
    assert main(start) == 1
    assert "has had no connection to the broker" in party.capsys.readouterr().err
    assert main(["data", "show", str(party.place / "policy.yaml"), "--json"]) == 0
    assert json.loads(party.capsys.readouterr().out)


# The broker


def test_a_broker_that_is_not_there(party: Party, capsys: pytest.CaptureFixture[str]) -> None:
    """Tried again and again, and said once, until the time is up; nothing is charged, and no store is left."""
    began = time.monotonic()
    command = party.federation.command(A, "--connect-timeout", "2")
    command.remove("--quiet")
    assert main(command) == 1
    assert time.monotonic() - began >= 2
    lines = capsys.readouterr().err.splitlines()
    tries = [line for line in lines if "no connection to the broker" in line and "goes on trying" in line]
    assert len(tries) == 1
    errors = [line for line in lines if line.startswith("gossamer: error: ")]
    assert len(errors) == 1
    assert "is it running there, or is a longer --connect-timeout needed?" in errors[0]
    assert "nothing was charged, and no store was left" in errors[0]
    assert not (party.place / "state").exists()
    assert main(["data", "show", str(party.place / "policy.yaml"), "--json"]) == 0
    (data_set,) = json.loads(capsys.readouterr().out)["data_sets"]
    assert data_set["runs"] == []
    assert data_set["epsilon"] == 0.0


def test_a_node_that_fails_says_why_once(party: Party, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --quiet, too: on standard error by the command, and in node.log, which is there as long as a store is."""
    arguments = party.federation.command(A, "--connect-timeout", "0.1")
    arguments.remove("--quiet")
    assert main(arguments) == 1
    errors = capsys.readouterr().err
    assert errors.count("is it running there") == 1, errors
    assert errors.splitlines()[-1].startswith("gossamer: error: ")


def test_a_party_that_refuses_says_why_once_to_who_started_them_all(tmp_path: Path) -> None:
    (tmp_path / A).mkdir()
    (tmp_path / A / OUTPUT).write_text("gossamer: error: policy.yaml allows no such run\n", encoding="utf-8")
    ended: Any = SimpleNamespace(is_alive=lambda: False, exitcode=2)
    nothing: Any = None
    local = LocalFederation(tmp_path, nothing, nothing, (A,), "", processes={A: ended})
    said: list[str] = []
    ended.is_alive = iter((True, False, False)).__next__
    local._wait(said.append)
    assert said == [f"{A}: failed"]
    assert local.outcome().failed == {A: "policy.yaml allows no such run"}


def secured(tmp_path: Path) -> Path:
    """A federation over TLS."""
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    spec = SPEC % 20 + "privacy: {clip: 1}\n"
    found(tmp_path / "s", spec=spec, parties={"a": 80, "b": 60}, broker=f"mqtts://{HOST}:{free_port()}")
    return tmp_path / "s"


def serve(folder: Path) -> list[str]:
    """The command of the server's party."""
    organiser = read_signed(folder / "federation.yaml").organiser.fingerprint
    place = folder / "server"
    words = ["node", "--invitation", place / "invitation.yaml", "--organiser", organiser, "--quiet"]
    return [str(word) for word in words] + ["--connect-timeout", "15"]


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt"])
def test_tls_without_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    folder = secured(tmp_path)
    (folder / "server" / name).unlink()
    assert main(serve(folder)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"there is no {folder}/server/{name}" in line


@pytest.mark.slow
def test_a_broker_with_another_authoritys_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = secured(tmp_path)
    other = secured(tmp_path / "other")
    for name in ("broker.crt", "broker.key"):
        shutil.copy(other / "broker" / name, folder / "broker" / name)
    with FoundedBroker(folder):
        began = time.monotonic()
        assert main(serve(folder)) == 1
        assert time.monotonic() - began < 10, "there is nothing to wait for"
    (line,) = capsys.readouterr().err.splitlines()
    assert "its certificate is not the one expected" in line


@pytest.mark.slow
@pytest.mark.parametrize("federation", ["s", "other/s"], ids=["this federation", "another one"])
def test_a_certificate_that_is_another_partys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], federation: str
) -> None:
    """It is not for the key of this party's identity."""
    folder = secured(tmp_path)
    secured(tmp_path / "other")
    shutil.copy(tmp_path / federation / "a" / "tls.crt", folder / "server" / "tls.crt")
    with FoundedBroker(folder):
        assert main(serve(folder)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "certificate" in line


# Stores


def test_a_store_of_another_run(party: Party, founded: LocalFederation, tmp_path: Path) -> None:
    party.store()
    shutil.copy(party.place / "invitation.yaml", party.place / "state")
    other = LocalFederation.found(experiment(SPEC % 20), tmp_path / "other", f"mqtt://{HOST}:{free_port()}")
    for name in ("store.sqlite", "invitation.yaml"):
        (other.folder / A / "state").mkdir(exist_ok=True)
        shutil.copy(party.place / "state" / name, other.folder / A / "state" / name)
    assert "is the store of run" in Party(other, A, party.capsys).refuses()
    (other.folder / A / "state" / "store.sqlite").unlink()
    assert "another run than the one in the store; give another --store, if" in Party(other, A, party.capsys).refuses()


def test_a_store_of_a_newer_version(party: Party) -> None:
    with sqlite3.connect(party.store()) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    assert "written by a newer version of gossamer (format 99" in party.refuses()


@pytest.mark.parametrize("left", [0, 500])
def test_an_own_copy_of_the_invitation_that_a_power_cut_tore(party: Party, left: int) -> None:
    """It is the node's own file, so no organiser is blamed, and what the line says helps."""
    party.store()
    own, given = party.place / "state" / "invitation.yaml", party.place / "invitation.yaml"
    own.write_bytes(given.read_bytes()[:left])
    said = party.refuses()
    assert f"{own}: expected this node's own copy of the invitation that it last ran by" in said
    assert "copy that invitation there" in said
    shutil.copy(given, own)
    assert main(party.federation.command(A, "--connect-timeout", "0.1")) == 1
    assert "has had no connection to the broker" in party.capsys.readouterr().err


def test_a_key_that_a_power_cut_emptied(party: Party) -> None:
    (party.place / "identity.key").write_bytes(b"")
    assert "found an empty file, as a power cut can leave one" in party.refuses()


def test_a_store_that_is_something_else(party: Party) -> None:
    (party.place / "state").mkdir()
    (party.place / "state" / "store.sqlite").write_text("not a database, " * 100)
    assert "is no file of gossamer's" in party.refuses()


def test_a_node_that_shall_forget(party: Party) -> None:
    party.store()
    assert "leave out --no-resume" in party.refuses("--no-resume")


# While a process runs


@pytest.mark.nightly
@pytest.mark.slow
def test_a_second_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the same store it is refused at once. With another one it hears from its peers that its store is not the
    newest, and ends before it is charged anything; the first one, which the broker cuts off meanwhile, goes on."""
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    with Mosquitto() as broker:
        federation = LocalFederation.found(experiment(SPEC % 400), tmp_path / "f", broker.url)
        with parties(federation, ("--gone-after", "120")) as there:
            keep_history(there)
            there.start()
            until(lambda: there.updates(A) > 0, "updates")
            first = federation.processes[A]
            assert main(federation.command(A)) == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert f"process {first.pid} runs this node; stop it first" in line

            there.start(A, more=("--store", str(tmp_path / "twin")))
            assert there.join(A) == {A: 2}
            assert "twin: this is not the newest state of the node" in there.output(A)
            federation.processes[A] = first
            there.finish()
            lives = {name: life(there, name) for name in there.names}
            check_answers(lives)
            check_delivery(lives)
            given = sum(isinstance(step.event, Completed) for step in lives[A].steps)
            assert given <= (charges(there, A) or 0) <= 400


# A full disk


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """A party whose files cannot grow ends with a line, before it spends what it could not write down; with room again
    it goes on, and nothing is lost."""
    federation = LocalFederation.found(experiment(SPEC % 300), tmp_path / "f", broker.url)
    command = [sys.executable, "-m", "gossamer", *federation.command(A), "--gone-after", "60"]

    def cramp() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))

    with parties(federation, ("--gone-after", "60")) as there:
        keep_history(there)
        there.start(B, "server")
        cramped = subprocess.run(
            command, capture_output=True, text=True, preexec_fn=cramp, timeout=LONG, check=False, env=_environment()
        )
        assert cramped.returncode == 1
        (line,) = cramped.stderr.splitlines()
        assert "store.sqlite" in line
        assert "disk" in line
        assert there.status(A)["state"] == "failed"
        there.start(A)
        there.finish()
        check_lives(there, {A: 1})


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


BRANCHING = """
import torch
from torch import nn


class Branching(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, classes) for _ in range(2))

    def forward(self, x):
        return torch.stack([self.layers[row.sum().item() > 0](row) for row in x.flatten(1)])
"""


@pytest.mark.slow
def test_a_module_that_a_deployment_cannot_compute_is_charged_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="needs the extra torch")
    (tmp_path / "branching_module.py").write_text(BRANCHING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = (SPEC % 2).replace("audp", "gossip") + "objective: {module: 'branching_module:Branching'}\n"
    (tmp_path / "spec.yaml").write_text(spec)
    assert main(["up", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "up")]) != 0
    # Whoever says so first has the other ended, which may not have come as far.
    assert "a deployment needs gradients that are computed in the same way" in capsys.readouterr().err
    for name in (A, B):
        assert main(["data", "show", str(tmp_path / "up" / name / "policy.yaml")]) == 0
        assert "spent: 0 %" in capsys.readouterr().out
