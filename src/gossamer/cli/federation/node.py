"""``gossamer node``: one party of a federation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from gossamer.cli.live_options import add_live, asks_for_page
from gossamer.cli.logs import STDERR, add_log, logged
from gossamer.cli.option_values import FileName, seconds
from gossamer.cli.printing import say

if TYPE_CHECKING:
    from gossamer.deployment.party.state_folder import StateFolder

DESCRIPTION = (
    "Run a party's node until its part in the run is over. Interrupted, or killed, it goes on where it was when it is "
    "started again."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `PartyOptions` holds."""
    add = command.add_argument
    add(
        "--invitation", action=FileName, required=True, metavar="FILE", help="the invitation; its folder holds the keys"
    )
    add("--organiser", metavar="FINGERPRINT", help="the organiser's fingerprint (default: those in the policy)")
    add(
        "--identity",
        action=FileName,
        metavar="FILE",
        help="the private key (default: identity.key beside the invitation)",
    )
    add(
        "--data",
        action=FileName,
        metavar="PATH",
        help="the training examples, a file or folder (default: as in the policy)",
    )
    add("--data-name", metavar="NAME", help="what the policy calls the data, if it knows several")
    add("--test", action=FileName, metavar="PATH", help="examples to test the model on at the end")
    add("--policy", action=FileName, metavar="FILE", help="what the data's owner allows")
    add("--module", dest="modules", action="append", default=[], metavar="REFERENCE", help="model code to allow")
    add(
        "--pretrained",
        action=FileName,
        metavar="FILE",
        help="the model that all start from, if there is one (default: start.safetensors beside the invitation)",
    )
    add(
        "--scale",
        action=FileName,
        metavar="FILE",
        help="the scale that was found privately, if one was (default: scale.yaml beside the invitation)",
    )
    add("--store", action=FileName, metavar="DIR", help="the state folder (default: state beside the invitation)")
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help="go on from the store if there is one")
    add(
        "--believe-store",
        action="store_true",
        help="go on even if peers know of more messages than the store, as they do if it is an older copy",
    )
    add("--connect-timeout", type=seconds, default=60.0, metavar="S", help="for the first connection (default: 60)")
    add("--wait", type=seconds, default=60.0, metavar="S", help="for neighbours, before the start (default: 60)")
    add("--gone-after", type=seconds, default=300.0, metavar="S", help="silence that counts as gone (default: 300)")
    add("--trace", action=FileName, metavar="FILE", help="also write every event and effect to FILE")
    add("--quiet", action="store_true", help="write to node.log, and --log-file, alone")
    add_live(command, "this node's own figures")
    add_log(command)
    command.set_defaults(command=node_command)


def node_command(options: argparse.Namespace) -> int:
    """Run the node."""
    # It needs what is optional, so it is imported only here.
    from gossamer.deployment.party.options import PartyOptions
    from gossamer.deployment.party.party import run_party

    chosen = {name: value for name, value in vars(options).items() if name in PartyOptions.__dataclass_fields__}
    beside = partial(_live, options) if asks_for_page(options) else None
    with logged(options):
        run_party(PartyOptions(**chosen | {"quiet": options.quiet or options.log_file == STDERR}), beside)
    return 0


@contextmanager
def _live(options: argparse.Namespace, folder: StateFolder) -> Iterator[None]:
    """Serve a page of the node while it runs.

    Whoever knows the whole address sees the page. So it is in a file that only the node's owner can read, and on a
    terminal; but where a service's words are gathered, as by systemd, they are read by others, and say only where the
    file is.
    """
    from gossamer.deployment.party.shown import LiveParties
    from gossamer.report.serving import served

    with served(LiveParties(folder.path), options.live_port or 0) as address:
        folder.write(_ADDRESS, f"{address}\n")
        try:
            folder.say(f"a page shows this node on this machine; {folder.path / _ADDRESS} has its address")
            if sys.stderr.isatty() and not options.quiet:
                say(f"the page of this node, for you alone: {address}")
            yield
        finally:
            folder.remove(_ADDRESS)


_ADDRESS = "live-address"
