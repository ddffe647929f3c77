"""A server that clients trust with their updates, in real processes: whose policy allows it, and what is charged."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.end_to_end.test_deployment_refusals import Party
from tests.reference.deployments import Parties, charge, check_lives, experiment, keep_history, parties, until
from tests.reference.founded_broker import free_port

from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.protocol.effects import Send
from gossamer.protocol.events import Answered, Completed
from gossamer.runtimes.mqtt.broker import HOST, EmbeddedBroker
from gossamer.runtimes.storage.ledger import LedgerFile
from gossamer.runtimes.storage.store import SqliteStore
from gossamer.vectors import Confined

pytestmark = [
    pytest.mark.usefixtures("called_here"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:fedbuff. with noise_by:gossamer.errors.RunWarning"),
]

SPEC = """
dataset: digits
algorithm: {%s, nodes: 3, noise_by: server, trusted: server, local_steps: 2, batch_size: 8}
privacy: {clip: 0.5}
budget: {epsilon: 8, delta: 1.0e-4}
links: {retry_after: 0.5}
"""
FEDAVG, FEDBUFF = "name: fedavg, rounds: %d, clients_per_round: 2", "name: fedbuff, buffer: 2, updates_per_node: %d"
A, SERVER = "node-0", "server"


@pytest.fixture
def party(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Party:
    """A client of a federation whose broker is not there."""
    spec = experiment(SPEC % (FEDAVG % 4))
    return Party(LocalFederation.found(spec, tmp_path / "f", f"mqtt://{HOST}:{free_port()}"), A, capsys)


def fingerprint(party: Party) -> str:
    policy: str = (party.place / "policy.yaml").read_text()
    return policy.rpartition("trusted_servers:\n- ")[2].strip()


def test_a_client_whose_owner_names_no_server_does_not_join(party: Party) -> None:
    policy, known = party.place / "policy.yaml", fingerprint(party)
    text = policy.read_text()
    policy.write_text(text.partition("trusted_servers")[0])
    said = party.refuses()
    assert "trusted_servers (not in the file, so its default counts)" in said
    assert f"the run asks for single updates without noise to be shown to server ({known}); allowed: them to be" in said
    policy.write_text(text.replace(known, "4ea1-7d0c-93b2-5510-c7fe-0b1a-88d4-2e6f"))
    said = party.refuses()
    assert f"line {text[: text.index('trusted_servers')].count(chr(10)) + 1}, trusted_servers" in said
    assert "allowed: them to be shown to 4ea1-7d0c" in said


def test_a_name_is_no_fingerprint(party: Party) -> None:
    policy = party.place / "policy.yaml"
    policy.write_text(policy.read_text().replace(fingerprint(party), "server"))
    assert "trusted_servers.0: a fingerprint is eight groups of four hexadecimal digits" in party.refuses()


def test_runs_with_trusted_servers_add_up_in_the_ledger_of_the_data(party: Party, tmp_path: Path) -> None:
    """A second run, of another federation, finds what the first one may reveal in the ledger, and does not fit."""
    charge(party.federation, A)
    spec = party.federation.prepared.experiment
    other = LocalFederation.found(spec, tmp_path / "g", f"mqtt://{HOST}:{free_port()}")
    policy = other.folder / A / "policy.yaml"
    policy.write_text(policy.read_text() + f"ledger: {party.place / 'policy.ledger'}\n")
    file = LedgerFile(party.place / "policy.ledger")
    before = file.spent(A)
    file.close()
    assert before > 0
    said = Party(other, A, party.capsys).refuses(code=3)
    assert "data set 'node-0' has spent 100 % of its budget" in said
    assert "fits into the rest of neither" in said


def test_data_are_in_a_sum_once(party: Party) -> None:
    """Two clients with the same data move a sum twice as far: four times the squared loss, for two charges."""
    policy = party.place / "policy.yaml"
    policy.write_text(re.sub("epsilon: .*", "epsilon: 100", policy.read_text()))

    charge(party.federation, A)
    code, said = party.started("node-1")
    assert "node-1: examples of data set 'node-0' are in this run already, at node-0" in said
    assert (code, len(said.splitlines())) == (2, 1)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [FEDAVG % 150, FEDBUFF % 150], ids=["fedavg", "fedbuff"])
def test_kills_charge_no_less_than_was_released(algorithm: str, tmp_path: Path, broker: EmbeddedBroker) -> None:
    """Of the server and of a client: both ledgers cover all that was shown, and nothing raw gets to another client."""
    spec = experiment(SPEC.replace("epsilon: 8", "epsilon: 800") % algorithm)
    with parties(LocalFederation.found(spec, tmp_path / "f", broker.url)) as there:
        keep_history(there)
        there.start()
        for name in (SERVER, A, SERVER):
            before = there.updates(A)
            until(lambda before=before: there.updates(A) > before or there.updates(A) < before, "updates")
            there.kill(name)
            there.start(name)
        there.finish()
        lives = check_lives(there, {SERVER: 2, A: 1})
        assert sum(isinstance(step.event, Completed) for step in lives[SERVER].steps) > 50
        for name in (name for name in there.names if name != SERVER):
            raw = [step.event.vector for step in lives[name].steps if isinstance(step.event, Answered)]
            assert len(raw) > 50
            assert {type(vector) for vector in raw} == {Confined}
            shown = [effect for step in lives[name].steps for effect in step.effects if isinstance(effect, Send)]
            assert {effect.to for effect in shown} == {SERVER}
            secret = np.asarray(raw[-1].values).tobytes()
            for other in there.names:
                held = [path.read_bytes() for path in (there.federation.folder / other).rglob("*") if path.is_file()]
                found = any(secret in content for content in held)
                assert not found or other in (name, SERVER), f"{other} has an update of {name}"
            for file in ("status.json", "node.log", "private.jsonl", "summary.json"):
                path = there.folder(SERVER).path / file
                assert not path.exists() or secret not in path.read_bytes()


@pytest.mark.slow
def test_a_server_with_an_older_state_is_refused(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """Else it would add other noise to sums that it has released before.

    A server that has nothing under way says nothing when it comes back, and nothing comes of it: so the older state is
    one with messages under way, which clients have long had when they come again.
    """
    spec = experiment(SPEC.replace("epsilon: 8", "epsilon: 8000") % (FEDAVG % 3000))
    with parties(LocalFederation.found(spec, tmp_path / "f", broker.url)) as there:
        there.start()
        until(lambda: there.updates(A) > 2, "updates")
        there.kill(SERVER)
        while not under_way(there, SERVER):
            there.start(SERVER)
            goes_on(there, 1)
            there.kill(SERVER)
        state = there.folder(SERVER).path
        shutil.copytree(state, tmp_path / "older")
        there.start(SERVER)
        goes_on(there, 4)
        there.kill(SERVER)
        shutil.rmtree(state)
        shutil.copytree(tmp_path / "older", state)
        there.start(SERVER)
        assert there.join(SERVER) == {SERVER: 2}
        assert "this is not the newest state of the node" in there.output(SERVER)


def under_way(there: Parties, name: str) -> bool:
    """Whether a node without a process had sent what was not acknowledged."""
    agreed = there.agreed(name)
    store = SqliteStore(there.folder(name).path / "store.sqlite", agreed.invitation.run, name)
    try:
        return any(link.under_way for link in agreed.host(store).session.links.values())
    finally:
        store.close()


def goes_on(there: Parties, updates: int) -> None:
    """Wait until each client has made so many updates more; what it said before does not count."""
    began = time.time()
    clients = [name for name in there.names if name != SERVER]
    until(lambda: all(there.status(name)["written"] > began for name in clients), "clients to say something")
    before = {name: there.updates(name) for name in clients}
    until(lambda: all(there.updates(name) >= before[name] + updates for name in clients), "more updates")
