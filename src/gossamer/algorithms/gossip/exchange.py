"""Offers and answers that gossip nodes exchange, and promises that a node remembers until they are settled.

Whom to ask, and when, is for `gossip`.

A node has the weight `WHOLE`. To ask is to promise a share of it, at the model of that moment; the rest is free, and is
what the node exchanges when it is asked before its answer comes. Nothing that was promised is exchanged twice, and so
no model ever has a negative share in another:

    model = free share of the free model + the shares that are promised, each at the model that was offered

A promise to a peer that has fallen silent is set apart after `PATIENCE` updates: the model is then that of the rest,
and what is apart goes its own way, by the node's own updates, until it is answered. Otherwise a peer that is gone for
good would hold part of the model where it was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from gossamer.algorithms.aggregation import Robust
from gossamer.algorithms.compression import Packing
from gossamer.algorithms.nodes import LearnerState
from gossamer.errors import PeerError
from gossamer.protocol.effects import Reject
from gossamer.protocol.encoding import value
from gossamer.protocol.messages import Message, check_model, message
from gossamer.vectors import Model, Public, Released, moved, parted, stepped

WHOLE = 1 << 30
"""Weight of a node. Shares are integers, so that they add up exactly and travel in messages."""

HALF = WHOLE // 2
"""Share that two nodes exchange that have promised nothing to others."""

LEAST_FREE = WHOLE // 1024
"""Weight that has to be free for a node to ask.

Each peer that falls silent keeps half of what was free. The free model is what is left of a difference, divided by this
weight, so that rounding grows as it shrinks; and who exchanges so little hears next to nothing anyway.
"""

PATIENCE = 10
"""Updates of a node's own after which it sets apart what it promised to a peer that was reported down."""


@value("gossip.promise")
class Promise:
    """The part of a node that an exchange under way may take.

    Attributes
    ----------
    exchange : int
        The asker's number for it.
    share : int
        Weight of the part; the answer moves as much or less.
    offered : Model
        The model that was offered, [size].
    kept : Model
        The part as it is now, [size]; other than what was offered if it is apart.
    doubted : int
        Updates since the peer was reported down; -1 if it was not.
    apart : bool
        Whether the part has been set apart.
    """

    exchange: int
    share: int
    offered: Model
    kept: Model
    doubted: int = -1
    apart: bool = False

    def updated(self, move: Model, rate: float) -> Promise:
        """The promise after an update of the node by ``rate`` times ``move`` [size]."""
        if self.apart:
            return replace(self, kept=stepped(self.kept, move, rate))
        return replace(self, doubted=self.doubted + 1) if self.doubted >= 0 else self


def free_share(promises: Collection[Promise]) -> int:
    """The weight of a node that is promised to nobody."""
    return WHOLE - sum([promise.share for promise in promises]) if promises else WHOLE


def model_share(promises: Collection[Promise]) -> int:
    """The weight of a node's model: all of it but what is apart."""
    weight = WHOLE
    for promise in promises:
        if promise.apart:
            weight -= promise.share
    return weight


def share_to_promise(free: int, asked: int) -> int:
    """The share of ``free`` that a node promises if it was asked ``asked`` times during its last exchange.

    Half of it, if nobody asked. A node that is asked often, such as the centre of a star, keeps more for those who do.
    Nothing, if too little is free.
    """
    return free // (2 + asked) if free >= LEAST_FREE else 0


def share_to_move(promised: int, free: int) -> int:
    """The share that an asked node with ``free`` weight exchanges with an asker that has ``promised`` so much.

    With t the share, and all models independent and equally uncertain, the asker becomes (1 - t, t), the free part of
    the asked node (free - t, t); the sum of squares is least at t = (1 + free) / 4, which is a half where all is free.
    """
    return min(promised, free, (WHOLE + free) // 4)


# Rules of a node's model. They are compiled as they stand (by numba's njit, in `population`), for arrays in the place
# of vectors.


def free_of_one(model: Model, offered: Model, share: int, free: int, weight: int) -> Model:
    """Part of a model of some ``weight`` that is ``free``: without the ``share`` that is promised as ``offered``."""
    return parted(model, offered, weight / free, share / free)


def moved_by_offer(
    model: Model, told: Model, offered: Model, promised: int, free: int, weight: int
) -> tuple[int, Model]:
    """The share that an asked node moves, which has answered with its free model ``told``, and its model since."""
    share = share_to_move(promised, free)
    return share, moved(model, told, offered, share / weight)


def moved_by_answer(model: Model, offered: Model, answer: Model, share: int, weight: int) -> Model:
    """The model of a node that is answered: a share of what it ``offered`` is the ``answer``."""
    return moved(model, offered, answer, share / weight)


def moved_by_update(model: Model, move: Model, rate: float) -> Model:
    """The model after an update of a node's own."""
    return stepped(model, move, -rate)


def free_model(model: Model, promises: Collection[Promise]) -> Model:
    """The model [size] of the part that is promised to nobody."""
    if not promises:
        return model
    there = [promise for promise in promises if not promise.apart]
    if not there:
        return model
    free = free_share(promises)
    found = free_of_one(model, there[0].offered, there[0].share, free, model_share(promises))
    for promise in there[1:]:
        found = found - promise.offered * (promise.share / free)
    return found.within()


def answered(model: Model, promises: Sequence[Promise], promise: Promise, answer: Model, share: int) -> Model:
    """The model [size] of a node that is answered one of its ``promises``: a share of what it offered is ``answer``."""
    weight = model_share(promises)
    if promise.apart:  # it joins the model again
        total = weight + promise.share
        model = model * (weight / total) + promise.kept * (promise.share / total)
        weight = total
    return moved_by_answer(model, promise.offered, answer, share, weight)


def without(model: Model, promises: Sequence[Promise], promise: Promise) -> Model:
    """The model [size] of a node once it has set apart one of its ``promises``."""
    weight = model_share(promises)
    rest: Model = (model - promise.offered * (promise.share / weight)) * (weight / (weight - promise.share))
    return rest.within()


@message("gossip.offer_share")
class Offer(Message):
    """The asker's free model, as it is now, and the share that it promises of `WHOLE`; at most a half."""

    exchange: int
    model: Public | Released
    share: int = HALF


@message("gossip.answer_share")
class Answer(Message):
    """The free model of the node that was asked, just before it moved, and the share that it moved."""

    exchange: int
    model: Public | Released
    share: int = HALF


class Form(NamedTuple):
    """Form of messages, and the rule by which they are heard."""

    packing: Packing | None = None
    robust: Robust | None = None

    def heard(self, sent: Model, centre: Model) -> Model:
        """The model that somebody ``sent``, as far from the ``centre`` as it counts, and there where nothing was sent.

        Raises
        ------
        PeerError
            If it is no such model, or not finite and there is no robust rule.
        """
        model = self.opened(sent, centre)
        check_model(model if self.robust is None else model.within(), centre)
        return model if self.robust is None else self.robust.near(centre, model)

    def opened(self, sent: Model, base: Model) -> Model:
        """The model that somebody ``sent``, whatever it is."""
        return sent if self.packing is None else self.packing.unpack(sent, base)

    def odd(self, sender: str, sent: Model, base: Model) -> list[Reject]:
        """Count a model that is not finite as refused, where it is heard all the same."""
        return [] if self.robust is None else self.robust.odd(sender, self.opened(sent, base))


PLAIN = Form()


@dataclass
class State(LearnerState):
    """State of a gossip node.

    ``open`` holds what was promised to whom and not yet answered. A peer in it that is also in ``away`` may or may not
    have moved its share: that exchange is in doubt until the peer is heard again. ``asked`` counts the offers that came
    while an exchange was open, since the last of these began, and ``busy`` all of them. Where some numbers alone
    are sent, ``shown`` has each as it was sent last.
    """

    updates: int = 0
    exchanges: int = 0
    open: dict[str, Promise] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    asked: int = 0
    busy: int = 0
    shown: Model | None = None

    @property
    def promises(self) -> tuple[Promise, ...]:
        """Promises that are open, oldest first."""
        return tuple(self.open.values())

    @property
    def to_promise(self) -> int:
        """The share of what is free that can be promised; 0 if too little is."""
        return share_to_promise(free_share(self.open.values()), self.asked)

    def packed(self, model: Model, packing: Packing, places: Model | None = None) -> tuple[Model, Model]:
        """Return what is sent of a model, in these places or where it changed most, and it as the receiver has it."""
        change = model if self.shown is None else model - self.shown
        sent = packing.pack(model, packing.places(change) if places is None else places)
        if self.shown is not None:
            self.shown = packing.unpack(sent, self.shown)
        return sent, packing.unpack(sent, model)

    def offer(self, peer: str, share: int, form: Form = PLAIN) -> Offer:
        """Promise ``peer`` the share `to_promise`."""
        promises = self.promises
        self.exchanges += 1
        self.asked = 0
        sent = offered = free_model(self.w, promises)
        if form.packing is not None:
            sent, offered = self.packed(offered, form.packing)
        self.open[peer] = Promise(self.exchanges, share, offered, offered)
        return Offer(self.exchanges, sent, share)

    def answer(self, sender: str, offer: Offer, form: Form = PLAIN) -> Answer:
        """Move towards what ``sender`` offers, and say from where, and how far.

        Raises
        ------
        PeerError
            If this is no such share, or no such model.
        """
        if not 1 <= offer.share <= HALF:
            raise PeerError(f"{sender} promises {offer.share}, expected a share from 1 to {HALF}")
        told, free, weight = self.w, WHOLE, WHOLE
        if self.open:
            self.asked, self.busy = self.asked + 1, self.busy + 1
            self.set_apart()
            promises = self.promises
            told, free, weight = free_model(self.w, promises), free_share(promises), model_share(promises)
        sent = told
        if form.packing is not None:
            sent, told = self.packed(told, form.packing, form.packing.places_of(offer.model, told.size))
        share, self.w = moved_by_offer(self.w, told, form.heard(offer.model, told), offer.share, free, weight)
        return Answer(offer.exchange, sent, share)

    def settle(self, sender: str, answer: Answer, form: Form = PLAIN) -> None:
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
        told = form.heard(answer.model, promise.offered)
        self.w = answered(self.w, self.promises, promise, told, answer.share)
        del self.open[sender]
        if self.open:
            self.set_apart()

    def set_apart(self) -> None:
        """Let what has been in doubt for too long be no part of the model any more."""
        for peer, promise in tuple(self.open.items()):
            if promise.doubted >= PATIENCE and not promise.apart:
                self.w = without(self.w, self.promises, promise)
                self.open[peer] = replace(promise, apart=True)

    def update(self, move: Model, rate: float) -> None:
        """Apply an update of the node's own, ``rate`` times ``move`` off the model, which promises outlive."""
        self.w = moved_by_update(self.w, move, rate)
        if self.open:
            self.open = {peer: promise.updated(move, -rate) for peer, promise in self.open.items()}
        self.updates += 1

    def held(self) -> Any:
        """The model and what is set apart of it, weighed, in double precision [size]."""
        promises = self.promises
        total = _weighed(self.w, model_share(promises))
        for promise in promises:
            if promise.apart:
                total = total + _weighed(promise.kept, promise.share)
        return total

    def coming(self, sender: str, answer: Answer, form: Form = PLAIN) -> Any:
        """Return what ``answer``, on its way from ``sender``, will add to that; 0 if it fits no promise."""
        promise = self.open.get(sender)
        if promise is None or promise.exchange != answer.exchange:
            return 0.0
        told = form.heard(answer.model, promise.offered)
        return _weighed(told, answer.share) - _weighed(promise.offered, answer.share)


def _weighed(model: Model, share: int) -> Any:
    return model.values.astype("float64") * (share / WHOLE)
