"""Shares of a model: what a node has promised to exchanges under way, and what is free to be exchanged meanwhile.

A node's weight is `WHOLE`. To ask is to promise a share of it, and the model of that moment with it; the free rest is
the node's model, and goes on being averaged with others. When the answer comes, the promised part moves by what was
exchanged and joins the rest again, weight by weight. Nothing that was promised is exchanged twice, and so no model ever
has a negative share in another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gossamer.protocol.encoding import register
from gossamer.vectors import Model

WHOLE = 1 << 30
"""Weight of a node. Shares are integers, so that they add up exactly and travel in messages."""

HALF = WHOLE // 2
"""What two nodes exchange that have promised nothing to others."""


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
        The model as it was offered, [size].
    kept : Model
        The part as it is now, [size]: what was offered, and the node's own updates since.
    """

    exchange: int
    share: int
    offered: Model
    kept: Model

    def moved(self, step: Model) -> Promise:
        """The promise after an update of the node by ``step`` [size]."""
        return replace(self, kept=(self.kept + step).within())


def free_share(promises: Iterable[Promise]) -> int:
    """The weight of a node that is promised to nobody."""
    return WHOLE - sum(promise.share for promise in promises)


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


def asked_model(model: Model, free: int, offered: Model, share: int) -> Model:
    """The model [size] of a node with ``free`` weight that takes ``share`` of ``offered`` for as much of its own."""
    moved: Model = model + (offered - model) * (share / free)
    return moved.within()


def rejoined(model: Model, free: int, promise: Promise, answered: Model, share: int) -> Model:
    """The model [size] of a node with ``free`` weight that is answered: the promised part moves and joins it again.

    The part is ``promise.kept`` with weight ``promise.share``, and ``share`` of what was offered becomes ``answered``.
    """
    weight = free + promise.share
    parted = (promise.kept - model) * (promise.share / weight)
    moved: Model = model + parted + (answered - promise.offered) * (share / weight)
    return moved.within()
