"""Many rows of one person: tables against the sums as they are written, and lower bounds that need no accountant."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from tests.reference import groups_slow

from gossamer.cli import main
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.accountants import MOST_ROWS, row_of
from gossamer.privacy.accounting.group_pairs import Coins, MixtureSide
from gossamer.privacy.accounting.planner import calibrate, gaussian_family
from gossamer.privacy.mechanisms import (
    BatchSampling,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
)

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
SIDES: dict[tuple[bool, bool], Callable[[float, float, int, float], float]] = {
    (True, False): groups_slow.sampled,
    (False, True): groups_slow.sampled_back,
    (True, True): groups_slow.replaced,
}
MANY = 400  # losses: more than are answered one by one


def gaussian(multiplier: float, sampling: BatchSampling, count: int, rows: int, relation: NeighboringRelation) -> float:
    counts = {ReleaseKind(Gaussian(1.0, multiplier), sampling, 1): count}
    return accountants.epsilon(counts, 1e-5, relation, rows).epsilon


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("mu", "rate", "rows"),
    [(1 / 500, 0.3, 1000), (0.2, 0.01, 300), (1.0, 0.002, 1000), (0.3, 0.6, 120), (30.0, 0.05, 90)],
)
def test_tables_are_never_below_the_exact_divergence_and_close(
    side: tuple[bool, bool], mu: float, rate: float, rows: int
) -> None:
    own, slow = MixtureSide(mu, rate, rows, *side), SIDES[side]
    top = float(own.losses(np.array([own.quantile(1e-12)]))[0]) * 0.999
    losses = np.linspace(0.0, top, MANY)
    found = own.divergence(losses)
    chosen = np.arange(0, MANY, 37)
    exact = np.array([slow(mu, rate, rows, float(loss)) for loss in losses[chosen]])
    assert (found[chosen] >= exact * (1 - 1e-9) - 1e-14).all()  # the reference subtracts
    assert (found[chosen] <= exact * (1 + 3e-3) + 1e-13).all()
    one_by_one = np.array([own.divergence(losses[n : n + 1])[0] for n in chosen])
    np.testing.assert_allclose(found[chosen], one_by_one, rtol=3e-3, atol=1e-14)
    assert (found[chosen] >= one_by_one * (1 - 1e-9)).all()


@pytest.mark.parametrize("law", [Gaussian(1.0, 30.0), Laplace(1.0, 50.0), L2Laplace(1.0, 0.02, REPLACE)])
def test_a_table_of_coins_is_never_below_their_sum(law: Gaussian | Laplace | L2Laplace) -> None:
    pair = row_of(ReleaseKind(law, FixedSize(5000, 150), 9), REPLACE).profile(
        ReleaseKind(law, FixedSize(5000, 150), 9), 200
    )
    coins = pair.full  # type: ignore[attr-defined]
    assert isinstance(coins, Coins)
    losses = np.linspace(0.0, coins.largest(1e-9), 1000)
    found, exact = coins.divergence(losses), coins.exactly(losses)
    assert (found >= exact * (1 - 1e-12)).all()
    assert (found <= exact * (1 + 1e-3)).all()


# What n releases add up to says less than all of them, and of a sum the law is known: n m rows, each sampled or not.
@pytest.mark.parametrize("rows", [2, 20, 300, 1000])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_epsilon_is_never_below_what_the_sum_of_all_outputs_tells(rows: int, relation: NeighboringRelation) -> None:
    count, rate = 40, 0.02
    multiplier = 1.2 * rows
    epsilon = gaussian(multiplier, Poisson(rate), count, rows, relation)
    slow = groups_slow.sampled if relation is ADD else groups_slow.replaced
    mu = 1 / multiplier / math.sqrt(count)
    assert slow(mu, rate, count * rows, epsilon) <= 1e-5
    assert slow(mu, rate, count * rows, 0.6 * epsilon) > 1e-5  # or this would say nothing


@pytest.mark.some(2)
@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("sampling", [Poisson(0.01), FixedSize(50_000, 500)])
def test_more_rows_reveal_more_up_to_the_most(sampling: BatchSampling, relation: NeighboringRelation) -> None:
    if isinstance(sampling, FixedSize) and relation is ADD:
        return
    numbers = [1, 2, 3, 5, 8, 20, 50, 99, 100, 200, 500, 990, 1000, 2000, MOST_ROWS]
    found = [gaussian(50.0, sampling, 100, rows, relation) for rows in numbers]
    assert all(less < more for less, more in itertools.pairwise(found))


def test_noise_in_proportion_to_many_rows_is_calibrated() -> None:
    found = calibrate(5.0, 1e-5, ADD, [{Poisson(0.01): 100}], gaussian_family(), rows=1000)
    assert gaussian(found.noise, Poisson(0.01), 100, 1000, ADD) == found.epsilon <= 5.0
    assert gaussian(found.noise * 0.998, Poisson(0.01), 100, 1000, ADD) > 5.0


@pytest.mark.parametrize("rate", [1e-300, 1e-12])
def test_a_rate_that_is_next_to_nothing_is_no_reason_to_warn(rate: float) -> None:
    for rows, relation in itertools.product([1, 2, 1000], [ADD, REPLACE]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for count in (1, 1000):
                assert gaussian(1.0, Poisson(rate), count, rows, relation) == 0
                assert gaussian(0.01, Poisson(rate), count, rows, relation) == 0


@pytest.mark.parametrize("command", ["account --noise-multiplier 1", "calibrate --epsilon 1"])
def test_more_rows_than_the_data_have_are_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    batches = "--sampling fixed_size --dataset-size 10 --batch-size 3 --steps 10 --delta 1e-5"
    assert main([*command.split(), *batches.split(), "--group", "11"]) == 2
    assert "--group must be at most --dataset-size 10, found 11" in capsys.readouterr().err
    assert main([*command.split(), *batches.split(), "--group", "10"]) == 0
    assert main([*command.split(), *batches.split(), "--group", str(MOST_ROWS + 1)]) == 2
