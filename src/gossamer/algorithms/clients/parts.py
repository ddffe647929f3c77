"""Parts that the boxes of algorithms with clients and a server have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gossamer.algorithms.clients.nodes import (
    SERVER,
    Asks,
    ClientNode,
    CohortServer,
    NoisedUpdate,
    Push,
    Pushed,
    SteppingClient,
    update_itself,
)
from gossamer.algorithms.clients.planning import MaskedRounds, check, masked_unit
from gossamer.algorithms.clients.settings import CLIENT, STEPS, ClientSettings, workload
from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Algorithm, Cast, Clips, SmallRuns, Terms
from gossamer.algorithms.nodes import output
from gossamer.errors import counted
from gossamer.privacy.clipping import QuantileClip, bound_of
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.tasks import ClippedUpdate, LocalUpdate, TrainingQuery
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node

TRAINING = ("local_steps", "local_epochs", "local_learning_rate", "local_momentum", "proximal", "batch_size")
"""Settings of a client's local training."""
SMALL = (
    {"nodes": 3, "updates_per_node": 3},
    {"nodes": 5, "updates_per_node": 2},
    {"nodes": 4, "updates_per_node": 3, "stop": {"updates": 5}},
)
"""Sizes of runs for simulated faults, of clients that nobody waits for."""
LAWS = ("gaussian", "none")
"""Noise that updates and their steps can have."""
WHOLE_UPDATES = Terms(sampling="with_replacement", unit=CLIENT, relation=NeighboringRelation.REPLACE_ONE, rounds=True)
"""Terms of whole updates.

Nobody asks for a batch of them; of all schemes this one knows of batches larger than a shard. They are not
`clipped_whole`, which is of one example in a sum: under replace_one whole updates are two clips apart.
"""


def cast(settings: Any, names: tuple[str, ...]) -> Cast:
    """The clients, and the server that each talks to, and that alone hears what is raw of it if it is trusted."""
    above = dict.fromkeys(names, SERVER)
    return Cast(names, (SERVER,), above, trust=above if settings.curated else {}, unseen=settings.unseen)


def algorithm(settings: type[Any], build: Callable[[Any, Context], dict[str, Node]], **own: Any) -> Algorithm[Any]:
    """An algorithm of clients and a server: what is not its ``own`` is as they all have it."""
    common: dict[str, Any] = {
        "output": output,
        "roles": ("client", SERVER),
        "cast": cast,
        "terms": terms,
        "check": check,
        "workload": workload,
        "clips": Clips(laws=LAWS),
    }
    return Algorithm(Settings=settings, build=build, **{**common, **own})


def terms(settings: ClientSettings, limit: int | None = None) -> Terms:
    """Terms of whole updates, or of noisy steps, which are those of any gradients; something else may limit a run."""
    packed = settings.compression is not None
    found = Terms() if settings.stepwise else replace(WHOLE_UPDATES, hiding=settings.masking is not None)
    linear = settings.aggregation is None and not packed
    return replace(found, limit=limit, linear=linear, packed=packed, training=TRAINING)


def clients(settings: ClientSettings, context: Context, makes: Pushed = update_itself) -> dict[str, Node]:
    """The clients by name; ``makes`` says what they push."""
    trainings = {name: settings.query(context.shard_sizes[name]) for name in context.names}
    nodes: Mapping[str, ClientNode]
    if settings.stepwise:
        nodes = {name: SteppingClient(name, context, training, makes) for name, training in trainings.items()}
    else:
        follows = isinstance(context.clipping.policy, QuantileClip)
        nodes = {
            name: ClientNode(name, context, _asks(settings, training, follows), makes, follows=follows)
            for name, training in trainings.items()
        }
    for node in nodes.values():
        node.packing = settings.compression
    return dict(nodes)


def _asks(settings: ClientSettings, training: TrainingQuery, follows: bool) -> Asks:
    """Function that says what a client's data side is asked for."""
    if follows:
        return lambda task, model, log_clip: ClippedUpdate(task, model, training, bound_of(log_clip))
    kind = LocalUpdate if settings.curated else NoisedUpdate
    return lambda task, model, log_clip: kind(task, model, training)


def advice(settings: ClientSettings, context: Context, updates: int) -> list[str]:
    """Warnings about a run: of local steps that go astray, whatever the data.

    With u = w - x a step is u <- (1 - eta mu) u - eta g, which swings wider and wider where eta mu > 2; with momentum m
    where eta mu > 2 (1 + m).
    """
    rate, most = settings.local_learning_rate, 2 * (1 + settings.local_momentum)
    reach = rate * settings.proximal
    if reach <= most or (settings.local_epochs is None and (settings.local_steps or STEPS) == 1):
        return []
    return [
        f"{settings.name}: local_learning_rate {rate:g} times proximal {settings.proximal:g} is {reach:g}, above "
        f"{most:g}, so local steps swing wider and wider around the model that they begin at; lower one of the two"
    ]


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


def staleness(server: Node, message: Message) -> int | None:
    """Count the steps of the server that an update is behind when it comes."""
    return None if not isinstance(message, Push) or server.state.finished else int(server.state.t - message.version)


def masked_nodes(settings: ClientSettings, context: Context, rounds: MaskedRounds) -> dict[str, Node]:
    """The clients by name, and the server."""
    from gossamer.algorithms.clients.masked import MaskedClientNode, MaskedServer

    assert settings.masking is not None
    law = context.queries[context.names[0]].mechanism  # the same for all
    unit = masked_unit(settings.masking, rounds.clients, law, context.initial.size, context.run)
    clients: dict[str, Node] = {
        name: MaskedClientNode(name, context, settings.query(context.shard_sizes[name]), unit.group)
        for name in context.names
    }
    return {**clients, SERVER: MaskedServer(context, settings, rounds, unit)}


def sums_counted(server: Any) -> dict[str, int]:
    """Return how many sums came to nothing, by why; nothing of a server of clients that do not mask."""
    state = server.state
    if not hasattr(state, "sums_out_of_range"):
        return {}
    outside = state.sums_out_of_range
    return {"masked_sums_refused": state.empty, **({"masked_sums_out_of_range": outside} if outside else {})}


def remarks(nodes: Mapping[str, Node]) -> list[str]:
    """Remarks for a user on clients that were lost, and on sums that cannot be of honest clients alone."""
    server, said = nodes[SERVER], []
    if isinstance(server, CohortServer) and server.asks and server.state.late:
        said.append(
            f"a round waited for {', '.join(sorted(server.state.late))} until links.silence was over, and the run went "
            "on without; algorithm.timeout bounds how long a round waits"
        )
    if outside := sums_counted(server).get("masked_sums_out_of_range", 0):
        said.append(
            f"{counted(outside, 'masked sum')} were longer than honest clients can make them and changed nothing: a "
            "client of each sends false updates, and masks hide which; look for one that is in all of their rounds"
        )
    return said


def masked_runs(settings: Any, fitting: Mapping[str, Any], sizes: Sequence[Mapping[str, Any]]) -> SmallRuns:
    """Small runs for simulated faults, of these ``sizes``."""
    small = {**settings.masking.model_dump(), "threshold": None, "minimum": None, "fraction_bits": None}
    # Messages about masks are longer than others. Sums are made at the server, of answers that are no releases.
    asked = asks(settings)  # then a sum that needs whoever is gone waits for it
    return SmallRuns(tuple(sizes), {**fitting, "masking": small}, asked, bool(asked), chunk=480, unanswered=None)
