"""Health of a node, from what its status says: well, to be looked at, or in need of somebody now.

| level | when |
|---|---|
| ok | it runs, has the broker and its peers; or it has finished, whatever of the budget that took |
| warning | it starts, or was stopped; broker, peer or node is silent; papers expire soon; the budget runs low |
| warning | a peer is heard, and acknowledges nothing that it is sent |
| warning | it has made no progress for long; its last round came to nothing |
| warning | the receipts of a peer do not go on from those that were seen |
| critical | it failed or was killed; papers have expired; peers are lost without whom its part in the run cannot end |
| critical | no peer has acknowledged anything for long, or had at its end: whatever it learns is its own |
| critical | it waits for lost peers; three rounds in a row came to nothing; it ended without all of its rounds |
| critical | peers have countersigned receipts that its ledger has not, even if its part is over |

Nothing heavy is imported here: monitoring asks every minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

from gossamer.errors import counted

_DAY = 86400.0
LOST = ("gone", "quarantined")
"""States of peers that are not waited for."""
_EMPTY = 3
"""Rounds in a row that came to nothing, from which somebody is needed now."""
_STARTING = ("starting", "connecting", "waiting")


KINDS = (
    "process",
    "end",
    "papers",
    "budget",
    "ledger",
    "receipts",
    "reach",
    "silence",
    "broker",
    "peers",
    "versions",
    "progress",
)
"""What problems are about, as alarms name them."""


class Severity(IntEnum):
    """Level of a problem; its number is the exit code of ``gossamer status``."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


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
    kind: str = ""


@dataclass(frozen=True)
class HealthLimits:
    """Limits from which something is a problem.

    Attributes
    ----------
    days : float
        Days before papers expire.
    share : float
        Share of the policy's budget that is charged; 1 or more for never.
    silence : float
        Seconds without a word of a process that runs.
    """

    days: float = 14.0
    share: float = 0.9
    silence: float = 120.0


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
    found: dict[str, Iterable[Alert]] = {"ledger": _of_ledger(status)}
    if state == "finished":
        found["end"] = [Alert(Severity.CRITICAL, status["why"])] if status.get("why") else []
    else:
        found["process"], found["papers"] = _of_process(status), _of_papers(status, now, limits)
        found["budget"], found["receipts"] = _of_budget(status, limits), _of_receipts(status)
        found["reach"] = _of_reach(status) if runs else []
    if runs and state not in (*_STARTING, "finished"):
        found["silence"], found["broker"] = _of_silence(status, now, limits), _of_broker(status)
        found["peers"], found["versions"] = _of_peers(status), _of_versions(status)
        found["progress"] = _of_progress(status)
    every = [replace(problem, kind=kind) for kind in KINDS for problem in found.get(kind, ())]
    return sorted(every, key=lambda problem: -problem.level)


def level_of(found: list[Alert]) -> Severity:
    """The worst level."""
    return max((problem.level for problem in found), default=Severity.OK)


def _of_process(status: Mapping[str, Any]) -> Iterator[Alert]:
    state, why = status["state"], status.get("why")
    if state == "killed":
        cause = f"ended, since {why}" if why else "was killed"
        yield Alert(Severity.CRITICAL, f"{cause}; start it again with the same command, and it goes on")
    elif state not in ("running", "lingering", "stopped", *_STARTING):
        yield Alert(Severity.CRITICAL, f"{state}{f': {why}' if why else ''}")
    elif state == "stopped":
        yield Alert(Severity.WARNING, "was stopped before its part in the run was over; start it again to go on")
    elif state in _STARTING:
        yield Alert(Severity.WARNING, f"has not begun yet: it is {state}")


def _of_papers(status: Mapping[str, Any], now: float, limits: HealthLimits) -> Iterator[Alert]:
    for what, text in status.get("expires", {}).items():
        left = (datetime.fromisoformat(text).timestamp() - now) / _DAY
        day = datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
        if left <= 0:
            yield Alert(
                Severity.CRITICAL,
                f"its {what} expired at {day}, and it cannot start or connect again; get a new one",
            )
        elif left <= limits.days:
            days = counted(int(left), "day")
            yield Alert(Severity.WARNING, f"its {what} expires in {days}, at {day}; ask the organiser to renew it")


def _of_budget(status: Mapping[str, Any], limits: HealthLimits) -> Iterator[Alert]:
    policy = status.get("policy")
    if status.get("finished"):  # nothing more is charged to it, and the end of what was planned is no fault
        return
    if policy and limits.share <= (share := policy["share_charged"]) and limits.share < 1:
        yield Alert(
            Severity.WARNING,
            f"has epsilon {policy['epsilon_charged']:.4g} charged to the policy, of {policy['epsilon']:.4g} that it "
            f"allows ({share:.0%} of its budget), so hardly another run will be let in",
        )


def _of_ledger(status: Mapping[str, Any]) -> Iterator[Alert]:
    said = status.get("why") or ""  # of a start that was refused for it
    if forgotten := [line for line in status.get("forgotten", ()) if line not in said]:
        yield Alert(
            Severity.CRITICAL,
            f"this is not its newest ledger: {'; '.join(forgotten)}; stop the node and put its newest ledger back; if "
            "that is lost, take part in no run with these data until their owner has lowered the policy's epsilon",
        )


def _of_receipts(status: Mapping[str, Any]) -> Iterator[Alert]:
    for name, peer in status.get("peers", {}).items():
        if why := peer.get("receipts"):
            yield Alert(Severity.WARNING, f"takes nothing of {name}: {why}")


def _of_reach(status: Mapping[str, Any]) -> Iterator[Alert]:
    peers, late = status.get("peers", {}), status.get("unacknowledged", {})
    if status.get("alone") is not None:
        spends = not (status["state"] in _STARTING or status.get("holds"))
        then = "it goes on, and spends its budget alone" if spends else "it charges nothing more until one does"
        if status.get("finished"):
            then = "its part is over, and it waits for them"
        who = "; ".join(f"{name} ({peer['why']})" for name, peer in late.items())
        yield Alert(Severity.CRITICAL, f"no peer has acknowledged anything for {status['alone']:.0f} s: {who}; {then}")
        return
    for name, peer in late.items():
        if peers.get(name, {}).get("state") == "up":
            yield Alert(
                Severity.WARNING,
                f"{name} is heard, and has acknowledged nothing for {peer['seconds']:.0f} s: {peer['why']}",
            )


def _of_progress(status: Mapping[str, Any]) -> Iterator[Alert]:
    if stalled := status.get("stalled"):
        lost = any(status["peers"].get(name, {}).get("state") in LOST for name in stalled["waits_for"])
        since = datetime.fromtimestamp(stalled["since"], UTC).strftime("%H:%M:%S UTC")
        yield Alert(
            Severity.CRITICAL if lost else Severity.WARNING,
            f"no progress since {since} ({stalled['seconds']:.0f} s): waits for {', '.join(stalled['waits_for'])}",
        )
    rounds = status.get("rounds") or {}
    if lately := rounds.get("lately"):
        yield Alert(
            Severity.CRITICAL if lately >= _EMPTY else Severity.WARNING,
            f"the last {counted(lately, 'round')} came to nothing, and {rounds['made']} of {rounds['planned']} are "
            "made: nobody answered, or there was no sum that could be used",
        )


def _of_silence(status: Mapping[str, Any], now: float, limits: HealthLimits) -> Iterator[Alert]:
    if (silent := now - status.get("written", now)) > limits.silence:
        yield Alert(Severity.WARNING, f"has written no status for {silent:.0f} s; its machine may be too busy")


def _of_broker(status: Mapping[str, Any]) -> Iterator[Alert]:
    if not status.get("connected"):
        yield Alert(Severity.WARNING, f"has no broker, and goes on trying: {status.get('broker_says') or 'no answer'}")


def _of_peers(status: Mapping[str, Any]) -> Iterator[Alert]:
    peers = status.get("peers", {})
    lost = {name for name, peer in peers.items() if peer["state"] in LOST and not peer.get("finished")}
    left = {name for name, peer in peers.items() if not peer.get("finished")} - lost
    ended = bool(status.get("finished"))
    stuck = lost and not ended and (bool(lost & set(status.get("needs", ()))) or not left)
    if stuck:
        yield Alert(
            Severity.CRITICAL,
            f"lost {', '.join(sorted(lost))}, and its part in the run cannot end without; it goes on if they come "
            "back, and `gossamer stop --leave` ends it for good",
        )
    for name, peer in peers.items():
        about = f"{name} is {peer['state']} ({peer['seconds']:.0f} s)"
        if name in lost and not stuck:
            yield Alert(Severity.WARNING, f"{about}; the run goes on without it as long as it is away")
        elif peer["state"] in ("silent", "never heard") and not peer.get("finished"):
            yield Alert(Severity.WARNING, about)


def _of_versions(status: Mapping[str, Any]) -> Iterator[Alert]:
    mine = status.get("version")
    for name, peer in status.get("peers", {}).items():
        if mine and peer.get("version") not in (None, mine):
            yield Alert(
                Severity.WARNING,
                f"runs gossamer {mine}, and {name} {peer['version']}; parties of a run need one version, so agree "
                "on one before the next run",
            )
