"""Clip policies: the joint release of a gradient and its count, and where a quantile ends up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.pools import simulated

import gossamer as gs
from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.objectives.objective import Evaluation, Gradients, Objective
from gossamer.privacy.clipping import Clipping, FixedClip, QuantileClip, StageClip, bound_of
from gossamer.privacy.mechanisms import Gaussian, L2Laplace, Mechanism, NeighboringRelation, NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.sides.pool import Pool
from gossamer.vectors import Blank, Part, Public, Released

SIZE = 2


class Rows(Objective):
    """The gradient of an example is its row, whatever the model."""

    size, dtype, parts, l2 = SIZE, np.dtype(np.float64), (Part("weight", (SIZE,)),), 0.0

    def initial(self, generator: np.random.Generator) -> FloatArray:
        return np.zeros(SIZE)

    def clipped_gradients(self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: Any) -> Gradients:
        sums, unclipped = [], []
        for batch, bound in zip(batches, np.broadcast_to(clip, len(batches))):
            rows = np.asarray(data.features)[batch].astype(float)
            norms = np.linalg.norm(rows, axis=1)
            sums.append((rows * np.minimum(1, bound / np.maximum(norms, 1e-300))[:, None]).sum(axis=0))
            unclipped.append(int((norms <= bound).sum()))
        return Gradients(np.array(sums), np.zeros(len(batches), np.int64), np.array(unclipped))

    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
        raise NotImplementedError


def sides(rows: Any) -> Pool:
    data = Split(np.asarray(rows, np.float32), np.zeros(len(rows), np.int64))
    return simulated({"node-0": np.arange(len(rows))}, Rows(), data, 3)


def query(mechanism: Mechanism, normaliser: float = 4.0, share: float = 0.0) -> Query:
    return Query(Poisson(1.0), mechanism, normaliser, share)


def answer(where: Pool, what: Query) -> Released:
    (found,) = where.compute([where.admit("node-0", Gradient(1, Public(np.zeros(SIZE)), what))])
    return found.released


def test_without_noise_the_last_number_is_the_centred_fraction() -> None:
    """Norms 5, 1, 0 and a clip of 2: two of three are within it, so (2 - 3/2) / 4 after the gradient."""
    found = answer(sides([[3, 4], [0, 1], [0, 0]]), query(NoNoise(2.0), share=0.01))
    np.testing.assert_allclose(found.values, [1.2 / 4, (1.6 + 1) / 4, 0.5 / 4], rtol=1e-6)


@given(st.floats(0.05, 50), st.floats(1e-4, 0.99))
def test_gradient_and_count_together_are_a_gaussian_release_of_the_charged_multiplier(m: float, share: float) -> None:
    """1/z^2 + (1/2)^2/s_b^2 = 1/m^2: one example moves the sum by C and the count by 1/2, both at the most."""
    law, count_sd = Gaussian(1.0, m).divided(share)
    assert isinstance(law, Gaussian)
    assert 1 / law.noise_multiplier**2 + 0.25 / count_sd**2 == pytest.approx(1 / m**2, rel=1e-9)
    assert law.noise_multiplier >= m


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=6), st.floats(0.1, 4))
def test_no_example_moves_the_joint_release_by_more(rows: list[tuple[float, float]], clip: float) -> None:
    """In units of the noise, with or without the last example, and with it replaced by any of the others."""
    law, count_sd = Gaussian(clip, 1.3).divided(0.2)

    def scaled(some: list[tuple[float, float]]) -> Any:
        exact = answer(sides(some), query(NoNoise(clip), 1.0, 0.2)).values if some else np.zeros(SIZE + 1)
        return exact / [*[law.noise_multiplier * clip] * SIZE, count_sd]

    assert np.linalg.norm(scaled(rows) - scaled(rows[:-1])) <= 1 / 1.3 * (1 + 1e-6)
    for other in rows[:-1]:
        assert np.linalg.norm(scaled(rows) - scaled([*rows[:-1], other])) <= 2 / 1.3 * (1 + 1e-6)


def test_both_parts_have_the_noise_they_are_charged_for() -> None:
    """4,000 draws: each standard deviation within 5 % with probability 1 - 1e-5 (chi-squared), so 1 % less noise is not
    told apart, but a multiplier that forgets the share of the count (10 % less) is, and so is one that forgets 2."""
    where, share, m, clip = sides([[0, 1], [3, 4]]), 0.19, 2.0, 0.5
    what = query(Gaussian(clip, m), share=share)
    draws = np.stack([answer(where, what).values for _ in range(4000)])
    gradient_sd, count_sd = m * clip / math.sqrt(1 - share) / 4, m / (2 * math.sqrt(share)) / 4
    assert draws[:, :SIZE].std() == pytest.approx(gradient_sd, rel=0.05)
    assert draws[:, SIZE].std() == pytest.approx(count_sd, rel=0.05)
    # of independent normals: |r| < 0.08 with probability 1 - 4e-7
    assert np.abs(np.corrcoef(draws.T)[SIZE, :SIZE]).max() < 0.08


def test_a_count_is_refused_where_no_noise_is_proved_for_it() -> None:
    law = L2Laplace(1.0, 1.0, NeighboringRelation.ADD_OR_REMOVE_ONE)
    with pytest.raises(SpecError, match="a count goes with Gaussian noise or none"):
        query(law, share=0.1)


def test_no_step_is_longer_than_its_bound_and_the_l2_term_stays_as_it_is() -> None:
    """Norms 5 and 1 at a clip of 2: (6/5 + 0, 8/5 + 1) / 4, halved at a bound of 1, plus the model / 10."""
    where = sides([[3, 4], [0, 1]])
    where.sides["node-0"].rule.objective.l2 = 0.1
    log_clip = Public(np.array([math.log(2.0)]))
    for step_bound, unit in ((1.0, 2.0), (None, 1.0), (3.0, 1.0)):
        what = Clipping(QuantileClip(step_bound=step_bound)).query(query(NoNoise(1.0)), log_clip)
        (found,) = where.compute([where.admit("node-0", Gradient(1, Public(np.array([10.0, 20.0])), what))])
        expected = [1.2 / 4 / unit + 1, 2.6 / 4 / unit + 2, 0.0]
        np.testing.assert_allclose(found.released.values, expected, rtol=1e-6, atol=1e-12)


def test_the_clip_moves_by_the_formula() -> None:
    """C exp(-0.2 (0.8 - 0.6)), of a released fraction 0.8, that is 0.3 after centring."""
    clipping = Clipping(QuantileClip(initial=3.0, quantile=0.6, learning_rate=0.2))
    log_clip = clipping.initial(Public(np.zeros(SIZE)))
    moved, gradient = clipping.moved(log_clip, Released(np.array([1.0, 2.0, 0.3])))
    assert bound_of(moved) == pytest.approx(3.0 * math.exp(-0.2 * 0.2))
    assert type(moved) is Released
    assert gradient == Released(np.array([1.0, 2.0]))


@pytest.mark.parametrize("initial", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.9])
def test_it_ends_up_at_the_quantile_of_the_norms(initial: float, quantile: float) -> None:
    """Norms 1, 2, ..., 100 and no noise: the clip settles where it cuts off the share asked for, to a step's width."""
    rows = np.stack([np.arange(1, 101), np.zeros(100)], axis=1)
    where, clipping = sides(rows), Clipping(QuantileClip(initial=initial, quantile=quantile))
    log_clip: Any = clipping.initial(Public(np.zeros(SIZE)))
    for _ in range(400):
        what = clipping.query(query(NoNoise(1.0), 100.0), log_clip)
        log_clip, _ = clipping.moved(log_clip, answer(where, what))
    assert bound_of(log_clip) == pytest.approx(100 * quantile, rel=0.03, abs=1)


def test_a_fixed_clip_asks_for_nothing_more() -> None:
    what, clipping = query(Gaussian(1.5, 1.0)), Clipping(FixedClip(bound=1.5))
    log_clip = clipping.initial(Public(np.zeros(SIZE)))
    assert clipping.query(what, log_clip) is what
    assert clipping.moved(log_clip, Released(np.ones(SIZE))) == (log_clip, Released(np.ones(SIZE)))


def test_noise_follows_the_clip_of_a_stage() -> None:
    clipping = Clipping(StageClip())
    what = clipping.query(query(Gaussian(1.0, 2.0)), clipping.initial(Public(np.zeros(SIZE)), 0.25))
    assert what.mechanism == Gaussian(0.25, 2.0)
    assert what.release(SIZE) == query(Gaussian(1.0, 2.0)).release(SIZE)  # and is charged as the same kind


def test_a_blank_clip_is_one() -> None:
    clipping = Clipping(QuantileClip(initial=7.0))
    log_clip = clipping.initial(Public(Blank(SIZE)))
    assert bound_of(log_clip) == 1.0
    moved, gradient = clipping.moved(log_clip, Released(Blank(SIZE + 1)))
    assert (bound_of(moved), gradient.size) == (1.0, SIZE)


def test_a_peer_cannot_make_a_clip_that_overflows() -> None:
    assert bound_of(Public(np.array([1e6]))) == pytest.approx(1e9)
    assert bound_of(Public(np.array([-1e6]))) == pytest.approx(1e-9)


@pytest.mark.parametrize(
    ("algorithm", "clip"), [("gossip", "stages"), ("allreduce", "stages"), ("audp", "stages"), ("mapa", "quantile")]
)
def test_a_policy_that_an_algorithm_would_ignore_is_refused(algorithm: str, clip: str) -> None:
    spec = parse_spec({"algorithm": algorithm, "budget": {"epsilon": 1}, "privacy": {"clip": clip}})
    with pytest.raises(SpecError, match=f"privacy.clip.policy: {algorithm} knows .*, found {clip}"):
        prepare(spec)


@pytest.mark.some(1)
@pytest.mark.parametrize("algorithm", ["gossip", "allreduce", "d_psgd", "audp"])
def test_a_moving_clip_is_one_kind_in_the_ledger_and_learns(algorithm: str, tmp_path: Any) -> None:
    """From a clip 1,000 times too small, at which the same run, if it is fixed, hardly leaves the loss at the start,
    log(10) = 2.303."""
    spec = {
        "algorithm": {"name": algorithm, "nodes": 4},
        "budget": {"epsilon": 8, "delta": 1e-4},
        "stop": {"epochs": 12},
    }
    clip = {"policy": "quantile", "initial": 1e-3, "learning_rate": 0.5}
    moving = gs.run(parse_spec({**spec, "privacy": {"clip": clip}}), tmp_path / "moving")
    fixed = gs.run(parse_spec({**spec, "privacy": {"clip": 1e-3}}))
    assert (tmp_path / "moving" / "ledger.jsonl").read_text().count("\n") == 4
    losses = [result.summary["metrics"]["mean_model_test_loss"] for result in (moving, fixed)]
    assert losses[0] < 1.6
    assert losses[1] > 2.2
    assert moving.guarantee.epsilon == fixed.guarantee.epsilon
