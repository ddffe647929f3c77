"""Hostile peers: whatever they send is refused and counted, nothing of it is kept, and nobody is stopped."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reference.hostile_layers import LAYERS
from tests.reference.hostile_nodes import SETTINGS as ALGORITHMS
from tests.reference.hostile_nodes import HostileMembers
from tests.reference.hostile_run import HostileRun
from tests.reference.linked_peers import Linked
from tests.sampling import examples

from gossamer.errors import MalformedMessage
from gossamer.protocol.messages import Acknowledge, decode_message

MANY = settings(deadline=None, max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
FRAME = Acknowledge(5, 6)
HONEST = {"repeated", "old session", "unknown session", "stale handshake"}


@cache
def joined() -> Linked:
    pair = Linked("a", "b")
    pair.send("a", "b", FRAME), pair.send("b", "a", FRAME), pair.send("a", "b", FRAME)
    return pair


HEADS = st.sampled_from([b"", b"GSS", b"GSS\x02\x01", b"GSS\x02\x02", b"GSS\x02\x03"])


@MANY
@given(st.sampled_from(["a", "b", "c", ""]), HEADS, st.binary(max_size=200))
def test_bytes_of_strangers(sender: str, head: bytes, rest: bytes) -> None:
    peers = joined().peers["b"]
    assert peers.open(sender, head + rest, 0.0)[0] == []
    assert peers.states(0.0)["a"].state == "up"


INSIDE = st.sampled_from([b"", b"\x00", b"\x01", b"\x00GSM\x01", b"\x01GSM\x01", b"\x00GSM\x01o"])


@MANY
@given(INSIDE, st.binary(max_size=100))
def test_bytes_inside_a_valid_seal(head: bytes, rest: bytes) -> None:
    """Each from a member of its own, so that nobody is in quarantine yet."""
    pair = joined()
    channel = pair.peers["a"]._peers["b"].channel
    assert channel is not None
    before = pair.dropped("a", "b").get("malformed content", 0)
    pair.now += 1000.0  # offences are forgiven
    for datagram in channel.seal(head + rest):
        assert pair.peers["b"].open("a", datagram, pair.now) == ([], [])
    assert pair.dropped("a", "b")["malformed content"] == before + 1


@MANY
@given(st.binary(max_size=300))
def test_bytes_of_messages(data: bytes) -> None:
    for candidate in (data, b"GSM\x01" + data, b"GSM\x01o" + data):
        with pytest.raises(MalformedMessage):
            decode_message(candidate)


@pytest.mark.some(8)
@pytest.mark.parametrize("name", LAYERS)
def test_each_layer_refuses_and_goes_on(name: str) -> None:
    layer = LAYERS[name](5)
    while layer.tried < (200 if name == "masked sides" else 2000):
        layer.attempt()
    assert layer.tried // 4 < layer.refused < layer.tried  # it is not all junk


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("seed", range(2))
def test_each_layer_refuses_and_goes_on_and_on(name: str, seed: int) -> None:
    layer = LAYERS[name](seed)
    while layer.tried < (5_000 if name == "masked sides" else 100_000):
        layer.attempt()


@pytest.mark.some(4)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_nodes_state_does_not_grow_with_what_is_sent(name: str) -> None:
    """After 2,000 hostile messages to one node, among which it works, its state is of the size that it has anyway."""
    members = HostileMembers(name, 7)
    for seed in range(3):
        members.junk.random.seed(seed)
        members.attempt(inputs=2000)
        for node in members.nodes.values():
            members.check_state(node)


RUNS = [name for name in ALGORITHMS if "masked" not in name and "secret" not in name]  # these wait for everybody
QUICK = ["gossip", "allreduce", "audp", "increasing", "graph_federated", "fedavg, trusted", "fedbuff, trusted"]
ENDS = {"fedavg, trusted": "halt", "fedavg, more asked": "halt"}
"""Reasons of those that do not end by a quota."""


def run_among_hostile(name: str, seed: int) -> None:
    run = HostileRun(name, "node-1", seed)
    with_data = [other for other in run.honest if other.startswith("node")]
    run.run(with_data, 600.0)
    assert {run.honest[other].finished for other in with_data} == {ENDS.get(name, "quota")}
    hostile = [party.peers.states(run.now)["node-1"] for party in run.honest.values()]
    assert any(sum(state.dropped.values()) > 20 for state in hostile)
    for party in run.honest.values():
        for other, state in party.peers.states(run.now).items():
            assert other == "node-1" or set(state.dropped) <= HONEST
    assert len(run.lines) < 200


@pytest.mark.some(4)
@pytest.mark.parametrize("name", QUICK)
def test_a_hostile_member_stops_no_one(name: str) -> None:
    """It has a true identity, and sends junk to everybody, ten times a second; the others make all their updates."""
    run_among_hostile(name, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_no_hostile_member_of_many_stops_anyone(name: str) -> None:
    for seed in range(10):
        run_among_hostile(name, seed)
