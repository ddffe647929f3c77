"""``gossamer``: parses arguments, calls the library, prints, and turns errors into one line and an exit code.

| exit code | when |
|---|---|
| 0 | all went well |
| 1 | something else went wrong |
| 2 | the caller's mistake: a spec, a file, an argument, a place that cannot be written |
| 3 | a ledger refused a release |
| 4 | a run is over, and did not come to the end of its plan |
| 130 | interrupted |
"""

from __future__ import annotations

import argparse
import errno
import gc
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence

from gossamer.cli.commands import COMMANDS, CommandParser, add_commands
from gossamer.cli.printing import warn
from gossamer.errors import CallerError, GossamerError
from gossamer.interrupts import EXIT_CODE, heard, over, was_heard
from gossamer.version import __version__

EPILOG = """examples:
  gossamer check examples/digits-gossip.yaml
  gossamer run examples/digits-gossip.yaml
  gossamer run examples/digits-gossip.yaml --set algorithm.nodes=16 --seed 1
  gossamer new patients --data patients.csv
  gossamer calibrate --epsilon 5 --delta 1e-5 --sampling-rate 0.01 --steps 3000
"""


def parser(*, filled: bool = True) -> CommandParser:
    """Return the parser of all commands; unless ``filled``, a command's module is imported once the command is used."""
    root = CommandParser(
        prog="gossamer",
        description="Train one model across parties that keep their data, wait for nobody,\nand prove what leaked.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"gossamer {__version__}")
    add_commands(root, COMMANDS.values())
    root.fill(below=filled)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    warnings.showwarning = _warn
    gc.set_threshold(50_000)  # imports make many objects and no garbage; looking for it was a tenth of a start
    with heard():
        status, line = _ended(arguments)
        if status != 0 and was_heard():  # code of others may have made another error of the interrupt
            status, line = EXIT_CODE, "interrupted"
        if line is not None:
            kind = "" if status == EXIT_CODE else "error: "
            print(f"gossamer: {kind}{_one_line(line)}", file=sys.stderr)
    return status


def _ended(arguments: Sequence[str] | None) -> tuple[int, object]:
    """Exit code of the command, and what there is to say of its end."""
    try:
        options = parser(filled=False).parse_args(arguments)
        try:
            status: int = options.command(options)
        finally:
            over()
        return _flushed(status)
    except KeyboardInterrupt:
        return EXIT_CODE, "interrupted"
    except GossamerError as error:
        return error.exit_code, error
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        _forget_output()
        return 0, None
    except OSError as error:
        _flushed(0)
        return of_system(error, _OUTPUT if error.errno in _FULL else "")
    except SystemExit as left:  # argparse has printed help
        return _flushed(left.code if isinstance(left.code, int) else 0)
    except MemoryError as error:
        return CallerError.exit_code, f"this needs more memory than there is; ask for less ({error or 'no more'})"
    except Exception as error:
        if was_heard():
            return GossamerError.exit_code, error
        raise


_OUTPUT = "standard output"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What is said of no file at all is said of our own output: whoever writes to files has them named."""


def _flushed(status: int) -> tuple[int, object]:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _forget_output()
        return of_system(error, _OUTPUT)
    return status, None


def _forget_output() -> None:
    """Have what stdout still holds go nowhere when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_OF_PLACES = (errno.ENOENT, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL)
_REMEDIES: Mapping[int, str] = {
    **dict.fromkeys(_FULL, "make room and start again"),
    errno.EFBIG: "files may not become as large here; allow larger ones, or choose another place",
    errno.EROFS: "have its disk mounted for writing, or choose another place",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "have its owner allow it, or choose another place"),
    **dict.fromkeys(_OF_PLACES, "correct its name, or choose another place"),
}
"""What to do where a file or a place does not allow what was asked for; all else is nobody's mistake."""


def of_system(error: OSError, place: str = "") -> tuple[int, str]:
    """Exit code, and a line with what the system says of a file, or of the disk."""
    named = f"{error.filename}: " if error.filename is not None else f"{place}: " if place else ""
    remedy = _REMEDIES.get(error.errno or 0)
    status = GossamerError.exit_code if remedy is None else CallerError.exit_code
    return status, f"{named}{error.strerror or error}{'' if remedy is None else f'; {remedy}'}"


_MOST = 1500
"""Characters of a line, whatever it quotes."""


def _one_line(error: object) -> str:
    """Text on one line, in which no word is endless and nothing directs a terminal."""
    line = re.sub(r"\S{201,}", lambda found: f"{found[0][:100]}...{found[0][-40:]}", str(error))
    line = " ".join(line.split())[:_MOST]
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    warn([_one_line(message)])
