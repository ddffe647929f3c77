"""An own server that asks its agents different questions: one about the model, the others about what it knows already.

Pasquini, Francati and Ateniese, "Eluding secure aggregation in federated learning via model inconsistency", CCS 2022.
All on the real data sides of ten agents with digits. The sums that the server makes are correct ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.reference.asked_apart import RUN, Party, added, found_in, parties_of, prepared_of

from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.privacy.masking import Phase
from gossamer.privacy.masking.messages import (
    AgentRoster,
    Announcement,
    DeliveredShares,
    EncryptedShares,
    packed,
    unpacked,
)
from gossamer.privacy.tasks import REFUSED, MaskingStep
from gossamer.sides import masked_side
from gossamer.vectors import Confined, Public, Released

TARGET = "node-3"
OTHERS = [f"node-{number}" for number in range(10) if number != 3]
ANY_RADIUS = {"masking": {"name": "secure", "radius": 1e13}}
"""So that nothing but the digest stands between the server and the update."""


def far(prepared: Prepared, length: float) -> Public:
    """A model so long that its L2 term is all of every gradient."""
    direction = np.random.default_rng(0).standard_normal(prepared.objective.size)
    return Public((direction * (length / np.linalg.norm(direction))).astype(np.float32))


def asked(parties: Mapping[str, Party], to_target: Public, to_others: Public, round: int = 0) -> None:
    for name, party in parties.items():
        party.update(round, to_target if name == TARGET else to_others)


def announced(parties: Mapping[str, Party], round: int = 0) -> dict[str, Announcement]:
    found = {name: party.ask(MaskingStep(round, Phase.ANNOUNCE, REFUSED, 0)) for name, party in parties.items()}
    return {
        name: unpacked(said, Announcement, parties[name].side.unit.group)
        for name, said in found.items()
        if said != REFUSED
    }


def listed(announcements: Any, round: int = 0) -> Public:
    return packed(AgentRoster(round, tuple(sorted(announcements, key=lambda one: one.agent))))


def digit_in(found: np.ndarray, prepared: Prepared) -> float:
    """Correlation of what was found with the digit of the target that it fits best."""
    digits = prepared.dataset.train.features[prepared.shards[3]].reshape(-1, 64)
    return max(abs(np.corrcoef(row, digit)[0, 1]) for row in found.reshape(10, 64) for digit in digits)


def read_out(parties: Mapping[str, Party], far_out: Public) -> tuple[float, float] | None:
    """How far what the server finds is from the target's update, and the correlation with its digit."""
    total = added(parties)
    if total is None:
        return None
    direction = far_out.values.astype(np.float64)
    known = dict.fromkeys(OTHERS, -25.0 * direction / np.linalg.norm(direction))  # -mu B w/|w|
    found = found_in(total, parties, known)
    return float(np.abs(found - parties[TARGET].kept).max()), digit_in(found, parties[TARGET].prepared)


# The attack


@pytest.mark.parametrize("run", ["", RUN])
@pytest.mark.parametrize("masking", ["secure", {"name": "secure", "bits": 64}, {"name": "secure", "threshold": 6}])
def test_an_update_cannot_be_read_out_of_a_correct_sum(run: str, masking: Any) -> None:
    """The nine others' updates at a model of length 1e12 are -mu B w/|w|, to the last bits, whatever their examples."""
    prepared = prepared_of(run, masking=masking)
    parties, model = parties_of(prepared), far(prepared, 1e12)
    asked(parties, prepared.initial, model)
    assert read_out(parties, model) is None
    assert set(announced(parties)) == {TARGET}  # the nine say nothing at all about such a model


def test_the_attack_would_work_without_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests here can fail: with one digest for everything, the digit is there."""
    prepared = prepared_of(**ANY_RADIUS)
    parties, model = parties_of(prepared), far(prepared, 1e12)
    monkeypatch.setattr(masked_side, "inputs_digest", lambda *_: bytes(32))
    asked(parties, prepared.initial, model)
    found = read_out(parties, model)
    assert found is not None
    assert found[0] < 1e-5
    assert found[1] > 1 - 1e-6


@pytest.mark.parametrize("run", ["", RUN])
def test_the_digest_alone_stops_it(run: str) -> None:
    """Whatever list the server makes with the target and some other on it, both refuse it."""
    prepared = prepared_of(run, **ANY_RADIUS)
    model = far(prepared, 1e12)
    for count in range(6, 10):
        parties = parties_of(prepared)
        asked(parties, prepared.initial, model)
        keys = announced(parties)
        assert len(keys) == 10
        roster = listed([keys[TARGET], *(keys[name] for name in OTHERS[:count])])
        for name in (TARGET, *OTHERS[:count]):
            assert parties[name].ask(MaskingStep(0, Phase.SHARE, roster, 0)) == REFUSED
        total = added(parties)  # without the target they go on, at the model that tells nothing of it
        assert total is not None
        assert total.agents == tuple(number for number in range(1, 11) if number != 4)


def test_nothing_is_charged_or_said_at_a_model_beyond_the_radius() -> None:
    privacy = {"mechanism": "gaussian", "clip": 50.0, "standard_deviation": 1e-3, "agent_noise": 1}
    prepared = prepared_of(privacy=privacy, units=2, agents=5, noise="homomorphic")
    plan: Any = plan_run(prepared)
    radius = float(plan.lengths.radius)
    parties = {name: party for name, party in parties_of(prepared).items() if name in prepared.names[:5]}
    for party in parties.values():
        party.update(0, far(prepared, 1.001 * radius))
    assert added(parties) is None
    assert announced(parties) == {}
    for party in parties.values():
        assert party.ledger is not None
        assert party.ledger.releases == 0
        party.update(0, far(prepared, 0.999 * radius))  # the round is open to it still
    assert added(parties) is not None
    assert {party.ledger.releases for party in parties.values() if party.ledger} == {1}


# Its neighbours: any difference at all, between any agents


def one_bit(model: Public) -> Public:
    values = model.values.copy()
    values[17] = np.nextafter(values[17], np.float32(1), dtype=np.float32)
    return Public(values)


ZEROS = np.zeros(640, np.float32)
MODELS = {
    "one bit": one_bit(Public(ZEROS)),
    "a zero of the other sign": Public(np.where(np.arange(640) == 5, np.float32(-0.0), ZEROS)),
    "another label": Released(ZEROS.copy()),
    "the server's own": Confined(ZEROS.copy()),
}


@pytest.mark.parametrize("run", ["", RUN])
@pytest.mark.parametrize("what", MODELS)
def test_models_that_differ_in_anything(what: str, run: str) -> None:
    prepared = prepared_of(run)
    assert not prepared.initial.values.any()
    parties = parties_of(prepared)
    asked(parties, MODELS[what], prepared.initial)  # type: ignore[arg-type]
    keys = announced(parties)
    assert parties[TARGET].ask(MaskingStep(0, Phase.SHARE, listed(keys.values()), 0)) == REFUSED
    assert parties[OTHERS[0]].ask(MaskingStep(0, Phase.SHARE, listed(keys.values()), 0)) == REFUSED


SPECS: dict[str, dict[str, Any]] = {
    "step": {"step_size": 0.25},
    "clip": {"privacy": {"mechanism": "none", "clip": 49.0}},
    "l2": {"objective": {"name": "softmax", "l2": 0.0, "intercept": False}},
    "dtype": {"objective": {"name": "softmax", "l2": 1e-3, "intercept": False, "dtype": "float64"}},
    "batch": {"batch_size": 2},
    "local steps": {"local_steps": 2},
    "rounds": {"rounds": 5},
    "coins": {"seed": 6},
    "preprocessing": {"dataset": {"name": "digits", "divide_by": 3.0}},
    "threshold": {"masking": {"name": "secure", "threshold": 8}},
    "minimum": {"masking": {"name": "secure", "minimum": 9}},
    "encoding": {"masking": {"name": "secure", "fraction_bits": 20}},
    "bits": {"masking": {"name": "secure", "bits": 64}},
    "radius": {"masking": {"name": "secure", "radius": 1e6}},
    "whose sums": {"agents_sampled": 9},
}


@pytest.mark.some(6)
@pytest.mark.parametrize(("what", "run"), [*itertools.product(SPECS, ["", RUN]), ("run", RUN)])
def test_an_agent_that_was_told_another_spec_is_in_no_sum_with_the_others(what: str, run: str) -> None:
    """By an organiser that helps the server, say: every public setting is in the digest, through the spec."""
    prepared = prepared_of(run)
    other = prepared_of("1" * 32) if what == "run" else prepared_of(run, **SPECS[what])
    parties = parties_of(prepared, {TARGET: other})
    asked(parties, prepared.initial, prepared.initial)
    keys = announced(parties)
    if TARGET in keys:  # otherwise the other coins are against it
        roster = listed(keys.values())
        assert keys[TARGET].inputs != keys[OTHERS[0]].inputs
        assert parties[TARGET].ask(MaskingStep(0, Phase.SHARE, roster, 0)) == REFUSED
        assert parties[OTHERS[0]].ask(MaskingStep(0, Phase.SHARE, roster, 0)) == REFUSED
    total = added({name: parties[name] for name in OTHERS})
    assert total is not None
    assert 4 not in total.agents


@pytest.mark.parametrize("run", ["", RUN])
@pytest.mark.parametrize("change", [{"steps": 2}, {"batch": 2}, {"rate": 0.25}, {"clip": 49.0}])
def test_an_agent_answers_no_other_query_than_was_agreed(change: dict[str, Any], run: str) -> None:
    party = parties_of(prepared_of(run))[TARGET]
    party.update(0, party.prepared.initial, replace(party.query, **change))
    assert announced({TARGET: party}) == {}
    party.update(0, party.prepared.initial)
    assert set(announced({TARGET: party})) == {TARGET}


@pytest.mark.parametrize("round", [4, 5, 2**40])
def test_there_is_no_sum_of_a_round_that_the_run_does_not_have(round: int) -> None:
    parties = parties_of(prepared_of())
    for party in parties.values():
        party.update(round, party.prepared.initial)
        assert party.ask(MaskingStep(round, Phase.ANNOUNCE, REFUSED, 0)) == REFUSED


# A server that changes what agents say of themselves


def relabelled(roster: Public, party: Party, number: int) -> Public:
    """A list on which everybody announces the digest of agent ``number``."""
    read = unpacked(roster, AgentRoster, party.side.unit.group)
    inputs = read.by_agent[number].inputs
    return packed(AgentRoster(0, tuple(replace(one, inputs=inputs) for one in read.announcements)))


def test_digests_that_the_server_has_changed_open_no_shares() -> None:
    """Where keys are not signed it can show each agent a list that looks right. Then the keys are others for each."""
    prepared = prepared_of(**ANY_RADIUS)
    parties, model = parties_of(prepared), far(prepared, 1e12)
    asked(parties, prepared.initial, model)
    keys = announced(parties)
    numbers = {one.agent: name for name, one in keys.items()}
    whole = listed(keys.values())
    shares = {
        number: parties[name].ask(MaskingStep(0, Phase.SHARE, relabelled(whole, parties[name], number), 0))
        for number, name in numbers.items()
    }
    assert REFUSED not in shares.values()
    sent = {number: unpacked(said, EncryptedShares, parties[TARGET].side.unit.group) for number, said in shares.items()}
    target = keys[TARGET].agent
    others = sorted(set(sent) - {target})
    for some in itertools.combinations(others, 6):
        delivered = DeliveredShares(0, target, {number: sent[number].shares[target] for number in some})
        assert parties[TARGET].ask(MaskingStep(0, Phase.MASK, packed(delivered), 0)) == REFUSED
    for number in others[:2]:
        delivered = DeliveredShares(0, number, {i: sent[i].shares[number] for i in sent if i != number})
        assert parties[numbers[number]].ask(MaskingStep(0, Phase.MASK, packed(delivered), 0)) == REFUSED


def test_signed_digests_cannot_be_changed() -> None:
    prepared = prepared_of(RUN, **ANY_RADIUS)
    parties, model = parties_of(prepared), far(prepared, 1e12)
    asked(parties, prepared.initial, model)
    keys = announced(parties)
    whole = listed(keys.values())
    for name in (TARGET, OTHERS[0]):
        changed = relabelled(whole, parties[name], keys[name].agent)
        assert parties[name].ask(MaskingStep(0, Phase.SHARE, changed, 0)) == REFUSED


# The same question twice


@pytest.mark.parametrize("run", ["", RUN])
def test_no_two_sums_of_one_round(run: str) -> None:
    """Two lists of seven of ten agents or more have some in common, and these answer about the first alone."""
    prepared = prepared_of(run)
    parties = parties_of(prepared)
    asked(parties, prepared.initial, prepared.initial)
    without = {name: party for name, party in parties.items() if name != TARGET}
    assert added(without) is not None
    for others in ([], OTHERS[:3], OTHERS[6:]):
        again = {name: party for name, party in parties.items() if name not in others}
        assert added(again) is None
    asked(parties, prepared.initial, prepared.initial)  # asked for the same update again
    assert added(parties) is None
    asked(parties, one_bit(prepared.initial), one_bit(prepared.initial))
    assert added(parties) is None


def test_rounds_go_up() -> None:
    prepared = prepared_of()
    parties = parties_of(prepared)
    asked(parties, prepared.initial, prepared.initial, round=2)
    for round in (0, 1):
        asked(parties, prepared.initial, prepared.initial, round=round)
        assert added(parties, round) is None
    assert added(parties, 2) is not None
