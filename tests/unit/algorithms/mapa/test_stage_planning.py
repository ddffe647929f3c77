"""Stages to their ends: how many updates they make, whom these are charged to, and what cannot be planned."""

from __future__ import annotations

import pytest

from gossamer.algorithms.mapa.stages import (
    Problem,
    gaussian_epsilon,
    gaussian_second_moment,
    plan_stages,
)
from gossamer.errors import AccountingError, SpecError
from gossamer.privacy.mechanisms import NeighboringRelation, Poisson

ADD_OR_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
BY_THE_BOOK = Problem(gradient_sd=1.0, smoothness=1e-5, loss_gap=1.0, staleness=2, batch_size=50)
SIZE, FIRST, DELTA = 100, 0.02, 1e-5
FULL = Poisson(1.0)


def test_a_plan_adds_up_and_is_shared_by_nodes_in_turn():
    moment = gaussian_second_moment(SIZE, 2.0, 50)
    plan = plan_stages(BY_THE_BOOK, moment, 3, nodes=7, clip=FIRST)
    assert plan.updates == sum(stage.updates for stage in plan.stages)
    assert 7 * plan.releases - (plan.updates + 6) in range(7)  # six more are under way at the end
    assert plan_stages(BY_THE_BOOK, moment, 3, clip=FIRST).releases == plan.updates


def test_what_cannot_be_planned_gets_one_line():
    moment = gaussian_second_moment(SIZE, 2.0, 50)
    with pytest.raises(SpecError, match=r"stage \d+ would take more than 2\^63 - 1 updates; plan at most \d+ stages"):
        plan_stages(BY_THE_BOOK, moment, 50)
    with pytest.raises(SpecError, match=r"stage 1 would .*; give less noise or a larger initial clip"):
        plan_stages(BY_THE_BOOK, moment, 1, clip=1e-9)
    with pytest.raises(AccountingError, match=r"at most 10\^9 releases, found 1000000001"):
        gaussian_epsilon(10**9 + 1, 1.0, DELTA, ADD_OR_REMOVE, FULL)
