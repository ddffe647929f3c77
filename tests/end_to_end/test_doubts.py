"""What `new` and `check` say beforehand of a budget, a rate, a clip and an evaluation that do not fit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gossamer.cli import main

pytestmark = [
    pytest.mark.usefixtures("called_here"),
    pytest.mark.filterwarnings("always::gossamer.errors.RunWarning"),
]
NEW = ["new", "t", "--data", "t.csv", "--target", "died", "--labels", "no,yes", "--range", "age=0..100", "bmi=15..45"]
FULL = [*NEW, "--boolean", "smoker", "--rows-per-person", "1"]


@pytest.fixture(autouse=True)
def _table(called_here: None) -> None:
    draw = random.Random(5)
    rows = [f"{draw.randrange(100)},{draw.randrange(15, 46)},{draw.randrange(2)}" for _ in range(1500)]
    text = "".join(f"{row},{'yes' if draw.random() < 0.08 else 'no'}\n" for row in rows)
    Path("t.csv").write_text(f"age,bmi,smoker,died\n{text}")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    capsys.readouterr()
    assert main(arguments) == 0
    return [line for line in capsys.readouterr().err.splitlines() if "warning" in line]


def test_what_new_writes_is_not_doubted_where_the_budget_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, *FULL, "--prevalence", "0.08", "--epsilon", "8") == []
    assert told(capsys, "check", "t.yaml") == []


def test_too_few_of_the_rarer_class_are_told_before_anything_is_released(capsys: pytest.CaptureFixture[str]) -> None:
    """1,200 rows are trained on, 96 of them of 8 %; about 10 R sqrt(d)/mu = 10 * 1.47 * 2/0.27 are needed."""
    (line,) = told(capsys, *FULL, "--prevalence", "0.08")
    assert "trains on 96 rows of the rarer class, and 4 parameters need about 1" in line
    assert told(capsys, "check", "t.yaml") == [line]
    assert told(capsys, "check", "t.yaml", "--set", "budget.epsilon=8") == []


def test_a_rate_above_two_over_the_smoothness_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """L is at most (1 + 3)/4 = 1 here."""
    told(capsys, *FULL)
    (line,) = told(capsys, "check", "t.yaml", "--set", "algorithm.learning_rate=2.1")
    assert "learning_rate 2.1 is above 2/L, 2 for the declared columns" in line
    assert told(capsys, "check", "t.yaml", "--set", "algorithm.learning_rate=1.9") == []


def test_a_clip_that_shortens_most_gradients_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows are sqrt(1 + 2/3 + 1/2) = 1.47 long, so those of the rarer class, 1.35, are above 1.5 * 0.85."""
    told(capsys, *FULL, "--prevalence", "0.08", "--epsilon", "8")
    (line,) = told(capsys, "check", "t.yaml", "--set", "privacy.clip=0.85")
    assert "privacy.clip 0.85 shortens most gradients of the rarer class" in line
    assert told(capsys, "check", "t.yaml", "--set", "privacy.clip=0.95") == []


def test_an_evaluation_of_all_of_many_nodes_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """20 times 1,000 nodes on 357 digits, 7.1 million examples, for 1,000 times 4 updates of one."""
    spec = "algorithm: {name: gossip, nodes: 1000, batch_size: 1, updates_per_node: 4}\nprivacy: none\n"
    Path("many.yaml").write_text(spec)
    (line,) = told(capsys, "check", "many.yaml")
    assert "testing the models of all 1,000 nodes 20 times takes 7.1e+06 examples, and training 4e+03" in line
    assert told(capsys, "check", "many.yaml", "--set", "evaluation.nodes=100") == []


@pytest.mark.parametrize("given", [["--prevalence", "1.5"], ["--prevalence", "0"], ["--prevalence", "often"]])
def test_a_prevalence_is_a_share(capsys: pytest.CaptureFixture[str], given: list[str]) -> None:
    assert main([*FULL, *given]) == 2
    assert "--prevalence" in capsys.readouterr().err
    assert not Path("t.yaml").exists()


def test_a_prevalence_is_of_two_classes(capsys: pytest.CaptureFixture[str]) -> None:
    given = [word if word != "no,yes" else "no,yes,unknown" for word in FULL]
    assert main([*given, "--prevalence", "0.1"]) == 2
    assert "expected two --labels" in capsys.readouterr().err
    assert not Path("t.yaml").exists()


def test_weights_of_classes_count_in_rates_and_clips(capsys: pytest.CaptureFixture[str]) -> None:
    """Weight 10 makes L 10, and the first errors of the rarer class 10 (1 - 0.8/1.72); balanced ones are a half."""
    told(capsys, *FULL, "--prevalence", "0.08", "--epsilon", "8")
    check = ["check", "t.yaml", "--set", "privacy.clip=0.85", "--set"]
    assert any("shortens most gradients of the rarer" in line for line in told(capsys, *check, "seed=1"))
    assert told(capsys, *check, "objective={name: logistic, class_weight: balanced}") == []
    rate, clip = told(capsys, *check, "objective={name: logistic, class_weight: {'yes': 10}}")
    assert "is above 2/L, 0.2 for the declared columns, where steps may overshoot; take 1/L, 0.1" in rate
    assert "they are about 7.9 long" in clip  # sqrt(1 + 2/3 + 1/2) times 5.35


def test_a_clip_that_follows_the_gradients_is_not_doubted(capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, *FULL, "--prevalence", "0.08", "--epsilon", "8")
    check = ["check", "t.yaml", "--set", "privacy.clip={policy: quantile, initial: 0.1}"]
    assert not any("shortens" in line for line in told(capsys, *check))
