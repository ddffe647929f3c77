"""Clients' updates as the trace of their server has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gossamer.algorithms.clients.nodes import Fetch, Halt, Newest, Push
from gossamer.arrays import FloatArray
from gossamer.protocol.effects import Send
from gossamer.protocol.events import Received
from gossamer.protocol.trace import TraceStep


def pushes(steps: Sequence[TraceStep]) -> list[tuple[str, Push]]:
    """Senders and messages of a server's updates, in the order in which it took them."""
    events = [step.event for step in steps]
    return [(e.sender, e.message) for e in events if isinstance(e, Received) and isinstance(e.message, Push)]


def ages(steps: Sequence[TraceStep]) -> list[int]:
    """Ages of a server's updates, where each is a step of it."""
    return [t - push.version for t, (_, push) in enumerate(pushes(steps))]


def models(steps: Sequence[TraceStep]) -> dict[int, FloatArray]:
    """Models that a server gave out, by version."""
    sent = [effect.message for step in steps for effect in step.effects if isinstance(effect, Send)]
    return {m.version: np.asarray(m.model.values, "float64") for m in sent if isinstance(m, Newest | Halt)}


def updates(steps: Sequence[TraceStep]) -> FloatArray:
    """Updates [T, size] that were in the models which a server took."""
    given = models(steps)
    return np.stack([np.asarray(push.update.values, "float64") - given[push.version] for _, push in pushes(steps)])


def asked(steps: Sequence[TraceStep]) -> dict[str, list[float]]:
    """Times at which a server was asked for a model by each client: fetches and pushes, on its clock."""
    found: dict[str, list[float]] = {}
    for step in steps:
        if isinstance(step.event, Received) and isinstance(step.event.message, Fetch | Push):
            found.setdefault(step.event.sender, []).append(step.now)
    return found
