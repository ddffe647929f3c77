"""Things that commands that run long show beside their lines: a bar, a page (``--live``), a log (``--log-file``).

Logs are for machines that gather those of many programs.

Who gathers logs may not be whom the data are for, so a log has what a run made and how it went, and nothing of rows,
of what a model scores, or of what was sampled. What an error quotes of data stays out of it, too.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.printing import PlainProgress, moving, say, warn
from gossamer.errors import CallerError, DataError, GossamerError

if TYPE_CHECKING:
    from gossamer.report.page import Page, PartyRecord
    from gossamer.report.serving import Door


LOG = logging.getLogger("gossamer")
"""All of it, below which each part has a logger of its own."""
KEPT = 5
"""How many older files there are, FILE.1 the newest."""
STDERR = Path("-")
_AS_JSON = (".json", ".jsonl")
_HOW = ("log_level", "log_format", "log_size")  # options of a node


@contextmanager
def logged(options: argparse.Namespace, run: str | None = None) -> Iterator[None]:
    """Write a log while the block runs, if one is asked for, and say in it how the block ended if that was an error.

    Parameters
    ----------
    options : Namespace
        Options of a command that writes a log; those of a node also say how.
    run : str, optional
        Name of the run, of lines that do not name one.

    Raises
    ------
    CallerError
        If the log cannot be written, or options say how but not where.
    """
    level, form, size = (getattr(options, name, None) for name in _HOW)
    if options.log_file is None:
        for name, given in zip(_HOW, (level, form, size), strict=True):
            if given is not None:
                option = f"--{name.replace('_', '-')}"
                raise CallerError(f"{option} is about the log, and there is none; give --log-file FILE as well")
        yield
        return
    if isinstance(trace := getattr(options, "trace", None), Path):
        _check_apart(options.log_file, trace)
    handler = _handler(options.log_file, int((size or 10.0) * 1_000_000))
    as_json = options.log_file.suffix in _AS_JSON if form is None else form == "json"
    handler.setFormatter(_Lines(run, as_json))
    LOG.addHandler(handler)
    before = LOG.level
    LOG.setLevel((level or "info").upper())
    try:
        yield
    except GossamerError as error:
        LOG.error(_told(error))
        raise
    except KeyboardInterrupt:
        LOG.warning("interrupted")
        raise
    finally:
        LOG.setLevel(before)
        LOG.removeHandler(handler)
        handler.close()


def _told(error: GossamerError) -> str:
    """Words of an error for a log: what is wrong with data may quote them."""
    if isinstance(error, DataError):
        return "ended with an error: the data cannot be used; the terminal was told why"
    return f"ended with an error: {error}"


class _File(RotatingFileHandler):
    """A file that a full disk takes lines from, and never the run; the terminal is told once."""

    told = False

    def handleError(self, record: logging.LogRecord) -> None:
        if not self.told:
            self.told = True
            warn([f"{self.baseFilename}: cannot write the log ({sys.exc_info()[1]}); the run goes on"])

    def close(self) -> None:
        with suppress(OSError):  # of lines that did not go: that was said
            super().close()


def _handler(path: Path, size: int) -> logging.Handler:
    if path == STDERR:
        return logging.StreamHandler(sys.stderr)
    try:
        _check_places(path)
        return _File(path, maxBytes=size, backupCount=KEPT, encoding="utf-8", errors="replace")
    except CallerError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CallerError(f"{path}: cannot write the log: {why}; give another --log-file") from None


def _check_places(path: Path) -> None:
    """Refuse what is no log of ours: a new line, or a file that is moved on when it is full, would damage it."""
    if path.exists() and not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISCHR(mode)):
        raise CallerError(f"{path}: cannot be a log, since it is no file; give another --log-file")
    for place in _files(path):
        if place.is_file() and not _is_log(place):
            raise CallerError(
                f"{place}: expected a log, or a file that is not there yet, found a file with something else in it; "
                "give another --log-file"
            )


def _check_apart(path: Path, trace: Path) -> None:
    """Refuse a log whose file, or an older one of it, is the trace's as well."""
    if os.path.realpath(trace) in map(os.path.realpath, _files(path)) and not trace.is_char_device():
        raise CallerError(
            f"{trace}: found as --log-file and as --trace, expected a file for each; give another --trace"
        )


def _files(path: Path) -> tuple[Path, ...]:
    """The file of a log, and the older ones that it may get."""
    return (path, *(path.with_name(f"{path.name}.{number}") for number in range(1, KEPT + 1)))


def _is_log(path: Path) -> bool:
    """Whether a file is empty, or begins as a log of ours does."""
    with open(path, "rb") as file:
        first = file.read(100)
    return not first or _BEGINNING.match(first) is not None


_TIME = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_LEVEL = rb"(debug|info|warning|error|critical)"
_BEGINNING = re.compile(rb'%b %b +\S|\{"time": "%b", "level": "%b", "event": "' % (_TIME, _LEVEL, _TIME, _LEVEL))
"""First letters of a log, as `_Lines` writes them."""


class _Lines(logging.Formatter):
    """A JSON object a line: time (UTC), level, event, run, node, None where it has none; or a line for people.

    Parameters
    ----------
    run : str or None
        Name of the run, of records that do not name one.
    as_json : bool
        Whether lines are JSON.
    """

    def __init__(self, run: str | None, as_json: bool) -> None:
        super().__init__()
        self._run, self._as_json = run, as_json

    def format(self, record: logging.LogRecord) -> str:
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        when, level = f"{whole}.{int(record.msecs):03d}Z", record.levelname.lower()
        whose = {"run": getattr(record, "run", self._run), "node": getattr(record, "node", None)}
        if self._as_json:
            return json.dumps({"time": when, "level": level, "event": _line(record), **whose})
        who = " ".join(filter(None, whose.values()))
        return f"{when} {level:7} {who and who + ': '}{_line(record)}"


def _line(record: logging.LogRecord) -> str:
    """A record's words on one line, whatever they quote."""
    words = " ".join(record.getMessage().split())
    return "".join(letter if letter.isprintable() else "?" for letter in words)


# Progress of runs under way, and pages of folders, of runs or of deployed parties.


def progress(*, lines: bool = False) -> PlainProgress:
    """Return plain lines, and below them a bar in a terminal that can move its cursor, unless ``lines`` are all."""
    if lines or not moving():
        return PlainProgress()
    from gossamer.experiment.runs.trackers import ProgressLine

    return PlainProgress(ProgressLine())


@contextmanager
def door_for(options: argparse.Namespace) -> Iterator[Door | None]:
    """Door at which a page is served, if one is asked for; opened before all else, since a port may be in use."""
    if options.live is None:
        yield None
        return
    from gossamer.report.serving import Door

    door = Door.opened(options.live)
    with door.socket:
        yield door


def tell(address: str) -> None:
    """Say where the page is, to whoever sees this terminal."""
    say(f"the report while it goes on, for you alone: {address}")


@contextmanager
def live(door: Door | None, folders: Sequence[Path], tell: Callable[[str], object] = tell) -> Iterator[None]:
    """Serve the report of what writes to ``folders`` from now on, if there is a door for it, and ``tell`` where."""
    if door is None:
        yield
        return
    from gossamer.report.serving import ShownFolders, served_beside

    with served_beside(ShownFolders(folders, page_of, time.time_ns()), door) as address:
        tell(address)
        yield


def page_of(folders: Sequence[Path], public: bool = False, threshold: float | None = None) -> Page:
    """Return the page of runs, of a sweep, or of deployed parties, with released figures at a ``threshold``.

    Raises
    ------
    CallerError
        If a folder is neither, there are some of both, or nothing was released that has a threshold.
    """
    from gossamer.report.article import SWEEP, read_sweep
    from gossamer.report.page import is_party, page_of_parties, page_of_runs
    from gossamer.report.records import read_records

    parties = [folder for folder in folders if is_party(folder)]
    if len(folders) == 1 and (folders[0] / SWEEP).is_file():
        runs, means = read_sweep(folders[0])
        at = [replace(one, threshold=threshold) for one in runs]
        page = page_of_runs(at, public=public, before=() if public else (means,))
    elif not parties:
        page = page_of_runs([replace(one, threshold=threshold) for one in read_records(folders)], public=public)
    elif len(parties) < len(folders):
        other = next(folder for folder in folders if folder not in parties)
        raise CallerError(
            f"{parties[0]} is the state folder of a deployed party and {other} is not; give folders of one kind"
        )
    else:
        page = page_of_parties([_party(folder, threshold) for folder in folders], public=public)
    if threshold is not None and all(section.name != "evaluation" for section in page.sections):
        raise CallerError(
            "--threshold is about what parties released of held-out examples, and there is nothing that may be shown; "
            "leave it out, or give a run with evaluation.release: private"
        )
    return page


def _party(folder: Path, threshold: float | None) -> PartyRecord:
    from gossamer.deployment.party.health import problems
    from gossamer.deployment.party.state_folder import StateFolder
    from gossamer.report.page import read_party

    status = StateFolder(folder).status()
    found = read_party(folder, status, [problem.text for problem in problems(status, time.time())])
    return replace(found, result=found.result and replace(found.result, threshold=threshold))
