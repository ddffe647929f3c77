"""The page on loops of one's own: its examples run on one budget, and commands print what it says."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from tests.reference.pages import blocks
from tests.unit.test_docs import OUTPUTS, ROOT

import gossamer as gs
from gossamer.cli import main

PAGE = ROOT / "docs" / "how-to" / "own-loop.md"


@pytest.mark.filterwarnings("ignore:a new ledger:gossamer.errors.RunWarning")
def test_the_loops_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    Path("policy.yaml").write_text("".join(blocks(PAGE, "yaml")), encoding="utf-8")
    page: dict[str, Any] = {"__name__": "page"}
    data, plain, fitted, events = blocks(PAGE, "python")
    for block in (data, plain):
        exec(compile(block, "own-loop.md", "exec"), page)
    conversations = [*OUTPUTS.conversations(PAGE.read_text(encoding="utf-8"))]
    assert len(conversations) == 2
    for command, output in conversations:
        said = OUTPUTS.said(command)
        assert OUTPUTS.matches(output, said), f"$ {command}\n{said}"
    exec(compile(fitted, "own-loop.md", "exec"), page)
    assert main(["verify", "sklearn-results"]) == 0
    exec(compile(events, "own-loop.md", "exec"), page)
    assert main(["verify", "events-results"]) == 0
    # Noise divided by its deviation: the square of its length is chi-squared with four degrees of freedom, so a right
    # page fails here once in 37 million runs.
    fresh = page["LogisticRegression"](C=page["C"], fit_intercept=False, tol=1e-8, max_iter=1000)
    noise = page["fitted"].coef_ - fresh.fit(page["rows"], page["targets"]).coef_
    assert 0 < ((noise / (page["NOISE"] * page["moved"])) ** 2).sum() < 41
    with (
        pytest.raises(gs.BudgetSpent),
        gs.LoopLedger("policy.yaml", "sklearn", gs.Releases(1, 4.0), clip=page["moved"]) as one,
    ):
        one.charge(4.0)


@pytest.mark.filterwarnings("ignore")  # Opacus warns of its own random numbers
def test_the_loop_of_the_page_in_opacus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opacus", reason="no dependency: needs an environment with opacus")
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    Path("policy.yaml").write_text("".join(blocks(PAGE, "yaml")), encoding="utf-8")
    page: dict[str, Any] = {"__name__": "page", "torch": importlib.import_module("torch"), "gs": gs}
    exec(compile(blocks(PAGE, "python")[0], "own-loop.md", "exec"), page)
    page |= {"x": page["torch"].from_numpy(page["features"]), "y": page["torch"].from_numpy(page["targets"])}
    loop, _ = blocks(PAGE, "py")  # the other is of Flower's environment
    exec(compile(loop, "own-loop.md", "exec"), page)
    assert main(["verify", "opacus-results"]) == 0
