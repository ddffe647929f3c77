"""``gossamer stop``."""

from __future__ import annotations

import argparse

from gossamer.cli.commands import FileName, seconds
from gossamer.cli.printing import say


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
