"""``gossamer plan mapa``: figures on stdout, and one line for every mistake."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from gossamer.cli import main

pytestmark = pytest.mark.usefixtures("called_here")

PROBLEM = {
    "--batch-size": "16",
    "--gradient-sd": "8",
    "--smoothness": "0.5",
    "--loss-gap": "3",
    "--staleness": "1",
    "--size": "4",
    "--kappa": "0.75",
    "--stages": "3",
}
L2_LAPLACE = {"--noise": "l2_laplace", "--epsilon": "2"}
GAUSSIAN = {"--noise": "gaussian", "--noise-multiplier": "1.5"}
BUDGET = {"--noise": "gaussian", "--budget": "2", "--delta": "1e-5", "--dataset-size": "1600"}
KEYS = {"sensitivity", "clip", "noise_second_moment", "penalty", "learning_rate", "updates"}


def arguments(*parts: dict[str, str | None]) -> list[str]:
    """The call with the problem above, then the parts; None takes a flag out."""
    merged: dict[str, str | None] = {**PROBLEM}
    for part in parts:
        merged.update(part)
    return ["plan", "mapa", *(word for flag, value in merged.items() if value is not None for word in (flag, value))]


def document(capsys: pytest.CaptureFixture[str], *parts: dict[str, str | None]) -> Any:
    assert main([*arguments(*parts), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_l2_laplace_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """dS = 2 8/(16 sqrt(1 - sqrt(1/4))) = sqrt 2, G = 16 dS/2 = 8 sqrt 2, E||n||^2 = 4 5 2/2^2 = 10, Delta_b = 4 + 10.

    P = max(1, 28/(2 128/4)) = 1, eta = 1/(2 1/2 2), T = ceil(4 1/2 3 4/14) = ceil(1.71).
    Stage 2: E||n||^2 = 2.5, Delta_b = 6.5, P = max(1, 13/(2 32/4)) = 1, T = ceil(24/6.5) = ceil(3.69).
    Stage 3: E||n||^2 = 0.625, Delta_b = 4.625, P = 9.25/(2 8/4) = 2.3125, T = ceil(24 2.3125^2/4.625) = ceil(27.75).
    """
    found = document(capsys, L2_LAPLACE)
    assert all(set(stage) == KEYS for stage in found["stages"])
    assert [stage["clip"] for stage in found["stages"]] == pytest.approx([math.sqrt(x) for x in (128, 32, 8)])
    assert [stage["sensitivity"] for stage in found["stages"]] == pytest.approx([math.sqrt(2) / x for x in (1, 2, 4)])
    assert [stage["noise_second_moment"] for stage in found["stages"]] == pytest.approx([10, 2.5, 0.625])
    assert [stage["penalty"] for stage in found["stages"]] == pytest.approx([1, 1, 2.3125])
    assert [stage["learning_rate"] for stage in found["stages"]] == pytest.approx([0.5, 0.5, 0.5 / 2.3125])
    assert [stage["updates"] for stage in found["stages"]] == [2, 4, 28]
    assert (found["updates"], found["releases"]) == (34, 34)
    assert (found["neighboring_relation"], found["release_epsilon"], found["delta"]) == ("replace_one", 2, 0)
    assert found["epsilon"] == pytest.approx(68)
    assert found["noise_multiplier"] is None


def test_add_or_remove_one_halves_the_noise(capsys: pytest.CaptureFixture[str]) -> None:
    """The mean moves by G/b instead of 2 G/b, so E||n||^2 is a quarter."""
    found = document(capsys, L2_LAPLACE, {"--neighboring-relation": "add_or_remove_one"})
    assert found["stages"][0]["noise_second_moment"] == pytest.approx(2.5)
    assert found["neighboring_relation"] == "add_or_remove_one"


def test_gaussian_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """E||n||^2 = 4 (1.5 G/16)^2 with G^2 = 128; --clip replaces Theorem 3's."""
    found = document(capsys, GAUSSIAN)
    assert found["stages"][0]["noise_second_moment"] == pytest.approx(4 * 2.25 * 128 / 256)
    assert (found["noise_multiplier"], found["epsilon"], found["delta"]) == (1.5, None, None)
    found = document(capsys, GAUSSIAN, {"--clip": "3", "--reduction": "0.2"})
    assert [stage["clip"] for stage in found["stages"]] == pytest.approx([3, 0.6, 0.12])


def test_a_budget_is_met_by_the_plan_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, BUDGET)
    assert 1.9 < found["epsilon"] <= 2
    again = {"--noise-multiplier": repr(found["noise_multiplier"]), "--budget": None}
    assert document(capsys, BUDGET, again) == found
    rate = ["--sampling-rate", "0.01", "--delta", "1e-5", "--noise-multiplier", repr(found["noise_multiplier"])]
    assert main(["account", *rate, "--steps", str(found["updates"]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] == pytest.approx(found["epsilon"])


def test_nodes_in_turn_share_the_releases(capsys: pytest.CaptureFixture[str]) -> None:
    alone, shared = document(capsys, BUDGET), document(capsys, BUDGET, {"--nodes": "4"})
    assert shared["releases"] == -(-(shared["updates"] + 3) // 4)  # three more are under way at the end
    assert shared["noise_multiplier"] < alone["noise_multiplier"]


@pytest.mark.parametrize("more", [{}, {"--delta": "1e-6"}, {"--dataset-size": "1600", "--nodes": "2"}])
def test_l2_laplace_totals_are_those_of_account(
    capsys: pytest.CaptureFixture[str], more: dict[str, str | None]
) -> None:
    """34 releases, or 18 of each of two edges; sampled at 16/1600 where the edge's size is known."""
    found = document(capsys, {**L2_LAPLACE, "--epsilon": "0.5", "--size": "400"}, more)
    composed = dict(found["composed"])
    law = ["--mechanism", "l2_laplace", "--epsilon", "0.5", "--size", "400", "--composition", "all"]
    rate = "0.01" if "--dataset-size" in more else "1"
    how = ["--sampling-rate", rate, "--steps", str(found["releases"]), "--delta", repr(composed.pop("delta"))]
    assert main(["account", *law, *how, "--neighboring-relation", "replace_one", "--json"]) == 0
    assert composed == pytest.approx(json.loads(capsys.readouterr().out)["compositions"])
    assert composed["tight"] < composed["optimal"] <= composed["simple"] <= found["epsilon"] * (1 + 1e-12)
    assert main(arguments({**L2_LAPLACE, "--epsilon": "0.5", "--size": "400"}, more)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{composed['advanced']:.6g} by advanced composition" in said
    assert f"{composed['tight']:.6g} by the noise's own law (tight)" in said
    assert ("which counts sampling" in said) == ("--dataset-size" in more)


def test_no_total_is_computed_of_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    """epsilon 80 of each of 28 or more releases on 4 coordinates: a loss of 80^2 28/8 = 22,400."""
    found = document(capsys, L2_LAPLACE, {"--epsilon": "80"})
    assert found["releases"] >= 28
    assert found["composed"] == {"delta": 1e-5}
    assert main(arguments(L2_LAPLACE, {"--epsilon": "80"})) == 0
    assert "no total is computed" in " ".join(capsys.readouterr().out.split())


def test_theory_stands_beside_the_stages_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """Stages as in `test_l2_laplace_by_hand`: L = 1/2, tau = 1, D_F = 3, T = 2, 4 and 28, eta = 1/2, 1/2 and 1/4.625.

    Theorem 4, 2 D_F/(eta T) + 2 L eta Delta_b: 6 + 7, 3 + 3.25, and 6 4.625/28 + 1.
    Theorem 2 at R = 2, T = 34 and the first Delta_b = 14: 1/2 4 4/68 + 3 sqrt(14/34).
    """
    found = document(capsys, L2_LAPLACE, {"--radius": "2"})["theory"]
    squares = [13, 6.25, 6 * 4.625 / 28 + 1]
    assert found["gradient_norms"] == pytest.approx([math.sqrt(square) for square in squares])
    assert found["audp_mean_error"] == pytest.approx(8 / 68 + 3 * math.sqrt(14 / 34))
    assert found["guarantee"] == "none"
    assert main(arguments(L2_LAPLACE, {"--radius": "2"})) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Theory: claimed, not guaranteed" in out
    assert f"at most {found['audp_mean_error']:.5g} (Theorem 2)" in out
    assert document(capsys, GAUSSIAN)["theory"]["audp_mean_error"] is None


@pytest.mark.parametrize("noise", [L2_LAPLACE, GAUSSIAN, BUDGET])
def test_people_get_a_table_and_a_line_on_privacy(capsys: pytest.CaptureFixture[str], noise: dict[str, str]) -> None:
    found = document(capsys, noise)
    assert main(arguments(noise)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    header, *rows = out.splitlines()[:4]
    assert header.split("  ")[0] == "stage"
    assert [int(row.split()[-2]) for row in rows] == [stage["updates"] for stage in found["stages"]]
    assert int(rows[-1].split()[-1]) == found["updates"]
    privacy = " ".join(" ".join(out.splitlines()[4:]).split())
    assert privacy.startswith("Privacy: ")
    assert ("differential privacy" in privacy) == (found["epsilon"] is not None)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({**L2_LAPLACE, "--noise": None}, "needs --noise l2_laplace or --noise gaussian"),
        ({**L2_LAPLACE, "--size": None, "--staleness": None}, "plan mapa needs --staleness, --size"),
        ({**L2_LAPLACE, "--batch-size": "9" * 400}, "--batch-size must be a whole number >= 1 and <= 1e+15, found 999"),
        ({**L2_LAPLACE, "--epsilon": "0"}, "--epsilon must be a finite number > 0, found 0"),
        ({**L2_LAPLACE, "--epsilon": "-1"}, "--epsilon must be a finite number > 0, found -1"),
        ({**L2_LAPLACE, "--epsilon": "nan"}, "--epsilon must be a finite number > 0, found nan"),
        ({**L2_LAPLACE, "--epsilon": None}, "--noise l2_laplace needs --epsilon, of one release"),
        ({**L2_LAPLACE, "--kappa": "1"}, "--kappa must be a finite number > 0 and < 1, found 1"),
        ({**L2_LAPLACE, "--kappa": "0"}, "--kappa must be a finite number > 0 and < 1, found 0"),
        ({**L2_LAPLACE, "--reduction": "1.5"}, "--reduction must be a finite number > 0 and < 1, found 1.5"),
        ({**L2_LAPLACE, "--stages": "0"}, "--stages must be a whole number >= 1 and <= 1e+15, found 0"),
        ({**L2_LAPLACE, "--stages": "99"}, "would take more than 2^63 - 1 updates; plan at most"),
        ({**L2_LAPLACE, "--staleness": "-1"}, "--staleness must be a whole number >= 0 and <= 1e+15, found -1"),
        ({**L2_LAPLACE, "--gradient-sd": "inf"}, "--gradient-sd must be a finite number > 0, found inf"),
        ({**L2_LAPLACE, "--clip": "0"}, "--clip must be a finite number > 0, found 0"),
        ({**L2_LAPLACE, "--nodes": "0"}, "--nodes must be a whole number >= 1 and <= 1e+15, found 0"),
        ({**L2_LAPLACE, "--clip": "1e-200"}, "finite clip above"),
        (
            {**L2_LAPLACE, "--noise-multiplier": "1", "--budget": "2"},
            "--noise-multiplier, --budget: only for --noise gaussian; leave out with --noise l2_laplace",
        ),
        ({**GAUSSIAN, "--epsilon": "1"}, "--epsilon: only for --noise l2_laplace; leave out with --noise gaussian"),
        ({**GAUSSIAN, "--noise-multiplier": None}, "needs either --noise-multiplier, or --budget, --delta and"),
        (
            {**GAUSSIAN, "--noise-multiplier": "0"},
            "--noise-multiplier must be a finite number >= 0.01 and <= 1e+06, found 0",
        ),
        ({**GAUSSIAN, "--delta": "1e-5"}, "--delta needs --dataset-size as well"),
        ({**GAUSSIAN, "--dataset-size": "100"}, "--dataset-size needs --delta as well"),
        ({**BUDGET, "--noise-multiplier": "1"}, "--noise-multiplier and --budget both say how much noise"),
        ({**BUDGET, "--delta": None}, "--budget needs --delta as well"),
        ({**BUDGET, "--delta": None, "--dataset-size": None}, "--budget needs --delta and --dataset-size as well"),
        ({**BUDGET, "--delta": "1"}, "--delta must be a finite number > 0 and < 1, found 1"),
        ({**BUDGET, "--budget": "0"}, "--budget must be a finite number > 0, found 0"),
        ({**BUDGET, "--dataset-size": "8"}, "--dataset-size must be at least --batch-size 16, found 8"),
        (
            {**BUDGET, "--budget": "0.001"},
            "no noise meets epsilon 0.001 at delta 1e-05: more noise makes stages longer",
        ),
    ],
)
def test_a_mistake_gets_one_line(
    capsys: pytest.CaptureFixture[str], changed: dict[str, str | None], expected: str
) -> None:
    assert main(arguments(changed)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("gossamer: error: ")
    assert expected in line
