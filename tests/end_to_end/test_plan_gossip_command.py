"""``gossamer plan gossip``: the paper's formula with numbers put in by hand, called a claim."""

from __future__ import annotations

import json

import pytest

from gossamer.cli import main

CALL = [
    "plan",
    "gossip",
    "--nodes",
    "5",
    "--batch-size",
    "20",
    "--staleness",
    "4",
    "--rho",
    "0.5",
    "--size",
    "100",
    "--smoothness",
    "1",
    "--loss-gap",
    "1",
    "--within-variance",
    "1",
    "--between-variance",
    "0.5",
]


@pytest.mark.parametrize(
    ("iterations", "sigma", "bound"),
    [
        # 2 (F + L (V/B + 6 U + d sigma^2/B^2)) / sqrt(T)
        (10**6, "10", 2 * (1 + 1 / 20 + 3 + 100 * 100 / 400) / 1000),
        (10**10, "0", 2 * (1 + 1 / 20 + 3) / 10**5),
    ],
)
def test_the_bound(capsys: pytest.CaptureFixture[str], iterations: int, sigma: str, bound: float) -> None:
    assert main([*CALL, "--iterations", str(iterations), "--sigma", sigma, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bound"] == pytest.approx(bound, rel=1e-12)
    assert found["bound_without_noise"] == pytest.approx(2 * (1 + 1 / 20 + 3) / iterations**0.5, rel=1e-12)
    assert found["proved"] is False
    assert found["valid"] == (iterations >= found["iterations_needed"])


def test_the_bound_at_another_rate(capsys: pytest.CaptureFixture[str]) -> None:
    """Theorem 1: eta B/K = 0.0004, so 2 F/(0.0004 T) + 2 * 0.0004 L (V/B + 6 U + d sigma^2/B^2)."""
    assert main([*CALL, "--iterations", "1000000", "--sigma", "10", "--learning-rate", "0.0001", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bound"] == pytest.approx(2 / 400 + 0.0008 * (1 / 20 + 3 + 25), rel=1e-12)
    assert found["theorem"] == "A(DP)2SGD, Theorem 1"


@pytest.mark.parametrize(
    ("iterations", "expected"),
    [(10**6, "but its own conditions fail: Proposition 1 needs T >= 1.4e+08"), (10**10, "; its conditions hold.")],
)
def test_it_is_called_a_claim(capsys: pytest.CaptureFixture[str], iterations: int, expected: str) -> None:
    assert main([*CALL, "--iterations", str(iterations)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Claimed, not proved: A(DP)2SGD, Proposition 1" in text
    assert expected in text
    assert "nothing is said of privacy" in text


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (["--rho", "1"], "--rho must be a finite number >= 0 and < 1, found 1"),
        (["--nodes", "0"], "--nodes must be a whole number >= 1 and <= 1e+06, found 0"),
        (["--sigma", "nan"], "--sigma must be a finite number >= 0 and <= 1e+12, found nan"),
        (["--batch-size", "9" * 400], "--batch-size must be a whole number >= 1 and <= 1e+15, found 999"),
    ],
)
def test_a_mistake_gets_one_line(capsys: pytest.CaptureFixture[str], changed: list[str], expected: str) -> None:
    assert main([*CALL, "--iterations", "100", *changed]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert expected in err


def test_all_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "gossip", "--nodes", "5", "--rho", "0"]) == 2
    assert capsys.readouterr().err.startswith("gossamer: error: plan gossip needs --staleness, --loss-gap, ")
