"""Seeds of faults to an organiser's orders: deployed parties keep to them, and planted bugs are found."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.ordered_parties import (
    BEGAN,
    KINDS,
    SEEN,
    Laboratory,
    Part,
    Process,
    laboratory_of,
    problems,
)
from tests.sampling import examples

from gossamer.deployment.party import party as deployed
from gossamer.deployment.peers.peers import Peers
from gossamer.faults.schedules import Crash, FaultSchedule
from gossamer.keys.orders import PAUSED, STOP, Orders
from gossamer.sides.machine import Side


@pytest.mark.some(3)
@pytest.mark.parametrize("name", ["gossip", "fedavg"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_seed_fails(name: str, kind: str) -> None:
    found, seen = problems(name, kind, range(examples(48)))
    assert found == {}
    assert all(seen[what] for what in SEEN[kind]), seen


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gossip", "fedavg"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_seed_of_many_fails(name: str, kind: str) -> None:
    assert problems(name, kind, range(48, 1000))[0] == {}


def forgotten_pauses(orders: Orders) -> list[Any]:
    return [one for one in READ(orders) if not one.what.startswith("pause")]


def unheeded_before_the_beginning(orders: Orders, begun: bool = True) -> str:
    return ENDS(orders) if begun else ""


def unheeded_once_begun(orders: Orders, begun: bool = True) -> str:
    return "" if begun else ENDS(orders, begun)


READ, CHARGE, ENDS = Orders._read, Side.charge, Orders.ends


@pytest.mark.parametrize(
    ("kind", "first", "where", "what", "instead", "said"),
    [
        (
            "remove",
            2,
            Peers,
            "_removed",
            lambda peers, peer: False,
            "takes a message of .*, and has said that it knows",
        ),
        ("remove", 33, Orders, "_read", lambda orders: [], "takes a message of .*, and has said that it knows"),
        ("pause", 3, Orders, "_read", forgotten_pauses, "takes part, and has said that it is paused"),
        ("stop", 1, Orders, "ends", unheeded_once_begun, "has said that it knows of its end"),
        ("stop", 0, Orders, "ends", unheeded_before_the_beginning, "knew before it began that its part is over"),
        (
            "second run",
            0,
            Side,
            "charge",
            lambda side, receipt: (CHARGE(side, receipt), CHARGE(side, receipt))[1],
            "kills",
        ),
    ],
)
def test_planted_bugs_are_found(
    kind: str,
    first: int,
    where: type,
    what: str,
    instead: Callable[..., Any],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first seed that does is given, to be quick."""
    monkeypatch.setattr(where, what, instead)
    for seed in range(first, first + 100):
        if found := problems("gossip", kind, [seed])[0]:
            assert re.search(said, found[seed])
            break
    else:
        raise AssertionError("no seed finds it")
    monkeypatch.undo()
    assert problems("gossip", kind, [seed])[0] == {}


@pytest.mark.parametrize("name", ["gossip", "fedavg"])
def test_who_was_killed_before_it_charged_its_plan_does_not_once_it_knows_of_the_end(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed at each of the things that last or that others see, in the turn in which it begins."""
    enter, die, me = Part.enter, Laboratory._die, "node-1"
    began, killed = list[int](), set[str]()

    def entered(part: Part, who: str) -> None:
        began.extend([part.lab.turns] * (who == me))
        enter(part, who)

    def dies(lab: Laboratory, process: Process, crash: Crash) -> None:
        killed.add(process.dies)
        die(lab, process, crash)
        lab.at(lab.now + crash.away + 0.1, lab.hears, (lab.parts[0].name, me, STOP))

    def found(*crashes: Crash) -> str | None:
        with laboratory_of(name, "second run", 0) as there:
            there.schedule, there.may_stop = FaultSchedule(), dict.fromkeys(there.workers, True)
            there.crashes = dict(zip(began, crashes, strict=False))
            return there.run(20.0)

    monkeypatch.setattr(Part, "enter", entered)
    monkeypatch.setattr(Laboratory, "_die", dies)
    assert found() is None
    assert [found(Crash(0, instant, away=3.0)) for instant in range(3)] == [None] * 3
    assert {"entering a plan", "having entered a plan"} <= killed


def test_who_goes_on_while_others_wait_knows_why_they_take_nothing() -> None:
    """The policy of one party forbids the pause, and nothing else goes wrong."""
    with laboratory_of("gossip", "second run", 0) as there:
        there.schedule, there.crashes = FaultSchedule(), {}
        there.may_stop = {name: name != "node-0" for name in there.workers}
        for name in there.names:
            there.at(BEGAN + 5, there.hears, (there.parts[0].name, name, "pause 1"))
        assert there.run(60.0) is None
        found = there.processes["node-0"].peerreach.described(there.now)
        assert {name: one["why"] for name, one in found["unacknowledged"].items()} == dict.fromkeys(
            there.workers[1:], PAUSED
        )
        assert (found["alone"], found["holds"]) == (None, True)


def test_who_hears_the_end_of_a_pause_and_is_killed_at_once_took_part_rightly() -> None:
    assert problems("gossip", "pause", [1333])[0] == {}


@pytest.mark.parametrize(("kind", "seed"), [("second run", 80), ("pause", 6)])
def test_who_comes_back_after_one_has_left_goes_on_with_who_is_there(kind: str, seed: int) -> None:
    """It has not heard that the one has finished, and would take nothing more for ever, and all others wait for it."""
    assert problems("gossip", kind, [seed])[0] == {}


def test_who_is_stopped_while_others_need_it_yet_goes_on_to_no_further_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own part is over, and a signal of its owner's ends the process."""
    ends, said, take_part = dict[str, Callable[[str], None]](), dict[tuple[str, int], str](), deployed.run_party

    def run_party(options: Any) -> str:
        said[options.name, options.number] = take_part(options)
        return said[options.name, options.number]

    with laboratory_of("gossip", "second run", 0) as there:
        there.schedule, there.crashes = FaultSchedule(), {}

        def signals(end: Callable[[str], None]) -> Any:
            ends[there.at_work.name] = end
            return nullcontext()

        def look(name: str) -> None:
            if there.parts[0].hosts[name].finished:
                ends[name]("stopped")
            else:
                there.at(there.now + 1, look, name)

        monkeypatch.setattr(deployed, "_stopped_by_signals", signals)
        monkeypatch.setattr(deployed, "run_party", run_party)
        there.at(BEGAN + 1, look, there.workers[1])
        there.run(100.0)
    assert said[there.workers[1], 0] == "stopped"
    assert said[there.workers[2], 0] == "finished"


@pytest.mark.parametrize("seed", [84, 167])
def test_a_server_waits_no_longer_for_who_spoke_once_more_and_then_ended(seed: int) -> None:
    """It had been given up, was heard, and was stopped by the organiser before it acknowledged anything."""
    assert problems("fedavg", "stop", [seed])[0] == {}


def test_a_server_that_comes_back_waits_no_longer_for_who_ended_while_it_was_away() -> None:
    """It has not heard that one since, which took part before; and the third has finished, and waits for the server."""
    assert problems("fedavg", "stop", [1504])[0] == {}
