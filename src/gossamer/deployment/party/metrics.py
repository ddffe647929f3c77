"""Statuses of nodes as a text file for the textfile collector of Prometheus' node exporter.

The file is replaced whole, and others may read it: the collector is another user of the machine. It holds what
`gossamer status` prints, and nothing of the data.

References
----------
Prometheus, "Exposition formats", text-based format, version 0.0.4.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gossamer.deployment.party.health import KINDS, Severity
from gossamer.errors import CallerError
from gossamer.files import replaced

SUFFIX = ".prom"
"""The collector reads no other files."""
STATES = ("starting", "connecting", "waiting", "running", "lingering", "finished", "stopped", "failed", "killed")

Status = Mapping[str, Any]
Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, float]]


@dataclass(frozen=True)
class Metric:
    """A metric of nodes.

    Attributes
    ----------
    name : str
        Name after ``gossamer_``, with its unit.
    kind : str
        ``gauge``, or ``counter``, which begins again at 0 when a node's process is started.
    help : str
        One line.
    samples : callable
        Samples of a status: labels beside those of the node, and values.
    """

    name: str
    kind: str
    help: str
    samples: Callable[[Status], Samples]


def _one(*keys: str) -> Callable[[Status], Samples]:
    """Read the number, or truth value, below these keys, if it is there."""

    def samples(status: Status) -> Samples:
        found: Any = status
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return [({}, float(found))] if isinstance(found, int | float) else []

    return samples


def _states(status: Status) -> Samples:
    return [({"state": state}, float(status["state"] == state)) for state in STATES]


def _expiries(status: Status) -> Samples:
    """Unix times at which papers expire, of those that are times."""
    for what, text in status.get("expires", {}).items():
        with suppress(ValueError):
            yield {"paper": what}, datetime.fromisoformat(text).timestamp()


def _peers(status: Status, key: str = "peers") -> Iterator[tuple[str, Status]]:
    """Statuses of a node's peers, if a process runs it: what a dead one said last is not so any longer."""
    if status["process"] is not None:
        yield from status.get(key, {}).items()


def _levels(status: Status) -> Samples:
    """Level of the problems of each kind; 0 for none."""
    for kind in KINDS if "problems" in status else ():
        ones = [Severity[one["level"].upper()] for one in status["problems"] if one["kind"] == kind]
        yield {"problem": kind}, max(ones, default=Severity.OK)


METRICS = (
    Metric(
        "node_level",
        "gauge",
        "Severity of the node as gossamer status has it: 0 ok, 1 warning, 2 critical.",
        lambda s: [({}, Severity[s["level"].upper()])] if "level" in s else [],
    ),
    Metric("node_problem_level", "gauge", "Severity of the problems of each kind; 0 if there is none.", _levels),
    Metric(
        "node_process_running", "gauge", "Whether a process runs the node.", lambda s: [({}, s["process"] is not None)]
    ),
    Metric("node_state", "gauge", "Whether the node is in this state: 1 for one of them.", _states),
    Metric(
        "node_part_over", "gauge", "Whether the node makes no more updates.", lambda s: [({}, bool(s.get("finished")))]
    ),
    Metric("node_broker_connected", "gauge", "Whether the node is connected to the broker.", _one("connected")),
    Metric("node_running_seconds", "gauge", "Seconds since the process began its part.", _one("seconds")),
    Metric("node_updates_total", "counter", "Whole updates since the process began.", _one("updates")),
    Metric("node_releases", "gauge", "Releases charged to the ledger since the run began.", _one("releases")),
    Metric("node_planned_releases", "gauge", "Releases that the plan of the run has.", _one("planned_releases")),
    Metric(
        "node_datagrams_sent_total", "counter", "Datagrams sent since the process began.", _one("datagrams", "sent")
    ),
    Metric(
        "node_datagrams_received_total",
        "counter",
        "Datagrams received since the process began.",
        _one("datagrams", "received"),
    ),
    Metric(
        "node_messages_rejected_total",
        "counter",
        "Messages refused since the process began.",
        _one("messages_rejected"),
    ),
    Metric(
        "node_status_written_timestamp_seconds",
        "gauge",
        "When the node last wrote its status (Unix time).",
        _one("written"),
    ),
    Metric(
        "node_alone_seconds",
        "gauge",
        "Seconds for which no peer has acknowledged anything, from 30 on.",
        lambda s: [({}, s.get("alone") or 0.0)] if "alone" in s and s["process"] is not None else [],
    ),
    Metric(
        "node_stalled_seconds",
        "gauge",
        "Seconds without progress, once that is longer than usual; 0 while it gets on.",
        lambda s: (
            [({}, (s["stalled"] or {}).get("seconds", 0.0))] if s["process"] is not None and "stalled" in s else []
        ),
    ),
    Metric("node_rounds_made", "gauge", "Rounds of the plan that were made.", _one("rounds", "made")),
    Metric("node_rounds_empty", "gauge", "Rounds of the plan that came to nothing.", _one("rounds", "empty")),
    Metric(
        "peer_unacknowledged_seconds",
        "gauge",
        "Seconds for which a peer has acknowledged nothing, from 15 on.",
        lambda s: [({"peer": name}, peer["seconds"]) for name, peer in _peers(s, "unacknowledged")],
    ),
    Metric(
        "node_receipts_forgotten",
        "gauge",
        "Peers that have countersigned receipts which the ledger of the node has not.",
        lambda s: [({}, len(s["forgotten"]))] if "forgotten" in s else [],
    ),
    Metric(
        "node_paper_expires_timestamp_seconds",
        "gauge",
        "When the invitation and the certificate expire (Unix time).",
        _expiries,
    ),
    Metric(
        "node_policy_epsilon_ratio",
        "gauge",
        "Share of the policy's budget that is charged, by all runs together.",
        _one("policy", "share_charged"),
    ),
    Metric(
        "peer_up",
        "gauge",
        "Whether a peer of the node is up.",
        lambda s: [({"peer": name}, peer["state"] == "up") for name, peer in _peers(s)],
    ),
    Metric(
        "peer_state_seconds",
        "gauge",
        "Seconds for which a peer has been in its state.",
        lambda s: [({"peer": name, "state": peer["state"]}, peer["seconds"]) for name, peer in _peers(s)],
    ),
    Metric(
        "peer_dropped_total",
        "counter",
        "Datagrams of a peer dropped since the process began, by reason.",
        lambda s: [
            ({"peer": name, "reason": reason}, count)
            for name, peer in _peers(s)
            for reason, count in peer["dropped"].items()
        ],
    ),
)


def write_metrics(path: Path, statuses: Mapping[str, Status | None]) -> None:
    """Write the metrics of nodes.

    Parameters
    ----------
    path : Path
        The file, which ends with ``.prom``; replaced whole or not at all, and readable as the umask has it.
    statuses : mapping of str to dict or None
        Statuses by state folder, as `StateFolder.status` gives them; None where there is none to be read.

    Raises
    ------
    CallerError
        If the name is not one that the collector reads, or the file cannot be written.
    """
    if path.suffix != SUFFIX:
        raise CallerError(
            f"--prometheus: expected a name that ends with {SUFFIX}, since the textfile collector reads no other, "
            f"found {path.name!r}; rename it"
        )
    try:
        with replaced(path, opener=lambda name, flags: os.open(name, flags, 0o666)) as file:
            file.write(exposition(statuses).encode())
    except OSError as error:
        raise CallerError(f"{path}: cannot write the metrics: {error.strerror}; choose another file") from None


def exposition(statuses: Mapping[str, Status | None]) -> str:
    """Metrics of nodes in Prometheus' text format; see `write_metrics`."""
    known = {store: status for store, status in statuses.items() if status is not None}
    readable: list[tuple[Labels, float]] = [
        ({"store": store}, float(status is not None)) for store, status in statuses.items()
    ]
    lines = _family("node_status_readable", "gauge", "Whether the state folder has a status of a node.", readable)
    for metric in METRICS:
        samples: list[tuple[Labels, float]] = [
            ({**_node(store, status), **labels}, float(value))
            for store, status in known.items()
            for labels, value in metric.samples(status)
        ]
        lines += _family(metric.name, metric.kind, metric.help, samples)
    return "".join(f"{line}\n" for line in lines)


def _node(store: str, status: Status) -> Labels:
    """Labels of a node; the store alone tells any two apart."""
    return {"store": store, "node": str(status.get("node", "")), "run": str(status.get("run", ""))}


def _family(name: str, kind: str, text: str, samples: list[tuple[Labels, float]]) -> list[str]:
    """Lines of one metric; none if it has no samples."""
    full = f"gossamer_{name}"
    head = [f"# HELP {full} {text}", f"# TYPE {full} {kind}"] if samples else []
    return [*head, *(f"{full}{{{_labels(labels)}}} {value!r}" for labels, value in samples)]


def _labels(labels: Labels) -> str:
    return ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())


def _escaped(value: str) -> str:
    """The value of a label, in which the format gives a backslash, a quote and a new line a meaning."""
    printable = value.encode(errors="replace").decode()
    return printable.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
