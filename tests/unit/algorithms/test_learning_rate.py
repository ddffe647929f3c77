"""Learning-rate schedules, against the paper's section 5 by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from gossamer.algorithms.optimizer import ConstantRate, CosineRate, LearningRate, StepRate
from gossamer.errors import SpecError
from gossamer.experiment.specs.spec_file import parse_spec, read_text, write_spec

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
def test_steps_after_a_warm_up_anneal_as_the_paper_does(epoch: float, expected: float) -> None:
    """A(DP)2SGD, section 5: by 1/sqrt(2) an epoch, after a warm-up of 10."""
    rate = StepRate(initial=0.1, peak=1.0, warmup=10, factor=1 / math.sqrt(2), epochs=tuple(range(10, 40)))
    assert rate.at(epoch) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), "fast", {"schedule": "cosine", "initial": 1}])
def test_what_is_no_learning_rate(bad: object) -> None:
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(bad)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    # cos(0), cos(pi/4), cos(pi/3), cos(pi/2), cos(pi)
    [
        (0, 0.5),
        (5, 0.1 + 0.2 * (1 + math.sqrt(0.5))),
        (20 / 3, 0.4),
        (10, 0.3),
        (20, 0.1),
        (1e9, 0.1),
    ],
)
def test_cosine(epoch: float, expected: float) -> None:
    assert CosineRate(initial=0.5, total=20, final=0.1).at(epoch) == pytest.approx(expected, rel=1e-12)


def test_a_cosine_after_a_warm_up_is_torchs() -> None:
    """Each whole epoch of 5 of warm-up from 0.05 to 0.4, and 15 of cosine to 0.01, by torch's own schedulers."""
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.05 / 0.4, total_iters=5)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=15, eta_min=0.01)
    both = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], milestones=[5])
    ours = CosineRate(initial=0.05, peak=0.4, warmup=5, total=20, final=0.01)
    for epoch in range(21):
        assert ours.at(epoch) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12), epoch
        optimizer.step()
        both.step()


@pytest.mark.parametrize(("epoch", "expected"), [(0, 0.1), (2.5, 0.25), (4.999999, 0.4), (5, 0.4), (29.9, 0.4)])
def test_a_constant_or_stepped_rate_may_warm_up(epoch: float, expected: float) -> None:
    """By hand: 0.1 + 0.3 * 2.5/5 halfway."""
    warmed = {"initial": 0.1, "peak": 0.4, "warmup": 5}
    stepped = StepRate(**warmed, epochs=(30, 60))
    assert ConstantRate(**warmed).at(epoch) == pytest.approx(expected, rel=1e-6)
    assert stepped.at(epoch) == pytest.approx(expected, rel=1e-6)
    assert [stepped.at(later) for later in (30, 60)] == pytest.approx([0.04, 0.004])


BAD: list[tuple[dict[str, Any], str]] = [
    ({"schedule": "constant", "initial": 0.1, "peak": 0.4}, "give both peak and warmup, or neither"),
    ({"schedule": "cosine", "initial": 0.1, "warmup": 4, "total": 9}, "give both peak and warmup, or neither"),
    ({"schedule": "step", "initial": 0.4, "peak": 0.1, "warmup": 5}, "rises, found peak 0.1 below initial 0.4"),
    ({"schedule": "step", "initial": 0.1, "peak": 0.4, "warmup": 200}, "of 200 epochs, found one at 160"),
    ({"schedule": "cosine", "initial": 0.1, "total": 0}, "total.*greater than 0"),
    ({"schedule": "cosine", "initial": 0.1}, "total"),
    ({"schedule": "cosine", "initial": 0.1, "peak": 1, "warmup": 9, "total": 9}, "total 9 is no longer than the warm"),
    ({"schedule": "cosine", "initial": 0.1, "total": 9, "final": 0.2}, "found final 0.2 above 0.1; lower final"),
    ({"schedule": "cosine", "initial": 0.1, "total": 9, "final": -0.1}, "final.*greater than or equal to 0"),
    ({"schedule": "step", "initial": 0.1, "peak": 1, "warmup": 1, "total": 9}, "total"),
]


@pytest.mark.parametrize(("rate", "said"), BAD)
@pytest.mark.parametrize("algorithm", ["gossip", "asgd"])
def test_a_schedule_that_does_not_fit_is_one_line(algorithm: str, rate: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=rf"algorithm\.learning_rate.*{said}") as raised:
        parse_spec({"algorithm": {"name": algorithm, "learning_rate": rate}, "privacy": "none"})
    assert "\n" not in str(raised.value)


def test_a_spec_has_keys_of_warm_ups_where_something_warms_up() -> None:
    spec: dict[str, Any] = {"algorithm": {"name": "gossip", "learning_rate": 0.3}, "privacy": "none"}
    assert parse_spec(spec).model_dump(mode="json")["algorithm"]["learning_rate"] == {
        "schedule": "constant",
        "initial": 0.3,
    }
    warmed = {"schedule": "cosine", "initial": 0.1, "peak": 0.3, "warmup": 2.0, "total": 9.0, "final": 0.0}
    spec["algorithm"]["learning_rate"] = warmed
    experiment = parse_spec(spec)
    assert experiment.model_dump(mode="json")["algorithm"]["learning_rate"] == warmed
    assert read_text(write_spec(experiment)) == experiment
