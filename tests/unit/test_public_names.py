"""What pages import is in ``gossamer`` itself, and type checkers see it as it is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.reference.pages import blocks

import gossamer as gs
from gossamer.experiment.specs import spec

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "quickstart.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
CODE = {page: blocks(page, "python") for page in PAGES if blocks(page, "python")}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def names_used(code: str) -> set[str]:
    """Names of the package in a block: imported from it, from below it, or written ``gs.name``."""
    found = set(re.findall(r"\bgs\.(\w+)", code))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "gossamer":
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("page", CODE, ids=name_of)
def test_pages_need_no_deeper_imports(page: Path) -> None:
    code = "\n".join(CODE[page])
    assert re.findall(r"from gossamer\.[\w.]+ import|import gossamer\.", code) == []
    assert names_used(code) - set(gs.__all__) == set()


def test_the_typed_constructor_has_every_section() -> None:
    (source,) = (
        node
        for node in ast.walk(ast.parse(Path(spec.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    assert [argument.arg for argument in source.args.kwonlyargs] == list(gs.Experiment.model_fields)


def checked_by_mypy(code: dict[str, str], folder: Path) -> str:
    """What ``mypy --strict`` says of a user's files, with no configuration of this project."""
    for name, text in code.items():
        (folder / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", *code]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    return found.stdout + found.stderr


@pytest.mark.slow
def test_examples_of_pages_pass_strict_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    pytest.importorskip("torch")
    code = {f"{re.sub(r'[^a-z]', '_', name_of(page).lower())}.py": "\n".join(text) for page, text in CODE.items()}
    found = checked_by_mypy(code, tmp_path)
    untyped = re.compile(r"Library stubs not installed|missing library stubs|note:|^Found ")
    assert [line for line in found.splitlines() if "error" in line and not untyped.search(line)] == []
    assert "readme_md.py" not in found


@pytest.mark.slow
def test_a_name_that_is_not_there_is_found_by_type_checkers(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    wrong: dict[str, Any] = {"wrong.py": "import gossamer as gs\n\ngs.rnu()\ngs.run(3)\ngs.Experiment(sead=1)\n"}
    found = checked_by_mypy(wrong, tmp_path)
    for said in (
        'has no attribute "rnu"',
        'to "run" has incompatible type "int"',
        'Unexpected keyword argument "sead"',
    ):
        assert said in found
