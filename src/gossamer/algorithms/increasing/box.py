"""Asynchronous federated learning in rounds of growing size, where nobody waits unless the wait rule says so.

Client c, from its model w^ = v_0:                       Server, with v = v_0 and k = 0:

for i = 0, 1, ...                                        for each (i, c, U), in any order:
    U = 0                                                    v = v - eta_i U
    for h < s_ic:                                            while round k is here from all clients:
        [wait while the rule holds the client back]              k = k + 1, broadcast (v, k)
        g = grad f(w^; xi), clipped to C
        U = U + g
        w^ = w^ - eta_i g
    n = noise; U = U + n; w^ = w^ - eta_i n
    send (i, c, U)

and at any moment, when a (v, k) comes that is newer:
    w^ = v - (own earlier updates that v lacks) - eta_i U

The inner loop is one `Round` at the client's data side; (v, k) is swapped into it by the effect `Update`. The nodes are
in `increasing.client` and `increasing.server`; s_i, eta_i and the rule in `increasing.settings`.

| symbol | here |
|---|---|
| s_i, s_ic | `Settings.sizes`, with the weights p_c |
| eta_i | `Settings.learning_rate` |
| tau, d | `Settings.delay` |
| D, the number of masks | `Settings.parts`: a client computes and sends every D-th coordinate, times D |
| v, k | the server's `state.v`, `state.k` |
| U | the sum in units of the round's first step size; a message carries eta_i U |

What differs from the paper's box: a broadcast says which of the receiver's own rounds v holds, so that its own updates
are neither lost nor counted twice when v comes before they do (``receive: printed`` is the paper's line); the noise on
w^ has the sign of the noise on v (the paper's differs by a slip); and what a round adds up is a choice, because nothing
is proved for the paper's:

| round_update | the round's gradients are | proved |
|---|---|---|
| ``batch`` | of one sample, at models made of released updates only | as for one release |
| ``clipped_sum`` | the loop above, U clipped to C as a whole | with a sensitivity of 2C |
| ``sequential`` | the loop above | nothing: one example changes all later gradients of its round |

References
----------
M. van Dijk, N. V. Nguyen, T. N. Nguyen, L. M. Nguyen, Q. Tran-Dinh and P. H. Nguyen, "Asynchronous federated learning
with reduced number of rounds and with differential privacy from less aggregated Gaussian noise", 2020: Algorithm 1,
Appendix A (server, broadcasts, aggregators), Appendix C.1 (masks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gossamer.algorithms.context import Context
from gossamer.algorithms.increasing.claims import increasing_claims
from gossamer.algorithms.increasing.client import ClientNode
from gossamer.algorithms.increasing.server import SERVER, AggregatorNode, ServerNode
from gossamer.algorithms.increasing.settings import PrivacySizes, PublicRounds, RoundsAhead, check_sizes, first_breach
from gossamer.algorithms.increasing.settings import Settings as Settings
from gossamer.algorithms.interface import Algorithm, Cast, Clips, Figures, SmallRuns, imported_when_used
from gossamer.algorithms.plan import Plan, Problem, least_noise, smallest_node
from gossamer.errors import SpecError
from gossamer.privacy.guarantees import Claim
from gossamer.privacy.tasks import Query
from gossamer.protocol.node import Node
from gossamer.vectors import Model


def servers(settings: Settings) -> tuple[str, ...]:
    """The aggregators, from the clients up, and the server."""
    return (*(name for level in reversed(_levels(settings)) for name in level), SERVER)


def _levels(settings: Settings) -> list[list[str]]:
    """The aggregators of each level, from the server down."""
    return [[f"aggregator-{level}-{n}" for n in range(count)] for level, count in enumerate(settings.aggregators, 1)]


def parents(settings: Settings, names: Sequence[str]) -> dict[str, str]:
    """Parent of every node but the server: each level is dealt out evenly to the one above."""
    above = [SERVER]
    found: dict[str, str] = {}
    for members in [*_levels(settings), list(names)]:
        found.update({name: above[number * len(above) // len(members)] for number, name in enumerate(members)})
        above = members
    return found


def cast(settings: Settings, names: tuple[str, ...]) -> Cast:
    """The clients, and the tree above them."""
    return Cast(names, servers(settings), parents(settings, names))


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The clients by name, the aggregators, and the server."""
    _check_parts(settings, context)
    rounds = PublicRounds(settings, context.shard_sizes, context.seed)
    above = parents(settings, context.names)

    def query(name: str, i: int) -> Query:
        common, size, examples = context.queries[name], rounds.of(name, i), context.shard_sizes[name]
        if size > examples and settings.sampling is None:
            check_sizes(rounds, i + 1)
        sampling = type(common.sampling).of_batch(examples, size)
        return replace(common, sampling=sampling, normaliser=1.0)

    clients: dict[str, Node] = {name: ClientNode(name, above[name], context, rounds, query) for name in context.names}
    below: dict[str, dict[str, int]] = {name: {} for name in servers(settings)}
    for name in [*context.names, *servers(settings)[:-1]]:
        below[above[name]][name] = sum(below[name].values()) if name in below else 1
    gatherers: dict[str, Node] = {
        name: AggregatorNode(name, above[name], context, below[name], rounds) for name in servers(settings)[:-1]
    }
    server = ServerNode(SERVER, context, below[SERVER], rounds)
    return {**clients, **gatherers, SERVER: server}


def _check_parts(settings: Settings, context: Context) -> None:
    if settings.parts > context.initial.size:
        raise SpecError(f"algorithm.parts is at most the model's size {context.initial.size}, found {settings.parts}")


def model_of(node: Node) -> Model:
    """The model this node would deploy: the newest global one, less a client's own updates that it lacks."""
    return node.base if isinstance(node, ClientNode) else node.state.v


def output(nodes: Mapping[str, Node]) -> Model:
    """The server's model, or where it is gone the newest that another has."""
    newest = nodes[SERVER] if SERVER in nodes else max(nodes.values(), key=lambda node: int(node.state.k))
    model: Model = newest.state.v
    return model


def count(nodes: Mapping[str, Node]) -> int:
    """Number of rounds of clients that the server has applied."""
    return int(nodes[SERVER].state.gathered)


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Complete rounds, and how many gradients were computed for what clients sent."""
    clients = [node for node in nodes.values() if isinstance(node, ClientNode)]
    return {
        "rounds": int(nodes[SERVER].state.k),
        "updates_applied": count(nodes),
        "gradients": sum(node.state.steps for node in clients),
    }


def advice(settings: Settings, context: Context, updates: int) -> list[str]:
    """Says so where a delay function is given that the sizes do not keep to.

    Raises
    ------
    SpecError
        If the model has fewer parameters than parts.
    """
    _check_parts(settings, context)
    rule, quotas = settings.delay, context.quotas
    if rule.tau is None or quotas is None:
        return []
    if isinstance(rule, RoundsAhead):
        d, follows = rule.d, "so the paper's convergence theorem says nothing of this run"
    else:
        d, follows = 1, "so clients may have to wait there for the updates of the round before"
    sizes = PublicRounds(settings, context.shard_sizes, context.seed)
    i = first_breach(rule.tau, sizes, d, max(quotas.values()))
    if i is None:
        return []
    return [
        f"increasing: condition (2), tau(s_0 + ... + s_i) >= s_(i-{d}) + ... + s_i, fails first at i = {i}, {follows}"
    ]


def claims(problem: Problem[Settings], plan: Plan) -> list[Claim]:
    """Claims of the paper's two theorems on privacy for the client with the fewest examples."""
    law, name, settings = least_noise(problem, plan).normal, smallest_node(problem), problem.settings
    if law is None:
        return []
    releases = plan.releases[name] - sum(problem.beforehand.values())
    sizes, shard = [problem.workload.of(name, i) for i in range(releases)], problem.shard_sizes[name]
    if max(sizes) > shard:
        return []  # possible for sequential rounds only, and the theorems know no such rounds
    schedule = settings.sizes
    power = (schedule.q, schedule.m, schedule.p) if isinstance(schedule, PrivacySizes) else None
    return increasing_claims(sizes, shard, law.noise_multiplier * settings.terms.sensitivity, problem.spec.delta, power)


# What the server's model holds is tested against its updates, one by one.
ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    model_of=model_of,
    output=output,
    roles=("client", "aggregator", "server"),
    cast=cast,
    decided=Settings.decided,
    terms=lambda settings: settings.terms,
    clips=Clips(("fixed", "none"), laws=("gaussian", "none")),
    workload=PublicRounds,
    figures=Figures(count=count, report=report, advice=advice, claims=claims),
    small_runs=lambda settings: SmallRuns(
        (
            {"nodes": 2, "rounds": 4, "aggregators": []},
            {"nodes": 4, "rounds": 3, "aggregators": []},
            {"nodes": 3, "rounds": 3, "aggregators": [2]},
        ),
        fitting={"sizes": {"name": "power", "a": 3, "b": 6}, "weights": "equal", "gradients": None},
    ),
    command=imported_when_used("gossamer.algorithms.increasing.command"),
)
