"""FedBuff: buffered asynchronous aggregation of whole clients' updates, with noise of each client's or of the server.

Client c, for ever:                                     Server, with the model x and an empty buffer:

1. fetch the newest x, of version v                     1. take the next update u, of version v
2. w = x; Q times: w = w - eta_l grad f(w; batch)       2. put it into the buffer, times s(t - v)
3. u = w - x, clipped as a whole to C                   3. if the buffer has K updates:
4. u = u + noise                                               x = x + eta_g (sum of the buffer)/K
5. push (u, v), which fetches again                            empty the buffer, t = t + 1
                                                        4. answer with the newest x, of version t

(2 to 4 of a client happen at its data side, which shuffles the client's examples and takes them in turn; steps may have
momentum, and FedProx's term.) Nobody waits: a client that comes by gets what is there, and with noise of its own may be
in one buffer several times. The paper's u has the other sign. The server is in `fedbuff.server`, and clients are in
`algorithms.clients`.

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

**A trusted server.** Where the server adds the noise, clients leave out their line 4, and line 3 of the server is
x = x + eta_g (sum of the buffer + noise)/K, summed at its data side (`fedbuff.server`). The noise hides one update of
length C, so the K updates are those of K clients: a second one of a client waits for the next buffer, while the client
goes on. Weights are at most 1, and so keep updates within C. What is left at the end is dropped. Who is in a buffer is
public: nothing is amplified, and each client is charged for the buffers that it is in.

**Masks.** Where clients mask, the server learns the sum of a buffer alone, and masks are bound to one model: so the K
clients of each step are drawn before the run, in turn (`draw_turns`), all are given the same x, and line 3 waits for
them. All weights are 1, and the sum is over K however many of them have vanished (`clients.masked`).

References
----------
J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek and D. Huba, "Federated learning with buffered
asynchronous aggregation", AISTATS 2022: Algorithm 1 (server), Algorithm 2 (client), section 5.1 for s. The paper's
privacy is a trusted server's, by `noise_by: server`; by default nobody is trusted with an update.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gossamer.algorithms.clients import parts
from gossamer.algorithms.clients.masked_planning import plan_masked
from gossamer.algorithms.clients.messages import SERVER
from gossamer.algorithms.clients.parts import masked_nodes, masked_runs, sums_counted, sums_remarked
from gossamer.algorithms.clients.planning import check as check_clients
from gossamer.algorithms.clients.planning import participation_by_quota, participation_in_sums, plan_clients, stop_of
from gossamer.algorithms.clients.rounds import MaskedRounds
from gossamer.algorithms.clients.settings import PATIENCE, workload
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedbuff.server import BufferServer, TrustedServer, left_over
from gossamer.algorithms.fedbuff.settings import Settings as Settings
from gossamer.algorithms.fedbuff.settings import draw_turns
from gossamer.algorithms.interface import Algorithm, Clips, Figures, SmallRuns
from gossamer.algorithms.nodes import model_of, output
from gossamer.algorithms.plan import Plan
from gossamer.algorithms.problem import Problem, Spec
from gossamer.algorithms.sample_planning import quotas_of
from gossamer.protocol.node import Node
from gossamer.randomness import Stream


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The clients by name, and the server."""
    if settings.masking is not None:
        return masked_nodes(
            settings, context, masked_rounds(settings, context.seed, context.names, context.quotas, context.updates)
        )
    server = TrustedServer if settings.curated else BufferServer
    return {**parts.clients(settings, context), SERVER: server(context, settings)}


def masked_rounds(
    settings: Settings, seed: int, names: tuple[str, ...], quotas: Mapping[str, int] | None, updates: int | None
) -> MaskedRounds:
    """The buffers of clients that mask: ``updates`` of them, or as many as the clients' ``quotas`` allow."""
    if quotas is None:  # a client may be in each; there is neither where nodes are built to be looked at alone
        quotas = dict.fromkeys(names, updates or 1)
    turns = draw_turns(Stream(seed, settings.name, "cohorts"), quotas, settings.buffer, updates)
    patience = settings.patience or PATIENCE
    return MaskedRounds(turns, settings.buffer, len(turns.drawn), settings.timeout, patience, settings.buffer)


def check(settings: Settings, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each."""
    yield from check_clients(settings, spec)
    stop = stop_of(spec)
    if settings.masking is not None and not (settings.updates_per_node or stop.epochs or stop.updates):
        yield (
            "algorithm.masking: who masks with whom is drawn before the run, which needs a number of sums; give "
            "updates_per_node, stop.epochs or stop.updates"
        )


def plan(problem: Problem[Settings]) -> Plan:
    """The plan of clients that go on until their quota, or the end of the run."""
    settings, stop = problem.settings, stop_of(problem.spec)
    if settings.masking is not None:
        quotas = quotas_of(problem, stop)
        return plan_masked(problem, masked_rounds(settings, problem.seed, problem.names, quotas, stop.updates), stop)
    if settings.curated:
        return plan_clients(problem, participation_in_sums(problem, stop, settings.buffer), stop)
    return plan_clients(problem, participation_by_quota(problem, stop), stop)


def advice(settings: Settings, context: Context, updates: int) -> list[str]:
    """Warnings about a run; also of a trusted server whose steps swing, or whose weights shrink sums and no noise."""
    found = settings.advice()
    if not settings.curated:
        return found
    rate, exponent = settings.learning_rate, settings.staleness_exponent
    if not exponent and settings.server_optimizer is None and rate >= settings.steady:
        found.append(
            f"fedbuff: learning_rate {rate:g} may swing wider and wider, since updates of {settings.nodes} clients are "
            f"old when {settings.buffer} of them make a step; below {settings.steady:.2g} it cannot, and without "
            "learning_rate it is chosen so"
        )
    if exponent and any(query.mechanism.private for query in context.queries.values()):
        found.append(
            f"fedbuff: with noise_by: server, staleness_exponent {exponent:g} makes sums smaller and leaves their "
            "noise as it is; 0 hides as much, and was more accurate where the two were compared"
        )
    return found


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Steps of the server, and how stale updates were; or how many sums of masked ones there were too few for."""
    server: Any = nodes[SERVER]
    state = server.state
    if hasattr(state, "sums_out_of_range"):
        return {"steps": state.taken, "updates_taken": state.summed, **sums_counted(server)}
    updates = server.updates
    left = {"clients_left_over": state.able or 0} if isinstance(server, TrustedServer) else {}
    return {
        "steps": state.t,
        "updates_taken": updates,
        **left,
        "staleness_mean": state.staleness_sum / updates if updates else 0.0,
        "staleness_max": state.staleness_most,
    }


def small_runs(settings: Settings) -> SmallRuns:
    """Runs for simulated faults: where clients mask, of all of them in a buffer, and of some."""
    fitting = parts.fitting(settings)
    if settings.masking is not None:
        masked = (
            {"nodes": 4, "updates_per_node": 2, "buffer": 4},
            {"nodes": 5, "updates_per_node": 2, "buffer": 3, "stop": {"updates": 2}},
        )
        return masked_runs(settings, fitting, masked)
    sizes = (
        {"nodes": 3, "updates_per_node": 3, "buffer": 2},
        {"nodes": 5, "updates_per_node": 2, "buffer": 3},
        {"nodes": 4, "updates_per_node": 3, "buffer": 2, "stop": {"updates": 5}},
    )
    return SmallRuns(sizes, fitting=fitting)


# That the server's model is the sum of its buffers is tested against a reference.
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
    workload=workload,
    figures=Figures(
        count=parts.count,
        staleness=parts.staleness,
        report=report,
        remarks=lambda nodes: [*parts.lost(nodes[SERVER]), *left_over(nodes[SERVER]), *sums_remarked(nodes[SERVER])],
        advice=advice,
    ),
    grows=True,
    decided=Settings.decided,
    small_runs=small_runs,
    clips=Clips(laws=parts.LAWS),
)
