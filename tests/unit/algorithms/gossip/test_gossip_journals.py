"""Journals of gossip: this version's go on, and one of a version that always exchanged halves is one clear line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gossamer.algorithms.gossip import box as gossip
from gossamer.faults.memory_journal import MemoryJournal
from gossamer.faults.schedules import SETTINGS
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.frames import Data
from gossamer.protocol.node import state_of
from gossamer.runtimes.host import Host, HostBroken
from gossamer.runtimes.host_inputs import Arrived
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
    node.take(Arrived("node-1", Data(1, 0, 0, offer)), 1.0)
    return journal


def test_a_journal_goes_on() -> None:
    journal = asked()
    first, again = host(journal.copy()), host(journal)
    assert encode(state_of(first.node)) == encode(state_of(again.node))
    assert again.node.state.busy == 1
    again.checkpoint()
    restored = host(journal)
    assert encode(state_of(restored.node)) == encode(state_of(first.node))


def test_an_offer_of_an_older_version_is_one_clear_line() -> None:
    journal = asked()
    new, old = b"\x12gossip.offer_share", b"\x0cgossip.offer"
    assert new in journal.entries[-1]
    journal.entries[-1] = journal.entries[-1].replace(new, old)
    with pytest.raises(HostBroken, match=r"^node-0: its journal holds what this version .* cannot read \([^\n]*\)"):
        host(journal)


def test_a_snapshot_of_an_older_version_is_one_clear_line() -> None:
    journal = asked()
    host(journal).checkpoint()
    state = decode(journal.base or b"")
    node = {name: value for name, value in state.node.items() if name not in ("asked", "busy")}
    node["open"] = {peer: (promise.exchange, promise.offered) for peer, promise in node["open"].items()}
    journal.base = encode(replace(state, node=node))
    with pytest.raises(HostBroken, match=r"^node-0: its journal holds what this version .* cannot read \([^\n]*\)"):
        host(journal)
