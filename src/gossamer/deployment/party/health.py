"""Health of a node, from what its status says: well, to be looked at, or in need of somebody now.

| level | when |
|---|---|
| ok | it runs, has the broker and its peers; or it has finished, whatever of the budget that took |
| warning | it starts, or was stopped; broker, peer or node is silent; papers expire soon; the budget runs low |
| warning | a peer is heard, and acknowledges nothing that it is sent |
| warning | it has made no progress for long; its last round came to nothing |
| warning | the receipts of a peer do not go on from those that were seen |
| critical | it failed or was killed; papers have expired; peers are lost without whom its part in the run cannot end |
| critical | the broker has confirmed nothing for long, or not the oldest message |
| critical | no peer has acknowledged anything for long, or had at its end: whatever it learns is its own |
| critical | it waits for lost peers; three rounds in a row came to nothing; it ended without all of its rounds |
| critical | peers have countersigned receipts that its ledger has not, even if its part is over |

Nothing heavy is imported here: monitoring asks every minute.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any

from gossamer.errors import CallerError, counted, failing_as
from gossamer.files import replaced

_DAY = 86400.0
LOST = ("gone", "quarantined", "removed")
"""States of peers that are not waited for."""
_EMPTY = 3
"""Rounds in a row that came to nothing, from which somebody is needed now."""
SILENCE = 120.0
"""Most seconds without a word of a process that is well."""
ALONE = 30.0
"""Seconds without an acknowledgement of any peer after which somebody has to look."""
_STARTING = ("starting", "connecting", "waiting")


KINDS = (
    *("process", "end", "papers", "budget", "ledger", "receipts"),
    *("reach", "silence", "broker", "peers", "versions", "progress", "clock"),
)
"""What problems are about, as alarms name them."""


class Severity(IntEnum):
    """Level of a problem; its number is the exit code of ``gossamer status``."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


WARNING, CRITICAL = Severity.WARNING, Severity.CRITICAL
Alerts = Iterator[tuple[Severity, str]]


@dataclass(frozen=True)
class Alert:
    """One thing that somebody should look at.

    Attributes
    ----------
    level : Severity
        Urgency of it.
    text : str
        Text in words, with what to do.
    kind : str
        Subject, one of `KINDS`.
    """

    level: Severity
    text: str
    kind: str


@dataclass(frozen=True)
class HealthLimits:
    """Limits from which something is a problem.

    Attributes
    ----------
    days : float
        Days before papers expire.
    share : float
        Share of the policy's budget that is charged; 1 or more for never.
    """

    days: float = 14.0
    share: float = 0.9


def problems(status: Mapping[str, Any], now: float, limits: HealthLimits = HealthLimits()) -> list[Alert]:
    """Return what is wrong with a node, the worst first.

    Parameters
    ----------
    status : mapping of str to Any
        The same as `StateFolder.status` gives it.
    now : float
        Seconds since 1970.
    limits : HealthLimits, optional
        Limits from which something is a problem.
    """
    state, runs = status["state"], status.get("process") is not None
    found: dict[str, Iterable[tuple[Severity, str]]] = {"ledger": _of_ledger(status)}
    if state == "finished":
        found["end"] = [(CRITICAL, status["why"])] if status.get("why") else []
    else:
        found["process"], found["papers"] = _of_process(status), _of_papers(status, now, limits)
        found["budget"], found["receipts"] = _of_budget(status, limits), _of_receipts(status)
        found["reach"] = _of_reach(status) if runs else []
    if runs and state not in (*_STARTING, "finished"):
        found["silence"], found["broker"] = _of_silence(status, now), _of_broker(status)
        found["peers"], found["versions"] = _of_peers(status), _of_versions(status)
        found["progress"] = _of_progress(status)
    every = [Alert(level, text, kind) for kind in KINDS for level, text in found.get(kind, ())]
    return sorted(every, key=lambda problem: -problem.level)


def level_of(found: list[Alert]) -> Severity:
    """The worst level."""
    return max((problem.level for problem in found), default=Severity.OK)


def grade(status: dict[str, Any], found: list[Alert]) -> None:
    """Write into a status what is wrong with its node, the worst first, and the worst level."""
    ordered = sorted(found, key=lambda one: -one.level)
    status["level"] = level_of(found).name.lower()
    status["problems"] = [{"level": one.level.name.lower(), "kind": one.kind, "text": one.text} for one in ordered]


def _of_process(status: Mapping[str, Any]) -> Alerts:
    state, why = status["state"], status.get("why")
    if state == "killed":
        cause = f"ended, since {why}" if why else "was killed"
        yield CRITICAL, f"{cause}; start it again with the same command, and it goes on"
    elif state not in ("running", "lingering", "stopped", *_STARTING):
        yield CRITICAL, f"{state}{f': {why}' if why else ''}"
    elif state == "stopped":
        yield WARNING, "was stopped before its part in the run was over; start it again to go on"
    elif state in _STARTING:
        waits = ""
        if orders := status.get("orders"):
            # It brings what signatures need, and monitors come every minute.
            from gossamer.keys.orders import PAUSED, paused

            waits = f"waits: {PAUSED}" if paused(orders) else ""
        begun = "gone on" if status.get("releases") else "begun"
        yield WARNING, waits or f"has not {begun} yet: it is {state}"
    for order, unless in status.get("orders", {}).items():
        if unless:
            yield WARNING, f"the organiser has given the order: {order}; {unless}"


def _of_papers(status: Mapping[str, Any], now: float, limits: HealthLimits) -> Alerts:
    for what, text in status.get("expires", {}).items():
        left = (datetime.fromisoformat(text).timestamp() - now) / _DAY
        day = datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
        if left <= 0:
            yield CRITICAL, f"its {what} expired at {day}, and it cannot start or connect again; get a new one"
        elif left <= limits.days:
            days = counted(int(left), "day")
            yield WARNING, f"its {what} expires in {days}, at {day}; ask the organiser to renew it"


def _of_budget(status: Mapping[str, Any], limits: HealthLimits) -> Alerts:
    # Once it has finished nothing more is charged to it, and the end of what was planned is no fault.
    policy = None if status.get("finished") else status.get("policy")
    if policy and limits.share <= (share := policy["share_charged"]) and limits.share < 1:
        yield (
            WARNING,
            f"has epsilon {policy['epsilon_charged']:.4g} charged to the policy, of {policy['epsilon']:.4g} that it "
            f"allows ({share:.0%} of its budget), so hardly another run will be let in",
        )


def _of_ledger(status: Mapping[str, Any]) -> Alerts:
    said = status.get("why") or ""  # of a start that was refused for it
    if forgotten := [line for line in status.get("forgotten", ()) if line not in said]:
        yield (
            CRITICAL,
            f"this is not its newest ledger: {'; '.join(forgotten)}; stop the node and put its newest ledger back; if "
            "that is lost, take part in no run with these data until their owner has lowered the policy's epsilon",
        )


def _of_receipts(status: Mapping[str, Any]) -> Alerts:
    for name, peer in status.get("peers", {}).items():
        if why := peer.get("receipts"):
            yield WARNING, f"takes nothing of {name}: {why}"


def _of_reach(status: Mapping[str, Any]) -> Alerts:
    peers, late = status.get("peers", {}), status.get("unacknowledged", {})
    if status.get("alone") is not None:
        spends = not (status["state"] in _STARTING or status.get("holds"))
        then = "it goes on, and spends its budget alone" if spends else "it charges nothing more until one does"
        if status.get("finished"):
            then = "its part is over, and it waits for them"
        who = "; ".join(f"{name} ({peer['why']})" for name, peer in late.items())
        yield CRITICAL, f"no peer has acknowledged anything for {status['alone']:.0f} s: {who}; {then}"
        return
    for name, peer in late.items():
        if peers.get(name, {}).get("state") == "up":
            yield WARNING, f"{name} is heard, and has acknowledged nothing for {peer['seconds']:.0f} s: {peer['why']}"


def _of_progress(status: Mapping[str, Any]) -> Alerts:
    if stalled := status.get("stalled"):
        lost = any(status["peers"].get(name, {}).get("state") in LOST for name in stalled["waits_for"])
        since = datetime.fromtimestamp(stalled["since"], UTC).strftime("%H:%M:%S UTC")
        yield (
            CRITICAL if lost else WARNING,
            f"no progress since {since}: waits for {', '.join(stalled['waits_for'])}",
        )
    rounds = status.get("rounds") or {}
    if lately := rounds.get("lately"):
        yield (
            CRITICAL if lately >= _EMPTY else WARNING,
            f"the last {counted(lately, 'round')} came to nothing, and {rounds['made']} of {rounds['planned']} are "
            "made: nobody answered, or there was no sum that could be used",
        )


def _of_silence(status: Mapping[str, Any], now: float) -> Alerts:
    if (silent := now - status.get("written", now)) > SILENCE:
        yield WARNING, f"has written no status for {silent:.0f} s; its machine may be too busy"


def _of_broker(status: Mapping[str, Any]) -> Alerts:
    if not status.get("connected"):
        yield WARNING, f"has no broker, and goes on trying: {status.get('broker_says') or 'no answer'}"
    elif why := status.get("broker_says"):
        yield CRITICAL, f"what it sends is lost on the way to the broker, or its answers are: {why}"


def _of_peers(status: Mapping[str, Any]) -> Alerts:
    peers = {name: peer for name, peer in status.get("peers", {}).items() if peer["state"] != "removed"}
    lost = {name for name, peer in peers.items() if peer["state"] in LOST and not peer.get("finished")}
    left = {name for name, peer in peers.items() if not peer.get("finished")} - lost
    stuck = lost and not status.get("finished") and (bool(lost & set(status.get("needs", ()))) or not left)
    if stuck:
        yield (
            CRITICAL,
            f"lost {', '.join(sorted(lost))}, and its part in the run cannot end without; it goes on if they come "
            "back, and `gossamer stop --leave` ends it for good",
        )
    for name, peer in peers.items():
        about = f"{name} is {peer['state']} ({peer['seconds']:.0f} s)"
        if name in lost and not stuck:
            yield WARNING, f"{about}; the run goes on without it as long as it is away"
        elif peer["state"] in ("silent", "never heard") and not peer.get("finished"):
            yield WARNING, about


def _of_versions(status: Mapping[str, Any]) -> Alerts:
    mine = status.get("version")
    for name, peer in status.get("peers", {}).items():
        if mine and peer.get("version") not in (None, mine):
            yield (
                WARNING,
                f"runs gossamer {mine}, and {name} {peer['version']}; parties of a run need one version, so agree "
                "on one before the next run",
            )


# Statuses of nodes as a text file for the textfile collector of Prometheus' node exporter.
#
# The file is replaced whole, and others may read it: the collector is another user of the machine. It holds what
# `gossamer status` prints, and nothing of the data.
#
# References
# ----------
# Prometheus, "Exposition formats", text-based format, version 0.0.4.

SUFFIX = ".prom"
"""The collector reads no other files."""
STATES = ("starting", "connecting", "waiting", "running", "lingering", "finished", "stopped", "failed", "killed")

Status = Mapping[str, Any]
Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, float]]


def _number(status: Status, key: str) -> Samples:
    """The number, or truth value, below a key such as ``policy.share_charged``, if it is there."""
    found: Any = status
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return [({}, float(found))] if isinstance(found, int | float) else []


def _of_running(status: Status, key: str, value: Callable[[Any], float]) -> Samples:
    """A number of a node that a process runs, if the key is there."""
    return [({}, value(status[key]))] if key in status and status["process"] is not None else []


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


_COMPUTED: Mapping[str, Callable[[Status], Samples]] = {
    "node_level": lambda s: [({}, Severity[s["level"].upper()])] if "level" in s else [],
    "node_problem_level": _levels,
    "node_process_running": lambda s: [({}, s["process"] is not None)],
    "node_state": lambda s: [({"state": state}, s["state"] == state) for state in STATES],
    "node_part_over": lambda s: [({}, bool(s.get("finished")))],
    "node_alone_seconds": lambda s: _of_running(s, "alone", lambda alone: alone or 0.0),
    "node_stalled_seconds": lambda s: _of_running(s, "stalled", lambda stalled: stalled["seconds"] if stalled else 0.0),
    "peer_unacknowledged_seconds": lambda s: [
        ({"peer": name}, peer["seconds"]) for name, peer in _peers(s, "unacknowledged")
    ],
    "node_receipts_forgotten": lambda s: [({}, len(s["forgotten"]))] if "forgotten" in s else [],
    "node_paper_expires_timestamp_seconds": _expiries,
    "peer_up": lambda s: [({"peer": name}, peer["state"] == "up") for name, peer in _peers(s)],
    "peer_state_seconds": lambda s: [
        ({"peer": name, "state": peer["state"]}, peer["seconds"]) for name, peer in _peers(s)
    ],
    "peer_dropped_total": lambda s: [
        ({"peer": n, "reason": why}, count) for n, p in _peers(s) for why, count in p["dropped"].items()
    ],
}
"""Samples of metrics that are more than a number of a status."""

METRICS: Mapping[str, tuple[str, str | Callable[[Status], Samples]]] = {
    name: (text, _COMPUTED.get(name, key))
    for name, (text, key) in json.loads(Path(__file__).with_name("metrics.json").read_text("utf-8")).items()
}
"""Metrics of nodes by their names after ``gossamer_``: a line on each, and its key in a status, or its samples.

What ends with ``_total`` is a counter, which begins again at 0 when a node's process is started; others are gauges.
"""


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
    with (
        failing_as(CallerError, f"{path}: cannot write the metrics: ", "; choose another file"),
        replaced(path, opener=lambda name, flags: os.open(name, flags, 0o666)) as file,
    ):
        file.write(exposition(statuses).encode())


def exposition(statuses: Mapping[str, Status | None]) -> str:
    """Metrics of nodes in Prometheus' text format; see `write_metrics`."""
    known = {store: status for store, status in statuses.items() if status is not None}
    readable: list[tuple[Labels, float]] = [
        ({"store": store}, float(status is not None)) for store, status in statuses.items()
    ]
    lines = _family("node_status_readable", "Whether the state folder has a status of a node.", readable)
    for name, (text, source) in METRICS.items():
        samples: list[tuple[Labels, float]] = [
            # The store alone tells any two nodes apart.
            ({"store": store, **{key: str(status.get(key, "")) for key in ("node", "run")}, **labels}, float(value))
            for store, status in known.items()
            for labels, value in (_number(status, source) if isinstance(source, str) else source(status))
        ]
        lines += _family(name, text, samples)
    return "".join(f"{line}\n" for line in lines)


def _family(name: str, text: str, samples: list[tuple[Labels, float]]) -> list[str]:
    """Lines of one metric; none if it has no samples."""
    full, kind = f"gossamer_{name}", "counter" if name.endswith("_total") else "gauge"
    head = [f"# HELP {full} {text}", f"# TYPE {full} {kind}"] if samples else []
    return [*head, *(f"{full}{{{_labels(labels)}}} {value!r}" for labels, value in samples)]


def _labels(labels: Labels) -> str:
    return ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())


def _escaped(value: str) -> str:
    """The value of a label, in which the format gives a backslash, a quote and a new line a meaning."""
    printable = value.encode(errors="replace").decode()
    return printable.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
