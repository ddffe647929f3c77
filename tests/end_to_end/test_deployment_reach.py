"""A broker that passes hellos and no models: parties say so, charge nothing alone, and go on when it is mended.

Each test waits half a minute for what is only known after that.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import Parties, experiment, parties, until

from gossamer.cli import main
from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.runtimes.mqtt.broker import Mosquitto

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(Mosquitto.missing() is not None, reason="needs mosquitto"),
    pytest.mark.usefixtures("called_here"),
]

A, B = "node-0", "node-1"
SPEC = """
dataset: digits
objective: {name: softmax, dtype: float64}
algorithm: {name: gossip, nodes: 2, topology: complete, batch_size: 32, updates_per_node: %d}
budget: {epsilon: 20, delta: 1.0e-4}
links: {retry_after: 0.5, silence: 5}
deployment: {release_deadline: %s, alone_after: %s}
"""
PATIENT = ("--gone-after", "300", "--wait", "5", "--connect-timeout", "120")
PATIENT_AT_FIRST = ("--gone-after", "30", "--wait", "60", "--connect-timeout", "120")
ALL = "topic readwrite #\n"


def allow(broker: Mosquitto, rules: str) -> None:
    """Change the broker's access list; connections stay."""
    assert broker.process is not None
    assert broker._folder is not None
    (Path(broker._folder.name) / "access").write_text(rules)
    broker.process.send_signal(signal.SIGHUP)


def level(there: Parties, name: str) -> int:
    """Exit code of ``gossamer status``."""
    return main(["status", str(there.folder(name).path)])


def test_large_messages_that_a_broker_drops_charge_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Mosquitto(largest_payload=1) as broker:  # with what is around a payload: packets of 4,097 bytes
        federation = LocalFederation.found(experiment(SPEC % (20, "auto", 30)), tmp_path / "f", broker.url)
        with parties(federation, PATIENT) as there:
            there.start()
            for name in there.names:
                until(lambda name=name: there.status(name).get("alone") is not None, f"{name} to know that it is alone")
                assert there.status(name)["state"] == "waiting"
                assert level(there, name) == 2
                said = capsys.readouterr().out
                assert "no peer has acknowledged anything for" in said
                assert "too large: the broker ended the connection over a message of" in said
                assert "it charges nothing more until one does" in said
                assert "has reached nobody, charges nothing, and waits" in there.log(name)
                assert not (there.folder(name).path / "store.sqlite").exists()
                assert main(["data", "show", str(federation.folder / name / "policy.yaml")]) == 0
                assert ": 0 % of its square" in capsys.readouterr().out


@pytest.mark.nightly
def test_an_access_list_that_is_wrong_in_the_midst_of_a_run_and_is_mended(tmp_path: Path) -> None:
    with Mosquitto(access=ALL) as broker:
        federation = LocalFederation.found(experiment(SPEC % (160, "0.4", 30)), tmp_path / "f", broker.url)
        with parties(federation, PATIENT) as there:
            there.start()
            for name in there.names:
                until(lambda name=name: there.updates(name) > 2, f"{name} to run")
            allow(broker, "topic readwrite gossamer/of-another-run/#\n")
            for name in there.names:
                until(lambda name=name: there.status(name).get("holds") is True, f"{name} to stop charging")
                assert level(there, name) == 2
            before = {name: there.status(name)["releases"] for name in there.names}
            allow(broker, ALL)
            assert max(before.values()) < 160
            there.finish()
            for name in there.names:
                assert there.status(name)["releases"] == 160
                assert "charges nothing more until one does" in there.log(name)
                assert "no longer so: no peer has acknowledged anything for" in there.log(name)


@pytest.mark.nightly
def test_a_run_that_ends_alone_is_not_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By request parties spend their budgets alone: the exit code, the status and the summary say that they did.

    Its updates take 48 s, as it is said after half a minute alone, and not of who has done its part.
    """
    with Mosquitto(access=ALL) as broker:
        federation = LocalFederation.found(experiment(SPEC % (120, "0.4", "off")), tmp_path / "f", broker.url)
        with parties(federation, PATIENT_AT_FIRST) as there:
            there.start()
            for name in there.names:
                until(lambda name=name: there.updates(name) > 2, f"{name} to run")
            allow(broker, "topic readwrite gossamer/of-another-run/#\n")
            assert there.join() == dict.fromkeys(there.names, 4)
            for name in there.names:
                assert there.status(name)["releases"] == 120
                assert there.status(name)["state"] == "finished"
                assert level(there, name) == 2
                assert "CRITICAL" in (said := capsys.readouterr().out)
                summary = json.loads((there.folder(name).path / "summary.json").read_text())
                assert summary["alone"].startswith("ends alone: for ")
                assert "nobody has acknowledged anything" in said
                assert summary["alone"] in there.log(name)
                assert "goes on, and spends its budget alone" in there.log(name)
