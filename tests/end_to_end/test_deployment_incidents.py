"""The drill of `examples/drill` with processes, in short: every kind of incident in one run of six parties."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("paho", reason="needs the extra mqtt")
pytest.importorskip("cryptography", reason="needs the extra secure")

from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.runtimes.mqtt.broker import EmbeddedBroker, Mosquitto

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("called_here")]

UPDATES = 45
SPEC = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 6, "topology": "complete", "updates_per_node": UPDATES, "batch_size": 32},
    "budget": {"epsilon": 8, "delta": 1e-5},
    "links": {"retry_after": 0.5, "silence": 5},
    "deployment": {"release_deadline": 1.0},
}
INCIDENTS: list[dict[str, Any]] = [
    {"kind": "network", "party": "node-1", "at": 2.0, "seconds": 3.6},
    {"kind": "network", "party": "node-2", "at": 3.0, "seconds": 9.0},
    {"kind": "killed", "party": "node-3", "at": 4.0, "seconds": 0.6},
    {"kind": "gone", "party": "node-4", "at": 5.0},
    {"kind": "broker", "at": 6.0, "seconds": 1.2},
    # Copied when all who are there are back: a copy that lacks nothing that its peers know is not refused.
    {"kind": "backup", "party": "node-5", "at": 34.0, "seconds": 6.0, "copied": 10.0},
]
HERE = Path(__file__).parents[2] / "examples" / "drill"


@pytest.fixture
def drill(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if Mosquitto.missing() is not None and EmbeddedBroker.missing() is not None:
        pytest.skip("needs a broker")
    monkeypatch.syspath_prepend(str(HERE))
    where = importlib.util.spec_from_file_location("drill_processes", HERE / "processes.py")
    assert where is not None
    assert where.loader is not None
    found = importlib.util.module_from_spec(where)
    monkeypatch.setitem(sys.modules, "drill_processes", found)
    where.loader.exec_module(found)
    return found


def test_a_round_may_wait_a_deadline_for_each_incident(drill: ModuleType) -> None:
    """And a party as long as it is away itself, with the broker's 1.2 s, and what it takes to go on."""
    script = drill.Script.read(HERE / "incidents.yaml")
    assert {incident.kind for incident in script.incidents} == set(drill.ACTIONS) == set(drill.WORDS)
    alone = drill.SLACK + 1.2 + drill.RECONNECT
    assert drill.most_later("node-0", script, 0.0) == pytest.approx(alone)
    assert drill.most_later("node-0", script, 36.0) == pytest.approx(alone + 6 * 36.0)
    assert drill.most_later("node-2", script, 0.0) == pytest.approx(alone + 90.0 + drill.RECONNECT)
    assert drill.most_later("node-5", script, 0.0) == pytest.approx(alone + 6.0 + drill.START)


@pytest.mark.nightly
def test_all_incidents(drill: ModuleType, tmp_path: Path) -> None:
    """Those who are there finish, with a complete ledger; the old copy is refused; the one that is gone is charged."""
    script = drill.Script(tuple(drill.Incident(**one) for one in INCIDENTS))
    run = drill.one_run(parse_spec(SPEC), tmp_path / "f", script)
    survivors = {f"node-{number}" for number in range(6)} - {"node-4"}
    assert survivors <= run.ended.keys(), {name: run.federation.last_line(name) for name in run.federation.members}
    charged = {name: run.charged(name) for name in run.federation.members}
    assert {charged[name] for name in ("node-0", "node-1", "node-2")} == {UPDATES}
    # A process that was killed may have charged one release that its node was never given.
    assert charged["node-3"] in (UPDATES, UPDATES + 1)
    assert charged["node-5"] in (UPDATES, UPDATES + 1)
    assert 0 < charged["node-4"] < UPDATES
    said = run.said.get("node-5", "it goes on with its old copy")
    assert "this is not the newest state of the node" in said
    assert "nothing was charged" in said
    for name in ("node-0", "node-1", "node-2"):
        assert run.status(name)["finished"] == "quota"
