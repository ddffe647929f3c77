"""Files that are read with a bound on their size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.files import read_file

READ = """
import resource, sys
from gossamer.files import read_file
resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
assert read_file(sys.argv[1], 2**40) == b"few"
"""


def test_room_is_made_for_a_file_and_not_for_the_largest(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"few")
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path / "file")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("size", [0, 1, 10])
def test_files_up_to_the_bound_are_read(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    assert read_file(tmp_path / "file", 10) == b"x" * size


def test_a_larger_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="large"):
        read_file(tmp_path / "file", 10)


def test_a_file_of_unknown_size_is_read_whole() -> None:
    """Those of /proc say that they are empty."""
    path = Path("/proc/self/limits")
    if not path.exists():
        pytest.skip("this system has no /proc")
    assert path.stat().st_size == 0
    assert read_file(path) == path.read_bytes()
