"""Variants of a private federation that its price is read off: without noise, each party alone, all rows in one place.

All look at as many examples as the federation does: so many passes over the training examples, in batches of its
size. The last two share nothing that is private, so they have no noise: what a party can do by itself anyway, and what
could be had if privacy and distance were no matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gossamer.algorithms.plan import Plan
from gossamer.algorithms.table import ALONE, TOGETHER, Baseline
from gossamer.errors import SpecError
from gossamer.experiment.planning import asked_in
from gossamer.experiment.prepared import Prepared
from gossamer.experiment.reading import parse_spec
from gossamer.experiment.spec import Experiment

_NO_NOISE: Mapping[str, Any] = {"privacy": "none", "budget": None, "personalisation": None}
_RATES = ("local_learning_rate", "learning_rate")
_LEVELS = ("noise_multiplier", "epsilon", "standard_deviation", "agent_noise")


def without_noise(experiment: Experiment, *, clipped: bool = False) -> Experiment:
    """Return the same federation with no noise, and no clip unless it is to stay ``clipped``, as masks need it.

    Raises
    ------
    SpecError
        If its algorithm cannot do without.
    """
    plain = _plain(experiment)
    if "noise" in plain["algorithm"]:
        plain["algorithm"]["noise"] = "none"
    privacy = {"mechanism": "none", "clip": plain["privacy"].get("clip") if clipped else None}
    return parse_spec({**plain, **_NO_NOISE, "privacy": privacy})


def with_epsilon(experiment: Experiment, epsilon: float) -> Experiment:
    """Return the same federation with noise for another budget.

    Raises
    ------
    SpecError
        If its noise meets none.
    """
    plain = _plain(experiment)
    budget = {**(plain.get("budget") or {"delta": experiment.delta}), "epsilon": epsilon}
    privacy = {**plain["privacy"], **dict.fromkeys(_LEVELS)}
    return parse_spec({**plain, "privacy": privacy, "budget": budget, "personalisation": None})


def alone(prepared: Prepared, passes: float) -> Experiment:
    """Return a run in which each party trains on its own examples, and says nothing to anybody."""
    return parse_spec(_baseline(prepared, ALONE, len(prepared.names), passes))


def in_one_place(prepared: Prepared, passes: float) -> Experiment:
    """Return a run of one machine that has all examples."""
    experiment = prepared.experiment
    plain = _baseline(prepared, TOGETHER, 1, passes)
    speeds = {"name": "constant", "seconds": experiment.speeds.seconds}
    return parse_spec({**plain, "partition": "iid", "speeds": speeds, "links": None, "faults": None})


def passes_of(prepared: Prepared, plan: Plan) -> float:
    """Return how often a run looks at its training examples, by its schedule.

    Raises
    ------
    SpecError
        If its algorithm does not count in passes.
    """
    workload, name = prepared.workload, prepared.experiment.algorithm.name
    try:
        workload.updates_in(1.0)
    except SpecError:
        raise SpecError(f"{name} does not count in passes over the examples, so no such run is like it") from None
    asked = asked_in(prepared, plan)
    looked = sum(workload.of(name, i) for name in prepared.names for i in range(asked.get(name, 0)))
    if not looked:
        raise SpecError("no examples are looked at in a run; let it be longer")
    return looked / sum(prepared.shard_sizes.values())


def _baseline(prepared: Prepared, name: str, nodes: int, passes: float) -> dict[str, Any]:
    plain = _plain(prepared.experiment)
    evaluation = {**plain["evaluation"], "every_updates": None, "nodes": None}
    algorithm = {"name": name, "nodes": nodes, **_learning(plain["algorithm"])}
    smallest = min(prepared.shard_sizes.values())
    algorithm["batch_size"] = min(algorithm.get("batch_size", Baseline().batch_size), smallest)
    return {**plain, **_NO_NOISE, "algorithm": algorithm, "evaluation": evaluation, "stop": {"epochs": passes}}


def _learning(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Batch, learning rate and optimizer of an algorithm, as far as a baseline has the like."""
    rate = next((settings[key] for key in _RATES if settings.get(key) is not None), None)
    optimizer = None if _RATES[0] in settings else settings.get("optimizer")
    found = {"batch_size": settings.get("batch_size"), "learning_rate": rate, "optimizer": optimizer}
    kept: dict[str, Any] = {}
    for key, value in found.items():
        try:
            Baseline.model_validate({key: value})
        except ValidationError:
            continue  # such as a schedule over rounds; the baseline's own default stands
        if value is not None:
            kept[key] = value
    return kept


def _plain(experiment: Experiment) -> dict[str, Any]:
    return experiment.model_dump(mode="json")
