"""Processes killed while they make an owner's ledger, accept data and charge releases: nothing is lost or forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kills import killing
from tests.sampling import examples


def test_some_kills(tmp_path: Path) -> None:
    found, _ = killing("owned_data_kills.py", tmp_path, examples(40), 1)
    assert found["u"] > 0


@pytest.mark.slow
def test_five_hundred_kills(tmp_path: Path) -> None:
    """Some before there was a key, and some between a commit and the moment when it was said to be durable, or else the
    instants were not random."""
    found, _ = killing("owned_data_kills.py", tmp_path, 500, 2)
    assert found["young"] > 0
    assert found["unsaid"] > 0
    assert found["c"] > 100
