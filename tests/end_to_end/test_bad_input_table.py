"""The table of bad inputs: each ends with one clear line and its exit code, and leaves nothing half-written.

Those that could take all memory or time are tried in a process of their own as well, under bounds; a few of them by
default, and all with ``--slow``.
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.bad_inputs import CASES
from tests.end_to_end.bad_inputs.case import Case
from tests.end_to_end.bad_inputs.templates import copied

from gossamer.cli import main

SECONDS = 5
"""Of a processor, for the whole command."""

MEMORY = 1 << 30
"""Bytes that a command may have at most."""

LINE = 500
"""Characters of the line; it may name a temporary folder twice."""

HANGS = 120
"""Seconds after which something waits for ever."""


def state(folder: Path) -> dict[str, object]:
    """Everything in a folder: what it is, and of files what is in them."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        small = stat.S_ISREG(status.st_mode) and status.st_size < 1 << 24
        content = hashlib.sha256(path.read_bytes()).hexdigest() if small else status.st_size
        found[str(path.relative_to(folder))] = (stat.S_IFMT(status.st_mode), content)
    return found


def check(case: Case, code: int | None, out: str, err: str) -> None:
    """One line, of errors alone, that says what is wrong."""
    assert code == case.code, err
    if case.code == 0:
        assert case.why, "say why it is accepted"
        assert "error" not in err
        return
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1, err
    assert err.startswith("gossamer: ")
    assert case.says in err
    assert case.says, "say what the line has to say"
    assert len(err) <= LINE
    assert out == ""


def check_left(case: Case, folder: Path, before: dict[str, object]) -> None:
    """Nothing is there that was not, and nothing is other than it was."""
    # What a ledger was when it was last closed is written beside it at each closing.
    after, before = ({n: f for n, f in one.items() if not n.endswith(".newest")} for one in (state(folder), before))
    if case.leaves:
        after = {name: found for name, found in after.items() if not name.startswith(case.leaves) or name in before}
    assert after == before


@pytest.fixture
def _no_endless_waiting() -> Iterator[None]:
    """Something that waits for ever fails, and does not keep the others waiting."""

    def too_long(*_: object) -> None:
        raise TimeoutError(f"it has not come back after {HANGS} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(HANGS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def prepared(case: Case, folder: Path) -> dict[str, object]:
    """Make what a case needs, and say what there is then."""
    if case.of:
        copied(case.of, folder)
    case.prepare(folder)
    return state(folder)


def _with_slow_bombs() -> Iterator[object]:
    """All cases; bombs take a while to make, and so does a second reading of as many values."""
    for case in CASES:
        bomb = (case.apart and case.kind == "data") or case.id == "policy: 300,000 values"
        yield pytest.param(case, id=case.id, marks=[pytest.mark.slow] if bomb else [])


@pytest.mark.usefixtures("called_here", "_no_endless_waiting")
@pytest.mark.parametrize("case", list(_with_slow_bombs()))
def test_in_this_process(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = prepared(case, tmp_path)
    capsys.readouterr()
    code = main(case.arguments)
    check(case, code, *capsys.readouterr())
    if case.code:
        check_left(case, tmp_path, before)


def _first_of_each_kind() -> Iterator[object]:
    seen: Counter[str] = Counter()
    for case in CASES:
        if case.apart:
            seen[case.kind] += 1
            yield pytest.param(case, id=case.id, marks=[] if seen[case.kind] == 1 else [pytest.mark.slow])


# A process that is made of another begins with the peak of that one, so a small one is between it and the tests.
_APART = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


@pytest.mark.usefixtures("_no_endless_waiting")
@pytest.mark.parametrize("case", list(_first_of_each_kind()))
def test_in_a_process_with_bounds(case: Case, tmp_path: Path) -> None:
    before = prepared(case, tmp_path)

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))

    with tempfile.TemporaryDirectory() as apart:
        peak = Path(apart, "peak")
        process = subprocess.run(
            [sys.executable, "-c", _APART, str(peak), sys.executable, "-m", "gossamer", *case.arguments],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            preexec_fn=bounded,
            check=False,
        )
        most = int(peak.read_text()) * 1024
    check(case, process.returncode, process.stdout, process.stderr)
    check_left(case, tmp_path, before)
    assert most < MEMORY


def test_the_table() -> None:
    """It has 300 cases of different names, of every kind of the issue, and every exit code that it may have."""
    assert len({case.id for case in CASES}) == len(CASES) >= 300
    assert {case.code for case in CASES} == {0, 2, 3}
    assert not [case.id for case in CASES if bool(case.why) is not (case.code == 0)]
    assert os.name == "posix"
