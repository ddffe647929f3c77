"""A node: a state machine with no I/O, no clock, no thread and no noise of its own.

A subclass keeps all that changes in ``self.state``, a dataclass of scalars, labelled vectors, and dicts, lists or
sets of these, and says with `on` which handler answers which event or message. A handler returns its effects in
order, in a list that is no part of the state, or as a generator. If it raises, the state is what it was before and none
of its effects exist.

    @on(Offer)
    def answer(self, sender: str, offer: Offer, now: float) -> Effects:
        yield Send(sender, Answer(offer.exchange, self.state.model))
        self.state.model = self.state.model + (offer.model - self.state.model) / 2

Vectors are never changed in place, and what sits inside a dict, list or set is immutable: a container is replaced
or gets another entry, but an entry is never altered. That is what makes keeping the old state cheap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeVar

from gossamer.errors import MalformedMessage, PeerError
from gossamer.protocol.effects import Effect
from gossamer.protocol.events import Event, Received
from gossamer.protocol.messages import Message
from gossamer.protocol.snapshots import Kept

Effects = Iterable[Effect]
Handler = TypeVar("Handler", bound=Callable[..., Effects])
_CONTAINERS = (dict, list, set)
_PLAIN = frozenset(("int", "float", "str", "bool", "None", "Model", "Public", "Released", "Masked", "Confined"))


def on(*what: type[Event] | type[Message], by: str = "") -> Callable[[Handler], Handler]:
    """Method decorator: the handler of these events, or of the arrival of these messages.

    An event's handler takes ``(self, event, now)``, a message's ``(self, sender, message, now)``; ``now`` is in
    seconds on the node's clock. ``by`` names an attribute of the node, with the name of whoever may send these
    messages, or the names: what others send is refused before the handler sees it.
    """

    def mark(handler: Handler) -> Handler:
        handler._handles = dict.fromkeys(what, by)  # type: ignore[attr-defined]
        return handler

    return mark


def _sent_by(by: str, handler: Callable[..., Effects]) -> Callable[..., Effects]:
    """The handler, if need be for messages alone of those whom an attribute of the node names."""
    if not by:
        return handler

    def handle(node: Node, sender: str, message: Message, now: float) -> Effects:
        senders = getattr(node, by)
        if sender not in ((senders,) if isinstance(senders, str) else senders):
            raise PeerError(f"{sender} may send {node.name} no {type(message).__name__}")
        return handler(node, sender, message, now)

    return handle


class RoundsMade(NamedTuple):
    """Rounds of a node whose plan has so many of them.

    Attributes
    ----------
    made : int
        Number of rounds that changed its model.
    empty : int
        Number of rounds that came to nothing: nobody answered, or too few for a sum.
    planned : int
        Number of rounds in all.
    """

    made: int
    empty: int
    planned: int


class Node(Kept):
    """Base of all nodes.

    Attributes
    ----------
    name : str
        Unique in the run.
    state : dataclass
        All that changes, and all that a snapshot has to hold.
    """

    changing = ("_kept_state",)
    _handlers: ClassVar[dict[type, Callable[..., Effects]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own: dict[type, str] = {}
        for name, value in vars(cls).items():
            for what in getattr(value, "_handles", ()):
                if what in own:
                    raise TypeError(f"{cls.__name__} handles {what.__name__} twice: {own[what]}, {name}")
                own[what] = name
        # A node may be made of several parts.
        parts = (vars(part).items() for part in reversed(cls.__mro__))
        marks = ((name, getattr(value, "_handles", {}).items()) for part in parts for name, value in part)
        found = {what: (name, by) for name, handled in marks for what, by in handled}
        cls._handlers = {what: _sent_by(by, getattr(cls, name)) for what, (name, by) in found.items()}

    def __init__(self, name: str, state: Any) -> None:
        self.name = name
        self.state = state

    @property
    def _kept_state(self) -> dict[str, Any]:
        return state_of(self)

    @_kept_state.setter
    def _kept_state(self, values: dict[str, Any]) -> None:
        restore_state(self, values)

    @property
    def awaited(self) -> Set[str]:
        """Names of the peers without whose word this node does not go on; empty while it waits for none of them."""
        return frozenset()

    @property
    def rounds_made(self) -> RoundsMade | None:
        """Rounds so far, of a node whose plan has a number of them."""
        return None

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event and return what is to be done about it.

        Parameters
        ----------
        event : Event
            Events of no interest to this node change nothing.
        now : float
            Seconds on the node's clock; never goes back.

        Raises
        ------
        PeerError
            If a peer broke the protocol. The state has not changed.
        """
        what: Any = event.message if type(event) is Received else event
        handler = self._handlers.get(type(what))
        if handler is None:
            if what is not event:
                raise PeerError(f"{self.name} expects no {type(what).__name__}")
            return []
        before = self.kept()
        try:
            effects = handler(self, event.sender, what, now) if type(event) is Received else handler(self, event, now)
            return effects if type(effects) is list else list(effects)
        except BaseException:
            for name, value in before.items():
                setattr(self.state, name, value)
            raise

    def kept(self) -> dict[str, Any]:
        """Return the fields of the state, with containers copied one level deep."""
        kind: type = type(self.state)
        kept: dict[str, Any] = self.state.__dict__.copy()
        for name in _holding(kind):
            if isinstance(value := kept[name], _CONTAINERS):
                kept[name] = value.copy()
        return kept


@cache
def _holding(kind: type) -> tuple[str, ...]:
    """Fields of a state of this ``kind`` whose annotation names anything that may be, or hold, a container."""
    return tuple(item.name for item in fields(kind) if not _PLAIN.issuperset(re.findall(r"\w+", str(item.type))))


def state_of(node: Node) -> dict[str, Any]:
    """A node's state as plain data, for `encoding` and comparison; sets become sorted tuples."""
    values = ((item.name, getattr(node.state, item.name)) for item in fields(node.state))
    return {name: tuple(sorted(value)) if type(value) is set else value for name, value in values}


def restore_state(node: Node, values: dict[str, Any]) -> None:
    """Give a fresh node the state that `state_of` took.

    Raises
    ------
    MalformedMessage
        If a field is missing.
    """
    for item in fields(node.state):
        if item.name not in values:
            raise MalformedMessage(f"expected {item.name} in the state of {node.name}, found none")
        value, fresh = values[item.name], getattr(node.state, item.name)
        setattr(node.state, item.name, set(value) if isinstance(fresh, set) else value)
