"""Gradient tracking as its page has it: the contract of algorithms, and the formulas against plain matrices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reference.outside import written

import gossamer as gs
from gossamer.algorithms.table import ALGORITHMS, KIND
from gossamer.testing.contracts import AlgorithmContract

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "tests" / "outside" / "gradient_tracking" / "gradient_tracking.py"


@pytest.fixture(autouse=True, scope="module")
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The distribution, on the path."""
    points = {"gradient_tracking": "gradient_tracking:ALGORITHM"}
    site = written(
        tmp_path_factory.mktemp("site"), "gradient-tracking", "1.0", points, gradient_tracking=MODULE.read_text()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        patch.setitem(vars(KIND), "loaded", {})
        yield


class TestGradientTracking(AlgorithmContract):
    @property
    def settings(self) -> Any:
        return ALGORITHMS["gradient_tracking"].Settings(nodes=5)


NODES, STEPS, RATE = 5, 40, 0.2


def test_it_follows_its_formulas_and_the_mean_gradient() -> None:
    """Without noise on a ring: X and Y by plain matrices, from gradients at the models that the trace has.

    The sum of estimates is that of gradients in each step, which is what tracking is for: Y is averaged by a matrix
    whose columns add up to 1, and moved by changes of gradients alone.
    """
    rng = np.random.default_rng(3)
    x, y = (rng.normal(size=size).astype(np.float32).astype(np.float64) for size in ((60, 2), 60))  # as it reads them
    data = gs.Data(x, y, owners=np.arange(60) % NODES, x_test=x[:2], y_test=y[:2], task="regression")
    spec = {
        "partition": "natural",
        "objective": {"name": "squared", "intercept": False, "dtype": "float64"},
        "algorithm": {"name": "gradient_tracking", "nodes": NODES, "batch_size": 12, "learning_rate": RATE},
        "privacy": "none",
        "stop": {"epochs": STEPS},
    }
    found = gs.run(spec, data=data)
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    models, means, before = np.zeros((NODES, 2)), np.zeros((NODES, 2)), np.zeros((NODES, 2))
    ring = (np.eye(NODES) + np.roll(np.eye(NODES), 1, 0) + np.roll(np.eye(NODES), -1, 0)) / 3
    for _ in range(STEPS):
        own = [(x[i::NODES], y[i::NODES]) for i in range(NODES)]
        gradients = np.array([(a @ w - b) @ a / len(b) for (a, b), w in zip(own, models, strict=True)])
        means = means + gradients - before
        assert means.sum(0) == pytest.approx(gradients.sum(0), abs=1e-9)
        models, means, before = ring @ (models - RATE * means), ring @ means, gradients
    assert found.model["weight"][0] == pytest.approx(models.mean(0), abs=1e-9)
    assert models == pytest.approx(np.tile(best, (NODES, 1)), abs=1e-3)  # all nodes, at the solution of all rows


def test_the_page_shows_the_module_whole() -> None:
    page = (ROOT / "docs" / "algorithms" / "gradient-tracking.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert shown == MODULE.read_text(encoding="utf-8")
