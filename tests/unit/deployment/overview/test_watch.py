"""Of whom a fault is, by what all parties say together."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from tests.reference.linked_peers import RUN

from gossamer.cli.federation import overview
from gossamer.cli.federation.overview import _shown
from gossamer.deployment.founding.founding import found
from gossamer.deployment.founding.runs import give_order
from gossamer.deployment.overview.watch import Watch, _expired, judged
from gossamer.deployment.party.health import exposition
from gossamer.deployment.peers.digest import Digest
from gossamer.deployment.peers.standing import REHEARSES, PeerState
from gossamer.keys.orders import PAUSED, REMOVE, STOP, STOPPED

NOW = 1.7e9
SPEC = "dataset: digits\nalgorithm: {name: gossip, updates_per_node: 9}\nprivacy: {noise_multiplier: 1}\n"
Said = dict[str, Any]
WELL: Said = {"version": "1", "time": NOW, "state": "running", "since": NOW - 100, "updates": 12, "releases": 12}
WELL |= {"peers": {"x": {"state": "up"}}, "connected": True}


def party(said: Said | None = WELL, state: Any = "up", seconds: float = 1.0) -> PeerState:
    return PeerState(state, seconds, True, "", {}, digest=None if said is None else Digest.of(said), digest_age=seconds)


def late(name: str, why: str = "", seconds: float = 40.0) -> Said:
    """A party to whom ``name`` is not there, so that it is alone."""
    owes = {name: {"seconds": seconds, "why": why}}
    return {**WELL, "peers": {name: {"state": "silent", "seconds": 60.0}}, "alone": seconds, "unacknowledged": owes}


def levels(**parties: PeerState) -> dict[str, str]:
    return {name: status["level"] for name, status in judged(parties, RUN, NOW).items()}


def problem(name: str, **parties: PeerState) -> dict[str, str]:
    """The worst."""
    return dict(judged(parties, RUN, NOW)[name]["problems"][0])


def test_parties_that_are_well() -> None:
    found = judged({"a": party(), "server": party()}, RUN, NOW)
    assert [(one["level"], one["state"], one["problems"]) for one in found.values()] == [("ok", "running", [])] * 2
    assert 'gossamer_node_level{store="a",node="a"' in exposition(found)


def test_who_waits_for_a_party_that_is_gone_is_not_red() -> None:
    """The fault is that of the party that is gone; others say what follows from it."""
    silent, waits = party(None, "never heard", 60.0), party(late("b"))
    assert levels(a=waits, b=silent) == {"a": "warning", "b": "critical"}
    assert problem("b", a=waits, b=silent)["kind"] == "silence"
    assert "nor by a" in problem("b", a=waits, b=silent)["text"]
    texts = [one["text"] for one in judged({"a": waits, "b": silent}, RUN, NOW)["a"]["problems"]]
    assert any(text.startswith("for the fault of b: no peer has acknowledged") for text in texts)


def test_who_waits_for_a_party_that_failed_is_not_red() -> None:
    failed = {**WELL, "state": "failed", "why": "the disk is full"}
    assert levels(a=party(late("b")), b=party(failed, "gone", 500.0)) == {"a": "warning", "b": "critical"}


def test_two_who_do_not_reach_each_other_are_both_red() -> None:
    """Neither has a fault of its own, so the way between them has: nothing is said away."""
    unknown = "does the broker, and all on the way to it, pass messages of 1000 bytes?"
    assert levels(a=party(late("b", unknown)), b=party(late("a", unknown))) == {"a": "critical", "b": "critical"}


@pytest.mark.parametrize(
    "why", ["not allowed: the broker's access list", "too large: a message has", "not acknowledged"]
)
def test_whom_the_broker_refuses_is_red_and_not_who_waits_for_it(why: str) -> None:
    assert levels(a=party(late("b", why)), b=party(late("a"))) == {"a": "critical", "b": "warning"}


def deaf(*names: str, up: tuple[str, ...] = (), alone: bool = False, seconds: float = 40.0) -> Said:
    """A party that hears ``names``, which acknowledge nothing of it, and others that are well."""
    owes = {name: {"seconds": seconds, "why": "is all passed, 100 % of it?"} for name in names}
    peers = {name: {"state": "up"} for name in (*names, *up)}
    return {**WELL, "peers": peers, "unacknowledged": owes} | ({"alone": seconds} if alone else {})


def test_who_is_heard_and_acknowledges_nothing_is_red_though_only_its_peers_notice() -> None:
    """Large messages to ``a`` are lost: it waits for them in peace, and its server has all others."""
    parties = {"a": party(deaf(up=("server",))), "b": party(deaf(up=("server",)))}
    parties |= {"server": party(deaf("a", up=("b",)))}
    assert levels(**parties) == {"a": "critical", "b": "ok", "server": "warning"}
    assert problem("a", **parties)["text"] == (
        "is heard, and nothing was acknowledged between it and server for 41 s: is all passed, 100 % of it?"
    )


def test_over_a_store_that_is_slow_nobody_is_red_so_soon() -> None:
    """Which is looked at every 30 s: all is waited for six times as long, 180 s in place of 30."""
    for seconds, level in ((170.0, "ok"), (181.0, "critical")):
        parties = {"a": party(deaf(up=("server",))), "b": party(deaf(up=("server",)))}
        parties["server"] = party(deaf("a", up=("b",), seconds=seconds))
        assert judged(parties, RUN, NOW, slow=6.0)["a"]["level"] == level


def test_what_was_not_acknowledged_when_the_connection_was_lost_may_have_been_since() -> None:
    parties = {"server": party(deaf("a", seconds=12.0), seconds=20.0), "a": party(deaf(up=("server",)), seconds=20.0)}
    assert judged(parties, RUN, NOW)["a"]["level"] == "critical"
    assert judged(parties, RUN, NOW, connected=0.0)["a"]["level"] == "ok"
    assert judged(parties, RUN, NOW, connected=14.0)["a"]["level"] == "ok"


def test_who_says_that_its_broker_confirms_nothing_is_red_alone() -> None:
    says = "not acknowledged: the broker has confirmed nothing that was sent for 31 s"
    parties = {"a": party({**deaf(up=("server",)), "broker_says": says}), "server": party(deaf("a", up=("b",)))}
    parties["b"] = party(deaf(up=("server",)))
    assert levels(**parties) == {"a": "critical", "b": "ok", "server": "warning"}
    assert problem("a", **parties) == {
        "level": "critical",
        "kind": "broker",
        "text": f"what it sends is lost on the way to the broker, or its answers are: {says}",
    }


def test_a_server_that_acknowledges_nothing_to_anybody_is_red_alone() -> None:
    parties = {"a": party(deaf("server", alone=True)), "b": party(deaf("server", alone=True))}
    assert levels(**parties, server=party(deaf(up=("a", "b")))) == {
        "a": "warning",
        "b": "warning",
        "server": "critical",
    }
    both_ways = party(deaf("a", "b", alone=True))
    assert levels(**parties, server=both_ways) == {"a": "warning", "b": "warning", "server": "critical"}


def test_who_waits_as_the_organiser_asked_acknowledges_nothing_and_nobody_is_red() -> None:
    """The policy of ``a`` forbids the pause, and it goes on."""
    owes = {name: {"seconds": 40.0, "why": PAUSED} for name in ("b", "c")}
    goes_on = {**deaf("b", "c"), "unacknowledged": owes, "orders": {"pause 1": "its policy does not allow that"}}
    waits = {**deaf(up=("a",)), "state": "waiting", "orders": {"pause 1": ""}}
    parties = {"a": party(goes_on), "b": party(waits), "c": party(waits)}
    assert set(levels(**parties).values()) == {"warning"}
    texts = [one["text"] for one in judged(parties, RUN, NOW)["a"]["problems"]]
    assert "b is heard, and has acknowledged nothing for 40 s: paused by the organiser" in texts


def test_the_way_between_two_of_whom_each_has_others_is_a_warning() -> None:
    parties = {"a": party(deaf("b", up=("c",))), "b": party(deaf("a", up=("c",))), "c": party(deaf(up=("a", "b")))}
    assert levels(**parties) == {"a": "warning", "b": "warning", "c": "ok"}


def test_what_was_not_acknowledged_for_a_moment_is_a_warning() -> None:
    parties = {"a": party(deaf(up=("server",))), "server": party(deaf("a", up=("b",), seconds=20.0))}
    assert levels(**parties, b=party(deaf(up=("server",)))) == {"a": "ok", "b": "ok", "server": "warning"}


def test_who_is_told_that_another_is_not_there_is_not_red() -> None:
    gone = party(late("b", "b is not connected to the broker, or may receive nothing there"))
    assert levels(a=gone, b=party(None, "never heard", 60.0)) == {"a": "warning", "b": "critical"}


def test_who_is_not_heard_and_missed_by_nobody_may_forbid_it() -> None:
    quiet = party(None, "never heard", 60.0)
    assert problem("b", a=party(), b=quiet) == {
        "level": "warning",
        "kind": "silence",
        "text": "not heard for 60 s, and nobody misses it: it has finished or its policy forbids this (overview: no), "
        "or the broker's access list is an older one",
    }


def test_who_is_not_heard_and_has_told_a_peer_that_its_part_is_over_has_finished() -> None:
    """Unless others miss it, or it only rehearsed."""
    said, quiet = {**WELL, "peers": {"b": {"state": "gone", "finished": STOPPED}}}, party(None, "never heard", 60.0)
    found = judged({"a": party(said), "b": quiet}, RUN, NOW)["b"]
    assert (found["level"], found["state"], found["finished"]) == ("ok", "finished", STOPPED)
    assert levels(a=party(said), b=quiet, c=party(late("b")))["b"] == "critical"
    rehearsed = {**WELL, "peers": {"b": {"state": "up", "finished": REHEARSES}}}
    assert judged({"a": party(rehearsed), "b": quiet}, RUN, NOW)["b"]["state"] == "not heard"


def test_nobody_is_missed_before_they_can_have_answered() -> None:
    misses = party(late("a"))
    assert levels(a=party(None, "never heard", 3.0), b=misses)["a"] == "warning"
    assert levels(a=party(None, "never heard", 60.0), b=misses)["a"] == "critical"


def test_nobody_is_blamed_while_who_watches_has_no_broker_or_has_it_only_again() -> None:
    for connected, kind, words in ((0.0, "broker", "this machine has lost the broker"), (7.0, "silence", "was called")):
        found = judged({"a": party(WELL, "silent", 50.0), "b": party(late("a"))}, RUN, NOW, connected=connected)
        (said,) = found["a"]["problems"]
        assert (said["level"], said["kind"]) == ("warning", kind)
        assert words in said["text"]


@pytest.mark.parametrize("stops", [False, True])
def test_where_nobody_is_heard_the_run_is_over_or_all_are_down(stops: bool) -> None:
    """As where who watches came after the end, or was put off the broker while all ended: they were heard before."""
    was_here, never = party(WELL, "silent", 90.0), party(None, "never heard", 60.0)
    found = judged({"a": was_here, "b": never}, RUN, NOW, connected=89.0, stops=stops)
    asked = " (the organiser has asked for its end)" if stops else ""
    for name, begun in (("a", ""), ("b", "has not begun, ")):
        text = f"not heard, and nobody is: the run {begun}is over{asked}, or all are down; "
        text += "`gossamer status` at a party says which"
        assert found[name]["problems"] == [{"level": "warning", "kind": "silence", "text": text}]


def test_all_who_fall_silent_while_who_watches_has_the_broker_are_red() -> None:
    """Whose part is over says so, and that would have been heard: their machines are down."""
    found = judged({name: party(WELL, "silent", 50.0) for name in "ab"}, RUN, NOW, connected=51.0)
    assert {one["level"] for one in found.values()} == {"critical"}


@pytest.mark.parametrize(("connected", "level"), [(math.inf, "critical"), (300.0, "critical"), (280.0, "warning")])
def test_who_was_heard_running_and_falls_silent_is_red_though_nobody_is_left_to_miss_it(
    connected: float, level: str
) -> None:
    """Its only neighbour has ended, and others know nothing of it."""
    over = party({**WELL, "state": "finished", "peers": {"a": {"state": "up"}}}, "gone", 400.0)
    gone, hears = party(WELL, "gone", 290.0), party({**WELL, "peers": {"a": {"state": "up"}}})
    found = judged({"a": gone, "b": over, "c": party()}, RUN, NOW, connected=connected)
    assert {name: one["level"] for name, one in found.items()} == {"a": level, "b": "ok", "c": "ok"}
    assert judged({"a": gone, "b": over, "c": hears}, RUN, NOW)["a"]["level"] == "warning"  # it answers its peers alone


def test_who_has_ended_tells_of_the_end_of_others() -> None:
    """The last words of the others went to an order that was given beside the watch."""
    last = {**WELL, "state": "finished", "peers": {"b": {"state": "up", "finished": "quota"}, "c": {"state": "up"}}}
    others = {name: party(WELL, "silent", 50.0) for name in "bc"}
    found = judged({"a": party(last, "gone", 60.0), **others}, RUN, NOW, ["b"], connected=20.0)
    assert {name: one["state"] for name, one in found.items()} == {"a": "finished", "b": "finished", "c": "not heard"}
    assert {name: one["level"] for name, one in found.items()} == {"a": "ok", "b": "ok", "c": "warning"}


def test_who_was_heard_and_fell_silent() -> None:
    """What it said last of others is not so any longer."""
    hears = {**WELL, "peers": {"a": {"state": "up"}}}  # it is about to miss it, too
    found = judged({"a": party(late("b"), "silent", 50.0), "b": party(hears)}, RUN, NOW)
    assert (found["a"]["level"], found["a"]["peers"], found["a"]["state"]) == ("warning", {}, "not heard")
    assert (found["a"]["updates"], found["a"]["releases"]) == (12, 12)
    assert levels(a=party(WELL, "silent", 50.0), b=party(late("a"))) == {"a": "critical", "b": "warning"}


@pytest.mark.parametrize("state", ["finished", "stopped"])
def test_whose_part_is_over_is_not_missed(state: str) -> None:
    over = party({**WELL, "state": state}, "gone", 5000.0)
    assert levels(a=over, b=party()) == {"a": {"finished": "ok", "stopped": "warning"}[state], "b": "ok"}


@pytest.mark.parametrize(("off", "words"), [(300.0, "300 s ahead"), (-86400.0, "86400 s behind")])
def test_a_clock_that_is_off(off: float, words: str) -> None:
    """A clock that stopped goes on to be late; the process goes by its steady clock, so it runs."""
    found = problem("a", a=party({**WELL, "time": NOW + off - 1.0}), b=party())
    assert (found["level"], found["kind"]) == ("critical", "clock")
    assert words in found["text"]


def test_what_was_said_a_while_ago_is_of_a_clock_that_goes() -> None:
    """As where who watches was put off the broker meanwhile: it is heard again, and has not told anything new yet."""
    told = replace(party({**WELL, "time": NOW - 40.0}), digest_age=40.0)
    assert levels(a=told) == {"a": "ok"}


def test_the_party_of_another_version_is_named_and_no_other() -> None:
    other = party({**WELL, "version": "2"})
    assert levels(a=party(), b=other, c=party()) == {"a": "ok", "b": "warning", "c": "ok"}
    assert problem("b", a=party(), b=other, c=party())["text"] == "runs gossamer 2, and others 1"


def test_a_party_whose_certificate_has_expired() -> None:
    found = judged({"a": party(None, "never heard", 60.0), "b": party()}, RUN, NOW, ["a"])
    assert [(one["level"], one["kind"]) for one in found["a"]["problems"]] == [("critical", "papers")]
    stopped = party({**WELL, "state": "stopped"}, "gone", 300.0)  # and cannot come back
    found = judged({"a": stopped, "b": party()}, RUN, NOW, ["a"])
    assert (found["a"]["level"], found["a"]["problems"][0]["kind"]) == ("critical", "papers")


@pytest.mark.parametrize(
    "said",
    [
        {"state": "running", "peers": []},
        {"state": "running", "peers": {"b": 1}},
        {"state": "running", "peers": {}, "expires": {"certificate": "soon"}},
        {"state": "running", "peers": {}, "unacknowledged": {"b": 1}, "alone": 1},
        {"state": "running", "peers": {}, "stalled": {"since": 1e300}},
        *({**WELL, "since": since} for since in ("x", 10**400, 1e300, None)),
        *({**WELL, "time": time} for time in ("x", 10**400)),
        *({**WELL, "version": ["1"]}, {**WELL, "updates": 10**400}, {**WELL, "state": "x" * 10**5}),
        *({**WELL, "planned_releases": {"a": 1}}, {**WELL, "peers": {"b": {"state": 5}}}),
        {**WELL, "peers": {"b": {"state": "up", "seconds": "long"}}},
        {**WELL, "unacknowledged": {"b": {"seconds": 1.0, "why": 5}}},
        *({**WELL, "state": "finished", key: 5} for key in ("unacknowledged", "stalled", "expires", "rounds")),
        {**WELL, "state": "finished", "expires": {"a": "0001-01-01T00:00:00+23:59"}},
        {**WELL, "state": "waiting", "orders": {"pause first": ""}},
    ],
)
def test_a_party_that_says_anything_at_all_is_red_and_the_others_are_shown(
    said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the table, too, and in metrics."""
    assert shown(capsys, a=party(said), b=party()) == {
        "a": ("critical", "not understood"),
        "b": ("ok", "running"),
    }


@pytest.mark.parametrize(
    "said",
    [
        *({"state": "running"}, {"state": "running", "version": "1"}, {**WELL, "updates": -5, "new": [None]}),
        {**WELL, "peers": {"b": {"state": "up", "dropped": 5}}},
        {**WELL, "peers": {f"p{number}": {"state": "silent"} for number in range(500)}},
        {**WELL, "unacknowledged": {"b": {}, "p": {"seconds": 1.0, "why": "x"}}},
    ],
)
def test_what_a_party_says_too_little_or_too_much_of_is_left_out(
    said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, a=party(said), b=party()) == {"a": ("ok", "running"), "b": ("ok", "running")}


def shown(capsys: pytest.CaptureFixture[str], **parties: PeerState) -> dict[str, tuple[str, str]]:
    """Level and state of each, as they are printed, in no more than a screen."""
    found = judged(parties, RUN, NOW)
    assert "gossamer_node_level" in exposition(found)
    _shown(argparse.Namespace(prometheus=None, json=False, watch=False), found)
    printed = capsys.readouterr().out
    assert len(printed) < 2000
    assert all(status["state"] in printed for status in found.values())
    return {name: (status["level"], status["state"]) for name, status in found.items()}


def test_a_certificate_that_cannot_be_read_is_not_said_to_have_expired(tmp_path: Path) -> None:
    """A party's folder may belong to its own user."""
    assert not _expired(tmp_path / "none.crt")
    (tmp_path / "a").write_text("no folder")
    assert not _expired(tmp_path / "a" / "tls.crt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", denied)
        patch.setattr(Path, "stat", denied)
        assert not _expired(tmp_path / "a")


def denied(path: Path, **_: Any) -> None:
    raise PermissionError(13, "Permission denied", str(path))


class Listening:
    """Stands for who watches, with what it has heard."""

    transport, _back, connected = contextlib.nullcontext(), -math.inf, Watch.connected

    def __init__(self, removed: list[str], **parties: PeerState) -> None:
        known = {REMOVE + name: "" for name in removed}
        self.orders = SimpleNamespace(removed=removed, known=known, look=lambda: None)
        self._peers = SimpleNamespace(states=lambda now: parties)
        self._certificates = dict.fromkeys(parties, Path())
        self.folder, self.invitation = Path(), SimpleNamespace(run=RUN, broker="mqtt://localhost:1883")
        self.transport.connected = True  # type: ignore[attr-defined]

    look = all_heard = lambda *_: None
    statuses, waits_for = Watch.statuses, Watch.waits_for
    _send = Watch._send


def test_who_watches_misses_nobody_as_soon_as_its_connection_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """For half a minute somebody else had it, to give an order: parties were last heard before that."""
    clock, parties = [1000.0], {"a": party(WELL, "silent", 46.0), "b": party(late("a"))}
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr("gossamer.deployment.overview.watch.slowness", lambda broker: 1.0)
    watch = Listening([], **parties)
    watch._peers.wake = lambda now: []
    watch.transport.receive = lambda seconds: clock.__setitem__(0, clock[0] + seconds)  # type: ignore[attr-defined]
    for connected, seconds, level in ((False, 30.0, "warning"), (True, 5.0, "warning"), (True, 15.0, "critical")):
        watch.transport.connected = connected  # type: ignore[attr-defined]
        Watch.look(watch, seconds)  # type: ignore[arg-type]
        assert watch.statuses()["a"]["level"] == level, (connected, seconds)  # type: ignore[call-arg]


READY: Said = {**WELL, "state": "waiting", "rehearsal": {"peers": "", "disk": "", "memory": ""}}


@pytest.mark.parametrize(
    ("said", "lacks"),
    [
        (READY, []),
        ({**READY, "state": "stopped"}, ["does not rehearse: it has stopped; start it with --rehearse"]),
        (
            {**READY, "state": "failed", "why": "the disk is full"},
            ["does not rehearse: it has failed: the disk is full"],
        ),
        (
            {**READY, "state": "finished", "finished": "stopped by the organiser"},
            ["does not rehearse: it has finished: stopped by the organiser"],
        ),
    ],
)
def test_who_has_ended_since_is_not_ready(
    said: Said, lacks: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = {"time": time.time(), "since": time.time()}
    heard = Listening(["c"], a=party(READY | now), b=party(said | now), c=party(None, "never heard", 60.0))
    monkeypatch.setattr(overview, "Watch", lambda *_: heard)
    code = overview.rehearse_command(argparse.Namespace(dir=Path(), run=None, wait=0.0, json=True))
    ready = {"ready": not lacks, "lacks": lacks}
    assert json.loads(capsys.readouterr().out) == {"a": {"ready": True, "lacks": []}, "b": ready}
    assert code == bool(lacks)


def test_who_may_come_back_has_to_know_of_a_removal_and_who_was_removed_is_not_waited_for() -> None:
    knows = {**WELL, "orders": {f"{REMOVE}c": ""}}
    ended = {name: party({**WELL, "state": name}) for name in ("stopped", "failed", "finished")}
    heard: Any = Listening(["c"], a=party(knows), c=party({**WELL, "state": "stopped"}), **ended)
    assert heard.waits_for(f"{REMOVE}c") == ["stopped", "failed"]
    assert heard.waits_for(STOP) == ["a"]


def test_a_party_that_was_removed_before_is_not_asked_to_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    over = party({**WELL, "state": "finished", "finished": "stopped by the organiser"})
    heard = Listening(["c"], a=over, c=party(None, "never heard", 60.0))
    monkeypatch.setattr(overview, "Watch", lambda *_: heard)
    monkeypatch.setattr(overview, "give_order", lambda folder, what, *_: what)
    assert overview.stop_command(argparse.Namespace(dir=Path(), run=None, organiser=None, wait=0.0, json=False)) == 0
    assert "did not end" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("orders", "later"),
    [
        ({"resume 8": ""}, "resume 8"),
        ({"resume 2": "", "pause 1": ""}, "resume 2"),
        ({"pause 1": ""}, ""),
        ({"resume \u0669": "", "resume x": "", "pause 9999999999": "", "stop": ""}, ""),
    ],
)
def test_an_organiser_hears_that_another_copy_of_the_folder_gave_a_newer_order(
    orders: dict[str, str], later: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = Listening([], a=party({**WELL, "orders": orders}))
    monkeypatch.setattr(overview, "Watch", lambda *_: heard)
    monkeypatch.setattr(overview, "give_order", lambda folder, what, *_: f"{what} 2")
    options = argparse.Namespace(dir=Path("stays"), run=None, organiser=None, wait=0.0, json=True)
    assert overview.pause_command(options) == 1
    said = capsys.readouterr().err
    assert "a did not say that they know it" in said
    assert "Others tell whom they reach, and so does `gossamer federation status stays --watch`." in said
    told = f"a goes by {later}, of another copy of stays: use that, or repeat this up to its number."
    assert (told in said) == ("another copy" in said) == bool(later)


def test_an_order_to_a_run_that_is_over_says_so_once_and_that_nobody_tells_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        overview, "Watch", lambda *_: Listening([], **dict.fromkeys("abc", party(None, "never heard", 60)))
    )
    monkeypatch.setattr(overview, "give_order", lambda folder, what, *_: f"{what} 1")
    options = argparse.Namespace(dir=Path("stays"), run=None, organiser=None, wait=0.0, json=False)
    assert overview.pause_command(options) == 1
    said = capsys.readouterr()
    (line,) = [line for line in said.out.splitlines() if line.startswith(("WARNING", "CRITICAL"))]
    assert line.startswith("WARNING: each of a, b, c not heard, and nobody is: the run has not begun, is over, or all")
    assert said.err.endswith(
        "Unless it is over, who comes back is told by `gossamer federation status stays --watch`.\n"
    )


def test_who_watches_sees_what_another_command_has_ordered_since(tmp_path: Path) -> None:
    """Of itself it would blame a party that was removed for its silence."""
    parties = dict.fromkeys("abc", 200)
    found(tmp_path / "f", spec=SPEC, parties=parties, broker="mqtts://broker.example.org:8883")
    watch = Watch(tmp_path / "f", print)
    states = [watch.statuses()["c"]["state"]]
    give_order(tmp_path / "f", f"{REMOVE}c")
    states.append(watch.statuses()["c"]["state"])
    assert states == ["not heard", "removed"]


@pytest.mark.parametrize("chosen", [{"watch": True, "live": None}, {"watch": False, "live": 0}])
def test_who_goes_on_watching_leaves_the_broker_to_orders_and_says_so(
    chosen: Said, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard, given = Listening([], a=party(WELL)), []
    monkeypatch.setattr(heard, "look", Mock(side_effect=[None, KeyboardInterrupt]))
    monkeypatch.setattr(heard.transport, "connected", False)
    monkeypatch.setattr(overview, "Watch", lambda *_, **how: given.append(how) or heard)
    with pytest.raises(KeyboardInterrupt):
        overview.status_command(argparse.Namespace(dir=Path(), run=None, wait=0, json=True, prometheus=None, **chosen))
    assert given == [{"rejoin": 30}]
    assert "no connection to the broker" in capsys.readouterr().err
