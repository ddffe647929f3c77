"""Drills of an organiser's orders, with a process for each party: twenty of each, with kills at random moments.

They run over Mosquitto where there is one.

    pytest --slow tests/end_to_end/test_order_drills.py -k stop

The life of each node, over all its processes, is compared with its ledger and with its peers' lives.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.end_to_end.test_federation_orders import allow
from tests.end_to_end.test_federation_runs import allow as allow_runs
from tests.end_to_end.test_federation_runs import beside, next_run
from tests.reference.deployments import (
    Life,
    Parties,
    charges,
    check_lives,
    experiment,
    keep_history,
    parties,
    until,
)

from gossamer.cli import main
from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.protocol.events import Received
from gossamer.runtimes.mqtt.broker import EmbeddedBroker, LocalBroker, Mosquitto

SPEC = """
dataset: digits
algorithm: {name: gossip, nodes: 3, topology: complete, batch_size: 32, updates_per_node: %d}
privacy: {noise_multiplier: 120, delta: 1.0e-4, clip: 1}
links: {retry_after: 0.5}
deployment: {release_deadline: 0.05}
"""
TIMES = 20
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("called_here")]


class Drill:
    """A federation whose parties are killed at random moments."""

    def __init__(self, there: Parties, seed: int) -> None:
        self.there, self.draw, self.kills = there, random.Random(seed), Counter[str]()
        self.folder = str(there.federation.folder)

    def begin(self) -> None:
        keep_history(self.there)
        self.there.start()
        self.goes_on(*self.there.names)

    def goes_on(self, *names: str) -> None:
        """Wait until parties have made some more updates."""
        before, more = {name: self.there.updates(name) for name in names}, self.draw.randrange(1, 15)
        until(lambda: all(self.there.updates(name) > before[name] + more for name in names), "them to go on")

    def kill(self, name: str) -> None:
        if self.there.federation.processes[name].is_alive():
            self.there.kill(name)
            self.kills[name] += 1

    def order(self, *words: str, kills: str) -> None:
        """Give an order while a party is killed; start that one again, and have the order known to all."""
        timer = threading.Timer(self.draw.uniform(0.0, 2.0), self.kill, [kills])
        timer.start()
        self.give(*words)
        timer.join()
        if not self.there.federation.processes[kills].is_alive():
            self.there.start(kills)

    def are_there(self) -> bool:
        return any(process.is_alive() for process in self.there.federation.processes.values())

    def give(self, *words: str) -> int:
        return main(["federation", words[0], self.folder, *words[1:], "--wait", "4"])

    def known(self, *words: str) -> None:
        """The order, once more, is known to all."""
        until(lambda: self.give(*words) == 0, "all to know")

    def end(self) -> dict[str, Life]:
        """The end of the run by an order, told again while anybody is there, and what all have done."""
        until(lambda: not self.are_there() or self.give("stop") < 0, "all to end")
        self.there.join()
        return check_lives(self.there, self.kills, left=self.there.names)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with EmbeddedBroker() if Mosquitto.missing() else Mosquitto() as broker:
        yield broker


@pytest.fixture
def drill(tmp_path: Path, broker: LocalBroker, request: pytest.FixtureRequest) -> Iterator[Drill]:
    federation = LocalFederation.found(experiment(SPEC % 20_000), tmp_path / "f", broker.url)
    with parties(federation, ("--connect-timeout", "60", "--gone-after", "8")) as there:
        allow(there, *there.names)
        allow_runs(there.federation.folder)
        yield Drill(there, request.node.callspec.params["seed"])


@pytest.mark.parametrize("seed", range(TIMES))
def test_a_stop(drill: Drill, seed: int) -> None:
    drill.begin()
    drill.order("stop", kills=drill.draw.choice(drill.there.names))
    drill.end()
    for name in drill.there.names:
        assert drill.there.status(name)["finished"] == "stopped by the organiser"
    charged = {name: charges(drill.there, name) for name in drill.there.names}
    drill.there.start()
    drill.there.join()
    assert {name: charges(drill.there, name) for name in drill.there.names} == charged


@pytest.mark.parametrize("seed", range(TIMES))
def test_a_removal(drill: Drill, seed: int) -> None:
    """It is off when the others hear it, or is killed while they do, and comes back."""
    drill.begin()
    name = drill.draw.choice(drill.there.names)
    others = [one for one in drill.there.names if one != name]
    drill.order("remove", name, kills=name)
    drill.known("remove", name)
    known = time.time()
    drill.goes_on(*others)
    drill.there.join(name)
    drill.there.start(name)
    drill.there.join(name)
    assert drill.there.status(name)["finished"] == "removed by the organiser"
    for one, found in drill.end().items():
        late = [step for step in found.steps if isinstance(step.event, Received) and step.now > known]
        assert one == name or not [step for step in late if step.event.sender == name]  # type: ignore[union-attr]
        assert one != name or not late


@pytest.mark.parametrize("seed", range(TIMES))
def test_a_pause_and_its_end(drill: Drill, seed: int) -> None:
    drill.begin()
    names = drill.there.names
    drill.order("pause", kills=drill.draw.choice(names))
    drill.known("pause")
    until(lambda: all(drill.there.status(name)["state"] == "waiting" for name in names), "all to wait")
    paused, charged = time.time(), {name: charges(drill.there, name) for name in names}
    name = drill.draw.choice(names)
    drill.kill(name)
    drill.there.start(name)
    until(lambda: drill.there.status(name)["state"] == "waiting", "it to be back")
    time.sleep(1.0)
    assert {name: charges(drill.there, name) for name in names} == charged
    resumed = time.time()
    drill.order("resume", kills=drill.draw.choice(names))
    drill.known("resume")
    drill.goes_on(*names)
    for found in drill.end().values():
        assert not [step for step in found.steps if paused < step.now < resumed]


@pytest.mark.parametrize("seed", range(TIMES))
def test_a_further_run(drill: Drill, seed: int) -> None:
    """Parties come to it one after the other, and are killed before, while and after they join it."""
    assert next_run(drill.there.federation.folder, 300, 120) == 0
    with beside(drill.there) as second:
        keep_history(second)
        names = drill.draw.sample(second.names, 3)
        for name in names:
            second.start(name)
            time.sleep(drill.draw.uniform(0.0, 3.0))
            if drill.draw.random() < 0.5 and second.federation.processes[name].is_alive():
                second.kill(name)
                drill.kills[name] += 1
                second.start(name)
        name = drill.draw.choice(names)
        until(lambda: second.updates(name) > drill.draw.randrange(1, 30), f"{name} to run")
        if second.federation.processes[name].is_alive():
            second.kill(name)
            drill.kills[name] += 1
            second.start(name)
        second.finish()
        check_lives(second, drill.kills)
