"""``gossamer plan increasing``: rounds of growing size, by the paper's formulas or by what is proved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from gossamer.algorithms.command import (
    DELTA,
    POSITIVE,
    AcceptWeak,
    Answer,
    Bounds,
    Command,
    Doing,
    Option,
    refuse,
)
from gossamer.algorithms.increasing.candidates import search_rounds
from gossamer.algorithms.increasing.output import found_answer, plan_answer
from gossamer.algorithms.increasing.planning import plan_rounds, prove
from gossamer.algorithms.increasing.search import POWERS, Objective, RoundSearch
from gossamer.algorithms.increasing.selection import RoundProblem, maximal_r0
from gossamer.errors import CallerError, counted
from gossamer.privacy.mechanisms import NeighboringRelation

_DESCRIPTION = """Compute rounds of growing size, s_i = ceil(N q (i + m)^p), from public constants. No data is read.
Without --search: the paper's parameter selection for a noise multiplier and an epsilon, what its theorem claims, and
beside it what is proved of the same rounds. With --search: the schedule with the fewest rounds, or with the least
aggregate noise sqrt(rounds) * sigma, for which (epsilon, delta) is proved, with the least sigma. It tries every power
and initial size (where not given, the powers 0, 1/4, 1/2, 3/4, 1 and the sizes 1, 4, 16, ...) and numbers of rounds in
steps of a quarter, bisected in the end for the fewest. Growth is the slowest that makes all gradients, with m at least
1. No round is larger than --most-size, no sigma than --most-sigma, and no aggregate noise than --most-noise times that
of rounds of the initial size."""

_LARGE = Bounds(ge=1, le=10**12, whole=True)
_SIGMA = Bounds(ge=1.137, le=10**6, words="a finite number from 1.137 to 10^6, as the main theorem needs")
_OF_PLAN = ("sigma", "r0", "case", "over")
_OF_SEARCH = ("delta", "most_size", "most_sigma", "most_noise")
_NEEDED = ("initial_size", "dataset_size", "gradients", "sigma", "epsilon")
_NEEDED_BY_SEARCH = ("dataset_size", "gradients", "epsilon", "delta")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    search: Annotated[Objective | None, Option("look for the best schedule that is proved")] = None
    initial_size: Annotated[int | None, Option("s_0, gradients in the first round", "S", _LARGE)] = None
    dataset_size: Annotated[int, Option("examples of the client", "N", _LARGE)]
    gradients: Annotated[int, Option("gradients in all rounds together", "K", Bounds(ge=1, le=10**15, whole=True))]
    sigma: Annotated[float | None, Option("noise multiplier: sd of the sum's noise / clip", "Z", _SIGMA)] = None
    epsilon: Annotated[float, Option("to be claimed; with --search, to be proved", "E", POSITIVE)]
    power: Annotated[float | None, Option("p; default 1, with --search all of a grid", "P", Bounds(ge=0, le=4))] = None
    r0: Annotated[str | None, Option("a number up to 1/e, or max; default: r0(sigma) of the main theorem", "R")] = None
    case: Annotated[
        int | None,
        Option("of the main theorem: 1 (default), K <= K-; 2, K >= K+", "N", Bounds(ge=1, le=2, whole=True)),
    ] = None
    over: Annotated[float | None, Option("with --case 2: K/K+ (default 1)", "X", Bounds(ge=1, le=1000))] = None
    delta: Annotated[float | None, Option("with --search: to be proved", "D", DELTA)] = None
    accept_weak: AcceptWeak = False
    most_size: Annotated[int | None, Option("with --search: of a round (default: N/10)", "S", _LARGE)] = None
    most_sigma: Annotated[
        float | None, Option("with --search: largest sigma (default 8)", "Z", Bounds(ge=0.05, le=1000))
    ] = None
    most_noise: Annotated[
        float | None,
        Option(
            "with --search: largest aggregate noise, times that of rounds of the initial size (default 1.25)",
            "X",
            POSITIVE,
        ),
    ] = None
    neighboring_relation: Annotated[
        NeighboringRelation, Option("of what is proved (default add_or_remove_one)", also=("--relation",))
    ] = NeighboringRelation.ADD_OR_REMOVE_ONE


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
    assert options.initial_size is not None
    assert options.sigma is not None
    power = 1.0 if options.power is None else options.power
    if 0 < power < 0.1:
        raise CallerError(f"--power must be 0, for constant sizes, or at least 0.1, found {power:g}")
    if options.over is not None and options.case != 2:
        raise CallerError("--over is K in units of K+, and only with --case 2; leave it out, or add --case 2")
    problem = RoundProblem(
        options.initial_size,
        options.dataset_size,
        options.gradients,
        options.sigma,
        options.epsilon,
        power,
        _r0(options.r0, options.sigma),
        options.case or 1,
        options.over or 1.0,
    )
    plan = plan_rounds(problem)
    with doing(f"accounting for {counted(plan.rounds, 'round')}"):
        proved = prove(plan, options.neighboring_relation)
    return plan_answer(plan, proved, options.neighboring_relation)


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


def _search(options: Options, objective: Objective, doing: Doing) -> Answer:
    assert options.delta is not None
    bounds = {name: getattr(options, name) for name in ("most_size", "most_sigma", "most_noise")}
    search = RoundSearch(
        objective,
        options.epsilon,
        options.delta,
        options.dataset_size,
        options.gradients,
        options.neighboring_relation,
        POWERS if options.power is None else (options.power,),
        () if options.initial_size is None else (options.initial_size,),
        **{name: value for name, value in bounds.items() if value is not None},
    )
    with doing("searching") as report:
        found = search_rounds(search, lambda text: report(f"searching: accounting for {text}"))
    return found_answer(found)


COMMAND = Command(
    Options,
    answer,
    help="rounds of growing size: sizes, noise, what is claimed and proved",
    description=_DESCRIPTION,
    needed=needed,
)
