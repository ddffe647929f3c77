"""Orders of a run's organiser: who may give them, what keeps them, and whom they count for."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.linked_peers import RUN, Linked, identity

from gossamer.deployment.peers.peers import NO_ORDER, decode_content, encode_content
from gossamer.deployment.peers.peers import REMOVED as DROPPED
from gossamer.deployment.peers.standing import QUARANTINE_AFTER
from gossamer.errors import CallerError, MalformedMessage
from gossamer.keys.orders import PAUSE, PAUSED, REMOVE, REMOVED, STOP, STOPPED, Order, Orders
from gossamer.protocol.messages import Acknowledge

FRAME = Acknowledge(5, 6)
ORGANISER, OTHER = identity("organiser"), identity("other")


def orders(folder: Path, name: str, **options: Any) -> Orders:
    return Orders(folder / name, RUN, ORGANISER.public_key, name, **options)


def test_an_order_is_kept_and_changes_nothing_when_it_comes_again(tmp_path: Path) -> None:
    lines: list[str] = []
    first, order = orders(tmp_path, "a", say=lines.append), Order.signed(ORGANISER, RUN, STOP)
    assert [first.take(order), first.take(order), first.take(Order.signed(ORGANISER, RUN, STOP))] == ["", "", ""]
    assert len(lines) == 1
    assert orders(tmp_path, "a").known == {STOP: order}


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (Order.signed(OTHER, RUN, STOP), "not signed"),
        (Order.signed(ORGANISER, "f" * 32, STOP), "another run"),
        (Order(Order.signed(ORGANISER, "f" * 32, STOP).text.replace("f" * 32, RUN), bytes(64)), "not signed"),
    ],
)
def test_what_is_forged_or_of_another_federation_is_not_kept(tmp_path: Path, order: Order, why: str) -> None:
    held = orders(tmp_path, "a")
    assert why in held.take(order)
    assert held.known == {}
    assert not (tmp_path / "a").exists()


def test_orders_of_another_run_that_had_the_folder_before_are_none(tmp_path: Path) -> None:
    """They would end this one, and be an offence wherever this node told them."""
    other = "f" * 32
    before = Orders(tmp_path / "a", other, ORGANISER.public_key, "a", may_stop=True)
    before.take(Order.signed(ORGANISER, other, STOP))
    held = orders(tmp_path, "a", may_stop=True)
    assert (held.known, held.ends(begun=False)) == ({}, "")
    held.take(Order.signed(ORGANISER, RUN, f"{REMOVE}c"))
    assert orders(tmp_path, "a").removed == ["c"]


@pytest.mark.parametrize("told", list(permutations(["pause 1", "resume 2", "pause 3", "resume 3", STOP])))
def test_of_pauses_and_their_ends_the_newest_is_true_in_whatever_order_they_come(
    tmp_path: Path, told: tuple[str, ...]
) -> None:
    held = orders(tmp_path, "a")
    for what in (*told, *told):
        assert held.take(Order.signed(ORGANISER, RUN, what)) == ""
        assert held.pauses() == (PAUSED if held.newest[1] == PAUSE else "")
    assert (held.newest, held.pauses()) == ((3, "resume"), "")
    assert {STOP, "resume 3"} <= held.known.keys() <= {STOP, "pause 3", "resume 3"}
    assert orders(tmp_path, "a").newest == (3, "resume")


@pytest.mark.parametrize(("may_stop", "why"), [(None, PAUSED), (False, ""), (True, PAUSED)])
def test_whom_a_pause_has_wait(tmp_path: Path, may_stop: bool | None, why: str) -> None:
    """Who may be ended may be paused; a server, which has no owner's policy, waits with those whom it serves."""
    held = orders(tmp_path, "a", may_stop=may_stop)
    held.take(Order.signed(ORGANISER, RUN, "pause 7"))
    assert held.pauses() == why
    assert held.ends() == held.ends(begun=False) == ""
    held.take(Order.signed(ORGANISER, RUN, "resume 7"))
    assert held.pauses() == ""


@pytest.mark.parametrize(
    ("may_stop", "begun", "before"), [(None, "", STOPPED), (False, "", ""), (True, STOPPED, STOPPED)]
)
def test_whom_a_stop_ends(tmp_path: Path, may_stop: bool | None, begun: str, before: str) -> None:
    """Whose policy allows it; and who has no data, before it has begun: later it ends with those whom it serves."""
    held = orders(tmp_path, "a", may_stop=may_stop)
    assert (held.ends(), held.ends(begun=False)) == ("", "")
    held.take(Order.signed(ORGANISER, RUN, STOP))
    assert (held.ends(), held.ends(begun=False)) == (begun, before)
    assert bool(held.said[STOP]) == (may_stop is False)


@pytest.mark.parametrize("content", [b"", b"nothing of the kind", encode_content(Order.signed(ORGANISER, RUN, STOP))])
def test_a_damaged_file_is_refused_in_a_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(CallerError, match="expected the organiser's orders, found something else; delete the file"):
        orders(tmp_path, "a")


def test_peers_pass_it_on_and_count_what_the_organiser_has_not_signed(tmp_path: Path) -> None:
    trio = Linked("a", "b", "c")
    held = {name: orders(tmp_path, name) for name in "abc"}
    for name in "abc":
        trio.start(name, orders=held[name], contacts=[other for other in "abc" if other != name])
    trio.away = {"c"}
    held["a"].take(Order.signed(ORGANISER, RUN, STOP))
    trio.wait(60.0)
    assert [STOP in held[name].known for name in "abc"] == [True, True, False]
    trio.away = {"a"}  # c is back once a has left, and hears it of b
    trio.wait(60.0)
    assert STOP in held["c"].known
    assert trio.dropped("b", at="c") == {}

    channel = trio.peers["b"]._peers["c"].channel
    assert channel is not None
    for _ in range(QUARANTINE_AFTER):  # as only b itself can have made it
        trio.carry("b", [("c", one) for one in channel.seal(encode_content(Order.signed(OTHER, RUN, STOP)))])
    assert trio.dropped("b", at="c")[NO_ORDER] == QUARANTINE_AFTER
    assert trio.state("b", at="c").startswith("quarantined")


def test_a_party_that_was_removed_is_heard_no_more_and_told_so(tmp_path: Path) -> None:
    """Also where it has heard of nothing, since it was off when the others were told; then it ends."""
    trio = Linked("a", "b", "c")
    held = {name: orders(tmp_path, name, may_stop=False) for name in "abc"}
    for name in "abc":
        trio.start(name, orders=held[name], contacts=[other for other in "abc" if other != name])
    trio.wait(60.0)
    trio.send("c", "a", FRAME)
    assert trio.arrived["a"] == [("c", FRAME)]
    trio.away = {"c"}
    held["a"].take(Order.signed(ORGANISER, RUN, f"{REMOVE}c"))
    trio.wait(60.0)
    assert [one.removes("c") for one in held.values()] == [True, True, False]
    before = len(trio.carried)
    trio.send("a", "c", FRAME)
    assert len(trio.carried) == before
    assert trio.state("c", at="a") == trio.state("c", at="b") == "removed"

    trio.start("c", orders=held["c"], contacts=["a", "b"])  # a process that knows no session of before
    trio.away = set()
    trio.wait(1.0)
    assert held["c"].ends() == REMOVED
    for _ in range(3):
        trio.wait(20.0)
        trio.send("c", "a", FRAME), trio.send("c", "b", FRAME)
    assert trio.arrived["a"] == [("c", FRAME)]
    assert trio.arrived["b"] == []
    assert trio.dropped("c", at="a")[DROPPED] > 3
    said = [line for line in trio.lines["a"] if "c, removed: the organiser has removed it" in line]
    assert 1 <= len(said) <= 3  # at growing intervals
    assert trio.state("b", at="a") == "up"
    assert held["a"].ends() == held["b"].ends() == ""


def test_who_watches_goes_on_hearing_a_party_that_was_removed(tmp_path: Path) -> None:
    held = Orders(tmp_path / "w", RUN, ORGANISER.public_key)
    held.take(Order.signed(ORGANISER, RUN, f"{REMOVE}c"))
    assert held.removed == ["c"]
    assert not held.removes("c")
    assert held.ends() == ""


@pytest.mark.parametrize(
    "what", ["remove 2026", "pause 2026", "pause 0 2026", "resume 1234567890 2026", "remove a/b 2026", "", None]
)
def test_what_is_no_order_is_malformed(what: str | None) -> None:
    text = STOP if what is None else f"{RUN} {what}".strip()
    order = Order.signed(ORGANISER, RUN, STOP)
    written = order.text.encode()
    head, _, tail = encode_content(order).partition(len(written).to_bytes(4, "little") + written)
    with pytest.raises(MalformedMessage):
        decode_content(head + len(text.encode()).to_bytes(4, "little") + text.encode() + tail, 100)


def test_it_has_golden_bytes() -> None:
    order = Order(f"{RUN} stop 2026-03-01T12:00:00+00:00", bytes(range(64)))
    written = encode_content(order)
    assert decode_content(written, 100) == (order, None)
    text = order.text.encode()
    head = b"\x01GSM\x02o\x0apeer.order\x02\x00\x00\x00s" + len(text).to_bytes(4, "little")
    assert written == head + text + b"b" + (64).to_bytes(4, "little") + bytes(range(64))
