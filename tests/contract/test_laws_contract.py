"""What every noise law has to be, whoever it is from: drawn as it says, described, accounted for, released.

`tests/outside/sized_laplace` is a law of another distribution: two files, and nothing of them is known here.
"""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reference import pools

from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.accounting.accountants import delta, epsilon, renyi_divergence
from gossamer.privacy.accounting.filters import ReleasePlan
from gossamer.privacy.mechanisms import (
    BallGaussian,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    Mechanism,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
)
from gossamer.privacy.tasks import Gradient, Query
from gossamer.protocol.encoding import decode, encode
from gossamer.vectors import Public

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
SIZE = 4


def outside() -> Any:
    """The law of another distribution, which is imported as if that were installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1] / "outside" / "sized_laplace")
        return importlib.import_module("sized_laplace").SizedLaplace(1.0, 0.5)


LAWS: list[Mechanism] = [
    Gaussian(1.0, 2.0),
    BallGaussian(1.0, 2.0),
    L2Laplace(1.0, 0.5, ADD),
    Laplace(1.0, 4.0),
    outside(),
]
of_each_law = pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)


@of_each_law
def test_noise_has_its_second_moment(law: Mechanism) -> None:
    generator = np.random.default_rng(1)
    drawn = np.array([law.noise(generator, SIZE, np.float64) for _ in range(20_000)])
    assert drawn.shape == (20_000, SIZE)
    squares = (drawn**2).sum(axis=1)
    assert abs(squares.mean() - law.second_moment(SIZE)) < 6 * squares.std() / math.sqrt(len(squares))
    assert np.abs(drawn.mean(axis=0)).max() < 6 * drawn.std() / math.sqrt(len(drawn))


@of_each_law
def test_a_law_is_data(law: Mechanism) -> None:
    assert decode(encode(law)) == law
    assert json.loads(json.dumps(law.describe()))["mechanism"] == type(law).__name__
    assert law.words
    assert law.with_clip(3.0).with_clip(law.clip) == law
    assert law.with_clip(3.0).unit() == law.unit() or not law.scale_free


@of_each_law
@pytest.mark.parametrize(
    ("sampling", "fewer", "relation"),
    [
        (Poisson(0.1), Poisson(0.05), ADD),
        (Poisson(0.1), Poisson(0.05), REPLACE),
        (FixedSize(100, 10), FixedSize(100, 5), REPLACE),
    ],
    ids=str,
)
def test_a_law_is_accounted_for(law: Mechanism, sampling: Any, fewer: Any, relation: NeighboringRelation) -> None:
    kind, less = ReleaseKind(law.unit(), sampling, SIZE), ReleaseKind(law.unit(), fewer, SIZE)
    found = epsilon({kind: 20}, 1e-5, relation).epsilon
    assert 0 < epsilon({less: 20}, 1e-5, relation).epsilon < found < epsilon({kind: 40}, 1e-5, relation).epsilon
    assert found < epsilon({kind: 20}, 1e-5, relation, rows=3).epsilon
    assert delta({kind: 20}, found, relation) <= 1e-5 * (1 + 1e-6)
    assert renyi_divergence(kind, 8.0, relation) < math.inf
    pure = law.unit().release_epsilon(relation, SIZE)
    assert found <= 20 * pure * (1 + 1e-9)  # however its samples amplify it


@of_each_law
@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_a_pair_is_that_of_the_law(law: Mechanism, relation: NeighboringRelation) -> None:
    """It falls from at most 1 to nothing, and grows with the rows that move it."""
    losses = np.linspace(0.0, 3.0, 61)
    one, two = (law.unit().full(relation, rows, SIZE) for rows in (1, 2))
    curves = np.array([one.divergence(losses), two.divergence(losses)])
    assert ((curves >= 0) & (curves <= 1)).all()
    assert (np.diff(curves, axis=1) <= 1e-15).all()
    assert (curves[0] <= curves[1] * (1 + 1e-9)).all()
    assert float(one.divergence(np.array([one.largest(1e-9)]))[0]) <= 1e-9 * (1 + 1e-6)


@of_each_law
def test_a_count_goes_with_normal_noise_alone(law: Mechanism) -> None:
    if law.normal is None:
        with pytest.raises(SpecError, match="a count goes with Gaussian noise or none"):
            law.divided(0.1)
    else:
        on_sum, on_count = law.divided(0.1)
        assert 1 / on_sum.normal.noise_multiplier**2 + 1 / (4 * on_count**2) == pytest.approx(  # type: ignore[union-attr]
            1 / law.normal.noise_multiplier**2
        )


@pytest.mark.parametrize("deployed", [False, True])
@pytest.mark.parametrize("law", [law for law in LAWS if not law.whole], ids=lambda law: type(law).__name__)
def test_a_data_side_releases_by_it(law: Mechanism, deployed: bool) -> None:
    if deployed:
        pytest.importorskip("cryptography")
    data = Split(np.random.default_rng(0).normal(size=(30, SIZE)).astype(np.float32), np.arange(30.0) % 2)
    objective = LinearModel("squared", SIZE, None, intercept=False, dtype=np.float64)
    task = Gradient(0, Public(np.zeros(SIZE)), Query(Poisson(0.5), law, 15.0))
    plan = ReleasePlan({task.release: 1})
    if deployed:
        pool = pools.deployed(objective, data, pools.ledger(plan), [task.query])
    else:
        pool = pools.simulated({"a": range(30)}, objective, data, 7, plan)
    (answer,) = pool.compute([pool.admit("a", task)])
    assert np.isfinite(np.asarray(answer.released.values)).all()
    assert pool.releases("a") == 1
