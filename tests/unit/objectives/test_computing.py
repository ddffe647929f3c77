"""What a run says and records of how its gradients are computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra torch")

from torch import nn

from gossamer.data.examples import Split
from gossamer.objectives.chains import compiled
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.objective import Computing

DATA = Split(np.ones((2, 3), np.float32), np.array([0, 1]))


def planned(*layers: nn.Module, strategy: str = "auto") -> Computing:
    module = TorchModule(nn.Sequential(*layers), strategy=strategy)
    module.plan(DATA)
    return module.computing()


def test_kernels_are_compiled_once_and_then_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A fresh table of kernels stands for a fresh process."""
    found = []
    for folder in ("first", "first", "second"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / folder))
        compiled._compiled.cache_clear()
        found.append(planned(nn.Linear(3, 2)))
    assert [one.kernels for one in found] == ["compiled", "loaded", "compiled"]
    assert all(one.strategy == "compiled" and one.seconds > 0 for one in found)
    first, loaded, _ = found
    assert first.remark == f"network: compiling its kernels took {first.seconds:.1f} s (kept for next time)"
    assert loaded.remark is None
    assert loaded.figures() == {
        "strategy": "compiled",
        "kernels": "loaded",
        "kernel_seconds": round(loaded.seconds, 3),
        "wide_layers_by_blas": False,
    }


def test_kernels_that_cannot_be_kept_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    compiled._compiled.cache_clear()
    with pytest.warns(UserWarning, match="compiled kernels cannot be kept in"):
        found = planned(nn.Linear(3, 2))
    assert found.kernels == "in memory"
    assert found.remark == f"network: compiling its kernels took {found.seconds:.1f} s (not kept)"


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.GELU(), "layer '1' (GELU) has no kernel"),
        (nn.Linear(3, 3, bias=True).requires_grad_(False), "layer '1' (Linear) has hooks or frozen parameters"),
    ],
)
def test_what_is_taken_instead_of_a_kernel_is_told_with_the_layer(layer: nn.Module, why: str) -> None:
    found = planned(nn.Linear(3, 3), layer, nn.Linear(3, 2))
    assert found.remark == f"network: {why}, so gradients are computed by strategy 'layers'"
    assert found.figures()["strategy"] == "layers"


def test_nobody_expects_kernels_of_what_is_no_sequence_or_has_another_strategy() -> None:
    assert planned(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 2), strategy="threads").remark is None
    module = TorchModule(nn.Bilinear(3, 3, 2).requires_grad_(True))
    assert module.computing() == Computing("auto")


def test_linear_models_have_one_way() -> None:
    assert LinearModel("softmax", 3, 2).computing().figures()["strategy"] == "linear"
