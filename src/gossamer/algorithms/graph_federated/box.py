"""Graph federated learning: federated units whose servers are joined by a graph, with noise that cancels.

In round i = 0, 1, ..., T-1 each server p

 1. samples L of its agents                                                   (public coins)
 2. sends them w_p, its own state (hidden), or v_p (released)
    each of these agents k
 3.   w_0 = what it got
 4.   repeats E_k times: w_e = w_(e-1) - (mu/E_k) g, g a mini-batch gradient of length B at most
 5.   returns w_E - w_0                                                       (confined to the unit, or masked)
 6. psi_p = w_p + (the sum of these)/L
 7. M_p = psi_p + g_p                                                         (noise, at the data side)
 8. sends M_p to its neighbours
 9. w_p = psi_p - (1-a_pp) M_p + sum over neighbours m of a_pm M_m            (its noise is taken back)
10. v_p = a_pp M_p + sum over neighbours m of a_pm M_m

With `random` noise line 7 has noise of its own for each neighbour, and line 9 is w_p = a_pp psi_p + sum a_pm M_m. With
`random_own_term` the paper's equation (8) is taken by the letter: psi_p there has noise of its own, too.
With `homomorphic` noise, in step with each other, the mean of all w_p is that of all psi_p: the noise has cancelled.
An asynchronous server (``synchronous: false``) takes in lines 9 and 10 the newest M_m that it has; then what cancels is
noise of different rounds, and the mean moves by the difference.

A server's own state is never noised, so it never leaves the unit: what is released at the end is the mean of the last
M_p, which were sent anyway.

References
----------
"Privatized graph federated learning", eqs. 6-8 and 47-48. ``gradient_at: released``, correlated noise and what is
proved: docs/privacy/correlated-noise.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from gossamer.algorithms.context import Context, mean
from gossamer.algorithms.graph_federated.guarantees import gfl_claims
from gossamer.algorithms.graph_federated.neighbours import Combine, Reach, Weights
from gossamer.algorithms.graph_federated.nodes import AgentNode, ServerNode
from gossamer.algorithms.graph_federated.planning import plan_units
from gossamer.algorithms.graph_federated.settings import Sampling, check, combination, local_queries, units_of, workload
from gossamer.algorithms.graph_federated.settings import Settings as Settings
from gossamer.algorithms.graph_federated.settings import servers as servers
from gossamer.algorithms.interface import Algorithm, Cast, Clips, Figures, SmallRuns, Terms, imported_when_used
from gossamer.algorithms.plan import Plan, Problem
from gossamer.privacy.guarantees import Claim
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.streams.graph_bounds import GradientAt
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node
from gossamer.vectors import Confined, Model


def cast(settings: Settings, names: tuple[str, ...]) -> Cast:
    """The agents and their servers, which the topology joins; agents have copies of their server's model."""
    above = servers(settings)
    parents = {agent: unit.server for unit in units_of(settings, names) for agent in unit.agents}
    trust = parents | {server: server for server in above}
    return Cast(names, above, parents, joined=above, holders=above, trust=trust, topology=settings.topology)


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The agents by name, and the servers."""
    matrix = combination(settings, context.graph)
    names, units = servers(settings), units_of(settings, context.names, context.seed)
    clips = {name: context.queries[name].mechanism.clip for name in context.names}
    queries = local_queries(settings, context.shard_sizes, context.seed, clips)
    agents: dict[str, Node] = {}
    above: dict[str, Node] = {}
    for number, (unit, row) in enumerate(zip(units, matrix, strict=True)):
        others = {names[m]: float(row[m]) for m in np.flatnonzero(row).tolist() if m != number}
        weights = Weights(float(row[number]), others)
        reach = Reach.of(context, unit.sampled, max(queries[name].reach for name in unit.agents))
        make_server, make_agent = _kinds(settings, context, unit)
        above[unit.server] = make_server(context.initial, weights, unit, settings, reach, context.deadline)
        agents.update({name: make_agent(name, unit.server, context.initial, queries[name]) for name in unit.agents})
    return {**agents, **above}


def _kinds(
    settings: Settings, context: Context, of: Sampling
) -> tuple[Callable[..., ServerNode], Callable[..., AgentNode]]:
    """Constructors of the nodes of a unit."""
    if settings.masking.name != "secure":
        return ServerNode, AgentNode
    # Masks need cryptography, which is optional, so it is imported only here.
    from gossamer.algorithms.graph_federated.masking import MaskingAgentNode, MaskingServerNode

    clip = context.queries[context.names[0]].mechanism.clip  # the same for all
    unit = settings.unit(of.server, of.sampled, context.initial.size, clip, context.agent_noise, context.run)
    return partial(MaskingServerNode, unit=unit), partial(MaskingAgentNode, unit=unit)


def model_of(node: Node) -> Model | Confined:
    """Model that a node works at: a server's start for its agents, or what an agent got."""
    return node.state.start if isinstance(node, ServerNode) else node.state.w


def output(nodes: Mapping[str, Node]) -> Model:
    """The mean of what the servers sent last, or averaged from it: it follows from messages.

    Where all servers are gone, the newest model that an agent has and that is not confined to its unit.
    """
    found = [node for node in nodes.values() if isinstance(node, ServerNode)]
    if not found:
        newest = max(
            (node for node in nodes.values() if isinstance(node, AgentNode)), key=lambda node: node.state.round
        )
        return newest.initial if isinstance(newest.state.w, Confined) else newest.state.w
    last = mean([node.state.v if node.state.averaged else node.state.m for node in found])
    return last.astype(found[0].initial.values.dtype)


def unit_models(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """The models that gradients are taken at, by server, for measures of a simulation."""
    return {name: model_of(node).values for name, node in nodes.items() if isinstance(node, ServerNode)}


def count(nodes: Mapping[str, Node]) -> int:
    """Rounds of all servers, those of averaging at the end included."""
    return sum(node.state.round + node.state.averaged for node in nodes.values())


def staleness(server: Node, message: Message) -> int | None:
    """Count the rounds that a neighbour's model is behind the server when it comes."""
    return max(server.state.round - message.round, 0) if isinstance(message, Combine) else None


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Rounds of each server, how stale neighbours' models were, and what became of updates."""
    found = {name: node for name, node in nodes.items() if isinstance(node, ServerNode)}
    states = [node.state for node in found.values()]
    combined = sum(node.state.round * len(node.neighbours) for node in found.values())
    diverged = {name: node.state.round for name, node in found.items() if node.state.finished == "diverged"}
    refused = [state.sums_refused for state in states if hasattr(state, "sums_refused")]
    return {
        "rounds": {name: node.state.round for name, node in found.items()},
        "staleness_mean": sum(state.staleness_sum for state in states) / combined if combined else 0.0,
        "staleness_max": max((state.staleness_most for state in states), default=0),
        "updates_unanswered": sum(state.unanswered for state in states),
        **({"masked_sums_refused": sum(refused)} if refused else {}),
        **({"last_stable_round": min(diverged.values())} if diverged else {}),
    }


def remarks(nodes: Mapping[str, Node]) -> list[str]:
    """Remarks for a user on how a run ended."""
    found = report(nodes)
    stable, refused = found.get("last_stable_round"), found.get("masked_sums_refused")
    remarks = []
    if stable is not None:
        bounded = any(isinstance(node, ServerNode) and math.isfinite(node.reach.update) for node in nodes.values())
        what = f"round {stable} was the last stable one" if stable else "no round was stable"
        remedy = (
            "gradients are bounded, so the noise is too large: have fewer rounds, or a larger budget"
            if bounded
            else "lower algorithm.step_size, or bound gradients with privacy.clip"
        )
        remarks.append(f"graph_federated diverged: {what}; {remedy}")
    if refused:
        remarks.append(
            f"graph_federated: {refused} masked sums were not unmasked, because fewer agents were left than "
            "algorithm.masking says, or too few of their shares were right; these rounds had no updates"
        )
    return remarks


def claims(problem: Problem[Settings], plan: Plan) -> list[Claim]:
    """Claims of the paper's Theorem 2; see `gossamer.algorithms.graph_federated.guarantees`."""
    settings, (law, *_) = problem.settings, plan.mechanisms.values()
    # It is of noise between servers that average.
    if settings.gradient_at is None or settings.noise == "none" or settings.aggregation is not None:
        return []
    stream: Any = plan.side(servers(settings)[0])
    where = GradientAt(settings.gradient_at)
    return gfl_claims(stream.law, settings.rounds, settings.step_size, law.clip, where, random=settings.random)


def small_runs(settings: Settings) -> SmallRuns:
    """Few units of one or two agents; with masks enough of them that one can be missed."""
    masked = settings.masking.name == "secure"
    plain: tuple[Mapping[str, Any], ...] = (
        {"units": 2, "agents": 2, "rounds": 2},
        {"units": 2, "agents": 1, "rounds": 4},
        {"units": 3, "agents": 1, "rounds": 3},
    )
    if settings.aggregation is not None and settings.aggregation.least > 2:
        plain = ({"units": settings.aggregation.least, "agents": 1, "rounds": 3},)
    alone = {"mechanism": "none", "agent_noise": None}
    secure = (
        # Agents' noise alone would need more of them, and is none of the servers'.
        {"units": 2, "agents": 2, "rounds": 2, **({"privacy": alone} if settings.noise == "none" else {})},
        # Enough agents for one of them to be missed, and no other unit to protect them from.
        {"units": 1, "agents": 4, "rounds": 1, "noise": None, "gradient_at": None, "privacy": alone},
    )
    fitting = {"agents_sampled": None, "local_steps": 1, "batch_size": 2, "combination": "metropolis"}
    masking = {**settings.masking.model_dump(), "threshold": None, "minimum": None, "fraction_bits": None}
    return SmallRuns(
        secure if masked else plain,
        fitting={**fitting, "masking": masking},
        chunk=480 if masked else 112,  # messages about masks are longer than others
        unanswered=settings.consensus,
        levels={"gaussian": {"standard_deviation": 1.0}},
    )


# That noise cancels is tested at each combination step: nothing is kept after every event.
ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    model_of=model_of,
    output=output,
    roles=("agent", "server"),
    cast=cast,
    decided=Settings.decided,
    terms=lambda settings: Terms(
        sampling="with_replacement",
        unit="agent",
        relation=NeighboringRelation.REPLACE_ONE,
        hiding=settings.masking.name == "secure",
        rounds=True,
        linear=settings.aggregation is None,
    ),
    check=check,
    plan=plan_units,
    clips=Clips(("fixed", "none"), laws=("gaussian", "laplace", "none")),
    workload=workload,
    figures=Figures(
        count=count, staleness=staleness, unit_models=unit_models, report=report, remarks=remarks, claims=claims
    ),
    small_runs=small_runs,
    command=imported_when_used("gossamer.algorithms.graph_federated.command"),
)
