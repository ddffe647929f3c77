"""MAPA: edge-cloud learning in stages, each with a smaller clip, hence less noise, than the one before.

The server of `edge_cloud`, with

    dS <- 2 s / (B sqrt(1 - sqrt(1 - kappa)))                    the first stage (Theorem 3)
    G = B dS / 2                                                 the clip
    Delta_b = s^2/B + max_k E||n_k||^2                           variance of the noisy gradient
    P = max(1, 2 Delta_b / ((tau + 1) rho^2 G^2))
    eta = 1 / (2 L P (tau + 1))                                  the learning rate
    T_s = ceil(4 P^2 L D_F (tau + 1)^2 / Delta_b)                the length of the stage, in updates
    after T_s updates: dS <- rho dS, and the next stage

The schedule is a pure function of public constants (`mapa.stages`), so it costs no privacy, and ``gossamer plan mapa``
prints it. With ``privacy_unit: client`` an edge's whole gradient is clipped to G, and B is 1 in all of it
(`clients.whole`).

| symbol | here |
|---|---|
| s, L, D_F | `Settings.gradient_sd`, `smoothness`, `loss_gap`; estimated on synthetic examples if left out |
| kappa, rho | `Settings.kappa`, `reduction` |
| tau | `Settings.schedule_staleness` |
| first G | ``privacy.clip: {policy: stages, initial: ...}`` |

References
----------
MAPA paper, section 6, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, model_validator

from gossamer.algorithms.clients import whole
from gossamer.algorithms.clients.nodes import SERVER
from gossamer.algorithms.clients.whole import EdgeSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.edge_cloud import box as edge_cloud
from gossamer.algorithms.edge_cloud.box import StalenessSettings
from gossamer.algorithms.interface import Clips, SmallRuns
from gossamer.algorithms.mapa.stages import COMMAND, Problem, Schedule, initial_clip
from gossamer.errors import SpecError
from gossamer.privacy.clipping import StageClip
from gossamer.protocol.node import Node

CONSTANTS = ("gradient_sd", "smoothness", "loss_gap")
TESTBED = {
    "gradient_sd": 30.0,
    "smoothness": 10.0,
    "loss_gap": 50.0,
    "kappa": 0.001,
    "reduction": 0.5,
    "batch_size": edge_cloud.TESTBED_BATCH,
}
"""Constants of the code of the paper's testbed, whose tau is K."""


class Settings(EdgeSettings):
    """Settings of `mapa`.

    Attributes
    ----------
    paper : {"testbed"}, optional
        ``testbed``: batch size and constants of the stages are those of the code of the paper's testbed, with K as tau,
        where nothing else is said. For ``objective: cnn_mapa`` alone. Noise is said in ``privacy``.
    gradient_sd, smoothness, loss_gap : float, optional
        s, L and D_F: root of the mean squared distance of one example's gradient from the mean gradient, a Lipschitz
        constant of the gradient, and an upper bound of F(x_0) - F*. What is left out is estimated before training on
        synthetic examples, never on private data.
    kappa : float
        Probability in (0, 1) with which the first clip is too small for a gradient.
    reduction : float
        rho in (0, 1), by which the clip shrinks from stage to stage.
    schedule_staleness : int, optional
        tau of the schedule; by default the number of nodes less one.
    staleness : mapping
        Rule for what the server does about stale gradients.
    """

    formerly: ClassVar[Mapping[str, Any]] = {"estimate_on": "synthetic"}

    name: Literal["mapa"] = "mapa"
    paper: Literal["testbed"] | None = None
    gradient_sd: PositiveFloat | None = None
    smoothness: PositiveFloat | None = None
    loss_gap: PositiveFloat | None = None
    kappa: float = Field(default=0.1, gt=0, lt=1)
    reduction: float = Field(default=0.5, gt=0, lt=1)
    schedule_staleness: int | None = Field(default=None, ge=0)
    staleness: StalenessSettings = StalenessSettings()

    @model_validator(mode="before")
    @classmethod
    def _steps_are_the_papers(cls, values: Any) -> Any:
        if isinstance(values, dict) and "optimizer" in values:
            raise ValueError(
                "mapa's stages follow from plain steps, so it has no optimizer; leave it out, or take audp"
            )
        return values

    @classmethod
    def _implied(cls, said: Mapping[str, Any]) -> Mapping[str, Any]:
        if said.get("paper") != "testbed":
            return {}
        return {**TESTBED, "schedule_staleness": said.get("nodes", cls.model_fields["nodes"].default)}

    @property
    def missing(self) -> tuple[str, ...]:
        """The constants that have to be estimated."""
        return tuple(name for name in CONSTANTS if getattr(self, name) is None)


@dataclass(frozen=True)
class MapaCourse:
    """Learning rate and clip of the stage that an update belongs to."""

    schedule: Schedule

    def __call__(self, update: int) -> edge_cloud.Step:
        number, stage = self.schedule.at(update)
        values = {"number": float(number), **{name: float(value) for name, value in asdict(stage).items()}}
        return edge_cloud.Step(stage.learning_rate, number, stage.clip, values)


def problem_of(settings: Settings) -> Problem:
    """Return what the stages are computed from.

    Raises
    ------
    SpecError
        If s, L or D_F is not known.
    """
    if settings.missing:
        raise SpecError("mapa needs algorithm.gradient_sd, smoothness and loss_gap; give them or have them estimated")
    return Problem(
        **{name: getattr(settings, name) for name in CONSTANTS},
        staleness=settings.nodes - 1 if settings.schedule_staleness is None else settings.schedule_staleness,
        batch_size=settings.divisor,
        kappa=settings.kappa,
        reduction=settings.reduction,
    )


def first_clip(settings: Settings) -> float:
    """The clip at the start, where the spec gives none (Theorem 3)."""
    return initial_clip(problem_of(settings))


def schedule_of(settings: Settings, context: Context) -> Schedule:
    """The stages of a run; raises as `problem_of`."""
    problem = problem_of(settings)
    return Schedule(
        problem, partial(edge_cloud.noise_on_mean, context, whole=settings.whole), context.clipping.policy.initial_bound
    )


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The edges by name, and the server."""
    return edge_cloud.built(settings, context, MapaCourse(schedule_of(settings, context)))


def advice(settings: Settings, context: Context, updates: int) -> list[str]:
    """Says so if the run ends inside a stage: its clip and learning rate were chosen for more updates."""
    updates = updates if context.updates is None else context.updates  # more is planned than made: some is under way
    stages = schedule_of(settings, context).lengths(updates)
    made = updates - sum(stage.updates for stage in stages[:-1])
    if not stages or made == stages[-1].updates:
        return []
    lengths = ", ".join(str(stage.updates) for stage in stages)
    if len(stages) == 1:
        return [
            f"mapa: {updates} updates are fewer than the first stage has, so the clip never shrinks; its length is "
            f"{lengths} updates (see gossamer plan mapa)"
        ]
    return [
        f"mapa: the run ends inside stage {len(stages)}, after {made} of its {stages[-1].updates} updates; the stages "
        f"last {lengths} updates (see gossamer plan mapa)"
    ]


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Report on how stale gradients were, and the stages that were entered."""
    server: Any = nodes[SERVER]
    stages = server.course.schedule.lengths(server.state.t + 1)
    return {**edge_cloud.report(nodes), "stages": [asdict(stage) for stage in stages]}


def small_runs(settings: Settings) -> SmallRuns:
    """Those of `edge_cloud`, with stages of two or three updates."""
    stages = {"gradient_sd": 1.0, "smoothness": 1.0, "loss_gap": 0.01, "schedule_staleness": None}
    few = edge_cloud.small_runs(settings)
    return replace(few, fitting={**few.fitting, **stages})


# What `edge_cloud` does, by stages.
ALGORITHM = replace(
    edge_cloud.ALGORITHM,
    Settings=Settings,
    build=build,
    terms=whole.terms,
    clips=Clips(("stages",), StageClip(), first_clip),
    estimates=lambda settings: settings.missing,
    figures=replace(edge_cloud.ALGORITHM.figures, report=report, advice=advice),
    grows=False,
    small_runs=small_runs,
    command=lambda: COMMAND,
)
