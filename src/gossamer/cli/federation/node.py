"""``gossamer node``, ``stop`` and ``up``: one party of a federation, its end, and all parties on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.commands import FileName, add_spec, read_experiment, seconds, settings_of
from gossamer.cli.federation.federation import add_allowed, add_file
from gossamer.cli.logs import STDERR, add_live, add_log, door_for, live, logged, tell
from gossamer.cli.printing import say
from gossamer.errors import ENDED_SHORT, CallerError
from gossamer.experiment.specs.folder_names import default_folder

if TYPE_CHECKING:
    from gossamer.deployment.party.state_folder import StateFolder
    from gossamer.report.serving import Door


def node_options(command: argparse.ArgumentParser) -> None:
    """Run a party's node until its part in the run is over.

    Interrupted, or killed, it goes on where it was when it is started again.
    """
    add = command.add_argument
    add_file(command, "--invitation", "FILE", "the invitation; its folder holds the keys (required)")
    add("--organiser", metavar="FINGERPRINT", help="the organiser's fingerprint (default: those in the policy)")
    add_file(command, "--identity", "FILE", "the private key (default: identity.key beside the invitation)")
    add_file(command, "--data", "PATH", "the training examples, a file or folder (default: as in the policy)")
    add("--data-name", metavar="NAME", help="what the policy calls the data, if it knows several")
    add_file(command, "--test", "PATH", "examples to test the model on at the end")
    add_file(command, "--policy", "FILE", "what the data's owner allows")
    add_allowed(command)
    add_file(command, "--store", "DIR", "the state folder (default: state beside the invitation)")
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help="go on from the store if there is one")
    add(
        "--believe-store",
        action="store_true",
        help="go on even if peers know of more messages than the store holds; of receipts it overrules nobody",
    )
    add("--connect-timeout", type=seconds, default=60.0, metavar="S", help="for the first connection (default: 60)")
    add("--wait", type=seconds, default=60.0, metavar="S", help="for neighbours, before the start (default: 60)")
    add("--gone-after", type=seconds, default=300.0, metavar="S", help="silence that counts as gone (default: 300)")
    add_file(command, "--trace", "FILE", "also write every event and effect to FILE")
    add("--quiet", action="store_true", help="write to node.log, and --log-file, alone")
    add_live(command, "show the node's report to a browser on this machine while it runs")
    add_log(command)
    command.set_defaults(command=node_command)
    below = command.add_subparsers(title="commands", metavar="COMMAND")
    backup = below.add_parser(
        "backup",
        help="copy the state of a node that is stopped",
        description="Copy the state folder of a node that does not run. Only one of the two may go on.",
    )
    backup.add_argument("state", type=Path, metavar="STATE", help="the state folder")
    backup.add_argument("out", type=Path, metavar="OUT", help="the copy: a folder that does not exist yet")
    backup.set_defaults(command=backup_command)


def node_command(options: argparse.Namespace) -> int:
    """Run the node."""
    if options.invitation is None:
        raise CallerError("the following arguments are required: --invitation; see gossamer node --help")
    # It needs what is optional, so it is imported only here.
    from gossamer.deployment.party.agreement import PartyOptions
    from gossamer.deployment.party.party import run_party

    chosen = {name: value for name, value in vars(options).items() if name in PartyOptions.__dataclass_fields__}
    party = PartyOptions(**chosen | {"quiet": options.quiet or options.log_file == STDERR})
    with logged(options), door_for(options) as door:
        ended = run_party(party, partial(_shown, door, party.quiet))
    return ENDED_SHORT if ended == "short" else 0


def backup_command(options: argparse.Namespace) -> int:
    """Copy a node's state."""
    from gossamer.deployment.party.stored import back_up

    back_up(options.state, options.out)
    print(
        f"{options.out}: the state of the node, to go on from there; delete one of the two before the node is started"
    )
    return 0


@contextmanager
def _shown(door: Door | None, quiet: bool, folder: StateFolder) -> Iterator[None]:
    """Serve the node's page while it runs, if there is a door for it."""
    try:
        with live(door, [folder.path], partial(_tell, quiet, folder)):
            yield
    finally:
        folder.remove(_ADDRESS)


def _tell(quiet: bool, folder: StateFolder, address: str) -> None:
    """Say where the page is, to the node's owner alone.

    Whoever knows the whole address sees the page, and what a service says is gathered, as in the journal of systemd,
    for others to read. So it is on a terminal and in a file of the owner's, and a log is told of the file.
    """
    folder.write(_ADDRESS, f"{address}\n")
    folder.say(f"its report is shown to a browser on this machine; the address is in {folder.path / _ADDRESS}")
    if sys.stderr.isatty() and not quiet:
        tell(address)


_ADDRESS = "live-address"


# ``gossamer stop``.


def stop_options(command: argparse.ArgumentParser) -> None:
    """End a node's process. It can be started again and goes on."""
    command.add_argument("store", action=FileName, metavar="STORE", help="the state folder of the node")
    command.add_argument("--leave", action="store_true", help="end the node's part in the run for good")
    command.add_argument("--timeout", type=seconds, default=30.0, metavar="S", help="seconds to wait (default: 30)")
    command.set_defaults(command=stop_command)


def stop_command(options: argparse.Namespace) -> int:
    """End the node's process."""
    from gossamer.deployment.party.state_folder import StateFolder

    StateFolder(options.store).stop(options.leave, options.timeout)
    say(f"{options.store}: ended")
    return 0


# ``gossamer up``: a whole federation on one machine.


def up_options(command: argparse.ArgumentParser) -> None:
    """Deal the data of a spec out to its nodes, found a federation of them, and run each on this machine.

    Each is a process of its own, and they meet over a broker here. For trying out: parties of real federations hold
    their own data.
    """
    add_spec(command)
    command.add_argument(
        "--out",
        action=FileName,
        help="folder of the federation (default: runs/<spec>-up-seed<seed>,<what --set says>)",
    )
    command.add_argument("--broker", choices=("embedded", "mosquitto"), default="embedded", help="default: embedded")
    command.add_argument(
        "--trace", action="store_true", help="each party also writes every event and effect to trace.bin"
    )
    add_live(command, "show the parties' report to a browser on this machine while they run")
    add_log(command)
    # Not offered: who knows it from other commands is told why a federation has none.
    command.add_argument("--reproducible", action="store_true", help=argparse.SUPPRESS)
    command.set_defaults(command=up_command)


def up_command(options: argparse.Namespace) -> int:
    """Run the federation, and say what came of it."""
    experiment = read_experiment(options)
    # It needs what is optional, so it is imported only here.
    from gossamer.cli.federation.local_federation import up

    out = options.out or default_folder(options.spec, "up", experiment.seed, settings_of(options))
    with logged(options, out.name), door_for(options) as door:
        return up(options, experiment, out, door)
