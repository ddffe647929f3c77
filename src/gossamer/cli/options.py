"""Options that commands share, and their values, read from their text."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.errors import AccountingError, BudgetUnreachable, CallerError, ModelError, SpecError, TopologyError
from gossamer.files import make_own_folder

if TYPE_CHECKING:
    from gossamer.experiment.specs.spec import Experiment


# Folders that commands write figures into.


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
    number = "?" if optional else None
    command.add_argument("spec", action=FileName, metavar="SPEC", nargs=number, help="the experiment, a YAML file")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key, such as algorithm.nodes=16",
    )
    command.add_argument("--seed", type=int, help="override the seed")
    command.add_argument("--accept-weak", action="store_true", help="take a delta above 0.01: privacy.accept_weak=true")
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def add_reproducible(command: argparse.ArgumentParser) -> None:
    """Add the option of noise that can be drawn again to a command that takes a spec."""
    command.add_argument(
        "--reproducible",
        action="store_true",
        help="take the noise from the seed instead of a fresh secret; then nothing is guaranteed",
    )


def read_experiment(options: argparse.Namespace) -> Experiment:
    """The spec that was given, with its overrides."""
    from gossamer.experiment.specs.reading import read_spec

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
