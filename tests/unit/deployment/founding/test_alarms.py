"""Alarms of Prometheus in ``deploy/``: its own checker accepts them, and they go off by what the commands write."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossamer.deployment.overview.watch import Statuses, judged
from gossamer.deployment.party.health import KINDS, exposition
from gossamer.deployment.peers.digest import Digest
from gossamer.deployment.peers.standing import PeerState

RULES = Path(__file__).resolve().parents[4] / "deploy" / "alarms.yaml"
NOW, RUN = 1.7e9, "r"
WELL = {"state": "running", "since": NOW, "time": NOW, "version": "1", "updates": 3, "connected": True}
HEARD = PeerState("up", 1.0, True, "", {}, digest=Digest.of({**WELL, "peers": {"b": {"state": "silent"}}}))
SILENT = PeerState("never heard", 90.0, True, "", {})
CRITICAL, WARNING = "GossamerNodeCritical", "GossamerNodeWarning"


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    if (tool := shutil.which("promtool")) is None:
        pytest.skip("no promtool on this machine: apt-get install prometheus")
    return subprocess.run([tool, *words], capture_output=True, text=True, check=False, timeout=60)


def go_off(folder: Path, statuses: Statuses, minutes: int, expected: Counter[tuple[str, str, str]]) -> str:
    """What promtool says of the alarms after so many minutes of metrics, where such a number of each is expected.

    The same metrics are written each minute.
    """
    lines = [line.rpartition(" ") for line in exposition(statuses).splitlines() if not line.startswith("#")]
    series = [{"series": name, "values": f"{float(value):g}x{minutes}"} for name, _, value in lines]
    tests = [
        {
            "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing",node="{node}",problem="{kind}"}})',
            "eval_time": f"{minutes}m",
            "exp_samples": [{"labels": "{}", "value": count}] if count else [],
        }
        for (alert, node, kind), count in expected.items()
    ]
    every = {"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": f"{minutes}m"}
    total = sum(expected.values())
    tests.append(every | {"exp_samples": [{"labels": "{}", "value": total}] if total else []})
    group = {"interval": "1m", "input_series": series, "promql_expr_test": tests}
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [group]}
    (folder / "tests.yaml").write_text(yaml.safe_dump(document))
    found = promtool("test", "rules", str(folder / "tests.yaml"))
    return "" if found.returncode == 0 else found.stdout + found.stderr


def test_prometheus_accepts_the_rules(tmp_path: Path) -> None:
    found = promtool("check", "rules", str(RULES))
    assert (found.returncode, re.findall(r"(\d+) rules found", found.stdout)) == (0, ["5"]), found.stderr
    (tmp_path / "wrong.yaml").write_text(RULES.read_text().replace("expr:", "exp:"))
    assert promtool("check", "rules", str(tmp_path / "wrong.yaml")).returncode != 0


def test_a_silent_party_has_an_alarm_at_once_and_who_misses_it_one_after_a_while(tmp_path: Path) -> None:
    """All that the overview says of the two is there, and nothing else."""
    statuses = judged({"a": HEARD, "b": SILENT}, RUN, NOW)
    silent = Counter({(CRITICAL, "b", "silence"): 1})
    assert [one["level"] for one in statuses.values()] == ["warning", "critical"]
    assert go_off(tmp_path, statuses, 2, silent) == ""
    missed = Counter({(WARNING, "a", "peers"): 1})
    assert go_off(tmp_path, statuses, 7, silent + missed) == ""
    assert go_off(tmp_path, statuses, 7, silent) != ""


def test_parties_that_are_well_have_none(tmp_path: Path) -> None:
    well = PeerState("up", 1.0, True, "", {}, digest=Digest.of(WELL))
    assert go_off(tmp_path, judged({"a": well, "b": well}, RUN, NOW), 10, Counter()) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_problem_has_an_alarm(kind: str, tmp_path: Path) -> None:
    status: dict[str, Any] = {"node": "a", "run": RUN, "state": "running", "process": 1, "level": "critical"}
    status["problems"] = [{"level": "critical", "kind": kind, "text": "something"}]
    assert go_off(tmp_path, {"a": status}, 1, Counter({(CRITICAL, "a", kind): 1})) == ""


def test_a_state_that_cannot_be_read_has_an_alarm(tmp_path: Path) -> None:
    found = {"/var/lib/gossamer": None}
    assert go_off(tmp_path, found, 1, Counter({("GossamerNodeUnreadable", "", ""): 1})) == ""  # type: ignore[arg-type]
