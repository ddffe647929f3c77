"""``gossamer plan increasing``: figures on stdout, and one line for every mistake."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from gossamer.cli import main

pytestmark = pytest.mark.usefixtures("called_here")

EXAMPLE_3 = {
    "--initial-size": "16",
    "--dataset-size": "10000",
    "--gradients": "25000",
    "--sigma": "8",
    "--epsilon": "1",
    "--power": "1",
    "--r0": "max",
}
KEYS = {
    *(
        "q",
        "m",
        "rounds",
        "rounds_for_gradients",
        "gradients",
        "formula",
        "sizes",
        "r0",
        "r",
        "k_minus",
        "k_plus",
        "k_star",
        "budget_b",
    ),
    *("delta", "aggregate_noise", "constant", "proved", "claim_valid", "claim_problem", "note"),
}

Options = dict[str, str | None]


def arguments(base: dict[str, str], changed: Options) -> list[str]:
    """The call; None takes a flag out."""
    merged: Options = {**base, **changed}
    words = (word for flag, value in merged.items() if value is not None for word in (flag, value))
    return ["plan", "increasing", *words]


def document(capsys: pytest.CaptureFixture[str], base: dict[str, str], changed: Options | None = None) -> Any:
    assert main([*arguments(base, changed or {}), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_example_3(capsys: pytest.CaptureFixture[str]) -> None:
    """Figures of D.3.2; the proved epsilon is dp-accounting's."""
    found = document(capsys, EXAMPLE_3)
    assert set(found) == KEYS
    assert found["q"] == pytest.approx(0.00013216327772100012, rel=1e-12)
    assert found["m"] == pytest.approx(12.106237281566509, rel=1e-12)
    assert (found["rounds"], len(found["sizes"]), found["gradients"]) == (195, 195, 28215)
    assert found["sizes"] == [16 + math.ceil(1.3216327772100012 * i) for i in range(195)]
    assert found["formula"].startswith("16 + ceil(1.32163277721")
    assert found["sizes"] == [eval(found["formula"], {"ceil": math.ceil, "i": i}) for i in range(195)]
    assert found["r0"] == pytest.approx(1 / math.e)
    assert found["r"] == pytest.approx(5.7460446671129635)
    assert found["k_minus"] == pytest.approx(25_000)
    assert found["k_star"] == pytest.approx(0.0010573069002860367 / 1.061482363524607**2 / found["q"] * 10_000)
    assert found["k_plus"] > found["k_minus"]
    assert found["budget_b"] == pytest.approx(5.78195582192962)
    assert found["delta"] == pytest.approx(5.502343985212556e-08)
    assert found["aggregate_noise"] == pytest.approx(math.sqrt(195) * 8)
    assert found["constant"]["rounds"] == 1563
    assert found["constant"]["aggregate_noise"] == pytest.approx(math.sqrt(1563) * found["budget_b"])
    assert found["proved"]["epsilon"] == pytest.approx(0.126, rel=1e-2)
    assert 1 < found["proved"]["smallest_sigma"] < 8
    assert (found["claim_valid"], found["claim_problem"]) == (True, None)
    assert (found["rounds_for_gradients"], found["note"]) == (183, None)


@pytest.mark.slow
def test_r0_and_relation(capsys: pytest.CaptureFixture[str]) -> None:
    """A number is as good as max; under replace-one twice as much is proved at most; r0(8) is the default."""
    expected = document(capsys, EXAMPLE_3)
    found = document(capsys, EXAMPLE_3, {"--r0": repr(1 / math.e), "--neighboring-relation": "replace_one"})
    assert found["q"] == expected["q"]
    assert found["proved"]["epsilon"] == pytest.approx(0.253, rel=1e-2)
    assert found["proved"]["smallest_sigma"] > expected["proved"]["smallest_sigma"]
    default = document(capsys, EXAMPLE_3, {"--r0": None, "--power": None, "--initial-size": "4"})
    assert default["r0"] == pytest.approx(0.0248, abs=5e-5)


def test_people_get_claim_and_proof_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, EXAMPLE_3)
    assert main(arguments(EXAMPLE_3, {})) == 0
    out, err = capsys.readouterr()
    assert err == ""
    rows = {line.split("  ")[0]: line.split() for line in out.splitlines()}
    assert rows["epsilon"][-2:] == ["1", f"{found['proved']['epsilon']:.4g}"]
    assert rows["at delta"][-2:] == [f"{found['delta']:.4g}"] * 2
    assert rows["sigma needed for epsilon 1"][-2:] == ["8", f"{found['proved']['smallest_sigma']:.5g}"]
    assert rows["rounds"][-2:] == ["195", "1563"]
    text = " ".join(out.split())
    assert "Claim and proof are different things" in text
    assert "The proved figure is the one that counts." in text


def test_a_useless_delta_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Example 2, with the right factor in K*."""
    example_2: Options = {"--gradients": "100000", "--sigma": "5", "--epsilon": "2", "--r0": None}
    assert main(arguments(EXAMPLE_3, example_2)) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "This delta is above 1/10000: it protects next to nobody" in text


def test_rounding_up_does_not_make_the_claim_invalid(capsys: pytest.CaptureFixture[str]) -> None:
    """N r0/sigma is 27.1: the selection's last sizes would be 28, and q is made smaller until they are 27."""
    changed: Options = {"--initial-size": "12", "--dataset-size": "663", "--gradients": "1038", "--sigma": "9"}
    changed |= {"--epsilon": "4.7", "--power": "0.5"}
    found = document(capsys, EXAMPLE_3, changed)
    assert found["sizes"][-1] == 27 <= 663 / (9 * math.e) < 28
    assert (found["claim_valid"], found["claim_problem"]) == (True, None)


def test_more_gradients_than_asked_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The default r0: T of the paper makes over 3 times K."""
    found = document(capsys, EXAMPLE_3, {"--r0": None})
    assert found["claim_valid"]
    assert max(found["sizes"]) <= 10_000 * found["r0"] / 8
    assert found["gradients"] > 3 * 25_000
    assert f"{found['gradients'] / 25_000:.3g} times as many as asked" in found["note"]
    assert main(arguments(EXAMPLE_3, {"--r0": None})) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"More than asked: {found['note']}." in text
    assert "The claim is not valid" not in text


def test_sizes_that_do_not_grow(capsys: pytest.CaptureFixture[str]) -> None:
    """25,000 gradients in rounds of 16; B is sigma sqrt(1 - r0/sigma), as m/T is 0."""
    found = document(capsys, EXAMPLE_3, {"--power": "0", "--epsilon": "4"})
    assert (found["q"], found["m"], found["rounds"], found["formula"]) == (0.0016, 0.0, 1563, "16")
    assert found["budget_b"] == pytest.approx(8 * math.sqrt(1 - 1 / (8 * math.e)))
    assert (found["k_star"], found["claim_valid"]) == (None, True)
    assert main(arguments(EXAMPLE_3, {"--power": "0", "--epsilon": "4"})) == 0
    assert capsys.readouterr().out.startswith("Sizes: always 16\n")


@pytest.mark.slow
def test_case_2(capsys: pytest.CaptureFixture[str]) -> None:
    changed: Options = {"--case": "2", "--over": "1.5", "--epsilon": "0.5", "--power": "0.5", "--r0": "0.06"}
    found = document(capsys, EXAMPLE_3, {**changed, "--gradients": "5000000"})
    assert found["claim_valid"]
    assert 1.5 * found["k_plus"] == pytest.approx(5_000_000, rel=1e-5)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            dict.fromkeys(EXAMPLE_3),
            "plan increasing needs --initial-size, --dataset-size, --gradients, --sigma, --epsilon",
        ),
        (
            {"--sigma": "1.1"},
            "--sigma must be a finite number >= 1.137 and <= 1e+06, found 1.1",
        ),
        ({"--sigma": "nan"}, "found nan"),
        ({"--sigma": "inf"}, "found inf"),
        ({"--epsilon": "0"}, "--epsilon must be a finite number > 0, found 0"),
        ({"--epsilon": "inf"}, "--epsilon must be a finite number > 0, found inf"),
        ({"--epsilon": "1e-200"}, "more than 1,000,000 rounds"),
        ({"--epsilon": "1e9"}, "plan a smaller epsilon"),
        ({"--epsilon": "1e308"}, "plan a smaller epsilon"),
        ({"--gradients": "1000000000000"}, "more than 1,000,000 rounds"),
        ({"--gradients": "1" + "0" * 400}, "1e+15, found 1000"),
        ({"--gradients": "0"}, "--gradients must be a whole number >= 1 and <= 1e+15, found 0"),
        ({"--gradients": "10"}, "10 gradients are fewer than the 16 of the first round"),
        ({"--initial-size": "10001"}, "the initial size must be from 1 to the 10000 examples"),
        ({"--initial-size": "500"}, "the first round is 0.05 of the data set"),
        ({"--power": "0.05"}, "power must be 0, for constant sizes, or at least 0.1, found 0.05"),
        ({"--case": "3"}, "--case must be a whole number >= 1 and <= 2, found 3"),
        ({"--over": "2"}, "--over is K in units of K+, and only with --case 2"),
        ({"--case": "2"}, "case 2 needs K = 25000 to be at least K+"),
        ({"--power": "5"}, "--power must be a finite number >= 0 and <= 4, found 5"),
        ({"--r0": "0.37"}, "--r0 must be max or a number in (0, 1/e], 1/e = 0.367879; found 0.37"),
        ({"--r0": "0"}, "--r0 must be max or a number in (0, 1/e]"),
        ({"--r0": "large"}, "found large"),
        (
            {"--sigma": "1.5", "--r0": "0.3"},
            "r0 must lie in (0, 1/e], and with sigma 1.5 the theorem needs it to be at most 0.0995",
        ),
        ({"--delta": "1e-5"}, "unrecognized arguments: --delta 1e-5"),
    ],
)
def test_a_mistake_gets_one_line(capsys: pytest.CaptureFixture[str], changed: Options, expected: str) -> None:
    one_line(capsys, arguments(EXAMPLE_3, changed), expected)


def one_line(capsys: pytest.CaptureFixture[str], call: list[str], expected: str) -> None:
    assert main(call) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("gossamer: error: ")
    assert expected in line
