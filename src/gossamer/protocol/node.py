"""A node: a state machine with no I/O, no clock, no thread and no noise of its own.

A subclass keeps all that changes in ``self.state``, a dataclass of scalars, labelled vectors, and dicts, lists or
sets of these, and says with `on` which handler answers which event or message. A handler is a generator: it
yields its effects in order. If it raises, the state is what it was before and none of its effects exist.

    @on(Offer)
    def answer(self, sender: str, offer: Offer, now: float) -> Effects:
        yield Send(sender, Answer(offer.exchange, self.state.model))
        self.state.model = self.state.model + (offer.model - self.state.model) / 2

Vectors are never changed in place, and what sits inside a dict, list or set is immutable: a container is replaced
or gets another entry, but an entry is never altered. That is what makes keeping the old state cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, ClassVar, TypeVar

from gossamer.errors import PeerError
from gossamer.protocol.effects import Effect
from gossamer.protocol.events import Event, Received
from gossamer.protocol.messages import Message

Effects = Iterator[Effect]
Handler = TypeVar("Handler", bound=Callable[..., Effects])
_CONTAINERS = (dict, list, set)


def on(*what: type[Event] | type[Message]) -> Callable[[Handler], Handler]:
    """Method decorator: the handler of these events, or of the arrival of these messages.

    An event's handler takes ``(self, event, now)``, a message's ``(self, sender, message, now)``; ``now`` is in
    seconds on the node's clock.
    """

    def mark(handler: Handler) -> Handler:
        handler._handles = what  # type: ignore[attr-defined]
        return handler

    return mark


class Node:
    """Base of all nodes.

    Attributes
    ----------
    name : str
        Unique in the run.
    state : dataclass
        All that changes, and all that a snapshot has to hold.
    """

    _handlers: ClassVar[dict[type, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {what: name for name, value in vars(cls).items() for what in getattr(value, "_handles", ())}
        cls._handlers = {**cls._handlers, **own}

    def __init__(self, name: str, state: Any) -> None:
        self.name = name
        self.state = state

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
        received = isinstance(event, Received)
        handler = self._handlers.get(type(event.message) if received else type(event))  # type: ignore[attr-defined]
        if handler is None:
            if received:
                raise PeerError(f"{self.name} expects no {type(event.message).__name__}")  # type: ignore[attr-defined]
            return []
        before = _keep(self.state)
        try:
            if received:
                return list(getattr(self, handler)(event.sender, event.message, now))  # type: ignore[attr-defined]
            return list(getattr(self, handler)(event, now))
        except BaseException:
            for name, value in before:
                setattr(self.state, name, value)
            raise


def _keep(state: Any) -> list[tuple[str, Any]]:
    """The fields of ``state``, with containers copied one level deep."""
    kept = []
    for name in type(state).__dataclass_fields__:
        value = getattr(state, name)
        kept.append((name, value.copy() if type(value) in _CONTAINERS else value))
    return kept


def state_of(node: Node) -> dict[str, Any]:
    """A node's state as plain data, for `encoding` and comparison; sets become sorted tuples."""
    values = ((field.name, getattr(node.state, field.name)) for field in fields(node.state))
    return {name: tuple(sorted(value)) if type(value) is set else value for name, value in values}
