"""The drill of `examples/drill` with processes, in short: every kind of incident in one run of six parties."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("paho", reason="needs the extra mqtt")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.drill_script import processes

from gossamer.experiment.reading import parse_spec
from gossamer.faults.incidents import Incident, Script
from gossamer.runtimes.mqtt.broker import EmbeddedBroker, Mosquitto

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("called_here")]

UPDATES = 25
SPEC = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 6, "topology": "complete", "updates_per_node": UPDATES, "batch_size": 32},
    "budget": {"epsilon": 8, "delta": 1e-5},
    "links": {"retry_after": 0.5, "silence": 5},
    "deployment": {"release_deadline": 1.0},
}
SCRIPT = Script(
    incidents=(
        Incident(kind="network", party="node-1", at=2.0, seconds=3.6),
        Incident(kind="network", party="node-2", at=3.0, seconds=9.0),
        Incident(kind="killed", party="node-3", at=4.0, seconds=0.6),
        Incident(kind="gone", party="node-4", at=5.0),
        Incident(kind="broker", at=6.0, seconds=1.2),
        Incident(kind="backup", party="node-5", at=14.0, seconds=6.0, copied=8.0),
    )
)


@pytest.fixture
def drill(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if Mosquitto.missing() is not None and EmbeddedBroker.missing() is not None:
        pytest.skip("needs a broker")
    return processes(monkeypatch)


def test_all_incidents(drill: ModuleType, tmp_path: Path) -> None:
    """Those who are there finish, with a complete ledger; the old copy is refused; the one that is gone is charged."""
    run = drill.one_run(parse_spec(SPEC), tmp_path / "f", SCRIPT)
    survivors = {f"node-{number}" for number in range(6)} - {"node-4"}
    assert survivors <= run.ended.keys(), {name: run.federation.last_line(name) for name in run.federation.members}
    charged = {name: run.charged(name) for name in run.federation.members}
    assert {charged[name] for name in ("node-0", "node-1", "node-2")} == {UPDATES}
    # A process that was killed may have charged one release that its node was never given.
    assert charged["node-3"] in (UPDATES, UPDATES + 1)
    assert charged["node-5"] in (UPDATES, UPDATES + 1)
    assert 0 < charged["node-4"] < UPDATES
    assert "this is not the newest state of the node" in run.said["node-5"]
    assert "nothing was charged" in run.said["node-5"]
    for name in ("node-0", "node-1", "node-2"):
        assert run.status(name)["finished"] == "quota"
