"""Witnesses of receipts: forgeries are noticed before anything is taken, and honest chains are never refused."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.witnessed_hosts import RUN, Memory, identity, signed, witnesses
from tests.sampling import examples

from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.witnesses import (
    LATE,
    MORE,
    MOST_LINKS,
    OTHER,
    PURPOSE,
    UNSIGNED,
    Note,
    Seen,
    countersigned,
    following,
)

FORGERIES = 10_000


@dataclass
class Chain:
    """Receipts of a party, by their links alone."""

    heads: list[bytes] = field(default_factory=lambda: [b"\x01" * 32])
    links: list[bytes] = field(default_factory=list)
    countersigned: dict[str, Seen] = field(default_factory=dict)
    name: str = "party"

    def grow(self, more: int = 1) -> Chain:
        for _ in range(more):
            self.add(secrets.token_bytes(32))
        return self

    def add(self, link: bytes) -> None:
        self.links.append(link)
        self.heads.append(following(self.heads[-1], link))

    def witnessed(self, witness: str, seen: Seen, signature: bytes) -> None:
        assert signed(witness, signature, countersigned(RUN, self.name, seen))
        self.countersigned[witness] = seen

    def of(self, links: list[bytes]) -> Chain:
        """Another one with the same beginning."""
        found = Chain(self.heads[:1], name=self.name)
        for link in links:
            found.add(link)
        return found

    def claim(self, told: int) -> Note:
        """All that it has, for whoever has seen so many."""
        return Note(len(self.links), self.heads[-1], b"".join(self.links[told:]))


def told_by(witness: str, chain: Chain, releases: int) -> Note:
    """Countersignature of so many receipts of a chain."""
    seen = Seen(releases, chain.heads[releases])
    signature = identity(witness).sign(PURPOSE, countersigned(RUN, chain.name, seen))
    return Note(seen=seen.releases, seen_head=seen.head, signature=signature)


@dataclass
class Case:
    """A chain, of which a witness has seen the first ``seen`` receipts, and another party's."""

    chain: Chain
    other: Chain
    seen: int
    draw: np.random.Generator

    def place(self) -> int:
        """One of the receipts that were seen."""
        return int(self.draw.integers(self.seen))


def dropped(case: Case) -> Note:
    at = case.place()
    forged = case.chain.of([*case.chain.links[:at], *case.chain.links[at + 1 :]])
    return forged.grow().claim(case.seen)


def reordered(case: Case) -> Note:
    at, links = case.place(), list(case.chain.links)
    links[at], links[at + 1] = links[at + 1], links[at]
    return case.chain.of(links).claim(case.seen)


def altered(case: Case) -> Note:
    at, links = case.place(), list(case.chain.links)
    links[at] = case.draw.bytes(32)
    return case.chain.of(links).claim(case.seen)


def doubled(case: Case) -> Note:
    at, links = int(case.draw.integers(case.seen - 1)), case.chain.links  # what comes after the last seen is new
    return case.chain.of([*links[: at + 1], *links[at:]]).claim(case.seen)


def of_another_party(case: Case) -> Note:
    return case.other.claim(case.seen)


def with_links_of_another_party(case: Case) -> Note:
    note = case.chain.claim(case.seen)
    return replace(note, links=b"".join(case.other.links[case.seen :]))


def older(case: Case) -> Note:
    """A ledger that was put back, and shows what it has."""
    return case.chain.of(case.chain.links[: int(case.draw.integers(1, case.seen))]).claim(0)


def put_back_and_gone_on(case: Case) -> Note:
    """Any number of releases after an older copy: fewer than were seen, as many, or more."""
    forged = case.chain.of(case.chain.links[: case.place()]).grow(int(case.draw.integers(1, 2 * case.seen)))
    return replace(forged.claim(0), links=b"".join(forged.links[-MOST_LINKS:]))


def a_bit_of_its_claim(case: Case) -> Note:
    """One bit of the head, or of a link that is followed."""
    note = case.chain.claim(case.seen)
    both = bytearray(note.head + note.links)
    both[case.draw.integers(len(both))] ^= 1 << int(case.draw.integers(8))
    return replace(note, head=bytes(both[:32]), links=bytes(both[32:]))


def another_number(case: Case) -> Note:
    note, more = case.chain.claim(case.seen), int(case.draw.integers(1, 5))
    return replace(note, releases=max(1, note.releases + int(case.draw.choice([-more, more]))))


FORGED: list[Callable[[Case], Note]] = [
    dropped,
    reordered,
    altered,
    doubled,
    of_another_party,
    with_links_of_another_party,
    older,
    put_back_and_gone_on,
    a_bit_of_its_claim,
    another_number,
]


def test_every_forgery_is_noticed_before_anything_is_taken() -> None:
    """10,000 of them; the witness remembers what it saw, and takes the honest chain afterwards."""
    draw, number = np.random.default_rng(0x3E), 0
    wanted = FORGERIES if examples(FORGERIES) == FORGERIES else 500
    offences = 0
    for number in range(wanted):
        seen = int(draw.integers(2, 12))
        case = Case(Chain().grow(seen + int(draw.integers(1, 6))), Chain().grow(20), seen, draw)
        memory = Memory()
        witness = witnesses("witness", None, memory)
        first = case.chain.of(case.chain.links[:seen])
        assert witness.take("party", first.claim(0)) is None
        witness.keep()
        before = dict(memory.disk)
        forge = FORGED[number % len(FORGED)]
        verdict = witness.take("party", decode(encode(forge(case))))
        assert verdict is not None, forge.__name__
        assert verdict.drops
        assert verdict.reason in (LATE, OTHER)
        assert verdict.offence == (verdict.reason == OTHER)
        offences += verdict.offence
        assert not witness.changed
        assert memory.disk == before
        assert witness.take("party", case.chain.claim(seen)) is None, "its newest ledger is back"
        assert witness.known("party").seen == Seen(len(case.chain.links), case.chain.heads[-1])
    assert offences > wanted / 2


def test_links_that_do_not_reach_what_was_seen_are_no_claim() -> None:
    """More receipts than links: between the two there could be anything, so the peer is told what was seen instead."""
    chain, memory = Chain().grow(8), Memory()
    witness = witnesses("witness", None, memory)
    assert witness.take("party", chain.of(chain.links[:3]).claim(0)) is None
    verdict = witness.take("party", chain.claim(4))
    assert verdict is not None
    assert (verdict.reason, verdict.drops, verdict.offence) == (LATE, True, False)
    assert witness.known("party").seen == (3, chain.heads[3])
    assert witness.take("party", chain.claim(3)) is None


def test_what_was_seen_is_on_disk_before_it_is_countersigned() -> None:
    """Or a witness that is killed in between could follow another chain than the one that it has signed."""
    chain, memory = Chain().grow(3), Memory()
    witness = witnesses("witness", None, memory)
    assert witness.take("party", chain.claim(0)) is None
    assert witness.urgent
    assert memory.disk == {}
    assert witness.note("party") is not None
    assert memory.disk["party"][0] == (3, chain.heads[3])


def test_who_went_on_from_an_older_copy_is_accused_at_the_latest_when_it_has_released_as_much() -> None:
    for back in range(1, 10):
        chain = Chain().grow(10)
        witness = witnesses("witness", None, Memory())
        assert witness.take("party", chain.claim(0)) is None
        forged = chain.of(chain.links[: 10 - back])
        for more in range(1, back + 3):
            verdict = witness.take("party", forged.grow().claim(0))
            assert verdict is not None
            assert verdict.drops
            assert verdict.offence == (more >= back), (back, more)
        assert "which does not go on from receipt 10 " in verdict.line


@pytest.mark.parametrize("seed", range(20))
def test_an_honest_chain_is_never_accused_however_its_notes_come(seed: int) -> None:
    """Lost, late, twice, out of order; with restarts of both. Whatever comes in order is taken."""
    draw = np.random.default_rng(seed)
    chain, memory, own_memory = Chain(), Memory(), Memory()
    party, witness = witnesses("party", chain, own_memory), witnesses("witness", None, memory)
    under_way: list[tuple[str, bytes]] = []
    newest, late = 0, 0
    for _ in range(examples(2000)):
        match int(draw.integers(8)):
            case 0 | 1:
                chain.grow(int(draw.integers(1, 4)))
            case 2 | 3 if (note := party.note("witness", claims=True)) is not None:
                under_way.append(("witness", encode(note)))
            case 4 if (note := witness.note("party")) is not None:
                under_way.append(("party", encode(note)))
            case 5 | 6 if under_way:
                at = int(draw.integers(len(under_way)))
                to, content = under_way[at]
                if draw.random() < 0.7:
                    del under_way[at]
                note = decode(content)
                if to == "party":
                    assert party.take("witness", note) is None
                    continue
                verdict = witness.take("party", note)
                assert (verdict is None) == (note.releases >= newest), "taken, unless a newer one was"
                assert verdict is None or not verdict.offence, verdict
                newest, late = max(newest, note.releases), late + (verdict is not None)
                if witness.urgent:
                    witness.keep()
            case 7 if draw.random() < 0.1:
                witness = witnesses("witness", None, memory)
                party.keep()
                party = witnesses("party", chain, own_memory)
                assert party.forgotten() == []
    assert newest > 100
    assert late > 10
    assert chain.countersigned["witness"].releases > 100


def test_what_is_too_long_for_one_claim_is_told_in_several() -> None:
    """A peer that was away for long follows link by link; a new one needs nothing of what was before it came."""
    chain, party_memory = Chain().grow(3), Memory()
    party, witness, late = (
        witnesses("party", chain, party_memory),
        witnesses("b", None, Memory()),
        witnesses("c", None, Memory()),
    )

    def told() -> int:
        note = party.note("b", claims=True)
        if note is None:
            return 0
        assert len(note.links) <= 32 * MOST_LINKS
        assert witness.take("party", note) is None
        answer = witness.note("party")
        assert answer is not None
        assert party.take("b", answer) is None
        return note.releases

    assert told() == 3
    chain.grow(1000)
    assert [told() for _ in range(5)] == [259, 515, 771, 1003, 0]
    note = party.note("c", claims=True)
    assert note is not None
    assert late.take("party", note) is None
    assert late.known("party").seen == Seen(1003, chain.heads[-1])


def test_a_party_notices_that_it_has_forgotten_what_was_countersigned() -> None:
    chain, memory = Chain().grow(5), Memory()
    party, witness = witnesses("party", chain, memory), witnesses("b", None, Memory())
    note = party.note("b", claims=True)
    assert note is not None
    assert witness.take("party", note) is None
    answer = witness.note("party", tells=True)
    assert answer is not None
    assert party.take("b", answer) is None
    party.keep()
    assert witnesses("party", chain, memory).forgotten() == []
    for other, why in (
        (chain.of(chain.links[:4]), "it has 4"),
        (chain.of(chain.links[:4]).grow(3), "another one there"),
    ):
        (line,) = witnesses("party", other, memory).forgotten()  # by what it holds
        assert why in line
        assert line.startswith("b has countersigned receipt 5 ")
        alone = witnesses("party", other, Memory())
        assert alone.forgotten() == []
        verdict = alone.take("b", answer, told=True)  # by what the peer tells
        assert verdict is not None
        assert (verdict.reason, verdict.drops, verdict.offence) == (MORE, False, False)
        assert len(alone.forgotten()) == 1
        assert other.countersigned == {}


def test_a_witness_that_was_put_back_is_sent_links_and_nobody_forgets_what_it_countersigned() -> None:
    """Where it goes on from becomes less; what it has signed stays, in the file of the ledger and beside it."""
    chain, memory = Chain().grow(5), Memory()
    party = witnesses("party", chain, memory)
    assert party.take("b", told_by("b", chain, 5)) is None
    assert party.note("b", claims=True) is None
    assert party.take("b", told_by("b", chain, 3), told=True) is None
    again = party.note("b", claims=True)
    assert again is not None
    assert again == Note(5, chain.heads[5], b"".join(chain.links[3:])), "its links go from what it has now"
    assert chain.countersigned["b"] == (5, chain.heads[5])
    party.keep()
    (line,) = witnesses("party", chain.of(chain.links[:4]), memory).forgotten()
    assert line.startswith("b has countersigned receipt 5 ")
    assert witnesses("party", chain, memory).note("b", claims=True) == again


def test_what_contradicts_a_ledger_stays_until_the_ledger_has_it() -> None:
    """Whatever the peer says afterwards, and when the party starts again without it."""
    chain, memory = Chain().grow(7), Memory()
    older = chain.of(chain.links[:3])
    party = witnesses("party", older, memory)
    for releases, told in ((5, True), (2, True), (3, False)):
        party.take("b", told_by("b", chain, releases), told=told)
        assert [line.split(" (")[0] for line in party.forgotten()] == ["b has countersigned receipt 5"]
    party.keep()
    again = older.of(older.links).grow(4)
    party = witnesses("party", again, memory)
    assert party.take("b", told_by("b", again, 7), told=True) is None, "it was put back, and has followed the other"
    party.keep()
    assert len(witnesses("party", again, memory).forgotten()) == 1
    assert witnesses("party", chain, memory).forgotten() == []
    assert older.countersigned == {}, "the ledger's file has what is in it"


def test_who_has_no_receipts_is_stopped_by_nobody() -> None:
    """No honest peer countersigns any, so who does is a liar; a server without data must not end by that."""
    server, memory = Chain(name="server").grow(3), Memory()
    found = witnesses("server", None, memory)
    verdict = found.take("b", told_by("b", server, 3), told=True)
    assert verdict is not None
    assert verdict.reason == MORE
    assert found.forgotten() == []
    found.keep()
    assert memory.disk == {}


@pytest.mark.parametrize("what", ["seen", "seen_head", "signature"])
def test_a_countersignature_is_of_what_it_says(what: str) -> None:
    chain = Chain().grow(5)
    party, witness = witnesses("party", chain, Memory()), witnesses("b", None, Memory())
    note = party.note("b", claims=True)
    assert note is not None
    witness.take("party", note)
    answer = witness.note("party")
    assert answer is not None
    other = {"seen": 4, "seen_head": chain.heads[4], "signature": bytes(64)}[what]
    verdict = party.take("b", replace(answer, **{what: other}))
    assert verdict is not None
    assert (verdict.reason, verdict.offence) == (UNSIGNED, True)
    assert party.known("b").told is None


def test_notes_are_few_bytes() -> None:
    """Of a message of 100 kB with a release or two, with what its acknowledgement brings back: under 1 %."""
    chain, sent = Chain(), 0
    party, witness = witnesses("party", chain, Memory()), witnesses("b", None, Memory())
    for releases in (1, 1, 2, 1, 3, 1, 1, 2, 1, 1):
        note = party.note("b", claims=True) if chain.grow(releases) else None
        assert note is not None
        assert witness.take("party", note) is None
        answer = witness.note("party")
        assert answer is not None
        assert party.take("b", answer) is None
        sent += len(encode(note)) + len(encode(answer)) + 2 * (1 + 2 + 4)  # with its kind, length and header
    assert party.note("b", claims=True) is None
    assert witness.note("party") is None
    assert sent < 0.01 * 10 * 100_000, sent


def test_nobody_hears_of_a_line_in_its_link() -> None:
    """32 bytes a receipt, and the state after it, are all that a note has of it."""
    chain = Chain().grow(2)
    note = witnesses("party", chain, Memory()).note("b", claims=True)
    assert note == Note(2, chain.heads[2], b"".join(chain.links))


@pytest.mark.parametrize(
    "wrong",
    [
        {"releases": -1},
        {"releases": 1},
        {"releases": True, "head": bytes(32)},
        {"head": bytes(32)},
        {"releases": 1, "head": bytes(31)},
        {"links": bytes(31)},
        {"links": bytes(32 * (MOST_LINKS + 1))},
        {"seen": 1, "seen_head": bytes(32)},
        {"signature": bytes(64)},
        {"seen": 1, "seen_head": bytes(32), "signature": bytes(63)},
    ],
)
def test_a_note_of_another_form_is_none(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Note(**wrong)  # type: ignore[arg-type]
