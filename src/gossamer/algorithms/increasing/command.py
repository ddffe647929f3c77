"""``gossamer plan increasing``: rounds of growing size by the paper's formulas, and what is proved of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from gossamer.algorithms.command import Answer, Command, Doing, Option
from gossamer.algorithms.increasing import planning as of
from gossamer.errors import CallerError, counted
from gossamer.files import words_beside
from gossamer.privacy.guarantees import remarks, rounded_up
from gossamer.privacy.mechanisms import NeighboringRelation

_SHOWN = 6  # sizes on either side of the dots
_WORDS = words_beside(__file__)


def plan_document(plan: of.RoundPlan, proved: of.Proved) -> dict[str, Any]:
    """A plan as plain data."""
    asked, theorem = plan.problem, plan.theorem
    return {
        "q": plan.q,
        "m": plan.m,
        "rounds": plan.rounds,
        "rounds_for_gradients": plan.rounds_for_gradients,
        "gradients": int(plan.sizes.sum()),
        "formula": _formula(asked.initial_size, plan.m, asked.power),
        "sizes": plan.sizes.tolist(),
        "r0": theorem.r0,
        "r": theorem.r,
        **plan.limits,
        "budget_b": plan.budget,
        "delta": plan.delta,
        "aggregate_noise": plan.aggregate_noise,
        "constant": {"rounds": plan.constant_rounds, "aggregate_noise": plan.constant_noise},
        "proved": {"epsilon": proved.epsilon, "smallest_sigma": proved.smallest_sigma},
        "claim_valid": plan.claim_problem is None,
        "claim_problem": plan.claim_problem,
        "note": plan.note,
    }


def _formula(start: int, m: float, power: float) -> str:
    """The sizes, with enough digits to compute them."""
    if power == 0:
        return f"{start}"
    return f"{start} + ceil({start / m!r} * i)" if power == 1 else f"ceil({start} * (1 + i / {m!r})^{power:g})"


def _listed(sizes: of.Sizes) -> str:
    """The first and the last ones, and how many there are."""
    shown = [str(size) for size in sizes.tolist()]
    if sizes[0] == sizes[-1]:
        shown = shown[:1]
    elif len(shown) > 2 * _SHOWN:
        shown = [*shown[:_SHOWN], "...", *shown[-_SHOWN:]]
    return f"  {', '.join(shown)} ({counted(sizes.size, 'round')}, {counted(int(sizes.sum()), 'gradient')})"


def plan_answer(plan: of.RoundPlan, proved: of.Proved, relation: NeighboringRelation) -> Answer:
    """Return a plan: what is claimed beside what is proved."""
    asked, theorem = plan.problem, plan.theorem
    sizes = [[_WORDS["sizes" if asked.power else "always"].format(asked=asked, plan=plan)]]
    limits = zip(("K-", "K+", "K*"), plan.limits.values())
    known = "".join(f"{name} {limit:.6g}, " for name, limit in limits if limit is not None)
    facts = {"last": plan.passes[-1], "passes": counted(len(plan.passes), "pass", "passes"), "known": known}
    line = "  " + _WORDS["plan"].format(asked=asked, theorem=theorem, plan=plan, **facts)
    smallest = "above 1000" if proved.smallest_sigma is None else f"{proved.smallest_sigma:.5g}"
    both = [
        ["", "claimed (main theorem)", f"proved ({relation.value})"],
        ["epsilon", f"{asked.epsilon:g}", rounded_up(proved.epsilon)],
        ["at delta", f"{plan.delta:.4g}", f"{plan.delta:.4g}"],
        ["with sigma", f"{asked.sigma:g}", f"{asked.sigma:g}"],
        [f"sigma needed for epsilon {asked.epsilon:g}", f"{asked.sigma:g}", smallest],
    ]
    claimed = [
        ["by the claim", "these sizes", f"always {asked.initial_size}"],
        ["rounds", str(plan.rounds), str(plan.constant_rounds)],
        ["aggregate noise, sqrt(rounds) sigma", f"{plan.aggregate_noise:.4g}", f"{plan.constant_noise:.4g}"],
    ]
    text = (sizes, _listed(plan.sizes), line, "", both, "", _which_counts(plan), "", claimed)
    weak = remarks(proved.epsilon, plan.delta)  # of this delta, which is the claim's, the plan says it itself
    return Answer(plan_document(plan, proved), text, weak)


def _which_counts(plan: of.RoundPlan) -> str:
    rules = {
        "which counts": True,
        "more": plan.note is not None,
        "not valid": plan.claim_problem is not None,
        "weak": plan.delta > 1 / plan.problem.dataset_size,
    }
    return "\n".join(_WORDS[name].format(plan=plan) for name, holds in rules.items() if holds)


@dataclass(frozen=True, kw_only=True)
class Options(of.RoundProblem):
    """Options of the command."""

    r0: Annotated[str | None, Option("a number up to 1/e, or max (default: r0(sigma) of the main theorem)", "R")] = None
    neighboring_relation: Annotated[NeighboringRelation, Option("of what is proved")] = (
        NeighboringRelation.ADD_OR_REMOVE_ONE
    )


def answer(options: Options, doing: Doing) -> Answer:
    """Return a plan: what is claimed beside what is proved."""
    if options.over is not None and options.case != 2:
        raise CallerError("--over is K in units of K+, and only with --case 2; leave it out, or add --case 2")
    plan = of.plan_rounds(options)
    with doing(f"accounting for {counted(plan.rounds, 'round')}"):
        proved = of.prove(plan, options.neighboring_relation)
    return plan_answer(plan, proved, options.neighboring_relation)


COMMAND = Command(
    Options,
    answer,
    help="rounds of growing size: sizes, noise, what is claimed and proved",
    description=_WORDS["description"],
)
