"""Shares that are committed to: wrong ones are left out, whoever sends them; too few right ones are no sum."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.reference import masking_slow as slow
from tests.reference.masking_conversation import Conversation, plain_sum

from gossamer.errors import PeerError
from gossamer.privacy.masking import Group, Phase
from gossamer.privacy.masking import shares as subject
from gossamer.privacy.masking.shares import PRIME, SHARE_BYTES
from gossamer.protocol.encoding import encode

GROUP = Group(6, 5, threshold=4)
# Errors are in no bits that X25519 ignores.
LIES: dict[str, Any] = {
    "one bit": lambda share: share[:16] + bytes([share[16] ^ 1]) + share[17:],
    "zero": lambda share: bytes(SHARE_BYTES),
    "no number below the prime": lambda share: b"\xff" * SHARE_BYTES,
    "another number": lambda share: ((int.from_bytes(share, "little") + 2**77) % PRIME).to_bytes(SHARE_BYTES, "little"),
}


def lied(liars: tuple[int, ...], about: tuple[int, ...], lie: Any, vanished: int | None = 6) -> Conversation:
    """Everything up to the sum; ``liars`` reveal something else of the secrets ``about``. Agent 6 may vanish first."""
    gone = {} if vanished is None else {vanished: Phase.MASK}
    conversation = Conversation(GROUP).until(Phase.REVEAL, gone)
    conversation.speak()
    for liar in liars:
        said = conversation.outbox[liar]
        wrong = {agent: lie(share) if agent in about else share for agent, share in said.shares.items()}
        conversation.outbox[liar] = replace(said, shares=wrong)
    conversation.deliver()
    return conversation


@pytest.mark.some(12)
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("liar", [1, 3, 5])
@pytest.mark.parametrize("about", [(2,), (6,), (1, 2, 3, 4, 5, 6)])
def test_a_wrong_share_is_left_out(lie: str, liar: int, about: tuple[int, ...]) -> None:
    """Five reveal and four are needed. Agent 6 vanished: its mask key is found, of the others their seeds."""
    conversation = lied((liar,), about, LIES[lie])
    total = conversation.server.unmask()
    assert total.agents == (1, 2, 3, 4, 5)
    assert total.values.tolist() == plain_sum(GROUP, conversation.vectors, total.agents)


@pytest.mark.some(20)
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("liars", [*itertools.combinations(range(1, 7), 2)])
def test_as_many_as_are_too_many_for_the_threshold(lie: str, liars: tuple[int, ...]) -> None:
    """All six reveal: two liars are left out, whichever they are."""
    conversation = lied(liars, (1, 4), LIES[lie], vanished=None)
    total = conversation.server.unmask()
    assert total.values.tolist() == plain_sum(GROUP, conversation.vectors, tuple(range(1, 7)))


@pytest.mark.parametrize(("of", "what"), [(2, "self-mask"), (6, "mask key")])
@pytest.mark.parametrize("lie", LIES)
def test_with_fewer_right_ones_than_the_threshold_nothing_is_unmasked(of: int, what: str, lie: str) -> None:
    conversation = lied((1, 2), (of,), LIES[lie])  # at 1 and 3 errors of opposite signs would cancel
    with pytest.raises(PeerError, match=f"agent {of}'s {what} do not give what it announced: fewer than 4 of them"):
        conversation.server.unmask()
    assert conversation.server.step == Phase.REVEAL  # nothing has changed


def test_shares_that_their_owner_dealt_wrong_are_no_sum() -> None:
    """They fit their commitments, and give no secret that was announced: nothing is unmasked, and nobody guesses."""
    conversation = Conversation(GROUP).until(Phase.REVEAL)
    conversation.speak()
    digest = conversation.server.roster.digest(GROUP)
    commitments = dict(conversation.server.commitments)
    wrong = {
        i: LIES["another number"](said.shares[2]) if i == 1 else said.shares[2]
        for i, said in conversation.outbox.items()
    }
    commitments[2] = {
        i: commitments[2][i][:32] + subject._commitment(share, digest, "seed", 2, i) for i, share in wrong.items()
    }
    conversation.outbox[1] = replace(conversation.outbox[1], shares={**conversation.outbox[1].shares, 2: wrong[1]})
    conversation.deliver()
    conversation.server.commitments = commitments
    with pytest.raises(PeerError, match="agent 2's self-mask do not give what it announced"):
        conversation.server.unmask()


def test_wrong_commitments_do_no_harm_to_right_shares() -> None:
    """An agent that commits to nonsense takes away only what wrong shares would be told apart by."""
    conversation = lied((), (), None)
    state = conversation.server
    nonsense = {i: dict.fromkeys(table, bytes(64)) for i, table in state.commitments.items()}
    conversation.server.commitments = nonsense
    total = conversation.server.unmask()
    assert total.values.tolist() == plain_sum(GROUP, conversation.vectors, total.agents)


def test_no_commitment_is_looked_at_where_all_shares_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where one is wrong, at most one for each share of the secret: no search among sets of shares."""
    looked: list[tuple[int, int]] = []
    true = subject._commitment
    monkeypatch.setattr(
        subject,
        "_commitment",
        lambda *arguments: looked.append(arguments[3:]) or true(*arguments),  # type: ignore[func-returns-value]
    )
    honest = lied((), (), None)
    looked.clear()  # those that agents made
    honest.server.unmask()
    assert looked == []
    one_lies = lied((1,), (2,), LIES["one bit"])
    looked.clear()
    one_lies.server.unmask()
    assert looked == [(2, giver) for giver in (1, 2, 3, 4, 5)]


def test_a_commitment_is_of_one_share_of_one_sum() -> None:
    """HKDF of the share, by the slow reference; every part of its place gives another one."""
    share = bytes(range(SHARE_BYTES))
    found = subject._commitment(share, b"digest", "seed", 2, 5)
    assert found == slow.hkdf(share, b"digest", encode(("gossamer masking", "share of seed", 2, 5)))
    others = [(b"other", "seed", 2, 5), (b"digest", "mask", 2, 5), (b"digest", "seed", 3, 5), (b"digest", "seed", 2, 4)]
    assert found not in [subject._commitment(share, *place) for place in others]  # type: ignore[arg-type]


def test_an_agent_commits_to_what_it_deals() -> None:
    """Its own shares too. Nothing that it sends has a share in the clear."""
    conversation = Conversation(GROUP).until(Phase.SHARE)
    conversation.speak()
    sent = dict(conversation.outbox)
    conversation.deliver()
    digest = conversation.server.roster.digest(GROUP)
    conversation.until(Phase.CONFIRM)
    for owner, message in sent.items():
        for holder, agent in conversation.agents.items():
            both = agent.held[owner]
            halves = both[:SHARE_BYTES], both[SHARE_BYTES:]
            expected = [
                subject._commitment(half, digest, which, owner, holder) for half, which in zip(halves, ("mask", "seed"))
            ]
            assert message.commitments[holder] == b"".join(expected)
            assert not any(half in encode(message) for half in halves)


def test_the_server_forgets_no_commitment_when_it_comes_back() -> None:
    """Its state crosses as bytes at every step of the conversation; see `Conversation.deliver`."""
    conversation = lied((2,), (4,), LIES["one bit"])
    assert set(conversation.server.commitments) == set(range(1, 7))
    np.testing.assert_array_equal(
        conversation.server.unmask().values, plain_sum(GROUP, conversation.vectors, (1, 2, 3, 4, 5))
    )
