"""Parts that the boxes of algorithms with clients and a server have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.algorithms.clients.client import ClientNode, NoisedUpdate, Pushed, update_itself
from gossamer.algorithms.clients.following import FollowingClient
from gossamer.algorithms.clients.messages import SERVER, Push
from gossamer.algorithms.clients.settings import CLIENT, ClientSettings
from gossamer.algorithms.clients.stepping_client import SteppingClient
from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Cast, Terms
from gossamer.privacy.clipping import QuantileClip
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.unit_tasks import LocalUpdate
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node

LAWS = ("gaussian", "none")
"""Noise that updates and their steps can have."""


def cast(settings: ClientSettings, names: tuple[str, ...]) -> Cast:
    """The clients, and the server that each talks to, and that alone hears what is raw of it if it is trusted."""
    above = dict.fromkeys(names, SERVER)
    return Cast(names, (SERVER,), above, trust=above if settings.curated else {}, unseen=settings.unseen)


def terms(settings: ClientSettings, limit: int | None = None) -> Terms:
    """Terms of whole updates, or of noisy steps, which have those of any gradients; something else may limit the run.

    Of whole updates nobody asks for a batch; of all schemes this one knows of batches larger than a shard. They are not
    `clipped_whole`, which is of one example in a sum: under replace_one whole updates are two clips apart.
    """
    if settings.stepwise:
        return Terms(limit=limit)
    return Terms(
        sampling="with_replacement",
        unit=CLIENT,
        relation=NeighboringRelation.REPLACE_ONE,
        hiding=settings.masking is not None,
        limit=limit,
        rounds=True,
    )


def clients(settings: ClientSettings, context: Context, makes: Pushed = update_itself) -> dict[str, Node]:
    """The clients by name; ``makes`` says what they push."""
    trainings = {name: settings.query(context.shard_sizes[name]) for name in context.names}
    if settings.stepwise:
        return {name: SteppingClient(name, context, training, makes) for name, training in trainings.items()}
    if isinstance(context.clipping.policy, QuantileClip):
        return {name: FollowingClient(name, context, training) for name, training in trainings.items()}
    task = LocalUpdate if settings.curated else NoisedUpdate
    return {name: ClientNode(name, context, training, task, makes) for name, training in trainings.items()}


def advice(settings: ClientSettings, context: Context, updates: int) -> list[str]:
    """Warnings about a run."""
    return settings.advice()


def fitting(settings: ClientSettings) -> dict[str, Any]:
    """Values of settings in small runs: one step, or two where crashes may come between them."""
    return {"local_steps": 2 if settings.stepwise else 1, "local_epochs": None, "batch_size": 2}


def count(nodes: Mapping[str, Node]) -> int:
    """Return how many updates, or sums of them, the server has taken."""
    return int(nodes[SERVER].state.taken)


def asks(settings: Any) -> tuple[str, ...]:
    """The setting of how long a server waits before it asks who is there, where no timeout bounds its rounds."""
    secret = getattr(settings, "cohorts", "public") == "secret"
    return ("patience",) if settings.timeout is None and not secret else ()


def lost(server: Any) -> list[str]:
    """Remark for a user on clients that were waited for until the session had lost them."""
    if not getattr(server, "asks", False) or not server.state.late:
        return []
    return [
        f"a round waited for {', '.join(sorted(server.state.late))} until links.silence was over, and the run went on "
        "without; algorithm.timeout bounds how long a round waits"
    ]


def staleness(server: Node, message: Message) -> int | None:
    """Count the steps of the server that an update is behind when it comes."""
    return None if not isinstance(message, Push) or server.state.finished else int(server.state.t - message.version)
