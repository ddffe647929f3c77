"""``gossamer``: parses arguments, calls the library, prints, and turns errors into one line and an exit code.

| exit code | when |
|---|---|
| 0 | all went well |
| 1 | something else went wrong |
| 2 | the caller's mistake: a spec, a file, an argument |
| 3 | a ledger refused a release |
| 130 | interrupted |
"""

from __future__ import annotations

import argparse
import errno
import gc
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from gossamer.cli.commands import COMMANDS, CommandParser, add_commands
from gossamer.errors import GossamerError
from gossamer.version import __version__

EPILOG = """examples:
  gossamer run examples/digits-gossip.yaml
  gossamer run examples/digits-gossip.yaml --set algorithm.nodes=16 --seed 1 --out runs/wide
  gossamer check examples/digits-gossip.yaml
  gossamer datasets
  gossamer account --noise-multiplier 1.1 --sampling-rate 0.01 --steps 3000 --delta 1e-5
  gossamer calibrate --epsilon 5 --delta 1e-5 --sampling-rate 0.01 --steps 3000
"""


def parser(*, filled: bool = True) -> CommandParser:
    """Return the parser of all commands; unless ``filled``, a command's module is imported once the command is used."""
    root = CommandParser(
        prog="gossamer",
        description="Train one model across parties that keep their data, wait for nobody, and prove what leaked.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"gossamer {__version__}")
    add_commands(root, "commands", "COMMAND", COMMANDS)
    root.fill(below=filled)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; what the console script calls."""
    signal.signal(signal.SIGTERM, _interrupt)
    warnings.showwarning = _warn
    gc.set_threshold(50_000)  # imports make many objects and no garbage; looking for it was a tenth of a start
    try:
        options = parser(filled=False).parse_args(arguments)
        status: int = options.command(options)
        sys.stdout.flush()
        return status
    except GossamerError as error:
        print(f"gossamer: error: {_one_line(error)}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"gossamer: error: {_of_system(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gossamer: interrupted", file=sys.stderr)
        return 130


def _of_system(error: OSError) -> str:
    """Line with what the system says of a file, or of the disk."""
    place = "" if error.filename is None else f"{error.filename}: "
    remedy = {errno.ENOSPC: "; make room and start again", errno.EROFS: "; choose a place that can be written"}
    return f"{place}{_one_line(error.strerror or error)}{remedy.get(error.errno or 0, '')}"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    from tqdm import tqdm

    # On a line of its own, also beside a progress bar.
    tqdm.write(f"gossamer: warning: {' '.join(str(message).split())}", file=sys.stderr)
