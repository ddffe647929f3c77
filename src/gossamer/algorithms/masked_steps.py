"""Steps of a masked sum as nodes take them: what may be said at which, and what a data side is asked.

A node does not look into the content of these messages: it comes from data sides, which hold the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gossamer.algorithms.masking_messages import MaskingReply, MaskingRequest
from gossamer.errors import PeerError
from gossamer.privacy.masking import Group, MaskingMessage, Step, unpacked
from gossamer.privacy.masking.messages import REPLIES, REQUESTS, DeliveredShares, Roster, agents_in
from gossamer.privacy.masking.server import reply_bytes
from gossamer.privacy.masking_step import MaskingStep
from gossamer.vectors import Masked, Public

UPDATE = -1
"""Before the steps of the sum: the update is made."""


def check_request(request: MaskingRequest, group: Group) -> None:
    """Refuse a server's request whose content is no message of its step.

    Raises
    ------
    PeerError
        If it is none.
    """
    _check_content(request.step, request.content, REQUESTS, group)


def check_reply(reply: MaskingReply, group: Group) -> None:
    """Refuse a reply whose content is no message of its step; a masked vector is for the sum to check.

    Raises
    ------
    PeerError
        If it is none.
    """
    _check_content(reply.step, reply.content, REPLIES, group)


def _check_content(step: int, content: Any, kinds: Mapping[int, type[MaskingMessage]], group: Group) -> None:
    kind = kinds.get(step)
    if kind is None:
        if kinds is REQUESTS or step != Step.MASK or type(content) is not Masked:
            raise PeerError(f"no message belongs to step {step}, or it is another than the one found")
    elif type(content) is not Public:
        raise PeerError(f"step {step} has {kind.__name__}, found {type(content).__name__}")
    elif isinstance(content.values, np.ndarray):
        unpacked(content, kind, group)


def speakers_in(request: MaskingRequest, group: Group, before: int) -> int:
    """Return of how many members the reply to ``request`` speaks; ``before`` is what the step before it said."""
    if request.step == Step.SHARE:
        return agents_in(Roster, request.content.size, signed=group.signed)
    if request.step == Step.MASK:
        return agents_in(DeliveredShares, request.content.size) + 1
    return before


def step_task(group: Group, round: int, step: int, request: Public, speakers: int) -> MaskingStep:
    """The question to a member's data side for its message of ``step``, after what the server sent for it."""
    bits = group.bits if step == Step.MASK else 8
    return MaskingStep(round, step, request, reply_bytes(group, step, speakers) // (bits // 8), bits)
