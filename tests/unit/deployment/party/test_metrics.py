"""Metrics of nodes, as the library of Prometheus reads them."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from gossamer.cli import main
from gossamer.deployment.party.health import KINDS, METRICS, STATES, exposition, write_metrics
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import CallerError

parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus-client, which is in the extra dev")

STATUS: dict[str, Any] = {
    "node": "hospital-a",
    "run": "0123",
    "state": "running",
    "finished": None,
    "seconds": 12.5,
    "updates": 7,
    "releases": 6,
    "planned_releases": 30,
    "connected": True,
    "datagrams": {"sent": 40, "received": 41},
    "messages_rejected": 2,
    "forgotten": ["c has countersigned receipt 5 (head 00), and it has 3"],
    "peers": {
        "hospital-b": {"state": "up", "seconds": 3.0, "finished": None, "dropped": {}},
        "c": {"state": "gone", "seconds": 400.0, "finished": None, "dropped": {"malformed": 3, "replayed": 1}},
    },
    "written": 1795000000.25,
    "expires": {"invitation": "2026-11-18T21:46:40+00:00", "certificate": "2026-11-18T21:46:41Z"},
    "policy": {"epsilon": 4.0, "epsilon_charged": 1.5, "share_charged": 0.4},
    "process": 99,
    "level": "critical",
    "problems": [
        {"level": "critical", "kind": "ledger", "text": "this is not its newest ledger"},
        {"level": "warning", "kind": "peers", "text": "c is gone"},
    ],
    "alone": 40.0,
    "stalled": {"since": 1795000000.0, "seconds": 45.5, "waits_for": ["c"]},
    "rounds": {"made": 35, "empty": 5, "planned": 40, "lately": 1},
    "unacknowledged": {"c": {"seconds": 50.0, "why": "not allowed"}},
}
PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "monitoring.md"
ALARMS = PAGE.parents[2] / "deploy" / "alarms.yaml"
NODE = {"store": "a/state", "node": "hospital-a", "run": "0123"}


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
    values = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in found}
    assert len(values) == len(found), "a series stands there twice, which the collector refuses"
    return values


def value(text: str, name: str, **labels: str) -> float:
    return samples(text)[f"gossamer_{name}", frozenset({**NODE, **labels}.items())]


def test_every_figure_of_a_status_is_there() -> None:
    text = exposition({"a/state": STATUS})
    assert value(text, "node_process_running") == 1
    assert value(text, "node_broker_connected") == 1
    assert value(text, "node_part_over") == 0
    assert value(text, "node_receipts_forgotten") == 1
    assert [value(text, f"node_{name}") for name in ("stalled_seconds", "rounds_made", "rounds_empty")] == [45.5, 35, 5]
    assert value(text, "node_running_seconds") == 12.5
    assert value(text, "node_updates_total") == 7
    assert (value(text, "node_releases"), value(text, "node_planned_releases")) == (6, 30)
    assert (value(text, "node_datagrams_sent_total"), value(text, "node_datagrams_received_total")) == (40, 41)
    assert value(text, "node_messages_rejected_total") == 2
    assert value(text, "node_status_written_timestamp_seconds") == 1795000000.25
    # 2026-11-18 is 20775 days of 86400 s after 1970-01-01, and 21 h 46 min 40 s.
    assert value(text, "node_paper_expires_timestamp_seconds", paper="invitation") == 20775 * 86400 + 78400
    assert value(text, "node_paper_expires_timestamp_seconds", paper="certificate") == 20775 * 86400 + 78401
    assert value(text, "node_policy_epsilon_ratio") == 0.4
    assert {state: value(text, "node_state", state=state) for state in STATES} == {
        state: float(state == "running") for state in STATES
    }
    assert (value(text, "peer_up", peer="hospital-b"), value(text, "peer_up", peer="c")) == (1, 0)
    assert value(text, "peer_state_seconds", peer="c", state="gone") == 400
    assert value(text, "peer_dropped_total", peer="c", reason="malformed") == 3
    assert value(text, "node_level") == 2
    assert {kind: value(text, "node_problem_level", problem=kind) for kind in KINDS} == {
        kind: {"ledger": 2, "peers": 1}.get(kind, 0) for kind in KINDS
    }
    assert value(text, "node_alone_seconds") == 40
    assert value(text, "peer_unacknowledged_seconds", peer="c") == 50


def test_what_a_dead_node_said_last_is_not_so_any_longer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The node was killed, so its status is the one of a node that ran, had the broker and heard its peers."""
    folder = StateFolder(tmp_path / "state")
    folder.take()
    folder.publish({name: said for name, said in STATUS.items() if name not in ("process", "level", "problems")})
    folder.give_back()
    file = tmp_path / "nodes.prom"
    assert main(["status", str(folder.path), "--prometheus", str(file)]) == 2
    assert capsys.readouterr().out.splitlines()[-1].split()[-2:] == ["-", "-"]
    found = {key: number for (key, _), number in samples(file.read_text()).items()}
    assert (found["gossamer_node_process_running"], found["gossamer_node_broker_connected"]) == (0, 0)
    assert found["gossamer_node_level"] == 2
    assert not {key for key in found if "peer_" in key or "alone" in key or "stalled" in key}
    assert value(file.read_text().replace(str(folder.path), "a/state"), "node_problem_level", problem="process") == 2


def test_the_page_has_every_metric_and_alarms_are_on_no_other() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = {f"gossamer_{name}" for name in METRICS} | {"gossamer_node_status_readable"}
    assert names == set(re.findall(r"^\| `(gossamer_\w+)`", text, re.MULTILINE)) | set(
        re.findall(r"^\| `gossamer_\w+`, `(gossamer_\w+)`", text, re.MULTILINE)
    )
    for rules in (ALARMS.read_text(encoding="utf-8"), text):
        assert set(re.findall(r"gossamer_(?:node|peer)_\w+", rules)) <= names


def test_every_metric_has_a_help_and_a_type_that_goes_with_its_name() -> None:
    families = list(parser.text_string_to_metric_families(exposition({"a/state": STATUS})))
    assert len(families) == 1 + len(METRICS)
    for family in families:
        assert family.documentation.endswith(".")
        counts = all(sample.name.endswith("_total") for sample in family.samples)
        assert family.type == ("counter" if counts else "gauge")


@pytest.mark.parametrize("name", ['with "quotes"', "back\\slash", "two\nlines", "\\n", "\udcff", "{a=1}, b"])
def test_names_that_the_format_has_a_meaning_for_come_back(name: str) -> None:
    (found,) = (labels for key, labels in samples(exposition({name: None})) if key == "gossamer_node_status_readable")
    assert found == {("store", name.encode(errors="replace").decode())}


def test_a_node_that_has_just_started_has_fewer() -> None:
    text = exposition({"a/state": {"node": "n", "run": "r", "state": "starting", "process": None}, "b/state": None})
    found = {key: number for (key, _), number in samples(text).items()}
    assert found["gossamer_node_process_running"] == 0
    assert "gossamer_node_updates_total" not in found
    readable = {dict(labels)["store"]: n for (key, labels), n in samples(text).items() if key.endswith("readable")}
    assert readable == {"a/state": 1, "b/state": 0}


def test_the_command_writes_the_file_even_if_a_folder_is_no_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.take()
    folder.publish({"node": "n", "run": "r", "state": "finished"})
    folder.give_back()
    file = tmp_path / "nodes.prom"
    missing = str(tmp_path / "missing")
    assert main(["status", str(folder.path), "--json", "--prometheus", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)[str(folder.path)]["state"] == "finished"
    first = file.read_text()
    assert main(["status", str(folder.path), missing, "--prometheus", str(file)]) == 2
    assert "no node has run here" in capsys.readouterr().out
    added = set(samples(file.read_text())) - set(samples(first))
    assert added == {("gossamer_node_status_readable", frozenset({("store", missing)}))}
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_the_collector_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_metrics(tmp_path / "nodes.prom", {"a/state": STATUS})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "nodes.prom").stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("name", "said"),
    [("nodes.txt", r"--prometheus: expected a name that ends with \.prom"), ("no/a.prom", "cannot write the metrics")],
)
def test_a_file_that_would_not_be_read_is_refused(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(CallerError, match=said):
        write_metrics(tmp_path / name, {"a/state": STATUS})
    assert list(tmp_path.iterdir()) == []
