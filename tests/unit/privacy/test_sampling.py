"""Sampling schemes: what they draw, when the examples of a round take their turns, and what is not proved."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer.errors import AccountingError, SpecError
from gossamer.privacy.accounting.accountants import ROWS, epsilon
from gossamer.privacy.mechanisms import (
    BatchSampling,
    FixedSize,
    Gaussian,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
    WithReplacement,
)
from gossamer.privacy.tasks import Round as Round  # registers the schemes
from gossamer.protocol.encoding import decode, encode
from gossamer.randomness import stream

SCHEMES = [Poisson, FixedSize, WithReplacement]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_of_a_batch_draws_it(scheme: type[BatchSampling]) -> None:
    expected = {Poisson: Poisson(0.3), FixedSize: FixedSize(10, 3), WithReplacement: WithReplacement(10, 3)}
    found = scheme.of_batch(10, 3)
    assert found == expected[scheme]
    assert decode(encode(found)) == found


def test_only_schemes_with_an_accountant_are_called_proved() -> None:
    with_row = {row.sampling for row in ROWS}
    assert {scheme for scheme in SCHEMES if scheme.proved} == with_row
    assert "proved" not in Poisson(0.5).describe()


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_no_epsilon_is_given_for_draws_with_replacement(relation: NeighboringRelation) -> None:
    kind = ReleaseKind(Gaussian(1.0, 2.0), WithReplacement(100, 10), 5)
    with pytest.raises(AccountingError, match="no accountant here is proved for Gaussian on WithReplacement batches"):
        epsilon({kind: 1}, 1e-5, relation)


def test_draws_with_replacement_are_independent_and_of_the_whole_shard() -> None:
    """1,000 of 3: each about 333 times (5 sd: 75); of two neighbouring draws both are equal 1 time in 3 (5 sd: 75)."""
    drawn = WithReplacement(3, 1000).draw(stream(4), 3)
    assert drawn.dtype == np.int64
    assert np.abs(np.bincount(drawn, minlength=3) - 1000 / 3).max() < 75
    assert abs(np.sum(drawn[1:] == drawn[:-1]) - 999 / 3) < 75


def test_the_rate_with_replacement_is_that_of_being_drawn_at_all() -> None:
    """1 - (1 - 1/2)^3 of two examples and three draws."""
    assert WithReplacement(2, 3).rate == pytest.approx(7 / 8)


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0)])
def test_draws_with_replacement_need_examples(sizes: tuple[int, int]) -> None:
    with pytest.raises(SpecError, match="must be a whole number > 0"):
        WithReplacement(*sizes)


def test_draws_with_replacement_are_of_the_shard_they_were_planned_for() -> None:
    with pytest.raises(SpecError, match="the shard holds 5 examples"):
        WithReplacement(4, 2).draw(stream(0), 5)


def test_a_poisson_example_may_take_its_turn_at_any_step() -> None:
    slots = Poisson(0.5).slots(stream(3), 1000, 4)
    assert set(slots.tolist()) == {0, 1, 2, 3}
    assert slots.dtype == np.int64
    assert len(Poisson(0.5).slots(stream(3), 0, 4)) == 0


def test_a_fixed_batch_fills_every_step_once_in_random_order() -> None:
    orders = {tuple(FixedSize(9, 3).slots(stream(number), 3, 3).tolist()) for number in range(100)}
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert len(orders) == 6  # one of six orders is missing with probability 6 (5/6)^100 = 7e-8


def test_draws_with_replacement_take_turns_in_the_order_drawn() -> None:
    np.testing.assert_array_equal(WithReplacement(9, 3).slots(stream(0), 3, 3), [0, 1, 2])


@pytest.mark.parametrize("sampling", [FixedSize(9, 3), WithReplacement(9, 3)])
def test_a_fixed_batch_takes_as_many_steps_as_it_has_examples(sampling: BatchSampling) -> None:
    with pytest.raises(SpecError, match="one step for each example"):
        sampling.slots(stream(0), 3, 4)
