"""A clip of FedAvg that follows a quantile of updates' norms: who is told it, how it moves, and what it costs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from tests.unit.algorithms.fedavg.test_fedavg import SECRET, SIZE, TRUSTED, context, planned, spec, told

from gossamer.algorithms.clients.nodes import SERVER, Fetch, Newest, NewestAtClip, Push
from gossamer.algorithms.fedavg import box as fedavg
from gossamer.algorithms.fedavg.box import Settings
from gossamer.cli import main
from gossamer.errors import PeerError
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.clipping import Clipping, QuantileClip
from gossamer.privacy.mechanisms import Gaussian
from gossamer.privacy.tasks import ClippedUpdate, CuratedSum
from gossamer.protocol.effects import Compute, Send
from gossamer.protocol.events import Completed, Elapsed, Received, Started
from gossamer.protocol.node import Node
from gossamer.sides.plan import ClientUpdate, Curator
from gossamer.vectors import Confined, Public, Released

POLICY = QuantileClip(initial=0.25, quantile=0.75, learning_rate=0.5, count_share=0.1, step_bound=0.5)
QUANTILE = {"clip": {"policy": "quantile", "count_share": 0.1}}


def nodes(clients: int = 2, **settings: Any) -> dict[str, Node]:
    given = replace(context(clients, Gaussian(0.25, 2.0)), clipping=Clipping(POLICY))
    return fedavg.build(Settings(nodes=clients, noise_by="server", trusted="server", **settings), given)


def test_the_clip_goes_with_the_model_and_moves_by_the_count() -> None:
    """By hand: 2 of 2 within it is 1/4 more than wanted, so log C falls by 0.5/4; the model takes the mean alone."""
    server = nodes()[SERVER]
    server.handle(Started(), 0.0)
    for name in ("node-0", "node-1"):
        (sent,) = told(server, name, Fetch(1))
        assert isinstance(sent, Send)
        assert isinstance(sent.message, NewestAtClip)
        np.testing.assert_allclose(sent.message.log_clip.values, [math.log(0.25)])
    told(server, "node-0", Push(2, 0, Confined(np.full(SIZE, 0.1))))
    _, asked = told(server, "node-1", Push(2, 0, Confined(np.full(SIZE, 0.1))))
    assert isinstance(asked, Compute)
    assert isinstance(asked.task, CuratedSum)
    query = asked.task.query
    assert (query.mechanism, query.count_share, query.unit, query.normaliser) == (Gaussian(0.25, 2.0), 0.1, 1.0, 2.0)
    assert asked.task.answer_size == SIZE + 1
    effects = server.handle(Completed(1, Released(np.array([1.0, 2.0, 3.0, 0.5])), 0), 0.0)
    np.testing.assert_allclose(server.state.x.values, [2.0, 1.0, 5.0])
    for sent in effects[:-1]:
        assert isinstance(sent, Send)
        assert isinstance(sent.message, NewestAtClip)
        assert isinstance(sent.message.log_clip, Released)
        np.testing.assert_allclose(sent.message.log_clip.values, [math.log(0.25) - 0.5 * 0.25])


def test_a_client_clips_to_what_came_with_its_model() -> None:
    client = nodes()["node-0"]
    client.handle(Started(), 0.0)
    model, log_clip = Public(np.zeros(SIZE)), Public(np.array([math.log(0.125)]))
    (asked,) = client.handle(Received(SERVER, NewestAtClip(1, 0, log_clip, model)), 0.0)
    assert isinstance(asked, Compute)
    assert isinstance(asked.task, ClippedUpdate)
    assert asked.task.bound == pytest.approx(0.125)


@pytest.mark.parametrize("values", [[math.nan], [math.inf], [0.0, 0.0], []])
def test_a_client_refuses_what_is_no_clip(values: list[float]) -> None:
    client = nodes()["node-0"]
    client.handle(Started(), 0.0)
    message = NewestAtClip(1, 0, Public(np.array(values, float)), Public(np.zeros(SIZE)))
    with pytest.raises(PeerError):
        client.handle(Received(SERVER, message), 0.0)


@pytest.mark.parametrize("value", [1e9, -1e9])
def test_no_clip_of_a_peer_overflows(value: float) -> None:
    client = nodes()["node-0"]
    client.handle(Started(), 0.0)
    message = NewestAtClip(1, 0, Public(np.array([value])), Public(np.zeros(SIZE)))
    (asked,) = client.handle(Received(SERVER, message), 0.0)
    assert isinstance(asked, Compute)
    assert asked.task.bound == pytest.approx(1e9 if value > 0 else 1e-9)


def test_a_round_without_anybody_moves_neither_model_nor_clip() -> None:
    server = nodes(timeout=5.0)[SERVER]
    server.handle(Started(), 0.0)
    before = server.state.x, server.state.log_clip
    server.handle(Elapsed("round"), 5.0)
    assert server.state.t == 1
    assert (server.state.x, server.state.log_clip) == before


def test_a_fixed_clip_is_sent_to_nobody() -> None:
    server = fedavg.build(Settings(nodes=1, noise_by="server", trusted="server"), context(1))[SERVER]
    server.handle(Started(), 0.0)
    (sent,) = told(server, "node-0", Fetch(1))
    assert isinstance(sent, Send)
    assert isinstance(sent.message, Newest)
    assert server.state.log_clip is None


@pytest.mark.parametrize(
    ("algorithm", "rate", "relation"),
    [
        (TRUSTED, 1.0, "replace_one"),
        (TRUSTED, 1.0, "add_or_remove_one"),
        (SECRET, 0.5, "replace_one"),
        (SECRET, 0.5, "add_or_remove_one"),
    ],
)
def test_both_parts_together_cost_what_dp_accounting_says(algorithm: Any, rate: float, relation: str) -> None:
    """Of the noise that is drawn on each part, for a client that is C long and votes 1/2."""
    m = 8.0 if rate == 1.0 else 3.0
    plan = planned(algorithm=algorithm, privacy={**QUANTILE, "noise_multiplier": m, "neighboring_relation": relation})
    curator, raw = plan.side(SERVER), plan.side("node-0")
    assert isinstance(curator, Curator)
    assert isinstance(raw, ClientUpdate)
    assert raw.follows
    on_sum, count_sd = Gaussian(1.0, m).divided(curator.count_share)
    assert isinstance(on_sum, Gaussian)
    joint = 1 / math.sqrt(1 / on_sum.noise_multiplier**2 + 1 / (2 * count_sd) ** 2)
    # Whole replaced updates are twice as far apart; of Poisson samples the accountant does that by itself.
    halved, like = (2.0, "ADD_OR_REMOVE_ONE") if (rate, relation) == (1.0, "replace_one") else (1.0, relation.upper())
    other = PLDAccountant(NeighboringRelation[like])
    other.compose(SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(joint / halved)), 4))
    assert plan.guarantee.epsilon == pytest.approx(other.get_epsilon(1e-5), rel=0.01)
    assert "the clip moves by released counts" in str(plan.guarantee.assumptions)


@pytest.mark.parametrize("algorithm", [TRUSTED, SECRET, {**TRUSTED, "clients_per_round": 2}])
def test_a_run_moves_its_clip_and_charges_as_ever(algorithm: dict[str, Any], tmp_path: Path) -> None:
    found = run(parse_spec(spec(algorithm=algorithm, privacy=QUANTILE)), tmp_path / "out")
    fixed = run(parse_spec(spec(algorithm=algorithm)))
    assert found.summary["fedavg"]["steps"] == 4
    assert found.summary["fedavg"]["clip"] != 0.1
    assert found.guarantee.epsilon == fixed.guarantee.epsilon
    assert "clip" not in fixed.summary["fedavg"]
    lines = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    assert all("clip" not in line for line in lines)


def test_without_noise_the_clip_is_that_of_a_loop() -> None:
    """All six updates of 1,000 steps' length: each round all are longer, so log C rises by eta_C quantile."""
    clip = {"policy": "quantile", "initial": 1e-6, "quantile": 0.5, "learning_rate": 0.2}
    privacy = {"mechanism": "none", "noise_multiplier": None, "clip": clip}
    found = run(parse_spec(spec(algorithm=TRUSTED, privacy=privacy)))
    assert found.summary["fedavg"]["clip"] == pytest.approx(1e-6 * math.exp(4 * 0.2 * 0.5), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "algorithm", "expected"),
    [
        ("fedavg", {}, "quantile needs a server that counts updates and adds the noise; take noise_by: server"),
        ("fedavg", {"privacy_unit": "example"}, "fedavg knows fixed, found quantile, which follows whole updates"),
        ("fedavg", {**TRUSTED, "weights": "declared"}, "take weights: equal, or fixed"),
        ("fedavg", {"masking": "secure"}, "quantile needs a server that counts updates"),
        ("fedbuff", {}, "privacy.clip.policy: fedbuff knows fixed, found quantile"),
        ("fedbuff", TRUSTED, "privacy.clip.policy: fedbuff knows fixed, found quantile"),
        ("fedasync", {}, "privacy.clip.policy: fedasync knows fixed, found quantile"),
    ],
)
def test_what_follows_no_quantile_is_refused_in_one_line(
    name: str, algorithm: dict[str, Any], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {
        "dataset": "digits",
        "algorithm": {"name": name, "nodes": 6, **algorithm},
        "privacy": {**QUANTILE, "noise_multiplier": 8.0},
    }
    (tmp_path / "spec.yaml").write_text(json.dumps(content))
    assert main(["check", str(tmp_path / "spec.yaml")]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
