"""``gossamer up``: a whole federation on one machine."""

from __future__ import annotations

import argparse

from gossamer.cli.commands import FileName, add_spec, read_experiment, settings_of
from gossamer.cli.logs import add_live, add_log, door_for, logged
from gossamer.experiment.specs.folder_names import default_folder


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
