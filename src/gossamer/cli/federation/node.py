"""``gossamer node``, ``stop`` and ``up``: one party of a federation, its end, and all parties on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from gossamer.cli.commands import read_experiment, settings_of
from gossamer.cli.logs import STDERR, door_for, live, logged, tell
from gossamer.cli.printing import say
from gossamer.errors import ENDED_SHORT, CallerError
from gossamer.experiment.specs.folder_names import default_folder

if TYPE_CHECKING:
    from gossamer.deployment.party.state_folder import StateFolder
    from gossamer.report.serving import Door


def node_command(options: argparse.Namespace) -> int:
    """Run the node."""
    if options.invitation is None:
        raise CallerError("the following arguments are required: --invitation; see gossamer node --help")
    # It needs what is optional, so it is imported only here.
    from gossamer.deployment.party.agreement import PartyOptions
    from gossamer.deployment.party.party import run_party

    chosen = {name: value for name, value in vars(options).items() if name in PartyOptions.__dataclass_fields__}
    party = PartyOptions(**chosen | {"modules": options.module, "quiet": options.quiet or options.log_file == STDERR})
    with logged(options), door_for(options) as door:
        ended = run_party(party, partial(_shown, door, party.quiet))
    return ENDED_SHORT if ended == "short" else 0


def backup_command(options: argparse.Namespace) -> int:
    """Copy a node's state."""
    from gossamer.deployment.party.party import back_up

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


def stop_command(options: argparse.Namespace) -> int:
    """End the node's process."""
    from gossamer.deployment.party.state_folder import StateFolder

    StateFolder(options.store).stop(options.leave, options.timeout)
    say(f"{options.store}: ended")
    return 0


# ``gossamer up``: a whole federation on one machine.


def up_command(options: argparse.Namespace) -> int:
    """Run the federation, and say what came of it."""
    experiment = read_experiment(options)
    # It needs what is optional, so it is imported only here.
    from gossamer.cli.federation.local_federation import up

    out = options.out or default_folder(options.spec, "up", experiment.seed, settings_of(options))
    with logged(options, out.name), door_for(options) as door:
        return up(options, experiment, out, door)
