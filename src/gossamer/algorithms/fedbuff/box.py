"""FedBuff: buffered asynchronous aggregation of whole clients' updates, with noise of each client's own.

Client c, for ever:                                     Server, with the model x and an empty buffer:

1. fetch the newest x, of version v                     1. take the next update u, of version v
2. w = x; Q times: w = w - eta_l grad f(w; batch)       2. put it into the buffer, times s(t - v)
3. u = w - x, clipped as a whole to C                   3. if the buffer has K updates:
4. u = u + noise                                               x = x + eta_g (sum of the buffer)/K
5. push (u, v), which fetches again                            empty the buffer, t = t + 1
                                                        4. answer with the newest x, of version t

(2 to 4 of a client happen at its data side, which shuffles the client's examples and takes them in turn; steps may have
momentum, and FedProx's term.) Nobody waits: a client that comes by gets what is there, and may be in one buffer several
times. The paper's u has the other sign. The nodes are in `fedbuff.client` and `fedbuff.server`.

| symbol | here |
|---|---|
| K | `Settings.buffer` |
| Q, eta_l | `Settings.local_steps`, or those of `Settings.local_epochs`; `Settings.local_learning_rate` |
| eta_g | `Settings.learning_rate`; with `Settings.server_optimizer` line 3 takes its move in the place of the mean |
| s(tau) = (1 + tau)^-a | `Settings.staleness_exponent`, a = 1/2 as in the paper |
| C | ``privacy.clip`` |
| x, t | the server's `state.x`, `state.t` |

When the run ends, what is left in the buffer is applied as well, over K.

Every noised update is a Gaussian release of all that its client has (`gossamer.sides.client_plans`); its ledger covers
the updates of its quota.

References
----------
J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek and D. Huba, "Federated learning with buffered
asynchronous aggregation", AISTATS 2022: Algorithm 1 (server), Algorithm 2 (client), section 5.1 for s. The paper's
privacy is a trusted server's; here nobody is trusted with an update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.algorithms.context import Context
from gossamer.algorithms.fedbuff.client import ClientNode
from gossamer.algorithms.fedbuff.messages import SERVER
from gossamer.algorithms.fedbuff.planning import check, plan_clients
from gossamer.algorithms.fedbuff.server import ServerNode
from gossamer.algorithms.fedbuff.settings import Settings as Settings
from gossamer.algorithms.fedbuff.settings import workload
from gossamer.algorithms.interface import Algorithm, Cast, SmallRuns, Terms
from gossamer.algorithms.worker import model_of, output
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.protocol.node import Node


def cast(settings: Settings, names: tuple[str, ...]) -> Cast:
    """The clients, and the server that each talks to."""
    return Cast(names, (SERVER,), dict.fromkeys(names, SERVER))


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The clients by name, and the server."""
    queries = {name: settings.query(context.shard_sizes[name]) for name in context.names}
    clients: dict[str, Node] = {name: ClientNode(name, context, query) for name, query in queries.items()}
    return {**clients, SERVER: ServerNode(context, settings)}


def count(nodes: Mapping[str, Node]) -> int:
    """Return how many updates came into the server's buffer."""
    return int(nodes[SERVER].state.taken)


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Steps of the server, and how stale updates were."""
    state = nodes[SERVER].state
    return {
        "steps": state.t,
        "updates_taken": state.taken,
        "staleness_mean": state.staleness_sum / state.taken if state.taken else 0.0,
        "staleness_max": state.staleness_most,
    }


# That the server's model is the sum of its buffers is tested against a reference.
ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    model_of=model_of,
    output=output,
    roles=("client", "server"),
    cast=cast,
    # Nobody asks for a batch; of all schemes this one knows of batches larger than a shard.
    # Not `clipped_whole`, which is of one example in a sum: under replace_one whole updates are two clips apart.
    terms=lambda settings: Terms(sampling="with_replacement", unit="client", relation=NeighboringRelation.REPLACE_ONE),
    check=check,
    plan=plan_clients,
    laws=("gaussian", "none"),
    workload=workload,
    rounds=True,
    count=count,
    grows=True,
    report=report,
    small_runs=lambda settings: SmallRuns(
        (
            {"nodes": 3, "updates_per_node": 3, "buffer": 2},
            {"nodes": 5, "updates_per_node": 2, "buffer": 3},
            {"nodes": 4, "updates_per_node": 3, "buffer": 2, "stop": {"updates": 5}},
        ),
        fitting={"local_steps": 1, "batch_size": 2},
    ),
)
