"""``gossamer node``, ``gossamer status`` and ``gossamer stop``: one party of a federation."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from gossamer.cli.printing import print_json, say, table
from gossamer.deployment.state_folder import StateFolder


def add_commands(commands: Any) -> None:
    """Add the three commands to the parser."""
    node = commands.add_parser(
        "node",
        help="run a party of a federation",
        description="Run a party's node until its part in the run is over. Interrupted, or killed, it goes on where "
        "it was when it is started again.",
    )
    add_options(node)
    node.set_defaults(command=node_command)
    status = commands.add_parser(
        "status", help="how a party's node is", description="Say how nodes are, and how they find their peers."
    )
    status.add_argument("store", type=Path, nargs="+", metavar="STORE", help="the state folder of a node")
    status.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    status.set_defaults(command=status_command)
    stop = commands.add_parser(
        "stop", help="end a party's node", description="End a node's process. It can be started again and goes on."
    )
    stop.add_argument("store", type=Path, metavar="STORE", help="the state folder of the node")
    stop.add_argument("--leave", action="store_true", help="end the node's part in the run for good")
    stop.add_argument("--timeout", type=_seconds, default=30.0, metavar="S", help="seconds to wait (default: 30)")
    stop.set_defaults(command=stop_command)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what `PartyOptions` holds."""
    add = parser.add_argument
    add("--invitation", type=Path, required=True, metavar="FILE", help="the invitation; its folder holds the keys")
    add("--organiser", metavar="FINGERPRINT", help="the organiser's fingerprint (default: those in the policy)")
    add("--identity", type=Path, metavar="FILE", help="the private key (default: identity.key beside the invitation)")
    add("--data", type=Path, metavar="PATH", help="the training examples, a file or folder (default: as in the policy)")
    add("--data-name", metavar="NAME", help="what the policy calls the data, if it knows several")
    add("--test", type=Path, metavar="PATH", help="examples to test the model on at the end")
    add("--policy", type=Path, metavar="FILE", help="what the data's owner allows")
    add("--module", dest="modules", action="append", default=[], metavar="REFERENCE", help="model code to allow")
    add("--store", type=Path, metavar="DIR", help="the state folder (default: state beside the invitation)")
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help="go on from the store if there is one")
    add("--connect-timeout", type=_seconds, default=60.0, metavar="S", help="for the first connection (default: 60)")
    add("--wait", type=_seconds, default=60.0, metavar="S", help="for neighbours, before the start (default: 60)")
    add("--gone-after", type=_seconds, default=300.0, metavar="S", help="silence that counts as gone (default: 300)")
    add("--trace", type=Path, metavar="FILE", help="also write every event and effect to FILE")
    add("--quiet", action="store_true", help="write to the log alone")


def node_command(options: argparse.Namespace) -> int:
    """Run the node."""
    # It needs what is optional, so it is imported only here.
    from gossamer.deployment.party import run_party
    from gossamer.deployment.party_options import PartyOptions

    chosen = {name: value for name, value in vars(options).items() if name in PartyOptions.__dataclass_fields__}
    run_party(PartyOptions(**chosen))
    return 0


def status_command(options: argparse.Namespace) -> int:
    """Say how nodes are."""
    found = {str(store): StateFolder(store).status() for store in options.store}
    if options.json:
        print_json(found)
        return 0
    rows: list[tuple[str, ...]] = [("node", "state", "updates", "releases", "finished", "broker", "peers")]
    rows += [_row(status) for status in found.values()]
    print(table(rows))
    for status in found.values():
        _say_peers(status)
    return 0


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


def stop_command(options: argparse.Namespace) -> int:
    """End the node's process."""
    StateFolder(options.store).stop(options.leave, options.timeout)
    say(f"{options.store}: ended")
    return 0


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"expected seconds, 0 or more, found {text!r}")
    return seconds
