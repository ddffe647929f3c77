"""Puts each bug of `mutants.toml` into a copy of the source, and sees whether its tests find it.

    python -m tests.run_mutants              all of them
    python -m tests.run_mutants WORD ...     those whose names have one of these words

Heavy packages are imported once; each bug has a process of its own, forked off before Gossamer is imported, so that
nothing of one is left for the next. A bug is *found* if a test fails; that tests cannot even be collected is an error
of the table, and so is a test that fails without any bug.
"""

from __future__ import annotations

import compileall
import importlib
import os
import py_compile
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE, SOURCE = ROOT / "tests" / "mutants.toml", ROOT / "src"
HEAVY = ("numpy", "scipy.stats", "scipy.special", "numba", "torch", "pydantic", "dp_accounting", "pytest")
FOUND, NOT_FOUND = 1, 0  # exit codes of pytest
LIMIT, LIMIT_OF_ALL = 300, 3600  # seconds for the tests of one bug, and for those of all without any
_HUNG = -signal.SIGALRM


@dataclass(frozen=True)
class Mutant:
    """A bug.

    Attributes
    ----------
    name : str
        In words.
    find : str
        A text that is in the source once.
    replace : str
        What takes its place.
    tests : tuple of str
        Where it is found.
    """

    name: str
    find: str
    replace: str
    tests: tuple[str, ...]

    def place(self, source: Path) -> Path:
        """The file that has it.

        Raises
        ------
        LookupError
            If none has, or the text is there more than once.
        """
        found = [path for path in sorted(source.rglob("*.py")) for _ in range(self.times(path))]
        if len(found) != 1:
            raise LookupError(f"{self.name!r}: expected its text once in {source}, found it {len(found)} times")
        return found[0]

    def times(self, path: Path) -> int:
        """How often it is in a file."""
        return path.read_text(encoding="utf-8").count(self.find)


def mutants() -> list[Mutant]:
    """Those of the table."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(row["name"], row["find"], row["replace"], tuple(row["tests"])) for row in table]


def run(tests: Sequence[str], source: Path, output: Path, limit: int = LIMIT) -> int:
    """The exit code of pytest, in a process of its own, with the code in ``source``; -SIGALRM after ``limit`` s."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            signal.alarm(limit)
            file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(file, 1)
            os.dup2(file, 2)
            code = _pytest(tests, source)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _pytest(tests: Sequence[str], source: Path) -> int:
    import pytest

    sys.path[:0] = [str(source), str(ROOT)]
    os.chdir(ROOT)
    import gossamer

    assert Path(gossamer.__file__).is_relative_to(source), gossamer.__file__
    return int(pytest.main(["-x", "-q", "-n", "0", "--slow", "-p", "no:cacheprovider", *tests]))


def with_bug(mutant: Mutant, source: Path, output: Path) -> int:
    """The exit code of its tests, with the bug in the copy ``source``, which is afterwards as before."""
    path = mutant.place(source)
    before = path.read_text(encoding="utf-8")
    try:
        path.write_text(before.replace(mutant.find, mutant.replace), encoding="utf-8")
        return run(mutant.tests, source, output)
    finally:
        path.write_text(before, encoding="utf-8")


def main(words: Iterable[str]) -> int:
    """Say which bugs are found; 1 if one is not."""
    words = list(words)
    chosen = [one for one in mutants() if not words or any(word in one.name for word in words)]
    for package in HEAVY:
        importlib.import_module(package)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        source, output = Path(folder) / "src", Path(folder) / "output"
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        # By their content: a bug may be as long as what it replaces, and be there within the same second.
        by_content = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(source, quiet=1, invalidation_mode=by_content)
        tests = sorted({test for one in chosen for test in one.tests})
        if (code := run(tests, source, output, LIMIT_OF_ALL)) != NOT_FOUND:
            why = f"tests take more than {LIMIT_OF_ALL} s" if code == _HUNG else "a test fails"
            print(f"{output.read_text()[-2000:]}\nwithout any bug {why}")
            return 1
        survived = [one for one in chosen if not _report(one, source, output)]
    print(f"{len(chosen) - len(survived)} of {len(chosen)} are found")
    return 1 if survived else 0


def _report(mutant: Mutant, source: Path, output: Path) -> bool:
    """Say whether it is found."""
    began = time.perf_counter()
    code = with_bug(mutant, source, output)
    verdict = {FOUND: "found", NOT_FOUND: "NOT FOUND", _HUNG: "found: tests hang"}.get(code, f"ERROR {code}")
    lines = [line for line in output.read_text(errors="replace").splitlines() if line.startswith(("FAILED", "ERROR"))]
    where = lines[0].removeprefix("FAILED ").partition(" - ")[0] if lines else ""
    print(f"{verdict}: {mutant.name} ({time.perf_counter() - began:.1f} s) {where}", flush=True)
    return code in (FOUND, _HUNG)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
