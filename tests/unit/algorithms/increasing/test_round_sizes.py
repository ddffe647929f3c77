"""How many gradients each client computes in each round, against the paper's formulas by hand."""

from __future__ import annotations

import math
import pickle
from collections import Counter

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from gossamer.algorithms.increasing.settings import (
    MOST_ROUNDS,
    MOST_STEPS,
    ConstantSizes,
    LogSizes,
    PowerSizes,
    PrivacySizes,
    PublicRounds,
    Settings,
    Sizes,
    TheorySizes,
    check_sizes,
)
from gossamer.errors import SpecError

ADAPTER: TypeAdapter[Sizes] = TypeAdapter(Sizes)


def shards(*examples):
    return {f"client-{c}": size for c, size in enumerate(examples)}


def rounds_of(schedule, *examples, weights="equal", counts="rounded", seed=0):
    chosen = Settings().model_copy(update={"sizes": schedule, "weights": weights, "counts": counts})
    return PublicRounds(chosen, shards(*(examples or (10**9,))), seed)


def totals(schedule, rounds, *examples):
    sizes = rounds_of(schedule, *examples)
    return [sizes.total(i) for i in range(rounds)]


def test_a_number_is_a_constant():
    for value in (250, 250.0, "250"):
        assert ADAPTER.validate_python(value) == ConstantSizes(size=250)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (ConstantSizes(size=7), [7, 7, 7]),
        (ConstantSizes(size=6.2), [7, 7, 7]),
        (PowerSizes(a=50), [1, 50, 100, 150]),  # 0 at i = 0, and every client takes a step
        (PowerSizes(a=50, b=3), [3, 53, 103]),
        (PowerSizes(a=50, c=0), [50, 50, 50]),  # 0^0 = 1
        (PowerSizes(a=3, c=0.5, b=1), [1, 4, 6, 7]),  # 1, 4, 5.24, 6.196
        (PowerSizes(a=2, c=3), [1, 2, 16, 54]),
        # e, e, e, 3/ln 3 = 2.731, 4/ln 4 = 2.885, times 10
        (LogSizes(a=10), [28, 28, 28, 28, 29]),
        (LogSizes(a=10, b=0.9), [29, 29, 29, 29, 30]),  # 28.08, 28.08, 28.08, 28.21, 29.75
    ],
)
def test_schedules_by_hand(schedule, expected):
    assert totals(schedule, len(expected)) == expected


def test_theory_by_hand():
    """m = 999, d = 1: (1000 + i)/64/ln((1000 + i)/4), 15.625/5.5215 = 2.8299 at i = 0.

    At i = 99: 17.171875/ln(274.75) = 17.171875/5.61586 = 3.0577. At i = 79: 16.859375/5.59749 = 3.01196.
    At i = 74: 16.78125/5.59285 = 3.00048; at i = 73: 16.765625/5.59191 = 2.99819.
    """
    sizes = rounds_of(TheorySizes(m=999, d=1))
    assert [sizes.total(i) for i in (0, 73, 74, 79, 99)] == [3, 3, 4, 4, 4]


def test_theory_of_another_g_by_hand():
    """g = 3, gamma = 2, d = 0, m = 99: S(100) = sqrt(66.667/(2 1.5 ln 66.667)) = sqrt(66.667/12.5991) = 2.30029.

    d = 1: x = 50, S(50)/2 = sqrt(33.333/(3 ln 33.333))/2 = sqrt(33.333/10.5197)/2 = 0.89003.
    """
    assert TheorySizes(m=99, d=0, g=3, gamma=2).at(np.zeros(1))[0] == pytest.approx(2.30029, abs=1e-5)
    assert TheorySizes(m=99, d=1, g=3, gamma=2).at(np.zeros(1))[0] == pytest.approx(0.89003, abs=1e-5)


@pytest.mark.parametrize(("g", "gamma"), [(1.25, 0.2), (1.5, 4), (2, 4), (3, 1), (7, 30)])
def test_theory_is_lemma_b_3_word_for_word(g, gamma):
    """S(x) = (x/omega(x) (g - 1)/g)^(1/(g - 1)) with omega(x) = gamma((x (g - 1)/g)^(g/(g - 1)))."""

    def below(z):
        return gamma * math.log(max(z, math.exp(g / (g - 1))))

    def share(x):
        omega = below((x * (g - 1) / g) ** (g / (g - 1)))
        return (x / omega * (g - 1) / g) ** (1 / (g - 1))

    expected = [share((60 + i + 1) / 3) / 3 for i in range(50)]
    assert TheorySizes(m=60, d=2, g=g, gamma=gamma).at(np.arange(50.0)).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("d", "g"), [(0, 2), (1, 2), (2, 2), (7, 2), (1, 1.25), (1, 3), (3, 16)])
def test_theory_is_refused_exactly_where_its_formula_falls(d, g):
    """x/ln(x/2) with x = (m + 1 + i)/(d + 1) falls until x = 2 e: so m + 1 >= 2 e (d + 1); 2 is g/(g - 1)."""
    least = min(m for m in range(200) if (m + 1) / (d + 1) >= g / (g - 1) * math.e)
    real = TheorySizes(m=least, d=d, g=g).at(np.arange(3000.0))
    assert (np.diff(real) > 0).all()
    before = (least - 1 + 1) / (d + 1)
    assert before < g / (g - 1) * math.e
    with pytest.raises(SpecError, match=rf" e \(d \+ 1\) - 1, which is {least} for d = {d}, found {least - 1}"):
        TheorySizes(m=least - 1, d=d, g=g)


def test_a_gamma_below_one_is_refused():
    """gamma(z) >= 1 at all z: gamma g/(g - 1) >= 1."""
    TheorySizes(m=50, g=3, gamma=2 / 3)
    with pytest.raises(SpecError, match=r"gamma must be at least 1 - 1/g, found 0\.66 with g = 3; raise gamma"):
        TheorySizes(m=50, g=3, gamma=0.66)


@pytest.mark.parametrize(("d", "s_0"), [(0, 25), (1, 13), (2, 9)])
def test_the_papers_example_of_a_first_size(d, s_0):
    """ "s_0 = 50 corresponds to m = 2(d + 1) 1450" (C.2.2). No: s_0 = ceil((2900 + 1/(d + 1))/(16 (d + 1) 7.2797))."""
    assert totals(TheorySizes(m=2 * (d + 1) * 1450, d=d), 1) == [s_0]


def test_privacy_sizes_of_example_3():
    """N_c = 10,000 and N_c q m = 16, N_c q = 1.3216: 16, 17.3216, 18.6432, 19.9648, 21.2864."""
    q = 1.3216e-4
    for m in (16 / 1.3216, np.nextafter(16 / 1.3216, 99), np.nextafter(16 / 1.3216, 0)):
        sizes = rounds_of(PrivacySizes(q=q, m=m), 10_000, 10_000)
        assert [sizes.sizes(i) for i in range(5)] == [(16, 16), (18, 18), (19, 19), (20, 20), (22, 22)]


def test_privacy_sizes_go_with_the_shard():
    """q (i + m)^p = 0.01 (i + 4)^0.5: 0.02, 0.02236, 0.024495."""
    sizes = rounds_of(PrivacySizes(q=0.01, m=4, p=0.5), 1000, 500, 10)
    assert [sizes.sizes(i) for i in range(3)] == [(20, 10, 1), (23, 12, 1), (25, 13, 1)]
    assert [sizes.total(i) for i in range(3)] == [31, 36, 39]
    assert sizes.of("client-1", 1) == 12


def test_rounding_up_forgives_rounding_only():
    """0.1 * 30 is 3.0000000000000004 in floating point, and 3 is meant; 3.000001 is 4."""
    assert totals(PowerSizes(a=0.1), 31)[30] == 3
    assert totals(PowerSizes(a=0.1, b=1e-6), 31)[30] == 4
    assert totals(PowerSizes(a=0.1, b=1e-10), 31)[30] == 3
    assert totals(ConstantSizes(size=3e5 + 1e-4), 1) == [300_000]
    assert totals(ConstantSizes(size=1e-12), 1) == [1]
    assert totals(ConstantSizes(size=3e10), 1) == [30_000_000_000]


@pytest.mark.parametrize(
    ("weights", "examples", "s", "expected"),
    [
        ("equal", (10, 20, 30, 40), 40, (10, 10, 10, 10)),
        ("equal", (10, 20, 30, 40), 41, (10, 10, 10, 10)),
        ("equal", (10, 20, 30, 40), 42, (11, 11, 11, 11)),  # 10.5, up
        ("equal", (10, 20, 30, 40), 46, (12, 12, 12, 12)),  # 11.5, up as well
        ("equal", (10, 20, 30, 40), 1, (1, 1, 1, 1)),
        ("shards", (10, 20, 30, 40), 50, (5, 10, 15, 20)),
        ("shards", (40, 20, 30, 10), 4, (2, 1, 1, 1)),  # 1.6, 0.8, 1.2, 0.4
        ((0.5, 0.25, 0.125, 0.125), (10, 20, 30, 40), 20, (10, 5, 3, 3)),
    ],
)
def test_rounded_shares(weights, examples, s, expected):
    sizes = rounds_of(ConstantSizes(size=s), *examples, weights=weights)
    assert sizes.sizes(0) == sizes.sizes(12) == expected
    assert tuple(sizes.of(name, 3) for name in shards(*examples)) == expected
    assert sizes.total(0) == sum(expected)
    assert sizes.before(9) == 9 * sum(expected)


@pytest.mark.parametrize("counts", ["rounded", "coins"])
def test_sums_are_those_of_the_steps_that_are_done(counts):
    sizes = rounds_of(PowerSizes(a=3, c=1.5, b=2), 50, 100, 200, 200, weights="shards", counts=counts)
    done = 0
    for i in range(300):
        assert sizes.before(i) == done
        assert sizes.total(i) == sum(sizes.sizes(i))
        done += sum(sizes.sizes(i))
        if i in (0, 1, 70, 299):
            for gradients in (done - 1, done, done + 1):
                assert sizes.rounds_for(gradients) == i + 1 + (gradients > done)
    assert sizes.rounds_for(0) == 0


def test_sums_across_blocks_of_a_large_federation():
    """1,000 shards of distinct sizes: 2,000 rounds do not fit in one block of 2^20 sizes."""
    examples = range(1000, 2000)
    sizes = rounds_of(PowerSizes(a=50, b=1000), *examples, weights="shards")
    expected = 0
    weights = np.array(examples) / sum(examples)
    for i in range(2000):
        expected += int(np.maximum(np.floor((50 * i + 1000) * weights + 0.5), 1).sum())
    assert sizes.before(2000) == expected
    assert sizes.rounds_for(expected) == 2000
    assert sizes.rounds_for(expected + 1) == 2001


def test_coins_have_the_weights():
    """Each s_ic is Binomial(1000, p_c): a chi-square of 200 rounds' sums, refused once in a million seeds.

    With the weights of the first two clients exchanged the statistic is above 10,000.
    """
    weights = (0.1, 0.2, 0.7)
    sizes = rounds_of(ConstantSizes(size=1000), 1, 1, 1, weights=weights, counts="coins")
    drawn = np.array([sizes.sizes(i) for i in range(200)])
    assert (drawn.sum(axis=1) == 1000).all()
    assert stats.chisquare(drawn.sum(axis=0), 200_000 * np.array(weights)).pvalue > 1e-6
    # And they are thrown anew each round, one at a time: the variance of s_ic is 1000 p (1 - p).
    variance = drawn.var(axis=0, ddof=1) / (1000 * np.array(weights) * (1 - np.array(weights)))
    assert (np.abs(variance - 1) < 5 * math.sqrt(2 / 199)).all()


def test_coins_do_not_depend_on_who_asks_when():
    schedule = PowerSizes(a=3, b=5)
    forwards, backwards = (rounds_of(schedule, 10, 20, 30, counts="coins", seed=3) for _ in range(2))
    there = [forwards.sizes(i) for i in range(400)]
    backwards.before(7)
    assert [backwards.sizes(i) for i in reversed(range(400))] == there[::-1]
    assert backwards.before(400) == sum(map(sum, there))
    other = rounds_of(schedule, 10, 20, 30, counts="coins", seed=4)
    assert [other.sizes(i) for i in range(400)] != there


def test_everybody_takes_a_step():
    sizes = rounds_of(ConstantSizes(size=2), *[10] * 6, counts="coins")
    assert all(min(sizes.sizes(i)) == 1 for i in range(50))
    assert all(sizes.total(i) >= 6 for i in range(50))


def test_sizes_travel():
    sizes = rounds_of(PowerSizes(a=2), 10, 20, counts="coins")
    before = sizes.before(50)
    assert pickle.loads(pickle.dumps(sizes)).before(50) == before


def test_schedules_stop_growing_before_they_cannot_be_counted():
    for schedule in (PowerSizes(a=1e11, c=4, b=1e11), PrivacySizes(q=1, m=1, p=1e3)):
        sizes = rounds_of(schedule, 10, 10)
        assert sizes.total(5) == MOST_STEPS
        assert sizes.total(MOST_ROUNDS) == MOST_STEPS
        assert sizes.rounds_for(10**15) == 10**15 // MOST_STEPS + (sizes.total(0) < MOST_STEPS)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ((0.5, 0.5), "expected one a client, 3 in all, found 2"),
        ((0.5, 0.3, 0.1), r"expected positive numbers with a sum of 1, found 0.5, 0.3, 0.1 with a sum of 0.9; divide"),
        ((0.5, 0.5, 2e-6), "sum of 1.000002"),
        ((0.5, 0.7, -0.2), "expected positive numbers"),
        ((0.5, 0.5, 0.0), "expected positive numbers"),
        ((0.5, math.nan, 0.5), "sum of nan"),
    ],
)
def test_weights_that_are_none(weights, expected):
    with pytest.raises(SpecError, match=expected):
        rounds_of(ConstantSizes(size=10), 1, 1, 1, weights=weights)


def test_weights_may_be_rounded():
    sizes = rounds_of(ConstantSizes(size=30), 1, 1, 1, weights=(0.3333334, 0.3333334, 0.3333334))
    assert sizes.sizes(0) == (10, 10, 10)
    assert math.fsum(sizes.weights) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("options", [{"counts": "coins"}, {"weights": (0.5, 0.5)}])
def test_privacy_sizes_are_not_split(options):
    with pytest.raises(SpecError, match="privacy sizes are each client's own"):
        rounds_of(PrivacySizes(q=0.01, m=1), 100, 100, **options)
    assert rounds_of(PrivacySizes(q=0.01, m=1), 100, 300, weights="shards").sizes(0) == (1, 3)


def test_too_many_rounds():
    """5 a round: 10^7 rounds make 5 10^7 gradients."""
    sizes = rounds_of(ConstantSizes(size=5), *[10] * 5)
    assert sizes.rounds_for(5 * 10**7) == 10**7
    for gradients in (5 * 10**7 + 1, 10**30):
        with pytest.raises(SpecError, match=r"within 10,000,000 rounds, found sizes that do not; raise"):
            sizes.rounds_for(gradients)
    # What cannot be is refused before ten million rounds of coins are thrown.
    with pytest.raises(SpecError, match="within 10,000,000 rounds"):
        rounds_of(ConstantSizes(size=5), *[10] * 5, counts="coins").rounds_for(10**9)


@pytest.mark.parametrize("i", [-1, MOST_ROUNDS + 1])
def test_rounds_that_are_none(i):
    sizes = rounds_of(ConstantSizes(size=5))
    for ask in (sizes.before, sizes.total, sizes.sizes, lambda i: sizes.of("client-0", i)):
        with pytest.raises(SpecError, match=f"numbered from 0 to 10,000,000, found {i}"):
            ask(i)


def test_sizes_over_the_data_set():
    """15 i/3: 5, 10, ... each; a shard of 52 examples has 50 in round 10, and 55 in round 11."""
    sizes = rounds_of(PowerSizes(a=15), 60, 52, 52)
    check_sizes(sizes, 11)
    with pytest.raises(SpecError, match=r"sizes over the data set: .* 52 steps .* client-1, .* found 55 in round 11"):
        check_sizes(sizes, 12)
    with pytest.raises(SpecError, match="in round 11"):
        check_sizes(sizes, 5000)
    check_sizes(rounds_of(PrivacySizes(q=0.1, m=1), 60, 52), 10)
    with pytest.raises(SpecError, match=r"client-0, .* found 66 in round 10"):
        check_sizes(rounds_of(PrivacySizes(q=0.1, m=1), 60, 52), 11)


def test_shards_that_just_fit():
    check_sizes(rounds_of(ConstantSizes(size=30), 10, 10, 10), 100)
    with pytest.raises(SpecError, match=r"client-2, .* found 10 in round 0; lower the sizes$"):
        check_sizes(rounds_of(ConstantSizes(size=30), 10, 10, 9), 1)


def test_coins_over_the_data_set():
    """20 coins a round on two clients with 15 examples: over 15 with a chance of 0.6 % a client and round."""
    sizes = rounds_of(ConstantSizes(size=20), 15, 15, counts="coins")
    first = next(i for i in range(100_000) if max(sizes.sizes(i)) > 15)
    check_sizes(sizes, first)
    name = f"client-{sizes.sizes(first).index(max(sizes.sizes(first)))}"
    with pytest.raises(SpecError, match=f"{name}, .* in round {first};"):
        check_sizes(sizes, first + 1000)


@pytest.mark.parametrize(
    "bad",
    [
        0,
        -3,
        "many",
        {"name": "exponential", "a": 1},
        {"name": "constant"},
        {"name": "power", "a": 1, "c": 4.1},
        {"name": "power", "a": 1, "c": -0.1},
        {"name": "power", "a": -1},
        {"name": "power", "a": 1, "b": -1},
        {"name": "power", "a": math.inf},
        {"name": "log", "a": 1, "c": 1},
        {"name": "theory", "m": 10, "d": -1},
        {"name": "privacy", "q": 0, "m": 1},
        {"name": "privacy", "q": 0.1, "m": -1},
        {"name": "privacy", "q": 0.1, "p": -1},
    ],
)
def test_what_is_no_schedule(bad):
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(bad)


def test_tallies_count_what_of_gives() -> None:
    sizes = rounds_of(PowerSizes(a=3, c=0.5, b=2), 50, 70)
    expected = Counter(sizes.of("client-1", i) for i in range(300))
    assert sizes.counts("client-1", 300) == expected
