"""A server that lies about who vanished, alone or with colluding agents, does not get at a single vector.

Each test first shows, where it can, what the server would have with a little more: the attack is one that works.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from copy import copy

import numpy as np
import pytest
from tests.reference.masking_conversation import Conversation, plain_sum
from tests.reference.masking_slow import most_colluders

from gossamer.errors import PeerError
from gossamer.privacy.masking import Group, MaskingAgent, Phase
from gossamer.privacy.masking.keys import (
    commitment,
    keys_of,
    pairwise_mask_keys,
    public_key,
    self_mask_key,
    sign,
    with_masks,
)
from gossamer.privacy.masking.messages import (
    NO_INPUTS,
    AgentRoster,
    Confirmation,
    Confirmations,
    DeliveredShares,
    RevealedShares,
    Survivors,
)
from gossamer.privacy.masking.shares import PRIME, combine

Told = Mapping[int, tuple[int, ...]]
"""Whom the server calls survivors, by the agent that it says so to."""


def subsets_with(agent: int, size: int, minimum: int) -> list[tuple[int, ...]]:
    everybody = range(1, size + 1)
    found = (set_ for count in range(minimum, size + 1) for set_ in itertools.combinations(everybody, count))
    return [set_ for set_ in found if agent in set_]


class Liar:
    """A server that has all masked vectors and tells every agent what it likes; ``colluders`` help it."""

    def __init__(self, group: Group, colluders: Iterable[int] = ()) -> None:
        self.group, self.colluders = group, set(colluders)
        conversation = Conversation(group).until(Phase.CONFIRM)
        self.roster: AgentRoster = conversation.server.roster
        self.digest = self.roster.digest(group)
        self.vectors = conversation.vectors
        self.states = {i: copy(agent) for i, agent in conversation.agents.items()}
        self.everybody = tuple(self.states)
        self.confirmed: dict[tuple[int, tuple[int, ...]], tuple[MaskingAgent, Confirmation]] = {}

    def confirm(self, agent: int, survivors: tuple[int, ...]) -> tuple[MaskingAgent, Confirmation]:
        """An honest agent after it was told, and its signature."""
        if (agent, survivors) not in self.confirmed:
            asked = copy(self.states[agent])
            self.confirmed[agent, survivors] = asked, asked.confirm(Survivors(0, survivors))
        asked, signature = self.confirmed[agent, survivors]
        return copy(asked), signature

    def forge(self, colluder: int, survivors: tuple[int, ...]) -> bytes:
        state = self.states[colluder]
        signing = keys_of(state.secret, self.group, colluder, 0, NO_INPUTS).signing
        return sign(signing, Confirmation.signed_text(self.digest, self.everybody, survivors))

    def answers(self, told: Told) -> dict[int, RevealedShares]:
        """What the honest agents reveal after each was told its own story, with every signature there is."""
        asked = {i: self.confirm(i, survivors) for i, survivors in told.items() if i not in self.colluders}
        answers = {}
        for i, (agent, _) in asked.items():
            signatures = {j: one.signature for j, (_, one) in asked.items()}
            signatures |= {j: self.forge(j, told[i]) for j in self.colluders}
            try:
                answers[i] = agent.reveal(Confirmations(0, signatures))
            except PeerError:
                continue
        return answers

    def known(self, told: Told) -> tuple[set[int], set[int]]:
        """Whose seeds, and whose mask keys, the server and the colluders find with what the agents reveal."""
        answers = self.answers(told)
        seeds, keys = set(), set()
        for i in set(self.everybody) - self.colluders:
            held = {j: self.states[j].held[i] for j in self.colluders}
            of_seed = {j: both[33:] for j, both in held.items()}
            of_key = {j: both[:33] for j, both in held.items()}
            for j, answer in answers.items():
                (of_seed if i in told[j] else of_key)[j] = answer.shares[i]
            announced = self.roster.by_agent[i]
            if len(of_seed) >= self.group.threshold:
                assert commitment(combine(of_seed, self.group.threshold)) == announced.commitment
                seeds.add(i)
            if len(of_key) >= self.group.threshold:
                assert public_key(combine(of_key, self.group.threshold)) == announced.mask_key
                keys.add(i)
        return seeds, keys


def check_nothing_is_learnt(liar: Liar, told: Told) -> None:
    """No agent's two secrets, and seeds only of one set of at least the minimum, all of whose others are unmasked."""
    seeds, keys = liar.known(told)
    assert not seeds & keys
    honest = set(liar.everybody) - liar.colluders
    if seeds:
        assert any(seeds == set(survivors) & honest for survivors in told.values())
        assert len(seeds) >= liar.group.minimum - len(liar.colluders) >= 2
        assert keys <= honest - seeds


def test_both_secrets_of_an_agent_would_give_its_vector_away() -> None:
    """What the tests below keep from the server is worth keeping."""
    group = Group(5, 8)
    conversation = Conversation(group).until(Phase.MASK)
    conversation.speak()
    sent = conversation.outbox[2].values.values
    roster = conversation.server.roster
    held = {i: agent.held[2] for i, agent in conversation.agents.items() if i != 2}
    key = combine({i: both[:33] for i, both in held.items()}, 4)
    seed = combine({i: both[33:] for i, both in held.items()}, 4)
    digest = roster.digest(group)
    pairs = pairwise_mask_keys(key, {i: roster.by_agent[i].mask_key for i in held}, digest, 2)
    added = [pairs[1]]
    subtracted = [pairs[3], pairs[4], pairs[5], self_mask_key(seed, digest)]
    assert with_masks(sent, added, subtracted, group).tolist() == conversation.vectors[2].tolist()


def test_whatever_four_agents_are_told() -> None:
    """Every way to tell each of four agents who survived: 4^4 stories."""
    liar = Liar(Group(4, 2))
    stories = [subsets_with(i, 4, 3) for i in liar.everybody]
    outcomes = set()
    for story in itertools.product(*stories):
        told = dict(zip(liar.everybody, story, strict=True))
        check_nothing_is_learnt(liar, told)
        outcomes.add(len(liar.known(told)[0]))
    assert outcomes == {0, 3, 4}  # honest stories are among them


@pytest.mark.some(1)
@pytest.mark.parametrize(("size", "threshold", "colluders"), [(5, 4, (2, 5)), (6, 4, (3,)), (7, 5, (1, 2))])
def test_whatever_agents_are_told_with_colluders(size: int, threshold: int, colluders: tuple[int, ...]) -> None:
    """As many colluders as the group tolerates; 150 stories out of two or three sets each."""
    liar = Liar(Group(size, 2, threshold=threshold), colluders)
    assert most_colluders(liar.group) == len(colluders)
    generator = np.random.default_rng(size)
    sets = subsets_with(1, size, threshold) + subsets_with(2, size, threshold)
    learnt = 0
    for _ in range(150):
        few = [sets[k] for k in generator.integers(len(sets), size=generator.integers(1, 4))]
        told = {}
        for i in liar.everybody:
            fitting = [one for one in few if i in one]
            if fitting:
                told[i] = fitting[generator.integers(len(fitting))]
        check_nothing_is_learnt(liar, told)
        learnt += bool(liar.known(told)[0])
    assert learnt > 10  # sums of honest stories are learnt


def test_one_colluder_too_many_would_be_enough() -> None:
    """Less than 2t - n colluders is not only sufficient: of n = 4 with t = 3, two get both secrets of agent 2.

    Agent 1 is told that 2 vanished, agent 2 that all survived; 3 and 4 sign both stories and hold shares of both.
    """
    liar = Liar(Group(4, 2), (3, 4))
    assert most_colluders(liar.group) == 1
    seeds, keys = liar.known({1: (1, 3, 4), 2: (1, 2, 3, 4)})
    assert seeds & keys == {2}


def test_a_smaller_sum_by_telling_everybody_else_another_story() -> None:
    """n = 6, t = 4, no colluders: each of 4, 5, 6 is called vanished by four agents, so that without signatures the
    server would unmask the sum of 1, 2, 3 alone, three vectors instead of four."""
    liar = Liar(Group(6, 2))
    told = {1: (1, 2, 3, 4), 2: (1, 2, 3, 5), 3: (1, 2, 3, 6), 4: (1, 2, 3, 4), 5: (1, 2, 3, 5), 6: (1, 2, 3, 6)}
    for other in (4, 5, 6):
        assert sum(other not in survivors for survivors in told.values()) == 4 == liar.group.threshold
    assert liar.answers(told) == {}
    assert len(liar.answers(dict.fromkeys((1, 2, 3, 4), (1, 2, 3, 4)))) == 4


def test_an_agent_answers_about_one_set_only() -> None:
    """Once it has signed, it signs no other set, and reveals shares for the signed one only, once."""
    conversation = Conversation(Group(6, 2)).until(Phase.CONFIRM)
    first = {i: conversation.answer(i, Survivors(0, (1, 2, 3, 4, 5))) for i in range(1, 6)}
    with pytest.raises(PeerError, match="each step is done once"):
        conversation.answer(1, Survivors(0, (1, 2, 3, 4)))
    conversation.step = Phase.REVEAL
    signatures = Confirmations(0, {i: one.signature for i, one in first.items()})
    revealed = conversation.answer(1, signatures)
    assert set(revealed.shares) == set(range(1, 7))
    with pytest.raises(PeerError, match="each step is done once"):
        conversation.answer(1, signatures)


def test_an_agent_masks_one_vector_only() -> None:
    """Two vectors under the same masks would give away their difference."""
    conversation = Conversation(Group(5, 2)).until(Phase.MASK)
    conversation.answer(1, conversation.inbox[1])
    with pytest.raises(PeerError, match="each step is done once"):
        conversation.answer(1, conversation.inbox[1])


def test_agents_with_different_lists_of_keys_cannot_open_each_others_shares() -> None:
    """A server that swaps one agent's keys for its own, for one receiver only, is noticed by every pair."""
    group = Group(5, 2)
    conversation = Conversation(group).until(Phase.SHARE)
    impostor = Conversation(group, seed=1).agents[5].announce()
    true = conversation.inbox[1]
    conversation.inbox[1] = AgentRoster(0, (*true.announcements[:4], impostor))
    conversation.speak()
    to_2 = {i: sent.shares[2] for i, sent in conversation.outbox.items() if i != 2}
    conversation.step = Phase.MASK
    with pytest.raises(PeerError, match="agent 1's shares do not open"):
        conversation.answer(2, DeliveredShares(0, 2, to_2))


def test_agents_that_were_told_of_different_participants_do_not_confirm_together() -> None:
    """Agent 1 got no shares of agent 5, so that its masks do not cancel: the server has no use for its signature."""
    conversation = Conversation(Group(5, 2)).until(Phase.MASK)
    short = dict(conversation.inbox[1].shares)
    del short[5]
    conversation.inbox[1] = DeliveredShares(0, 1, short)
    conversation.speak()
    conversation.step = Phase.CONFIRM
    told = Survivors(0, (1, 2, 3, 4))
    signatures = {i: conversation.answer(i, told).signature for i in (1, 2, 3, 4)}
    conversation.step = Phase.REVEAL
    for agent in (1, 2):
        with pytest.raises(PeerError, match="agents signed the survivors that agent"):
            conversation.answer(agent, Confirmations(0, signatures))


def test_the_sum_of_vectors_below_the_minimum_stays_masked() -> None:
    """Without the seeds of its agents, a total is no sum, even after all keys of those that vanished are known."""
    group = Group(6, 50)
    conversation = Conversation(group).until(Phase.MASK)
    conversation.speak(lambda agent: agent > 3)
    total = sum((sent.values.values for sent in conversation.outbox.values()), np.zeros(50, np.uint32))
    roster, keys = conversation.server.roster, []
    digest = roster.digest(group)
    for i in (4, 5, 6):
        secret = keys_of(conversation.agents[i].secret, group, i, 0, NO_INPUTS).mask
        keys += pairwise_mask_keys(secret, {j: roster.by_agent[j].mask_key for j in (1, 2, 3)}, digest, i).values()
    without_pairs = with_masks(total, [], keys, group)
    expected = plain_sum(group, conversation.vectors, (1, 2, 3))
    seeds = [keys_of(conversation.agents[i].secret, group, i, 0, NO_INPUTS).seed for i in (1, 2, 3)]
    self_masks = [self_mask_key(seed, digest) for seed in seeds]
    assert with_masks(without_pairs, [], self_masks, group).tolist() == expected
    for some in itertools.chain([[]], itertools.combinations(self_masks, 1), itertools.combinations(self_masks, 2)):
        assert with_masks(without_pairs, [], some, group).tolist() != expected


def test_signatures_of_those_that_vanished_do_not_count() -> None:
    """A colluder that is called vanished signs all the same: three survivors and it are not four survivors."""
    liar, told = Liar(Group(5, 2), (5,)), (1, 2, 3, 4)
    agent, _ = liar.confirm(1, told)
    signatures = {i: liar.confirm(i, told)[1].signature for i in (1, 2, 3)}
    with pytest.raises(PeerError, match="3 agents signed the survivors that agent 1 was told of, expected 4"):
        agent.reveal(Confirmations(0, {**signatures, 5: liar.forge(5, told)}))
    agent.reveal(Confirmations(0, {**signatures, 4: liar.confirm(4, told)[1].signature}))


def test_the_two_secrets_of_an_agent_are_shared_with_polynomials_of_their_own() -> None:
    """With the same coefficients both shares of anyone would differ by the difference of the secrets: one of them and
    one pair of shares would give the other."""
    for i in range(1, 5):
        differences = set()
        for state in Liar(Group(4, 2)).states.values():
            of_key, of_seed = (int.from_bytes(half, "little") for half in (state.held[i][:33], state.held[i][33:]))
            differences.add((of_key - of_seed) % PRIME)
        assert len(differences) == 4
