"""What tests of the command share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest


@pytest.fixture
def called_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that call the command in this process: a folder of their own, and nothing that outlives them."""
    monkeypatch.chdir(tmp_path)
    # The command prints warnings its own way and leaves on SIGTERM.
    monkeypatch.setattr("warnings.showwarning", __import__("warnings").showwarning)
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(signal, "signal", lambda *_: before)
