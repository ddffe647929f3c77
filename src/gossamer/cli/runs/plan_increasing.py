"""``gossamer plan increasing``: rounds of growing size, by the paper's formulas or by what is proved."""

from __future__ import annotations

import argparse
import math
from typing import Any

from gossamer.algorithms.round_candidates import search_rounds
from gossamer.algorithms.round_planning import plan_rounds, prove
from gossamer.algorithms.round_search import POWERS, Objective, RoundSearch
from gossamer.algorithms.round_selection import RoundProblem, maximal_r0
from gossamer.cli.option_ranges import (
    POSITIVE,
    Range,
    add_accept_weak,
    check_delta,
    check_needed,
    check_ranges,
    given_of,
)
from gossamer.cli.patience import patience
from gossamer.cli.printing import warn
from gossamer.cli.runs.round_output import found_document, plan_document, print_document, print_found, print_plan
from gossamer.errors import CallerError, counted
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.weakness import remarks

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
    add_accept_weak(plan)
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
    check_delta(options)
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
    warn(remarks(proved.epsilon, plan.delta))  # of this delta, which is the claim's, the plan says it itself
    if options.json:
        print_document(plan_document(plan, proved))
    else:
        print_plan(plan, proved, relation)


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
    warn(remarks(found.epsilon, options.delta, options.dataset_size, "the client"))
    if options.json:
        print_document(found_document(found))
    else:
        print_found(found)
