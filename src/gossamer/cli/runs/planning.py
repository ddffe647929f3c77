"""``gossamer plan``: what a run would be made of, computed from public constants only."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import Any

from gossamer.algorithms.mapa_stages import StagePlan, calibrate_stages, gaussian_epsilon, plan_stages
from gossamer.algorithms.mapa_schedule import Problem, gaussian_second_moment, l2_laplace_second_moment
from gossamer.algorithms.mapa_stages import StagePlan, calibrate_stages, gaussian_epsilon, plan_stages
from gossamer.cli.option_ranges import (
    COUNT,
    POSITIVE,
    SHARE,
    Range,
    add_accept_weak,
    check_delta,
    check_needed,
    check_ranges,
    given_of,
)
from gossamer.cli.printing import print_json, table, warn, wrapped
from gossamer.cli.runs import plan_graph_federated, plan_increasing
from gossamer.errors import CallerError, counted
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.sampling import Poisson
from gossamer.privacy.weakness import remarks

ADD_OR_REMOVE, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


@dataclass(frozen=True)
class _Privacy:
    """What is known of the noise of a plan."""

    noise: str
    relation: NeighboringRelation
    release_epsilon: float | None = None
    noise_multiplier: float | None = None
    epsilon: float | None = None
    delta: float | None = None


_RANGES: dict[str, Range] = {
    "--batch-size": COUNT,
    "--gradient-sd": POSITIVE,
    "--smoothness": POSITIVE,
    "--loss-gap": POSITIVE,
    "--staleness": ("a whole number >= 0", lambda value: value >= 0),
    "--size": COUNT,
    "--kappa": SHARE,
    "--reduction": SHARE,
    "--clip": POSITIVE,
    "--stages": COUNT,
    "--nodes": COUNT,
    "--epsilon": POSITIVE,
    "--noise-multiplier": ("between 0.01 and 10^6", lambda value: 1e-2 <= value <= 1e6),
    "--budget": POSITIVE,
    "--delta": SHARE,
    "--dataset-size": COUNT,
}
_NEEDED = ("--batch-size", "--gradient-sd", "--smoothness", "--loss-gap", "--staleness", "--size")
_OF_L2_LAPLACE = ("--epsilon",)
_OF_GAUSSIAN = ("--noise-multiplier", "--budget", "--delta", "--dataset-size")


def add_commands(commands: Any) -> None:
    """Add the command, with a subcommand for each kind of plan."""
    plan = commands.add_parser(
        "plan",
        help="what a run would be made of, such as MAPA's stages",
        description="Compute what a run would be made of from public constants. No data is read.",
    )
    kinds = plan.add_subparsers(title="plans", metavar="PLAN", required=True)
    mapa = kinds.add_parser(
        "mapa",
        help="MAPA's stages: clip, learning rate and number of updates of each",
        description="Compute MAPA's stages: clip, learning rate and number of updates of each.",
    )
    _add_problem(mapa)
    _add_noise(mapa)
    mapa.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    mapa.set_defaults(command=mapa_command)
    plan_increasing.add_plan(kinds)
    plan_graph_federated.add_plan(kinds)


def _add_problem(mapa: argparse.ArgumentParser) -> None:
    mapa.add_argument("--batch-size", type=int, metavar="B", help="b, examples in a mini-batch")
    mapa.add_argument("--gradient-sd", type=float, metavar="S", help="s, of one example's gradient, in L2 norm")
    mapa.add_argument("--smoothness", type=float, metavar="L", help="Lipschitz constant of the gradient")
    mapa.add_argument("--loss-gap", type=float, metavar="F", help="upper bound of F(x_0) - F*")
    mapa.add_argument("--staleness", type=int, metavar="TAU", help="most updates between pull and use of a model")
    mapa.add_argument("--size", type=int, metavar="D", help="number of parameters")
    mapa.add_argument("--kappa", type=float, default=0.1, help="failure probability of the first clip (default 0.1)")
    mapa.add_argument("--reduction", type=float, default=0.5, metavar="RHO", help="of the clip, a stage (default 0.5)")
    mapa.add_argument("--clip", type=float, metavar="G", help="first clip; default: that of Theorem 3")
    mapa.add_argument("--stages", type=int, default=5, metavar="N", help="how many stages (default 5)")


def _add_noise(mapa: argparse.ArgumentParser) -> None:
    mapa.add_argument("--noise", choices=["l2_laplace", "gaussian"], help="the noise law")
    mapa.add_argument("--epsilon", type=float, metavar="E", help="of one release; for l2_laplace")
    mapa.add_argument("--noise-multiplier", type=float, metavar="Z", help="sd of the sum's noise / clip; for gaussian")
    mapa.add_argument("--budget", type=float, metavar="E", help="epsilon of all releases instead; for gaussian")
    mapa.add_argument("--delta", type=float, metavar="D", help="of the budget")
    add_accept_weak(mapa)
    mapa.add_argument("--dataset-size", type=int, metavar="N", help="examples at an edge, for gaussian's budget")
    mapa.add_argument("--nodes", type=int, metavar="K", help="edges in turn; default: one edge makes all releases")
    mapa.add_argument(
        "--neighboring-relation",
        choices=[relation.value for relation in NeighboringRelation],
        help="default: replace_one for l2_laplace, add_or_remove_one for gaussian",
    )


def mapa_command(options: argparse.Namespace) -> int:
    """Print the stages."""
    _check(options)
    plan, privacy = (_l2_laplace if options.noise == "l2_laplace" else _gaussian)(options, _problem(options))
    if privacy.epsilon is not None and privacy.delta is not None:
        warn(remarks(privacy.epsilon, privacy.delta, options.dataset_size, "an edge"))
    if options.json:
        print_json(_document(options, plan, privacy))
    else:
        print(table(_rows(plan)))
        print(wrapped(f"Privacy: {_sentence(plan, privacy)}"))
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.noise is None:
        raise CallerError("plan mapa needs --noise l2_laplace or --noise gaussian")
    check_needed(options, "plan mapa", _NEEDED)
    check_ranges(options, _RANGES)
    check_delta(options)
    other, others = ("gaussian", _OF_GAUSSIAN) if options.noise == "l2_laplace" else ("l2_laplace", _OF_L2_LAPLACE)
    foreign = given_of(options, others)
    if foreign:
        raise CallerError(f"{', '.join(foreign)}: only for --noise {other}; leave out with --noise {options.noise}")


def _problem(options: argparse.Namespace) -> Problem:
    return Problem(
        options.gradient_sd,
        options.smoothness,
        options.loss_gap,
        options.staleness,
        options.batch_size,
        options.kappa,
        options.reduction,
    )


def _relation(options: argparse.Namespace, default: NeighboringRelation) -> NeighboringRelation:
    return NeighboringRelation(options.neighboring_relation or default)


def _l2_laplace(options: argparse.Namespace, problem: Problem) -> tuple[StagePlan, _Privacy]:
    if options.epsilon is None:
        raise CallerError("--noise l2_laplace needs --epsilon, of one release")
    relation = _relation(options, REPLACE)
    moment = l2_laplace_second_moment(options.size, options.epsilon, options.batch_size, relation)
    plan = plan_stages(problem, moment, options.stages, options.nodes, options.clip)
    return plan, _Privacy("l2_laplace", relation, release_epsilon=options.epsilon)


def _gaussian(options: argparse.Namespace, problem: Problem) -> tuple[StagePlan, _Privacy]:
    if (options.noise_multiplier is None) == (options.budget is None):
        raise CallerError("--noise gaussian needs either --noise-multiplier, or --budget, --delta and --dataset-size")
    relation, sampling = _relation(options, ADD_OR_REMOVE), _sampling(options)
    if options.budget is not None:
        budget = options.budget, options.delta
        assert sampling is not None
        found = calibrate_stages(
            problem, options.size, options.stages, budget, relation, sampling, options.nodes, options.clip
        )
        privacy = _Privacy("gaussian", relation, None, found.noise_multiplier, found.epsilon, options.delta)
        return found.plan, privacy
    noise = options.noise_multiplier
    moment = gaussian_second_moment(options.size, noise, options.batch_size)
    plan = plan_stages(problem, moment, options.stages, options.nodes, options.clip)
    epsilon = None if sampling is None else gaussian_epsilon(plan.releases, noise, options.delta, relation, sampling)
    return plan, _Privacy("gaussian", relation, None, noise, epsilon, options.delta)


def _sampling(options: argparse.Namespace) -> Poisson | None:
    """How batches are drawn; None where neither --dataset-size nor anything that needs it is given."""
    needed = {"--budget": options.budget, "--delta": options.delta, "--dataset-size": options.dataset_size}
    if all(value is None for value in needed.values()):
        return None
    missing = [flag for flag in ("--delta", "--dataset-size") if needed[flag] is None]
    if missing:
        given = next(flag for flag, value in needed.items() if value is not None)
        raise CallerError(f"{given} needs {' and '.join(missing)} as well")
    if options.batch_size > options.dataset_size:
        raise CallerError(
            f"--dataset-size must be at least --batch-size {options.batch_size}, found {options.dataset_size}"
        )
    return Poisson(options.batch_size / options.dataset_size)


def _document(options: argparse.Namespace, plan: StagePlan, privacy: _Privacy) -> dict[str, Any]:
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
    }


def _rows(plan: StagePlan) -> list[list[str]]:
    rows = [["stage", "clip", "sensitivity (replace one)", "learning rate", "updates", "total"]]
    total = 0
    for number, stage in enumerate(plan.stages, 1):
        total += stage.updates
        figures = (f"{value:.5g}" for value in (stage.clip, stage.sensitivity, stage.learning_rate))
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
        )
    noise = f"noise multiplier {privacy.noise_multiplier:.6g}"
    if privacy.epsilon is None:
        return f"{noise}; give --delta and --dataset-size for what {releases} of an edge prove"
    return f"{noise}; ({privacy.epsilon:.6g}, {privacy.delta:g})-differential privacy {relation}, in {releases}"
