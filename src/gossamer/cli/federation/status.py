"""``gossamer status``: how nodes are, for people and for monitoring.

| exit code | when |
|---|---|
| 0 | all nodes are well, or have finished |
| 1 | one should be looked at |
| 2 | one needs somebody now, or its state cannot be read |
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.cli.option_values import FileName, at_least_zero
from gossamer.cli.printing import print_json, say, table
from gossamer.deployment.party.health import Level, Limits, level_of, problems
from gossamer.errors import CallerError

DESCRIPTION = "Say how nodes are, and how they find their peers. Exit code 0: well, 1: warning, 2: critical."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add, usual = command.add_argument, Limits()
    add("store", action=FileName, nargs="+", metavar="STORE", help="the state folder of a node")
    add("--json", action="store_true", help="print one JSON document on stdout")
    add(
        "--warn-days",
        type=at_least_zero,
        default=usual.days,
        metavar="N",
        help=f"warn so many days before papers expire (default: {usual.days:g})",
    )
    add(
        "--warn-budget",
        type=at_least_zero,
        default=usual.share,
        metavar="SHARE",
        help=f"warn once so much of the policy's budget is charged; 1 for never (default: {usual.share:g})",
    )
    add(
        "--prometheus",
        action=FileName,
        metavar="FILE",
        help="also write metrics to FILE, which ends with .prom, for the textfile collector of Prometheus",
    )
    command.set_defaults(command=status_command)


def status_command(options: argparse.Namespace) -> int:
    """Say how nodes are; the worst of them gives the exit code."""
    limits, now = Limits(options.warn_days, options.warn_budget), time.time()
    found, unread = _read(options.store)
    if options.prometheus is not None:
        from gossamer.deployment.party.metrics import write_metrics

        write_metrics(options.prometheus, {**found, **dict.fromkeys(unread)})
    if not found:
        raise next(iter(unread.values()))
    found |= {store: {"state": "unreadable", "why": str(error), "process": None} for store, error in unread.items()}
    wrong = {store: problems(status, now, limits) for store, status in found.items()}
    levels = {store: level_of(list_) for store, list_ in wrong.items()}
    worst = max(levels.values())
    if options.json:
        for store, status in found.items():
            status["level"] = levels[store].name.lower()
            status["problems"] = [{"level": one.level.name.lower(), "text": one.text} for one in wrong[store]]
        print_json(found)
        return worst
    lines = [f"{one.level.name}: {_name(store, found)} {one.text}" for store in found for one in wrong[store]]
    print("\n".join(sorted(lines, key=lambda line: not line.startswith(worst.name))) or Level.OK.name)
    rows: list[tuple[str, ...]] = [("node", "state", "updates", "releases", "finished", "broker", "peers")]
    print(table([*rows, *(_row(status, _name(store, found)) for store, status in found.items())]))
    for store, status in found.items():
        _say_dropped(status, _name(store, found))
    return worst


def _read(stores: Sequence[Path]) -> tuple[dict[str, dict[str, Any]], dict[str, CallerError]]:
    """Statuses by state folder, and why there are none of others."""
    from gossamer.deployment.party.state_folder import StateFolder

    found, unread = {}, {}
    for store in stores:
        try:
            found[str(store)] = StateFolder(store).status()
        except CallerError as error:
            unread[str(store)] = error
    return found, unread


def _name(store: str, found: dict[str, dict[str, Any]]) -> str:
    return str(found[store].get("node", store))


def _row(status: dict[str, Any], name: str) -> tuple[str, ...]:
    peers = status.get("peers", {})
    up = sum(peer["state"] == "up" for peer in peers.values())
    broker = "connected" if status.get("connected") else status.get("broker_says") or "not connected"
    if status["process"] is None:
        broker = "-"
    finished = status.get("finished") or "-"
    updates, planned = str(status.get("updates", 0)), status.get("planned_releases")
    releases = f"{status.get('releases', 0)}{'' if planned is None else f' of {planned}'}"
    return (name, status["state"], updates, releases, finished, broker, f"{up} of {len(peers)} up")


def _say_dropped(status: dict[str, Any], node: str) -> None:
    """A line for each peer of whom something was dropped."""
    for name, peer in status.get("peers", {}).items():
        if peer["dropped"]:
            dropped = ", ".join(f"{count} {reason}" for reason, count in peer["dropped"].items())
            say(f"{node}: dropped of {name}: {dropped}")
