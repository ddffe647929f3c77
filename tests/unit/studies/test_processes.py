"""Work that is spread over processes."""

from __future__ import annotations

from functools import partial
from multiprocessing.context import SpawnProcess

import pytest

from gossamer.studies.runs import results


def test_processes_that_have_done_everything_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody asks whether there is more: a process that is ended says that it was interrupted."""
    ended = []
    monkeypatch.setattr(SpawnProcess, "terminate", lambda process: ended.append(process.name))
    assert list(zip(range(2), results([partial(abs, -1), partial(abs, -2)], jobs=2))) == [(0, 1), (1, 2)]
    assert ended == []
