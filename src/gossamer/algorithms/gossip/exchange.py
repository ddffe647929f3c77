"""Offers and answers that gossip nodes exchange, and promises that a node remembers until they are settled.

The arithmetic of shares is in `promises`; whom to ask, and when, is for `gossip`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from gossamer.algorithms.gossip.promises import (
    HALF,
    LEAST_FREE,
    PATIENCE,
    WHOLE,
    Promise,
    answered,
    asked,
    free_model,
    free_share,
    model_share,
    share_to_move,
    share_to_promise,
    without,
)
from gossamer.algorithms.optimizer import Memory
from gossamer.errors import PeerError
from gossamer.protocol.messages import Message, check_model, message
from gossamer.vectors import Model, Public, Released


@message("gossip.offer_share")
@dataclass(frozen=True)
class Offer(Message):
    """The asker's free model, as it is now, and the share that it promises of `promises.WHOLE`; at most a half."""

    exchange: int
    model: Public | Released
    share: int = HALF


@message("gossip.answer_share")
@dataclass(frozen=True)
class Answer(Message):
    """The free model of the node that was asked, just before it moved, and the share that it moved."""

    exchange: int
    model: Public | Released
    share: int = HALF


@dataclass
class State:
    """State of a gossip node.

    ``log_clip`` is the logarithm of the clip. ``open`` holds what was promised to whom and not yet answered. A peer in
    it that is also in ``away`` may or may not have moved its share: that exchange is in doubt until the peer is heard
    again. ``asked`` counts the offers that came while an exchange was open, since the last of these began, and
    ``busy`` all of them. ``memory`` is the optimizer's, and is exchanged with nobody. ``counted`` are the updates of
    all nodes, where the learning rate goes by them.
    """

    w: Model
    log_clip: Model
    updates: int = 0
    task: int = 0
    exchanges: int = 0
    open: dict[str, Promise] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    asked: int = 0
    busy: int = 0
    ends: float | None = None
    finished: str = ""
    memory: Memory | None = None
    counted: int | None = None

    @property
    def promises(self) -> tuple[Promise, ...]:
        """Promises that are open, oldest first."""
        return tuple(self.open.values())

    @property
    def may_promise(self) -> bool:
        """Whether so much is free that some of it can be promised."""
        free = free_share(self.open.values())
        return free >= LEAST_FREE and share_to_promise(free, self.asked) > 0

    def offer(self, peer: str) -> Offer:
        """Promise ``peer`` a share of what is free."""
        promises = self.promises
        share = share_to_promise(free_share(promises), self.asked)
        self.exchanges += 1
        self.asked = 0
        offered = free_model(self.w, promises)
        self.open[peer] = Promise(self.exchanges, share, offered, offered)
        return Offer(self.exchanges, offered, share)

    def answer(self, sender: str, offer: Offer) -> Answer:
        """Move towards what ``sender`` offers, and say from where, and how far.

        Raises
        ------
        PeerError
            If this is no such share, or no such model.
        """
        if not 1 <= offer.share <= HALF:
            raise PeerError(f"{sender} promises {offer.share}, expected a share from 1 to {HALF}")
        check_model(offer.model, self.w)
        if self.open:
            self.asked, self.busy = self.asked + 1, self.busy + 1
            self.set_apart()
        promises = self.promises
        model, share = free_model(self.w, promises), share_to_move(offer.share, free_share(promises))
        self.w = asked(self.w, promises, model, offer.model, share)
        return Answer(offer.exchange, model, share)

    def settle(self, sender: str, answer: Answer) -> None:
        """Move the share of a promise that ``sender`` has moved.

        Raises
        ------
        PeerError
            If there is no such promise, or the answer does not fit it.
        """
        promise = self.open.get(sender)
        if promise is None or promise.exchange != answer.exchange:
            raise PeerError(f"{sender} answers exchange {answer.exchange}, which is not open")
        if not 1 <= answer.share <= promise.share:
            raise PeerError(f"{sender} moves {answer.share}, expected a share from 1 to {promise.share}")
        check_model(answer.model, self.w)
        self.w = answered(self.w, self.promises, promise, answer.model, answer.share)
        del self.open[sender]
        self.set_apart()

    def set_apart(self) -> None:
        """Let what has been in doubt for too long be no part of the model any more."""
        for peer, promise in tuple(self.open.items()):
            if promise.doubted >= PATIENCE and not promise.apart:
                self.w = without(self.w, self.promises, promise)
                self.open[peer] = replace(promise, apart=True)

    def update(self, step: Model) -> None:
        """Apply an update of the node's own, which promises outlive."""
        self.w = (self.w + step).within()
        if self.open:
            self.open = {peer: promise.updated(step) for peer, promise in self.open.items()}
        self.updates += 1

    def held(self) -> Any:
        """The model and what is set apart of it, weighed, in double precision [size]."""
        promises = self.promises
        total = _weighed(self.w, model_share(promises))
        for promise in promises:
            if promise.apart:
                total = total + _weighed(promise.kept, promise.share)
        return total

    def coming(self, sender: str, answer: Answer) -> Any:
        """Return what ``answer``, on its way from ``sender``, will add to that; 0 if it fits no promise."""
        promise = self.open.get(sender)
        if promise is None or promise.exchange != answer.exchange:
            return 0.0
        return _weighed(answer.model, answer.share) - _weighed(promise.offered, answer.share)


def _weighed(model: Model, share: int) -> Any:
    return model.values.astype("float64") * (share / WHOLE)
