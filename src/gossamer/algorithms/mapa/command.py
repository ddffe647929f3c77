"""``gossamer plan mapa``: MAPA's stages, and what they prove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from gossamer.algorithms.command import (
    COUNT,
    POSITIVE,
    SHARE,
    WHOLE,
    AcceptWeak,
    Answer,
    Bounds,
    Command,
    Doing,
    Option,
    Table,
    refuse,
)
from gossamer.algorithms.mapa.bounds import claimed, descent, in_words
from gossamer.algorithms.mapa.stages import (
    Problem,
    StagePlan,
    calibrate_stages,
    gaussian_epsilon,
    gaussian_second_moment,
    l2_laplace_epsilons,
    l2_laplace_second_moment,
    plan_stages,
)
from gossamer.errors import CallerError, counted
from gossamer.privacy.guarantees import remarks
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.sampling import Poisson

ADD_OR_REMOVE, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
_MULTIPLIER = Bounds(ge=0.01, le=10**6)
_OF_L2_LAPLACE = ("epsilon",)
_OF_GAUSSIAN = ("noise_multiplier", "budget")
_DELTA = 1e-5
"""At which releases of L2-Laplace noise are composed, where none is given."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    batch_size: Annotated[int, Option("b, examples in a mini-batch", "B", COUNT)]
    gradient_sd: Annotated[float, Option("s, of one example's gradient, in L2 norm", "S", POSITIVE)]
    smoothness: Annotated[float, Option("Lipschitz constant of the gradient", "L", POSITIVE)]
    loss_gap: Annotated[float, Option("upper bound of F(x_0) - F*", "F", POSITIVE)]
    staleness: Annotated[int, Option("most updates between pull and use of a model", "TAU", WHOLE)]
    size: Annotated[int, Option("number of parameters", "D", COUNT)]
    kappa: Annotated[float, Option("failure probability of the first clip (default 0.1)", None, SHARE)] = 0.1
    reduction: Annotated[float, Option("of the clip, a stage (default 0.5)", "RHO", SHARE)] = 0.5
    clip: Annotated[float | None, Option("first clip; default: that of Theorem 3", "G", POSITIVE)] = None
    stages: Annotated[int, Option("how many stages (default 5)", "N", COUNT)] = 5
    noise: Annotated[
        Literal["l2_laplace", "gaussian"], Option("the noise law", asked="--noise l2_laplace or --noise gaussian")
    ]
    epsilon: Annotated[float | None, Option("of one release; for l2_laplace", "E", POSITIVE)] = None
    noise_multiplier: Annotated[
        float | None,
        Option("sd of the sum's noise / clip; for gaussian", "Z", _MULTIPLIER),
    ] = None
    budget: Annotated[float | None, Option("epsilon of all releases instead; for gaussian", "E", POSITIVE)] = None
    delta: Annotated[float | None, Option("of all releases together (of l2_laplace: default 1e-5)", "D", SHARE)] = None
    accept_weak: AcceptWeak = False
    dataset_size: Annotated[int | None, Option("examples at an edge, of which batches are samples", "N", COUNT)] = None
    radius: Annotated[float | None, Option("of the ball that models stay in, for AUDP's bound", "R", POSITIVE)] = None
    nodes: Annotated[int | None, Option("edges in turn; default: one edge makes all releases", "K", COUNT)] = None
    neighboring_relation: Annotated[
        NeighboringRelation | None,
        Option("default: replace_one for l2_laplace, add_or_remove_one for gaussian"),
    ] = None


@dataclass(frozen=True)
class _Privacy:
    """Knowledge of the noise of a plan."""

    noise: str
    relation: NeighboringRelation
    release_epsilon: float | None = None
    noise_multiplier: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    compositions: Mapping[str, float] = field(default_factory=dict)
    sampling: Poisson | None = None


def answer(options: Options, doing: Doing) -> Answer:
    """Return the stages, and what they prove."""
    gaussian = options.noise == "gaussian"
    other, others = ("l2_laplace", _OF_L2_LAPLACE) if gaussian else ("gaussian", _OF_GAUSSIAN)
    refuse(options, others, f"only for --noise {other}; leave out with --noise {options.noise}")
    problem = _problem(options)
    plan, privacy = (_gaussian if gaussian else _l2_laplace)(options, problem)
    weak = []
    if privacy.epsilon is not None and privacy.delta is not None:
        weak = remarks(privacy.epsilon, privacy.delta, options.dataset_size, "an edge")
    theory = claimed(problem, plan, options.radius)
    text = (Table(_rows(problem, plan)), f"Privacy: {_sentence(plan, privacy)}", f"Theory: {in_words(theory)}")
    return Answer({**_document(plan, privacy), "theory": theory}, text, weak)


def _problem(options: Options) -> Problem:
    return Problem(
        options.gradient_sd,
        options.smoothness,
        options.loss_gap,
        options.staleness,
        options.batch_size,
        options.kappa,
        options.reduction,
    )


def _relation(options: Options, default: NeighboringRelation) -> NeighboringRelation:
    return options.neighboring_relation or default


def _l2_laplace(options: Options, problem: Problem) -> tuple[StagePlan, _Privacy]:
    if options.epsilon is None:
        raise CallerError("--noise l2_laplace needs --epsilon, of one release")
    relation = _relation(options, REPLACE)
    moment = l2_laplace_second_moment(options.size, options.epsilon, options.batch_size, relation)
    plan = plan_stages(problem, moment, options.stages, options.nodes, options.clip)
    size = options.dataset_size
    sampling = None if size is None else Poisson(_rate(options.batch_size, size))
    delta = options.delta or _DELTA
    batches = sampling or Poisson(1.0)
    totals = l2_laplace_epsilons(plan.releases, options.epsilon, options.size, delta, relation, batches)
    return plan, _Privacy("l2_laplace", relation, options.epsilon, None, None, delta, totals, sampling)


def _gaussian(options: Options, problem: Problem) -> tuple[StagePlan, _Privacy]:
    if (options.noise_multiplier is None) == (options.budget is None):
        raise CallerError("--noise gaussian needs either --noise-multiplier, or --budget, --delta and --dataset-size")
    relation, sampling = _relation(options, ADD_OR_REMOVE), _sampling(options)
    if options.budget is not None:
        assert options.delta is not None
        assert sampling is not None
        budget = options.budget, options.delta
        found = calibrate_stages(
            problem, options.size, options.stages, budget, relation, sampling, options.nodes, options.clip
        )
        privacy = _Privacy("gaussian", relation, None, found.noise_multiplier, found.epsilon, options.delta)
        return found.plan, privacy
    noise = options.noise_multiplier
    assert noise is not None
    moment = gaussian_second_moment(options.size, noise, options.batch_size)
    plan = plan_stages(problem, moment, options.stages, options.nodes, options.clip)
    epsilon = None
    if sampling is not None:
        assert options.delta is not None
        epsilon = gaussian_epsilon(plan.releases, noise, options.delta, relation, sampling)
    return plan, _Privacy("gaussian", relation, None, noise, epsilon, options.delta)


def _sampling(options: Options) -> Poisson | None:
    """Sampling of batches; None where neither --dataset-size nor anything that needs it is given."""
    needed = {"--budget": options.budget, "--delta": options.delta, "--dataset-size": options.dataset_size}
    if all(value is None for value in needed.values()):
        return None
    missing = [flag for flag in ("--delta", "--dataset-size") if needed[flag] is None]
    if missing:
        given = next(flag for flag, value in needed.items() if value is not None)
        raise CallerError(f"{given} needs {' and '.join(missing)} as well")
    assert options.dataset_size is not None
    return Poisson(_rate(options.batch_size, options.dataset_size))


def _rate(batch_size: int, dataset_size: int) -> float:
    """Return the probability that an example is in a batch."""
    if batch_size > dataset_size:
        raise CallerError(f"--dataset-size must be at least --batch-size {batch_size}, found {dataset_size}")
    return batch_size / dataset_size


def _document(plan: StagePlan, privacy: _Privacy) -> dict[str, Any]:
    total = _basic(plan, privacy) if privacy.noise == "l2_laplace" else privacy.epsilon
    return {
        "stages": [asdict(stage) for stage in plan.stages],
        "updates": plan.updates,
        "releases": plan.releases,
        "noise": privacy.noise,
        "noise_multiplier": privacy.noise_multiplier,
        "release_epsilon": privacy.release_epsilon,
        "epsilon": total,
        "delta": 0.0 if privacy.noise == "l2_laplace" else privacy.delta,
        "neighboring_relation": privacy.relation.value,
        **({"composed": {"delta": privacy.delta, **privacy.compositions}} if privacy.noise == "l2_laplace" else {}),
    }


def _rows(problem: Problem, plan: StagePlan) -> list[list[str]]:
    rows = [["stage", "clip", "sensitivity (replace one)", "learning rate", "claimed gradient", "updates", "total"]]
    total = 0
    for number, (stage, norm) in enumerate(zip(plan.stages, descent(problem, plan), strict=True), 1):
        total += stage.updates
        figures = (f"{value:.5g}" for value in (stage.clip, stage.sensitivity, stage.learning_rate, norm))
        rows.append([str(number), *figures, str(stage.updates), str(total)])
    return rows


def _basic(plan: StagePlan, privacy: _Privacy) -> float:
    """Epsilons of single releases add up."""
    assert privacy.release_epsilon is not None
    return plan.releases * privacy.release_epsilon


def _sentence(plan: StagePlan, privacy: _Privacy) -> str:
    relation = f"({privacy.relation.value}) for each example of an edge"
    releases = counted(plan.releases, "release")
    if privacy.noise == "l2_laplace":
        return (
            f"one release is {privacy.release_epsilon:g}-differential privacy {relation}; its {releases} together are "
            f"{_basic(plan, privacy):.6g}-differential privacy by basic composition, which needs no sampling"
            f"{_composed(privacy)}"
        )
    noise = f"noise multiplier {privacy.noise_multiplier:.6g}"
    if privacy.epsilon is None:
        return f"{noise}; give --delta and --dataset-size for what {releases} of an edge prove"
    return f"{noise}; ({privacy.epsilon:.6g}, {privacy.delta:g})-differential privacy {relation}, in {releases}"


def _composed(privacy: _Privacy) -> str:
    """Totals at a delta, beside that of basic composition."""
    found = privacy.compositions
    if not found:
        return "; at a delta no total is computed, so much is lost in them"
    counting = "" if privacy.sampling is None else ", which counts sampling"
    return (
        f"; at delta {privacy.delta:g} epsilon is {found['advanced']:.6g} by advanced composition, and "
        f"{found['tight']:.6g} by the noise's own law (tight){counting}"
    )


COMMAND = Command(
    Options,
    answer,
    help="MAPA's stages: clip, learning rate and number of updates of each",
    description="Compute MAPA's stages: clip, learning rate and number of updates of each.",
)
