"""``gossamer plan increasing``: rounds of growing size, by the paper's formulas or by what is proved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from gossamer.algorithms.command import AcceptWeak, Answer, Command, Doing, Option, Rows, refuse
from gossamer.algorithms.increasing import planning as of
from gossamer.algorithms.increasing.search import POWERS, FoundRounds, Objective, RoundSearch, search_rounds
from gossamer.errors import CallerError, counted
from gossamer.files import words_beside
from gossamer.privacy.guarantees import remarks, rounded_up
from gossamer.privacy.mechanisms import NeighboringRelation

_SHOWN = 6  # sizes on either side of the dots
_WORDS = words_beside(__file__)


def plan_document(plan: of.RoundPlan, proved: of.Proved) -> dict[str, Any]:
    """A plan as plain data."""
    asked, theorem = plan.problem, plan.theorem
    low, high = of.transition_powers(asked, plan.m)
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
        "p_minus": low,
        "p_plus": high,
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


def _title(asked: of.RoundProblem | RoundSearch, start: int, power: float, q: float, m: float) -> Rows:
    return [[_WORDS["sizes" if power else "always"].format(asked=asked, start=start, power=power, q=q, m=m)]]


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
    sizes = _title(asked, asked.initial_size, asked.power, plan.q, plan.m)
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
    return Answer(plan_document(plan, proved), (*text, _by_proof(plan, proved)), weak)


def _which_counts(plan: of.RoundPlan) -> str:
    rules = {
        "which counts": True,
        "more": plan.note is not None,
        "not valid": plan.claim_problem is not None,
        "weak": plan.delta > 1 / plan.problem.dataset_size,
    }
    return "\n".join(_WORDS[name].format(plan=plan) for name, holds in rules.items() if holds)


def _by_proof(plan: of.RoundPlan, proved: of.Proved) -> str:
    done, constant = proved.fair_rounds, proved.constant_noise
    one = done == 1
    first = "the first round makes" if one else f"the first {done} rounds make"
    words = "alike" if plan.problem.power == 0 else "alone" if constant is None else "compared"
    return str(
        _WORDS[words].format(
            made=f"By proof: {first} the {counted(plan.problem.gradients, 'gradient')}",
            have="has" if one else "have",
            epsilon=rounded_up(proved.fair_epsilon, 3),
            start=plan.problem.initial_size,
            constant=constant,
            noise=proved.fair_noise,
            less="no less" if constant is None or proved.fair_noise >= constant else "also less",
            times=plan.constant_rounds / done,
        )
    )


def found_document(found: FoundRounds) -> dict[str, Any]:
    """Return what a search found, as plain data."""
    asked = found.search
    return {
        "q": found.q,
        "m": found.m,
        "power": found.power,
        "initial_size": found.initial_size,
        "rounds": found.rounds,
        "gradients": int(found.sizes.sum()),
        "formula": _formula(found.initial_size, found.m, found.power),
        "sizes": found.sizes.tolist(),
        "sigma": found.sigma,
        "delta": asked.delta,
        "aggregate_noise": found.aggregate_noise,
        "constant": {"rounds": found.constant_rounds, "aggregate_noise": found.constant_noise},
        "proved": {"epsilon": found.epsilon, "smallest_sigma": found.sigma},
        "neighboring_relation": asked.relation.value,
        "searched": {
            "objective": asked.objective.value,
            "powers": list(asked.powers),
            "initial_sizes": asked.starts,
            "most_size": asked.largest,
            "most_sigma": asked.most_sigma,
            "most_noise": asked.most_noise,
        },
    }


def found_answer(found: FoundRounds) -> Answer:
    """Return what a search found."""
    asked = found.search
    sizes = _title(asked, found.initial_size, found.power, found.q, found.m)
    noise = "sigma above 1000" if found.constant_noise is None else f"{found.constant_noise:.4g}"
    rows = [
        ["by proof", "these sizes", f"always {found.initial_size}"],
        ["rounds", str(found.rounds), str(found.constant_rounds)],
        ["aggregate noise, sqrt(rounds) sigma", f"{found.aggregate_noise:.4g}", noise],
    ]
    goal = "fewest rounds" if asked.objective is Objective.ROUNDS else "least aggregate noise"
    powers, starts = (", ".join(f"{value:g}" for value in values) for values in (asked.powers, sorted(asked.starts)))
    said = ["proved", "searched", *(["constant"] if found.power == 0 and not asked.initial_sizes else [])]
    facts = {"sigma": rounded_up(found.sigma, 5), "epsilon": rounded_up(found.epsilon, 5), "goal": goal}
    tried = "\n".join(_WORDS[name].format(asked=asked, powers=powers, starts=starts, **facts) for name in said)
    text = (sizes, _listed(found.sizes), "", rows, tried)
    weak = remarks(found.epsilon, asked.delta, asked.dataset_size, "the client")
    return Answer(found_document(found), text, weak)


_OF_PLAN = ("sigma", "r0", "case", "over")
_BOUNDS = ("most_size", "most_sigma", "most_noise")
_OF_SEARCH = ("delta", *_BOUNDS)
_NEEDED = ("initial_size", "dataset_size", "gradients", "sigma", "epsilon")
_NEEDED_BY_SEARCH = ("dataset_size", "gradients", "epsilon", "delta")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    search: Annotated[Objective | None, Option("look for the best schedule that is proved")] = None
    initial_size: Annotated[int | None, of.INITIAL_SIZE] = None
    dataset_size: Annotated[int, of.DATASET_SIZE]
    gradients: Annotated[int, of.GRADIENTS]
    sigma: Annotated[float | None, of.SIGMA] = None
    epsilon: Annotated[float, of.EPSILON]
    power: Annotated[float | None, of.POWER] = None
    r0: Annotated[str | None, Option("a number up to 1/e, or max (default: r0(sigma) of the main theorem)", "R")] = None
    case: Annotated[int | None, of.CASE] = None
    over: Annotated[float | None, of.OVER] = None
    delta: Annotated[float | None, Option("with --search: to be proved", "D", ge=1e-200, lt=1)] = None
    accept_weak: AcceptWeak = False
    most_size: Annotated[int | None, Option("with --search: of a round (default: N/10)", "S", ge=1, le=10**12)] = None
    most_sigma: Annotated[float | None, Option("with --search: largest sigma (default: 8)", "Z", ge=0.05, le=1000)] = (
        None
    )
    most_noise: Annotated[
        float | None,
        Option(
            "with --search: largest aggregate noise, times that of rounds of the initial size (default: 1.25)",
            "X",
            gt=0,
        ),
    ] = None
    neighboring_relation: Annotated[NeighboringRelation, Option("of what is proved", also=("--relation",))] = (
        NeighboringRelation.ADD_OR_REMOVE_ONE
    )


def needed(given: Mapping[str, Any]) -> tuple[Sequence[str], str]:
    """Return what has to be given, by whether there is a search."""
    return (_NEEDED, "") if given["search"] is None else (_NEEDED_BY_SEARCH, "--search")


def answer(options: Options, doing: Doing) -> Answer:
    """Return a plan, or what a search finds."""
    if options.search is None:
        refuse(options, _OF_SEARCH, "only with --search; leave out")
        return _plan(options, doing)
    refuse(options, _OF_PLAN, "only without --search; leave out")
    return _search(options, options.search, doing)


def _plan(options: Options, doing: Doing) -> Answer:
    if options.over is not None and options.case != 2:
        raise CallerError("--over is K in units of K+, and only with --case 2; leave it out, or add --case 2")
    given = {name: getattr(options, name) for name in _NEEDED}
    given |= {name: value for name in ("power", "case", "over") if (value := getattr(options, name)) is not None}
    plan = of.plan_rounds(of.RoundProblem(**given, r0=_r0(options.r0, given["sigma"])))
    with doing(f"accounting for {counted(plan.rounds, 'round')}"):
        proved = of.prove(plan, options.neighboring_relation)
    return plan_answer(plan, proved, options.neighboring_relation)


def _r0(text: str | None, sigma: float) -> float | None:
    if text is None or text == "max":
        return None if text is None else of.maximal_r0(sigma)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1 / math.e:
        raise CallerError(f"--r0 must be max or a number in (0, 1/e], 1/e = {1 / math.e:.6f}; found {text}")
    return value


def _search(options: Options, objective: Objective, doing: Doing) -> Answer:
    given = {name: getattr(options, name) for name in (*_NEEDED_BY_SEARCH, *_BOUNDS)}
    search = RoundSearch(
        objective,
        relation=options.neighboring_relation,
        powers=POWERS if options.power is None else (options.power,),
        initial_sizes=() if options.initial_size is None else (options.initial_size,),
        **{name: value for name, value in given.items() if value is not None},
    )
    with doing("searching") as report:
        found = search_rounds(search, lambda text: report(f"searching: accounting for {text}"))
    return found_answer(found)


COMMAND = Command(
    Options,
    answer,
    help="rounds of growing size: sizes, noise, what is claimed and proved",
    description=_WORDS["description"],
    needed=needed,
)
