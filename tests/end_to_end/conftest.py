"""Fixtures of tests of whole runs and of the command."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gossamer as gs

if TYPE_CHECKING:
    from gossamer.runtimes.mqtt.broker import EmbeddedBroker


@pytest.fixture
def called_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that call the command in this process: a folder of their own, and nothing that outlives them."""
    monkeypatch.chdir(tmp_path)
    # The command prints warnings its own way and leaves on SIGTERM.
    monkeypatch.setattr("warnings.showwarning", __import__("warnings").showwarning)
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(signal, "signal", lambda *_: before)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker in a process of its own; modules that ask for it skip themselves without its package."""
    from gossamer.runtimes.mqtt.broker import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def quiet() -> Iterator[None]:
    """Let runs warn of themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gs.RunWarning)
        yield
