"""Summary of a run, as ``summary.json`` has it, the card of its model, and what went wrong in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.plan import Plan, in_common
from gossamer.algorithms.table import registered_as
from gossamer.arrays import FloatArray
from gossamer.errors import counted
from gossamer.experiment.preparation.held_out_rows import named_groups, of_one_class
from gossamer.experiment.preparation.planning import problem_of, proved
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.results.observer import best_model, decisive, deviations, units_of
from gossamer.experiment.specs.spec import of_others
from gossamer.objectives.score_words import Assessment
from gossamer.runtimes.simulator import Simulator
from gossamer.sides.ledger import MOST_NAMED
from gossamer.trained.card import Card, PartCard, describe
from gossamer.trained.model import assessed, sample_of

# Runs that come to nothing good: no update, a model that ends worse than it began, gradients that were not finite.

Figures = dict[str, Any]


def divergence(prepared: Prepared, rows: Sequence[Mapping[str, Any]], not_finite: int) -> Figures:
    """Figures of a run that is over, as a summary has them; empty where there is nothing to say.

    Parameters
    ----------
    prepared : Prepared
        Parts that the run is made of.
    rows : sequence of mapping
        Rows of metrics, the last of which is of the end. With a server its model counts, and else those of the nodes.
    not_finite : int
        Gradients that were not finite. Raw: with noise, or behind masks, they are for the private log alone.
    """
    spec, found = prepared.experiment, Figures()
    name = "mean_model_test_loss" if prepared.cast.servers else "test_loss"
    if rows[-1]["updates"]:
        first = rows[0][name] if rows[0]["updates"] == 0 else initial_loss(prepared)
        found = worse(first, rows[-1][name])
    if not_finite and not spec.private and not spec.terms.hiding:
        found["gradients_not_finite"] = not_finite
    return found


def initial_loss(prepared: Prepared) -> float:
    """Test loss of the model that all nodes start from."""
    return float(prepared.objective.evaluate(np.asarray(prepared.initial.values)[None], prepared.dataset.test).loss[0])


def worse(first: float | None, last: float | None) -> Figures:
    """Test loss at the start, where the ``last`` is above it, or no number."""
    finite = last is not None and math.isfinite(last)
    if first is None or not math.isfinite(first) or (last is not None and finite and last <= first):
        return {}
    return {"ended_worse": {"initial_test_loss": first, "test_loss": last if finite else None}}


def troubles(found: Mapping[str, Any], private: bool) -> list[str]:
    """Figures of a summary on what went wrong, a line each; ``private`` if noise may be what made the model worse.

    Where the algorithm itself stopped because of it, it says more.
    """
    lines, remedy = [], "lower the learning rates"
    if (ended := found.get("ended_worse")) and "diverged" not in found.get("ended", ()):
        last = "no number" if ended["test_loss"] is None else f"{ended['test_loss']:.4g}"
        what = "the model is worse than before the run" if private else "the run diverged"
        noise = ", or take less noise (a larger budget, or fewer updates)" if private else ""
        noise = f", or scale the features (dataset.columns, dataset.scale){noise}"
        lines.append(
            f"{what}: the test loss began at {ended['initial_test_loss']:.4g}, and ended at {last}; {remedy}{noise}"
        )
    if found.get("updates") == 0 and "shortfall" not in found:
        lines.append(
            "the run made no update, so its model is the one that it began with; give its nodes and rounds more time"
        )
    if many := found.get("gradients_not_finite"):
        lines.append(
            f"{counted(many, 'gradient')} of too large numbers {'was' if many == 1 else 'were'} left out; {remedy}"
        )
    for whose, counts in found.get("counted_as_zero", {}).items():
        reasons = ", ".join(f"{reason} {many}" for reason, many in counts.items())
        lines.append(f"{whose} of the app: {counted(sum(counts.values()), 'answer')} counted as zero ({reasons})")
    return lines


def card_of(prepared: Prepared, *, owners: tuple[str, ...] | None = None, note: str | None = None) -> Card:
    """Describe the models of a run.

    Parameters
    ----------
    prepared : Prepared
        Run, as it was prepared and planned.
    owners : tuple of str, optional
        The parties with data, where everybody in the run knows them.
    note : str, optional
        Note that the model's holder must know.
    """
    settings, dataset = prepared.experiment.objective, prepared.dataset
    name = None if settings.module else settings.name or ("softmax" if dataset.classes else "squared")
    module = None if prepared.code else settings.module  # of one that was given from memory there is no name
    outputs = dataset.train.targets.shape[1] if dataset.train.targets.ndim == 2 else None
    said = {"name": name, "module": module, "adapters": settings.adapters, "outputs": outputs}
    return Card(
        objective=describe(prepared.objective, **said),
        parts=tuple(PartCard(name=part.name, shape=part.shape) for part in prepared.objective.parts),
        data=dataset.declaration,
        owners=owners or prepared.owners,
        note=note,
        about=prepared.experiment.about,
    )


def scores_of(prepared: Prepared, model: npt.NDArray[Any]) -> Assessment:
    """Scores of a model on the test examples, with intervals, those of groups, and owners who have one class alone."""
    data, groups = prepared.dataset, named_groups(prepared)
    found = assessed(card_of(prepared), prepared.objective, model, data.test, data.test_persons, groups)
    return {**found, "of_one_class": alone} if found and (alone := of_one_class(prepared)) else found


def figure_names(prepared: Prepared, shared: bool) -> set[str]:
    """Names of the test figures that a run will have: those of a model that says nothing of two rows of each class.

    Where nobody has a common model (``shared``), they are those of nodes' own.
    """
    card = card_of(prepared)
    if not len(prepared.dataset.test):
        return set()
    kinds = len(card.data.labels or ".")
    targets = np.repeat(np.arange(kinds), 2) if card.data.labels else np.array([0.0, 1.0])
    persons = np.zeros(len(targets), np.int64)  # of one person nothing is drawn again
    found = {"loss", *sample_of(card, np.zeros((len(targets), kinds)), targets, persons).assess()["figures"]}
    if shared or len(prepared.names) == 1:
        return found
    return found & ({"loss", "accuracy", "auroc"} if kinds == 2 else {"loss", "accuracy"})


COUNTS = ("updates", "virtual_seconds", "messages", "bytes", "most_releases", "epsilon_so_far")
"""Of a row of metrics, what is no metric of a model."""


def outcome(prepared: Prepared, simulator: Simulator, status: str, last: Mapping[str, Any]) -> dict[str, Any]:
    """Describe what was run and what became of it, by the ``last`` row of metrics."""
    spec = prepared.experiment
    return {
        **algorithm_of(prepared),
        "engine": simulator.engine,
        "dataset": prepared.dataset.name,
        "seed": spec.seed,
        "status": status,
        **({"stopped_by": decisive(spec)} if status == "accuracy" else {}),
        "nodes": len(prepared.names),
        **({"owners": dict(zip(prepared.names, prepared.owners))} if prepared.owners else {}),
        "parameters": prepared.objective.size,
        "updates": simulator.counters.updates,
        "messages": simulator.messages,
        "bytes": simulator.bytes,
        "rejected_messages": simulator.counters.rejected,
        "virtual_seconds": last.get("virtual_seconds", 0.0),
        **({"finished": dict(sorted(simulator.finished.items()))} if len(prepared.names) <= MOST_NAMED else {}),
        "ended": dict(sorted(Counter(simulator.finished.values()).items())),
        "gone": sorted(simulator.gone),
        "metrics": {name: value for name, value in last.items() if name not in COUNTS},
        **faults_of(prepared),
        **own_figures(prepared, simulator),
    }


def faults_of(prepared: Prepared) -> Figures:
    """Answers of code that is not Gossamer's that counted as zero, if there were any."""
    return {"counted_as_zero": prepared.objective.faults} if prepared.objective.faults else {}


def algorithm_of(prepared: Prepared) -> dict[str, Any]:
    """Name of the algorithm; of one that is not Gossamer's own its distribution and source too."""
    name = prepared.experiment.algorithm.name
    others = [
        {
            "kind": kind.noun,
            "name": one.name,
            "distribution": one.distribution,
            "version": one.version,
            "sha256": one.source,
        }
        for kind, one in of_others(prepared.experiment)
    ]
    more = {"other_code": others} if others else {}
    if (found := registered_as(name)) is None:
        return {"algorithm": name, **more}
    code = {"distribution": found.distribution, "version": found.version, "sha256": found.source}
    return {"algorithm": name, "algorithm_code": code, **more}


def own_figures(prepared: Prepared, simulator: Simulator) -> dict[str, Any]:
    """The algorithm's own figures, if it has any, and how well each unit's model does, if there are units."""
    models = prepared.algorithm.figures.unit_models(simulator.nodes)
    told = getattr(simulator.nodes, "report", None)  # of a population, of all nodes at once
    found = prepared.algorithm.figures.report(simulator.nodes) if told is None else told()
    found |= _network(prepared, simulator)
    found |= _tested(prepared, models) | _deviating(prepared, models) if models else {}
    return {prepared.experiment.algorithm.name: found} if found else {}


def _network(prepared: Prepared, simulator: Simulator) -> dict[str, Any]:
    """Figures of nodes that no server counts for: how slowly they mix, and how stale their updates were."""
    rho = {} if prepared.rho is None else {"rho": prepared.rho}
    stale = simulator.activity.computed_stale()
    return rho if stale is None else {**rho, "staleness_mean": stale[0], "staleness_max": stale[1]}


def _tested(prepared: Prepared, models: Mapping[str, FloatArray]) -> dict[str, dict[str, Any]]:
    """The share of test examples that each unit's model gets wrong; its test loss where there are no classes."""
    found = prepared.objective.evaluate(np.stack(list(models.values())), prepared.dataset.test)
    if prepared.dataset.classes is None:
        name, values = "test_loss", found.loss
    else:
        name, values = "test_error", 1 - found.accuracy
    return {name: {server: _finite(float(value)) for server, value in zip(models, values, strict=True)}}


def _deviating(prepared: Prepared, models: Mapping[str, FloatArray]) -> dict[str, dict[str, float | None]]:
    """Squared distance of each unit's model from the best model, where that is known."""
    if (best := best_model(prepared.objective, prepared.dataset.train, units_of(prepared))) is None:
        return {}
    return {"msd": {server: _finite(deviations(model[None], best)["centroid_msd"]) for server, model in models.items()}}


@dataclass(frozen=True)
class PrivacyReport:
    """The section ``privacy`` of a summary; all but the counts of releases is fixed by the plan."""

    prepared: Prepared
    plan: Plan

    def describe(self, releases: Callable[[str], int]) -> dict[str, Any]:
        """Plain data, with ``releases(name)`` the releases that a node has been charged."""
        names = self.prepared.names
        if len(names) <= MOST_NAMED:
            return {**self._planned, "nodes": {name: self._spent_by(name, releases) for name in names}}
        plan = self.plan
        columns: dict[str, Sequence[float]] = {
            "epsilon": [plan.epsilons[name] for name in names],
            **({"would_be_epsilon": [plan.would_be[name] for name in names]} if plan.would_be else {}),
            "releases": [releases(name) for name in names],
            "planned_releases": [plan.releases[name] for name in names],
        }
        return {**self._planned, "spread": {name: _spread(values) for name, values in columns.items()}}

    @cached_property
    def _planned(self) -> dict[str, Any]:
        private, algorithm = self.prepared.experiment.private, self.prepared.algorithm
        claims = algorithm.figures.claims(problem_of(self.prepared), self.plan) if private else []
        return {
            **proved(self.plan),
            **({"secret_schedule": True} if self.plan.hides_schedule else {}),
            **all_finite(self.plan.figures),
            "claims": [all_finite(asdict(claim)) for claim in claims],
        }

    def _spent_by(self, name: str, releases: Callable[[str], int]) -> dict[str, Any]:
        """Count what a node has released and may release, with what is proved of that."""
        return {
            "epsilon": _finite(self.plan.epsilons[name]),
            **({"would_be_epsilon": _finite(self.plan.would_be[name])} if self.plan.would_be else {}),
            "releases": releases(name),
            "planned_releases": self.plan.releases[name],
            **({} if self._is_common else self.plan.mechanisms[name].describe()),
        }

    @cached_property
    def _is_common(self) -> bool:
        """Whether all nodes have one law; found once, since each of many nodes asks."""
        return in_common(self.plan.mechanisms) is not None


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    """The least, a median and the largest of many values."""
    ordered = sorted(values)
    places = {"least": 0, "median": len(ordered) // 2, "most": -1}
    return {name: _finite(ordered[place]) for name, place in places.items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def all_finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """With None where there is an infinite number, or none at all: JSON knows no others."""
    clean = {key: all_finite(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    return {key: _finite(value) if isinstance(value, float) else value for key, value in clean.items()}
