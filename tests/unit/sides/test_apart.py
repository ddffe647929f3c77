"""Sensitivities that plans declare: by relation, by what is clipped, and none where nothing is proved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from tests.reference.leak_specs import tiny

from gossamer.algorithms.clients.nodes import NoisedUpdateAtClip
from gossamer.experiment.preparation.planning import plan_run
from gossamer.privacy.mechanisms import (
    BallGaussian,
    BatchSampling,
    FixedSize,
    Gaussian,
    L2Laplace,
    Mechanism,
    NeighboringRelation,
    NoNoise,
    Poisson,
    WithReplacement,
)
from gossamer.privacy.tasks import Gradient, Query, Round, StepSizes, Swap, TrainingQuery
from gossamer.sides.plan import ClientUpdate, MaskedMember, Samples, StreamPlan, most_drawn
from gossamer.vectors import Public

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
MODEL = Public(np.zeros(3))


def gradient(law: Mechanism, sampling: BatchSampling) -> Gradient:
    return Gradient(1, MODEL, Query(sampling, law, 2.0))


@pytest.mark.parametrize(("relation", "most"), [(ADD, 1.0), (REPLACE, 2.0)])
@pytest.mark.parametrize("law", [Gaussian(0.3, 1.0), L2Laplace(5.0, 1.0, ADD), NoNoise(7.0)])
def test_one_example_moves_a_sum_by_its_clip_or_twice_that(
    law: Mechanism, relation: NeighboringRelation, most: float
) -> None:
    found = Samples({}).apart(gradient(law, Poisson(0.5)), relation, 10)
    assert found.most == most
    assert found.noisy is law.private


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_a_sum_that_is_clipped_as_a_whole_moves_by_the_clip(relation: NeighboringRelation) -> None:
    """Two points of a ball of radius C/2 are at most C apart."""
    query = Query(Poisson(0.5), BallGaussian(0.3, 1.0), 1.0)
    task = Round(1, (Swap(0, MODEL),), query, 4, 4, StepSizes(0.1), "clipped_sum")
    assert Samples({}).apart(task, relation, 10).most == 1.0


def test_nothing_is_declared_where_nothing_is_proved() -> None:
    """An example may come twice, or change all later steps; and without a clip nothing bounds it."""
    twice = WithReplacement(10, 4)
    assert Samples({}).apart(gradient(Gaussian(1.0, 1.0), twice), REPLACE, 10).most == math.inf
    assert Samples({}).apart(gradient(NoNoise(), Poisson(0.5)), REPLACE, 10).most == math.inf
    query = Query(Poisson(0.5), NoNoise(1.0), 1.0)
    task = Round(1, (Swap(0, MODEL),), query, 4, 4, StepSizes(0.1), "sequential")
    assert Samples({}).apart(task, REPLACE, 10).most == math.inf


def test_a_client_with_other_data_moves_its_part_by_twice_the_clip_of_the_question() -> None:
    side = ClientUpdate(None, 1.0, Gaussian(1.0, 2.0), 1, 3, follows=True)
    found = side.apart(NoisedUpdateAtClip(0, MODEL, TrainingQuery(1, 2, 1.0), 0.25), REPLACE, 6)
    assert found.most == 2.0
    assert found.query is not None
    assert found.query.mechanism == Gaussian(0.25, 2.0)


@pytest.mark.parametrize("name", ["fedavg", "fedavg-trusted", "fedbuff-trusted", "audp-client"])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_a_client_with_other_data_moves_its_part_by_twice_the_clip(name: str, relation: NeighboringRelation) -> None:
    plan = plan_run(tiny(name))
    task: Any = gradient(Gaussian(1.0, 1.0), Poisson(1.0))
    found = [side.apart(task, relation, 6) for side in plan.sides.values()]
    assert {one.most for one in found if one is not None and one.noisy} == {2.0}


def test_masked_integers_move_by_what_their_noise_is_measured_against() -> None:
    sides = [side for side in plan_run(tiny("graph-secure")).sides.values() if isinstance(side, MaskedMember)]
    assert sides
    for side in sides:
        assert side.noise is not None
        assert side.apart(None, REPLACE, 6).most == pytest.approx(side.noise.sensitivity, rel=1e-12)


def test_each_record_of_a_stream_adds_what_one_change_moves_an_update_by() -> None:
    """2 mu B / L, with mu = 0.5, B = 1 and L = 2 agents."""
    sides = [side for side in plan_run(tiny("graph_federated")).sides.values() if isinstance(side, StreamPlan)]
    assert sides
    for side in sides:
        found = side.apart(None, REPLACE, 0)
        assert found.adds
        assert found.noisy
        assert found.most == pytest.approx(0.5)


@pytest.mark.parametrize("shard", [1, 10, 200, 5000])
def test_hardly_ever_more_are_drawn(shard: int) -> None:
    for rate in [0.001, 0.004, 0.1, 0.5, 1.0]:
        most = most_drawn(Poisson(rate), shard)
        assert binom.sf(most, shard, rate) <= math.exp(-45)
        assert most <= shard
        assert most_drawn(FixedSize(shard, 1), shard) >= 1
