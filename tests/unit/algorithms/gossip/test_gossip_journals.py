"""Journals of gossip go on."""

from __future__ import annotations

from typing import Any

from gossamer.algorithms.gossip import box as gossip
from gossamer.faults.hosts import MemoryJournal
from gossamer.faults.schedules import SETTINGS
from gossamer.protocol.encoding import encode
from gossamer.protocol.messages import MessageFrame
from gossamer.protocol.node import state_of
from gossamer.runtimes.host import Arrived, Host
from gossamer.testing.contracts import AlgorithmContract
from gossamer.vectors import Public


class Gossip(AlgorithmContract):
    settings = gossip.Settings(nodes=3, topology="ring")


def host(journal: Any) -> Host:
    return Host(Gossip().nodes()["node-0"], SETTINGS, journal)


def asked() -> MemoryJournal:
    """Of a node that began, and was asked."""
    journal = MemoryJournal()
    node = host(journal)
    node.start(0.0)
    offer = gossip.Offer(1, Public(Gossip().context().initial.values))
    node.take(Arrived("node-1", MessageFrame(1, 0, 0, offer)), 1.0)
    return journal


def test_a_journal_goes_on() -> None:
    journal = asked()
    first, again = host(journal.copy()), host(journal)
    assert encode(state_of(first.node)) == encode(state_of(again.node))
    assert again.node.state.busy == 1
    again.checkpoint()
    restored = host(journal)
    assert encode(state_of(restored.node)) == encode(state_of(first.node))
