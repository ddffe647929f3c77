"""Notes about receipts in what parties seal: what comes with one that is not believed is not taken, and is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.properties.test_witnesses_properties import Chain
from tests.reference.linked_peers import Linked
from tests.reference.witnessed_hosts import Memory, witnesses

from gossamer.algorithms.gossip.exchange import Offer
from gossamer.deployment.peers.peers import NOTED, LinkCounters, PeerSettings, decode_content, encode_content, noted
from gossamer.errors import MalformedMessage
from gossamer.protocol.messages import Acknowledge, MessageFrame
from gossamer.protocol.witnesses import LATE, MORE, OTHER, Note
from gossamer.vectors import Released

MODEL = np.zeros(12_500)  # 100 kB
SETTINGS = PeerSettings(heartbeat=10.0, silence=30.0, gone_after=300.0, largest=200_000)


def frame(number: int, values: Any = MODEL[:4]) -> MessageFrame:
    return MessageFrame(number, number - 1, 0, Offer(number, Released(values)))


class Pair(Linked):
    """Party a with receipts, and b, who witnesses them; both have a session."""

    def __init__(self, chain: Chain) -> None:
        self.memories = {name: Memory() for name in "ab"}
        super().__init__("a", "b", settings=SETTINGS)
        self.begin("a", chain), self.begin("b", None)
        for _ in range(2):
            self.send("a", "b", Acknowledge(0)), self.send("b", "a", Acknowledge(0))
        self.arrived, self.carried = {"a": [], "b": []}, []

    def begin(self, name: str, chain: Chain | None) -> None:
        found = witnesses(name, chain, self.memories[name])
        self.start(name, witnesses=found, counters=lambda peer: LinkCounters(0, 0, 0), warn=self.lines[name].append)

    def says(self, number: int) -> bool:
        """Whether b takes a message of a, and acknowledges it."""
        before = len(self.arrived["b"])
        self.send("a", "b", frame(number))
        taken = len(self.arrived["b"]) > before
        if taken:
            self.peers["b"].keep(self.now)
            self.send("b", "a", Acknowledge(number))
        return taken


def test_what_a_witness_has_seen_comes_back_with_the_acknowledgement() -> None:
    chain = Chain(name="a").grow(2)
    pair = Pair(chain)
    assert pair.says(1)
    assert chain.countersigned["b"].releases == 2
    assert pair.memories["b"].disk["a"][0] == (2, chain.heads[2])
    chain.grow(3)
    assert pair.says(2)
    assert chain.countersigned["b"] == (5, chain.heads[5])
    sent = [len(datagram) for sender, _, datagram in pair.carried if sender == "a"]
    assert pair.says(3)  # nothing new, so no note
    assert len(pair.carried[-2][2]) < min(sent)


def test_a_ledger_that_was_put_back_is_noticed_before_its_next_release_is_taken() -> None:
    chain = Chain(name="a").grow(5)
    pair = Pair(chain)
    assert pair.says(1)
    forked = chain.of(chain.links[:3])
    pair.memories["a"] = Memory()  # and its own memory with it
    pair.begin("a", forked)
    pair.send("a", "b", Acknowledge(0)), pair.send("b", "a", Acknowledge(0)), pair.send("a", "b", Acknowledge(0))
    pair.lines["b"].clear()
    for number in range(2, 6):
        forked.grow()
        assert not pair.says(number)
    assert pair.dropped("a", at="b") == {LATE: 1, OTHER: 3}
    late, other = pair.lines["b"]
    assert late.startswith(f"dropped from a, {LATE}: a shows receipt 4 (head ")
    assert other.startswith(f"dropped from a, {OTHER}: a shows receipt 5 (head ")
    assert "which does not go on from receipt 5" in other
    assert pair.memories["b"].disk["a"][0] == (5, chain.heads[5])
    assert "which does not go on from receipt 5" in pair.peers["b"].states(pair.now)["a"].receipts
    pair.begin("a", chain.grow())  # its newest ledger is back
    pair.send("a", "b", Acknowledge(0)), pair.send("b", "a", Acknowledge(0)), pair.send("a", "b", Acknowledge(0))
    assert pair.says(6)
    assert pair.peers["b"].states(pair.now)["a"].receipts == ""


def test_a_ledger_that_stays_behind_is_no_late_message() -> None:
    """One frame that comes late is what networks do; nothing but late ones for a while is an older ledger."""
    chain = Chain(name="a").grow(5)
    pair = Pair(chain)
    assert pair.says(1)
    pair.memories["a"] = Memory()
    pair.begin("a", chain.of(chain.links[:3]))
    pair.send("a", "b", Acknowledge(0)), pair.send("b", "a", Acknowledge(0)), pair.send("a", "b", Acknowledge(0))

    def doubt() -> str:
        return pair.peers["b"].states(pair.now)["a"].receipts

    for _ in range(6):
        assert not pair.says(2)
        assert doubt() == ""
        pair.now += 5.0
    assert not pair.says(2)
    assert doubt().startswith("a shows receipt 3 (head ")
    assert "its ledger is an older copy" in doubt()


def test_who_goes_on_showing_other_receipts_is_put_in_quarantine() -> None:
    chain = Chain(name="a").grow(5)
    pair = Pair(chain)
    assert pair.says(1)
    pair.begin("a", Chain(name="a").grow(6))
    for _ in range(2):
        pair.send("a", "b", Acknowledge(0)), pair.send("b", "a", Acknowledge(0))
    for number in range(2, 30):
        assert not pair.says(number)
    assert pair.state("a", "b").startswith("quarantined")


def test_a_party_is_told_by_its_peers_what_its_ledger_has_forgotten() -> None:
    """With their counters, as soon as there is a session: before it draws or charges anything."""
    chain = Chain(name="a").grow(5)
    pair = Pair(chain)
    assert pair.says(1)
    pair.memories["a"] = Memory()
    pair.begin("a", chain.of(chain.links[:3]))
    pair.peers["a"]._peers["b"].contact = True
    pair.wait(20.0)
    found = pair.peers["a"]._witnesses
    assert found is not None
    (line,) = pair.peers["a"].forgotten()
    assert (found.forgotten(), pair.peers["b"].forgotten()) == ([line], [])
    assert line.startswith("b has countersigned receipt 5 (head ")
    assert line.endswith("and it has 3")
    assert any(line in said for said in pair.lines["a"])
    assert MORE not in pair.dropped("b", at="a")


def test_under_one_percent_of_the_bytes_between_two_parties_are_notes() -> None:
    """Both release and witness, with models of 100 kB, one to three releases a message, and each is acknowledged."""
    total = []
    for witnessed in (True, False):
        chains = {name: Chain(name=name) for name in "ab"}
        pair, draw = Pair(chains["a"]), np.random.default_rng(1)
        for name in "ab":
            if witnessed:
                pair.begin(name, chains[name])
            else:
                pair.start(name, counters=lambda peer: LinkCounters(0, 0, 0))
        for _ in range(2):
            pair.send("a", "b", Acknowledge(0)), pair.send("b", "a", Acknowledge(0))
        pair.carried.clear()
        for number in range(1, 31):
            for name, other in ("ab", "ba"):
                chains[name].grow(int(draw.integers(1, 4)))
                pair.send(name, other, frame(number, MODEL))
                pair.peers[other].keep(pair.now)
                pair.send(other, name, Acknowledge(number))
        assert all(sum(isinstance(one, MessageFrame) for _, one in arrived) == 30 for arrived in pair.arrived.values())
        total.append(sum(len(datagram) for _, _, datagram in pair.carried))
    assert total[1] < total[0] < 1.01 * total[1]


def test_a_note_is_read_as_it_was_written_and_nothing_else_is() -> None:
    note, content = Note(1, bytes(32), bytes(32)), encode_content(Acknowledge(5, 6))
    assert decode_content(noted(content, note), 100) == (Acknowledge(5, 6), note)
    assert decode_content(content, 100) == (Acknowledge(5, 6), None)
    assert noted(content, None) == content
    for wrong in (
        bytes([NOTED]),
        noted(content, note)[:50],
        noted(noted(content, note), note),
        bytes([NOTED, 1, 0]) + content,
        bytes([NOTED, 0, 0]) + content,
    ):
        with pytest.raises(MalformedMessage):
            decode_content(wrong, 100)
