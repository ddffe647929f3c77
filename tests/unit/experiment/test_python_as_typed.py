"""What people see who work in Python: a result in a few lines, a bar while it is made, signatures, and words."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

import gossamer as gs
from gossamer.testing import contracts

EXPERIMENT = gs.Experiment(
    algorithm=gs.Gossip(nodes=3, batch_size=20, updates_per_node=2),
    budget=gs.Budget(epsilon=5, delta=1e-4),
    evaluation="off",
)


def test_a_result_is_printed_in_ten_lines(tmp_path: Path) -> None:
    result = gs.run(EXPERIMENT, tmp_path / "run")
    said = str(result)
    assert said.count("\n") < 10
    assert said.startswith("gossip, 3 nodes\n")
    figure = result.metrics[-1]["mean_model_test_accuracy"]
    for words in ("finished", "6 updates", "epsilon 5 at delta 0.0001", f"{figure:.4g} (private)", str(tmp_path)):
        assert words in said
    assert max(map(len, said.splitlines())) < 120


def test_a_bar_is_drawn_in_a_terminal_and_taken_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PYTEST_CURRENT_TEST", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    gs.run(EXPERIMENT)
    drawn = capsys.readouterr().err.split("\r")
    assert drawn[2].startswith("  0% [")
    assert drawn[2].endswith("] 0 updates")
    assert not drawn[-1].strip()


@pytest.mark.parametrize(("notebook", "machine", "seen"), [(True, "", True), (True, "1", False), (False, "", False)])
def test_nothing_is_drawn_where_nobody_looks(
    notebook: bool, machine: str, seen: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A notebook has no terminal; continuous integration and a pipe have nobody."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    monkeypatch.setenv("CI", machine)
    if notebook:
        monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    gs.run(EXPERIMENT)
    assert ("% [" in capsys.readouterr().err) == seen


def test_signatures_have_keys_with_their_defaults_and_no_machinery() -> None:
    said = str(inspect.signature(gs.Gossip))
    assert "nodes=8" in said
    assert "topology='ring'" in said
    assert "learning_rate=0.5" in said
    assert "<" not in said
    assert str(inspect.signature(gs.Budget)).startswith("(*, epsilon, delta=1e-05")
    assert "algorithm='gossip'" in str(inspect.signature(gs.Experiment))


def test_the_contract_says_in_words_what_it_expects() -> None:
    tree = ast.parse(Path(contracts.__file__).read_text(encoding="utf-8"))
    asserted = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert asserted
    assert [node.lineno for node in asserted if node.msg is None] == []
