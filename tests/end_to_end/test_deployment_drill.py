"""A drill for administrators: three hospitals and a server over a Mosquitto with TLS, and what goes wrong at first.

A broker that is down at the start, a row that comes late, a process that is killed, a state from a backup, and a party
that is gone for good: each costs no budget that was not released, and ends with the right words.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("paho", reason="needs the extra mqtt")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import LONG, until
from tests.reference.founded_broker import FoundedBroker, free_port

from gossamer.deployment.owner.policy import read_policy
from gossamer.keys.invitations import read_signed
from gossamer.runtimes.mqtt.broker import HOST, Mosquitto
from gossamer.runtimes.storage.ledger import LedgerFile

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("called_here")]

A, B, C, SERVER = "hospital-a", "hospital-b", "hospital-c", "server"
SIZES = {A: 120, B: 90, C: 90}
UPDATES = 4000
SPEC = f"""
dataset: {{name: stays, format: csv, target: long, features: [age, urgent], labels: [0, 1]}}
objective: logistic
algorithm: {{name: audp, batch_size: 20, updates_per_node: {UPDATES}}}
privacy: {{clip: 1.0}}
budget: {{epsilon: 3, delta: 1.0e-4}}
links: {{retry_after: 0.5}}
"""
QUICK = ("--gone-after", "12", "--wait", "20")
MOST_DISK = 12 << 20
"""Bytes of a state folder, of 3 parameters: a log of 4 MiB, and what becomes of it in the file itself."""


class Administrator:
    """One party's administrator, and the commands that they call."""

    def __init__(self, name: str) -> None:
        self.name, self.commands = name, set[str]()
        self.state = Path("f", name, "state")
        self.process: subprocess.Popen[str] | None = None

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        self.commands.add(" ".join(words[:2] if words[0] == "federation" else words[:1]))
        return gossamer(*words)

    def node(self, *more: str) -> list[str]:
        self.commands.add("node")
        words = ["node", "--invitation", f"f/{self.name}/invitation.yaml", *QUICK, *more]
        if self.name == SERVER:
            return [*words, "--organiser", read_signed("f/federation.yaml").organiser.fingerprint]
        return [*words, "--policy", f"f/{self.name}/policy.yaml"]

    def start(self) -> None:
        command = [sys.executable, "-m", "gossamer", *self.node()]
        with Path(f"{self.name}.log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True)

    def ends(self, patience: float = 5 * LONG) -> int:  # 4,000 updates take minutes where much else goes on
        assert self.process is not None
        return self.process.wait(patience)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert gossamer("stop", str(self.state)).returncode == 0
        assert self.ends() == 0

    def status(self) -> dict[str, Any]:
        found = gossamer("status", "--json", str(self.state))
        return json.loads(found.stdout)[str(self.state)] if found.stdout else {}

    def level(self) -> int:
        return gossamer("status", str(self.state)).returncode

    def said(self) -> str:
        return Path(f"{self.name}.log").read_text()

    def releases(self) -> int:
        """Number of releases that its ledger has charged."""
        with closing(LedgerFile(read_policy(Path("f", self.name, "policy.yaml")).ledger_path)) as file:
            return sum(run.releases for run in file.runs("stays"))

    def runs(self) -> int:
        """Number of runs that its ledger has let in."""
        place = read_policy(Path("f", self.name, "policy.yaml")).ledger_path
        if not place.exists():
            return 0
        with closing(LedgerFile(place)) as file:
            return len(file.runs("stays"))

    def disk(self) -> int:
        return sum(file.stat().st_size for file in self.state.iterdir() if file.exists())


def gossamer(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gossamer", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONG)


def write_rows(path: Path, count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    age, urgent = random.random(count), random.integers(0, 2, count)
    long = (age + 0.3 * urgent + 0.2 * random.standard_normal(count) > 0.6).astype(int)
    rows = [f"{one:.3f},{two},{three}" for one, two, three in zip(age, urgent, long)]
    path.write_text("\n".join(["age,urgent,long", *rows]) + "\n")


@pytest.fixture
def parties(called_here: None) -> Iterator[dict[str, Administrator]]:
    """Parties with their own keys and data; founded, and no process runs."""
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    found = {name: Administrator(name) for name in (A, B, C, SERVER)}
    Path("keys").mkdir()
    for name, party in found.items():
        assert party.call("federation", "identity", name).returncode == 0
        shutil.copy(Path(name, f"{name}.pub"), "keys")
    Path("spec.yaml").write_text(SPEC)
    examples = ",".join(f"{name}={size}" for name, size in SIZES.items())
    options = ["--spec", "spec.yaml", "--keys", "keys", "--nodes", ",".join(SIZES), "--examples", examples]
    made = gossamer("federation", "new", "f", *options, "--broker", f"mqtts://{HOST}:{free_port()}")
    assert made.returncode == 0, made.stderr
    organiser = read_signed("f/federation.yaml").organiser.fingerprint
    for number, name in enumerate((A, B, C, SERVER)):
        shutil.copy(Path(name, "identity.key"), Path("f", name))
        os.chmod(Path("f", name, "identity.key"), 0o600)
        if name in SIZES:
            write_rows(Path("f", name, "stays.csv"), SIZES[name], number)
            policy = {"data": {"stays": {"epsilon": 5, "delta": 1e-4, "path": "stays.csv"}}, "organisers": [organiser]}
            Path("f", name, "policy.yaml").write_text(json.dumps(policy))
    yield found
    for party in found.values():
        if party.process is not None and party.process.poll() is None:
            party.kill()


@pytest.mark.nightly
def test_drill(parties: dict[str, Administrator]) -> None:
    a, b, c, server = (parties[name] for name in (A, B, C, SERVER))
    for party in (a, b, c):
        shown = party.call("federation", "show", f"f/{party.name}/invitation.yaml", "--organiser", fingerprint())
        assert shown.returncode == 0, shown.stderr
    broker_is_down(a)
    with FoundedBroker(Path("f")):
        with Path("f", B, "stays.csv").open("a") as file:  # a row comes late
            file.write("0.5,1,1\n")
        for party in parties.values():
            party.start()
        progress(parties.values(), 40)
        assert "leaves out 1 training example (number 91)" in b.said()
        for party in parties.values():
            assert party.level() == 0, party.status()
        killed(a, server)
        disk = old_state_is_put_back(b, parties)
        c.kill()  # and nobody starts it again
        assert c.level() == 2
        for party in (a, b, server):
            assert party.ends() == 0, party.said()
            disk = max(disk, party.disk())
    ends(parties)
    assert disk < MOST_DISK, f"{disk / 2**20:.1f} MiB"
    assert all(len(party.commands) <= 3 for party in parties.values()), [p.commands for p in parties.values()]
    assert "Traceback" not in "".join(party.said() for party in parties.values())


def fingerprint() -> str:
    return read_signed("f/federation.yaml").organiser.fingerprint


def broker_is_down(party: Administrator) -> None:
    """It is said once, nothing is charged, and nothing is left."""
    found = gossamer(*party.node("--connect-timeout", "3"))
    assert found.returncode == 1
    assert found.stderr.count("goes on trying") == 1
    assert "nothing was charged, and no store was left" in found.stderr.splitlines()[-1]
    assert not party.state.exists()
    assert party.runs() == 0


def progress(parties: Iterable[Administrator], more: int) -> None:
    """Wait until each of these has made so many releases more, the server so many updates."""
    before = {party: releases(party) for party in parties}

    def further() -> bool:
        time.sleep(0.3)  # a status is written once a second
        return all(releases(party) >= number + more for party, number in before.items())

    until(further, f"{more} more releases of {[party.name for party in before]}")


def releases(party: Administrator) -> int:
    file = party.state / "status.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    return int(found.get("updates" if party.name == SERVER else "releases", 0))


def killed(party: Administrator, server: Administrator) -> None:
    """It goes on where it was, by the same command."""
    party.kill()
    assert party.level() == 2
    assert party.status()["state"] == "killed"
    party.start()
    progress([party, server], 20)
    assert party.level() == 0, party.status()


def old_state_is_put_back(party: Administrator, parties: dict[str, Administrator]) -> int:
    """A backup is refused before it charges anything, and the newest state goes on; most bytes of disk."""
    party.stop()
    assert party.level() == 1
    shutil.copytree(party.state, "backup")
    party.start()
    progress([party], 30)
    disk = max(one.disk() for one in parties.values())
    party.stop()
    party.state.rename("newest")
    charged = party.releases()
    for state in ("backup", None):  # an older one, and none at all
        if state is not None:
            shutil.copytree(state, party.state)
        found = gossamer(*party.node())
        assert found.returncode == 2, found.stderr
        line = found.stderr.splitlines()[-1]
        assert "this is not the newest state of the node: server has" in line
        assert "nothing was charged. Put the newest state back, or name it by --store" in line
        assert party.releases() == charged
        assert party.state.exists() == (state is not None), "a new store is left"
        shutil.rmtree(party.state, ignore_errors=True)
    Path("newest").rename(party.state)
    party.start()
    progress([party], 20)
    return disk


def ends(parties: dict[str, Administrator]) -> None:
    """The others end well, say who was lost, and no ledger has more than what was released, but at kills."""
    a, b, c, server = (parties[name] for name in (A, B, C, SERVER))
    for party in (a, b, server):
        assert party.status()["state"] == "finished"
        assert party.level() == 0
    assert server.status()["without"] == [C]
    assert f"ends without {C}, lost before they had finished" in server.said()
    for party in (a, b, c):
        assert party.runs() == 1, "the plan is charged once"
        assert party.releases() <= UPDATES
    taken = json.loads(Path("f", SERVER, "state", "summary.json").read_text())
    assert taken["finished"] in ("quota", "all others finished or gone", "updates")
    # Each process that was killed may have charged one release that nobody was given.
    made = {name: json.loads(Path("f", name, "state", "summary.json").read_text()) for name in (A, B)}
    assert {one["finished"] for one in made.values()} <= {"quota", "budget"}
    assert made[B]["finished"] == "quota", "stopping costs nothing"
    assert b.releases() == UPDATES
