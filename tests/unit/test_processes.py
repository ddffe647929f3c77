"""Work that is spread over processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from functools import partial
from multiprocessing.context import SpawnProcess

import pytest

from gossamer.errors import CallerError
from gossamer.processes import results


def test_processes_that_have_done_everything_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody asks whether there is more: a process that is ended says that it was interrupted."""
    ended = []
    monkeypatch.setattr(SpawnProcess, "terminate", lambda process: ended.append(process.name))
    assert list(zip(range(2), results([partial(abs, -1), partial(abs, -2)], jobs=2))) == [(0, 1), (1, 2)]
    assert ended == []


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_forked_processes_have_what_cannot_be_pickled_and_end_with_the_time() -> None:
    work = [lambda: "done", lambda: time.sleep(3600.0)]
    until = time.monotonic() + 1.0
    assert list(results(work, 2, in_order=False, inherited=True, until=until)) == ["done"]
    assert not multiprocessing.active_children()


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_process_that_is_killed_is_said() -> None:
    work = [lambda: None, lambda: os.kill(os.getpid(), signal.SIGKILL)]
    with pytest.raises(CallerError, match="where memory runs out; take fewer --observer"):
        list(results(work, 2, inherited=True, fewer="--observer"))
