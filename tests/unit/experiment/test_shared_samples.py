"""Batches that runs of one seed have in common (``privacy.shared_samples``), as data sides draw them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import gossamer as gs
from gossamer.deployment.founding.federation_spec import federation_spec
from gossamer.errors import SpecError
from gossamer.experiment.preparation.secrets import samples_seed, secret_seed
from gossamer.experiment.specs.spec_file import read_text, write_spec
from gossamer.sides.client import UpdateRule
from gossamer.sides.masked_side import MemberRule
from gossamer.sides.samples import SampleRule
from gossamer.sides.sums import Together
from gossamer.sides.window import GradientTerms, GradientWindow

Batches = Mapping[tuple[str, int], tuple[int, ...]]
GOSSIP = {"name": "gossip", "nodes": 3, "batch_size": 16}
CLIENTS = {"name": "fedavg", "nodes": 4, "clients_per_round": 4, "rounds": 2, "local_steps": 2, "batch_size": 8}
NOISELESS = {"mechanism": "none"}
NOISY = {"noise_multiplier": 4.0, "noise_secret": "reproducible"}


def spec(privacy: Mapping[str, Any], shared: bool = True, **more: Any) -> gs.Experiment:
    content = {"dataset": "digits", "algorithm": GOSSIP, "stop": {"updates": 12}, "evaluation": "off", **more}
    return gs.parse_spec({**content, "privacy": {**privacy, **({"shared_samples": True} if shared else {})}})


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Batches]:
    """Runs a spec, and says which rows were drawn, by owner and number of the release."""
    found: dict[tuple[str, int], tuple[int, ...]] = {}
    rows_of: list[Any] = []  # of the newest call that computes gradients together

    def clipped(self: Any, models: Any, batches: Any, clips: Any, compute: Any = Together.clipped) -> Any:
        rows_of[:] = batches
        return compute(self, models, batches, clips)

    def answers(self: Any, asked: Any, compute: Any = GradientWindow.answers) -> Any:
        given = compute(self, asked)
        for item, rows in zip(asked, rows_of, strict=True):
            found[item.ticket.side.name, item.ticket.number] = tuple(rows.tolist())
        return given

    def noting(draw: Any) -> Any:
        def noted(self: Any, ticket: Any) -> Any:
            batch = draw(self, ticket)
            if batch is not None and not isinstance(batch.drawn, GradientTerms):  # whose rows a window draws
                rows = batch.drawn if isinstance(batch.drawn, np.ndarray) else batch.drawn.examples
                owner = getattr(self, "name", None) or self._name
                found[owner, ticket.number] = tuple(rows.ravel().tolist())
            return batch

        return noted

    monkeypatch.setattr(Together, "clipped", clipped)
    monkeypatch.setattr(GradientWindow, "answers", answers)
    for rule in (SampleRule, UpdateRule, MemberRule):
        monkeypatch.setattr(rule, "draw", noting(rule.draw))

    def of(experiment: gs.Experiment) -> Batches:
        found.clear()
        gs.run(experiment)
        return dict(found)

    return of


def test_runs_with_and_without_noise_draw_the_same_batches(drawn: Callable[..., Batches]) -> None:
    laplace = {"mechanism": "l2_laplace", "epsilon": 50.0, "noise_secret": "reproducible"}
    without, four, other = (drawn(spec(privacy)) for privacy in (NOISELESS, NOISY, laplace))
    assert len(without) >= 12
    assert without == four == other
    assert len(set(without.values())) == len(without)  # each is another one


def test_otherwise_they_do_not(drawn: Callable[..., Batches]) -> None:
    """In 12 batches or more of about 16 of 479 examples not one is the same."""
    shared = drawn(spec(NOISY))
    for other in (spec(NOISY, shared=False), spec(NOISELESS, shared=False), spec(NOISY, seed=1)):
        found = drawn(other)
        assert found.keys() >= set(list(shared)[:9])
        assert not set(found.values()) & set(shared.values())


def test_masked_and_plain_agents_draw_the_same_batches(drawn: Callable[..., Batches]) -> None:
    units = {"name": "graph_federated", "units": 2, "agents": 3, "rounds": 2, "local_steps": 2, "batch_size": 8}
    privacy = {"mechanism": "none", "noise_secret": "reproducible", "clip": 1.0}
    plain, masked, own = (
        drawn(spec(privacy, shared, algorithm={**units, "masking": masking}, stop=None))
        for masking, shared in (("none", True), ("secure", True), ("secure", False))
    )
    assert len(plain) == 12
    assert plain == masked
    assert not set(plain.values()) & set(own.values())


def test_the_noise_is_each_runs_own() -> None:
    """What two runs release must not differ by their gradients alone."""
    seeds = set()
    for multiplier in (1.0, 4.0):
        prepared = gs.prepare(spec({**NOISY, "noise_multiplier": multiplier}))
        seeds.add(secret_seed(prepared, gs.plan_run(prepared).noise))
        seeds.add(samples_seed(prepared.experiment, "run") or 0)
    assert len(seeds) == 3


def test_each_run_of_an_audit_has_batches_of_its_own() -> None:
    assert samples_seed(spec(NOISY), "run") != samples_seed(spec(NOISY), "audit of another")


def test_a_run_that_shares_them_guarantees_nothing() -> None:
    result = gs.run(spec(NOISY))
    assert math.isinf(result.guarantee.epsilon)
    assert result.summary["privacy"]["guarantee"]["epsilon"] is None


@pytest.mark.parametrize(
    ("privacy", "algorithm"),
    [
        ({"noise_multiplier": 4.0}, GOSSIP),
        ({"mechanism": "l2_laplace", "epsilon": 1.0}, GOSSIP),
        ({"mechanism": "none", "clip": 1.0}, {**CLIENTS, "masking": "secure"}),
    ],
)
def test_where_something_is_hidden_they_are_refused(privacy: Mapping[str, Any], algorithm: Mapping[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"privacy.shared_samples: batches that follow from the seed") as refused:
        spec(privacy, algorithm=algorithm, stop=None)
    assert "\n" not in str(refused.value)


def test_a_secretive_run_has_none_though_its_spec_was_not_checked() -> None:
    sound = spec(NOISY)
    unsound = sound.model_copy(update={"privacy": sound.privacy.model_copy(update={"noise_secret": "fresh"})})
    assert samples_seed(sound, "run") is not None
    assert samples_seed(unsound, "run") is None


def test_deployments_refuse_them() -> None:
    text = write_spec(spec(NOISELESS))
    assert read_text(text) == spec(NOISELESS)
    with pytest.raises(SpecError, match="shared_samples is for simulations"):
        federation_spec(text, 3)


def test_a_spec_without_the_key_is_written_without_it() -> None:
    assert "shared_samples" not in write_spec(spec(NOISY, shared=False))
