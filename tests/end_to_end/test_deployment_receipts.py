"""Receipts of real processes: whole after kills, signed, verified; and a ledger that was put back is noticed."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import Parties, experiment, parties, until

from gossamer.cli import main
from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.deployment.party.store import MEMORY
from gossamer.keys.identity import Identity
from gossamer.runtimes.mqtt.broker import EmbeddedBroker

GOSSIP = """
dataset: digits
algorithm: {name: gossip, nodes: 3, topology: complete, batch_size: 32, updates_per_node: %d}
budget: {epsilon: 20, delta: 1.0e-4}
links: {retry_after: 0.5}
"""
BY_SERVERS = {
    "units": """
dataset: digits
algorithm: {name: graph_federated, units: 2, agents: 2, local_steps: 1, batch_size: 4, rounds: 2, topology: complete}
privacy: {clip: 1.0}
budget: {epsilon: 20, delta: 1.0e-4}
""",
    "trusted server": """
dataset: digits
algorithm: {name: fedavg, nodes: 2, local_steps: 1, batch_size: 8, rounds: 2, noise_by: server, trusted: server}
privacy: {clip: 1.0}
budget: {epsilon: 20, delta: 1.0e-4}
""",
}
"""Runs of which servers release what is others'."""
A, B, C = "node-0", "node-1", "node-2"


def ledger(there: Parties, name: str) -> Path:
    """The ledger of a party's owner."""
    return there.federation.folder / name / "policy.ledger"


def asked(there: Parties, name: str, what: str) -> int:
    """A number in the ledger; 0 while it is not made."""
    place = f"file:{ledger(there, name)}?mode=ro"
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(place, uri=True)) as file:
        return int(file.execute(f"SELECT {what}").fetchone()[0] or 0)
    return 0


def receipts(there: Parties, name: str) -> int:
    """How many receipts the ledger has."""
    return max(0, asked(there, name, "count(*) - 1 FROM receipt"))


def witnessed(there: Parties, name: str, more_than: int) -> None:
    """Wait until a peer has countersigned more receipts of a party."""
    until(lambda: asked(there, name, "max(releases) FROM countersignature") > more_than, f"{name} to be witnessed")


def moved(there: Parties, name: str, to: Path) -> Path:
    """Put the ledger elsewhere."""
    to.mkdir()
    for file in ledger(there, name).parent.glob("policy.ledger*"):
        shutil.move(file, to)
    return to


def put_back(there: Parties, name: str, copy: Path) -> None:
    for file in copy.iterdir():
        shutil.copy(file, ledger(there, name).parent)


@pytest.mark.nightly
@pytest.mark.slow
def test_receipts_are_whole_after_kills_and_an_old_ledger_is_noticed(
    tmp_path: Path, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    federation = LocalFederation.found(experiment(GOSSIP % 3000), tmp_path / "f", broker.url)
    with parties(federation, ("--gone-after", "60", "--wait", "20", "--connect-timeout", "60")) as there:
        there.start()
        witnessed(there, A, 0)
        there.kill(A)
        old = moved(there, A, tmp_path / "old")
        put_back(there, A, old)
        there.start(A)
        witnessed(there, A, receipts(there, A))
        there.kill(A)
        new = moved(there, A, tmp_path / "new")
        put_back(there, A, old)
        for file in there.folder(A).path.glob(f"{MEMORY}*"):
            file.unlink()  # so that its peers alone know
        before = receipts(there, A)
        there.start(A, more=("--believe-store",))
        assert there.join(A) == {A: 2}
        assert f"{A}: this is not the newest ledger: " in there.output(A)
        assert receipts(there, A) == before, "nothing was charged"
        moved(there, A, tmp_path / "older")
        put_back(there, A, new)
        there.start(A)
        there.finish()
        for name in there.names:
            assert main(["verify", str(there.folder(name).path), "--json"]) == 0
            found = json.loads(capsys.readouterr().out)
            card = json.loads((there.folder(name).path / "guarantee.json").read_text(encoding="utf-8"))
            fingerprint = Identity.load(there.federation.folder / name / "identity.key").public_key.fingerprint
            assert found["signer"] == fingerprint
            assert found["parties"] == [name]
            assert (found["head"], found["releases"]) == (card["receipts"]["head"], receipts(there, name))
            assert [one["verdict"] for one in found["guarantees"]] == [f"follows, for {name} alone"]
            assert "other receipts" not in there.output(name)
        lines = (there.folder(A).path / "receipts.jsonl").read_text(encoding="utf-8").splitlines()
        assert "guarantee" in json.loads(lines[-2])  # the line before the end binds what guarantee.json says
        one = json.loads(lines[-3])
        assert set(one) == {"chain", "of", "number", "query", "law", "clip", "time", "nonce"}
        assert (one["of"], one["number"], one["time"]) == (A, receipts(there, A), None)
        signed = json.loads(lines[-1])
        lines[-1] = json.dumps(signed | {"signature": signed["signature"][::-1]})
        (broken := tmp_path / "broken.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        assert main(["verify", str(broken)]) == 2
        assert f"line {len(lines)}: InvalidSignature" in capsys.readouterr().err
        assert main(["data", "show", str(ledger(there, A).with_name("policy.yaml"))]) == 0
        shown = capsys.readouterr().out
        assert f"/{A}: {receipts(there, A):,}\n" in shown, shown
        assert f"{B} has countersigned" in shown, shown


@pytest.mark.slow
@pytest.mark.parametrize("kind", BY_SERVERS)
def test_what_servers_release_of_others_is_verified_as_it_was_written(
    kind: str, tmp_path: Path, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    federation = LocalFederation.found(experiment(BY_SERVERS[kind]), tmp_path / "f", broker.url)
    with parties(federation) as there:
        there.start()
        there.finish()
        for name in there.names:
            place = there.folder(name).path
            code = main(["verify", str(place), "--json"])
            said = capsys.readouterr()
            if kind == "units" and "server" not in name:
                assert (code, "that server's" in said.err) == (2, True)
                continue
            assert code == 0, said.out
            (first, *others) = json.loads(said.out)["guarantees"]
            assert first["verdict"] == f"follows, for {name} alone"
            assert {one["verdict"] for one in others} <= {first["verdict"], "promises nothing"}
