"""Claimed bounds of Theorems 1 and 3 and Lemma 3, against exact errors of a quadratic and arithmetic by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from gossamer.algorithms.graph_federated.guarantees import ERRORS, Constants, homomorphic_noise, limits, next_bounds
from gossamer.cli.main import main
from gossamer.errors import SpecError

RING = np.array([[1 if (p - m) % 6 in (0, 1, 5) else 0 for m in range(6)] for p in range(6)]) / 3
LINE = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
CONSTANTS = Constants(
    step=0.05,
    strong_convexity=1.0,
    smoothness=1.0,
    gradient_square=1.0,
    agents_sampled=4,
    mixing=2 / 3,
    message_noise=0.01,
)


def exact(
    matrix: np.ndarray, noise: str, *, step: float, agents: int, variance: float, rounds: int, initial: float
) -> np.ndarray:
    """[rounds + 1, 3]: expected squares of the centroid, of the worst unit, and the disagreement.

    Examples are 1 or -1 with equal chances and the loss of one is (w - x)^2/2, so that w^o = 0, nu = delta = 1 and the
    squared gradient at w^o is 1. The network's second moments C follow a linear recursion, psi = (1-mu) w + mu mean x.
    """
    units = len(matrix)
    added = {
        "none": np.zeros_like(matrix),
        "homomorphic": (matrix - np.eye(units)) @ (matrix - np.eye(units)).T,
    }[noise]
    second = np.full((units, units), initial)
    mean, rows = np.ones((units, units)) / units, []
    for _ in range(rounds + 1):
        apart = second - mean @ second - second @ mean + mean @ second @ mean
        rows.append([second.mean(), np.diagonal(second).max(), np.trace(apart) / units])
        second = matrix @ ((1 - step) ** 2 * second + step**2 / agents * np.eye(units)) @ matrix.T + variance * added
    return np.array(rows)


@pytest.mark.parametrize("noise", ["none", "homomorphic"])
@pytest.mark.parametrize("matrix", [RING, LINE], ids=["ring", "line"])
@pytest.mark.parametrize("step", [0.2, 0.05, 0.01])
def test_bounds_are_above_the_exact_errors_of_a_quadratic(noise: str, matrix: np.ndarray, step: float) -> None:
    variance, rounds, agents = 0.02, 2000, 20
    message = 0.0 if noise == "none" else homomorphic_noise(matrix, variance, 1)
    mixing = float(np.abs(np.linalg.eigvalsh(matrix)[:-1]).max())
    given = replace(CONSTANTS, step=step, agents_sampled=agents, mixing=mixing, message_noise=message)
    true = exact(matrix, noise, step=step, agents=agents, variance=variance, rounds=rounds, initial=4.0)
    path = [np.array([4.0, 4.0, 0.0])]
    for _ in range(rounds):
        path.append(next_bounds(given, *path[-1].tolist()))
    claimed = np.stack(path)
    assert np.isfinite(claimed).all()
    assert (claimed >= true * (1 - 1e-12)).all()
    found = limits(given)
    assert claimed[-1] == pytest.approx([found[name] for name in ERRORS], rel=0.01)


def test_the_limit_of_a_units_own_error_by_hand() -> None:
    """nu = delta = 1: alpha = 1 - mu, beta^2 = 12/L, sigma_s^2 = 15/L; x = (15 mu^2/L + sigma_g^2)/(mu - 12 mu^2/L)."""
    x = (15 * 0.0025 / 4 + 0.01) / (0.05 - 12 * 0.0025 / 4)
    assert limits(CONSTANTS)["individual"] == pytest.approx(x)


def test_the_first_round_of_all_three_by_hand() -> None:
    """From x = c = 1 and D = 0, with iota = 2/3 and no other gradients at w^o."""
    mu2 = 0.0025
    centroid, individual, disagreement = next_bounds(CONSTANTS, 1.0, 1.0, 0.0)
    assert individual == pytest.approx(0.95 + 3 * mu2 + mu2 * 15 / 4 + 0.01)
    assert centroid == pytest.approx(0.95 + 6 * mu2 + mu2 * 15 / 4)
    assert disagreement == pytest.approx(4 / 9 * mu2 * (3 * 3 + 3 + 15 / 4) + 0.01)


def test_nothing_is_claimed_of_steps_that_are_too_large() -> None:
    for step in (0.4, 2.5):  # beta^2 mu^2 = 3 mu^2 is above mu; alpha is above 1
        assert set(limits(replace(CONSTANTS, step=step)).values()) == {math.inf}


@pytest.mark.parametrize("changes", [{"strong_convexity": 2.0}, {"mixing": 1.0}, {"step": 0.0}, {"agents_sampled": 0}])
def test_constants_out_of_range_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(SpecError):
        replace(CONSTANTS, **changes)


ARGUMENTS = (
    "plan graph_federated --epsilon 8 --delta 1e-5 --rounds 20 --step 0.05 --bound 1 --size 1 --graph ring --units 6 "
    "--agents-sampled 20"
)
THEOREMS = "--strong-convexity 1 --smoothness 1 --gradient-square 1"


def said(capsys: pytest.CaptureFixture[str], more: str) -> str:
    assert main(f"{ARGUMENTS} {more}".split()) == 0
    return capsys.readouterr().out


def test_the_command_says_what_the_theorems_claim(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, f"--gradient-at hidden {THEOREMS} --json"))
    (sigma,) = (row["sigma"] for row in found["choices"] if row["temporal"] == "independent")
    # On this ring a_pp = 1/3: sigma_g^2 = 2 sigma^2; x as above.
    x = (15 * 0.0025 / 20 + 2 * sigma**2) / (0.05 - 12 * 0.0025 / 20)
    assert found["claimed_errors"]["individual"] == pytest.approx(x)
    assert "Theorems 1 and 3" in " ".join(said(capsys, f"--gradient-at hidden {THEOREMS}").split())
    assert "claimed_errors" not in json.loads(said(capsys, "--json"))


@pytest.mark.parametrize("given", [THEOREMS, "--gradient-at hidden --smoothness 1"])
def test_the_command_needs_all_constants(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(f"{ARGUMENTS} {given}".split()) != 0
    assert "--strong-convexity" in capsys.readouterr().err
