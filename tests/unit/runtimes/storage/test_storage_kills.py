"""Real processes, killed while they write, and disks that are full: nothing acknowledged is lost, no ledger short."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kills import killing
from tests.sampling import examples


def test_some_kills(tmp_path: Path) -> None:
    """Each in the midst of the files that the last one left, after a note or more and a charge or more."""
    kills = examples(60)
    found, _ = killing("storage_kills.py", tmp_path, kills, 1)
    assert found["sent"] >= kills
    assert found["charged"] >= kills


@pytest.mark.slow
def test_a_thousand_kills(tmp_path: Path) -> None:
    """Some of them between a commit and the moment when it was acknowledged, or else the instants were not random."""
    found, _ = killing("storage_kills.py", tmp_path, 1000, 2)
    assert found["unsaid"] > 0
    assert found["overcounted"] > 0


def test_a_full_disk_stops_everything_and_loses_nothing(tmp_path: Path) -> None:
    """The operating system itself lets no file grow any further: every write before that is there, whole."""
    found, said = killing("storage_kills.py", tmp_path, "full")
    assert found["sent"] > 10
    lines = [line for line in said.splitlines() if line]
    assert len(lines) == 2
    assert all("its disk reports an error; see to the disk" in line for line in lines)
    assert "a.store" in lines[0]
    assert "owner.ledger" in lines[1]
