"""Shares of a model: what a node has promised to exchanges under way, and what is free to be exchanged meanwhile.

A node has the weight `WHOLE`. To ask is to promise a share of it, at the model of that moment; the rest is free, and is
what the node exchanges when it is asked before its answer comes. Nothing that was promised is exchanged twice, and so
no model ever has a negative share in another:

    model = free share of the free model + the shares that are promised, each at the model that was offered

A promise to a peer that has fallen silent is set apart after `PATIENCE` updates: the model is then that of the rest,
and what is apart goes its own way, by the node's own updates, until it is answered. Otherwise a peer that is gone for
good would hold part of the model where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gossamer.protocol.encoding import register
from gossamer.vectors import Model, shifted

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


@register("gossip.promise")
@dataclass(frozen=True)
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

    def in_doubt(self) -> Promise:
        """The promise once its peer is reported down."""
        return replace(self, doubted=max(self.doubted, 0))

    def updated(self, step: Model) -> Promise:
        """The promise after an update of the node by ``step`` [size]."""
        if self.apart:
            return replace(self, kept=(self.kept + step).within())
        return replace(self, doubted=self.doubted + 1) if self.doubted >= 0 else self


def free_share(promises: Iterable[Promise]) -> int:
    """The weight of a node that is promised to nobody."""
    weight = WHOLE
    for promise in promises:
        weight -= promise.share
    return weight


def model_share(promises: Iterable[Promise]) -> int:
    """The weight of a node's model: all of it but what is apart."""
    weight = WHOLE
    for promise in promises:
        if promise.apart:
            weight -= promise.share
    return weight


def share_to_promise(free: int, asked: int) -> int:
    """The share of ``free`` that a node promises if it was asked ``asked`` times during its last exchange.

    Half of it, if nobody asked. A node that is asked often, such as the centre of a star, keeps more for those who do.
    """
    return free // (2 + asked)


def share_to_move(promised: int, free: int) -> int:
    """The share that an asked node with ``free`` weight exchanges with an asker that has ``promised`` so much.

    With t the share, and all models independent and equally uncertain, the asker becomes (1 - t, t), the free part of
    the asked node (free - t, t); the sum of squares is least at t = (1 + free) / 4, which is a half where all is free.
    """
    return min(promised, free, (WHOLE + free) // 4)


def free_model(model: Model, promises: Sequence[Promise]) -> Model:
    """The model [size] of the part that is promised to nobody."""
    there = [promise for promise in promises if not promise.apart]
    if not there:
        return model
    free = free_share(promises)
    found: Model = model * (model_share(promises) / free)
    for promise in there:
        found = found - promise.offered * (promise.share / free)
    return found.within()


def asked(model: Model, promises: Sequence[Promise], answered: Model, offered: Model, share: int) -> Model:
    """The model [size] of a node that is asked: a share of its free part, ``answered``, goes for ``offered``."""
    return shifted(model, answered, offered, share / model_share(promises)).within()


def answered(model: Model, promises: Sequence[Promise], promise: Promise, answer: Model, share: int) -> Model:
    """The model [size] of a node that is answered one of its ``promises``: a share of what it offered is ``answer``."""
    weight = model_share(promises)
    if promise.apart:  # it joins the model again
        total = weight + promise.share
        model = model * (weight / total) + promise.kept * (promise.share / total)
        weight = total
    return shifted(model, promise.offered, answer, share / weight).within()


def without(model: Model, promises: Sequence[Promise], promise: Promise) -> Model:
    """The model [size] of a node once it has set apart one of its ``promises``."""
    weight = model_share(promises)
    rest: Model = (model - promise.offered * (promise.share / weight)) * (weight / (weight - promise.share))
    return rest.within()
