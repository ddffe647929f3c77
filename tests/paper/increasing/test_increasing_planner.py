"""Paper 4 (increasing sample sizes), D.3.2: the five examples, the slips, and what is proved."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gossamer.algorithms.increasing.claims import MainTheorem
from gossamer.algorithms.increasing.planning import (
    SETTLED,
    Pass,
    Proved,
    RoundPlan,
    RoundProblem,
    maximal_r0,
    pass_at,
    plan_rounds,
    power_sizes,
    prove,
    proved_epsilon,
    schedule_of,
    selection_pass,
    selection_passes,
)
from gossamer.errors import SpecError
from gossamer.privacy.mechanisms import NeighboringRelation, Poisson

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
PAGE = Path(__file__).resolve().parents[3] / "docs" / "privacy" / "increasing-planner.md"
LIMIT = 1 / math.e

EXAMPLES = {
    1: RoundProblem(16, 50_000, 5_000_000, 3, 2),
    2: RoundProblem(16, 10_000, 100_000, 5, 2),
    3: RoundProblem(16, 10_000, 25_000, 8, 1, r0=LIMIT),
    4: RoundProblem(16, 25_000, 125_000, 8, 2),
    5: RoundProblem(16, 25_000, 125_000, 8, 2, r0=LIMIT),
}


@cache
def plan(example: int) -> RoundPlan:
    return plan_rounds(EXAMPLES[example])


def selected_of(problem: RoundProblem) -> RoundPlan:
    """The paper's selection, before any q is made smaller."""
    return RoundPlan(problem, tuple(selection_passes(problem)))


def selected(example: int) -> RoundPlan:
    return selected_of(EXAMPLES[example])


@cache
def proved(relation: NeighboringRelation) -> Proved:
    return prove(plan(3), relation)


def as_printed(example: int, r0: float, assumed: float = 0.0) -> Pass:
    """A pass of Examples 1, 2 and 4 with the paper's r0 and the printed factor (1 + m/T)^(1+p) in K*."""
    problem = EXAMPLES[example]
    problem = RoundProblem(
        problem.initial_size, problem.dataset_size, problem.gradients, problem.sigma, problem.epsilon, r0=r0
    )
    q = selection_pass(problem, assumed).q_star * (1 + assumed) ** 4  # (1+p) twice, to the power p of q
    m = problem.initial_size / problem.dataset_size / q
    return Pass(assumed, math.inf, q, q, m, math.ceil(math.sqrt(2 * problem.epochs / q)))


def printed_budget(sigma: float, r0: float, ratio: float, divisor: float | None = None) -> float:
    return sigma * math.sqrt(1 - r0 / (divisor or sigma)) / (1 + ratio) ** 5


def test_example_3() -> None:
    """All three passes, to the digits that are printed; the paper's B has eleven, it divides by 1.38361486085."""
    found = plan(3)
    assert [one.q for one in found.passes] == pytest.approx(
        [0.00016420239582699232, 0.00013483794319482493, 0.00013216327772100012], rel=1e-12
    )
    assert [one.m for one in found.passes] == pytest.approx(
        [9.744072197861225, 11.86609616024911, 12.106237281566509], rel=1e-12
    )
    assert [one.rounds for one in found.passes] == [175, 193, 195]
    assert [one.found for one in found.passes] == pytest.approx(
        [0.055680412559207, 0.061482363524606794, 0.06208326811059748], rel=1e-12
    )
    assert found.passes[0].q_star == pytest.approx(0.0004229227601144147, rel=1e-12)
    assert found.budget == pytest.approx(5.78195582192962, rel=1e-11)
    assert found.delta == pytest.approx(5.502343985212556e-08, rel=1e-9)
    assert found.sizes.tolist() == [16 + math.ceil(1.3216327772100012 * i) for i in range(195)]
    assert (found.constant_rounds, round(found.constant_noise), round(found.aggregate_noise)) == (1563, 229, 112)
    assert round(found.constant_rounds / found.rounds, 2) == 8.02
    assert found.theorem.r == pytest.approx(5.7460446671129635, rel=1e-12)
    assert found.claim_problem is None


def test_example_5() -> None:
    """The second pass's q is of a rounded K- coefficient there (0.214 is printed, 0.21158... used); all is printed."""
    found = plan(5)
    assert [one.q for one in found.passes] == pytest.approx(
        [0.00008210119791349613, 0.00007578229244195698, 0.00007554972], rel=5e-8
    )
    assert [one.m for one in found.passes] == pytest.approx(
        [7.795257758288984, 8.445244652504904, 8.471242187728482], rel=1e-12
    )
    assert [one.rounds for one in found.passes] == [349, 364, 364]
    assert [one.found for one in found.passes] == pytest.approx(
        [0.022335982115441216, 0.02320122157281567, 0.023272643372880444], rel=1e-12
    )
    assert found.passes[0].q_star == pytest.approx(0.00021146138005720736, rel=1e-12)
    assert found.budget == pytest.approx(6.964834261123335, rel=1e-12)
    assert found.delta == pytest.approx(8.56732681988984e-22, rel=1e-10)
    assert (found.constant_rounds, round(found.aggregate_noise)) == (7813, 153)


def test_examples_1_2_and_4_as_they_are_printed() -> None:
    """First passes with the rounded r0; the second pass of Example 1 has the wrong factor of K* in it."""
    first = as_printed(1, 0.0110)
    assert (first.q, first.m, first.rounds) == pytest.approx((6.72222222222222e-8, 4760.330578512398, 54546), rel=1e-12)
    assert first.found == pytest.approx(0.08727185455418175, rel=1e-12)
    assert printed_budget(3, 0.0110, first.found) == pytest.approx(1.9707559905883425, rel=1e-12)
    second = as_printed(1, 0.0110, first.found)
    assert 50_000 * second.q == pytest.approx(0.0039733713991774566, rel=1e-12)
    assert (second.m, second.rounds) == pytest.approx((4026.8070594438323, 50168), rel=1e-12)
    assert second.found < first.found  # the wrong factor makes m/T fall, the right one makes it rise
    second_example = as_printed(2, 0.0202)
    assert (second_example.q, second_example.m, second_example.rounds) == pytest.approx(
        (8.160800000000002e-7, 1960.5920988138412, 4951), rel=1e-12
    )
    fourth = as_printed(4, 0.0247)
    assert (fourth.q, fourth.m, fourth.rounds) == pytest.approx((9.53265625e-7, 671.376354308, 3239), rel=1e-11)


@pytest.mark.parametrize("example", [1, 2, 4])
def test_the_right_k_star_keeps_the_last_round_within_r0_over_sigma(example: int) -> None:
    """The printed schedules end above it; so does the selection by the 1 % to which m/T settles; the plan does not."""
    problem = EXAMPLES[example]
    alpha = problem.theorem(0.0).alpha
    printed = as_printed(example, alpha * problem.sigma)
    assert printed.q * (printed.rounds + printed.m) > 1.08 * alpha
    chosen = selected(example)
    assert alpha * 0.99 < chosen.q * (chosen.rounds + chosen.m) < alpha * (1 + SETTLED)
    assert chosen.claim_problem is not None
    assert "rounds are above r0/sigma" in chosen.claim_problem
    found = plan(example)
    assert found.claim_problem is None
    assert 0.9 * chosen.q < found.q < chosen.q
    assert found.passes[:-1] == chosen.passes


def test_q_is_no_smaller_than_the_claim_needs() -> None:
    """Example 3 with r0(sigma): 32 of 10,000 are above r0/sigma; a q larger by 0.1 % is not claimed."""
    problem = RoundProblem(16, 10_000, 25_000, 8, 1)
    found = plan_rounds(problem)
    assert selected_of(problem).sizes[-1] == 32
    assert (found.sizes[-1], found.claim_problem) == (30, None)
    larger = RoundPlan(problem, (pass_at(problem, 1.001 * found.q),))
    assert larger.claim_problem is not None
    assert found.note is not None
    assert f"its {found.rounds} rounds make {found.sizes.sum()} gradients" in found.note


GRID = [
    (*one, case)
    for one in itertools.product((4, 16), (10_000, 50_000), (25_000, 250_000), (3.0, 8.0), (1.0, 6.0), (0.0, 0.5, 1.0))
    for case in (1, 2)
]


@pytest.mark.parametrize("r0", ["r0(sigma)", "max", "0.1"])
def test_what_is_planned_is_claimed(r0: str) -> None:
    """Wherever the theorem has a solution, its conditions hold for the whole numbers that are printed.

    As worked out here: no round above alpha; K, the sum of the sizes, on its side of K- or K+; sigma as large as (27)
    or (28) ask for at the plan's delta and m/T.
    """
    planned = {1: 0, 2: 0}
    for start, examples, gradients, sigma, epsilon, power, case in GRID:
        try:
            limit = {"r0(sigma)": None, "max": maximal_r0(sigma), "0.1": 0.1}[r0]
            problem = RoundProblem(start, examples, gradients, sigma, epsilon, power, limit, case)
            found = plan_rounds(problem)
        except SpecError:
            continue
        planned[case] += 1
        assert found.claim_problem is None
        made, p, ratio = int(found.sizes.sum()), power, found.m / found.rounds
        shares = found.sizes / examples
        exact = found.q * (np.arange(found.rounds) + found.m) ** p
        assert np.all((found.sizes >= examples * exact * (1 - 1e-9)) & (found.sizes < examples * exact + 1 + 1e-6))
        r0_needed = sigma * max(shares.max(), found.q * (found.rounds + found.m) ** p)
        assert r0_needed <= found.theorem.r0 * (1 + 1e-9)
        log_delta = -math.log(found.delta)
        if case == 1:  # with the least r0, which allows the largest K-
            least = MainTheorem(p, r0_needed, sigma, ratio)
            assert made <= least.k_minus(epsilon, found.q, examples) * (1 + 1e-8)
            root = math.sqrt(2 * log_delta / epsilon) / math.sqrt(1 - least.alpha)
            assert sigma >= root * (1 + ratio) ** (2 + 3 * p) * (1 - 1e-9)
        else:
            theorem = problem.theorem(ratio)
            assert made >= theorem.k_plus(epsilon, found.q, examples) * (1 - 1e-8)
            root = 2 * math.sqrt(2 * log_delta / (1 - theorem.alpha)) / epsilon * (p + 1) / math.sqrt(2 * p + 1)
            assert sigma * math.sqrt(found.rounds) >= made / examples * root * (1 + ratio) ** (p + 0.5) * (1 - 1e-9)
    assert planned[1] >= 30


@pytest.mark.parametrize(("power", "over"), [(0.5, 1.0), (0.5, 1.5), (1.0, 1.0), (0.0, 1.0)])
def test_case_2(power: float, over: float) -> None:
    """K = k K+ at the plan's own m/T; without growth q is s_0/N."""
    problem = RoundProblem(16, 10_000, 5_000_000, 8, 0.5 if power < 1 else 0.2, power, 0.06, 2, over)
    found = plan_rounds(problem)
    assert found.claim_problem is None
    limit = found.theorem.k_plus(problem.epsilon, found.q, 10_000)
    if power == 0:
        assert (found.q, found.m, found.rounds) == (0.0016, 0.0, 312_500)
        assert limit < 5_000_000
        return
    assert over * limit == pytest.approx(5_000_000, rel=1e-5)  # T is a whole number, and m/T with it


def test_sizes_that_do_not_grow_have_a_limit() -> None:
    """K- = K+ = B(0) epsilon N^2/s_0; r0(sigma) has B(0) = (sqrt(3) - 1)/2."""
    limit = (math.sqrt(3) - 1) / 2 * 1.0 * 10_000**2 / 16
    assert plan_rounds(RoundProblem(16, 10_000, int(limit), 8, 1, 0.0)).claim_problem is None
    with pytest.raises(SpecError, match=r"above K- = 2.28766e\+06 of rounds of 16; take case 2"):
        plan_rounds(RoundProblem(16, 10_000, int(limit) + 1, 8, 1, 0.0))
    with pytest.raises(SpecError, match=r"below K\+ = 2.28766e\+06 of rounds of 16; take case 1"):
        plan_rounds(RoundProblem(16, 10_000, int(limit) - 100, 8, 1, 0.0, case=2))


def test_a_little_more_than_asked_is_not_worth_a_note() -> None:
    assert plan(3).note is None


# The table of the page: what the formulas give, by the words of the first column.

TABLE: dict[str, Callable[[], float]] = {
    "r0(5)": lambda: EXAMPLES[2].theorem(0.0).r0,
    "r0(8)": lambda: EXAMPLES[4].theorem(0.0).r0,
    "Example 1, m/T": lambda: selected(1).passes[-1].found,
    "Example 1, T": lambda: selected(1).rounds,
    "Example 1, delta at epsilon 2": lambda: selected(1).delta,
    "Example 1, delta at epsilon 8": lambda: math.exp(-4 * selected(1).budget ** 2),
    "Example 1, aggregate noise": lambda: selected(1).aggregate_noise,
    "Example 1, aggregate noise at constant size": lambda: selected(1).constant_noise,
    "Example 2, m/T": lambda: selected(2).passes[-1].found,
    "Example 2, T": lambda: selected(2).rounds,
    "Example 2, loss factor": lambda: 5 / selected(2).budget,
    "Example 3, T until K = 25,000": lambda: selected(3).rounds_for_gradients,
    "Example 3, gradients in T = 195 rounds": lambda: float(selected(3).sizes.sum()),
    "Example 3, q when settled completely": lambda: settled(3).q,
    "Example 3, delta when settled completely": lambda: math.exp(-(budget_of(settled(3)) ** 2) / 2),
    "Example 4, m/T": lambda: selected(4).passes[-1].found,
    "Example 4, T": lambda: selected(4).rounds,
    "Example 4, B": lambda: selected(4).budget,
    "Example 4, delta": lambda: selected(4).delta,
    "Example 5, T": lambda: selected(5).rounds,
    "s0 at m = 2 (d + 1) 1450, d = 0": lambda: math.ceil(2901 / 16 / math.log(2901 / 2)),
    "s0 at m = 2 (d + 1) 1450, d = 1": lambda: math.ceil(5801 / 64 / math.log(5801 / 4)),
}

PRINTED: dict[str, Callable[[], float]] = {
    "r0(8)": lambda: math.floor(1e4 * EXAMPLES[4].theorem(0.0).r0) / 1e4,
    "Example 1, aggregate noise": lambda: 3 * math.sqrt(as_printed(1, 0.0110, as_printed(1, 0.0110).found).rounds),
    "Example 1, aggregate noise at constant size": lambda: 1.98 * math.sqrt(selected(1).constant_rounds),
    "Example 3, T until K = 25,000": lambda: plan(3).rounds,
    "Example 3, q when settled completely": lambda: plan(3).q,
    "Example 3, delta when settled completely": lambda: plan(3).delta,
    "Example 1, T": lambda: as_printed(1, 0.0110).rounds,
    "Example 1, m/T": lambda: as_printed(1, 0.0110).found,
    "Example 1, delta at epsilon 2": lambda: math.exp(-(printed_budget(3, 0.0110, as_printed(1, 0.0110).found) ** 2)),
    "Example 1, delta at epsilon 8": lambda: math.exp(
        -4 * printed_budget(3, 0.0110, as_printed(1, 0.0110, as_printed(1, 0.0110).found).found) ** 2
    ),
    "Example 2, m/T": lambda: as_printed(2, 0.0202).found,
    "Example 2, T": lambda: as_printed(2, 0.0202).rounds,
    "Example 2, loss factor": lambda: 5 / printed_budget(5, 0.0202, as_printed(2, 0.0202).found),
    "Example 4, m/T": lambda: as_printed(4, 0.0247).found,
    "Example 4, T": lambda: as_printed(4, 0.0247).rounds,
    "Example 4, B": lambda: printed_budget(8, 0.0247, as_printed(4, 0.0247).found, divisor=5),
    "Example 4, delta": lambda: math.exp(-(printed_budget(8, 0.0247, as_printed(4, 0.0247).found, divisor=5) ** 2)),
}


def settled(example: int) -> Pass:
    one = plan(example).passes[-1]
    for _ in range(50):
        one = selection_pass(EXAMPLES[example], one.found)
    return one


def budget_of(one: Pass) -> float:
    return 8 / EXAMPLES[3].theorem(one.found).loss


def rows() -> dict[str, list[str]]:
    lines = re.findall(r"^\| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return {row[0]: row[1:] for row in cells if row[0] in TABLE}


def number(cell: str) -> tuple[float, float]:
    """The first number of a cell, and half a unit of its last digit."""
    digits = re.search(r"\d[\d,]*(?:\.(\d+))?(?:e(-?\d+))?", cell)
    assert digits is not None, cell
    value = float(digits[0].replace(",", ""))
    return value, 0.5001 * 10.0 ** (int(digits[2] or 0) - len(digits[1] or ""))


def test_the_table_of_the_page_is_complete() -> None:
    assert set(rows()) == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_what_the_formulas_give_is_what_the_page_says(name: str) -> None:
    value, half = number(rows()[name][1])
    assert TABLE[name]() == pytest.approx(value, abs=half)


@pytest.mark.parametrize("name", PRINTED)
def test_the_paper_prints_what_its_slips_give(name: str) -> None:
    value, half = number(rows()[name][0])
    assert PRINTED[name]() == pytest.approx(value, abs=half)


def test_example_4_divided_by_8_as_it_should_be() -> None:
    """With r0/8, m/T = 0.20728 and the paper's other figures: B = 3.114 and delta = 6.13e-5."""
    budget = printed_budget(8, 0.0247, as_printed(4, 0.0247).found)
    assert budget == pytest.approx(3.114, abs=5e-4)
    assert math.exp(-(budget**2)) == pytest.approx(6.13e-5, abs=5e-8)


# What is proved


@pytest.mark.some(1)
@pytest.mark.parametrize(("relation", "about"), [(ADD, 0.126), (REPLACE, 0.253)])
def test_what_is_proved_of_example_3(relation: NeighboringRelation, about: float) -> None:
    """``about``: dp-accounting at 1e-4 (test_accountants_increasing_rounds)."""
    assert proved(relation).epsilon == pytest.approx(about, rel=1e-2)


CONSTANT = {Poisson(0.0016): 1563}
"""Rounds of 16 of 10,000 examples that make 25,000 gradients."""


def test_the_noise_advantage_disappears_at_equal_proof() -> None:
    """sqrt(183) 8 = 108.2 is exact; that rounds of 16 get the same epsilon with 100/sqrt(1563) is checked both ways."""
    first, delta = schedule_of(plan(3).sizes[:183], 10_000), plan(3).delta
    assert plan(3).rounds_for_gradients == 183
    equal = proved_epsilon(first, 8, delta, ADD)
    assert equal == pytest.approx(0.115, abs=5e-4)
    assert proved_epsilon(CONSTANT, 100 / math.sqrt(1563), delta, ADD) <= equal
    assert proved_epsilon(CONSTANT, 99 / math.sqrt(1563), delta, ADD) > equal


def test_rounds_of_16_are_a_poor_schedule_at_epsilon_1() -> None:
    """33 against 19, as the page says: 0.84 sqrt(1563) and 1.42 sqrt(183) are enough, a per cent less is not."""
    for schedule, sigma, noise in (
        (CONSTANT, 0.8376, 33),
        (schedule_of(plan(3).sizes[:183], 10_000), 1.4236, 19),
    ):
        assert proved_epsilon(schedule, sigma, plan(3).delta, ADD) <= 1
        assert proved_epsilon(schedule, 0.99 * sigma, plan(3).delta, ADD) > 1
        assert round(sigma * math.sqrt(sum(schedule.values()))) == noise


def test_the_smallest_sigma() -> None:
    found, schedule = proved(ADD), schedule_of(plan(3).sizes, 10_000)
    assert found.smallest_sigma is not None
    assert proved_epsilon(schedule, found.smallest_sigma, plan(3).delta, ADD) <= 1
    assert proved_epsilon(schedule, found.smallest_sigma * 0.997, plan(3).delta, ADD) > 1


def test_nothing_is_spent_at_a_delta_near_1() -> None:
    """Example 2 with the right factor: delta 0.84."""
    assert prove(plan(2), ADD).epsilon == 0.0


def test_rounding_errors_are_not_rounded_up() -> None:
    """10 (1 + 1/10) is 11.000000000000002 in floating point."""
    assert power_sizes(10, 10.0, 1.0, 2).tolist() == [10, 11]


def test_schedules_of_sizes() -> None:
    assert schedule_of(np.array([2, 2, 5]), 10) == {Poisson(0.2): 2, Poisson(0.5): 1}
    assert power_sizes(16, 3.0, 0.5, 4).tolist() == [16, math.ceil(16 * math.sqrt(4 / 3)), 21, 23]


# Plans that there are none of


def test_small_problems_settle_although_the_rounds_are_whole_numbers() -> None:
    """m/T >= what is assumed ends it too; with few rounds it would go up and down for ever."""
    for gradients in range(100, 400, 7):
        found = plan_rounds(RoundProblem(2, 2000, gradients, 4, 4, r0=maximal_r0(4)))
        last = found.passes[-1]
        assert found.sizes.sum() >= gradients
        assert last.found <= last.assumed or last.found - last.assumed <= SETTLED * last.found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"initial_size": 0}, "initial_size must be a whole number >= 1"),
        ({"initial_size": 10_001}, "the initial size must be from 1 to the 10000"),
        ({"gradients": 15}, "15 gradients are fewer"),
        ({"sigma": 1.1}, r"sigma must be a finite number >= 1\.137 and <= 1e\+06"),
        ({"sigma": math.nan}, "sigma must be a finite number .* found nan"),
        ({"epsilon": 0.0}, "epsilon must be a finite number > 0"),
        ({"epsilon": math.inf}, "epsilon must be a finite number > 0"),
        ({"power": 0.05}, "power must be 0, for constant sizes, or at least 0.1, found 0.05"),
        ({"case": 3}, "case must be a whole number >= 1 and <= 2, found 3"),
        ({"case": 2, "over": 0.5}, "over must be a finite number >= 1"),
        ({"case": 2}, "case 2 needs K = 25000 to be at least K"),
        ({"r0": 0.4}, r"r0 must lie in \(0, 1/e\]"),
        ({"r0": 0.01}, r"r0/sigma = 0\.00125"),
        ({"gradients": 10**12}, "more than 1,000,000 rounds"),
        ({"epsilon": 1e-300}, "more than 1,000,000 rounds"),
        ({"epsilon": 0.2}, "more than 1,000,000 rounds in sizes .* hardly grow"),
        (
            {"initial_size": 45_984, "dataset_size": 10**6, "gradients": 5 * 10**6, "epsilon": 1e6},
            "m/T rises without end",
        ),
        ({"epsilon": 1e9}, "plan a smaller epsilon"),
        ({"epsilon": 1e308}, "plan a smaller epsilon"),
        ({"r0": "most"}, "r0 must be max or a number in .* found most"),
        ({"sigma": "8"}, "sigma must be a finite number .* found '8'"),
        ({"epsilon": None}, "epsilon must be a finite number > 0, found None"),
        ({"dataset_size": math.inf}, "dataset_size must be a whole number .* found inf"),
        ({"dataset_size": 10**16}, "dataset_size must be a whole number"),
        ({"initial_size": 16.5}, r"initial_size must be a whole number .* found 16\.5"),
        ({"gradients": 25_000.5}, r"gradients must be a whole number .* found 25000\.5"),
    ],
)
def test_what_cannot_be_planned(change: dict[str, float], words: str) -> None:
    values = {
        "initial_size": 16,
        "dataset_size": 10_000,
        "gradients": 25_000,
        "sigma": 8.0,
        "epsilon": 1.0,
        "r0": LIMIT,
    }
    with pytest.raises(SpecError, match=words):
        plan_rounds(RoundProblem(**{**values, **change}))  # type: ignore[arg-type]
