"""Doubts about a run before it is made, from what is public: budgets that teach little, steps and clips amiss.

They are for linear models of declared columns (`linear_rules`); nothing of a row is looked at. What evaluation takes is
for any model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gossamer.algorithms.plan import Plan
from gossamer.arrays import Floats
from gossamer.errors import counted
from gossamer.experiment.preparation.held_out import doubts_of_held_out
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.specs.linear_rules import CURVATURE, LinearRules
from gossamer.objectives.class_weights import shares_of, weights_of
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.clipping import FixedClip

_SHORTENED = 1.5
"""How much longer than the clip the length of the gradients is that a line is said of."""
_MANY, _LOOKS = 1000, 20


def doubts(prepared: Prepared, plan: Plan) -> list[str]:
    """Return a line on each, with what to do."""
    rules = _rules(prepared, plan)
    return [
        *([] if rules is None else _of_model(prepared, rules)),
        *_of_evaluation(prepared, plan),
        *doubts_of_held_out(prepared),
    ]


def _rules(prepared: Prepared, plan: Plan) -> LinearRules | None:
    """The rules for a run in which each node takes steps on its own examples; None for others."""
    spec, data = prepared.experiment, prepared.experiment.dataset
    loss = getattr(spec.objective, "name", "")
    known = isinstance(data.columns, dict) and isinstance(prepared.objective, LinearModel) and loss in CURVATURE
    if not known or prepared.cast.servers or "learning_rate" not in spec.algorithm.model_dump():
        return None
    assert isinstance(data.columns, dict)
    target, persons = data.target_scale, 1 if spec.budget is None else spec.budget.rows_per_person or 1
    share, guarantee = data.prevalence, plan.guarantee.would_be or plan.guarantee
    return LinearRules(
        tuple(data.columns.values()),
        loss,
        prepared.objective.parts[-1].shape[0],
        min(prepared.shard_sizes.values()) / persons,
        len(prepared.names) if plan.words.shared else 1,
        guarantee.mu if spec.private else math.inf,
        None if share is None else min(share, 1 - share),
        target is not None and target.range is None,
    )


def _of_model(prepared: Prepared, rules: LinearRules) -> Iterator[str]:
    spec, data = prepared.experiment, prepared.experiment.dataset
    settings = spec.algorithm.model_dump()
    weights = weights_of(spec.objective.class_weight, shares_of(data.prevalence), prepared.dataset.labels)
    highest = 2 / (rules.smoothness * (1.0 if weights is None else float(weights.max())))
    if rules.loss != "softmax" and math.isfinite(rules.mu) and rules.counted < rules.needed:
        number, rarer = rules.loss == "squared", "" if rules.loss == "squared" else " of the rarer class"
        most = "" if number or rules.share is not None else "at most "
        yield (
            f"a budget that teaches little: the smallest node trains on "
            f"{most}{counted(math.floor(rules.counted), 'row', form=',')}{rarer}, and {rules.size} parameters need "
            f"about {math.ceil(rules.needed):,} to come within {'0.03 of the R2' if number else '0.02 of the AUROC'} "
            "without privacy; take fewer columns, more rows or more epsilon (docs/how-to/choosing.md)"
        )
    given = settings["learning_rate"]
    rate = max(given.get("initial") or 0, given.get("peak") or 0)
    if settings.get("optimizer") is None and rate > highest:
        yield (
            f"algorithm.learning_rate {rate:g} is above 2/L, {highest:.2g} for the declared columns, "
            f"where steps may overshoot; take 1/L, {highest / 2:.2g}"
        )
    # A clip that follows the gradients does not stay where it begins.
    bound = spec.privacy.clip.initial_bound if isinstance(spec.privacy.clip, FixedClip) else None
    known = weights is None or data.prevalence is not None
    fits = known and (data.task == "classification" or data.target_scale is not None)
    length = rules.length * _first_error(rules, data.prevalence, weights)
    if spec.private and bound is not None and fits and _SHORTENED * bound < length:
        enough = rules.clip if weights is None else float(f"{length:.2g}")
        rarer = "" if rules.share is None else " of the rarer class"
        yield (
            f"privacy.clip {bound:g} shortens most gradients{rarer}: of rows drawn evenly from the declared columns "
            f"they are about {length:.2g} long; predictions will be wrong on average, and {enough:g} "
            "shortens few"
        )


def _first_error(rules: LinearRules, prevalence: float | None, weights: Floats | None) -> float:
    """Usual error: of the rarer class where its share is declared, else about that of a model that says nothing yet."""
    if prevalence is None:
        return 0.5 if rules.loss != "squared" else 1.0 if rules.of_unit else 0.3
    shares = np.array([1 - prevalence, prevalence])
    rarer, given = int(shares.argmin()), np.ones(2) if weights is None else weights
    return float(given[rarer] * (1 - given[rarer] * shares[rarer] / (given @ shares)))


def _of_evaluation(prepared: Prepared, plan: Plan) -> Iterator[str]:
    spec, nodes = prepared.experiment, len(prepared.names)
    seen = spec.evaluation
    if (
        seen.name == "off"
        or seen.nodes is not None
        or seen.every_seconds is not None
        or prepared.cast.hub
        or nodes < _MANY
    ):
        return
    looks = _LOOKS if seen.every_updates is None else plan.updates // seen.every_updates
    tested = looks * nodes * len(prepared.dataset.test.targets)
    trained = plan.updates * prepared.workload.of(prepared.names[0], 0)
    if tested > trained:
        yield (
            f"testing the models of all {counted(nodes, 'node', form=',')} {looks:,} times takes {tested:.2g} "
            f"examples, and training {trained:.2g}: most of the run's time; evaluation: {{nodes: 100}} tests a hundred"
        )
