"""Several runs on one founding, as the organiser and parties see them, with a process for each party of each run."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import Parties, check_lives, experiment, keep_history, parties, until
from tests.reference.founded_broker import FoundedBroker, free_port

from gossamer.cli import main
from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.deployment.party.agreement import Agreed, PartyOptions, accept
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.experiment.specs.spec_file import read_text, write_spec
from gossamer.keys.invitations import read_signed
from gossamer.runtimes.mqtt.broker import HOST, EmbeddedBroker, Mosquitto

# The last party has all its 480 examples in each release, so that what these reveal has a closed form.
SPEC = """
dataset: digits
algorithm: {name: gossip, nodes: 3, topology: complete, batch_size: 480, updates_per_node: %d}
privacy: {noise_multiplier: 30, delta: 1.0e-4, clip: 1}
links: {retry_after: 0.5}
"""
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("called_here")]


class Further(Parties):
    """The processes of the parties of a further run."""

    def __init__(self, federation: LocalFederation, more: tuple[str, ...], run: str) -> None:
        super().__init__(federation, (*more, "--run", run))
        self.run = run.split(",")[-1]

    def folder(self, name: str) -> StateFolder:
        return StateFolder(self.federation.folder / name / "runs" / self.run / "state")

    def agreed(self, name: str) -> Agreed:
        return Agreed.by(read_signed(self.federation.folder / name / "runs" / self.run / "invitation.yaml"))


OPTIONS = ("--connect-timeout", "60", "--gone-after", "8")


@pytest.fixture
def there(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[Parties]:
    federation = LocalFederation.found(experiment(SPEC % 20), tmp_path / "f", broker.url)
    with parties(federation, OPTIONS) as there:
        yield there


@contextmanager
def beside(there: Parties, run: str = "2") -> Iterator[Further]:
    """A further run of the same parties, whose processes are others."""
    federation = replace(there.federation, processes={})
    try:
        yield Further(federation, OPTIONS, run)
    finally:
        federation.stop(patience=10.0)


def next_run(folder: Path, updates: int, noise: int = 30, *more: str) -> int:
    """A further run by the command: the first one's spec, with other numbers of updates and noise."""
    settings = [f"algorithm.updates_per_node={updates}", f"privacy.noise_multiplier={noise}"]
    text = write_spec(read_text(read_signed(folder / "federation.yaml").spec, settings))
    (spec := folder.parent / "next.yaml").write_text(text)
    return main(["federation", "run", str(folder), "--spec", str(spec), *more])


def allow(folder: Path, more: str = "") -> None:
    """Let all policies have any number of such runs."""
    for policy in folder.glob("node-*/policy.yaml"):
        policy.write_text(re.sub(r"epsilon: .*", "epsilon: 50", policy.read_text()) + more)


def spent(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """What the owner of the last party's data is told of them."""
    capsys.readouterr()
    assert main(["data", "show", str(folder / "node-2" / "policy.yaml"), "--json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)["data_sets"]
    return data


def check_spent(data: Any, *runs: tuple[int, int]) -> None:
    """Updates and noise multiplier of each run: a release has order / (2 z^2) of divergence, and mu = 1 / z.

    Divergences add up over all runs, and so do squares of mu.
    """
    squares = sum(updates / noise**2 for updates, noise in runs)
    assert data["spent_divergence"] == pytest.approx(data["allowed"]["order"] * squares / 2, rel=1e-9)
    assert data["spent_mu"] == pytest.approx(math.sqrt(squares), rel=1e-3)
    assert len(data["runs"]) == len(runs)
    for run, (planned, _) in zip(data["runs"], runs, strict=True):
        assert 0 <= run["releases"] <= planned


def test_two_runs_in_one_ledger_with_kills_between_and_during_them(
    there: Parties, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = there.federation.folder
    there.start()
    there.finish()
    check_spent(first := spent(folder, capsys), (20, 30))
    there.start("node-2")  # it is over, and says so
    until(lambda: there.status("node-2")["process"] is not None, "it to be there again")
    there.kill("node-2")
    assert spent(folder, capsys) == first
    both = (20, 30), (600, 180)
    assert next_run(folder, *both[1]) == 0
    with beside(there) as second:
        # The budgets are of one run, whichever that is.
        second.start("node-2")
        assert second.join("node-2") == {"node-2": 3}
        assert "fits into the rest of neither" in second.output("node-2").splitlines()[-1]
        assert not second.folder("node-2").path.exists()
        assert spent(folder, capsys) == first
        allow(folder)
        second.start()
        until(lambda: all(second.updates(name) > 3 for name in second.names), "all to run")
        second.kill("node-2")
        check_spent(spent(folder, capsys), *both)
        second.start("node-2")
        second.finish()
        check_spent(spent(folder, capsys), *both)
        runs = [read_signed(folder / place / "federation.yaml").run for place in (".", "runs/2")]
        assert [run["run"] for run in spent(folder, capsys)["runs"]] == [f"{run}/node-2" for run in runs]
        for state, run in ((there.folder("node-2"), runs[0]), (second.folder("node-2"), runs[1])):
            assert json.loads((state.path / "summary.json").read_text())["run"] == run

        # Another machine of the organiser's has signed another run of that name.
        shutil.copytree(folder, other := folder.parent / "other")
        shutil.rmtree(other / "runs")
        assert next_run(other, 31) == 0
        shutil.copy(other / "node-2/runs/2/invitation.yaml", folder / "node-2/runs/2/invitation.yaml")
        before = spent(folder, capsys)
        second.start("node-2")
        assert second.join("node-2") == {"node-2": 2}
        assert "is the store of run" in second.output("node-2").splitlines()[-1]
        assert spent(folder, capsys) == before


@pytest.mark.nightly
def test_orders_are_to_one_run_and_the_other_goes_on(there: Parties, capsys: pytest.CaptureFixture[str]) -> None:
    folder = there.federation.folder
    allow(folder, "organiser_may_stop: yes\n")
    assert next_run(folder, 20000) == next_run(folder, 20001) == 0
    with beside(there) as second, beside(there, "3") as third:
        for one in (second, third):
            one.start()
        until(lambda: all(one.updates(name) > 2 for one in (second, third) for name in one.names), "all to run")
        until(lambda: not main(["federation", "status", str(folder), "--run", "2"]), "all to say so", 30)
        assert main(["federation", "stop", str(folder), "--run", "2", "--wait", "60"]) == 0
        second.finish()
        assert second.status("node-0")["finished"] == "stopped by the organiser"
        assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("orders")) == [
            *(f"node-{i}/runs/2/state/orders" for i in range(3)),
            "runs/2/orders",
        ]
        before = {name: third.updates(name) for name in third.names}
        until(lambda: all(third.updates(name) > before[name] for name in before), "the other run to go on")


def test_one_run_after_the_other(there: Parties, capsys: pytest.CaptureFixture[str]) -> None:
    """As a service of a party takes them; the second begins once the first is over for this party."""
    folder = there.federation.folder
    allow(folder)
    assert next_run(folder, 5) == next_run(folder, 6) == 0
    with beside(there, "2,3") as both:
        both.start()
        both.finish()
        for name in both.names:
            assert StateFolder(folder / name / "runs/2/state").status()["state"] == "finished"
        check_spent(spent(folder, capsys), (5, 30), (6, 30))


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("expired", [True, False])
def test_a_run_that_this_party_has_finished_and_whose_papers_have_expired_holds_up_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], finished: bool, expired: bool
) -> None:
    """A peer was there that had not finished, and may need what this party had still to send."""
    federation = LocalFederation.found(experiment(SPEC % 20), folder := tmp_path / "f", "mqtt://127.0.0.1:1")
    assert next_run(folder, 5, 30, "--expires", "1" if expired else "9") == next_run(folder, 6) == 0
    mine = folder / "node-0" / "runs" / "2"
    (mine / "state").mkdir()
    peers = {"node-1": {"state": "up", "finished": ""}, "node-2": {"state": "up", "finished": "finished"}}
    status = {"state": "finished" if finished else "stopped", "peers": peers}
    StateFolder(mine / "state").publish(status)
    begun: list[str | None] = []

    class TwoDaysLater(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(days=2)

    def take_part(options: PartyOptions, beside: object) -> str:
        accept(options)
        begun.append(options.run)
        return "finished"

    monkeypatch.setattr("gossamer.deployment.party.party.run_party", take_part)
    for module in ("deployment.party.agreement", "cli.federation.node"):
        monkeypatch.setattr(f"gossamer.{module}.datetime", TwoDaysLater)
    allow(folder)
    capsys.readouterr()
    code, said = main(federation.command("node-0", "--run", "2,3")), capsys.readouterr().err
    assert code == (2 if expired and not finished else 0)
    assert begun == ([] if code else ["3"] if finished and expired else ["2", "3"])
    assert ("node-1 may need this party there yet: have the organiser renew it" in said) == (finished and expired)
    assert ("it expired at" in said) == bool(code), said


@pytest.mark.skipif(Mosquitto.missing() is not None, reason="needs mosquitto")
def test_side_by_side_over_a_broker_with_tls_which_reloads_who_may_do_what(tmp_path: Path) -> None:
    url = f"mqtts://{HOST}:{free_port()}"
    federation = LocalFederation.found(experiment(SPEC % 20000), folder := tmp_path / "f", url)
    allow(folder)
    with parties(federation, OPTIONS) as there, FoundedBroker(folder) as broker, beside(there) as second:
        there.start()
        until(lambda: all(there.updates(name) > 2 for name in there.names), "all to run")
        assert next_run(folder, 20000) == 0
        assert broker.process is not None
        broker.process.send_signal(signal.SIGHUP)
        second.start()
        until(lambda: all(second.updates(name) > 2 for name in second.names), "the second run to go on")
        until(lambda: not main(["federation", "status", str(folder), "--run", "2"]), "all to say so", 30)
        before = {name: there.updates(name) for name in there.names}
        until(lambda: all(there.updates(name) > before[name] + 2 for name in before), "the first run to go on")
        assert not [name for name in there.names if "connection" in there.log(name).partition("begins")[2]]


@pytest.mark.parametrize("seed", range(2))
def test_a_further_run_loses_and_repeats_nothing_wherever_parties_are_killed(there: Parties, seed: int) -> None:
    """All inputs and releases are compared with the ledgers, of which the first run, never begun, has none."""
    draw, kills = random.Random(seed), dict.fromkeys(there.names, 0)
    assert next_run(there.federation.folder, 300, 120) == 0
    with beside(there) as second:
        keep_history(second)
        second.start()
        for _ in range(3):
            name = draw.choice(second.names)
            until(lambda name=name: second.updates(name) > draw.randrange(1, 30), f"{name} to run")
            if second.federation.processes[name].is_alive():
                second.kill(name)
                kills[name] += 1
                second.start(name)
        second.finish()
        check_lives(second, kills)
