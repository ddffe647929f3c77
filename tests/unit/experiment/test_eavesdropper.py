"""An auditor's view of what nodes release."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gossamer.attacks.canaries import Sum
from gossamer.experiment.audits.canary_audit import Listener, audit_run, canaries_of
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec


@pytest.mark.parametrize(
    "privacy",
    [{"clip": 0.7}, {"clip": {"policy": "quantile", "initial": 3.0}}, {"neighboring_relation": "replace_one"}],
    ids=["fixed clip", "in units of a moving clip", "replacing"],
)
def test_a_release_is_read_as_the_sum_that_it_was_made_of(
    privacy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every example is in every batch and nothing is added, so the sum is that of the coins; with an L2 term beside
    it."""
    heard: list[tuple[str, Sum]] = []
    law = Listener._heard

    def kept(self: Listener, node: str, *of: Any) -> Sum:
        heard.append((node, law(self, node, *of)))
        return heard[-1][1]

    monkeypatch.setattr(Listener, "_heard", kept)
    content = {
        "dataset": "digits",
        "objective": {"name": "softmax", "l2": 0.1},
        "algorithm": {"name": "gossip", "nodes": 2, "batch_size": 721, "learning_rate": 0.1, "updates_per_node": 3},
        "privacy": {"mechanism": "none", "clip": 1.0, **privacy},
        "evaluation": "off",
    }
    experiment = parse_spec(content)
    audit_run(experiment, guesses=10)
    prepared = prepare(experiment)
    planted = canaries_of(prepared, 1442, "random")
    assert len(heard) == 6
    for node, found in heard:
        mine = planted.included[np.isin(planted.rows, prepared.shards[prepared.names.index(node)])]
        expected = np.where(mine[:, None], found.inside, found.outside).sum(axis=0)
        np.testing.assert_allclose(found.seen, expected, atol=2e-3)
        assert found.others.shape == (0, 650)
        assert found.rate == 1.0
