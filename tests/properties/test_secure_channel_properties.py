"""Two channels, and a broker that loses, repeats, reorders, changes and invents datagrams while nodes restart."""

from __future__ import annotations

import contextlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reference.sealed_pairs import OTHER, channel, state
from tests.sampling import examples

from gossamer.deployment.channel.secure_channel import Reason, RefusedDatagram

MANY = settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
NAMES = st.sampled_from(["a", "b"])
PLACES = st.integers(0, 500)
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["seal", "seal", "hello"]), NAMES, PLACES),
    st.tuples(st.sampled_from(["deliver"] * 8 + ["lose", "change", "repeat", "cut"]), NAMES, PLACES),
    st.tuples(st.sampled_from(["invent", "restart"]), NAMES, PLACES),
)
HONEST = {Reason.STALE, Reason.UNKNOWN_SESSION, Reason.OLD_SESSION, Reason.REPEATED}


class Broker:
    """What is under way to each node, and all that ever was."""

    def __init__(self) -> None:
        self.nodes = {name: channel(name) for name in OTHER}
        self.under_way: dict[str, list[bytes]] = {name: [] for name in OTHER}
        self.record: dict[str, list[bytes]] = {name: [] for name in OTHER}
        self.sealed: dict[str, set[bytes]] = {name: set() for name in OTHER}  # by sender
        self.opened: Counter[tuple[str, bytes]] = Counter()  # by receiver
        self.reasons: Counter[Reason] = Counter()

    def send(self, sender: str, datagrams: list[bytes]) -> None:
        self.under_way[OTHER[sender]] += datagrams
        self.record[OTHER[sender]] += datagrams

    def seal(self, sender: str) -> bytes:
        text = f"{sender}{len(self.sealed[sender])}".encode()
        self.sealed[sender].add(text)
        self.send(sender, self.nodes[sender].seal(text))
        return text

    def deliver(self, to: str, datagram: bytes) -> None:
        before = state(self.nodes[to])
        try:
            plaintexts, answers = self.nodes[to].open(datagram)
        except RefusedDatagram as refusal:
            assert state(self.nodes[to]) == before
            self.reasons[refusal.reason] += 1
            if refusal.reason is Reason.UNKNOWN_SESSION:
                self.send(to, self.nodes[to].hello())
            return
        self.opened.update((to, text) for text in plaintexts)
        assert {text for text in plaintexts} <= self.sealed[OTHER[to]]
        self.send(to, answers)

    def act(self, action: str, name: str, place: int) -> None:
        under_way, record = self.under_way[name], self.record[name]
        match action:
            case "seal":
                self.seal(name)
            case "hello":
                self.send(name, self.nodes[name].hello())
            case "deliver" if under_way:
                self.deliver(name, under_way.pop(place % len(under_way)))
            case "lose" if under_way:
                under_way.pop(place % len(under_way))
            case "change" if record:
                datagram = bytearray(record[place % len(record)])
                datagram[(7 * place) % len(datagram)] ^= 1 + place % 255
                self.deliver(name, bytes(datagram))
            case "cut" if record:
                datagram = record[place % len(record)]
                self.deliver(name, datagram[: place % len(datagram)])
            case "repeat" if record:
                self.deliver(name, record[place % len(record)])
            case "invent":
                self.deliver(name, b"GSS\x02" + np.random.default_rng(place).bytes(place % 180))
            case "restart":
                self.nodes[name] = channel(name)

    def settle(self) -> None:
        """Deliver everything in order."""
        while any(self.under_way.values()):
            for name, under_way in self.under_way.items():
                if under_way:
                    self.deliver(name, under_way.pop(0))


@MANY
@given(st.lists(ACTIONS, max_size=80))
def test_each_text_comes_out_at_most_once_and_quiet_heals_everything(actions: list[tuple[str, str, int]]) -> None:
    broker = Broker()
    for action in actions:
        broker.act(*action)
        assert set(broker.opened.values()) <= {1}
    for _ in range(3):  # a session lost on one side, a hello, and a frame under what comes of it
        broker.seal("a"), broker.seal("b")
        broker.settle()
    last = broker.seal("a"), broker.seal("b")
    broker.settle()
    assert broker.nodes["a"].session == broker.nodes["b"].session is not None
    assert broker.opened["b", last[0]] == broker.opened["a", last[1]] == 1
    assert set(broker.opened.values()) <= {1}
    assert broker.reasons[Reason.TWO_NODES] == 0  # restarts are not a second node


@MANY
@given(st.lists(st.tuples(st.sampled_from(["seal", "hello", "deliver", "lose", "repeat", "restart"]), NAMES, PLACES)))
def test_an_honest_broker_causes_only_the_refusals_of_honest_peers(actions: list[tuple[str, str, int]]) -> None:
    broker = Broker()
    for action in actions:
        broker.act(*action)
    broker.settle()
    assert set(broker.reasons) <= HONEST


def noise(count: int, seed: int, genuine: list[bytes]) -> list[bytes]:
    """Four fifths bytes of chance, half of these behind a true beginning; the others genuine but for a few bytes."""
    generator = np.random.default_rng(seed)
    found = []
    for i in range(count):
        size = int(generator.integers(0, 200))
        if i % 5:
            start = b"" if i % 2 else b"GSS\x02" + bytes([i // 2 % 5])
            found.append(start + generator.bytes(size))
        else:
            datagram = bytearray(genuine[i // 5 % len(genuine)])
            for place in generator.integers(0, len(datagram), 1 + size % 3):
                datagram[place] ^= 1 + int(generator.integers(255))
            found.append(bytes(datagram[: 1 + size] if i % 3 == 0 else datagram))
    return found


@pytest.mark.some(1)
@pytest.mark.parametrize("established", [True, False])
def test_noise_is_refused_and_changes_nothing(established: bool) -> None:
    """50,000 inputs each. Two changes of one byte may undo each other: what is as it was is left out."""
    a, b = channel("a"), channel("b")
    (hello,) = b.hello()
    (confirm,) = a.open(hello).answers
    genuine = [hello, channel("b").open(a.hello()[0]).answers[0]]
    if established:
        a.open(b.open(confirm).answers[0])
        genuine.append(b.seal(b"some text")[-1])
    before, refused, tried = state(a), 0, 0
    for datagram in noise(50_000, 3, genuine):
        if datagram in genuine:
            continue
        tried += 1
        with contextlib.suppress(RefusedDatagram):
            a.open(datagram)
            continue
        refused += 1
    assert refused == tried > 49_000
    assert state(a) == before
