"""FedAsync: a server that mixes each client's model into its own as it comes, with noise of each client's own.

Client c, for ever:                                     Server, with the model x:

1. fetch the newest x, of version v                     1. take the next model x_new, trained from version v
2. w = x; H times: w = w - eta_l (grad f(w; batch)      2. alpha_t = alpha s(t - v)
                              + mu (w - x))             3. x = (1 - alpha_t) x + alpha_t x_new, t = t + 1
3. u = w - x, clipped as a whole to C; u = u + noise    4. answer with the newest x, of version t
4. push (x_new = x + u, v), which fetches again

(2 and 3 of a client happen at its data side, which shuffles the client's examples and takes them in turn; steps may
have momentum.) Nobody waits: a client that comes by gets what is there. Clipping and noise are not the paper's. As x is
no secret, x + u tells what u does, and a server that is pushed models keeps no old ones. The nodes are in
`fedasync.nodes`, and what they share with `fedavg` and `fedbuff` is in `algorithms.clients`.

| symbol | here |
|---|---|
| alpha | `Settings.mixing` |
| s | `Settings.staleness_weight`: constant, hinge or polynomial |
| H, eta_l | `Settings.local_steps`, or those of `Settings.local_epochs`; `Settings.local_learning_rate` |
| mu (the paper's rho) | `Settings.proximal` |
| C | ``privacy.clip`` |
| x, t | the server's `state.x`, `state.t` |

t - v counts the steps that the server made while the client trained, so a model that nobody came before has s(0) = 1.
(The paper says the same of s, and numbers the step itself too: its t is one more.)

Every noised update is a Gaussian release of all that its client has (`gossamer.sides.client_plans`); its ledger covers
the updates of its quota.

References
----------
C. Xie, S. Koyejo and I. Gupta, "Asynchronous federated optimization", arXiv 1903.03934, 2019: Algorithm 1, section 5.2
for s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.algorithms.clients import parts
from gossamer.algorithms.clients.messages import SERVER
from gossamer.algorithms.clients.planning import check, participation_by_quota, plan_clients, stop_of
from gossamer.algorithms.clients.settings import workload
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedasync.nodes import MixingServer, whole_model
from gossamer.algorithms.fedasync.settings import Settings as Settings
from gossamer.algorithms.interface import Algorithm, SmallRuns
from gossamer.algorithms.plan import Plan
from gossamer.algorithms.problem import Problem
from gossamer.algorithms.worker import model_of, output
from gossamer.protocol.node import Node


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The clients by name, and the server."""
    return {**parts.clients(settings, context, whole_model), SERVER: MixingServer(context, settings)}


def plan(problem: Problem[Settings]) -> Plan:
    """The plan of clients that go on until their quota, or the end of the run."""
    stop = stop_of(problem.spec)
    return plan_clients(problem, participation_by_quota(problem, stop), stop)


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Steps of the server, each with one model, and how stale models were."""
    state = nodes[SERVER].state
    return {
        "steps": state.t,
        "staleness_mean": state.staleness_sum / state.t if state.t else 0.0,
        "staleness_max": state.staleness_most,
    }


# That the server's model is a mixture of what came is tested against a reference.
ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    model_of=model_of,
    output=output,
    roles=("client", "server"),
    cast=parts.cast,
    terms=parts.terms,
    check=check,
    plan=plan,
    laws=parts.LAWS,
    workload=workload,
    count=parts.count,
    staleness=parts.staleness,
    grows=True,
    report=report,
    advice=parts.advice,
    small_runs=lambda settings: SmallRuns(
        (
            {"nodes": 3, "updates_per_node": 3},
            {"nodes": 5, "updates_per_node": 2},
            {"nodes": 4, "updates_per_node": 3, "stop": {"updates": 5}},
        ),
        fitting=parts.fitting(settings),
    ),
)
