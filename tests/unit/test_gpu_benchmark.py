"""The script for machines with a GPU works on one without, at a small size."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def gpu() -> Iterator[Any]:
    """The script."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("gpu")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.slow
def test_the_small_size_runs_on_the_processor(gpu: Any, tmp_path: Path) -> None:
    assert gpu.main(["--small", "--device", "cpu", "--memory-mib", "512", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "gpu.json").read_text())["rows"]
    alike = [row for row in rows if row["what"].startswith("alike")]
    assert len(alike) == 1
    assert all(row["same_bytes"] and row["most_difference"] < 1e-5 for row in alike)
    assert {"run", "device alone", "step"} <= {row["what"].partition(":")[0] for row in rows}
    assert (tmp_path / "gpu.md").read_text().count("\n| ") == len(rows) + 2


def test_a_gpu_that_is_not_there_is_one_line(
    gpu: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert gpu.main(["--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("gpu.py: error: compute.device: cuda needs a GPU")
    assert not (tmp_path / "out").exists()


def test_a_page_has_a_row_for_each_figure(gpu: Any) -> None:
    page = gpu.page(
        {"facts": {"device": "cpu"}, "rows": [{"what": "a", "wanted": 5000}, {"what": "b", "same_bytes": True}]}
    )
    assert page.splitlines()[2:] == [
        "| what | wanted | same_bytes |",
        "| --- | --- | --- |",
        "| a | 5,000 | - |",
        "| b | - | True |",
    ]
