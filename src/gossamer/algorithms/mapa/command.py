"""``gossamer plan mapa``: MAPA's stages, and what they prove."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from gossamer.algorithms.command import AcceptWeak, Answer, Command, Doing, Option, Table, refuse
from gossamer.algorithms.mapa.stages import (
    Problem,
    StagePlan,
    calibrate_stages,
    claimed,
    descent,
    gaussian_epsilon,
    gaussian_second_moment,
    in_words,
    l2_laplace_epsilons,
    l2_laplace_second_moment,
    plan_stages,
)
from gossamer.errors import CallerError, counted
from gossamer.privacy.guarantees import remarks
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.sampling import Poisson

_OF_L2_LAPLACE = ("epsilon",)
_OF_GAUSSIAN = ("noise_multiplier", "budget")
_DELTA = 1e-5
"""At which releases of L2-Laplace noise are composed, where none is given."""


@dataclass(frozen=True, kw_only=True)
class Options(Problem):
    """Options of the command."""

    size: Annotated[int, Option("number of parameters", "D", ge=1)]
    clip: Annotated[float | None, Option("first clip; default: that of Theorem 3", "G", gt=0)] = None
    stages: Annotated[int, Option("how many stages (default 5)", "N", ge=1)] = 5
    noise: Annotated[
        Literal["l2_laplace", "gaussian"], Option("the noise law", asked="--noise l2_laplace or --noise gaussian")
    ]
    epsilon: Annotated[float | None, Option("of one release; for l2_laplace", "E", gt=0)] = None
    noise_multiplier: Annotated[
        float | None, Option("sd of the sum's noise / clip; for gaussian", "Z", ge=0.01, le=10**6)
    ] = None
    budget: Annotated[float | None, Option("epsilon of all releases instead; for gaussian", "E", gt=0)] = None
    delta: Annotated[
        float | None, Option("of all releases together (of l2_laplace: default 1e-5)", "D", gt=0, lt=1)
    ] = None
    accept_weak: AcceptWeak = False
    dataset_size: Annotated[int | None, Option("examples at an edge, of which batches are samples", "N", ge=1)] = None
    radius: Annotated[float | None, Option("of the ball that models stay in, for AUDP's bound", "R", gt=0)] = None
    nodes: Annotated[int | None, Option("edges in turn; default: one edge makes all releases", "K", ge=1)] = None
    neighboring_relation: Annotated[
        NeighboringRelation | None, Option("default: replace_one for l2_laplace, add_or_remove_one for gaussian")
    ] = None


def answer(options: Options, doing: Doing) -> Answer:
    """Return the stages, and what they prove."""
    gaussian = options.noise == "gaussian"
    other, others = ("l2_laplace", _OF_L2_LAPLACE) if gaussian else ("gaussian", _OF_GAUSSIAN)
    refuse(options, others, f"only for --noise {other}; leave out with --noise {options.noise}")
    default = NeighboringRelation.ADD_OR_REMOVE_ONE if gaussian else NeighboringRelation.REPLACE_ONE
    relation = options.neighboring_relation or default
    plan, privacy, said = (_gaussian if gaussian else _l2_laplace)(options, relation)
    weak = []
    if gaussian and privacy["epsilon"] is not None:
        weak = remarks(privacy["epsilon"], privacy["delta"], options.dataset_size, "an edge")
    theory = claimed(options, plan, options.radius)
    document = {
        "stages": [asdict(stage) for stage in plan.stages],
        "updates": plan.updates,
        "releases": plan.releases,
        "noise": options.noise,
        **privacy,
        "theory": theory,
    }
    text = (Table(_rows(options, plan)), f"Privacy: {said}", f"Theory: {in_words(theory)}")
    return Answer(document, text, weak)


_Private = tuple[StagePlan, dict[str, Any], str]
"""Stages, figures of their privacy as plain data, and a sentence on it."""


def _l2_laplace(options: Options, relation: NeighboringRelation) -> _Private:
    if options.epsilon is None:
        raise CallerError("--noise l2_laplace needs --epsilon, of one release")
    epsilon, delta, size = options.epsilon, options.delta or _DELTA, options.dataset_size
    moment = l2_laplace_second_moment(options.size, epsilon, options.batch_size, relation)
    plan = plan_stages(options, moment, options.stages, options.nodes, options.clip)
    batches = Poisson(1.0) if size is None else _sampling(options, size)
    found = l2_laplace_epsilons(plan.releases, epsilon, options.size, delta, relation, batches)
    total = plan.releases * epsilon  # epsilons of single releases add up
    privacy = _figures(None, epsilon, total, 0.0, relation)
    composed = "at a delta no total is computed, so much is lost in them"
    if found:
        composed = (
            f"at delta {delta:g} epsilon is {found['advanced']:.6g} by advanced composition, and {found['tight']:.6g} "
            f"by the noise's own law (tight){'' if size is None else ', which counts sampling'}"
        )
    said = (
        f"one release is {epsilon:g}-differential privacy {_of_example(relation)}; its "
        f"{counted(plan.releases, 'release')} together are {total:.6g}-differential privacy by basic composition, "
        f"which needs no sampling; {composed}"
    )
    return plan, {**privacy, "composed": {"delta": delta, **found}}, said


def _gaussian(options: Options, relation: NeighboringRelation) -> _Private:
    if (options.noise_multiplier is None) == (options.budget is None):
        raise CallerError("--noise gaussian needs either --noise-multiplier, or --budget, --delta and --dataset-size")
    accounted, noise, epsilon = _accounted(options), options.noise_multiplier, None
    if noise is not None:
        moment = gaussian_second_moment(options.size, noise, options.batch_size)
        plan = plan_stages(options, moment, options.stages, options.nodes, options.clip)
        if accounted is not None:
            epsilon = gaussian_epsilon(plan.releases, noise, accounted[0], relation, accounted[1])
    elif options.budget is not None and accounted is not None:
        delta, sampling = accounted
        budget, nodes, clip = (options.budget, delta), options.nodes, options.clip
        noise, epsilon, plan = calibrate_stages(
            options, options.size, options.stages, budget, relation, sampling, nodes, clip
        )
    releases, said = counted(plan.releases, "release"), f"noise multiplier {noise:.6g}"
    if epsilon is None:
        said += f"; give --delta and --dataset-size for what {releases} of an edge prove"
    else:
        said += f"; ({epsilon:.6g}, {options.delta:g})-differential privacy {_of_example(relation)}, in {releases}"
    return plan, _figures(noise, None, epsilon, options.delta, relation), said


def _figures(
    noise: float | None, release: float | None, total: float | None, delta: float | None, relation: NeighboringRelation
) -> dict[str, Any]:
    return {
        "noise_multiplier": noise,
        "release_epsilon": release,
        "epsilon": total,
        "delta": delta,
        "neighboring_relation": relation.value,
    }


def _of_example(relation: NeighboringRelation) -> str:
    return f"({relation.value}) for each example of an edge"


def _accounted(options: Options) -> tuple[float, Poisson] | None:
    """Delta and sampling of batches; None where neither --dataset-size nor anything that needs it is given."""
    if options.delta is not None and options.dataset_size is not None:
        return options.delta, _sampling(options, options.dataset_size)
    needed = {"--budget": options.budget, "--delta": options.delta, "--dataset-size": options.dataset_size}
    if given := [flag for flag, value in needed.items() if value is not None]:
        missing = [flag for flag in ("--delta", "--dataset-size") if needed[flag] is None]
        raise CallerError(f"{given[0]} needs {' and '.join(missing)} as well")
    return None


def _sampling(options: Options, dataset_size: int) -> Poisson:
    """Return the sampling of an edge with so many examples."""
    if options.batch_size > dataset_size:
        raise CallerError(f"--dataset-size must be at least --batch-size {options.batch_size}, found {dataset_size}")
    return Poisson(options.batch_size / dataset_size)


def _rows(problem: Problem, plan: StagePlan) -> list[list[str]]:
    rows = [["stage", "clip", "sensitivity (replace one)", "learning rate", "claimed gradient", "updates", "total"]]
    total = 0
    for number, (stage, norm) in enumerate(zip(plan.stages, descent(problem, plan), strict=True), 1):
        total += stage.updates
        figures = (f"{value:.5g}" for value in (stage.clip, stage.sensitivity, stage.learning_rate, norm))
        rows.append([str(number), *figures, str(stage.updates), str(total)])
    return rows


COMMAND = Command(
    Options,
    answer,
    help="MAPA's stages: clip, learning rate and number of updates of each",
    description="Compute MAPA's stages: clip, learning rate and number of updates of each.",
)
