"""Machine code of loops is kept, and whatever is wrong with what is kept, the loop runs."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core.caching import IndexDataCacheFile

from gossamer import interrupts, machine_code
from gossamer.errors import RunWarning
from gossamer.version import __version__

LOOP = """
from numba import float64
from gossamer.machine_code import compiled

@compiled(float64(float64), takes="a loop")
def twice(value):
    return 2.0 * value
"""
_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def _told_anew() -> None:
    machine_code._tell_once.cache_clear()
    machine_code._warn_once.cache_clear()


def loaded(folder: Path, source: str = LOOP, six: float = 6.0) -> Any:
    """The loop, as another process makes it."""
    (folder / "loop.py").write_text(source)
    spec = importlib.util.spec_from_file_location(f"loop_{next(_NUMBERS)}", folder / "loop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.twice(3.0) == six
    return module.twice.stats


def of_another_version(file: Path) -> None:
    file.write_bytes(pickle.dumps("0.1") + file.read_bytes())


def of_other_code(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b".1.nbc", b".3.nbc"))


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "an index that is empty": ("*.nbi", lambda file: file.write_bytes(b"")),
    "an index that is cut": ("*.nbi", lambda file: file.write_bytes(file.read_bytes()[:-50])),
    "an index of another version": ("*.nbi", of_another_version),
    "an index with a flipped bit": ("*.nbi", of_other_code),
    "code that is cut": ("*.nbc", lambda file: file.write_bytes(file.read_bytes()[:200])),
    "code with a flipped bit": ("*.nbc", flipped),
    "code that is something else": ("*.nbc", lambda file: file.write_bytes(b"no code at all")),
    "code that is gone": ("*.nbc", Path.unlink),
}


SILENT = ("an index of another version", "code that is gone")


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_cannot_be_read_is_made_anew_and_kept(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert loaded(tmp_path).cache_misses
    assert loaded(tmp_path).cache_hits
    kind, harm = DAMAGES[damage]
    (file,) = tmp_path.rglob(kind)
    harm(file)
    machine_code._tell_once.cache_clear()
    with caplog.at_level(logging.INFO, "gossamer.waits"), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert loaded(tmp_path).cache_misses
        assert ["is damaged" in str(one.message) for one in told] == [True] * (damage not in SILENT)
        assert caplog.messages == ["compiling a loop, once for this machine"]
        assert loaded(tmp_path).cache_hits
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("version", ["0.0.9", __version__])
def test_code_of_another_installation_is_not_run(tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its source may be the same, and that of a loop that it calls another."""
    with monkeypatch.context() as patch:
        patch.setattr(machine_code, "__version__", version, raising=False)
        loaded(tmp_path)
    assert bool(loaded(tmp_path).cache_hits) == (version == __version__)


def test_code_of_the_source_before_is_not_run(tmp_path: Path) -> None:
    """As it is left by a process that ends when it has written the index, and not yet the code."""
    changed = LOOP.replace("2.0 * value", "20.0 * value")
    loaded(tmp_path)
    (code,) = tmp_path.rglob("*.nbc")
    before = code.read_bytes()
    loaded(tmp_path, changed, 60.0)
    code.write_bytes(before)
    with pytest.warns(RunWarning, match="is damaged"):
        loaded(tmp_path, changed, 60.0)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), EOFError("Ran out of input")])
def test_what_cannot_be_kept_is_told_and_the_loop_runs(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, and an index that can be neither read nor emptied."""

    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(IndexDataCacheFile, "save", full)
    with pytest.warns(RunWarning, match=rf"cannot be kept \({error.args[-1]}\).*set NUMBA_CACHE_DIR"):
        loaded(tmp_path)


def test_no_folder_that_can_be_written_is_told_and_the_loop_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "IPythonCacheLocator")
    with pytest.warns(RunWarning, match=r"cannot be kept \(no folder for it can be written\)"):
        loaded(tmp_path)


SLOW = """
import ctypes
from gossamer.interrupts import heard_in_compilers

lock, library = ctypes.create_string_buffer(128), ctypes.CDLL(None)
with heard_in_compilers():
    print("begins", flush=True)
    for _ in range(2):  # the second time waits for ever, and for no signal
        library.pthread_mutex_lock(lock)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_heard_while_a_compiler_is_at_work(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    program = "from gossamer.interrupts import leave_at_once; leave_at_once(); import slow"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        process.send_signal(number)
        try:
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, told) == (130, "gossamer: interrupted\n")


LEFT = """
import os, signal, time
from gossamer.interrupts import heard, heard_in_compilers

with heard():
    try:
        with heard_in_compilers():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
    except KeyboardInterrupt:
        time.sleep(0.6)
        print("cleaned up")
"""


def test_an_interrupt_that_has_the_compiler_left_lets_others_clean_up() -> None:
    ended = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "cleaned up\n", "")


def test_a_system_whose_pipes_always_wait_compiles_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows, before Python 3.12."""
    monkeypatch.delattr(os, "set_blocking")
    monkeypatch.setattr(signal, "getsignal", lambda number: interrupts._leave)
    with interrupts.heard_in_compilers():
        pass
