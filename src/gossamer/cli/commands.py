"""Commands as ``arguments.txt`` declares them, parsers of their arguments, and what commands do with options alike.

What a command runs is the function ``NAME_command`` of its module, which takes the parsed options and returns the exit
code. The module is imported once the command is used.
"""

from __future__ import annotations

import argparse
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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

if TYPE_CHECKING:
    from gossamer.experiment.specs.spec import Experiment


_CHOICE = re.compile(r"invalid choice: '([^']*)' (\(choose from .*\))")
_COLUMNS = re.compile(r" {2,}")


@dataclass
class Listed:
    """A command, or arguments that several commands have.

    Attributes
    ----------
    name : str
        Name of the command, after that of the one that it is below.
    module : str
        Module below `gossamer.cli`; nothing where there are only commands below it.
    help : str
        Words on what it does.
    lines : list of str
        The rest of what is said of it, and its arguments.
    """

    name: str
    module: str
    help: str
    lines: list[str] = field(default_factory=list)

    @property
    def word(self) -> str:
        """Last word of the name, by which it is called."""
        return self.name.rpartition(" ")[2]

    def fill(self, parser: CommandParser) -> None:
        """Add the command's arguments to its parser, what is said of it, and the commands below it."""
        more = [line[2:] for line in self.lines if line.startswith("| ")]
        parser.description = " ".join([f"{self.help[0].upper()}{self.help[1:]}.", *more])
        self.add_arguments(parser)
        if self.module:
            parser.set_defaults(command=self.run)
        if below := [one for name, one in _EVERY.items() if name.startswith(f"{self.name} ")]:
            add_commands(parser, below, required=not self.module)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the table, and those that the module adds."""
        for line in self.lines:
            if line == "...":
                import_module(f"gossamer.cli.{self.module}").add_arguments(parser)
            elif line.startswith("@"):
                _EVERY[line].add_arguments(parser)
            elif not line.startswith("| "):
                _add(parser, line)

    def run(self, options: argparse.Namespace) -> int:
        """Run the command; its exit code."""
        module = import_module(f"gossamer.cli.{self.module}")
        code: int = getattr(module, f"{self.word.replace('-', '_')}_command")(options)
        return code


def _read_table(table: str) -> dict[str, Listed]:
    found: list[Listed] = []
    for line in table.splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            name, *module, told = _COLUMNS.split(line) if line[0] != "@" else (line, "")
            found.append(Listed(name, "".join(module), told))
        elif line.startswith("   "):
            found[-1].lines[-1] += f" {line.strip()}"
        else:
            found[-1].lines.append(line.strip())
    return {one.name: one for one in found}


_EVERY = _read_table(Path(__file__).with_name("arguments.txt").read_text("utf-8"))
COMMANDS: Mapping[str, Listed] = {name: one for name, one in _EVERY.items() if not re.search("[@ ]", name)}


def _add(parser: Any, line: str) -> None:
    """Add the argument of a line of the table."""
    called, told = _COLUMNS.split(line, 1)
    names = [word.rstrip(",") for word in called.split() if word.startswith("--")]
    said = argparse.SUPPRESS if told == "-" else told
    if called.split()[-1].startswith("--"):
        switch: dict[str, Any] = {"action": "store_true"}
        if "[no-]" in called:
            switch = {"action": argparse.BooleanOptionalAction, "default": True}
        parser.add_argument(called.replace("[no-]", ""), help=said, **switch)
        return
    metavar, kind, many, default = _METAVAR.fullmatch(called.split()[-1]).groups()  # type: ignore[union-attr]
    more: dict[str, Any] = {"choices": metavar[1:-1].split(",")} if metavar[0] == "{" else {"metavar": metavar}
    read = within(kind) if kind and kind[-1] in "])" else KINDS[kind or "text"]
    more |= {"action": FileName} if kind == "path" else {"type": read}
    match many:
        case "&":
            more |= {"action": "append", "default": []}
        case "!":
            more |= {"required": True}
        case "?" if names:
            more |= {"nargs": "?", "const": 0}
        case "?" | "+" | "*":
            more |= {"nargs": many, **({"action": "extend", "default": []} if names else {})}
    if default is not None:
        more["default"], said = read(default), f"{said} (default: {default})"
    holder = parser.required() if many in ("!", "~") else parser
    holder.add_argument(*(names or [metavar.lower()]), help=said, **more)


_METAVAR = re.compile(r"(.*?)(?::([a-z]+(?:[\[(][^\])]*[\])])?)([?+*&!~]?)(?:=(\S+))?)?")


class CommandParser(argparse.ArgumentParser):
    """A parser whose arguments are added when they are needed."""

    late: Callable[[CommandParser], None] | None = None
    """Adds the arguments once they are needed; None where all are there."""
    foreign = False
    """Whether code of others adds them, which runs for whoever asks for this command alone."""

    def fill(self, *, below: bool = False) -> None:
        """Add the arguments, if that was not done before; with ``below``, of all commands below this one too."""
        if self.late is not None and not (below and self.foreign):
            late, self.late = self.late, None
            late(self)
        for action in self._actions if below else ():
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    parser.fill(below=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._needed: argparse._ArgumentGroup | None = None
        self.register("type", int, KINDS["int"])
        self.register("type", float, KINDS["float"])

    def required(self) -> argparse._ArgumentGroup:
        """Group of the options that are needed, or that a usual call needs."""
        if self._needed is None:
            self._needed = self.add_argument_group("required")
            self._action_groups.insert(1, self._action_groups.pop())  # before those that may be left out
        return self._needed

    def format_help(self) -> str:
        """Return the help, whose usage has what is needed and `[options]` for all else."""
        needed = [] if self._needed is None else self._needed._group_actions
        words = [f"{one.option_strings[0]} {_value_of(one)}" for one in needed]
        places = [_value_of(one) for one in self._actions if not one.option_strings]
        text = textwrap.fill(" ".join([self.prog, *words, "[options]", *places]), 72, break_on_hyphens=False)
        self.usage = text.replace("%", "%%").replace("\n", "\n" + " " * 7)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong with the arguments, in place of printing all that there are."""
        named = _CHOICE.search(message)
        if named is not None and (nearest := _nearest(named[1], re.findall(r"'(.*?)'", named[2]))):
            message = message.replace(named[2], "").rstrip() + nearest
        raise CallerError(f"{message}; see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as the base class does; this is where a parser of several hands over to that of one command."""
        self.fill()
        found, rest = super().parse_known_args(args, namespace)
        if rest:  # said here, by the command that does not know them
            nearest = _nearest(rest[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(rest)}{nearest}")
        return found, rest


def _value_of(action: argparse.Action) -> str:
    """Words for the value of an argument, or for a command."""
    word = str(action.metavar or "{" + ",".join(map(str, action.choices or ())) + "}")
    if isinstance(action, argparse._SubParsersAction):
        return f"{word} ..." if action.required else f"[{word} ...]"
    return {"?": f"[{word}]", "+": f"{word} [{word} ...]", "*": f"[{word} ...]"}.get(str(action.nargs), word)


def _nearest(found: str, options: Iterable[str]) -> str:
    """Return the end of an error message that asks for the nearest of ``options``; nothing where none is near."""
    nearest = did_you_mean(found, options)
    return nearest if "did you mean" in nearest else ""


def add_commands(parser: CommandParser, commands: Iterable[Listed], *, required: bool = True) -> None:
    """Add commands below a parser."""
    below = parser.add_subparsers(title="commands", metavar="COMMAND", required=required)
    for entry in commands:
        below.add_parser(entry.word, help=entry.help).late = entry.fill


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


# Kinds of values, read from their text; the parser prints what was expected where there is no value.


def _kind(read: Callable[[str], Any], expected: str, fits: Callable[[Any], bool] = lambda found: True) -> Any:
    def of_text(text: str) -> Any:
        with suppress(ValueError):
            if fits(found := read(text)):
                return found
        raise argparse.ArgumentTypeError(f"expected {expected}, found {shortened(text)}")

    return of_text


def _seconds(text: str) -> float:
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:])
    if text == "off":
        return math.inf
    found = float(text) if unit is None else float(text[:-1]) * unit
    return found if found < math.inf else math.nan


def _counts(text: str) -> dict[str, int]:
    pairs = [entry.partition("=") for entry in text.split(",")]
    found = {name.strip(): int(number) for name, _, number in pairs}
    if len(found) < len(pairs) or not all(number.strip().isdecimal() for _, _, number in pairs):
        raise ValueError
    return found


KINDS: Mapping[str, Any] = {
    "text": str,
    "path": Path,
    "int": _kind(int, "a whole number"),
    "float": _kind(float, "a number"),
    "interval": _kind(_seconds, "a time such as 90s, 5m or 2h, or off", lambda found: found >= 0),
    "port": _kind(
        int, "the number of a port, 1 to 65535 (files and folders stand before it)", lambda found: 0 < found < 65536
    ),
    "numbers": _kind(
        lambda text: [float(part) for part in text.split(",")] if text.strip() else [],
        "numbers with commas between them, such as 200,180",
        lambda found: all(map(math.isfinite, found)),
    ),
    "names": _kind(lambda text: [name.strip() for name in text.split(",")], "names such as a,b", all),
    "counts": _kind(_counts, "a number for each, once, such as a=341,b=210"),
}

_BOUNDS = re.compile(r"(int|float)([\[(])(\S+?)\.\.(\S*)([\])])")
"""A number between two others, which may be one itself beside a square bracket; nothing stands for no upper one."""


def within(kind: str) -> Any:
    """The kind of a number within bounds, such as ``int[1..3650]`` or ``float(0..1)``."""
    of, left, low, high, right = _BOUNDS.fullmatch(kind).groups()  # type: ignore[union-attr]
    least, most = float(low), float(high or math.inf)
    said = f"{low} or more" if left == "[" else f"above {low}"
    said += f" and {'at most' if right == ']' else 'below'} {high}" if high else ""
    said = f"{low} to {high}" if (left, right) == ("[", "]") else said

    def fits(found: float) -> bool:
        above, below = found > least or left == "[", found < most or right == "]"
        return least <= found <= most and above and below and found < math.inf

    return _kind(int if of == "int" else float, f"{'a whole number' if of == 'int' else 'a number'}, {said}", fits)


# What commands do with options alike.


def check_delta(options: argparse.Namespace) -> None:
    """Raise CallerError where ``--delta`` is so large that it has to be asked for by name."""
    from gossamer.privacy.guarantees import refused_delta

    if (problem := refused_delta(options.delta, options.accept_weak, "--accept-weak")) is not None:
        raise CallerError(f"--{problem}")


def read_experiment(options: argparse.Namespace) -> Experiment:
    """The spec that was given, with its overrides."""
    from gossamer.experiment.specs.spec_file import read_spec

    return read_spec(options.spec, overrides_of(options))


def overrides_of(options: argparse.Namespace) -> list[str]:
    """All that options override in a spec."""
    seed = [] if options.seed is None else [f"seed={options.seed}"]
    reproducible = ["privacy.noise_secret=reproducible"] * getattr(options, "reproducible", False)
    return [*options.set, *seed, *reproducible]


def same_options(options: argparse.Namespace) -> list[str]:
    """The options that change a spec, as another command takes them."""
    settings = [word for setting in options.set for word in ("--set", setting)]
    seed = [] if options.seed is None else ["--seed", str(options.seed)]
    return [*settings, *seed, *["--reproducible"] * getattr(options, "reproducible", False)]


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


def run_flag(run: str | None) -> str:
    """Words by which a command is told of a further run."""
    return "" if run is None else f" --run {run}"
