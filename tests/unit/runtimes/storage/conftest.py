"""Fixtures of ledgers in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gossamer.runtimes.storage.ledger import LedgerFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "owner.ledger"


@pytest.fixture
def another(path: Path) -> Iterator[Callable[[], LedgerFile]]:
    """The ledger as another process finds it."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(LedgerFile(path)))


@pytest.fixture
def file(another: Callable[[], LedgerFile]) -> LedgerFile:
    return another()
