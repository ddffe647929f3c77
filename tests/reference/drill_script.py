"""The drill with processes, a script of the examples, as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parents[2] / "examples" / "drill"


def processes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script's module, with its folder among those that are imported from, as where it is run."""
    monkeypatch.syspath_prepend(str(HERE))
    where = importlib.util.spec_from_file_location("drill_processes", HERE / "processes.py")
    assert where is not None
    assert where.loader is not None
    found = importlib.util.module_from_spec(where)
    monkeypatch.setitem(sys.modules, "drill_processes", found)
    where.loader.exec_module(found)
    return found
