"""Parts that the boxes of algorithms with clients and a server have in common."""

from __future__ import annotations

from collections.abc import Mapping

from gossamer.algorithms.clients.client import ClientNode, NoisedUpdate
from gossamer.algorithms.clients.messages import SERVER
from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Cast, Terms
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.unit_tasks import LocalUpdate
from gossamer.protocol.node import Node

LAWS = ("gaussian", "none")
"""Noise that whole updates can have."""


def cast(settings: ClientSettings, names: tuple[str, ...]) -> Cast:
    """The clients, and the server that each talks to, and that alone hears what is raw of it if it is trusted."""
    above = dict.fromkeys(names, SERVER)
    return Cast(names, (SERVER,), above, trust=above if settings.curated else {}, unseen=settings.unseen)


def terms(limit: int | None = None) -> Terms:
    """Terms of whole updates.

    Nobody asks for a batch; of all schemes this one knows of batches larger than a shard. They are not `clipped_whole`,
    which is of one example in a sum: under replace_one whole updates are two clips apart.
    """
    return Terms(sampling="with_replacement", unit="client", relation=NeighboringRelation.REPLACE_ONE, limit=limit)


def clients(settings: ClientSettings, context: Context) -> dict[str, Node]:
    """The clients by name."""
    task = LocalUpdate if settings.curated else NoisedUpdate
    return {name: ClientNode(name, context, settings.query(context.shard_sizes[name]), task) for name in context.names}


def count(nodes: Mapping[str, Node]) -> int:
    """Return how many updates, or sums of them, the server has taken."""
    return int(nodes[SERVER].state.taken)
