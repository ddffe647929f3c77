"""``gossamer plan increasing``: rounds of growing size, by the paper's formulas or by what is proved."""

from __future__ import annotations

import argparse
import math
from typing import Any

from gossamer.cli.option_ranges import POSITIVE, Range, check_needed, check_ranges, given_of
from gossamer.cli.patience import patience
from gossamer.cli.printing import table, wrapped
from gossamer.errors import CallerError
from gossamer.experiment.results import to_json
from gossamer.experiment.round_calibration import Sizes
from gossamer.experiment.round_candidates import search_rounds
from gossamer.experiment.round_planning import Proved, RoundPlan, counted, plan_rounds, prove
from gossamer.experiment.round_search import POWERS, FoundRounds, Objective, RoundSearch
from gossamer.experiment.round_selection import RoundProblem, maximal_r0
from gossamer.privacy.guarantees import rounded_up
from gossamer.privacy.mechanisms import NeighboringRelation

_DESCRIPTION = """Compute rounds of growing size, s_i = ceil(N q (i + m)^p), from public constants. No data is read.
Without --search: the paper's parameter selection for a noise multiplier and an epsilon, what its theorem claims, and
beside it what is proved of the same rounds. With --search: the schedule with the fewest rounds, or with the least
aggregate noise sqrt(rounds) * sigma, for which (epsilon, delta) is proved, with the least sigma. It tries every power
and initial size (where not given, the powers 0, 1/4, 1/2, 3/4, 1 and the sizes 1, 4, 16, ...) and numbers of rounds in
steps of a quarter, bisected in the end for the fewest. Growth is the slowest that makes all gradients, with m at least
1. No round is larger than --most-size, no sigma than --most-sigma, and no aggregate noise than --most-noise times that
of rounds of the initial size."""

_RANGES: dict[str, Range] = {
    "--initial-size": ("a whole number from 1 to 10^12", lambda value: 1 <= value <= 10**12),
    "--dataset-size": ("a whole number from 1 to 10^12", lambda value: 1 <= value <= 10**12),
    "--gradients": ("a whole number from 1 to 10^15", lambda value: 1 <= value <= 10**15),
    "--sigma": ("a finite number from 1.137 to 10^6, as the main theorem needs", lambda value: 1.137 <= value <= 1e6),
    "--epsilon": POSITIVE,
    "--delta": ("from 1e-200 to below 1", lambda value: 1e-200 <= value < 1),
    "--power": ("a number from 0 to 4", lambda value: 0 <= value <= 4),
    "--most-size": ("a whole number from 1 to 10^12", lambda value: 1 <= value <= 10**12),
    "--most-sigma": ("a number from 0.05 to 1000", lambda value: 0.05 <= value <= 1000),
    "--most-noise": POSITIVE,
}
_OF_PLAN = ("--sigma", "--r0")
_OF_SEARCH = ("--delta", "--most-size", "--most-sigma", "--most-noise")
_NEEDED = ("--initial-size", "--dataset-size", "--gradients", "--sigma", "--epsilon")
_NEEDED_BY_SEARCH = ("--dataset-size", "--gradients", "--epsilon", "--delta")
_SHOWN = 6  # sizes on either side of the dots


def add_plan(kinds: Any) -> None:
    """Add the subcommand to ``gossamer plan``."""
    plan = kinds.add_parser(
        "increasing", help="rounds of growing size: sizes, noise, what is claimed and proved", description=_DESCRIPTION
    )
    plan.add_argument(
        "--search",
        choices=[objective.value for objective in Objective],
        help="look for the best schedule that is proved",
    )
    plan.add_argument("--initial-size", type=int, metavar="S", help="s_0, gradients in the first round")
    plan.add_argument("--dataset-size", type=int, metavar="N", help="examples of the client")
    plan.add_argument("--gradients", type=int, metavar="K", help="gradients in all rounds together")
    plan.add_argument("--sigma", type=float, metavar="Z", help="noise multiplier: sd of the sum's noise / clip")
    plan.add_argument("--epsilon", type=float, metavar="E", help="to be claimed; with --search, to be proved")
    plan.add_argument("--power", type=float, metavar="P", help="p; default 1, with --search all of a grid")
    plan.add_argument("--r0", metavar="R", help="a number up to 1/e, or max; default: r0(sigma) of the main theorem")
    plan.add_argument("--delta", type=float, metavar="D", help="with --search: to be proved")
    plan.add_argument("--most-size", type=int, metavar="S", help="with --search: of a round (default: N/10)")
    plan.add_argument("--most-sigma", type=float, metavar="Z", help="with --search: largest sigma (default 8)")
    plan.add_argument(
        "--most-noise",
        type=float,
        metavar="X",
        help="with --search: largest aggregate noise, times that of rounds of the initial size (default 1.25)",
    )
    plan.add_argument(
        "--neighboring-relation",
        "--relation",
        choices=[relation.value for relation in NeighboringRelation],
        default=NeighboringRelation.ADD_OR_REMOVE_ONE.value,
        help="of what is proved (default add_or_remove_one)",
    )
    plan.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    plan.set_defaults(command=increasing_command)


def increasing_command(options: argparse.Namespace) -> int:
    """Print a plan, or what a search finds."""
    searching = options.search is not None
    check_needed(options, f"plan increasing{' --search' * searching}", _NEEDED_BY_SEARCH if searching else _NEEDED)
    check_ranges(options, _RANGES)
    foreign = given_of(options, _OF_PLAN if searching else _OF_SEARCH)
    if foreign:
        raise CallerError(f"{', '.join(foreign)}: only {'without' if searching else 'with'} --search; leave out")
    (_search if searching else _plan)(options, NeighboringRelation(options.neighboring_relation))
    return 0


def _plan(options: argparse.Namespace, relation: NeighboringRelation) -> None:
    power = 1.0 if options.power is None else options.power
    if power < 0.1:
        raise CallerError(f"--power must be at least 0.1 for the main theorem, found {power:g}; 0 is constant sizes")
    problem = RoundProblem(
        options.initial_size,
        options.dataset_size,
        options.gradients,
        options.sigma,
        options.epsilon,
        power,
        _r0(options.r0, options.sigma),
    )
    plan = plan_rounds(problem)
    with patience(f"accounting for {counted(plan.rounds, 'round')}"):
        proved = prove(plan, relation)
    if options.json:
        _print_document(_plan_document(plan, proved))
    else:
        _print_plan(plan, proved, relation)


def _r0(text: str | None, sigma: float) -> float | None:
    if text is None or text == "max":
        return None if text is None else maximal_r0(sigma)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1 / math.e:
        raise CallerError(f"--r0 must be max or a number in (0, 1/e], 1/e = {1 / math.e:.6f}; found {text}")
    return value


def _plan_document(plan: RoundPlan, proved: Proved) -> dict[str, Any]:
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
        "k_minus": theorem.k_minus(asked.epsilon, plan.q, asked.dataset_size),
        "k_plus": theorem.k_plus(asked.epsilon, plan.q, asked.dataset_size),
        "k_star": theorem.k_star(plan.q, asked.dataset_size),
        "budget_b": plan.budget,
        "delta": plan.delta,
        "aggregate_noise": plan.aggregate_noise,
        "constant": {"rounds": plan.constant_rounds, "aggregate_noise": plan.constant_noise},
        "proved": {"epsilon": proved.epsilon, "smallest_sigma": proved.smallest_sigma},
        "claim_valid": plan.claim_problem is None,
        "claim_problem": plan.claim_problem,
        "note": plan.note,
    }


def _print_document(document: dict[str, Any]) -> None:
    """One JSON document on stdout, a line for each key: there are too many sizes for lines of their own."""
    lines = ",\n".join(f"  {to_json(key)}: {to_json(value)}" for key, value in document.items())
    print(f"{{\n{lines}\n}}")


def _formula(start: int, m: float, power: float) -> str:
    """The sizes, with enough digits to compute them."""
    if power == 0:
        return f"{start}"
    return f"{start} + ceil({start / m!r} * i)" if power == 1 else f"ceil({start} * (1 + i / {m!r})^{power:g})"


def _listed(sizes: Sizes) -> str:
    """The first and the last ones, and how many there are."""
    shown = [str(size) for size in sizes.tolist()]
    if sizes[0] == sizes[-1]:
        shown = shown[:1]
    elif len(shown) > 2 * _SHOWN:
        shown = [*shown[:_SHOWN], "...", *shown[-_SHOWN:]]
    return f"  {', '.join(shown)} ({counted(sizes.size, 'round')}, {counted(int(sizes.sum()), 'gradient')})"


def _print_plan(plan: RoundPlan, proved: Proved, relation: NeighboringRelation) -> None:
    asked, theorem = plan.problem, plan.theorem
    print(f"Sizes: ceil({asked.dataset_size} q (i + m)^{asked.power:g}), q = {plan.q:.5g}, m = {plan.m:.5g}")
    print(wrapped(_listed(plan.sizes)))
    limits = (
        f"  r0 {theorem.r0:.4g}, r {theorem.r:.4g}, m/T {plan.passes[-1].found:.4g} after {len(plan.passes)} passes; "
        f"K {asked.gradients}, K- {theorem.k_minus(asked.epsilon, plan.q, asked.dataset_size):.6g}, "
        f"K+ {theorem.k_plus(asked.epsilon, plan.q, asked.dataset_size):.6g}, "
        f"K* {theorem.k_star(plan.q, asked.dataset_size):.6g}, budget B {plan.budget:.4g}"
    )
    print(wrapped(limits))
    print()
    smallest = "above 1000" if proved.smallest_sigma is None else f"{proved.smallest_sigma:.5g}"
    rows = [
        ["", "claimed (main theorem)", f"proved ({relation.value})"],
        ["epsilon", f"{asked.epsilon:g}", rounded_up(proved.epsilon)],
        ["at delta", f"{plan.delta:.4g}", f"{plan.delta:.4g}"],
        ["with sigma", f"{asked.sigma:g}", f"{asked.sigma:g}"],
        [f"sigma needed for epsilon {asked.epsilon:g}", f"{asked.sigma:g}", smallest],
    ]
    print(table(rows))
    print()
    print(wrapped(_which_counts(plan)))
    print()
    rows = [
        ["by the claim", "these sizes", f"always {asked.initial_size}"],
        ["rounds", str(plan.rounds), str(plan.constant_rounds)],
        ["aggregate noise, sqrt(rounds) sigma", f"{plan.aggregate_noise:.4g}", f"{plan.constant_noise:.4g}"],
    ]
    print(table(rows))
    print(wrapped(_by_proof(plan, proved)))


def _which_counts(plan: RoundPlan) -> str:
    text = (
        "Claim and proof are different things: the claim is what the paper's formula says of its own algorithm, the "
        "proof is an accountant's figure for these rounds on Poisson samples, with gradients at released models "
        "(round_update: batch). The proved figure is the one that counts."
    )
    if plan.note is not None:
        text += f"\nMore than asked: {plan.note}."
    if plan.claim_problem is not None:
        text += f"\nThe claim is not valid: {plan.claim_problem}."
    if plan.delta > 1 / plan.problem.dataset_size:
        text += (
            f"\nThis delta is above 1/{plan.problem.dataset_size}: it protects next to nobody; plan a larger epsilon."
        )
    return text


def _by_proof(plan: RoundPlan, proved: Proved) -> str:
    done, constant = proved.fair_rounds, proved.constant_noise
    one = done == 1
    first = "the first round makes" if one else f"the first {done} rounds make"
    text = f"By proof: {first} the {counted(plan.problem.gradients, 'gradient')}"
    if constant is None:
        return f"{text}; there is no constant schedule with as much proved privacy to compare with."
    less = "also less" if proved.fair_noise < constant else "no less"
    return (
        f"{text} and {'has' if one else 'have'} epsilon {rounded_up(proved.fair_epsilon, 3)}. For that epsilon, rounds "
        f"of {plan.problem.initial_size} need an aggregate noise of {constant:.4g}; these have "
        f"{proved.fair_noise:.4g}: {less} noise, {plan.constant_rounds / done:.3g} times fewer rounds."
    )


def _search(options: argparse.Namespace, relation: NeighboringRelation) -> None:
    bounds = {name: getattr(options, name) for name in ("most_size", "most_sigma", "most_noise")}
    search = RoundSearch(
        Objective(options.search),
        options.epsilon,
        options.delta,
        options.dataset_size,
        options.gradients,
        relation,
        POWERS if options.power is None else (options.power,),
        () if options.initial_size is None else (options.initial_size,),
        **{name: value for name, value in bounds.items() if value is not None},
    )
    with patience("searching") as report:
        found = search_rounds(search, lambda text: report(f"searching: accounting for {text}"))
    if options.json:
        _print_document(_found_document(found))
    else:
        _print_found(found)


def _found_document(found: FoundRounds) -> dict[str, Any]:
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


def _print_found(found: FoundRounds) -> None:
    asked = found.search
    if found.power == 0:
        print(f"Sizes: always {found.initial_size}")
    else:
        print(f"Sizes: ceil({asked.dataset_size} q (i + m)^{found.power:g}), q = {found.q:.5g}, m = {found.m:.5g}")
    print(wrapped(_listed(found.sizes)))
    print()
    noise = "sigma above 1000" if found.constant_noise is None else f"{found.constant_noise:.4g}"
    rows = [
        ["by proof", "these sizes", f"always {found.initial_size}"],
        ["rounds", str(found.rounds), str(found.constant_rounds)],
        ["aggregate noise, sqrt(rounds) sigma", f"{found.aggregate_noise:.4g}", noise],
    ]
    print(table(rows))
    goal = "fewest rounds" if asked.objective is Objective.ROUNDS else "least aggregate noise"
    powers, starts = (", ".join(f"{value:g}" for value in values) for values in (asked.powers, sorted(asked.starts)))
    tried = (
        f"Proved: noise multiplier {rounded_up(found.sigma, 5)}; ({rounded_up(found.epsilon, 5)}, {asked.delta:g})-"
        f"differential privacy ({asked.relation.value}) with gradients at released models (round_update: batch).\n"
        f"Searched for the {goal}: powers {powers}; initial sizes {starts}; rounds of at most {asked.largest}; sigma "
        f"at most {asked.most_sigma:g}; aggregate noise at most {asked.most_noise:g} "
        "times that of rounds of the initial size."
    )
    if found.power == 0 and not asked.initial_sizes:
        tried += "\nSizes that do not grow win where the first round may be large; --initial-size makes it start small."
    print(wrapped(tried))
