"""A deployed party's data side: one charge, then one answer, with numbers that nobody can repeat."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.reference import pools

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import BudgetSpent, SpecError
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Clip, Evaluation, Gradients, Objective
from gossamer.privacy.accounting.filters import ReleasePlan
from gossamer.privacy.exact.secret_randomness import SecretRandomness
from gossamer.privacy.mechanisms import (
    BatchSampling,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    Mechanism,
    NeighboringRelation,
    NoNoise,
    Poisson,
    WithReplacement,
)
from gossamer.privacy.tasks import Gradient, Query, Round, StepSizes, Swap
from gossamer.sides.ledger import MemoryLedger
from gossamer.sides.pool import Pool
from gossamer.sides.sums import DrawnTurns, Rounding, round_sum
from gossamer.vectors import Coordinates, Part, Public, Released

N, FEATURES = 12, 4
ADD_OR_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE


def data(count: int = N) -> Split:
    generator = np.random.default_rng(3)
    return Split(generator.normal(0, 2, (count, FEATURES)).astype(np.float32), np.arange(count) % 3)


def linear(l2: float = 0.0, dtype: type = np.float32) -> LinearModel:
    return LinearModel("softmax", FEATURES, 3, l2=l2, dtype=np.dtype(dtype))


def deployed(objective: Objective, policy: Any = None, examples: Split | None = None, **options: Any) -> Pool:
    examples = data() if examples is None else examples
    return pools.deployed(objective, examples, pools.ledger(policy), **options)


def simulated(objective: Objective, seed: int = 1) -> Pool:
    return pools.simulated({"a": np.arange(N)}, objective, data(), seed)


def gradient(
    objective: Objective, law: Mechanism, sampling: BatchSampling | None = None, number: int = 1, **query: Any
) -> Gradient:
    model = Public(np.linspace(-1, 1, objective.size).astype(objective.dtype))
    return Gradient(number, model, Query(sampling or Poisson(1.0), law, 5.0, **query))


def a_round(
    objective: Objective, law: Mechanism, sampling: BatchSampling | None = None, update: str = "batch", **changes: Any
) -> Round:
    model = Public(np.linspace(-1, 1, objective.size).astype(objective.dtype))
    task = Round(1, (Swap(0, model),), Query(sampling or Poisson(1.0), law, 1.0), N, N, StepSizes(0.3), update)
    return replace(task, **changes)


def answer(side: Any, task: Gradient | Round) -> np.ndarray:
    (found,) = side.compute([side.admit("a", task)])
    assert type(found.released) is Released
    return np.asarray(found.released.values)


class Counting(Objective):
    """Every gradient is (1, 0, 0), whatever the example; calls are noted."""

    size, dtype, parts, l2 = 3, np.dtype(np.float32), (Part("weight", (3,)),), 0.0

    def __init__(self) -> None:
        self.calls: list[int] = []

    def initial(self, generator: np.random.Generator) -> FloatArray:
        return np.zeros(3, np.float32)

    def clipped_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: Clip
    ) -> Gradients:
        self.calls += [len(batch) for batch in batches]
        sums = np.array([[len(batch), 0, 0] for batch in batches], np.float32)
        return Gradients(sums, np.array([len(b) // 4 for b in batches]), np.array([len(b) // 2 for b in batches]))

    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
        raise NotImplementedError


# Parity: without noise, and with every example in the sample, the two sides have the same numbers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_noise_a_gradient_is_that_of_the_simulated_side(dtype: type) -> None:
    for sampling, query in itertools.product(
        [Poisson(1.0), FixedSize(N, N)], [{}, {"count_share": 0.2, "unit": 3.0}, {"unit": 0.5}]
    ):
        objective = linear(0.1, dtype)
        task = gradient(objective, NoNoise(0.5), sampling, **query)
        found, expected = answer(deployed(objective), task), answer(simulated(objective), task)
        assert found.dtype == expected.dtype == dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("update", ["batch", "clipped_sum", "sequential"])
@pytest.mark.parametrize("where", [Coordinates(), Coordinates(1, 3)], ids=["all", "a third"])
def test_without_noise_a_round_is_that_of_the_simulated_side(update: str, where: Coordinates) -> None:
    """At one step, so that the order in which examples are drawn does not matter; sequential steps have one example."""
    examples = data(1)
    objective = linear(0.1, np.float64)
    task = a_round(objective, NoNoise(0.5), update=update, where=where, steps=1, until=1)
    expected = answer(pools.simulated({"a": [0]}, objective, examples, 1), task)
    np.testing.assert_array_equal(answer(deployed(objective, examples=examples), task), expected)


def test_a_round_of_many_steps_sums_every_example_once() -> None:
    objective = linear(0.1, np.float64)
    task = a_round(objective, NoNoise(0.5))
    expected = answer(simulated(objective), task)  # constant steps at one model: in any order the same sum
    np.testing.assert_allclose(answer(deployed(objective), task), expected, rtol=1e-12)


def test_without_a_clip_an_overflow_saturates() -> None:
    examples = Split(np.ones((2, 1), np.float32), np.full(2, 3e38))  # gradients of -3e38
    objective = LinearModel("squared", 1, None, intercept=False)
    task = gradient(objective, NoNoise(math.inf))
    side = pools.simulated({"a": [0, 1]}, objective, examples, 1)
    found = answer(deployed(objective, examples=examples), task)
    np.testing.assert_array_equal(found, answer(side, task))
    assert found[0] == -np.finfo(np.float32).max / np.float32(5)


def test_a_noisy_answer_out_of_range_saturates() -> None:
    """In float64 it is not out of range, in float32 it is."""
    objective = linear()
    task = replace(gradient(objective, Gaussian(1e9, 1.0)), query=Query(Poisson(1.0), Gaussian(1e9, 1.0), 1e-35))
    found = answer(deployed(objective), task)
    assert np.isfinite(found).all()
    assert (np.abs(found) == np.finfo(np.float32).max).any()


def test_what_was_not_finite_is_counted() -> None:
    side = deployed(Counting(), examples=data(9))
    (found,) = side.compute([side.admit("a", gradient(Counting(), NoNoise()))])
    assert found.not_finite == 2


# Charge, then answer, once


def test_what_is_charged_is_the_kind_that_was_planned() -> None:
    objective = linear()
    law, rounds = Gaussian(2.0, 1.5), a_round(objective, Gaussian(0.1, 0.7), Poisson(0.25))
    side = deployed(objective)
    tasks = [gradient(objective, law, Poisson(0.3)), gradient(objective, law, Poisson(0.3), count_share=0.1), rounds]
    for task in tasks:
        answer(side, task)
    assert side.sides["a"].ledger.counts == {tasks[0].release: 2, rounds.release: 1}
    assert tasks[0].release.mechanism == Gaussian(1.0, 1.5)
    assert side.releases("a") == 3


def test_what_the_ledger_refuses_is_not_computed() -> None:
    objective = Counting()
    task = gradient(objective, Gaussian(1.0, 1.0))
    side = deployed(objective, ReleasePlan({task.release: 1}))
    answer(side, task)
    computed = list(objective.calls)
    with pytest.raises(BudgetSpent, match="the plan covers 1 release of"):
        side.admit("a", task)
    with pytest.raises(BudgetSpent, match="not in the plan"):
        side.admit("a", gradient(objective, Gaussian(1.0, 0.5)))
    assert objective.calls == computed != []


def test_the_charge_comes_before_sample_and_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def spy(cls: type, name: str) -> None:
        original = getattr(cls, name)

        def observed(self: Any, *args: Any) -> Any:
            order.append(name)
            return original(self, *args)

        monkeypatch.setattr(cls, name, observed)

    spy(MemoryLedger, "charge")
    spy(Poisson, "draw")
    spy(SecretRandomness, "words")
    answer(deployed(linear()), gradient(linear(), Gaussian(1.0, 1.0), Poisson(0.5)))
    assert order[:2] == ["charge", "draw"]
    assert order[-1] == "words"


def test_a_crash_after_the_charge_leaves_it_and_the_next_answer_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends between the noise and the answer: what was drawn is nowhere, and the charge stands."""
    objective, drawn = linear(), []
    task = gradient(objective, Gaussian(1.0, 1.0))
    ledger = pools.ledger(ReleasePlan({task.release: 2}))
    side = pools.deployed(objective, data(), ledger)
    original = SecretRandomness.words

    def killed(self: SecretRandomness, count: int) -> Any:
        drawn.append(original(self, count))
        raise SystemExit

    ticket = side.admit("a", task)
    with monkeypatch.context() as patched:
        patched.setattr(SecretRandomness, "words", killed)
        with pytest.raises(SystemExit):
            side.compute([ticket])
    assert ledger.releases == 1
    restarted = pools.deployed(objective, data(), ledger)
    monkeypatch.setattr(SecretRandomness, "words", lambda self, count: drawn.append(original(self, count)) or drawn[-1])
    answer(restarted, task)
    assert ledger.releases == 2
    words = np.concatenate(drawn)
    assert len(np.unique(words)) == len(words)  # 64 bits each: a chance of 1e-15 otherwise
    with pytest.raises(BudgetSpent):
        restarted.admit("a", task)


@pytest.mark.parametrize("task", [gradient(linear(), Gaussian(1.0, 1.0)), a_round(linear(), Gaussian(1.0, 1.0))])
def test_a_charge_is_answered_once(task: Gradient | Round) -> None:
    side = deployed(linear())
    ticket = side.admit("a", task)
    side.compute([ticket])
    with pytest.raises(SpecError, match="a charge is answered once, found task 1 of a again"):
        side.compute([ticket])
    other = side.admit("a", task)
    with pytest.raises(SpecError, match="answered once"):
        side.compute([other, other])
    assert side.releases("a") == 2


def test_an_amended_round_is_the_same_charge() -> None:
    side, task = deployed(linear()), a_round(linear(), Gaussian(1.0, 1.0))
    ticket = side.admit("a", task)
    amended = side.amended(ticket, task.cut(3))
    side.compute([amended])
    with pytest.raises(SpecError, match="answered once"):
        side.compute([ticket])
    with pytest.raises(SpecError, match="another round"):
        side.amended(side.admit("a", task), replace(task, id=9))


def test_a_round_that_is_cut_sums_what_was_reached() -> None:
    objective = Counting()
    side = deployed(objective)
    ticket = side.admit("a", a_round(objective, NoNoise(1.0)))
    (found,) = side.compute([side.amended(ticket, a_round(objective, NoNoise(1.0)).cut(0))])
    np.testing.assert_array_equal(found.released.values, [0, 0, 0])


def test_step_sizes_that_a_round_does_not_allow_are_not_charged() -> None:
    side = deployed(linear())
    rising = StepSizes(0.1, -0.05, 1.0, 0.0, 1.0)
    with pytest.raises(SpecError, match="no step of a batch round is larger"):
        side.admit("a", a_round(linear(), Gaussian(1.0, 1.0), step_sizes=rising))
    assert side.releases("a") == 0


# Noise


def test_an_answer_is_a_multiple_of_the_grid_over_the_normaliser() -> None:
    """In float64 nothing is lost: 5 times the answer is a whole number of steps, up to the division."""
    objective = linear(dtype=np.float64)
    side, task = deployed(objective), gradient(objective, Gaussian(1.0, 1.0))
    ticket = side.admit("a", task)
    assert ticket.provided.grid is not None
    (found,) = side.compute([ticket])
    steps = found.released.values * 5.0 / ticket.provided.grid.noise.step
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
    assert np.abs(steps).max() > 1e3


def test_noise_has_the_spread_of_the_law_on_the_sum() -> None:
    """20,000 coordinates of sum and count, on an empty sample: false alarm 1e-6 each."""
    objective = LinearModel("squared", 499, None, dtype=np.dtype(np.float64))
    examples = Split(np.zeros((N, 499), np.float32), np.zeros(N))
    side = deployed(objective, examples=examples)
    law, share = Gaussian(0.4, 1.7), 0.3
    task = gradient(objective, law, Poisson(1e-12), count_share=share)
    found = 5.0 * np.stack([answer(side, task) for _ in range(40)])
    on_sum = found[:, :500].ravel() / (law.standard_deviation / math.sqrt(1 - share))
    assert stats.kstest(on_sum, stats.norm.cdf).pvalue > 1e-6
    counts = 5.0 * np.array([answer(side, task)[-1] for _ in range(400)]) / (1.7 / (2 * math.sqrt(share)))
    assert stats.kstest(counts, stats.norm.cdf).pvalue > 1e-6


def test_samples_are_drawn_for_every_release() -> None:
    """Of 4,000 samples at rate 0.5, sizes follow the binomial law: false alarm about 1e-8, with a rare size or two."""
    objective = Counting()
    side = deployed(objective)
    for _ in range(4000):
        answer(side, gradient(objective, NoNoise(), Poisson(0.5)))
    counts = np.bincount(objective.calls, minlength=N + 1)
    expected = 4000 * stats.binom.pmf(np.arange(N + 1), N, 0.5)  # the rarest is expected once
    assert float(((counts - expected) ** 2 / expected).sum()) < stats.chi2.isf(1e-9, N)


@pytest.mark.parametrize("law", [L2Laplace(1.0, 0.5, ADD_OR_REMOVE), Laplace(1.0, 3.0)])
def test_other_laws_have_their_spread_too(law: L2Laplace | Laplace) -> None:
    """Mean squares of 300 answers within 6 standard errors."""
    objective = linear(dtype=np.float64)
    side, task = deployed(objective), gradient(linear(), law, Poisson(1e-12))
    assert side.admit("a", task).provided.grid is None
    squares = [float((5.0 * answer(side, task) ** 2).sum()) * 5.0 for _ in range(300)]
    error = np.std(squares) / math.sqrt(len(squares))
    assert abs(np.mean(squares) - law.second_moment(objective.size)) < 6 * error


def test_two_sides_share_nothing() -> None:
    task = gradient(linear(), Gaussian(1.0, 1.0))
    sides = [deployed(linear()) for _ in range(2)]
    found = [answer(side, task) for side in sides for _ in range(2)]
    assert len({each.tobytes() for each in found}) == 4


@pytest.mark.parametrize("multiplier", [1e-12, 1e9])
def test_noise_that_cannot_be_drawn_is_refused_before_the_run(multiplier: float) -> None:
    query = gradient(linear(), Gaussian(1.0, multiplier)).query
    with pytest.raises(SpecError, match="times the clip"):
        deployed(linear(), planned=[query])
    side = deployed(linear())
    with pytest.raises(SpecError, match="times the clip"):
        side.admit("a", gradient(linear(), Gaussian(1.0, multiplier)))
    assert side.releases("a") == 0


def test_a_part_of_the_coordinates_has_noise_of_its_own_size() -> None:
    side, task = deployed(linear()), a_round(linear(), Gaussian(0.5, 1.0), where=Coordinates(1, 3))
    ticket = side.admit("a", task)
    assert ticket.provided.grid is not None
    (found,) = side.compute([ticket])
    assert found.released.size == task.answer_size == ticket.provided.grid.noise.size == 5
    assert task.release.size == linear().size


def test_noise_that_another_clip_would_put_out_of_range_is_refused_before_the_run_too() -> None:
    """The largest multiplier that is drawn at clip 1, of 2,000: at another one it would take twice the steps."""
    side, largest = deployed(linear()), 0.0
    for multiplier in np.geomspace(1e3, 1e9, 2000).tolist():
        try:
            side.admit("a", gradient(linear(), Gaussian(1.0, multiplier)))
        except SpecError:
            break
        largest = multiplier
    with pytest.raises(SpecError, match="too much for a grid"):
        deployed(linear(), planned=[gradient(linear(), Gaussian(1.0, largest)).query])


# Sums in pieces


def test_a_large_batch_is_added_in_pieces_where_there_is_noise() -> None:
    objective, count = Counting(), 3000
    side = deployed(objective, examples=Split(np.zeros((count, 1), np.float32), np.zeros(count)))
    ticket = side.admit("a", gradient(objective, Gaussian(1.0, 1e-4), FixedSize(count, count), count_share=0.5))
    (found,) = side.compute([ticket])
    assert sum(objective.calls) == count
    assert max(objective.calls) <= ticket.provided.rounding.piece < 100
    unclipped = sum(size // 2 for size in objective.calls)
    expected = np.array([count, 0, 0, unclipped - count / 2]) / 5.0
    np.testing.assert_allclose(found.released.values, expected, atol=0.01)
    assert found.not_finite == sum(size // 4 for size in objective.calls)
    objective.calls.clear()
    answer(side, gradient(objective, NoNoise(), FixedSize(count, count)))
    assert objective.calls == [count]


def test_the_steps_of_a_round_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch of fixed size each step has one example, in another order every time (12! of them)."""
    objective, seen = linear(), []

    def watched(task: Round, turns: DrawnTurns, *rest: Any) -> Any:
        seen.append(turns)
        return round_sum(task, turns, *rest)

    monkeypatch.setattr("gossamer.sides.sums.round_sum", watched)
    side = deployed(objective)
    for _ in range(2):
        answer(side, a_round(objective, Gaussian(0.3, 1.0), FixedSize(N, N)))
    assert [sorted(turns.slots.tolist()) for turns in seen] == [list(range(N))] * 2
    assert [sorted(turns.rows.tolist()) for turns in seen] == [list(range(N))] * 2
    assert seen[0].slots.tolist() != seen[1].slots.tolist()


def test_a_round_in_pieces_is_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little noise, and pieces of two examples: what is answered is the sum of all, with the regulariser once."""
    objective, sizes = linear(0.2, np.float64), []

    def watched(task: Round, turns: DrawnTurns, *rest: Any) -> Any:
        sizes.append(len(turns.rows))
        return round_sum(task, turns, *rest)

    monkeypatch.setattr("gossamer.sides.sums.round_sum", watched)
    monkeypatch.setattr("gossamer.sides.sums.SMALLEST_PIECE", 2)
    monkeypatch.setattr("gossamer.sides.sums.SHARE", 0.0)
    side = deployed(objective)
    found = answer(side, a_round(objective, Gaussian(0.3, 1e-5), FixedSize(N, N)))
    assert sizes == [2] * 6
    whole = round_sum(a_round(objective, NoNoise(0.3)), DrawnTurns(np.arange(N), np.arange(N)), objective, data())
    np.testing.assert_allclose(found, whole.total + whole.public, atol=1e-3)
    sizes.clear()
    answer(side, a_round(objective, Gaussian(0.3, 1e-5), FixedSize(N, N), "clipped_sum"))
    answer(side, a_round(objective, NoNoise(0.3), FixedSize(N, N)))
    assert sizes == [N, N]  # steps that depend on each other, and a sum that nothing is proved of


@pytest.mark.parametrize("update", ["batch", "clipped_sum"])
def test_no_example_of_a_round_moves_what_gets_the_noise_by_more_than_it_covers(update: str) -> None:
    """Any one of 12 examples removed, or 3 random ones in turn, in float32, with the same turns for all others."""
    objective, generator, largest = linear(), np.random.default_rng(1), 0.0
    side = deployed(objective)
    task = a_round(objective, Gaussian(0.3, 1.0), Poisson(0.5), update)
    ticket = side.admit("a", task)
    whole = Rounding.of_clipped_sum(objective)
    assert ticket.provided.rounding == (whole if update == "clipped_sum" else Rounding.of(objective, Poisson(0.5), N))
    assert ticket.provided.grid is not None
    noise = ticket.provided.grid.noise
    for _ in range(10):
        turns = DrawnTurns(generator.permutation(N), generator.integers(0, N, N))
        here = noise.rounded(round_sum(task, turns, objective, data()).total)
        for left in range(N):
            rest = DrawnTurns(np.delete(turns.rows, left), np.delete(turns.slots, left))
            there = noise.rounded(round_sum(task, rest, objective, data()).total)
            moved = float(np.linalg.norm((here - there).astype(float))) * noise.step
            assert moved <= noise.sensitivity(ADD_OR_REMOVE)
            largest = max(largest, moved)
    assert largest > (0.299 if update == "batch" else 0.01)


def test_with_replacement_nothing_is_proved_and_all_is_computed() -> None:
    objective = Counting()
    task = a_round(objective, NoNoise(1.0), WithReplacement(N, N), "sequential")
    assert np.isfinite(answer(deployed(objective), task)).all()
