"""What the order of updates makes of FedAsync's model: how far it goes, and how much of the noise is in it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.reference.mixed_models import shares
from tests.reference.server_traces import ages

from gossamer.algorithms.clients.nodes import SERVER
from gossamer.algorithms.fedasync.box import Settings
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.protocol.trace import read_steps

CLIENTS, QUOTA = 4, 20
UPDATES = CLIENTS * QUOTA
IN_TURN = [0, 1, 2, *[CLIENTS - 1] * (UPDATES - 3)]
ALONE = [0] * UPDATES
FALSE_ALARMS = 1e-6
"""Of each comparison of a run's noise."""

ALONE_SPEC = {"faults": {"absences": [{"node": n, "start": 0.0, "end": 1000.0 * n} for n in range(1, CLIENTS)]}}


def of_defaults(come: list[int], **changes: Any) -> tuple[float, float]:
    """The sum of the updates' shares, and their norm: how far the model goes, and the noise in it."""
    settings = Settings(**changes)
    found = shares(come, settings.mixing, settings.staleness_weight.of)
    return float(found.sum()), float(np.linalg.norm(found))


def test_updates_of_clients_alone_move_the_model_by_the_whole_mixing_weight() -> None:
    """x = (1 - alpha) x + alpha (x + u) = x + alpha u, so shares are alpha each."""
    assert of_defaults(ALONE) == pytest.approx((0.6 * UPDATES, 0.6 * math.sqrt(UPDATES)), rel=1e-12)


@pytest.mark.parametrize("clients", [2, 4, 10])
def test_a_long_run_of_clients_in_turn_moves_by_less(clients: int) -> None:
    """With tau = N - 1 and beta = alpha s(tau): x_t + beta (x_(t-1) + ... + x_(t-tau)) grows by beta u at each step, so
    x by g u, g = beta/(1 + beta tau). The last updates, which are not mixed away yet, are few of many."""
    tau, updates = clients - 1, 500 * clients
    beta = 0.6 / math.sqrt(1 + tau)
    g = beta / (1 + beta * tau)
    far, noise = of_defaults([*range(tau), *[tau] * (updates - tau)])
    assert far == pytest.approx(g * updates, rel=0.01)
    assert noise == pytest.approx(g * math.sqrt(updates), rel=0.02)


def test_figures_of_the_page() -> None:
    """docs/algorithms/fedasync.md, section "Who comes when", to the digits that it gives."""
    rounded = [tuple(round(value, 1) for value in of_defaults(come)) for come in (IN_TURN, ALONE)]
    assert rounded == [(13.0, 1.5), (48.0, 5.4)]
    small = [of_defaults(come, mixing=0.02, staleness_weight="constant") for come in (IN_TURN, ALONE)]
    assert [tuple(round(value, 2) for value in pair) for pair in small] == [(1.51, 0.17), (1.6, 0.18)]


@pytest.mark.parametrize(("changes", "come", "other"), [({}, IN_TURN, ALONE), (ALONE_SPEC, ALONE, IN_TURN)])
def test_noise_of_a_runs_model_is_what_its_order_makes_of_it(
    changes: dict[str, Any], come: list[int], other: list[int], tmp_path: Path
) -> None:
    """Each coordinate of the model is normal, and its standard deviation is the norm of the shares times that of the
    noise of an update; updates themselves are clipped to a hundredth of that. The other order's law is refused."""
    document = {
        "dataset": "digits",
        "algorithm": {"name": "fedasync", "nodes": CLIENTS, "updates_per_node": QUOTA},
        "privacy": {"clip": 0.01, "noise_multiplier": 100.0},
        "evaluation": "off",
        **changes,
    }
    result = run(parse_spec(document), trace=tmp_path / "trace")
    with (tmp_path / "trace").open("rb") as file:
        assert ages([step for step in read_steps(file) if step.node == SERVER]) == come
    model = np.concatenate([values.ravel() for values in result.model.values()])
    assert model.size == 650
    # What was learnt is at most so far, and noise may point there or away.
    learnt = 0.01 * of_defaults(come)[0]
    for law, agrees in ((come, True), (other, False)):
        low, high = np.sqrt(stats.chi2.ppf([FALSE_ALARMS / 2, 1 - FALSE_ALARMS / 2], model.size)) * of_defaults(law)[1]
        assert (low - learnt <= np.linalg.norm(model) <= high + learnt) == agrees
