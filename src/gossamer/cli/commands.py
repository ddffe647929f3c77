"""The table of commands, and a parser that imports the module of a command once the command is used.

A command is a function such as ``run_options``, in a module of the folder of those whom it is for, and a line here. The
function adds arguments to a parser, and what the command runs: ``parser.set_defaults(command=...)``, a function of the
parsed options that returns the exit code. Its docstring is what ``--help`` says of the command.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gossamer.errors import (
    AccountingError,
    BudgetUnreachable,
    CallerError,
    ModelError,
    SpecError,
    TopologyError,
    did_you_mean,
    shortened,
)
from gossamer.files import make_own_folder

if TYPE_CHECKING:
    from gossamer.experiment.specs.spec import Experiment


_CHOICE = re.compile(r"invalid choice: '([^']*)' (\(choose from .*\))")


@dataclass(frozen=True)
class Listed:
    """A command.

    Attributes
    ----------
    module : str
        Module below `gossamer.cli`.
    name : str
        Name of the command there, as of ``run_options``.
    help : str
        Line among the commands.
    """

    module: str
    name: str
    help: str

    def fill(self, parser: CommandParser) -> None:
        """Add the command's arguments to its parser, and what is said of it."""
        options = getattr(import_module(f"gossamer.cli.{self.module}"), f"{self.name}_options")
        parser.description = options.__doc__
        options(parser)


COMMANDS: Mapping[str, Listed] = {
    "run": Listed("runs.run", "run", "run an experiment"),
    "new": Listed("runs.new", "new", "write a first spec for one's own table"),
    "check": Listed("runs.run", "check", "say what a run would do and guarantee, without running it"),
    "predict": Listed("runs.models", "predict", "predict for the rows of a file with a run's model"),
    "evaluate": Listed("runs.models", "evaluate", "test a run's model on rows that have their targets"),
    "export": Listed("runs.models", "export", "write a run's model for PyTorch, ONNX Runtime or scikit-learn"),
    "report": Listed("runs.report", "report", "write a page with figures of one or several runs"),
    "sweep": Listed("runs.studies", "sweep", "run every combination of settings with several seeds, and compare"),
    "price": Listed(
        "runs.studies", "price", "say what privacy and distance cost: runs without noise, alone and in one place"
    ),
    "account": Listed("audit.accounting", "account", "epsilon of a number of noisy releases"),
    "calibrate": Listed("audit.accounting", "calibrate", "the least noise for a budget"),
    "plan": Listed("runs.plan", "plan", "what a run would be made of, such as MAPA's stages"),
    "audit": Listed("audit.attacks", "audit", "check what a guarantee rests on"),
    "verify": Listed("audit.verify", "verify", "check a guarantee from receipts, by a second implementation"),
    "attack": Listed("audit.attacks", "attack", "attack what a run releases, and audit its guarantee"),
    "algorithms": Listed(
        "data.known", "algorithms", "list known algorithms, and the code of those that others register"
    ),
    "datasets": Listed("data.known", "datasets", "list known datasets and where their files are looked for"),
    "federation": Listed(
        "federation.federation", "federation", "found a federation: keys, invitations, the broker's configuration"
    ),
    "data": Listed("data.data", "data", "what a data owner's data have spent, over all runs"),
    "node": Listed("federation.node", "node", "run a party of a federation"),
    "status": Listed("federation.status", "status", "how a party's node is"),
    "stop": Listed("federation.node", "stop", "end a party's node"),
    "up": Listed("federation.node", "up", "run a whole federation on this machine, a process for each party"),
    "average": Listed("runs.models", "average", "average the models that parties of a run have saved"),
    "simulate-faults": Listed(
        "runs.simulate_faults", "simulate_faults", "drive an algorithm's nodes through generated faults"
    ),
}


class CommandParser(argparse.ArgumentParser):
    """A parser whose arguments are those of a module, which is imported when they are needed."""

    late: Callable[[CommandParser], None] | None = None
    """Adds the arguments once they are needed; None where all are there."""

    def fill(self, *, below: bool = False) -> None:
        """Add the arguments, if that was not done before; with ``below``, of all commands below this one too."""
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
        below.add_parser(name, help=entry.help).late = entry.fill


# Options that commands share, and their values, read from their text.


def made_folder(path: Path) -> Path:
    """Return the folder, made where it is not there.

    Raises
    ------
    CallerError
        If it cannot be made.
    """
    try:
        make_own_folder(path)
    except OSError as error:
        raise CallerError(f"--out {path}: cannot make this folder ({error.strerror}); choose another") from None
    return path


def add_accept_weak(command: argparse.ArgumentParser) -> None:
    """Add ``--accept-weak`` to a command that takes a delta."""
    command.add_argument("--accept-weak", action="store_true", help="take a delta above 0.01, which says little")


def check_delta(options: argparse.Namespace) -> None:
    """Raise CallerError where ``--delta`` is so large that it has to be asked for by name."""
    from gossamer.privacy.guarantees import refused_delta

    if (problem := refused_delta(options.delta, options.accept_weak, "--accept-weak")) is not None:
        raise CallerError(f"--{problem}")


class FileName(argparse.Action):
    """The name of a file or folder, or several: an empty one, which would mean the current folder, is a mistake."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        names = values if isinstance(values, list) else [values]
        if "" in names:
            raise CallerError(
                f"{option_string or self.metavar}: expected the name of a file or folder, found an empty one; give one "
                "(a variable of the shell may be unset)"
            )
        paths = [None if name is None else Path(name) for name in names]
        setattr(namespace, self.dest, paths if isinstance(values, list) else paths[0])


def at_least_zero(text: str, what: str = "a number") -> float:
    """Read a finite number, ``what`` it is; the parser prints what is wrong with it."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"expected {what}, 0 or more, found {text!r}")
    return found


def port(text: str) -> int:
    """Read the number of a port."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 65536):
        raise argparse.ArgumentTypeError(f"expected the number of a port, 1 to 65535, found {text!r}")
    return int(text)


def interval(text: str) -> float:
    """Read a length of time with its unit, as seconds; for ``off`` infinity."""
    if text == "off":
        return math.inf
    unit = _UNITS.get(text[-1:])
    try:
        return at_least_zero(text if unit is None else text[:-1]) * (unit or 1)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected a time such as 90s, 5m or 2h, or off, found {text!r}") from None


_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """Read a length of time."""
    return at_least_zero(text, "seconds")


def add_spec(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add the spec and its overrides to a command; ``optional`` if it can do without."""
    add = command.add_argument
    number = "?" if optional else None
    add("spec", action=FileName, metavar="SPEC", nargs=number, help="the experiment, a YAML file")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key, such as algorithm.nodes=16")
    add("--seed", type=int, help="override the seed")
    add("--accept-weak", action="store_true", help="take a delta above 0.01: privacy.accept_weak=true")
    add("--json", action="store_true", help="print one JSON document on stdout")


def add_reproducible(command: argparse.ArgumentParser) -> None:
    """Add the option of noise that can be drawn again to a command that takes a spec."""
    command.add_argument(
        "--reproducible",
        action="store_true",
        help="take the noise from the seed instead of a fresh secret; then nothing is guaranteed",
    )


def read_experiment(options: argparse.Namespace) -> Experiment:
    """The spec that was given, with its overrides."""
    from gossamer.experiment.specs.spec_file import read_spec

    return read_spec(options.spec, overrides_of(options))


def overrides_of(options: argparse.Namespace) -> list[str]:
    """All that options override in a spec."""
    seed = [] if options.seed is None else [f"seed={options.seed}"]
    weak = ["privacy.accept_weak=true"] * options.accept_weak
    reproducible = ["privacy.noise_secret=reproducible"] * getattr(options, "reproducible", False)
    return [*options.set, *seed, *weak, *reproducible]


def same_options(options: argparse.Namespace) -> list[str]:
    """The options that change a spec, as another command takes them."""
    settings = [word for setting in options.set for word in ("--set", setting)]
    seed = [] if options.seed is None else ["--seed", str(options.seed)]
    weak = ["--accept-weak"] * options.accept_weak
    return [*settings, *seed, *weak, *["--reproducible"] * getattr(options, "reproducible", False)]


@contextmanager
def naming(spec: Path | None, *places: Path | None) -> Iterator[None]:
    """Have a refusal of what a spec asks for name its file, as one of how it is written does.

    Parameters
    ----------
    spec : Path or None
        The file.
    *places : Path or None
        Other files and folders: a refusal that begins with one is about that.
    """
    try:
        yield
    except _ABOUT_SPECS as error:
        if spec is None or str(error).startswith(("--", *(str(place) for place in (spec, *places) if place))):
            raise
        raise type(error)(f"{spec}: {error}") from error.__cause__


_ABOUT_SPECS = (SpecError, TopologyError, AccountingError, BudgetUnreachable, ModelError)


def settings_of(options: argparse.Namespace) -> list[str]:
    """Options by which a run differs from others of its spec, beside the seed; see `default_folder`."""
    return [*options.set, *(["reproducible"] * getattr(options, "reproducible", False))]
