"""Learning-rate schedules, against the paper's section 5 by hand."""

from __future__ import annotations

import math

import pytest
from pydantic import TypeAdapter, ValidationError

from gossamer.algorithms.learning_rate import LearningRate, StepRate, WarmupAnnealRate

ADAPTER: TypeAdapter[LearningRate] = TypeAdapter(LearningRate)


def test_a_number_is_a_constant() -> None:
    rate = ADAPTER.validate_python(0.3)
    assert (rate.at(0), rate.at(1e9)) == (0.3, 0.3)


@pytest.mark.parametrize(("epoch", "expected"), [(0, 0.4), (159.9, 0.4), (160, 0.04), (239, 0.04), (240, 0.004)])
def test_step(epoch: float, expected: float) -> None:
    assert StepRate(initial=0.4).at(epoch) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, 0.1), (5, 0.55), (9.99999, 1.0), (10, 1 / math.sqrt(2)), (11.5, 1 / 2), (12, 1 / math.sqrt(8))],
)
def test_warm_up_then_anneal(epoch: float, expected: float) -> None:
    assert WarmupAnnealRate(initial=0.1, peak=1.0).at(epoch) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), "fast", {"schedule": "cosine", "initial": 1}])
def test_what_is_no_learning_rate(bad: object) -> None:
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(bad)
