"""Whatever crashes and whenever: what was committed is there, whole, and every message arrives once and in order."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace
from itertools import islice, permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.contract import test_algorithms_contract as contracts
from tests.reference.durable_node import Writer
from tests.sampling import examples

from gossamer.faults.hosts import MemoryJournal
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.messages import CHUNK_OVERHEAD, Frame, decode_frame, encode_frame
from gossamer.protocol.node import restore_state, state_of
from gossamer.protocol.session import SessionSettings, Transmit
from gossamer.runtimes.host import Arrived, End, Host, HostBroken, Input, Wake
from gossamer.runtimes.storage.store import SqliteStore
from gossamer.runtimes.world import World
from gossamer.testing.contracts import WORLDS, AlgorithmContract

MANY = settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
FEW = settings(MANY, max_examples=examples(40))  # every commit waits for the disk

# A store is a list of what was committed, since the last snapshot

PIECES = st.lists(st.binary(max_size=4), max_size=3)
ACTIONS = st.lists(st.tuples(st.sampled_from(["append", "append", "snapshot", "commit", "crash"]), PIECES), max_size=25)


@FEW
@given(ACTIONS)
def test_a_store_holds_what_was_committed(actions: list[tuple[str, list[bytes]]]) -> None:
    memory = MemoryJournal()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.store"
        file = SqliteStore(path, "run", "a")
        for action, pieces in actions:
            if action == "crash":
                memory.crash()
                file.close()
                file = SqliteStore(path, "run", "a")
            else:
                for journal in (memory, file):
                    getattr(journal, action)(*([] if action == "commit" else [pieces]))
        memory.crash()
        file.close()
        file = SqliteStore(path, "run", "a")
        snapshot, entries = file.load()
        assert (snapshot, tuple(entries)) == memory.load()
        file.close()


# Parties that crash

WHOLE = SessionSettings(retry_after=1.0, longest_retry=4.0, silence=6.0)
CHUNKS = replace(WHOLE, largest_frame=CHUNK_OVERHEAD + 12, largest_message=1000)
DELAY = 0.125
PARTIES = ("a", "b", "c")


@dataclass(frozen=True)
class Crash:
    """A party dies in its turn, and ``kept`` of what is staged then is durable.

    If ``carried`` is None that is before the turn's commit; otherwise the turn is over, and so much of what is to be
    done about it was done.
    """

    kept: int
    carried: int | None


class Torn(MemoryJournal):
    """Fails to commit when it is told to."""

    torn = False

    def commit(self) -> None:
        if self.torn:
            raise OSError("the power fails")
        super().commit()


class Parties:
    """Three writers on links with faults; their turns are counted in ``turns``."""

    def __init__(
        self, fates: list[tuple[float, ...]], crashes: dict[int, Crash], every: int, settings: SessionSettings
    ) -> None:
        self.settings = settings
        self.now, self.turns, self.every = 0.0, 0, every
        self.fates, self.crashes = iter(fates), crashes
        self.journals = {name: Torn() for name in PARTIES}
        self.hosts = {name: self.stored(name) for name in PARTIES}
        self.queue: list[tuple[float, int, str, Input]] = []
        self.queued = 0

    def stored(self, name: str) -> Host:
        """As a process that starts finds it."""
        return Host(Writer(name, size=1), self.settings, self.journals[name], every=self.every)

    def call(self, at: float, name: str, what: Input) -> None:
        self.queued += 1
        heapq.heappush(self.queue, (at, self.queued, name, what))

    def run(self) -> None:
        while True:
            wakes = [(due, name) for name in PARTIES if (due := self.hosts[name].deadline()) is not None]
            wake = min(wakes, default=(math.inf, ""))
            if self.queue and self.queue[0][0] <= wake[0]:
                self.now = self.queue[0][0]
                name = self.queue[0][2]
                inputs: list[Input] = []
                while self.queue and self.queue[0][0] == self.now and self.queue[0][2] == name:
                    inputs.append(heapq.heappop(self.queue)[3])
                self.turn(name, inputs)
            elif wake[1]:
                self.now = max(self.now, wake[0])
                self.turn(wake[1], [Wake()])
            else:
                return
            assert self.turns < 20_000, "the run does not end"

    def turn(self, name: str, inputs: list[Input]) -> None:
        """Its inputs, and what is done about them; or a crash in between."""
        self.turns += 1
        crash, host, journal = self.crashes.get(self.turns), self.hosts[name], self.journals[name]
        journal.torn = crash is not None and crash.carried is None
        try:
            outcomes = host.turn([(what, self.now) for what in inputs])
        except HostBroken:
            outcomes = []
        journal.torn = False
        for outcome in islice(outcomes, None if crash is None else crash.carried):
            assert isinstance(outcome, Transmit), outcome
            self.transmit(name, outcome.to, outcome.frame)
        if crash is not None:
            journal.crash(crash.kept)
            self.hosts[name] = self.stored(name)

    def transmit(self, sender: str, to: str, frame: Frame) -> None:
        data = encode_frame(frame)
        for delay in next(self.fates, (DELAY,)):
            self.call(self.now + delay, to, Arrived(sender, decode_frame(data)))


TIMES = st.integers(0, 80).map(lambda eighths: eighths / 8)
PAIRS = st.sampled_from(list(permutations(PARTIES, 2)))
WRITES = st.lists(st.tuples(TIMES, PAIRS), max_size=25)
FATES = st.lists(st.lists(st.sampled_from([0.125, 0.25, 1.0, 3.0, 10.0]), max_size=3).map(tuple), max_size=40)
CRASHES = st.dictionaries(
    st.integers(1, 120), st.builds(Crash, st.integers(0, 5), st.none() | st.integers(0, 3)), max_size=12
)


@MANY
@given(WRITES, FATES, CRASHES, st.integers(1, 6), st.sampled_from([WHOLE, CHUNKS]))
@example([(0.0, ("a", "b"))] * 3, [], {1: Crash(9, None), 2: Crash(0, 0), 3: Crash(1, 0), 5: Crash(0, 1)}, 100, WHOLE)
@example([(0.0, ("a", "b"))] * 12, [()] * 12, {n: Crash(0, 0) for n in range(13, 30)}, 3, CHUNKS)
@example([(0.0, ("a", "b"))] * 3, [], {n: Crash(0, 1) for n in range(2, 9)}, 100, CHUNKS)  # what was sent is not stored
def test_every_note_arrives_once_and_in_order(
    writes: list[tuple[float, tuple[str, str]]],
    fates: list[tuple[float, ...]],
    crashes: dict[int, Crash],
    every: int,
    link: SessionSettings,
) -> None:
    parties = Parties(fates, crashes, every, link)
    for at, (sender, to) in writes:
        parties.call(at, sender, End(to))
    parties.run()
    for sender, to in permutations(PARTIES, 2):
        sent = parties.hosts[sender].node.state.sent.get(to, 0)
        assert sent <= sum(pair == (sender, to) for _, pair in writes)
        heard = parties.hosts[to].node.state.heard.get(sender, ())
        assert heard == tuple(range(1, sent + 1))
    for name, host in parties.hosts.items():
        # What it is in memory, a process that starts finds on disk.
        parties.journals[name].commit()
        assert encode(parties.stored(name).state()) == encode(host.state())
        assert not any(link.outbox for link in host.session.links.values())


@pytest.mark.parametrize("link", [WHOLE, CHUNKS])
def test_without_crashes_all_is_sent(link: SessionSettings) -> None:
    """So that the test above does not pass because nothing happens: crashes alone take notes away."""
    parties = Parties([], {}, 4, link)
    for number in range(10):
        parties.call(float(number), "a", End("b"))
    parties.run()
    assert parties.hosts["b"].node.state.heard == {"a": tuple(range(1, 11))}


# Every algorithm

CONTRACTS = {
    name: item
    for name, item in vars(contracts).items()
    if isinstance(item, type) and issubclass(item, AlgorithmContract) and hasattr(item, "settings")
}


def survive(contract: AlgorithmContract, world: World) -> int:
    """Let every node of a run go through the bytes of a snapshot after each of its events; the number of lives."""
    _, steps = contract.run(world)
    lives = contract.nodes()
    for step in steps:
        life = lives[step.node]
        back = contract.nodes()[step.node]
        restore_state(back, decode(encode(state_of(life))))
        assert {n: type(v) for n, v in vars(back.state).items()} == {n: type(v) for n, v in vars(life.state).items()}
        effects = back.handle(step.event, step.now)
        assert encode(list(effects)) == encode(list(step.effects))
        lives[step.node] = back
    return len(steps)


@pytest.mark.some(14)
@pytest.mark.parametrize("name", CONTRACTS)
def test_the_nodes_of_every_algorithm_survive(name: str) -> None:
    assert survive(CONTRACTS[name](), WORLDS["uneven"]) > 5


def test_there_are_algorithms() -> None:
    assert len(CONTRACTS) > 10
