"""The table of commands, and a parser that imports the module of a command once the command is used.

A command's module has a ``DESCRIPTION`` and ``add_arguments``, which says, too, what the command runs:
``parser.set_defaults(command=...)``, a function of the parsed options that returns the exit code. A new command is a
module of its own, in the folder of those whom it is for, and a line here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

from gossamer.errors import CallerError, did_you_mean, shortened

_CHOICE = re.compile(r"invalid choice: '([^']*)' (\(choose from .*\))")


@dataclass(frozen=True)
class Listed:
    """A command.

    Attributes
    ----------
    module : str
        Below `gossamer.cli`.
    help : str
        Line among the commands.
    """

    module: str
    help: str


COMMANDS: Mapping[str, Listed] = {
    "run": Listed("runs.run", "run an experiment"),
    "new": Listed("runs.new", "write a first spec for one's own table"),
    "check": Listed("runs.check", "say what a run would do and guarantee, without running it"),
    "predict": Listed("runs.predict", "predict for the rows of a file with a run's model"),
    "evaluate": Listed("runs.evaluate", "test a run's model on rows that have their targets"),
    "export": Listed("runs.export", "write a run's model for PyTorch, ONNX Runtime or scikit-learn"),
    "report": Listed("runs.report", "write a page with figures of one or several runs"),
    "sweep": Listed("runs.sweep", "run every combination of settings with several seeds, and compare"),
    "price": Listed("runs.price", "say what privacy and distance cost: runs without noise, alone and in one place"),
    "account": Listed("audit.account", "epsilon of a number of noisy releases"),
    "calibrate": Listed("audit.calibrate", "the least noise for a budget"),
    "plan": Listed("runs.plan", "what a run would be made of, such as MAPA's stages"),
    "audit": Listed("audit.audit", "check what a guarantee rests on"),
    "verify": Listed("audit.verify", "check a guarantee from receipts, by a second implementation"),
    "attack": Listed("audit.attack", "attack what a run releases, and audit its guarantee"),
    "algorithms": Listed("data.algorithms", "list known algorithms, and the code of those that others register"),
    "datasets": Listed("data.datasets", "list known datasets and where their files are looked for"),
    "federation": Listed("federation.federation", "found a federation: keys, invitations, the broker's configuration"),
    "data": Listed("data.data", "what a data owner's data have spent, over all runs"),
    "node": Listed("federation.node", "run a party of a federation"),
    "status": Listed("federation.status", "how a party's node is"),
    "stop": Listed("federation.stop", "end a party's node"),
    "up": Listed("federation.up", "run a whole federation on this machine, a process for each party"),
    "average": Listed("runs.average", "average the models that parties of a run have saved"),
    "simulate-faults": Listed("runs.simulate_faults", "drive an algorithm's nodes through generated faults"),
}


class CommandParser(argparse.ArgumentParser):
    """A parser whose arguments are those of a module, which is imported when they are needed."""

    module: str | None = None
    """Below `gossamer.cli`; None where all arguments are there."""
    late: Callable[[CommandParser], None] | None = None
    """Adds the arguments of what is no module here, once they are needed."""

    def fill(self, *, below: bool = False) -> None:
        """Add the arguments, if that was not done before; with ``below``, of all commands below this one too."""
        if self.module is not None:
            module, self.module = import_module(f"gossamer.cli.{self.module}"), None
            self.description = module.DESCRIPTION
            module.add_arguments(self)
        if self.late is not None:
            late, self.late = self.late, None
            late(self)
        for action in self._actions if below else ():
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    parser.fill(below=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register("type", int, _whole_number)
        self.register("type", float, _number)

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong with the arguments, in place of printing all that there are."""
        named = _CHOICE.search(message)
        nearest = "" if named is None else did_you_mean(named[1], re.findall(r"'(.*?)'", named[2]))
        if named is not None and "did you mean" in nearest:
            message = message.replace(named[2], "").rstrip() + nearest
        raise CallerError(f"{message}; see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as the base class does; this is where a parser of several hands over to that of one command."""
        self.fill()
        return super().parse_known_args(args, namespace)


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, found {shortened(text)}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, found {shortened(text)}") from None


def add_commands(parser: CommandParser, title: str, metavar: str, table: Mapping[str, Listed]) -> None:
    """Add the commands of a table below a parser."""
    below = parser.add_subparsers(title=title, metavar=metavar, required=True)
    for name, entry in table.items():
        below.add_parser(name, help=entry.help).module = entry.module
