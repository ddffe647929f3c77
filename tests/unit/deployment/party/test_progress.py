"""Progress of a node: pauses that are too long are noticed, with whom it waits for, and so are rounds without a sum."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from gossamer.algorithms.masked_round import UPDATE, RoundMember
from gossamer.deployment.party.health import Severity, problems
from gossamer.deployment.party.reach import NodeProgress, short
from gossamer.deployment.peers.peers import PeerState
from gossamer.privacy.masking import Phase
from gossamer.protocol.node import RoundsMade


def peer(state: str = "up", finished: str = "") -> PeerState:
    return PeerState(state, 1.0, True, finished, {})  # type: ignore[arg-type]


def server(made: int = 0, empty: int = 0, *, awaited: frozenset[str] = frozenset()) -> Any:
    return SimpleNamespace(rounds_made=RoundsMade(made, empty, 40), awaited=awaited)


class Watched:
    """A node that is looked at once a second."""

    def __init__(self, **needs: Any) -> None:
        self.lines: list[str] = []
        self.progress = NodeProgress(needs.get("needs", ()), self.lines.append)
        self.now, self.found = 1000.0, dict[str, Any]()

    def look(
        self, node: Any, seconds: float, states: dict[str, PeerState], made: int = 0, *, busy: bool = False
    ) -> Any:
        until = self.now + seconds
        while self.now < until:
            self.found = self.progress.look(node, made, busy, states, self.now)
            self.now += 1.0
        return self.found["stalled"]


@pytest.mark.parametrize(("state", "after"), [("up", 600), ("silent", 30), ("gone", 30)])
def test_who_is_waited_for_is_named_sooner_if_nobody_hears_it(state: str, after: int) -> None:
    watched = Watched()
    node, states = server(awaited=frozenset({"b"})), {"a": peer(), "b": peer(state)}
    assert watched.look(node, after, states) is None
    assert watched.look(node, 2, states) == {"since": 1000.0, "seconds": after + 1, "waits_for": ["b"]}
    assert watched.look(node, 1, states, made=1) is None


def test_a_pause_may_be_five_times_as_long_as_any_before() -> None:
    watched, node, states = Watched(), server(awaited=frozenset({"b"})), {"b": peer()}
    for update in range(4):
        assert watched.look(node, 20, states, made=update) is None
    assert watched.look(node, 79, states, made=3) is None
    assert watched.look(node, 5, states, made=3)["waits_for"] == ["b"]


def test_a_task_of_any_length_is_no_pause() -> None:
    watched, states = Watched(needs=("b",)), {"b": peer("gone")}
    node: Any = SimpleNamespace(rounds_made=None, awaited=frozenset())
    assert watched.look(node, 5000, states, busy=True) is None
    assert watched.look(node, 40, states)["waits_for"] == ["b"]
    assert watched.found["rounds"] is None


def test_without_names_it_is_those_that_are_lost_or_else_all_that_go_on() -> None:
    node: Any = SimpleNamespace(rounds_made=None, awaited=frozenset())
    lost = {"a": peer(), "b": peer("gone"), "c": peer("gone", "quota")}
    assert Watched().look(node, 40, lost)["waits_for"] == ["b"]
    assert Watched().look(node, 700, {"a": peer(), "b": peer(), "c": peer("up", "quota")})["waits_for"] == ["a", "b"]
    assert Watched().look(node, 700, {"c": peer("up", "quota")}) is None


def test_rounds_that_come_to_nothing_are_counted_in_a_row() -> None:
    watched, states = Watched(), {"b": peer()}
    lately = []
    for made, empty in [(3, 0), (3, 1), (3, 2), (3, 3), (4, 3), (4, 4)]:
        watched.look(server(made, empty), 1, states)
        lately.append(watched.found["rounds"]["lately"])
    assert lately == [0, 1, 2, 3, 0, 1]
    assert short(server(40)) == short(SimpleNamespace(rounds_made=None)) == ""  # type: ignore[arg-type]
    assert short(server(35, 5)).startswith("made 35 of 40 rounds: in 5 nobody answered")


def test_a_client_says_that_it_is_in_no_sum() -> None:
    """Its server tells nobody that too few were there; it sees that it is given another round.

    Its updates are counted when the sum is revealed; then it may wait for long until it is drawn again.
    """

    class Client(RoundMember):
        rounds_made, awaited, state, round = None, frozenset[str](), SimpleNamespace(updates=0, step=UPDATE), -1

    watched, states, node = Watched(), {"server": peer()}, Client()
    told = []
    begun = [(-1, UPDATE, 0), (0, UPDATE, 0), (0, Phase.MASK, 0), (2, UPDATE, 0), (3, UPDATE, 0)]
    summed = [(3, Phase.REVEAL, 1), (4, UPDATE, 1), (4, Phase.REVEAL, 2), (9, UPDATE, 2), (10, Phase.REVEAL, 3)]
    for number, step, updates in [*begun, *summed, (12, UPDATE, 3), (13, UPDATE, 3)]:
        node.round, node.state.step, node.state.updates = number, step, updates
        watched.look(node, 1, states)
        told.append(len(watched.lines))
    assert told == [0, 0, 0, 1, 2, 2, 2, 2, 2, 3, 3, 4]
    assert watched.lines[0].startswith("there was no sum of round 1 with this node in it: too few clients answered in")
    assert [line.rpartition("so it was ")[2] for line in watched.lines] == [
        *("1 round in a row", "2 rounds in a row", "1 round in a row", "1 round in a row")
    ]


@pytest.mark.parametrize(
    ("found", "level", "text"),
    [
        (
            {"stalled": {"since": 0.0, "seconds": 40.0, "waits_for": ["b"]}},
            2,
            "no progress since 00:00:00 UTC",
        ),
        ({"stalled": {"since": 0.0, "seconds": 40.0, "waits_for": ["c"]}}, 1, "waits for c"),
        ({"rounds": {"made": 35, "empty": 2, "planned": 40, "lately": 2}}, 1, "the last 2 rounds came to nothing"),
        ({"rounds": {"made": 35, "empty": 3, "planned": 40, "lately": 3}}, 2, "35 of 40 are made"),
        ({"rounds": {"made": 35, "empty": 3, "planned": 40, "lately": 0}, "stalled": None}, 0, ""),
        ({"state": "finished", "process": None, "why": "made 35 of 40 rounds"}, 2, "made 35 of 40 rounds"),
    ],
)
def test_each_has_a_level(found: dict[str, Any], level: int, text: str) -> None:
    peers = {"b": {"state": "gone", "seconds": 1.0, "finished": "quota"}, "c": {"state": "up", "seconds": 1.0}}
    status = {"state": "running", "process": 1, "written": 0.0, "connected": True, "peers": peers, **found}
    said = problems(status, 0.0)
    assert [problem.level for problem in said] == [Severity(level)] * bool(level)
    assert text in "".join(problem.text for problem in said)
