"""Edge-cloud learning: `audp`, and without noise `asgd` and `csgd`.

Edge k, for ever:                                       Cloud server, for ever:

1. pull x and the clip C                                1. take the next gradient g~, first-in first-out;
2. sample a batch                                          it was computed at x_{t-tau_t}
3. g = mean of gradients clipped to C at x              2. x_{t+1} = x_t - eta_t g~
4. g~ = g + noise                                       3. answer at once with x_{t+1} (and the clip)
5. push g~                                              4. after T updates send Halt to all

(2 to 4 of an edge happen at its data side.) The nodes themselves are in `edge_cloud.nodes`.

| name | is |
|---|---|
| `audp` | the above, with a fixed clip, or one that follows a quantile |
| `asgd` | the same without noise |
| `csgd` | that with one node, which holds all data: centralised, and nothing is ever stale |

| symbol | here |
|---|---|
| x_t | the server's `state.x`, t its `state.t` |
| eta_t | `Settings.learning_rate`; with `Settings.optimizer` the server takes its move in the place of g~ |
| tau_t | t less the version that came with the gradient; see `staleness` |
| T | ``stop.updates`` |

References
----------
MAPA paper, section 5 (AUDP, from the theory of Agarwal and Duchi, "Distributed delayed stochastic optimization", NIPS
2011) and section 7.1 (ASGD, CSGD).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, model_validator

from gossamer.algorithms.clients import parts
from gossamer.algorithms.clients.messages import SERVER
from gossamer.algorithms.context import Context
from gossamer.algorithms.edge_cloud.claims import mapa_claims
from gossamer.algorithms.edge_cloud.nodes import Course, EdgeNode, ServerNode, StalenessSettings
from gossamer.algorithms.edge_cloud.nodes import Step as Step
from gossamer.algorithms.interface import Algorithm, Cast, Clips, Figures, SmallRuns, Terms
from gossamer.algorithms.nodes import model_of, output
from gossamer.algorithms.optimizer import (
    ConstantRate,
    CosineRate,
    EpochRate,
    Optimizer,
    RateSchedule,
    StepRate,
    WarmupAnnealRate,
    from_number,
)
from gossamer.algorithms.plan import Plan, least_noise
from gossamer.algorithms.problem import Problem
from gossamer.privacy.clipping import QuantileClip, bound_of
from gossamer.privacy.guarantees import Claim
from gossamer.privacy.mechanisms import L2Laplace, NeighboringRelation
from gossamer.privacy.paper_noise import PaperNoise
from gossamer.protocol.node import Node
from gossamer.section import Composite


class AgarwalDuchiRate(RateSchedule):
    """eta_t = 1 / (L (tau + 1)^2 + sqrt(Delta_b (t + 1)) / R), with Delta_b = s^2/B + max_k E||n_k||^2.

    With ``lag: linear`` it is 1 / (2 L (tau + 1) + sqrt(Delta_b (t + 1)) / R), AUDP's in the code that MAPA's authors
    published, with R = 1; their paper's own formula is lost in the text that there is.

    Attributes
    ----------
    smoothness : float
        L, a Lipschitz constant of the gradient.
    gradient_sd : float
        s, the root of the mean squared distance of one example's gradient from the mean gradient.
    radius : float
        R, of the ball in which the optimum lies.
    staleness : int, optional
        tau; by default the number of nodes less one.
    lag : {"quadratic", "linear"}
        Law by which the step falls with tau.

    References
    ----------
    Agarwal and Duchi, "Distributed Delayed Stochastic Optimization", NeurIPS 2011.
    """

    schedule: Literal["agarwal_duchi"] = "agarwal_duchi"
    smoothness: PositiveFloat
    gradient_sd: float = Field(ge=0)
    radius: PositiveFloat = 1.0
    staleness: int | None = Field(default=None, ge=0)
    lag: Literal["quadratic", "linear"] = "quadratic"

    def at_update(self, update: int, nodes: int, batch_size: int, noise: float) -> float:
        """eta_t for ``update`` (from 0) and a second moment ``noise`` of the noise on the mean."""
        lag = (nodes - 1 if self.staleness is None else self.staleness) + 1
        variance = self.gradient_sd**2 / batch_size + noise
        slow = lag**2 if self.lag == "quadratic" else 2 * lag
        return 1 / (self.smoothness * slow + math.sqrt(variance * (update + 1)) / self.radius)


ServerRate = Annotated[
    Annotated[
        ConstantRate | StepRate | WarmupAnnealRate | CosineRate | AgarwalDuchiRate, Field(discriminator="schedule")
    ],
    BeforeValidator(from_number),
]
"""A number, or a mapping with a ``schedule``."""


class Settings(Composite):
    """Settings of `audp`, `asgd` and `csgd`.

    Attributes
    ----------
    name : {"audp", "asgd", "csgd"}
        Name: with noise, without, and without by one node that holds all data.
    nodes : int
        K, the number of edges; the server is one more.
    learning_rate : float or schedule
        eta, for the mean gradient. Epochs are those of all edges together.
    optimizer : str or mapping, optional
        Optimizer of the server, for noisy gradients; ``sgd`` takes them as they are.
    staleness : mapping
        Treatment of stale gradients by the server.
    batch_size : int
        B, the expected number of examples in a batch; an edge samples each of its n examples with probability B/n.
    updates_per_node : int, optional
        Quota of gradients of each edge.
    """

    name: Literal["audp", "asgd", "csgd"] = "audp"
    nodes: int = Field(default=5, ge=1, le=1_000_000)
    learning_rate: ServerRate = ConstantRate(initial=0.5)
    optimizer: Optimizer = None
    staleness: StalenessSettings = StalenessSettings()
    batch_size: int = Field(default=64, ge=1)
    updates_per_node: int | None = Field(default=None, ge=1, le=10_000_000)

    @model_validator(mode="before")
    @classmethod
    def _centralised_is_one_node(cls, values: Any) -> Any:
        return {"nodes": 1, **values} if isinstance(values, dict) and values.get("name") == "csgd" else values

    @model_validator(mode="after")
    def _centralised_has_one_node(self) -> Settings:
        if self.name == "csgd" and self.nodes != 1:
            raise ValueError(f"csgd is centralised, so nodes must be 1, found {self.nodes}; or take asgd")
        return self

    @model_validator(mode="after")
    def _the_server_counts_all(self) -> Settings:
        if isinstance(self.learning_rate, EpochRate) and self.learning_rate.clock == "own":
            raise ValueError(
                f"learning_rate.clock: the server of {self.name} counts the updates of all edges, which is global, "
                "found own; leave it out"
            )
        return self


@dataclass(frozen=True)
class AudpCourse:
    """Fixed clip, and a learning rate by the clock of updates."""

    rate: ConstantRate | StepRate | WarmupAnnealRate | CosineRate | AgarwalDuchiRate
    nodes: int
    batch_size: int
    updates_per_epoch: float
    noise: float

    def at(self, update: int) -> Step:
        if isinstance(self.rate, AgarwalDuchiRate):
            return Step(self.rate.at_update(update, self.nodes, self.batch_size, self.noise))
        return Step(self.rate.at(update / self.updates_per_epoch))


def noise_on_mean(context: Context, clip: float | None = None) -> float:
    """max_k E||n_k||^2, of the noise on a mean gradient, for ``clip`` or the one at the start.

    Per edge: the schedule uses the one with the most noise, that is the smallest privacy budget.
    """
    moments = []
    for query in context.queries.values():
        law = query.mechanism if clip is None else query.mechanism.with_clip(clip)
        moments.append(law.second_moment(context.initial.size) / query.normaliser**2)
    return max(moments)


def cast(settings: Any, names: tuple[str, ...]) -> Cast:
    """The edges, and the cloud server that each talks to."""
    return Cast(names, (SERVER,), dict.fromkeys(names, SERVER))


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The edges by name, and the server."""
    per_epoch = sum(context.shard_sizes.values()) / settings.batch_size
    policy = context.clipping.policy
    # A clip that moves: no step is noisier than with its bound.
    clip = policy.step_bound if isinstance(policy, QuantileClip) else None
    noise = noise_on_mean(context, clip)
    course = AudpCourse(settings.learning_rate, settings.nodes, settings.batch_size, per_epoch, noise)
    return built(context, course, settings.staleness, settings.optimizer)


def built(
    context: Context, course: Course, staleness: StalenessSettings, optimizer: Optimizer = None
) -> dict[str, Node]:
    """The edges by name, and a server that takes the steps of ``course``."""
    edges: dict[str, Node] = {name: EdgeNode(name, context) for name in context.names}
    return {**edges, SERVER: ServerNode(context, course, staleness, optimizer)}


def server_of(nodes: Mapping[str, Node]) -> ServerNode:
    """The server."""
    server = nodes[SERVER]
    assert isinstance(server, ServerNode)
    return server


def count(nodes: Mapping[str, Node]) -> int:
    """Number of updates that the server has applied."""
    return int(nodes[SERVER].state.t)


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Report on how stale gradients were, and what became of them."""
    state = nodes[SERVER].state
    return {
        "updates_applied": state.t,
        "updates_dropped": state.dropped,
        "staleness_mean": state.staleness_sum / state.t if state.t else 0.0,
        "staleness_max": state.staleness_most,
        "last_clip": bound_of(state.log_clip),
    }


def claims(problem: Problem[Any], plan: Plan) -> list[Claim]:
    """Claims of the paper for each release, and for all of them together."""
    law = least_noise(problem, plan)
    if not isinstance(law, (L2Laplace, PaperNoise)):
        return []
    # The paper's epsilon is that of replacing an example, which moves a sum by 2C.
    epsilon = NeighboringRelation.REPLACE_ONE.sensitivity(law.clip) / law.scale
    return mapa_claims(epsilon, plan.updates, problem.spec.delta, conditions_hold=law.private)


def small_runs(settings: Any) -> SmallRuns:
    """Few edges, or the one of `csgd`."""
    several = (
        {"nodes": 3, "updates_per_node": 3},
        {"nodes": 5, "updates_per_node": 2},
        {"nodes": 4, "updates_per_node": 3, "stop": {"updates": 5}},
    )
    alone = ({"nodes": 1, "updates_per_node": 4},)
    return SmallRuns(alone if settings.name == "csgd" else several, fitting={"batch_size": 4})


# That the server's model is the sum of its steps is tested against a reference.
ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    model_of=model_of,
    output=output,
    roles=("edge", "server"),
    cast=cast,
    terms=lambda settings: Terms(noiseless=settings.name != "audp"),
    clips=Clips(("fixed", "quantile"), QuantileClip()),
    figures=Figures(count=count, staleness=parts.staleness, report=report),
    grows=True,
    claims=claims,
    small_runs=small_runs,
)
