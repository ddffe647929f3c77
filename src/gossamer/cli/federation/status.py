"""``gossamer status``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.cli.option_values import FileName
from gossamer.cli.printing import print_json, say, table
from gossamer.errors import CallerError

DESCRIPTION = "Say how nodes are, and how they find their peers."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    command.add_argument("store", action=FileName, nargs="+", metavar="STORE", help="the state folder of a node")
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    command.add_argument(
        "--prometheus",
        action=FileName,
        metavar="FILE",
        help="also write metrics to FILE, which ends with .prom, for the textfile collector of Prometheus",
    )
    command.set_defaults(command=status_command)


def status_command(options: argparse.Namespace) -> int:
    """Say how nodes are."""
    found, unread = _read(options.store)
    if options.prometheus is not None:
        from gossamer.deployment.party.metrics import write_metrics

        write_metrics(options.prometheus, {**found, **dict.fromkeys(unread)})
    for error in unread.values():
        raise error
    if options.json:
        print_json(found)
        return 0
    rows: list[tuple[str, ...]] = [("node", "state", "updates", "releases", "finished", "broker", "peers")]
    rows += [_row(status) for status in found.values()]
    print(table(rows))
    for status in found.values():
        _say_peers(status)
    return 0


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


def _row(status: dict[str, Any]) -> tuple[str, ...]:
    peers = status.get("peers", {})
    up = sum(peer["state"] == "up" for peer in peers.values())
    broker = "connected" if status.get("connected") else status.get("broker_says") or "not connected"
    if status["process"] is None:
        broker = "-"
    finished = status.get("finished") or "-"
    updates, planned = str(status.get("updates", 0)), status.get("planned_releases")
    releases = f"{status.get('releases', 0)}{'' if planned is None else f' of {planned}'}"
    return (status.get("node", "-"), status["state"], updates, releases, finished, broker, f"{up} of {len(peers)} up")


def _say_peers(status: dict[str, Any]) -> None:
    """A line for each peer that is not simply there, and why the node ended."""
    node = status.get("node", "-")
    for name, peer in status.get("peers", {}).items():
        if peer["state"] != "up" or peer["dropped"]:
            since = "" if peer["state"] == "up" else f" ({peer['seconds']:.0f} s)"
            dropped = ", ".join(f"{count} {reason}" for reason, count in peer["dropped"].items())
            say(f"{node}: {name} is {peer['state']}{since}{dropped and '; dropped of it: ' + dropped}")
    if status.get("why"):
        say(f"{node}: {status['why']}")
