"""A party's state folder: all that its node leaves on disk, and what `gossamer status` and `gossamer stop` go by.

| file | what |
|---|---|
| `lock` | held by the process that runs the node; its number is in it |
| `store.sqlite` | what the node goes on from after a crash (`runtimes.storage.store`): as private as the data |
| `status.json` | how the node is, replaced whole every second or so |
| `node.log` | what happened, a line each |
| `private.jsonl` | what the node recorded for itself; nobody else's business |
| `summary.json`, `model.safetensors` | at the end: what came of it, and the model that this party would deploy |
| `guarantee.json` | at the end, if it has data or releases others': all that is proved (`privacy.guarantee_card`) |
| `receipts.jsonl` | at the end: a receipt of each release, signed, for whoever checks the guarantee |
| `witness.sqlite` | how far peers' receipts went that this node saw, and what of its own they have countersigned |
| `unit.ledger` | of a server that releases others' data: what it was charged, and the receipts |
| `*.newest` | beside each of these: how new it is (`runtimes.storage.seal`) |
| `spending.json` | at the end: what all runs have taken of the budget of the party's data; for its owner |
| `model.json` | at the end: what that model is, and how rows are read for it |
| `personal.safetensors` | at the end, if the spec asks for it: that model trained on with raw data, for this party |
| `instance` | a random name of this folder, by which the ledger of an agent's data knows it |
| `live-address` | where the node's page is, as long as it is served: whoever knows it sees the page |
| `leave` | a request of `gossamer stop --leave` |
| `orders` | the organiser's orders to all parties, signed (`keys.orders`) |
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from gossamer.errors import CallerError, GossamerError, failing_as
from gossamer.files import append, for_owner, is_read_only, make_own_folder, named, read_text, to_json, write_own

LOG = logging.getLogger("gossamer.node")
STORE = "store.sqlite"
"""The file that a node goes on from; without it there was no node."""


class NodeRuns(CallerError):
    """Another process runs the node of this folder."""


class StateFolder:
    """The state folder of one node.

    Parameters
    ----------
    path : Path
        Made if it does not exist, for its owner alone.
    echo : bool
        Whether lines of the log are printed as well.

    Attributes
    ----------
    kept : bool
        Whether a node has begun there, or begins, so that `forget` leaves what is in it.
    keeps : set of str
        Names of files that it leaves in any case.
    """

    def __init__(self, path: Path, *, echo: bool = False) -> None:
        self.path, self._echo = path, echo
        self._before: set[str] | None = None  # what was there, of a folder that was there
        self.kept, self.keeps = True, set[str]()
        self._lock: BinaryIO | None = None
        self._who: dict[str, str] = {}

    # For the node

    def named(self, run: str, node: str) -> None:
        """Have all that is said from now on name the run and the node, in the program's log."""
        self._who = {"run": run, "node": node}

    def take(self) -> None:
        """Have the folder for this process, until it ends.

        Raises
        ------
        NodeRuns
            If another process has it.
        CallerError
            If it cannot be made or written to.
        """
        try:
            self._before = set(os.listdir(self.path)) if self.path.is_dir() else None
            make_own_folder(self.path)
            lock = opened(self.path / "lock", buffering=0)
        except OSError as error:
            remedy = "have its disk mounted for writing" if error.errno == errno.EROFS else "give another --store"
            raise CallerError(f"{self.path}: cannot be a state folder: {error.strerror}; {remedy}") from None
        if not _locked(lock):
            lock.close()
            raise NodeRuns(
                f"{self.path}: process {self.process or '?'} runs this node; stop it first, or give another --store"
            )
        self._lock, self.kept = lock, (self.path / STORE).exists()
        with named(self.path / "lock"):
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n".encode())
        opened(self.path / "node.log").close()

    def say(self, line: str, level: int = logging.INFO) -> None:
        """Write a line to `node.log`, to standard error, and to the program's log, which others may read."""
        self.tell_owner(line)
        self.log(line, level)

    def warn(self, line: str) -> None:
        """Say what somebody should look at."""
        self.say(line, logging.WARNING)

    def log(self, line: str, level: int = logging.INFO) -> None:
        """Write a line to the program's log alone."""
        LOG.log(level, "%s", line, extra=self._who)

    def tell_owner(self, line: str) -> None:
        """Write a line to `node.log` and to standard error alone, as what tells of the data or of samples."""
        if self._echo:
            print(_stamped(line), file=sys.stderr, flush=True)
        self.note(line)

    def note(self, line: str) -> None:
        """Write a line to `node.log` alone."""
        if self._lock is not None:
            append(self.path / "node.log", f"{_stamped(line)}\n")

    def record(self, seconds: float, name: str, value: float) -> None:
        """Write to the node's private log."""
        line = to_json({"seconds": seconds, "name": name, "value": value})
        append(self.path / "private.jsonl", f"{line}\n")

    def write(self, name: str, content: str | bytes) -> None:
        """Replace a file, whole or not at all; it is on disk when this returns."""
        write_own(self.path / name, content, durable=True)

    def remove(self, name: str) -> None:
        """Delete a file that is of no use any longer, if it can be."""
        with suppress(OSError):
            (self.path / name).unlink()

    def publish(self, status: Mapping[str, Any]) -> None:
        """Replace the status, which is written anew all the time: a power cut may take the last of them."""
        write_own(self.path / "status.json", to_json(status, indent=2) + "\n")

    @property
    def instance(self) -> str:
        """A random name that this folder keeps: another folder, or one that was emptied, has another."""
        place = self.path / "instance"
        if not place.exists():
            self.write(place.name, secrets.token_hex(16))
        return place.read_text(encoding="ascii")

    @property
    def leaving(self) -> bool:
        """Whether the owner wants the node to end its part in the run for good."""
        return (self.path / "leave").exists()

    def give_back(self) -> None:
        """Let others have the folder."""
        if self._lock is not None:
            self._lock.close()
        self._lock = None

    def forget(self) -> None:
        """Delete what this process has made, unless the node has begun: what is there stays."""
        if self._lock is None or self.kept:
            return
        with suppress(OSError):  # the reason why the start failed matters more
            for name in set(os.listdir(self.path)) - (self._before or set()) - self.keeps:
                self.remove(name)  # not what is below it, of further runs
            if self._before is None:
                self.path.rmdir()

    # For others

    @property
    def process(self) -> int | None:
        """The process that runs the node, if one does."""
        try:
            with open(self.path / "lock", encoding="utf-8") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return int(lock.read() or 0) or None
        except (FileNotFoundError, ValueError):
            pass
        return None

    def status(self) -> dict[str, Any]:
        """Read what the node last said of itself, and whether it runs.

        Raises
        ------
        CallerError
            If no node has ever run there.
        """
        remedy, said = "give a node's --store", dict[str, Any]()
        with failing_as(CallerError, f"{self.path}: cannot read the status (", f"); {remedy}"):
            try:
                text = read_text(self.path / "status.json")
            except FileNotFoundError:
                why = "no node has run here, or it plans its run, since there is no status.json"
                raise CallerError(f"{self.path}: {why}; {remedy}") from None
        with suppress(ValueError, RecursionError):
            said = json.loads(text)
        if not (isinstance(said, dict) and isinstance(said.get("state"), str)):
            raise CallerError(
                f"{self.path}: cannot read the status: status.json is empty or damaged, as a power cut can leave it; "
                "nothing depends on it, and the node writes it anew once it is started again"
            )
        process = self.process
        if process is None and said.get("connected"):
            said["connected"] = False
        if process is None and said["state"] not in ENDED:
            said["state"] = "killed"
            if is_read_only(self.path):  # it could not write down why it ended
                said["why"] = "its disk may only be read; have it mounted for writing"
        return {**said, "process": process}

    def stop(self, leave: bool, patience: float) -> None:
        """Have the process that runs the node end, and wait for it.

        Parameters
        ----------
        leave : bool
            Whether the node is to end its part in the run for good; otherwise it can be started again.
        patience : float
            Seconds to wait.

        Raises
        ------
        CallerError
            If no process runs it.
        GossamerError
            If it does not end in time.
        """
        if (process := self.process) is None:
            raise CallerError(f"{self.path}: no process runs this node; give the --store of one that runs")
        if leave:
            self.write("leave", "")
        os.kill(process, signal.SIGTERM)
        until = time.monotonic() + patience
        while self.process == process:
            if time.monotonic() > until:
                raise GossamerError(f"{self.path}: process {process} has not ended within {patience:g} s")
            time.sleep(0.05)


ENDED = ("finished", "stopped", "failed")
"""States of a node whose process has ended as it should, or said why not."""


def _stamped(line: str) -> str:
    """One line, after the time."""
    return f"{datetime.now(UTC).strftime('%Y-%m-%dT%H:%M:%SZ')} {' '.join(line.split())}"


def opened(path: Path, buffering: int = -1) -> Any:
    """A file to append to, for its owner alone."""
    return open(path, "ab", buffering, opener=for_owner)


def _locked(lock: BinaryIO) -> bool:
    """Whether the lock is ours; who asks for the status holds it for a moment, too."""
    for _ in range(20):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False
