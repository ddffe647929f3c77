"""Private scales: ranges of columns that nodes find together before a run, each by one noisy release of its own.

Each node's data side releases the sum of `Magnitudes` over all its examples, with Gaussian noise and charged to the
same ledger as the run's own releases; everybody adds the answers up, and what follows is post-processing. A column's
range is symmetric: `WIDTH` times the geometric mean of its values' magnitudes to either side of 0.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gossamer.algorithms.plan import Budget, Plan
from gossamer.arrays import FloatArray
from gossamer.data.columns import Column
from gossamer.data.examples import Split
from gossamer.data.settings import DeclaredScale, PrivateScale
from gossamer.errors import BudgetUnreachable, RunWarning, SpecError
from gossamer.experiment.preparation.prepare import Prepared, Sources, shards_of
from gossamer.experiment.specs.spec import Experiment
from gossamer.objectives.magnitudes import Magnitudes
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.accounting.planner import calibrate_noise_multiplier
from gossamer.privacy.mechanisms import Counts, Gaussian, Mechanism, NoNoise, Poisson, ReleaseKind
from gossamer.privacy.tasks import Gradient, Query
from gossamer.sides.home import Simulated
from gossamer.sides.ledger import Ledger
from gossamer.sides.pool import open_pool
from gossamer.vectors import Public

WIDTH = 4.0
"""Of a range, to either side of 0, in geometric means of magnitudes: evenly spread values are all within it."""

_CERTAIN = 3.0
"""Standard deviations of noise that the count of a column's values is to be above."""


def beforehand(prepared: Prepared) -> Counts:
    """The releases that each node makes before the run: one.

    Raises
    ------
    SpecError
        If nothing says how much noise there is.
    """
    kind = question(prepared)[1].release
    _check_room(prepared.experiment, kind)
    return {kind: 1}


def _check_room(experiment: Experiment, kind: ReleaseKind) -> None:
    """Refuse a release that leaves nothing of the budget for the run.

    Raises
    ------
    BudgetUnreachable
        If it needs all of it, or more.
    """
    budget = experiment.budget
    if budget is None or not kind.mechanism.private:
        return
    alone = epsilon({kind: 1}, budget.delta, experiment.privacy.relation, experiment.rows_per_person).epsilon
    if alone >= (least := _least(budget)):
        raise BudgetUnreachable(
            f"dataset.scale: the release before the run alone needs epsilon {alone:.4g}, and budget.epsilon is "
            f"{least:g}; raise dataset.scale.noise_multiplier, or give a share instead"
        )


def _least(budget: Budget) -> float:
    return min(budget.epsilon) if isinstance(budget.epsilon, tuple) else budget.epsilon


def _law(experiment: Experiment) -> Mechanism:
    """Noise of the release, for a vector that is at most 1 long."""
    scale, budget = experiment.dataset.scale, experiment.budget
    assert isinstance(scale, PrivateScale)
    if not experiment.private:
        return NoNoise(1.0)
    if scale.noise_multiplier is not None:
        return Gaussian(1.0, scale.noise_multiplier)
    if budget is None:
        raise SpecError(
            "dataset.scale.noise_multiplier is missing: without a budget there is no share of one; give it, or a budget"
        )
    share, rows = scale.share * _least(budget), experiment.rows_per_person
    found = calibrate_noise_multiplier(share, budget.delta, experiment.privacy.relation, [{Poisson(1.0): 1}], rows=rows)
    return Gaussian(1.0, found.noise_multiplier)


def question(prepared: Prepared) -> tuple[Magnitudes, Gradient]:
    """The sums that are asked for, and the task by which each node's data side releases its own.

    Parameters
    ----------
    prepared : Prepared
        Run whose scale is to be found.

    Raises
    ------
    SpecError
        If nothing says how much noise there is.
    """
    scale = prepared.experiment.dataset.scale
    assert isinstance(scale, PrivateScale)
    magnitudes = Magnitudes(list(prepared.scaled_privately.values()), *scale.magnitudes)
    model, query = Public(np.zeros(magnitudes.size)), Query(Poisson(1.0), _law(prepared.experiment), 1.0)
    return magnitudes, Gradient(0, model, query)


def ranges_of(prepared: Prepared, answers: Sequence[FloatArray]) -> dict[str, float]:
    """The range of each column that is scaled privately, by what the nodes have released.

    Parameters
    ----------
    prepared : Prepared
        Run with the values of its columns as they are.
    answers : sequence of ndarray [size]
        Answers of all nodes, in order: sums in floating point depend on it.
    """
    columns, (magnitudes, task) = list(prepared.scaled_privately), question(prepared)
    total, law = np.sum(np.stack(answers), axis=0), task.query.mechanism
    deviation = law.noise_multiplier * law.clip * math.sqrt(len(answers)) if isinstance(law, Gaussian) else 0.0
    _warn_of_noise(columns, total, deviation)
    typical = magnitudes.typical(total, deviation)
    # Three digits, so that the file of the model says it shortly.
    return {name: float(f"{WIDTH * value:.3g}") for name, value in zip(columns, typical, strict=True)}


@dataclass(frozen=True)
class Scaled:
    """A run whose scale is found.

    Attributes
    ----------
    prepared : Prepared
        Run with scaled examples, and a declaration that says by what.
    ranges : mapping of str to float
        Range of each column that was scaled privately: values are taken to be between that number and minus it.
    ledgers : mapping of str to Ledger
        Ledgers of what that has cost, for the run to be charged to.
    """

    prepared: Prepared
    ranges: Mapping[str, float] = field(default_factory=dict)
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)


def scaled(prepared: Prepared, plan: Plan, sources: Sources) -> Scaled:
    """Release, and scale the examples of all nodes by what was found.

    Parameters
    ----------
    prepared : Prepared
        Run with the values of its columns as they are.
    plan : Plan
        Plan of the run and of what comes before it.
    sources : Sources
        Sources of the run's data sides.
    """
    magnitudes, task = question(prepared)
    shards, home = shards_of(prepared), Simulated(sources.noise, book=sources.book)
    sides = open_pool(plan.sides, shards, magnitudes, prepared.dataset.train, home, sources.machine)
    tickets = [sides.admit(name, task) for name in prepared.names]
    ranges = ranges_of(prepared, [np.asarray(answer.released.values) for answer in sides.compute(tickets)])
    told = rescaled(prepared, ranges)
    return Scaled(told, ranges, {name: side.ledger for name, side in sides.sides.items() if side.ledger is not None})


def _warn_of_noise(columns: list[str], total: FloatArray, deviation: float) -> None:
    counts = total[len(columns) :]
    unsure = [name for name, count in zip(columns, counts, strict=True) if count <= _CERTAIN * deviation]
    if unsure:
        warnings.warn(
            f"dataset.scale: the noise hides how large the values of {', '.join(map(repr, unsure))} are, so their "
            "scale is little more than a guess; declare ranges under dataset.columns, or raise dataset.scale.share",
            RunWarning,
            stacklevel=3,
        )


def rescaled(prepared: Prepared, ranges: Mapping[str, float]) -> Prepared:
    """All examples scaled by ranges that a run has found, and a declaration by which further rows are scaled alike.

    Parameters
    ----------
    prepared : Prepared
        Run with the values of its columns as they are.
    ranges : mapping of str to float
        Ranges of a run of the same spec, as its summary has them; none where it found none.
    """
    declaration = prepared.dataset.declaration
    if not ranges or declaration.columns is None:
        return prepared
    places = [place for name, place in prepared.scaled_privately.items() if name in ranges]
    bounds = np.array([ranges[name] for name in prepared.scaled_privately if name in ranges], np.float32)

    def apply(split: Split) -> Split:
        features = np.array(split.features)
        features[:, places] = np.clip(features[:, places], -bounds, bounds) / bounds
        return Split(features, split.targets)

    found = {
        name: _with_range(column, ranges[name]) if name in ranges else column
        for name, column in declaration.columns.items()
    }
    told = declaration.model_copy(update={"columns": found, "scale": DeclaredScale()})
    dataset = replace(
        prepared.dataset, train=apply(prepared.dataset.train), test=apply(prepared.dataset.test), declaration=told
    )
    return replace(prepared, dataset=dataset, public=None if prepared.public is None else apply(prepared.public))


def check_not_private(prepared: Prepared, what: str) -> None:
    """Refuse a measurement that is made on features before their scale is found: it would find less than there is.

    Raises
    ------
    SpecError
        If the spec has the scale found privately; ``what`` is measured.
    """
    if prepared.scaled_privately:
        raise SpecError(
            f"dataset.scale: {what} looks at features as they are before the run, and scale: private is found in it; "
            "declare ranges under dataset.columns, or scale: none"
        )


def _with_range(column: Column, bound: float) -> Column:
    missing = None if column.missing is None else min(max(float(column.missing), -bound), bound)
    return column.model_copy(update={"range": (-bound, bound), "missing": missing})
