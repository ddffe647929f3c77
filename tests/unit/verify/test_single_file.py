"""The verifier is one file that a reviewer can read, and that runs by itself."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.unit.verify.chains import card, stored, written

from gossamer.verify import gossamer_verify

FILE = Path(gossamer_verify.__file__)
ALLOWED = {"numpy", "scipy", "cryptography", *sys.stdlib_module_names}


def test_it_has_at_most_300_lines() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 300


def test_it_imports_nothing_of_the_library() -> None:
    found = set()
    for node in ast.walk(ast.parse(FILE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(str(node.module).partition(".")[0])
    assert {"numpy", "scipy", "cryptography"} < found <= ALLOWED


def test_it_runs_by_itself_wherever_it_lies(tmp_path: Path) -> None:
    """In isolated mode, copied elsewhere, so that nothing of the library's folder is found by chance."""
    alone = Path(shutil.copy(FILE, tmp_path / "alone.py"))
    chain = written()
    folder = stored(tmp_path / "results", chain.text, card(chain.head, 50.0))
    command = [sys.executable, "-I", str(alone), str(folder)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert json.loads(found.stdout)["guarantees"][0]["verdict"] == "follows"
