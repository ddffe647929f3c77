"""Counters of the messages between two parties, which tell a party that its store is older than what it did.

A party that is given back an old copy of its store, or that has lost it, cannot tell: the copy is whole. Its peers can.
So each tells the other, as soon as there is a channel, how much it has sent, received and had acknowledged, and a party
compares that with its store before it draws or charges anything. A peer's counters never run ahead of a store that is
the newest: whatever a node puts on a link, or acknowledges, is durable before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.errors import counted
from gossamer.protocol.encoding import register
from gossamer.protocol.link import Link


@register("peer.counters")
@dataclass(frozen=True, slots=True)
class Counters:
    """Numbers of the messages between the sender and the party this is for, as the sender has them.

    Attributes
    ----------
    sent : int
        The highest number that it has put on the link.
    acknowledged : int
        Up to which number it knows that all of its messages have arrived.
    received : int
        The highest number of the other's messages that it has.
    early : int
        Of its messages after ``acknowledged`` those that it knows to have arrived: the lowest bit is the next one.
    """

    sent: int
    acknowledged: int
    received: int
    early: int = 0

    def __post_init__(self) -> None:
        for value in (self.sent, self.acknowledged, self.received, self.early):
            if type(value) is not int or value < 0:
                raise ValueError(f"expected a number of messages, 0 or more, found {value!r}")


def counters_of(link: Link | None) -> Counters:
    """Counters of a link, for the party at its other end."""
    if link is None:
        return Counters(0, 0, 0)
    after = range(link.acknowledged + 1, link.transmitted + 1)
    early = sum(1 << (number - after.start) for number in after if number not in link.outbox)
    return Counters(link.transmitted, link.acknowledged, max(link.early, default=link.delivered), early)


def forgotten(links: Mapping[str, Link], said: Mapping[str, Counters]) -> dict[str, str]:
    """Return in words, by peer, the messages that peers know of and the store does not.

    Parameters
    ----------
    links : mapping of str to Link
        Of the store.
    said : mapping of str to Counters
        Of each peer that has told them.
    """
    found = {}
    for name, theirs in said.items():
        link = links.get(name)
        sent, received = theirs.received - counters_of(link).sent, _not_taken(theirs, link)
        parts = [f"has {counted(sent, 'message')} more of it"] * (sent > 0)
        parts += [f"knows that it took {counted(received, 'message')} more"] * (received > 0)
        if parts:
            found[name] = " and ".join(parts)
    return found


def _not_taken(theirs: Counters, link: Link | None) -> int:
    """Number of messages that a peer knows to have arrived, and that the store does not have."""
    delivered, early = (0, frozenset[int]()) if link is None else (link.delivered, link.early.keys())
    upto = max(0, theirs.acknowledged - delivered) - sum(number <= theirs.acknowledged for number in early)
    bits = (theirs.acknowledged + 1 + bit for bit in range(theirs.early.bit_length()) if theirs.early >> bit & 1)
    return max(0, upto) + sum(number > delivered and number not in early for number in bits)
