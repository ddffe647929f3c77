"""A node's turns: stored before anything comes of it, and over when nobody needs the node any longer."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.reference.scripted_transport import Clock, Transport

from gossamer.deployment.party.loop import NodeLoop, TaskDone
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.deployment.peers.peers import PeerState
from gossamer.protocol.effects import Finish, Interrupt, Record, Reject
from gossamer.protocol.events import Refused
from gossamer.protocol.messages import Acknowledge
from gossamer.protocol.node import RoundsMade
from gossamer.protocol.session import Transmit
from gossamer.protocol.transports import Datagram
from gossamer.runtimes.host import Arrived, DataSideAnswer, Wake

FRAME = Acknowledge(1)


def peer(state: Any, finished: str = "", contact: bool = True, knows: bool = True) -> PeerState:
    return PeerState(state, 0.0, contact, finished, {}, knows=knows)


@dataclass
class Host:
    """Gives what a test wants to every turn."""

    outcomes: deque[list[Any]] = field(default_factory=deque)
    turns: list[list[Any]] = field(default_factory=list)
    finished: str = ""
    due: float | None = None
    rests: int = 0
    outbox: dict[str, dict[int, Any]] = field(default_factory=dict)
    delivered: int = 0
    node: Any = field(default_factory=lambda: SimpleNamespace(name="a", rounds_made=None))

    @property
    def session(self) -> Any:
        links = {to: SimpleNamespace(outbox=outbox, delivered=self.delivered) for to, outbox in self.outbox.items()}
        return SimpleNamespace(links=links)

    def start(self, now: float) -> list[Any]:
        return self.turn([("start", now)])

    def stop(self, reason: str, now: float) -> list[Any]:
        return self.turn([("stop", now)])

    def turn(self, inputs: Sequence[Any]) -> list[Any]:
        self.turns.append([what for what, _ in inputs])
        return self.outcomes.popleft() if self.outcomes else []

    def deadline(self) -> float | None:
        return self.due

    def rest(self) -> None:
        self.rests += 1


@dataclass
class Peers:
    """Passes frames through."""

    states_: dict[str, PeerState] = field(default_factory=dict)
    told: list[Any] = field(default_factory=list)
    untold: list[set[str]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    kept: int = 0

    def open(self, sender: str, datagram: bytes, now: float) -> tuple[list[Any], list[tuple[str, bytes]]]:
        return ([(sender, FRAME)] if datagram == b"frame" else [], [(sender, b"answer")])

    def seal(self, to: str, frame: Any, now: float) -> list[tuple[str, bytes]]:
        return [(to, b"sealed")]

    def keep(self, now: float) -> None:
        self.kept += 1

    def wake(self, now: float) -> list[tuple[str, bytes]]:
        return []

    def deadline(self) -> float | None:
        return None

    def rejected(self, sender: str, reason: str, now: float) -> None:
        self.refused.append((sender, reason))

    def finished(self, reason: str, but: Collection[str] = ()) -> None:
        self.told.append(reason)
        self.untold.append(set(but))

    def states(self, now: float) -> dict[str, PeerState]:
        return self.states_


@dataclass
class Worker:
    asked: list[Any] = field(default_factory=list)
    outcomes: list[TaskDone] = field(default_factory=list)
    late: list[TaskDone] = field(default_factory=list)

    def ask(self, request: Any) -> None:
        self.asked.append(request)

    def done(self) -> list[TaskDone]:
        found, self.outcomes = self.outcomes, []
        return found

    def stop(self) -> None:
        """What it was at is done."""
        self.outcomes, self.late = self.late, []


@pytest.fixture
def loop(tmp_path: Path) -> Any:
    clock, folder = Clock(), StateFolder(tmp_path)
    folder.take()
    reach = SimpleNamespace(look=lambda links, now: [], holds=lambda now: False, owed={})
    parts: Any = (Peers(), Transport(clock), folder, clock, reach, Host(), Worker())
    yield NodeLoop(*parts, linger=60.0)
    folder.give_back()


class TestTurns:
    def test_all_that_came_is_one_turn(self, loop: Any) -> None:
        loop.transport.inbox += [Datagram("b", b"frame"), Datagram("b", b"junk"), Datagram("c", b"frame")]
        answer = Refused(1, 0)
        loop.worker.outcomes.append(TaskDone(answer, (Record("bad", 1.0),), update=True))
        loop.host.due = loop.clock()
        loop.turn()
        assert loop.host.turns == [[Arrived("b", FRAME), Arrived("c", FRAME), DataSideAnswer(answer), Wake()]]
        assert loop.counts["computations"] == 1
        assert '"bad"' in (loop.folder.path / "private.jsonl").read_text()

    def test_what_was_seen_of_receipts_is_on_disk_before_anything_that_came_is_taken(self, loop: Any) -> None:
        kept: list[int] = []
        loop.host.turn = lambda inputs: kept.append(loop.peers.kept) or []
        loop.transport.inbox.append(Datagram("b", b"frame"))
        loop.turn()
        assert kept == [1]

    def test_raw_figures_are_written_down_after_all_is_sent(self, loop: Any) -> None:
        """Whether there are any depends on the data, and writing them takes its time."""
        log, there = loop.folder.path / "private.jsonl", []
        loop.peers.seal = lambda to, frame, now: there.append(log.exists()) or [(to, b"sealed")]
        loop.worker.outcomes.append(TaskDone(Refused(1, 0), (Record("gradients_not_finite", 1.0),)))
        loop.host.outcomes.append([Transmit("b", FRAME)])
        loop.turn()
        assert there == [False]
        assert log.exists()

    def test_nothing_is_stored_where_nothing_came(self, loop: Any) -> None:
        loop.transport.inbox.append(Datagram("b", b"junk"))
        loop.turn()
        assert loop.host.turns == []
        assert loop.host.rests == 1
        assert loop.transport.sent == [("b", b"answer")]

    def test_what_comes_of_it_is_carried_out(self, loop: Any) -> None:
        request = Interrupt(1)
        outcomes = [Transmit("b", FRAME), request, Record("loss", 0.5), Reject("c", "nonsense")]
        loop.host.outcomes.append([*outcomes, Finish("quota")])
        loop.transport.inbox.append(Datagram("b", b"frame"))
        loop.turn()
        assert ("b", b"sealed") in loop.transport.sent
        assert loop.worker.asked == [request]
        assert loop.peers.refused == [("c", "nonsense")]
        assert loop.peers.told == ["quota"]
        assert '"loss"' in (loop.folder.path / "private.jsonl").read_text()

    def test_what_is_told_to_who_watches_leaves_by_the_clock(self, loop: Any) -> None:
        """And not in the turn that the end of a computation begins, which would show when that was."""
        loop.overview = SimpleNamespace(deadline=lambda: loop.clock() + 0.5)
        assert loop._patience() == pytest.approx(0.5)

    def test_it_waits_no_longer_than_the_next_deadline(self, loop: Any) -> None:
        loop.host.due = loop.clock() + 0.25
        loop.turn()
        assert loop.clock() == pytest.approx(100.25)
        assert loop.host.turns == [[Wake()]]

    def test_the_broker_is_spoken_of_when_it_goes_and_comes(self, loop: Any) -> None:
        loop.transport.connected, loop.transport.reason = False, "it ended"
        loop.turn()
        loop.turn()
        loop.transport.connected = True
        loop.turn()
        lines = (loop.folder.path / "node.log").read_text().splitlines()
        assert [line.partition("Z ")[2] for line in lines] == [
            "lost the broker, and goes on trying: it ended",
            "connected to the broker again",
        ]


class TestAlone:
    def test_what_the_node_asks_is_held_back_until_a_peer_is_reached(self, loop: Any) -> None:
        holds, first, second = True, Interrupt(1), Interrupt(2)
        loop.reach = SimpleNamespace(look=lambda links, now: [("b", b"probe")], holds=lambda now: holds, owed={})
        loop.host.outcomes += [[first], [], [second]]
        for _ in range(2):
            loop.transport.inbox.append(Datagram("b", b"frame"))
            loop.turn()
        assert loop.worker.asked == []
        assert ("b", b"probe") in loop.transport.sent
        holds = False
        loop.transport.inbox.append(Datagram("b", b"frame"))
        loop.turn()
        assert loop.worker.asked == [first, second], "in order"

    def test_who_is_heard_and_acknowledges_nothing_is_not_waited_for_for_ever(self, loop: Any) -> None:
        loop.peers.states_, loop.host.outbox = {"b": peer("up")}, {"b": {1: "message"}}
        loop.reach = SimpleNamespace(look=lambda links, now: [], holds=lambda now: True, owed={"b": loop.clock()})
        loop.host.outcomes.append([Finish("quota")])
        began = loop.clock()
        loop.look = lambda: loop.stop("too long") if loop.clock() > began + 1000 else None
        loop.run()
        assert loop.clock() - began == pytest.approx(300.0, abs=2.0)


class TestTheOrganisersEnd:
    @pytest.mark.parametrize("stopping", ["", "stopped"])
    def test_a_node_that_is_to_end_as_it_starts_asks_its_data_side_for_nothing(self, loop: Any, stopping: str) -> None:
        loop.ends, loop.stopping = (lambda: "" if stopping else "removed"), stopping
        loop.host.outcomes.append([Transmit("b", FRAME), Interrupt(1)])
        loop.run()
        assert loop.worker.asked == []
        assert ("b", b"sealed") in loop.transport.sent


class TestTheEnd:
    def run(self, loop: Any, most: float = 1000.0) -> float:
        """Seconds until the loop ends."""
        loop.host.outcomes.append([Finish("quota")])
        began = loop.clock()
        loop.look = lambda: loop.stop("too long") if loop.clock() > began + most else None
        loop.run()
        return float(loop.clock() - began)

    def test_nobody_is_there(self, loop: Any) -> None:
        assert self.run(loop) == 0

    @pytest.mark.parametrize("state", ["gone", "quarantined"])
    def test_those_who_are_gone_are_not_waited_for(self, loop: Any, state: str) -> None:
        loop.peers.states_ = {"b": peer(state), "c": peer("up", "quota"), "d": peer("never heard", contact=False)}
        loop.host.outbox = {"b": {1: "message"}}
        assert self.run(loop) == 0

    @pytest.mark.parametrize("back", [300.0, math.inf])
    def test_peers_are_not_given_up_because_the_broker_is_away(self, loop: Any, back: float) -> None:
        """It was lost after ten seconds, and comes back or not; for so long nobody could be heard."""
        loop.peers.states_ = {"b": peer("up")}
        loop.gone_after = 300.0
        loop.host.outcomes.append([Finish("quota")])

        def happen() -> None:
            loop.transport.connected = not 110 <= loop.clock() < back
            if loop.clock() > 200:
                loop.peers.states_ = {"b": peer("gone")}

        loop.look = happen
        loop.run()
        assert loop.clock() - (110 if back == math.inf else back) == pytest.approx(300.0, abs=3.0)

    def test_peers_are_given_up_though_the_node_makes_its_connection_anew_every_half_minute(self, loop: Any) -> None:
        """They are gone, it is alone, and what it does to mend that is no outage in which nobody could be heard."""
        loop.peers.states_, loop.gone_after = {"b": peer("gone")}, 60.0
        loop.host.outcomes.append([Finish("quota")])
        loop._changed_at = began = loop.clock()

        def happen() -> None:
            loop.transport.connected = (loop.clock() - began) % 30 < 28
            loop.transport.anew = not loop.transport.connected
            if loop.clock() > began + 1000:
                loop.stop("too long")

        loop.look = happen
        loop.run()
        assert loop.clock() - began == pytest.approx(60.0, abs=3.0)
        assert "lost the broker" not in (loop.folder.path / "node.log").read_text()

    def test_a_connection_made_anew_that_is_not_made_is_an_outage(self, loop: Any) -> None:
        loop.peers.states_, loop.gone_after = {"b": peer("gone")}, 60.0
        loop.host.outcomes.append([Finish("quota")])
        loop._changed_at = began = loop.clock()

        def happen() -> None:
            loop.transport.connected = not 10 <= loop.clock() - began < 50
            loop.transport.anew = not loop.transport.connected

        loop.look = happen
        loop.run()
        assert loop.clock() - began == pytest.approx(110.0, abs=3.0)

    @pytest.mark.parametrize("state", ["up", "silent"])
    def test_those_who_go_on_are(self, loop: Any, state: str) -> None:
        loop.peers.states_ = {"b": peer(state)}
        assert self.run(loop) > 1000
        assert loop.stopping == "too long"

    @pytest.mark.parametrize(
        ("serves", "states", "ends"),
        [
            (True, {"b": peer("up", "quota"), "c": peer("gone")}, True),
            (True, {"b": peer("up", "quota"), "c": peer("silent")}, False),
            (True, {"b": peer("up"), "c": peer("gone")}, False),
            (True, {"b": peer("gone"), "c": peer("gone")}, False),
            (True, {"b": peer("up", "only rehearses"), "c": peer("gone")}, False),
            (False, {"b": peer("up", "quota"), "c": peer("gone")}, False),
        ],
    )
    def test_a_server_ends_when_those_that_are_left_have(
        self, loop: Any, serves: bool, states: dict[str, PeerState], ends: bool
    ) -> None:
        """It may wait for hours for those that are gone, but not when it would be for them alone."""
        loop.serves, loop.peers.states_ = serves, states
        loop.host.outcomes += [[], [Finish("left alone")]] if ends else []
        loop.look = lambda: loop.stop("too long") if loop.clock() > 1000 else None
        loop.run()
        assert (["stop"] in loop.host.turns) == ends
        assert loop.stopping == ("" if ends else "too long")

    @pytest.mark.parametrize(("seconds", "delivered", "ends"), [(301.0, 1, True), (301.0, 0, False), (299.0, 1, False)])
    def test_a_server_waits_for_who_is_still_to_come_and_not_for_who_took_part_before_it_came_back(
        self, loop: Any, seconds: float, delivered: int, ends: bool
    ) -> None:
        unheard = PeerState("never heard", seconds, True, "", {}, knows=False)
        loop.serves, loop.peers.states_ = True, {"b": peer("up", "quota"), "c": unheard}
        loop.host.outbox, loop.host.delivered = {"c": {}}, delivered
        loop.host.outcomes += [[], [Finish("left alone")]] if ends else []
        loop.look = lambda: loop.stop("too long") if loop.clock() > 1000 else None
        loop.run()
        assert (["stop"] in loop.host.turns) == ends

    def test_who_was_never_heard_is_waited_for_a_while(self, loop: Any) -> None:
        loop.peers.states_ = {"b": peer("never heard")}
        loop.host.outbox = {"b": {1: "message"}}
        assert 60 <= self.run(loop) < 63

    @pytest.mark.parametrize(
        "said", ["left", "stopped by the organiser; made 2 of 3 rounds", "removed by the organiser"]
    )
    def test_who_has_left_for_good_acknowledges_nothing_any_more(self, loop: Any, said: str) -> None:
        loop.peers.states_ = {"b": peer("up", said)}
        loop.host.outbox = {"b": {1: "message"}}
        assert self.run(loop) < 3

    def test_what_was_not_acknowledged_is_waited_for(self, loop: Any) -> None:
        loop.peers.states_ = {"b": peer("up", "quota")}
        loop.host.outbox = {"b": {1: "message"}}
        assert self.run(loop) > 1000

    def test_who_lacks_a_message_is_told_of_the_end_once_it_has_it(self, loop: Any) -> None:
        """It would leave, and the message would never arrive."""
        loop.peers.states_ = {"b": peer("up"), "c": peer("up")}
        loop.host.outbox = {"b": {1: "message"}, "c": {}}

        def acknowledge() -> None:
            if loop.clock() >= 105:
                loop.host.outbox["b"].clear()
            if loop.clock() >= 110:
                loop.stop("enough")

        loop.host.outcomes.append([Finish("quota")])
        loop.look = acknowledge
        loop.run()
        assert loop.peers.untold == [{"b"}, set()]

    @pytest.mark.parametrize(("state", "least"), [("up", 60), ("silent", 0), ("quarantined", 0)])
    def test_who_does_not_know_of_the_end_is_told_before_the_node_leaves(
        self, loop: Any, state: str, least: float
    ) -> None:
        """The broker may have lost what it was told; and it may never say that it knows."""
        loop.peers.states_ = {"b": peer(state, "quota", knows=False)}
        assert least <= self.run(loop) < least + 3

    def test_it_leaves_as_soon_as_they_know(self, loop: Any) -> None:
        loop.peers.states_ = {"b": peer("up", "quota", knows=False)}

        def hear() -> None:
            if loop.clock() >= 105:
                loop.peers.states_ = {"b": peer("up", "quota")}

        loop.host.outcomes.append([Finish("quota")])
        loop.look = hear
        loop.run()
        assert 105 <= loop.clock() < 107

    def test_all_are_told_again_when_the_broker_is_back(self, loop: Any) -> None:
        """What was said while it was away is lost."""
        loop.peers.states_ = {"b": peer("up")}

        def happen() -> None:
            loop.transport.connected = not 105 <= loop.clock() < 108
            if loop.clock() >= 110:
                loop.stop("enough")

        loop.host.outcomes.append([Finish("quota")])
        loop.look = happen
        loop.run()
        assert loop.peers.told == ["quota", "quota"]

    def test_a_node_that_had_finished_before_says_so_again(self, loop: Any) -> None:
        loop.host.finished = "quota"
        loop.run()
        assert loop.peers.told == ["quota"]

    def test_what_was_charged_is_not_lost_when_a_node_is_stopped(self, loop: Any) -> None:
        answer = Refused(1, 0)
        loop.worker.late.append(TaskDone(answer, update=True))
        loop.host.outcomes.append([Transmit("b", FRAME), Interrupt(1)])  # type: ignore[arg-type]
        loop.settle()
        assert loop.host.turns == [[DataSideAnswer(answer)]]
        assert loop.transport.sent == [("b", b"sealed")]
        assert loop.worker.asked == []
        loop.settle()
        assert len(loop.host.turns) == 1

    def test_one_that_leaves_waits_for_acknowledgements_but_not_long(self, loop: Any) -> None:
        loop.host.outbox = {"b": {1: "message"}}
        began = loop.clock()
        loop.leave("left", patience=10.0)
        assert 10 <= loop.clock() - began < 12
        assert loop.host.turns[0] == ["stop"]

    def test_its_last_word_is_why_it_ended_too(self, loop: Any) -> None:
        """Peers go by what they heard last, and should know that rounds came to nothing."""
        loop.host.node.rounds_made = RoundsMade(6, 8, 14)
        loop.host.finished = "rounds"
        loop.run()
        loop.farewell()
        assert [told.startswith("rounds; made 6 of 14 rounds") for told in loop.peers.told] == [True, True]
