"""Sums that get their noise where they are computed: the answers of simulations, and never those of deployments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.reference import pools

torch = pytest.importorskip("torch")

from gossamer.data.examples import Split  # noqa: E402
from gossamer.objectives.device.device import Device  # noqa: E402
from gossamer.objectives.device.network import DeviceNetwork  # noqa: E402
from gossamer.objectives.linear.model import LinearModel  # noqa: E402
from gossamer.privacy.mechanisms import (  # noqa: E402
    Gaussian,
    L2Laplace,
    Mechanism,
    NeighboringRelation,
    NoNoise,
    Poisson,
)
from gossamer.privacy.tasks import Gradient, Query  # noqa: E402
from gossamer.sides.machine import SideAnswer  # noqa: E402
from gossamer.sides.sums import Noisy, Total  # noqa: E402
from gossamer.vectors import Public  # noqa: E402

N, FEATURES = 12, 4
GENERATOR = np.random.default_rng(3)
DATA = Split(GENERATOR.normal(0, 2, (N, FEATURES)).astype(np.float32), np.arange(N) % 3)
GAUSSIAN = Gaussian(1.0, 1.5)


def objectives(dtype: Any = np.float32) -> tuple[LinearModel, DeviceNetwork]:
    module = torch.nn.Sequential(torch.nn.Linear(FEATURES, 3)).to(torch.from_numpy(np.empty(0, dtype)).dtype)
    device = DeviceNetwork(Device("cpu", 2**20), module, l2=0.1)
    return LinearModel("softmax", FEATURES, 3, l2=0.1, dtype=dtype), device


def task(law: Mechanism, dtype: Any = np.float32, **query: Any) -> Gradient:
    model = Public(np.linspace(-1, 1, 15).astype(dtype))
    return Gradient(1, model, Query(Poisson(0.5), law, 5.0, **query))


@pytest.mark.parametrize(
    ("law", "query", "there"),
    [
        (GAUSSIAN, {}, True),
        (GAUSSIAN, {"count_share": 0.1}, True),
        (GAUSSIAN, {"count_share": 0.1, "unit": 2.0}, True),
        (NoNoise(0.5), {}, False),
        (L2Laplace(1.0, 2.0, NeighboringRelation.REPLACE_ONE), {}, False),
    ],
)
def test_answers_are_those_of_the_usual_way(law: Mechanism, query: dict[str, Any], there: bool) -> None:
    shards = {"a": np.arange(6), "b": np.arange(6, 12)}
    usual, device = (pools.simulated(shards, objective, DATA, 7) for objective in objectives())
    answers = []
    for pool in (usual, device):
        tickets = [pool.admit(name, task(law, **query)) for name in ("a", "b", "a")]
        answers.append([np.asarray(found.released.values) for found in pool.compute(tickets)])
        kinds = {type(raw) for raw in pool.raw(tickets)}
        windowed = SideAnswer if law is GAUSSIAN and not query else Total
        assert kinds == {(Noisy if there else Total) if pool is device else windowed}
        again = [np.asarray(found.released.values) for found in pool.compute(tickets)]
        assert [one.tobytes() for one in again] == [one.tobytes() for one in answers[-1]]
    for expected, found in zip(*answers, strict=True):
        assert expected.shape == found.shape == (15 + bool(query),)
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_deployed_noise_is_on_the_grid_whatever_the_objective() -> None:
    """In float64 5 times the answer is a whole number of steps, as without a device; and no two answers are alike."""
    _, device = objectives(np.float64)
    device.l2 = 0.0
    pool = pools.deployed(device, DATA)
    tickets = [pool.admit("a", task(GAUSSIAN, np.float64)) for _ in range(2)]
    grid = tickets[0].provided.grid
    assert grid is not None
    found = [np.asarray(answer.released.values) * 5.0 / grid.noise.step for answer in pool.compute(tickets)]
    for steps in found:
        np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
        assert np.abs(steps).max() > 1e3
    assert (found[0] != found[1]).any()


def test_deployed_sums_come_without_noise() -> None:
    _, device = objectives()
    pool = pools.deployed(device, DATA)
    (raw,) = pool.raw([pool.admit("a", task(GAUSSIAN))])
    assert type(raw) is Total
