"""``gossamer federation stop`` and ``remove``, as the organiser and parties see it, with a process for each party."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import Parties, experiment, parties, until
from tests.reference.founded_broker import FoundedBroker, free_port

from gossamer.cli import main
from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.keys.identity import Identity
from gossamer.runtimes.mqtt.broker import EmbeddedBroker

SPEC = """
dataset: digits
algorithm: {name: gossip, nodes: 3, topology: complete, batch_size: 32, updates_per_node: 20000}
budget: {epsilon: 100, delta: 1.0e-4}
links: {retry_after: 0.5}
"""
SERVED = """
dataset: digits
algorithm: {name: fedbuff, nodes: 2, batch_size: 32, buffer: 1, local_steps: 1, updates_per_node: 20000}
budget: {epsilon: 100, delta: 1.0e-4}
links: {retry_after: 0.5}
"""
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("called_here")]


@pytest.fixture
def there(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[Parties]:
    federation = LocalFederation.found(experiment(SPEC), tmp_path / "f", broker.url)
    with parties(federation, ("--connect-timeout", "60")) as there:
        yield there


def allow(there: Parties, *names: str) -> None:
    for name in names:
        policy = there.federation.folder / name / "policy.yaml"
        policy.write_text(f"{policy.read_text()}organiser_may_stop: yes\n")


def test_parties_end_whose_policies_allow_it_and_do_not_begin_again(
    there: Parties, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = there.federation.folder
    allow(there, "node-0", "node-1")
    there.start()
    until(lambda: all(there.updates(name) > 2 for name in there.names), "all to run")
    assert main(["federation", "stop", str(folder), "--wait", "60"]) == 1
    said = capsys.readouterr()
    rows = {line.split()[0]: line for line in said.out.splitlines() if line.startswith("node-")}
    assert all(" stopped by the organiser " in rows[name] for name in ("node-0", "node-1"))
    assert "WARNING: node-2 the organiser has given the order: stop; its policy does not allow that" in said.out
    assert "node-2 did not end in time, if heard at all." in said.err
    there.join("node-0", "node-1")
    for name in ("node-0", "node-1"):
        state = there.folder(name)
        assert state.status()["state"] == "finished"
        assert state.status()["finished"] == "stopped by the organiser"
        summary = json.loads((state.path / "summary.json").read_text())
        # Every release that was charged has its receipt, and the ledger has no more than was planned.
        head = json.loads((state.path / "guarantee.json").read_text())["receipts"]
        assert head["releases"] == summary["privacy"]["releases"] < summary["privacy"]["planned_releases"]
        assert (state.path / "model.safetensors").exists()
    assert there.status("node-2")["process"] is not None
    before = there.updates("node-2")
    until(lambda: there.updates("node-2") > before, "it to go on")

    charged = there.status("node-0")["releases"]
    there.start("node-0")
    there.join("node-0")
    assert "makes no more updates: stopped by the organiser" in there.log("node-0").partition("goes on in run")[2]
    assert there.status("node-0")["releases"] == charged
    assert there.status("node-0")["finished"] == "stopped by the organiser"


def in_ledger(there: Parties, name: str, what: str) -> int:
    with closing(sqlite3.connect(there.federation.folder / name / "policy.ledger")) as ledger:
        return int(ledger.execute(f"SELECT {what}").fetchone()[0])


def receipts(there: Parties, name: str) -> int:
    """Number of characters of the receipts that the ledger has: each release that is charged has one."""
    return in_ledger(there, name, "TOTAL(LENGTH(lines)) FROM receipt")


def test_a_run_is_paused_and_resumed(there: Parties, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is charged meanwhile, after a kill neither, and the pause that comes once more after its end is past."""
    folder = there.federation.folder
    allow(there, *there.names)
    there.start()
    until(lambda: all(there.updates(name) > 2 for name in there.names), "all to run")
    assert main(["federation", "pause", str(folder), "--wait", "60"]) == 0
    until(lambda: all(there.status(name)["state"] == "waiting" for name in there.names), "all to wait")
    paused, charged = (folder / "orders").read_bytes(), {name: receipts(there, name) for name in there.names}
    there.kill("node-1")
    there.start("node-1")
    until(lambda: there.status("node-1")["process"] is not None, "it to be back")
    until(lambda: there.peer("node-1", of="node-0") == "up", "it to be heard")
    takes_none = "takes no part for now: paused by the organiser"
    until(lambda: takes_none in there.log("node-1").rpartition("connects to")[2], "it to say that it waits")
    assert {name: receipts(there, name) for name in there.names} == charged
    assert main(["federation", "resume", str(folder), "--wait", "60"]) == 0
    until(lambda: all(there.status(name)["state"] == "running" for name in there.names), "all to go on")
    (folder / "orders").write_bytes(paused)
    assert main(["federation", "status", str(folder)]) in (0, 1), capsys.readouterr().out
    before = {name: there.updates(name) for name in there.names}
    until(lambda: all(there.updates(name) > before[name] + 2 for name in there.names), "all to go on")
    assert all(there.status(name)["orders"] == {"resume 2": ""} for name in there.names)
    assert all(receipts(there, name) > charged[name] > 2 for name in there.names)


def test_who_hears_of_a_pause_from_whom_it_meets_does_not_begin(there: Parties) -> None:
    folder = there.federation.folder
    allow(there, *there.names)
    there.start("node-0")
    until(lambda: there.status("node-0")["state"] == "waiting", "it to wait")
    assert main(["federation", "pause", str(folder), "--wait", "5"]) == 1
    there.start("node-1", "node-2")
    until(lambda: all("takes no part for now" in there.log(name) for name in there.names), "all to wait")
    for name in there.names:
        assert not (there.folder(name).path / "store.sqlite").exists()
        assert in_ledger(there, name, "COUNT(*) FROM charge") == 0
    assert main(["federation", "resume", str(folder), "--wait", "60"]) == 0
    until(lambda: all(there.status(name)["state"] == "running" for name in there.names), "all to begin")
    assert all(in_ledger(there, name, "COUNT(*) FROM charge") for name in there.names)


def test_who_waits_does_not_begin(there: Parties, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told of an order by who watches, and after a restart by its own folder; nothing is charged."""
    folder = there.federation.folder
    allow(there, "node-0")
    there.start("node-0")
    until(lambda: there.status("node-0")["state"] == "waiting", "it to wait")
    assert main(["federation", "stop", str(folder), "--wait", "5"]) == 1
    assert "node-1, node-2 did not end in time, if heard at all." in capsys.readouterr().err
    there.join("node-0")
    there.start("node-0")
    assert there.join("node-0") == {"node-0": 0}
    assert "does not begin, and charges nothing: stopped by the organiser" in there.log("node-0")
    assert there.status("node-0")["finished"] == "stopped by the organiser"
    assert not (there.folder("node-0").path / "store.sqlite").exists()


def test_who_has_not_begun_remembers_who_was_removed(there: Parties) -> None:
    """It has said that it knows, so it takes nothing of that party when it is started again, whoever is there."""
    there.start("node-0", more=["--rehearse"])
    until(lambda: there.status("node-0")["state"] == "waiting", "it to rehearse")
    assert main(["federation", "remove", str(there.federation.folder), "node-2", "--wait", "5"]) == 1
    assert main(["stop", str(there.folder("node-0").path)]) == 0
    assert [file.name for file in there.folder("node-0").path.iterdir()] == ["orders"]


def test_another_organisers_key(there: Parties, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Identity.create(tmp_path / "other.key")
    assert main(["federation", "stop", str(there.federation.folder), "--organiser", str(tmp_path / "other.key")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"found another one, with {other.public_key.fingerprint}" in line
    assert not (there.federation.folder / "orders").exists()


def test_a_party_that_is_off_is_removed_and_comes_back(there: Parties, capsys: pytest.CaptureFixture[str]) -> None:
    """The others take nothing of it and go on; it hears that of them, and releases nothing more."""
    folder = there.federation.folder
    there.start()
    until(lambda: all(there.updates(name) > 2 for name in there.names), "all to run")
    there.kill("node-2")
    assert main(["federation", "remove", str(folder), "node-2", "--wait", "60"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("node-")}
    assert {name: row[1:3] for name, row in rows.items()} == {
        "node-0": ["ok", "running"],
        "node-1": ["ok", "running"],
        "node-2": ["ok", "removed"],
    }
    before = {name: there.updates(name) for name in ("node-0", "node-1")}
    there.start("node-2")
    assert there.join("node-2") == {"node-2": 0}
    assert "the organiser asks all parties: remove node-2 20" in there.log("node-2")
    assert there.status("node-2")["finished"] == "removed by the organiser"
    assert there.updates("node-2") == 0  # since it came back: a peer told it as soon as they had a session
    until(lambda: all(there.updates(name) > before[name] + 5 for name in before), "the others to go on")
    for name in before:
        assert there.peer("node-2", of=name) == "removed"
        assert there.status(name)["peers"]["node-2"]["dropped"]["removed"] > 0
        assert "dropped from node-2, removed: the organiser has removed it from this run" in there.log(name)
    charged = there.status("node-2")["releases"]
    there.start("node-2")
    there.join("node-2")
    assert there.status("node-2")["releases"] == charged
    assert main(["federation", "status", str(folder)]) == 0
    assert "node-2  ok     removed " in capsys.readouterr().out


_WITHOUT_ORDERS = """import sys
from gossamer.keys.orders import Orders
Orders.take = lambda self, order: ""
from gossamer.cli import main
sys.exit(main(sys.argv[1:]))"""


@pytest.mark.nightly
@pytest.mark.skipif(FoundedBroker.missing() is not None, reason="needs mosquitto")
def test_a_removed_party_that_goes_on_is_refused_by_all_and_then_by_the_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over TLS. It runs a program that goes by no order: peers take nothing of it while the broker still lets it in.

    The broker's access list has been written without it, and after a reload the broker passes on nothing of it either.
    """
    federation = LocalFederation.found(experiment(SPEC), tmp_path / "f", f"mqtts://127.0.0.1:{free_port()}")
    options, acl = ("--connect-timeout", "60"), tmp_path / "f" / "broker" / "acl"
    with FoundedBroker(federation.folder) as broker, parties(federation, options) as there:
        there.start("node-0", "node-1")
        output = (tmp_path / "output.log").open("wb")
        command = [sys.executable, "-c", _WITHOUT_ORDERS, *federation.command("node-2", *options)]
        hostile = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "OMP_NUM_THREADS": "1"})
        try:
            until(lambda: all(there.updates(name) > 2 for name in there.names), "all to run")
            before = acl.read_text()
            assert main(["federation", "remove", str(federation.folder), "node-2", "--wait", "60"]) == 0
            assert f"{acl} goes to the broker's machine, and the broker reloads it" in capsys.readouterr().err
            assert "node-2" in before
            assert "node-2" not in acl.read_text()
            others = ("node-0", "node-1")

            def dropped(name: str) -> int:
                return int(there.status(name)["peers"].get("node-2", {"dropped": {}})["dropped"].get("removed", 0))

            seen, updates = {name: dropped(name) for name in others}, {name: there.updates(name) for name in others}
            until(lambda: all(dropped(name) > seen[name] + 3 for name in others), "more of it to be dropped")
            until(lambda: all(there.updates(name) > updates[name] + 3 for name in others), "the others to go on")
            assert {there.peer("node-2", of=name) for name in others} == {"removed"}
            assert there.status("node-2")["connected"]

            assert broker.process is not None
            broker.process.send_signal(signal.SIGHUP)

            def refused() -> bool:
                """Its connection is made anew after some seconds, and then the broker lets it send nothing at all."""
                why = str(there.status("node-2").get("unacknowledged"))
                return "not allowed" in why or "is 'node-2' in its access list" in why

            until(refused, "the broker to refuse it")
            seen = {name: dropped(name) for name in others}
            updates = {name: there.updates(name) for name in others}
            until(lambda: all(there.updates(name) > updates[name] + 10 for name in others), "the others to go on")
            assert {name: dropped(name) for name in others} == seen
            assert main(["federation", "status", str(federation.folder)]) == 0
        finally:
            hostile.kill()
            hostile.wait()
            output.close()


def test_an_order_that_nobody_could_be_told_is_given_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LocalFederation.found(experiment(SERVED), folder := tmp_path / "f", "mqtt://127.0.0.1:1")
    assert main(["federation", "stop", str(folder), "--wait", "0.5"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"the order is given, in {folder / 'orders'}, and told to nobody yet" in line
    assert (folder / "orders").exists()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("server", "server cannot be removed, since it serves the others; `federation stop` ends the run for all"),
        ("node-1", "node-1 cannot be removed, since it would leave one party with data"),
        ("node-7", "remove: node-7 is not in this federation; did you mean node-"),
    ],
)
def test_whom_a_run_cannot_go_on_without(
    name: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LocalFederation.found(experiment(SERVED), tmp_path / "f", "mqtt://127.0.0.1:1")
    assert main(["federation", "remove", str(tmp_path / "f"), name]) == 2
    assert line in capsys.readouterr().err
    assert not (tmp_path / "f" / "orders").exists()


def test_a_server_ends_with_the_parties_that_it_serves(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """It has no data, so no owner either; while a party's policy forbids the stop it is there for that one."""
    federation = LocalFederation.found(experiment(SERVED), tmp_path / "f", broker.url)
    with parties(federation, ("--connect-timeout", "60", "--gone-after", "8")) as there:
        allow(there, "node-0")
        there.start()
        until(lambda: all(there.updates(name) > 2 for name in there.names), "all to run")
        assert main(["federation", "stop", str(federation.folder), "--wait", "8"]) == 1
        there.finish("node-0")
        before = there.updates("node-1")
        until(lambda: there.updates("node-1") > before + 1, "the other to go on with the server")
        assert there.status("server")["orders"] == {"stop": ""}
        allow(there, "node-1")
        assert main(["stop", str(there.folder("node-1").path)]) == 0
        there.start("node-1")  # which finds the order in its folder, and the policy that allows it now
        there.finish("node-1", "server")
        assert there.status("node-1")["finished"] == "stopped by the organiser"
        assert there.status("server")["finished"] == "all clients left"
