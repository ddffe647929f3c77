"""A node changes completely or not at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

from gossamer.errors import PeerError
from gossamer.protocol.effects import Effect, Finish, Record, Send
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import Elapsed, Event, PeerDown, PeerUp, Received, Started, Stop
from gossamer.protocol.messages import Message, check_model, message
from gossamer.protocol.node import Effects, Node, on, state_of
from gossamer.vectors import Public, Released


@message("test.node.offer")
@dataclass(frozen=True)
class Offer(Message):
    number: int
    model: Released


@message("test.node.unexpected")
@dataclass(frozen=True)
class Unexpected(Message):
    number: int


def offer(number: int = 1, *values: float) -> Offer:
    return Offer(number, Released(np.array(values or (1.0, 2.0), np.float32)))


@dataclass
class State:
    limit: ClassVar[int] = 3
    model: Public | Released
    count: int = 0
    last: str | None = None
    open: dict[str, int] = field(default_factory=lambda: {"a": 1})
    order: list[int] = field(default_factory=lambda: [1, 2])
    heard: set[str] = field(default_factory=lambda: {"x"})
    tally: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int, {"t": 1}))


class Counter(Node):
    """Changes everything it has on each offer, then fails if the model is not like its own."""

    state: State

    @on(Started, PeerUp)
    def start(self, event: Event, now: float) -> Effects:
        self.state.last = type(event).__name__
        yield Record("started", now)

    @on(Offer)
    def take(self, sender: str, incoming: Offer, now: float) -> Effects:
        yield Record("offers", float(self.state.count))
        state = self.state
        state.count += 1
        state.last = sender
        state.open[sender] = incoming.number
        del state.open["a"]
        state.order.append(incoming.number)
        state.order[0] = -1
        state.heard.add(sender)
        state.heard.discard("x")
        state.tally[sender] += 1
        yield Send(sender, incoming)
        check_model(incoming.model, state.model)
        state.model = (state.model + incoming.model) / 2
        yield Finish("done")

    @on(Elapsed)
    def explode(self, event: Elapsed, now: float) -> Effects:
        self.state = State(Public(np.ones(1)), 99)
        self.state.order.clear()
        raise {"interrupt": KeyboardInterrupt, "error": ZeroDivisionError}[event.timer]
        yield


def counter() -> Counter:
    return Counter("counter", State(Public(np.zeros(2, np.float32))))


def test_handler_yields_effects_in_order() -> None:
    node = counter()
    first: list[Effect] = [Record("offers", 0.0), Send("b", offer()), Finish("done")]
    assert node.handle(Received("b", offer()), 1.0) == first
    expected = State(
        Released(np.array([0.5, 1.0], np.float32)),
        1,
        "b",
        {"b": 1},
        [-1, 2, 1],
        {"b"},
        defaultdict(int, {"t": 1, "b": 1}),
    )
    assert node.state == expected


class Choosy(Counter):
    """Takes offers of some alone; who they are may be a name, too."""

    friends: tuple[str, ...] | str = ("b", "c")

    @on(Offer, by="friends")
    def take(self, sender: str, incoming: Offer, now: float) -> Effects:
        yield from super().take(sender, incoming, now)


class Likewise(Choosy):
    """A handler that stands in for another one hears of the same senders."""

    def take(self, sender: str, incoming: Offer, now: float) -> Effects:
        yield from super().take(sender, incoming, now)


@pytest.mark.parametrize("kind", [Choosy, Likewise])
def test_others_than_those_named_are_not_heard(kind: type[Choosy]) -> None:
    node = kind("choosy", counter().state)
    before = deepcopy(node.state)
    for stranger in ("d", "", "bc"):
        with pytest.raises(PeerError, match=f"^{stranger} may send choosy no Offer$"):
            node.handle(Received(stranger, offer()), 1.0)
    assert node.state == before
    assert node.handle(Received("b", offer()), 1.0)
    node.friends = "bc"
    with pytest.raises(PeerError, match="may send"):
        node.handle(Received("b", offer()), 1.0)
    assert node.handle(Started(), 2.0) == [Record("started", 2.0)]


def test_one_handler_may_answer_several_events() -> None:
    node = counter()
    assert node.handle(Started(), 2.0) == [Record("started", 2.0)]
    assert node.state.last == "Started"
    node.handle(PeerUp("b"), 3.0)
    assert node.state.last == "PeerUp"


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (Received("b", offer(1, 1.0)), PeerError),  # of another size: refused after everything has changed
        (Received("b", offer(1, 1.0, np.nan)), PeerError),
        (Received("b", Unexpected(1)), PeerError),
        (Elapsed("error"), ZeroDivisionError),
        (Elapsed("interrupt"), KeyboardInterrupt),
    ],
)
def test_state_is_untouched_when_a_handler_raises(event: Event, error: type[BaseException]) -> None:
    node, twin = counter(), counter()
    before = deepcopy(node.state)
    effects: list[Effect] = []
    with pytest.raises(error):
        effects = node.handle(event, 1.0)
    assert effects == []
    assert node.state == before
    # and the node goes on as if nothing had been
    assert node.handle(Received("b", offer()), 2.0) == twin.handle(Received("b", offer()), 2.0)
    assert node.state == twin.state


@dataclass
class Odd:
    """A state whose fields are of types that say little, or nothing that can be found out when it runs."""

    count: int = 0
    maybe: dict[str, int] | None = None
    anything: Any = field(default_factory=list)
    mapping: Mapping[str, int] = field(default_factory=dict)
    text: str | None = None


@dataclass
class Unresolved(Odd):
    unknown: Nowhere = field(default_factory=set)  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("kind", [Odd, Unresolved])
def test_containers_of_any_declared_type_are_put_back(kind: type) -> None:
    class Raising(Node):
        @on(Started)
        def start(self, event: Started, now: float) -> Effects:
            for value in (self.state.maybe, self.state.mapping):
                value["a"] = 2
            self.state.anything.append(1)
            getattr(self.state, "unknown", set()).add(3)
            self.state.count, self.state.text = 1, "b"
            raise ZeroDivisionError
            yield

    node = Raising("odd", kind(maybe={"a": 1}))
    with pytest.raises(ZeroDivisionError):
        node.handle(Started(), 0.0)
    assert node.state == kind(maybe={"a": 1})


def test_unknown_message_is_the_peers_fault() -> None:
    with pytest.raises(PeerError, match="counter expects no Unexpected"):
        counter().handle(Received("b", Unexpected(1)), 0.0)


def test_events_of_no_interest_change_nothing() -> None:
    node, before = counter(), counter().state
    for event in (PeerDown("b", "gone"), Stop("enough")):
        assert node.handle(event, 0.0) == []
    assert node.state == before


def test_handlers_are_inherited_and_overridden() -> None:
    class Quiet(Counter):
        @on(Stop)
        def stop(self, event: Stop, now: float) -> Effects:
            yield Finish(event.reason)

        def start(self, event: Event, now: float) -> Effects:
            return iter(())

    node = Quiet("quiet", counter().state)
    assert node.handle(Stop("enough"), 0.0) == [Finish("enough")]
    assert node.handle(Started(), 0.0) == []
    assert node.handle(Received("b", offer()), 1.0)[-1] == Finish("done")
    assert counter().handle(Stop("enough"), 0.0) == []


def test_two_handlers_of_one_event_are_refused_at_definition() -> None:
    with pytest.raises(TypeError, match=r"Torn handles Stop twice: first, second"):

        class Torn(Node):
            @on(Stop)
            def first(self, event: Stop, now: float) -> Effects:
                yield Finish("first")

            @on(Started, Stop)
            def second(self, event: Event, now: float) -> Effects:
                yield Finish("second")


def test_state_of_is_plain_data() -> None:
    @dataclass
    class Simple:
        model: Public
        heard: set[str] = field(default_factory=lambda: {"b", "a", "c"})
        open: dict[str, int] = field(default_factory=lambda: {"z": 1})

    plain = state_of(Node("n", Simple(Public(np.ones(2)))))
    assert plain == {"model": Public(np.ones(2)), "heard": ("a", "b", "c"), "open": {"z": 1}}
    assert decode(encode(plain)) == plain


def test_same_events_same_effects() -> None:
    events: list[Callable[[], Event]] = [Started, lambda: Received("b", offer(3)), lambda: Stop("enough")]

    def run() -> tuple[list[Any], State]:
        node = counter()
        return [node.handle(make(), float(i)) for i, make in enumerate(events)], node.state

    assert run() == run()
