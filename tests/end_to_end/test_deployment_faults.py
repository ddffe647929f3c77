"""What befalls a federation of real processes: kills, a broker that goes, parties that go, come late or leave."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import (
    LONG,
    Parties,
    check_ledgers,
    check_lives,
    experiment,
    keep_history,
    life,
    parties,
    until,
)

from gossamer.cli import main
from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.runtimes.mqtt.broker import EmbeddedBroker

GOSSIP = """
dataset: digits
algorithm: {name: gossip, nodes: 3, topology: complete, batch_size: 32, updates_per_node: %d}
budget: {epsilon: 20, delta: 1.0e-4}
links: {retry_after: 0.5}
"""
AUDP = """
dataset: digits
algorithm: {name: audp, nodes: 3, batch_size: 32, updates_per_node: %d}
budget: {epsilon: 20, delta: 1.0e-4}
links: {retry_after: 0.5, silence: 5}
"""
PATIENT = ("--gone-after", "300", "--connect-timeout", "120")
"""For brokers that are away for as long as a busy machine needs to start one."""
A, B, C = "node-0", "node-1", "node-2"


def founded(spec: str, updates: int, folder: Path, broker: EmbeddedBroker) -> LocalFederation:
    return LocalFederation.found(experiment(spec % updates), folder / "f", broker.url)


def runs(there: Parties, *names: str) -> None:
    """Wait until parties are in the midst of their work."""
    for name in names or there.names:
        until(lambda name=name: there.updates(name) > 0 or name == "server", f"{name} to run")


def begins(there: Parties, name: str) -> None:
    """Wait until a new process of a party is at the command, and writes to its file."""
    pid = there.federation.processes[name].pid
    output = there.federation.folder / name / "output.log"

    def writes() -> bool:
        try:
            return os.path.samefile(f"/proc/{pid}/fd/2", output)
        except OSError:
            return not there.federation.processes[name].is_alive()

    until(writes, f"{name} to begin")


def works(there: Parties, name: str, since: float) -> None:
    """Wait until the process that was started after ``since`` has made an update, however slow the machine is."""
    said = there.folder(name).path / "status.json"
    until(
        lambda: (
            not there.federation.processes[name].is_alive()
            or (said.exists() and said.stat().st_mtime > since and there.updates(name) > 0)
        ),
        f"{name} to make an update",
    )


def command(*arguments: object) -> int:
    """``gossamer`` in this process."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        return main([str(argument) for argument in arguments])
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.usefixtures("called_here")
def test_kill_stop_and_a_broker_that_goes(
    tmp_path: Path, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run: a party killed and started again, one stopped and started again, and the broker away for a while."""
    with parties(founded(GOSSIP, 600, tmp_path, broker), PATIENT) as there:
        keep_history(there)
        there.start()
        runs(there)
        there.kill(A)
        assert there.status(A)["state"] == "killed"
        assert there.status(A)["process"] is None
        there.start(A)

        assert command("stop", there.folder(B).path) == 0
        assert there.join(B) == {B: 0}
        assert there.status(B)["state"] == "stopped"
        assert command("stop", there.folder(B).path) == 2
        assert f"{there.folder(B).path}: no process runs this node" in capsys.readouterr().err
        there.start(B)

        broker.stop()
        until(lambda: not there.status(C)["connected"], "the broker's end to be noticed")
        assert "goes on trying" in there.log(C)
        assert command("status", there.folder(C).path) == 1, "a warning for monitoring"
        broker.start(broker.port)
        there.finish()
        assert "connected to the broker again" in there.log(C)
        check_lives(there, {A: 1, B: 1})
        assert "Traceback" not in there.output(A) + there.output(B) + there.output(C)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("spec", [GOSSIP, AUDP], ids=["gossip", "audp"])
def test_a_party_that_is_gone_for_ever(spec: str, tmp_path: Path, broker: EmbeddedBroker) -> None:
    """The others make all their updates, wait for it no longer than they were told to, and say that it is gone."""
    with parties(founded(spec, 300, tmp_path, broker)) as there:
        keep_history(there)
        there.start()
        runs(there)
        there.kill(C)
        others = [name for name in there.names if name != C]
        there.finish(*others)
        for name in others:
            assert there.status(name)["finished"] in ("quota", "all others finished or gone"), there.status(name)
        near = "server" if "server" in there.names else A
        assert there.peer(C, of=near) == "gone"
        assert there.status(C)["state"] == "killed"
        check_lives(there, {C: 1}, left=[C])


@pytest.mark.slow
def test_a_party_that_comes_late(tmp_path: Path, broker: EmbeddedBroker) -> None:
    with parties(founded(GOSSIP, 300, tmp_path, broker), ("--wait", "1", "--gone-after", "120")) as there:
        keep_history(there)
        there.start(A, B)
        until(lambda: there.updates(A) > 0, "updates without the one that is late")
        # Without both at first, where the other took longer than a second to be heard, too.
        assert re.search(f"goes ahead without .*{C}", there.log(A))
        there.start(C)
        there.finish()
        lives = check_lives(there, {})
        assert {found.host.finished for found in lives.values()} == {"quota"}


@pytest.mark.slow
@pytest.mark.usefixtures("called_here")
def test_a_party_that_leaves(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """For good: the others are told, and wait for it no longer; started again, it does not go on."""
    with parties(founded(GOSSIP, 400, tmp_path, broker)) as there:
        keep_history(there)
        there.start()
        runs(there)
        assert command("stop", there.folder(A).path, "--leave") == 0
        assert there.join(A) == {A: 0}
        assert there.status(A)["finished"] == "left"
        assert (there.folder(A).path / "model.safetensors").exists()
        charged_before = there.status(A)
        there.finish(B, C)
        assert f"{A} makes no more updates: left" in there.log(B)
        there.start(A)
        there.finish(A)
        assert there.status(A)["finished"] == "left"
        assert there.updates(A) == 0, charged_before
        check_lives(there, {A: 1}, left=[A])


@pytest.mark.nightly
@pytest.mark.slow
def test_an_interrupt_at_any_instant_is_clean(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """From the first line of the command on: an exit code that says so, no traceback, and a node that goes on later."""
    instants, stopped = random.Random(2), 0
    with parties(founded(GOSSIP, 3000, tmp_path, broker)) as there:
        keep_history(there)
        there.start(B, C)
        for turn in range(25):
            since = time.time()
            there.start(A)
            process = there.federation.processes[A]
            begins(there, A)
            if turn % 5 == 4:
                works(there, A, since)
            time.sleep(instants.uniform(0.0, 2.0))
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGINT)
            process.join(LONG)
            assert process.exitcode in (0, 130), (process.exitcode, there.output(A))
            stopped += process.exitcode == 0
        assert stopped > 3
        there.start(A)
        there.finish(patience=400.0)
        assert "Traceback" not in there.output(A), there.output(A)
        check_lives(there, {A: 25})


@pytest.mark.slow
def test_two_interrupts_end_a_node_that_does_not_come_to_its_turn(tmp_path: Path, broker: EmbeddedBroker) -> None:
    with parties(founded(GOSSIP, 3000, tmp_path, broker)) as there:
        there.start()
        runs(there)
        pid = there.federation.processes[A].pid
        assert pid is not None
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGINT)
        assert there.join(A)[A] in (0, 130)
        assert "Traceback" not in there.output(A)


@pytest.mark.slow
def test_a_store_that_was_killed_at_its_making(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """Killed within the first instants, again and again: no crash leaves a folder that cannot be used.

    The others make all their updates in a second, once they have heard of it, and are not to take it for gone.
    """
    instants = random.Random(3)
    with parties(founded(GOSSIP, 60, tmp_path, broker), PATIENT) as there:
        there.start(B, C)
        for _ in range(20):
            there.start(A)
            time.sleep(instants.uniform(0.0, 1.5))
            if there.status(A).get("finished"):
                break
            process = there.federation.processes[A]
            process.kill()
            process.join()
        else:
            there.start(A)
        there.finish()
        assert "Traceback" not in there.output(A)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_broker_that_flaps(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """Away for two seconds in every four."""
    with parties(founded(GOSSIP, 2000, tmp_path, broker), PATIENT) as there:
        keep_history(there)
        there.start()
        runs(there)
        for _ in range(6):
            time.sleep(2.0)
            broker.stop()
            time.sleep(2.0)
            broker.start(broker.port)
        there.finish()
        lives = check_lives(there, {})
        check_ledgers(there, lives, {})
        assert life(there, A).host.finished == "quota"
