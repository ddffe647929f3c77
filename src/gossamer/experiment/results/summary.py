"""Summary of a run, as ``summary.json`` has it, the card of its model, and figures of personal models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.plan import Plan, in_common
from gossamer.algorithms.table import registered_as
from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.declaration import Declaration
from gossamer.data.examples import Split
from gossamer.data.settings import Layout
from gossamer.errors import counted
from gossamer.experiment.preparation.planning import problem_of, proved
from gossamer.experiment.preparation.prepare import Prepared, public_seed
from gossamer.experiment.results.observer import Fit, best_model, decisive, deviations, units_of
from gossamer.experiment.specs.spec import PersonalisationSettings, of_others
from gossamer.objectives.objective import Training
from gossamer.protocol.node import Node
from gossamer.randomness import stream
from gossamer.sides.client import shuffled
from gossamer.trained.card import Card, PartCard, describe

if TYPE_CHECKING:
    from gossamer.runtimes.shards import Observed


# Personal models: the final model, trained on by each node on its own examples, for itself alone.
#
# This happens once the run is over, and outside of it: nodes do not know of it, nothing of it is sent, journalled or
# charged, and the guarantee of the run says nothing of it. A personal model is made of raw data, without clip and
# noise.

NOTE = (
    "A personal model is made of raw data, without noise: neither it nor its figures are covered by the guarantee. "
    "It is for its data's owner alone and must not be handed on."
)

_Figures = dict[str, npt.NDArray[np.float64]]
"""By name, one entry a model."""


def personal_models(
    prepared: Prepared, settings: PersonalisationSettings, names: Sequence[str], models: FloatArray
) -> FloatArray:
    """Train ``models`` [width, size] on, each by steps on the examples of the node of that name.

    Which examples a step takes follows from the spec's seed: what is handed to nobody needs no secret coins.

    Returns
    -------
    ndarray [width, size]
        With the update of `Objective.local_training` in them.
    """
    shards, query = _shards(prepared), settings.query
    trainings = [
        Training(
            shuffled(query, shards[name], stream(public_seed(prepared.experiment), "personalisation", name)),
            query.rate,
            query.momentum,
            query.proximal,
        )
        for name in names
    ]
    found = prepared.objective.local_training(models, prepared.dataset.train, trainings)
    return (models + found.updates).astype(prepared.objective.dtype, copy=False)


def personalised(prepared: Prepared, nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Score personal models at the end of a simulation, beside the models that they were made from.

    That is the run's model where the algorithm has a server, and otherwise the node's own, which it would deploy. Nodes
    that are gone make none.

    Parameters
    ----------
    prepared : Prepared
        Run, as it was prepared.
    nodes : mapping of str to Node
        Those that are there at the end.

    Returns
    -------
    dict
        Plain data for the summary; empty unless the spec asks for personal models.
    """
    settings, names = prepared.experiment.personalisation, [name for name in prepared.names if name in nodes]
    if settings is None or not names:
        return {}
    before: list[_Figures] = []
    after: list[_Figures] = []
    for some in _calls(names, prepared.world.width):
        models = _final_models(prepared, nodes, some)
        before.append(_scores(prepared, some, models))
        after.append(_scores(prepared, some, personal_models(prepared, settings, some, models)))
    return {
        "nodes": len(names),
        "personal": _mean_and_worst(after),
        "final_model": _mean_and_worst(before),
        "note": NOTE,
    }


def _calls(names: Sequence[str], width: int) -> Iterator[Sequence[str]]:
    """Split the names into runs of that width, as all models would not fit into memory."""
    yield from (names[first : first + width] for first in range(0, len(names), width))


def _shards(prepared: Prepared) -> dict[str, IndexArray]:
    return dict(zip(prepared.names, prepared.shards, strict=True))


def _final_models(prepared: Prepared, nodes: Mapping[str, Node], names: Sequence[str]) -> FloatArray:
    """Models that nodes train on, [width, size]."""
    if prepared.cast.servers:
        final = np.asarray(prepared.algorithm.output(nodes).values)
        return np.repeat(final[None], len(names), axis=0)
    return np.stack([np.asarray(prepared.algorithm.model_of(nodes[name]).values) for name in names])


def _scores(prepared: Prepared, names: Sequence[str], models: FloatArray) -> _Figures:
    """Figures of each model on the test examples, and on these in the proportions of its node's own classes."""
    objective, test = prepared.objective, prepared.dataset.test
    found = objective.evaluate(models, test)
    if prepared.dataset.classes is None:
        return {"test_loss": found.loss}
    shares = _class_shares(prepared, names)
    correct, tested = np.zeros(len(names)), np.zeros(len(names))
    for each in np.unique(test.targets):
        rows = np.flatnonzero(test.targets == each)
        accuracy = objective.evaluate(models, Split(test.features[rows], test.targets[rows])).accuracy
        correct += shares[:, each] * accuracy
        tested += shares[:, each]
    with np.errstate(invalid="ignore"):  # a node none of whose classes is tested has no such figure
        own = correct / tested
    return {"test_accuracy": found.accuracy, "own_classes_test_accuracy": own, "test_loss": found.loss}


def _class_shares(prepared: Prepared, names: Sequence[str]) -> npt.NDArray[np.float64]:
    """The share of each class in each node's examples, [width, classes]."""
    shards, targets = _shards(prepared), prepared.dataset.train.targets
    counts = [np.bincount(targets[shards[name]], minlength=prepared.dataset.classes or 0) for name in names]
    shares: npt.NDArray[np.float64] = np.stack(counts) / np.array([[len(shards[name])] for name in names])
    return shares


def _mean_and_worst(found: Sequence[_Figures]) -> dict[str, float | None]:
    """Mean of each figure over nodes, and that of the worst node; None where it is no number."""
    result: dict[str, float | None] = {}
    for name in found[0]:
        values = np.concatenate([part[name] for part in found])
        worst = values.max() if name == "test_loss" else values.min()
        for key, value in ((name, values.mean()), (f"worst_node_{name}", worst)):
            result[key] = float(value) if np.isfinite(value) else None
    return result


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
    if first is None or (last is not None and finite and last <= first):
        return {}
    return {"ended_worse": {"initial_test_loss": first, "test_loss": last if finite else None}}


def troubles(found: Mapping[str, Any], private: bool) -> list[str]:
    """Figures of a summary on what went wrong, a line each; ``private`` if noise may be what made the model worse.

    Where the algorithm itself stopped because of it, it says more.
    """
    lines, remedy = [], "lower the learning rates"
    if (ended := found.get("ended_worse")) and "diverged" not in found.get("finished", {}).values():
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
    name = settings.name or ("softmax" if dataset.classes else "squared")
    module = None if prepared.code else settings.module  # of one that was given from memory there is no name
    return Card(
        objective=describe(prepared.objective, None if settings.module else name, module),
        parts=tuple(PartCard(name=part.name, shape=part.shape) for part in prepared.objective.parts),
        data=dataset.declaration or _declared(prepared),
        owners=owners or prepared.owners,
        note=note,
    )


def _declared(prepared: Prepared) -> Declaration:
    """The declaration of data that came without one."""
    dataset = prepared.dataset
    shape: tuple[int, ...] = tuple(dataset.train.features.shape[1:])
    layout: Layout = "sparse" if dataset.train.sparse else "dense"
    classes = None if dataset.labels is None else tuple((label,) for label in dataset.labels)
    return Declaration.of(prepared.experiment.dataset, None, shape, layout, classes)


_COUNTS = ("updates", "virtual_seconds", "messages", "bytes", "most_releases", "epsilon_so_far")
"""Of a row of metrics, what is no metric of a model."""


def outcome(prepared: Prepared, simulator: Observed, status: str, last: Mapping[str, Any], fit: Fit) -> dict[str, Any]:
    """Describe what was run and what became of it, by the ``last`` row of metrics, and the ``fit`` then."""
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
        "finished": dict(sorted(simulator.finished.items())),
        "gone": sorted(simulator.gone),
        "metrics": {name: value for name, value in last.items() if name not in _COUNTS} | fit,
        **own_figures(prepared, simulator),
    }


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


def own_figures(prepared: Prepared, simulator: Observed) -> dict[str, Any]:
    """The algorithm's own figures, if it has any, and how well each unit's model does, if there are units."""
    models = prepared.algorithm.figures.unit_models(simulator.nodes)
    told = getattr(simulator.nodes, "report", None)  # of a population, of all nodes at once
    found = prepared.algorithm.figures.report(simulator.nodes) if told is None else told()
    found |= _network(prepared, simulator)
    found |= _tested(prepared, models) | _deviating(prepared, models) if models else {}
    return {prepared.experiment.algorithm.name: found} if found else {}


def _network(prepared: Prepared, simulator: Observed) -> dict[str, Any]:
    """Figures of nodes that no server counts for: how slowly they mix, and how stale their updates were."""
    rho = {} if prepared.rho is None else {"rho": prepared.rho}
    stale = simulator.activity.computed_stale()
    return rho if stale is None else {**rho, "staleness_mean": stale[0], "staleness_max": stale[1]}


def _tested(prepared: Prepared, models: Mapping[str, npt.NDArray[np.floating[Any]]]) -> dict[str, dict[str, Any]]:
    """The share of test examples that each unit's model gets wrong; its test loss where there are no classes."""
    found = prepared.objective.evaluate(np.stack(list(models.values())), prepared.dataset.test)
    if prepared.dataset.classes is None:
        name, values = "test_loss", found.loss
    else:
        name, values = "test_error", 1 - found.accuracy
    return {name: {server: _finite(float(value)) for server, value in zip(models, values, strict=True)}}


def _deviating(
    prepared: Prepared, models: Mapping[str, npt.NDArray[np.floating[Any]]]
) -> dict[str, dict[str, float | None]]:
    """Squared distance of each unit's model from the best model, where that is known."""
    best = best_model(prepared.objective, prepared.dataset.train, units_of(prepared))
    if best is None:
        return {}
    return {"msd": {server: _finite(deviations(model[None], best)["centroid_msd"]) for server, model in models.items()}}


@dataclass(frozen=True)
class PrivacyReport:
    """The section ``privacy`` of a summary; all but the counts of releases is fixed by the plan."""

    prepared: Prepared
    plan: Plan

    def describe(self, releases: Callable[[str], int]) -> dict[str, Any]:
        """Plain data, with ``releases(name)`` the releases that a node has been charged."""
        return {**self._planned, "nodes": {name: self._spent_by(name, releases) for name in self.prepared.names}}

    @cached_property
    def _planned(self) -> dict[str, Any]:
        private, algorithm = self.prepared.experiment.private, self.prepared.algorithm
        claims = algorithm.claims(problem_of(self.prepared), self.plan) if private else []
        return {
            **proved(self.plan),
            **({"secret_schedule": True} if self.plan.hides_schedule else {}),
            **all_finite(self.plan.figures),
            "claims": [all_finite(claim.as_dict()) for claim in claims],
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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def all_finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """With None where there is an infinite number, or none at all: JSON knows no others."""
    clean = {key: all_finite(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    return {key: _finite(value) if isinstance(value, float) else value for key, value in clean.items()}
