"""Private evaluation: after a run each party releases once, with noise, how its held-out examples are scored.

What a party releases is a histogram of scores by outcome on a public grid, as sums that one example moves by a length
of 1 (`objectives.score_histogram`), with exact Gaussian noise for the epsilon of the spec. Figures of all parties and
of each, with their intervals, are post-processing (`objectives.noisy_figures`).

The model that scores is made of what the run released, and nothing of the run depends on held-out examples. So all that
is told of one of these is this one release, and its guarantee is that of one Gaussian release on the whole data; and
to an example that was trained on it tells nothing that the model does not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gossamer.algorithms.persons import asked
from gossamer.algorithms.plan import Plan
from gossamer.data.examples import check_held_out_persons
from gossamer.errors import BudgetUnreachable, SpecError, counted
from gossamer.experiment.preparation.held_out_rows import SUFFIX, grouped, groups_of, rows_of
from gossamer.experiment.preparation.prepare import Prepared, Sources
from gossamer.objectives.noisy_figures import shown
from gossamer.objectives.released_scores import MaskedPart, ReleasedScores
from gossamer.objectives.score_histogram import SIZE, ScoreCounts, ScoreHistogram, middle
from gossamer.privacy import guarantees
from gossamer.privacy.accounting.accountants import epsilon, profile
from gossamer.privacy.accounting.planner import calibrate_noise_multiplier
from gossamer.privacy.guarantees import EXAMPLES, HELD_OUT, WHOEVER, Guarantee
from gossamer.privacy.mechanisms import Gaussian, Mechanism, NeighboringRelation, NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.randomness import derive, digest_of
from gossamer.sides.held_out import SimulatedExactly, masked_part
from gossamer.sides.home import Home
from gossamer.sides.machine import Side
from gossamer.sides.plan import NOT_CRASHES, Samples, SidePlan
from gossamer.sides.pool import Machine, open_pool
from gossamer.sides.samples import ShardRows
from gossamer.vectors import Public, Released

OBSERVER, SUM = "held_out", "held_out_sum"
"""Keys of guarantees among those of a plan: by each party's own noise, and by that of a sum over all of them."""
_ASSUMED = (
    "bins, noise and numbers of held-out examples are public constants, and so is which examples these are, and whose",
    "nothing of the run depends on held-out examples: neither its settings nor its model, nor when it ends",
    guarantees.CODE,
    "this run alone: what other runs tell of the same examples adds up",
    "held-out examples are covered in the histograms that parties release; exact figures on them, in metrics, summary "
    "and report, are their maker's own and covered by nothing",
    guarantees.SIMULATED_NOISE,
)
_ALONE = "each person has one example, to train on or held out, at one node"
_TOGETHER = "each person has at most {rows} held-out examples, and none to train on, which has been checked"
_TOGETHER_THERE = (
    "each person has at most {rows} held-out examples, and none to train on, which each party has checked of its own, "
    "and all examples at one party"
)
_TRAINED = (
    "training examples are covered, in all messages and in the model; held-out ones have a guarantee of their own, for "
    "histograms of scores on them, and exact figures on them, in metrics, summary and report, are covered by nothing"
)
_SHARED = (
    "{honest} parties, this one included, add their noise and tell nobody: of all {parties} at most {colluders} work "
    "together with others",
    "the masks hold: whoever adds histograms up learns their sum alone, with all {parties} parties in it",
    "each pair of parties agrees on its masks by the keys of their identities, and each knows whose keys they are; who "
    "gets a party's key, even later, takes off its masks",
)
_OF_SUM = "whoever sees the sum of all histograms, and up to {colluders} of the {parties} parties together with it"
_SLOTS = "adding or removing an example is read as blanking one of the public slots"


def held_out_plans(prepared: Prepared, plan: Plan) -> dict[str, SidePlan]:
    """The most that is said of each party's held-out examples, by the name of its receipts; empty where nothing is."""
    return {} if plan.held_out is None else dict.fromkeys(rows_of(prepared), plan.held_out)


def with_held_out(prepared: Prepared, plan: Plan) -> Plan:
    """Return the plan with the guarantee of what is released of held-out examples, where something is."""
    if prepared.experiment.evaluation.release is None:
        return plan
    told = {
        observer: replace(one, assumptions=_with(one.assumptions)) if math.isfinite(one.epsilon) else one
        for observer, one in plan.guarantees.items()
    }
    query, size = _query(prepared), len(groups_of(prepared)) * SIZE
    once = {query.release(size): 1}
    side = Samples(once, query.mechanism.private, partial(tuple, (query,)), WHOEVER, HELD_OUT)
    if (honest := _honest(prepared)) > 1 and prepared.experiment.private:
        told[SUM] = _of_sum(prepared, honest)
    return replace(plan, guarantees={**told, OBSERVER: _guarantee(prepared, query)}, held_out=side)


def _honest(prepared: Prepared) -> int:
    """h: how many parties' noise is counted in what is released; 1 is each one's own."""
    share = prepared.experiment.evaluation.honest
    return 1 if share is None else math.ceil(round(share * len(prepared.names), 9))


def _of_sum(prepared: Prepared, honest: int) -> Guarantee:
    """Guarantee of a sum over all parties, of which h add noise for certain: that of one release with all of it."""
    found, parties = _guarantee(prepared, _query(prepared, 1)), len(prepared.names)
    counts = {"honest": honest, "parties": parties, "colluders": parties - honest}
    observer, assumptions = _OF_SUM.format(**counts), (*(line.format(**counts) for line in _SHARED), *found.assumptions)
    proof = (
        f"{found.proof.partition(' of ')[0]} of one release, the sum of all parties' histograms of scores by outcome, "
        f"with the noise of {honest} of them"
    )
    return replace(found, observer=observer, proof=proof, assumptions=assumptions)


def _with(assumptions: tuple[str, ...]) -> tuple[str, ...]:
    if EXAMPLES not in assumptions:
        return (*assumptions, _TRAINED)
    return tuple(_TRAINED if line == EXAMPLES else line for line in assumptions)


def check_held_out(prepared: Prepared) -> None:
    """Refuse a release if there is nothing to release, or nothing would be proved of it, and groups that are none.

    Raises
    ------
    CallerError
        With one line on what does not fit.
    """
    if prepared.experiment.evaluation.release is not None:
        _check_outcomes(prepared)
        if not prepared.run:  # whose parties alone know their examples
            rows_of(prepared)
    groups_of(prepared)


def _check_outcomes(prepared: Prepared) -> None:
    """Refuse what has no scores of two outcomes, and persons of whom nothing would be proved."""
    spec, dataset, loss = prepared.experiment, prepared.dataset, prepared.experiment.objective.name
    if dataset.classes != 2 or loss == "hinge":
        found = "a regression" if dataset.classes is None else f"{counted(dataset.classes, 'class', 'classes')}"
        raise SpecError(
            "evaluation.release: private is for two classes and a loss that gives probabilities, found "
            f"{'the hinge loss' if loss == 'hinge' else found}; leave it out"
        )
    if spec.evaluation.by == "federation" and len(prepared.names) < 2:
        raise SpecError("evaluation.by: federation is for two parties or more, found one; leave it out")
    if asked(spec) and not prepared.run:  # or each party checks its own
        check_held_out_persons(dataset.persons, dataset.test_persons, spec.rows_per_person, dataset.name)


def _query(prepared: Prepared, honest: int | None = None) -> Query:
    """The question that is asked of every party: all of its held-out examples, with noise for a length of 1.

    Of h parties that are counted on each adds 1/h of the variance.
    """
    spec, honest = prepared.experiment, honest or _honest(prepared)
    law: Mechanism = NoNoise(1.0)
    if spec.private:
        assert spec.evaluation.epsilon is not None
        relation, rows = spec.privacy.relation, spec.rows_per_person
        try:
            noise = calibrate_noise_multiplier(
                spec.evaluation.epsilon, spec.delta, relation, [{Poisson(1.0): 1}], rows=rows
            )
        except BudgetUnreachable:
            raise BudgetUnreachable(
                f"evaluation.epsilon: {spec.evaluation.epsilon:g} at delta {spec.delta:g} takes more noise than any "
                "that a release has; raise it"
            ) from None
        law = Gaussian(1.0, noise.noise_multiplier / math.sqrt(honest))
    return Query(Poisson(1.0), law, 1.0)


def _guarantee(prepared: Prepared, query: Query) -> Guarantee:
    """Guarantee of the release for a held-out example, or all those of a person."""
    spec, rows = prepared.experiment, prepared.experiment.rows_per_person
    kinds = {query.release(len(groups_of(prepared)) * SIZE): 1}
    relation = spec.privacy.relation
    unit = HELD_OUT if rows == 1 else f"person with at most {counted(rows, 'held-out example')}"
    if not spec.private:
        none = guarantees.none("no noise is added to histograms of held-out examples", relation)
        return replace(none, unit=unit, observer=WHOEVER)
    found = epsilon(kinds, spec.delta, relation, rows)
    slots = (_SLOTS,) if relation is NeighboringRelation.ADD_OR_REMOVE_ONE else ()
    times, persons = ((NOT_CRASHES,), _TOGETHER_THERE) if prepared.run else ((), _TOGETHER)
    return Guarantee(
        found.epsilon,
        spec.delta,
        unit,
        relation,
        WHOEVER,
        (_ALONE if rows == 1 else persons.format(rows=rows), *_ASSUMED, *slots, *times),
        f"{found.accountant} of one release of each party, a histogram of scores by outcome with exact noise",
        rows_per_person=rows,
        evidence=partial(profile, ((kinds, rows),), relation),
    )


def doubts_of_held_out(prepared: Prepared) -> Iterator[str]:
    """Yield a line where the noise will hide what is released of all parties together."""
    spec = prepared.experiment
    if spec.evaluation.release is None or not spec.private:
        return
    if spec.evaluation.honest is not None and _honest(prepared) == len(prepared.names):
        yield (
            f"evaluation.honest {spec.evaluation.honest:g} of {len(prepared.names)} parties, rounded up, is all of "
            "them: against a party, which knows its own noise, less is proved; say a lower share"
        )
    rows, groups = len(prepared.dataset.test), len(groups_of(prepared))
    normal = _query(prepared).mechanism.normal
    deviation = 0.0 if normal is None else normal.standard_deviation * math.sqrt(len(prepared.names) * groups)
    if not shown(rows, deviation, spec.dataset.prevalence):
        yield (
            f"evaluation.epsilon {spec.evaluation.epsilon:g} will show no figure of {counted(rows, 'held-out row')}: "
            "too much noise for so few; raise it, or hold out more (docs/privacy/private-evaluation.md)"
        )


@dataclass(frozen=True)
class HeldOutRelease:
    """Histograms that parties have released of their held-out examples, and the ledgers that were charged for them.

    Attributes
    ----------
    scores : ReleasedScores
        The histograms.
    lines : list of dict
        Records for ``ledger.jsonl``.
    """

    scores: ReleasedScores
    lines: list[dict[str, Any]]


def release_held_out(
    prepared: Prepared, plan: Plan, model: Any, sources: Sources, charged: Callable[[], object] = lambda: None
) -> HeldOutRelease:
    """Have every party release its histogram of the run's model.

    Parameters
    ----------
    prepared, plan
        Run, as it was prepared and planned.
    model : Public or Released
        The run's model.
    sources : Sources
        Sources of the run's data sides.
    charged : callable
        Called when all is charged, before anything is drawn.

    Raises
    ------
    SpecError
        If the model may not be seen by everybody.
    """
    rows = rows_of(prepared)
    home = SimulatedExactly(_seed(prepared, rows, model.values, sources), prepared.names, sources.book)
    return released(prepared, plan, model, rows, home, charged, sources.machine)


def released(
    prepared: Prepared,
    plan: Plan,
    model: Any,
    rows: Mapping[str, ShardRows],
    home: Home,
    charged: Callable[[], object] = lambda: None,
    machine: Machine = Side,
    spec: str = "",
) -> HeldOutRelease:
    """Have parties release in some world, each once.

    Parameters
    ----------
    prepared, plan, model, charged
        As for `release_held_out`.
    rows : mapping of str to ShardRows
        Held-out examples of each of them, by the name of its receipts.
    home : Home
        The world, with their ledgers.
    machine : callable
        Function that makes a data side.
    spec : str
        Hash of the run's spec, where an organiser could give two runs one name: masks of two are others.

    Raises
    ------
    SpecError
        If the model may not be seen by everybody.
    """
    if not isinstance(model, Public | Released):
        raise SpecError("evaluation.release: private needs a model that everybody may see; leave it out")
    groups, query, side = groups_of(prepared), _query(prepared), plan.held_out
    assert side is not None
    around = middle(prepared.experiment.dataset.prevalence)
    histogram = ScoreHistogram(prepared.objective, np.asarray(model.values), grouped(prepared), len(groups), around)
    sides = open_pool(dict.fromkeys(rows, side), rows, histogram, prepared.dataset.test, home, machine)
    task = Gradient(0, Public(np.zeros(histogram.size)), query)
    tickets = [sides.admit(name, task) for name in rows]
    charged()
    answers = [np.asarray(answer.released.values) for answer in sides.compute(tickets)]
    grids = [None if ticket.provided.grid is None else ticket.provided.grid.noise for ticket in tickets]
    deviations = [0.0 if grid is None else grid.standard_deviation for grid in grids]
    parties, sizes = [name.removesuffix(SUFFIX) for name in rows], [len(own.rows) for own in rows.values()]
    together = prepared.experiment.evaluation.by == "federation"
    # All grids have one step, which follows from the noise and from how many numbers there are.
    step, masked = next((grid.step for grid in grids if grid is not None), 0.0), dict[str, MaskedPart]()
    if together and step:
        context = f"{prepared.run} {spec} {_law(prepared)}".encode()
        masked = {
            name: MaskedPart(size, deviation, masked_part(one, step, name, home.signing(name), context))
            for name, one, deviation, size in zip(parties, answers, deviations, sizes, strict=True)
        }
    elif together:
        parties, answers, sizes, deviations = ["all"], [np.sum(answers, axis=0)], [sum(sizes)], [0.0]
    found = {
        name: [ScoreCounts.of(one, deviation, size / len(groups), around) for one in np.split(answer, len(groups))]
        for name, answer, deviation, size in zip(parties, answers, deviations, sizes, strict=True)
        if not masked
    }
    epsilon = plan.guarantees.get(SUM, plan.guarantees[OBSERVER]).epsilon
    told = ReleasedScores(
        found,
        groups,
        epsilon if math.isfinite(epsilon) else None,
        prepared.experiment.dataset.prevalence,
        prepared.run,
        () if together and not masked else prepared.names,
        masked,
        step if masked else 0.0,
    )
    return HeldOutRelease(told.opened(), [*sides.lines()])


def _seed(prepared: Prepared, rows: Mapping[str, ShardRows], model: Any, sources: Sources) -> int:
    """The seed of the noise: another one wherever anything that a histogram follows from is another."""
    test = prepared.dataset.test
    arrays = *test.arrays, model, grouped(prepared), *(one.rows for one in rows.values())
    by: tuple[str, ...] = () if prepared.experiment.evaluation.by == "party" else ("together",)
    if (prevalence := prepared.experiment.dataset.prevalence) is not None:  # and so the grid
        by += (repr(prevalence),)
    parts = digest_of(np.ascontiguousarray(one).tobytes() for one in arrays).hex()
    return derive(sources.noise, "held-out examples", *by, _law(prepared), parts)


def _law(prepared: Prepared) -> str:
    return json.dumps(_query(prepared).release(len(groups_of(prepared)) * SIZE).describe(), sort_keys=True)
