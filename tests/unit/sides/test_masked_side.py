"""The data side of an agent behind masks: what it answers, to whom, how often, and what it never gives away."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.properties.test_masked_units_properties import unit_settings
from tests.reference.agent_sides import ChargingMaskedSide
from tests.reference.ledgers import AgentLedger
from tests.reference.masked_sides import masked_sides
from tests.reference.unit_sides import UnitSides

from gossamer.errors import BudgetSpent, DataError
from gossamer.privacy.masking import MaskingServer, Phase
from gossamer.privacy.masking.messages import (
    NO_INPUTS,
    REPLIES,
    Announcement,
    Confirmations,
    DeliveredShares,
    MaskedVector,
    RevealedShares,
    Survivors,
    packed,
    unpacked,
)
from gossamer.privacy.tasks import MASK, REFUSED, STEPS, LocalUpdate, MaskingStep, step_of
from gossamer.vectors import Masked, Public

AGENTS, SIZE, CLIP = 4, 5, 10.0
NAMES = tuple(f"node-{number}" for number in range(AGENTS))


def sides(agent_noise: float = 0.0, rounds: int = 2, **masking: Any) -> dict[str, ChargingMaskedSide]:
    return masked_sides(unit_settings(AGENTS, rounds, **masking), NAMES, 1, SIZE, CLIP, agent_noise)


def give_updates(found: dict[str, ChargingMaskedSide], round: int = 0, value: float = 0.25) -> None:
    for name, side in found.items():
        task = LocalUpdate(round, Public(np.zeros(SIZE)), side.terms.queries[name])
        assert side.answer(task, np.full(SIZE, value)).released == REFUSED  # "it is there", and no more


def ask(side: ChargingMaskedSide, step: int, incoming: Public = REFUSED, round: int = 0) -> Any:
    return side.admit(MaskingStep(round, step, incoming, 0)).answer().released


class Sum:
    """An honest server's side of one sum, and what it sent at each step."""

    def __init__(self, found: dict[str, ChargingMaskedSide], round: int = 0) -> None:
        self.found, self.round = found, round
        self.group = next(iter(found.values())).unit.group
        self.server = MaskingServer(self.group, round)
        self.asked: dict[int, dict[str, Public]] = {0: dict.fromkeys(found, REFUSED)}
        self.answers: dict[int, dict[str, Any]] = {}

    def until(self, step: int) -> Sum:
        for now in range(len(self.answers), step):
            self.answers[now] = {}
            for number, (name, side) in enumerate(self.found.items(), 1):
                answer = self.answers[now][name] = ask(side, now, self.asked[now][name], self.round)
                self.server.receive(self.read(now, number, answer))
            if now < Phase.REVEAL:
                requests = self.server.advance()
                self.asked[now + 1] = {NAMES[number - 1]: packed(message) for number, message in requests.items()}
        return self

    def read(self, step: int, number: int, answer: Any) -> Any:
        if step == Phase.MASK:
            assert type(answer) is Masked
            return MaskedVector(self.round, number, answer)
        assert type(answer) is Public
        return unpacked(answer, REPLIES[step], self.group)


def test_a_whole_sum() -> None:
    found = sides()
    give_updates(found)
    total = Sum(found).until(5).server.unmask()
    unit = found["node-0"].unit
    expected = np.full(SIZE, 0.25) if unit.longest > np.sqrt(SIZE) * 0.25 else unit.longest / np.sqrt(SIZE)
    np.testing.assert_allclose(unit.decoded(total).values, AGENTS * expected, atol=1e-6)


def test_the_constants_of_steps() -> None:
    assert len(Phase) - 1 == STEPS
    assert MASK == Phase.MASK
    ids = {MaskingStep(round, step, REFUSED, 0).id for round in range(3) for step in range(5)}
    assert len(ids) == 15
    assert max(ids) < 0
    assert step_of(MaskingStep(7, 3, REFUSED, 0).id) == (7, 3)
    assert step_of(0) is None


@pytest.mark.parametrize("step", range(5))
def test_a_step_asked_for_again_is_answered_with_the_same_bytes(step: int) -> None:
    """At any later time too, as long as the round is the newest."""
    found = sides(agent_noise=0.5)
    give_updates(found)
    done = Sum(found).until(step + 1)
    first = done.answers[step]["node-1"]
    assert ask(found["node-1"], step, done.asked[step]["node-1"]) == first
    done.until(5)
    assert ask(found["node-1"], step, done.asked[step]["node-1"]) == first


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_another_question_for_a_step_is_refused(step: int) -> None:
    """Once asked, a step has one question: another list of keys, other shares, other survivors, other signatures."""
    found = sides()
    give_updates(found)
    done = Sum(found).until(step + 1)
    variants: dict[int, Any] = {
        1: lambda: packed(Announcement(0, 1, *(bytes(31) + bytes([9]),) * 4, NO_INPUTS)),
        2: lambda: packed(DeliveredShares(0, 2, {})),
        3: lambda: packed(Survivors(0, (1, 2, 3))),
        4: lambda: packed(Confirmations(0, {})),
    }
    assert ask(found["node-1"], step, variants[step]()) == REFUSED
    assert ask(found["node-1"], step, done.asked[step]["node-1"]) == done.answers[step]["node-1"]


def test_steps_out_of_turn_are_refused_and_spoil_nothing() -> None:
    found = sides()
    side = found["node-0"]
    assert ask(side, 0) == REFUSED  # no update yet
    give_updates(found)
    assert ask(side, 3, packed(Survivors(0, (1, 2, 3)))) == REFUSED  # before it announced anything
    assert ask(side, 0, round=1) == REFUSED  # another round
    assert ask(side, 1, Public(np.zeros(3))) == REFUSED  # nonsense
    Sum(found).until(5).server.unmask()


def test_a_vector_that_is_asked_for_out_of_turn_is_charged_to_nobody() -> None:
    found = sides(agent_noise=0.5)
    side = found["node-0"]
    assert side.ledger is not None
    give_updates(found)
    for announced in (False, True):
        if announced:
            ask(side, Phase.ANNOUNCE)
        assert ask(side, Phase.MASK, packed(DeliveredShares(0, 1, {}))) == REFUSED
        assert side.ledger.releases == 0
    Sum(found).until(5).server.unmask()
    assert side.ledger.releases == 1


def test_a_new_round_has_new_keys_and_ends_the_old_one() -> None:
    found = sides()
    give_updates(found)
    first = Sum(found).until(3)
    give_updates(found, round=1)
    second = Sum(found, round=1).until(3)
    for name, side in found.items():
        assert first.answers[0][name] != second.answers[0][name]
        assert first.answers[2][name] != second.answers[2][name]
        assert ask(side, 3, packed(Survivors(0, (1, 2, 3, 4)))) == REFUSED


def test_the_update_of_a_round_is_the_first_that_was_made() -> None:
    """A second one, at another model, would be masked with the same masks: their difference would show."""
    found = sides()
    give_updates(found, value=0.25)
    give_updates(found, value=-0.25)
    assert Sum(found).until(5).server.unmask().values.view(np.int32).min() > 0


def test_the_update_is_a_copy() -> None:
    """Whoever computed it may use its memory again."""
    found = sides()
    shared = np.full(SIZE, 0.25)
    for name, side in found.items():
        side.answer(LocalUpdate(0, Public(np.zeros(SIZE)), side.terms.queries[name]), shared)
    shared[:] = -1.0
    assert Sum(found).until(5).server.unmask().values.view(np.int32).min() > 0


def test_an_agent_that_the_public_coins_leave_out_takes_no_part() -> None:
    found = sides()
    side = found["node-3"]
    side._members = lambda round: NAMES[:3]
    give_updates({"node-3": side})
    assert ask(side, 0) == REFUSED


class Watched:
    """An objective that says of how many agents it has made updates."""

    def __init__(self) -> None:
        self.computed = 0

    def local_updates(self, models: Any, data: Any, batches: Any, rates: Any, clips: Any) -> Any:
        self.computed += len(models)
        return SimpleNamespace(updates=np.zeros((len(models), SIZE)), not_finite=np.zeros(len(models), np.int64))


def test_no_update_is_made_for_a_round_that_the_agent_takes_no_part_in() -> None:
    """Terms, coins and rounds are looked at before anything is computed, which takes long."""
    found = sides(rounds=4)
    for side in found.values():
        side.shard = np.arange(3)
    objective = Watched()
    units = UnitSides(found, {}, {}, objective, None)  # type: ignore[arg-type]
    query = found["node-0"].terms.queries["node-0"]
    found["node-1"]._members = lambda round: ("node-0", "node-2")

    def asked(name: str, round: int, value: float = 0.0, **changed: Any) -> int:
        before, task = objective.computed, LocalUpdate(round, Public(np.full(SIZE, value)), replace(query, **changed))
        (answer,) = units.compute([units.admit(name, task)])
        assert answer.released == REFUSED
        return objective.computed - before

    assert asked("node-0", 0, value=1e12) == 0  # beyond the radius
    assert asked("node-0", 0, clip=1.0) == 0
    assert asked("node-0", 4) == 0
    assert asked("node-1", 0) == 0
    assert asked("node-0", 1) == 1
    assert ask(found["node-0"], 0, round=1) != REFUSED
    assert asked("node-0", 1) == 0  # it is there
    assert asked("node-0", 0) == 0
    assert asked("node-0", 2) == 1


def test_two_tickets_of_one_round_make_one_update() -> None:
    """Both were admitted before either was computed; the second, at another model, is dropped."""
    side = sides()["node-0"]
    tickets = [side.admit(LocalUpdate(0, Public(np.full(SIZE, at)), side.terms.queries["node-0"])) for at in (0.0, 0.1)]
    side.answer(tickets[0].task, np.zeros(SIZE))
    first = ask(side, 0)
    side.answer(tickets[1].task, np.ones(SIZE))
    assert ask(side, 0) == first != REFUSED


def test_the_masks_hide_what_the_update_was() -> None:
    """The same agents with other updates send other vectors, and all else to the byte as before."""
    sums = []
    for value in (0.25, -0.75):
        found = sides()
        give_updates(found, value=value)
        sums.append(Sum(found).until(5))
    for step in (0, 1, 3, 4):
        assert sums[0].answers[step] == sums[1].answers[step]
    assert sums[0].answers[2] != sums[1].answers[2]


def test_a_lying_server_never_gets_both_secrets_of_an_agent() -> None:
    """100 stories: it tells every agent a set of survivors, then tries others; agents answer about the first alone.

    It hands out all signatures that it has. For no agent does it find shares of both secrets, enough of each."""
    generator = np.random.default_rng(0)
    everybody = range(1, AGENTS + 1)
    unmasked = 0
    for _ in range(100):
        found = sides()
        give_updates(found)
        done = Sum(found).until(3)
        # Mostly one of two stories, so that some of them come to an end.
        stories = [tuple(sorted(generator.permutation(AGENTS)[: generator.integers(2, 5)] + 1)) for _ in range(2)]
        told, signatures = {}, {}
        for number in everybody:
            for story in generator.permutation(2):
                survivors = tuple(int(one) for one in stories[story])
                answer = ask(found[NAMES[number - 1]], 3, packed(Survivors(0, survivors)))
                if answer != REFUSED:
                    assert told.get(number, survivors) == survivors
                    told[number], signatures[number] = survivors, done.read(3, number, answer).signature
        seeds: dict[int, int] = dict.fromkeys(everybody, 0)
        keys = dict(seeds)
        for number in told:
            answer = ask(found[NAMES[number - 1]], 4, packed(Confirmations(0, signatures)))
            if answer == REFUSED:
                continue
            revealed = done.read(4, number, answer)
            assert isinstance(revealed, RevealedShares)
            for about in revealed.shares:
                (seeds if about in told[number] else keys)[about] += 1
        threshold = done.group.threshold
        both = [one for one in everybody if seeds[one] >= threshold and keys[one] >= threshold]
        assert not both
        known = [one for one in everybody if seeds[one] >= threshold]
        assert not known or len(known) >= done.group.minimum
        unmasked += bool(known)
    assert unmasked > 5  # honest stories are among them


def test_noise_is_charged_before_it_is_drawn_and_once_a_round() -> None:
    found = sides(agent_noise=0.5, rounds=1)
    give_updates(found)
    side = found["node-0"]
    assert side.ledger is not None
    done = Sum(found).until(2)
    assert side.ledger.releases == 0
    task = MaskingStep(0, Phase.MASK, done.asked[2]["node-0"], SIZE, 32)
    ticket = side.admit(task)
    assert side.ledger.releases == 1  # it is admitted, and not yet drawn
    first = ticket.answer().released
    assert side.admit(task).answer().released == first
    assert side.ledger.releases == 1
    assert side.ledger.lines()[0]["releases"] == 1
    for one in found.values():
        one.terms = replace(one.terms, rounds=2)  # more than their ledgers were opened for
    give_updates(found, round=1)
    done = Sum(found, round=1).until(2)
    with pytest.raises(BudgetSpent, match="node-0: release refused: the plan covers 1 release"):
        side.admit(MaskingStep(1, Phase.MASK, done.asked[2]["node-0"], SIZE, 32))


def test_every_round_has_noise_of_its_own() -> None:
    """The same update, in two rounds: the sums differ, by noise alone."""
    sums = []
    for agent_noise in (0.0, 0.5):
        found = sides(agent_noise)
        for round in (0, 1):
            give_updates(found, round)
            sums.append(Sum(found, round).until(5).server.unmask().values.tolist())
    assert sums[0] == sums[1]
    assert not set(sums[2]) & set(sums[3])


def test_an_agent_that_adds_noise_has_a_ledger() -> None:
    side = sides(agent_noise=0.5)["node-0"]
    with pytest.raises(DataError, match="needs a ledger"):
        ChargingMaskedSide("node-0", np.arange(0), 1, side.unit, lambda round: NAMES, side.terms)
    quiet = sides()["node-0"]
    assert quiet.ledger is None
    assert side.unit.noise is not None
    assert side.unit.noise.describe() == AgentLedger("", side.unit.noise, 1).noise.describe()


def test_a_deployment_draws_its_own_secrets() -> None:
    drawn = []

    def secret(round: int) -> bytes:
        drawn.append(round)
        return bytes([round + 1]) * 32

    simulated = sides(rounds=4)["node-0"]
    answers = []
    for _ in range(2):
        side = ChargingMaskedSide(
            "node-0", np.arange(0), 1, simulated.unit, lambda round: NAMES, simulated.terms, secret=secret
        )
        give_updates({"node-0": side}, round=3)
        answers.append(ask(side, 0, round=3))
    give_updates({"node-0": simulated}, round=3)
    assert drawn == [3, 3]
    assert answers[0] == answers[1] != ask(simulated, 0, round=3)


def test_simulated_secrets_differ_between_agents_and_rounds() -> None:
    found = sides()
    secrets = {side._secret(round) for side in found.values() for round in range(3)}
    assert len(secrets) == 3 * AGENTS
