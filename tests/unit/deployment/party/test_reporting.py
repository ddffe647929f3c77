"""Status of a node: how many updates it has made, however many computations each takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.oracle.deployed import federation

from gossamer.cli.federation.node import progress
from gossamer.deployment.party.reporting import Reporter
from gossamer.deployment.peers.peers import PeerState
from gossamer.privacy.guarantees import rounded_up

BASE = {"dataset": "digits", "privacy": {"clip": 0.5, "noise_multiplier": 4.0}}
CLIENTS = {"nodes": 2, "local_steps": 4, "updates_per_node": 3, "batch_size": 20}
EXAMPLE = {"algorithm": {"name": "fedbuff", "buffer": 2, **CLIENTS, "privacy_unit": "example"}}
CLIENT = {"algorithm": {"name": "fedbuff", "buffer": 2, **CLIENTS}}
EPOCHS = {"algorithm": {**EXAMPLE["algorithm"], "local_steps": None, "local_epochs": 1, "batch_size": 500}}
GOSSIP = {"algorithm": {"name": "gossip", "topology": "complete", "nodes": 2, "updates_per_node": 3}}


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("spec", "party", "computed", "updates"),
    [
        (EXAMPLE, "node-0", 3, 0),
        (EXAMPLE, "node-0", 4, 1),
        (EXAMPLE, "node-0", 11, 2),
        (EPOCHS, "node-1", 6, 3),  # 719 examples in two steps
        (CLIENT, "node-0", 4, 4),
        (GOSSIP, "node-0", 4, 4),
        (EXAMPLE, "server", 0, 0),
    ],
)
def test_steps_of_an_update_are_no_updates(
    spec: dict[str, Any], party: str, computed: int, updates: int, tmp_path: Path
) -> None:
    with federation({**BASE, **spec}, tmp_path / "f") as found:
        folder, held = found.folders[party], found.held[party]
        reporter = Reporter(found.invited[party], folder)
        node = found.invited[party].agreed.nodes()[party]
        host: Any = SimpleNamespace(begun=False, finished="", node=node)
        reporter.begins(host, held)
        loop: Any = SimpleNamespace(
            counts=Counter[str](computations=computed),
            peers=SimpleNamespace(states=lambda now: {}, forgotten=lambda: []),
            transport=SimpleNamespace(connected=True, unconfirmed=lambda seconds: "", counts=Counter()),
            host=host,
            ended=None,
            began=0.0,
            reach=SimpleNamespace(described=lambda now: {}),
            busy=False,
        )
        reporter.write(loop, 100.0)
        assert folder.status()["updates"] == updates
        lines = (folder.path / "node.log").read_text()
        assert (f" {updates} update" in lines) == (updates > 0)


def test_why_a_node_failed_is_for_its_owner(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error about data may quote a row. Who started the node is told by the command, once."""
    base = {"dataset": "digits", "privacy": {"clip": 0.5, "noise_multiplier": 4.0}}
    with federation({**base, **GOSSIP}, tmp_path / "f") as found:
        folder = found.folders["node-0"]
        folder._echo = True
        reporter = Reporter(found.invited["node-0"], folder)
        with caplog.at_level("DEBUG", "gossamer"):
            reporter.failed("wards.csv, line 3: expected a number, found 'Smith'")
        assert "Smith" in (folder.path / "node.log").read_text()
        assert "Smith" in folder.status()["why"]
        assert capsys.readouterr().err == ""
        assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("ERROR", "node-0 failed")]


def test_a_node_that_was_paused_has_its_releases_while_it_waits(tmp_path: Path) -> None:
    with federation({**BASE, **GOSSIP}, tmp_path / "f") as found:
        folder = found.folders["node-0"]
        for run, releases in ((found.invited["node-0"].agreed.invitation.run, "2 of 3"), ("another", "0")):
            folder.publish({"run": run, "state": "running", "updates": 2, "releases": 2, "planned_releases": 3})
            reporter = Reporter(found.invited["node-0"], folder)
            reporter.connects()
            reporter.connects("waiting")
            assert progress(folder.status()) == ("-", releases)
            assert folder.status()["state"] == "waiting"


def test_a_server_counts_the_updates_that_it_took(tmp_path: Path) -> None:
    """Since its process began: one that came back had some before."""
    with federation({**BASE, **CLIENT}, tmp_path / "f") as found:
        agreed = found.invited["server"].agreed
        reporter = Reporter(found.invited["server"], found.folders["server"])
        node: Any = agreed.nodes()["server"]
        host: Any = SimpleNamespace(begun=True, finished="", node=node)
        node.state.taken = 5
        reporter.begins(host, found.held["server"])
        node.state.taken = 8
        assert reporter._updates(SimpleNamespace(host=host, counts=Counter[str]())) == 3


def test_the_status_says_what_peers_receipts_and_its_own_contradict(tmp_path: Path) -> None:
    with federation({**BASE, **GOSSIP}, tmp_path / "f") as found:
        folder = found.folders["node-0"]
        reporter = Reporter(found.invited["node-0"], folder)
        forked = PeerState("up", 1.0, True, "", {}, receipts="node-1 shows others")
        wire: Any = SimpleNamespace(
            peers=SimpleNamespace(states=lambda now: {"node-1": forked}, forgotten=lambda: ["has forgotten"]),
            transport=SimpleNamespace(
                connected=True, unconfirmed=lambda seconds: "", counts=Counter(received=5, dropped_stranger=2)
            ),
            reach=SimpleNamespace(described=lambda now: {"alone": None}),
        )
        reporter.waits(wire, 100.0)
        status = folder.status()
        assert status["forgotten"] == ["has forgotten"]
        assert status["peers"]["node-1"]["receipts"] == "node-1 shows others"
        assert status["transport"] == {"dropped_stranger": 2}


def test_the_log_says_once_that_nobody_is_reached_and_when_it_is_over(tmp_path: Path) -> None:
    with federation({**BASE, **GOSSIP}, tmp_path / "f") as found:
        folder, reach = found.folders["node-0"], dict[str, Any]()
        reporter = Reporter(found.invited["node-0"], folder)
        wire: Any = SimpleNamespace(
            peers=SimpleNamespace(states=lambda now: {}, forgotten=lambda: []),
            transport=SimpleNamespace(connected=True, unconfirmed=lambda seconds: "", counts=Counter()),
            reach=SimpleNamespace(described=lambda now: reach),
        )
        for second in range(5):
            late = {"node-1": {"seconds": 31.0 + second, "why": "not allowed" if second < 2 else "has left"}}
            reach |= {"alone": 31.0 + second, "unacknowledged": late} if second < 3 else {"alone": None}
            reporter.waits(wire, 100.0 + second)
        found_lines = [line for line in (folder.path / "node.log").read_text().splitlines() if "no peer" in line]
        said = [line[line.index("no ") :].partition("; ")[0] for line in found_lines]
        why = "no peer has acknowledged anything for %d s: node-1 (%s)"
        first = [why % (31, "not allowed"), "no longer so: " + why % (32, "not allowed")]
        # What is so comes last, in its other words, so that nobody takes the problem for over.
        assert said == [*first, why % (33, "has left"), "no longer so: " + why % (33, "has left")]


@pytest.mark.parametrize(
    ("said", "short"),
    [
        ("rounds", ""),
        (
            "rounds; made 6 of 14 rounds: in 8 nobody answered, or there was no sum that c...",
            "server made 6 of 14 rounds, and in the others nobody answered, or there was no sum that could be used",
        ),
    ],
)
def test_a_client_whose_server_made_too_few_rounds_knows_it(said: str, short: str, tmp_path: Path) -> None:
    with federation({**BASE, **CLIENT}, tmp_path / "f") as found:
        reporter = Reporter(found.invited["node-0"], found.folders["node-0"])
        assert reporter.short_above() == ""
        peers = {"node-1": "left; of its own", "server": said}
        reporter._status["peers"] = {name: {"finished": why} for name, why in peers.items()}
        assert reporter.short_above() == short


def test_its_last_line_says_what_was_released_at_which_epsilon_and_what_is_next(tmp_path: Path) -> None:
    with federation({**BASE, **GOSSIP}, tmp_path / "f") as found:
        folder, privacy = found.folders["node-0"], found.held["node-0"].describe()
        Reporter(found.invited["node-0"], folder).ended("finished", privacy={**privacy, "releases": 3})
        epsilon = f"epsilon planned {rounded_up(privacy['epsilon'])} at delta {privacy['guarantee']['delta']:g}"
        last = (folder.path / "node.log").read_text().splitlines()[-1]
        assert last.endswith(f" node-0 finished: 3 releases, {epsilon}; next: gossamer report {folder.path}")
        agent = {**privacy, "releases": 0, "guarantee": {**privacy["guarantee"], "delta": None}}
        server = {"releases": 0, "epsilon": None}
        for other in (agent, server, {**server, "epsilon": 1.0}):
            Reporter(found.invited["node-0"], folder).ended("finished", privacy=other)
            last = (folder.path / "node.log").read_text().splitlines()[-1]
            assert last.endswith(f" node-0 finished: 0 releases; next: gossamer report {folder.path}")
        Reporter(found.invited["node-1"], folder).ended("stopped")
        assert (folder.path / "node.log").read_text().endswith(" stopped\n")
