"""Folders that one process at a time has: until it ends, however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import CallerError
from gossamer.files import FolderLock, UnderWay, held

HOLDER = """
import os, signal, sys
from pathlib import Path
from gossamer.files import held

with held(Path(sys.argv[1])):
    ready, says = os.pipe()
    if (child := os.fork()) == 0:
        os.write(says, b".")  # and so has done what it does at its beginning
        signal.pause()
    os.read(ready, 1)
    print(child, flush=True)
    signal.pause()
"""
"""A process that has a folder and is forked."""


def test_a_folder_is_one_run_s_at_a_time(tmp_path: Path) -> None:
    with held(tmp_path):
        with pytest.raises(UnderWay) as caught, held(tmp_path):
            pytest.fail("two have it")
        assert str(caught.value) == f"{tmp_path}: a run is still under way there; wait for it, or end it"
        assert isinstance(caught.value, CallerError)
        assert list(tmp_path.iterdir()) == [], "nothing is left in it"
    with held(tmp_path), held(tmp_path.parent):
        pass


def test_a_folder_that_is_not_there_can_be_taken_once_it_is(tmp_path: Path) -> None:
    new = tmp_path / "new"
    with held(new) as lock:
        new.mkdir()
        lock.take()
        lock.take()
        with pytest.raises(UnderWay):
            FolderLock(new).take()
    with held(new):
        pass


def test_a_process_that_was_killed_has_it_no_longer_and_neither_has_its_child(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        with pytest.raises(UnderWay), held(tmp_path):
            pytest.fail("two have it")
        process.kill()
        process.wait()
        with held(tmp_path):
            os.kill(child, 0)  # is still there
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOTSUP, errno.ENOLCK])
def test_where_the_file_system_has_no_locks_nobody_is_refused(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*given: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with held(tmp_path), held(tmp_path):
        pass


def test_where_the_system_has_no_locks_nobody_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with held(tmp_path), held(tmp_path):
        pass
