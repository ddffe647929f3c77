"""FedAvg: rounds of local training at a cohort of clients, with noise for whole clients by themselves or by the server.

Server, with the model x, in round t = 0, 1, ..., T - 1:      Client c, whenever it is given a model x:

1. draw a cohort S of the clients                             1. w = x; E epochs: w = w - eta_l grad f(w; batch)
2. give x to those in S                                       2. u = w - x, clipped as a whole to C
3. take their updates u                                       3. u = u + noise, unless the server adds it
4. g = (sum of the updates)/m  [+ noise/m]                    4. push u
5. x = x + eta_g g, or the server's optimizer's move for g

(A client's 1 to 3 happen at its data side, and so do 1 and 4 of a server that adds the noise.) Updates count alike,
however many examples are behind them: a weight by a private number of examples would tell it.

| symbol | here |
|---|---|
| T | `Settings.rounds` |
| m | `Settings.clients_per_round` |
| S | `Settings.cohorts`: m clients by public coins, or each with probability m/N by the server's own |
| E, eta_l | `Settings.local_epochs`, or ``local_steps``; ``local_learning_rate`` |
| eta_g | `Settings.learning_rate`, with `Settings.server_optimizer` |
| C | ``privacy.clip`` |
| x, t | the server's `state.x`, `state.t` |

Where clients add the noise themselves, line 4 divides by how many have answered, which all see; where the server adds
it, by m, which is public. Whoever answers after `Settings.timeout` is left out, and so is whoever is not among the
first m where more are asked (`Settings.over_selection`). Clients that wait for a round of theirs are asked in it; one
that was asked and came late is asked again when it is drawn again.

The server is in `fedavg.server`, and clients are in `algorithms.clients`.

References
----------
B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Aguera y Arcas, "Communication-efficient learning of deep networks
from decentralized data", AISTATS 2017, Algorithm 1; B. McMahan, D. Ramage, K. Talwar and L. Zhang, "Learning
differentially private recurrent language models", ICLR 2018, Algorithm 1 (clients drawn by coins of their own, a whole
update clipped, a fixed denominator); S. Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2;
K. Bonawitz et al., "Towards federated learning at scale: system design", MLSys 2019, section 2.2 (more devices are
selected than a round needs).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from gossamer.algorithms.clients import parts
from gossamer.algorithms.clients.masked_planning import plan_masked
from gossamer.algorithms.clients.messages import SERVER
from gossamer.algorithms.clients.parts import (
    masked_nodes,
    masked_rounds,
    masked_runs,
    sums_counted,
    sums_remarked,
)
from gossamer.algorithms.clients.planning import check as check_clients
from gossamer.algorithms.clients.planning import plan_clients, stop_of
from gossamer.algorithms.clients.rounds import RoundSettings, check_followed, final_clip, participation_in_rounds, shown
from gossamer.algorithms.clients.settings import workload
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedavg.server import RoundServer
from gossamer.algorithms.interface import Algorithm, Clips, Figures, SmallRuns
from gossamer.algorithms.nodes import model_of, output
from gossamer.algorithms.plan import Plan
from gossamer.algorithms.problem import Problem, Spec
from gossamer.protocol.node import Node


class Settings(RoundSettings):
    """Settings of `fedavg`, which are those of rounds of clients."""

    name: Literal["fedavg"] = "fedavg"


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The clients by name, and the server."""
    if settings.masking is not None:
        return masked_nodes(settings, context, masked_rounds(settings, context.seed, context.names))
    return {**parts.clients(settings, context), SERVER: RoundServer(context, settings)}


def check(settings: Settings, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each."""
    yield from check_clients(settings, spec)
    yield from check_followed(settings, spec)
    if settings.secret and spec.private:
        yield from shown(spec, settings.timeout)


def plan(problem: Problem[Settings]) -> Plan:
    """The plan of clients in the rounds that they are asked in."""
    stop = stop_of(problem.spec)
    if problem.settings.masking is not None:
        return plan_masked(problem, masked_rounds(problem.settings, problem.seed, problem.names), stop)
    return plan_clients(problem, participation_in_rounds(problem), stop)


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Rounds; how many clients were in them may be secret."""
    server = nodes[SERVER]
    return {"steps": server.state.t, **sums_counted(server), **final_clip(server.state)}


def small_runs(settings: Settings) -> SmallRuns:
    """Runs for simulated faults; nobody is cut off where that would show a secret cohort."""
    fitting = parts.fitting(settings)
    if settings.masking is not None:
        masked = (
            {"nodes": 4, "rounds": 2, "clients_per_round": None},
            {"nodes": 5, "rounds": 2, "clients_per_round": 3},
        )
        return masked_runs(settings, fitting, masked)
    over = None if settings.over_selection is None else 1.5
    waits = settings.cohorts == "secret"
    sizes = (
        {"nodes": 3, "rounds": 3, "clients_per_round": 2 if over or waits else None},
        {"nodes": 5, "rounds": 3, "clients_per_round": 2},
        {"nodes": 4, "rounds": 4, "clients_per_round": 2},
    )
    return SmallRuns(sizes, {**fitting, "over_selection": over}, parts.asks(settings), waits=waits)


ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    model_of=model_of,
    output=output,
    roles=("client", "server"),
    cast=parts.cast,
    terms=lambda settings: parts.terms(settings, settings.rounds),
    check=check,
    plan=plan,
    workload=workload,
    figures=Figures(
        count=parts.count,
        report=report,
        remarks=lambda nodes: [*parts.lost(nodes[SERVER]), *sums_remarked(nodes[SERVER])],
        advice=parts.advice,
    ),
    clips=Clips(("fixed", "quantile"), laws=parts.LAWS),
    small_runs=small_runs,
)
