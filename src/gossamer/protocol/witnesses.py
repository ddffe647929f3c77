"""Witnesses of a party's releases: its peers, who remember how far its receipts went, and hear no other ones.

A party's receipts are a chain (`sides.receipts`): the state after each follows from the one before and 32 bytes, its
link. With what a party sends anyhow go how many releases it has receipts of, the state after them, and the links of the
newest ones. A witness that has seen fewer follows the links from the state that it saw. Only the chain that it saw,
gone on with, leads there; that of a ledger that was put back, or that went on twice, does not. So a party that has
forgotten a release is heard by nobody who has seen the receipt, until it has its newest ledger back.

| a claim | what a witness does |
|---|---|
| goes on from what it saw, or is the same | remembers it, on disk before anything that came with it is taken |
| is shorter: late, or of an older ledger | drops what came with it: an honest peer sends it again with a newer claim |
| has too few links to follow | drops it, and says what it has seen |
| is as long and another one, or does not follow | drops it: an offence |

A witness signs what it has seen, in what it sends anyhow. The party keeps two things of that. What the witness has now
says which links to send, and becomes less where the witness itself was put back. The most that it ever signed is
*evidence*: it only grows, and by it the party notices itself, when it starts, that its ledger is older than what it has
shown. Evidence that contradicts the ledger stays until the ledger has it.

Nothing here reads a clock, does I/O or holds a key: `WitnessMemory` stores, and functions sign.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gossamer.protocol.encoding import encode, register

# Notes about receipts: what a party claims of its own, and what a witness has seen of them and signs.
#
# A party's receipts are a chain (`sides.receipts`): the state after each follows from the one before and 32 bytes, its
# link. A note says how far a chain goes, in states and links alone, and nothing of what the receipts say. It goes with
# what is sent anyhow (`deployment.peers.peers`).

PURPOSE = "witness of receipts"
"""Purpose of a witness's signature."""
MOST_LINKS = 256
"""Most links in a claim; one that needs more is made of several, in messages one after another."""
LINK = 32
"""Bytes of a link, and of a state."""
_SIGNATURE = 64


def following(state: bytes, link: bytes) -> bytes:
    """State of a chain after a line, whose SHA-256 is ``link``."""
    return hashlib.sha256(state + link).digest()


class Seen(NamedTuple):
    """Length of a chain, and its state there.

    Attributes
    ----------
    releases : int
        Number of receipts that it had.
    head : bytes
        State after the last of them.
    """

    releases: int
    head: bytes


@register("receipts.note")
@dataclass(frozen=True, slots=True)
class Note:
    """Claim of the sender about its own receipts, and what it has seen of the receiver's.

    Attributes
    ----------
    releases : int
        Number of releases that the sender has receipts of; 0 where there is no claim.
    head : bytes
        State after them [32 bytes]; empty without a claim.
    links : bytes
        Links of the newest of them, 32 bytes each.
    seen : int
        Number of the receiver's that the sender has seen; 0 for none.
    seen_head : bytes
        State after them [32 bytes].
    signature : bytes
        The sender's, of `countersigned` [64 bytes].
    """

    releases: int = 0
    head: bytes = b""
    links: bytes = b""
    seen: int = 0
    seen_head: bytes = b""
    signature: bytes = b""

    def __post_init__(self) -> None:
        for count, head in ((self.releases, self.head), (self.seen, self.seen_head)):
            if type(count) is not int or count < 0 or type(head) is not bytes or len(head) != LINK * bool(count):
                raise ValueError("expected a number of receipts, and the 32 bytes of the state after them")
        if type(self.links) is not bytes or len(self.links) % LINK or len(self.links) > LINK * MOST_LINKS:
            raise ValueError(f"expected at most {MOST_LINKS} links of {LINK} bytes")
        if type(self.signature) is not bytes or len(self.signature) != _SIGNATURE * bool(self.seen):
            raise ValueError("expected a signature of 64 bytes with what was seen, and none without")


def countersigned(run: str, party: str, seen: Seen) -> bytes:
    """Content that a witness signs: what it has seen of a party's receipts in a run."""
    return encode((run, party, *seen))


OTHER, LATE, UNSIGNED, MORE = "other receipts", "late receipts", "no countersignature", "more receipts than are here"
"""Reasons for verdicts."""


class Own(Protocol):
    """This node's own receipts: a thread may add to them while another one reads."""

    @property
    def heads(self) -> Sequence[bytes]:
        """State after each number of receipts, from 0 on."""

    @property
    def links(self) -> Sequence[bytes]:
        """Link of each receipt."""

    def witnessed(self, witness: str, seen: Seen, signature: bytes) -> None:
        """Take note of a countersignature of receipts that are here, more than the witness has signed before."""


@dataclass
class Known:
    """Knowledge of one peer.

    Attributes
    ----------
    seen : Seen or None
        Length of its receipts that was seen.
    told : Seen or None
        Length of this node's that it has, as it said last: links are sent from there.
    evidence : Seen or None
        The most of this node's that it has ever countersigned.
    """

    seen: Seen | None = None
    told: Seen | None = None
    evidence: Seen | None = None


class WitnessMemory(Protocol):
    """Storage that outlives the process."""

    def kept(self) -> Mapping[str, Known]:
        """Knowledge of each peer."""

    def keep(self, known: Mapping[str, Known]) -> None:
        """Keep what is known of some; it is durable when this returns."""


class Verdict(NamedTuple):
    """Fault of a note.

    Attributes
    ----------
    reason, line : str
        Fault in a few words, and in one line.
    drops : bool
        Whether what came with it is not taken.
    offence : bool
        Whether nobody who is honest sends it.
    """

    reason: str
    line: str
    drops: bool = True
    offence: bool = True


@dataclass
class Witnesses:
    """One node as a witness of its peers, and they as its own.

    Attributes
    ----------
    run, me : str
        Names of the run and of this node.
    memory : WitnessMemory
        Place where all of it is kept.
    sign : callable
        Signs a content by this node's key, for `PURPOSE`.
    signed : callable
        (peer, signature, content) -> whether it is that peer's.
    own : Own or None
        This node's receipts; None while they are not open, and of a node that releases nothing.
    changed : set of str
        Peers of whom something is known that is not kept yet.
    urgent : bool
        Whether something was seen that has to be kept before anything that came with it is taken.
    """

    run: str
    me: str
    memory: WitnessMemory
    sign: Callable[[bytes], bytes]
    signed: Callable[[str, bytes, bytes], bool]
    own: Own | None = None

    def __post_init__(self) -> None:
        self._known = dict(self.memory.kept())
        self._contradictions: dict[str, Seen] = {}  # what peers have countersigned since, and is not here
        self._owed: set[str] = set()  # peers whose claim was not countersigned since it came
        self.changed, self.urgent = set[str](), False

    def known(self, peer: str) -> Known:
        """Knowledge of a peer."""
        return self._known.setdefault(peer, Known())

    # What goes

    def note(self, to: str, *, claims: bool = False, tells: bool = False) -> Note | None:
        """Note that goes with what is sent to a peer; None if there is nothing to say.

        Parameters
        ----------
        to : str
            The peer.
        claims : bool
            Whether it goes with a message, which may hold a release.
        tells : bool
            Whether the peer is told what was seen of it even if it has heard that.
        """
        claim = self._claim(self.known(to).told) if claims else None
        seen = self.known(to).seen if tells or to in self._owed else None
        self._owed.discard(to)
        if claim is None and seen is None:
            return None
        found = claim or Note()
        if seen is None:
            return found
        if self.urgent:
            self.keep()
        return Note(found.releases, found.head, found.links, *seen, self.sign(countersigned(self.run, to, seen)))

    def _claim(self, told: Seen | None) -> Note | None:
        if self.own is None:
            return None
        there = len(self.own.heads) - 1
        if there <= (0 if told is None else told.releases):
            return None
        releases = there if told is None else min(there, told.releases + MOST_LINKS)
        first = max(0, releases - MOST_LINKS) if told is None else told.releases
        return Note(releases, self.own.heads[releases], b"".join(self.own.links[first:releases]))

    # What comes

    def take(self, sender: str, note: Note, *, told: bool = False) -> Verdict | None:
        """Take a note of ``sender``; what is wrong with it, if anything is.

        ``told`` is whether it came with a word, which says what the peer has now, be it less than before.
        """
        found = self._take_countersignature(sender, note, told) if note.seen else None
        return (self._take_claim(sender, note) if note.releases else None) or found

    def _take_countersignature(self, sender: str, note: Note, told: bool) -> Verdict | None:
        seen = Seen(note.seen, note.seen_head)
        if not self.signed(sender, note.signature, countersigned(self.run, self.me, seen)):
            return Verdict(UNSIGNED, f"{sender} says that it has seen receipts, and its signature is none of that")
        known, here = self.known(sender), self._has(seen)
        self._keep_evidence(sender, known, seen, note.signature)
        if not here:
            self._contradictions[sender] = seen
            return Verdict(MORE, self._contradiction(sender, seen), drops=False, offence=False)
        if known.told != seen and (told or known.told is None or seen.releases > known.told.releases):
            known.told = seen
            self.changed.add(sender)
        return None

    def _keep_evidence(self, sender: str, known: Known, seen: Seen, signature: bytes) -> None:
        """Keep what was countersigned if it is more than before; what is not here gives way to more of that alone."""
        before, here = known.evidence, self._has(seen)
        if self.own is None or (before is not None and seen.releases <= before.releases):
            return
        if before is not None and here and not self._has(before):
            return
        known.evidence = seen
        self.changed.add(sender)
        if here:
            self.own.witnessed(sender, seen, signature)

    def _take_claim(self, sender: str, note: Note) -> Verdict | None:
        known, claim = self.known(sender), Seen(note.releases, note.head)
        self._owed.add(sender)
        if known.seen is not None and (verdict := _followed(sender, known.seen, claim, note.links)) is not None:
            return verdict
        if known.seen != claim:
            known.seen, self.urgent = claim, True
            self.changed.add(sender)
        return None

    # What is kept

    def keep(self) -> None:
        """Keep what has changed; it is durable when this returns."""
        if self.changed:
            self.memory.keep({name: self._known[name] for name in sorted(self.changed)})
        self.changed.clear()
        self.urgent = False

    # This node's own

    def forgotten(self) -> list[str]:
        """Lines on what peers have countersigned, now or ever, and this node's receipts have not; none without any."""
        if self.own is None:
            return []
        held = {name: known.evidence for name, known in self._known.items() if known.evidence is not None}
        lost = {name: seen for name, seen in held.items() if not self._has(seen)}
        return [self._contradiction(*one) for one in {**self._contradictions, **lost}.items()]

    def _has(self, seen: Seen) -> bool:
        heads = () if self.own is None else self.own.heads
        return seen.releases < len(heads) and heads[seen.releases] == seen.head

    def _contradiction(self, peer: str, seen: Seen) -> str:
        here = 0 if self.own is None else max(0, len(self.own.heads) - 1)
        what = f"it has {here}" if here < seen.releases else "it has another one there"
        return f"{peer} has countersigned receipt {seen.releases} (head {seen.head.hex()[:16]}), and {what}"


def _followed(sender: str, seen: Seen, claim: Seen, links: bytes) -> Verdict | None:
    """Fault of a claim, after what was seen."""
    more = claim.releases - seen.releases
    where = f"{sender} shows receipt {claim.releases} (head {claim.head.hex()[:16]})"
    after = f"after receipt {seen.releases} (head {seen.head.hex()[:16]}) was seen"
    if more < 0:
        line = f"{where} {after}: late on its way, or its ledger is an older copy"
        return Verdict(LATE, line, offence=False)
    if more > len(links) // LINK:
        return Verdict(LATE, f"{where} {after}, and not what is between them", offence=False)
    state = seen.head
    for at in range(len(links) - LINK * more, len(links), LINK):
        state = following(state, links[at : at + LINK])
    if state == claim.head:
        return None
    return Verdict(
        OTHER,
        f"{where}, which does not go on from receipt {seen.releases} (head {seen.head.hex()[:16]}) that was seen: its "
        "ledger was put back, or went on twice; nothing of it is taken until it has its newest ledger",
    )
