"""The observer that evaluates: it reads models, and nodes cannot tell whether it is there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from gossamer.algorithms.plan import Plan
from gossamer.arrays import FloatArray, Floats, IntArray
from gossamer.data.examples import Split
from gossamer.errors import CallerError
from gossamer.experiment.preparation.ending import Observer
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.specs.spec import Experiment
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Objective
from gossamer.objectives.scores import fit_figures
from gossamer.protocol.node import Node
from gossamer.protocol.snapshots import Kept
from gossamer.runtimes.simulator import Simulator

# Deviation of federated units' models from the best one, and from each other.
#
# Of the models w_1, ..., w_P of the units, with mean w_c:
#
# - ``centroid_msd``: |w_c - w^o|^2,
# - ``individual_msd``: the mean over p of |w_p - w^o|^2,
# - ``disagreement``: the mean over p of |w_p - w_c|^2.
#
# w^o minimises the mean over units of the mean over their agents of the mean loss over an agent's examples, with the L2
# term. It is known in closed form for the squared losses, so only there are the first two.
#
# References
# ----------
# Rizk and Sayed, "A graph federated architecture with privacy preserving learning": w^o in (54) to (57), MSD in (58),
# the disagreement in (30).

Unit = Sequence[IntArray]
"""The rows of the training examples that each agent of a unit holds."""


def units_of(prepared: Prepared) -> list[Unit]:
    """Rows of the training examples that each agent of each unit holds; empty where the algorithm has no units."""
    shards = dict(zip(prepared.names, prepared.shards, strict=True))
    return [[shards[agent] for agent in agents] for agents in prepared.cast.scopes.values()]


def deviations(models: FloatArray, optimum: Floats | None) -> dict[str, float]:
    """The measures of the units' models, as they are (not in decibels).

    Parameters
    ----------
    models : ndarray [units, size]
        One a unit.
    optimum : ndarray [size], optional
        w^o; without it only the disagreement is measured.
    """
    exact = models.astype(np.float64)
    centroid = exact.mean(axis=0)
    disagreement = float(np.square(exact - centroid).sum(axis=1).mean())
    if optimum is None:
        return {"disagreement": disagreement}
    return {
        "centroid_msd": float(np.square(centroid - optimum).sum()),
        "individual_msd": float(np.square(exact - optimum).sum(axis=1).mean()),
        "disagreement": disagreement,
    }


def best_model(objective: Objective, data: Split, units: Sequence[Unit]) -> Floats | None:
    """The minimiser w^o = (R + l2 I)^-1 r of the units' mean loss; of the loss that is not halved, with l2/2.

    R and r are the means over units, agents and examples of u u' and u d, where u are the features, followed by a 1
    where the model has an intercept (which the L2 term counts like any weight, as `LinearModel` has it).

    Parameters
    ----------
    objective : Objective
        Objective that is minimised.
    data : Split
        The training examples.
    units : sequence of Unit
        Units, which say which of the examples each of their agents holds.

    Returns
    -------
    ndarray [size] of float64, or None
        None where there is no closed form (a loss that is not squared, a network, sparse features), and where more than
        one model is best.
    """
    if not isinstance(objective, LinearModel) or objective.squared_error is None:
        return None
    if data.sparse or not units:
        return None
    moments, products = np.zeros((objective.size, objective.size)), np.zeros(objective.size)
    for unit in units:
        for rows in unit:
            features = np.asarray(data.features[rows], np.float64).reshape(len(rows), -1)
            u = np.column_stack([features, np.ones(len(rows))]) if objective.intercept else features
            share = 1 / (len(units) * len(unit) * len(rows))
            moments += share * (u.T @ u)
            products += share * (u.T @ data.targets[rows].astype(np.float64))
    moments[np.diag_indices(objective.size)] += objective.l2 * objective.squared_error / 2
    solution, _, rank, _ = np.linalg.lstsq(moments, products)
    return np.asarray(solution, np.float64) if rank == objective.size else None


# A run may end early, by the accuracy of its model on test or on public examples. The whole plan is charged before the
# run, and what was released by then is a part of it. So a run that ends early has the guarantee of its plan, whatever
# decides its end, as long as that is made of what was released and of public examples: it is post-processing (Dwork and
# Roth, "The algorithmic foundations of differential privacy", 2014, Proposition 2.1). What is decided by test examples
# tells of these, which no guarantee covers; and their accuracy looks better than it is, since it was high at the end.

PUBLIC, TEST = "public_accuracy", "mean_model_test_accuracy"
"""Figures of an evaluation that may end a run."""


def decisive(experiment: Experiment) -> str:
    """Figure that `stop.accuracy` goes by."""
    return TEST if experiment.evaluation.public_path is None else PUBLIC


def remark(summary: Mapping[str, Any]) -> list[str]:
    """Line on a run that ended by its test accuracy; ``summary`` is that of the run."""
    if summary.get("stopped_by") != TEST:
        return []
    return [
        "the run ended by its accuracy on test examples, so these chose its end, and its test figures look better than "
        "they are; give public examples to choose by (evaluation.public_path), or leave stop.accuracy out"
    ]


LOOKS = 20
"""How often a run is looked at, unless the spec says otherwise."""

Row = dict[str, Any]

Measure = Callable[[Prepared, FloatArray], Mapping[str, float]]
"""(what is run, the run's model [size]) -> figures by name."""


class Evaluator(Kept, Observer):
    """Evaluates at fixed numbers of updates or virtual seconds.

    Parameters
    ----------
    prepared : Prepared
        Run, as it was prepared and planned.
    plan : Plan
        Plan of the run.
    simulator : Simulator
        Simulator in which it happens.
    spent : callable
        The largest epsilon that nodes have spent so far, or None.
    publish : callable
        Called with each row of metrics.
    updated : callable
        Called with the number of updates after each.
    measure : callable, optional
        Gives further figures of the run's model.

    Attributes
    ----------
    scores : dict of str to dict
        Figures of each node's model that was tested last, by its name.
    """

    changing = ("seconds_looks", "update_looks", "seen", "last", "scores", "_measured")

    def __init__(
        self,
        prepared: Prepared,
        plan: Plan,
        simulator: Simulator,
        spent: Callable[[], float | None],
        publish: Callable[[Row], None],
        updated: Callable[[int], None],
        measure: Measure | None = None,
    ) -> None:
        settings = prepared.experiment.evaluation
        self.prepared, self.plan, self.simulator = prepared, plan, simulator
        self.spent, self.publish, self.updated, self.measure = spent, publish, updated, measure
        self.on = settings.name == "on"
        self.every_seconds = settings.every_seconds if self.on else None
        self.every_updates = settings.every_updates if self.on else None
        if self.on and self.every_seconds is None and self.every_updates is None:
            self.every_updates = max(1, plan.updates // LOOKS)
        self.seconds_looks, self.update_looks, self.seen = 0, 1, 0
        self.last: Row | None = None
        self.scores: dict[str, dict[str, float]] = {}
        self._measured: dict[str, float] | None = None

    def rehearse(self) -> None:
        """Measure the model that the run starts from, so that figures of the wrong form are refused before it.

        Raises
        ------
        CallerError
            If ``measure`` returns no mapping of names to numbers.
        """
        found = self._further(np.asarray(self.prepared.algorithm.output(self.simulator.present).values))
        if self.on:  # the first evaluation is of the same model
            self._measured = found

    @property
    def next_update(self) -> int | None:
        """Number of the update after which it looks next; None if it does not go by them."""
        return None if self.every_updates is None else self.update_looks * self.every_updates

    @property
    def next_seconds(self) -> float | None:
        """Moment of virtual time at which it looks next; None if it does not go by it."""
        return None if self.every_seconds is None else self.seconds_looks * self.every_seconds

    def before(self, upcoming: float) -> None:
        """Look at what was so at the times up to ``upcoming``."""
        while (moment := self.next_seconds) is not None and moment < upcoming:
            self.look(moment)
            self.seconds_looks += 1

    def after(self) -> None:
        """Look if enough updates have been made."""
        updates = self.simulator.counters.updates
        self.updated(updates)
        if self.every_updates is not None and updates >= self.update_looks * self.every_updates:
            self.update_looks = updates // self.every_updates + 1
            self.look(self.simulator.elapsed)

    @property
    def satisfied(self) -> bool:
        """Whether the accuracy asked for has been seen."""
        wanted = self.plan.stop.accuracy
        if wanted is None or self.last is None:
            return False
        return bool(self.last[decisive(self.prepared.experiment)] >= wanted)

    def look(self, seconds: float) -> Row:
        """Evaluate now and publish the row, unless this moment was looked at and nothing that it says has changed.

        Much can happen in one moment: over links without delay the last model comes in that of the last update.
        """
        counters = self.simulator.counters
        moment = {"updates": counters.updates, "virtual_seconds": round(seconds, 9)}
        again = self.last is not None and moment.items() <= self.last.items()
        if self.last is not None and again and self.seen == counters.events:
            return self.last
        self.seen, metrics = counters.events, self.metrics()
        if self.last is None or not (again and metrics.items() <= self.last.items()):
            row = {
                **moment,
                "messages": self.simulator.messages,
                "bytes": self.simulator.bytes,
                **metrics,
                "most_releases": max(self.simulator.computer.releases(name) for name in self.prepared.names),
                "epsilon_so_far": self.spent(),
            }
            self.last = row
            self.publish(row)
        return self.last

    def metrics(self) -> dict[str, float | None]:
        """Scores of the models on the test split, as they are now; those of nodes that are gone do not count."""
        nodes, test = self.simulator.present, self.prepared.dataset.test
        model_of, output = self.prepared.algorithm.model_of, self.prepared.algorithm.output
        mean = np.asarray(output(nodes).values)
        holders, chosen = self._tested(nodes)
        own = np.stack([model_of(nodes[name]).values for name in chosen])
        scores = self.prepared.objective.evaluate(np.concatenate([own, mean[None]]), test)
        accuracies, losses = scores.accuracy[:-1], scores.loss[:-1]
        self.scores = _by_node(chosen, losses, accuracies if self.prepared.dataset.classes is not None else None)
        found: dict[str, float | None] = {
            "test_accuracy": float(accuracies.mean()),
            "mean_model_test_accuracy": float(scores.accuracy[-1]),
            "worst_node_test_accuracy": float(accuracies.min()),
            "test_loss": float(losses.mean()),
            "mean_model_test_loss": float(scores.loss[-1]),
            "consensus_distance": _distance(
                getattr(nodes, "models", (model_of(nodes[name]).values for name in holders)), mean
            ),
            **self._public(mean),
            **self._of_units(nodes),
            **self._further(mean),
            **fit_figures(self.prepared.objective, mean, self.prepared.dataset),
        }
        classes = self.prepared.dataset.classes is not None
        # Of a model that diverged a figure is not a number, which JSON has no word for.
        return {
            name: value if value is not None and np.isfinite(value) else None
            for name, value in found.items()
            if classes or "accuracy" not in name
        }

    def areas(self) -> list[float]:
        """Area under the ROC curve of each node's own model, of two classes where nobody has a common model."""
        data, objective = self.prepared.dataset, self.prepared.objective
        if data.classes != 2 or self.plan.words.shared:
            return []
        nodes, model_of = self.simulator.present, self.prepared.algorithm.model_of
        models = (model_of(nodes[name]).values for name in self._tested(nodes)[1])
        found = [fit_figures(objective, np.asarray(model), data).get("test_auroc") for model in models]
        return [area for area in found if area is not None]

    def _tested(self, nodes: Mapping[str, Node]) -> tuple[list[str], list[str]]:
        """Nodes that have models, and those of them whose own are tested."""
        holders = [name for name in self.prepared.cast.holders if name in nodes] or list(nodes)
        return holders, self._chosen(holders)

    def _public(self, mean: FloatArray) -> dict[str, float]:
        """Figures of the run's model on public examples, if there are some."""
        if self.prepared.public is None:
            return {}
        scores = self.prepared.objective.evaluate(mean[None], self.prepared.public)
        return {PUBLIC: float(scores.accuracy[0]), "public_loss": float(scores.loss[0])}

    def _further(self, mean: FloatArray) -> dict[str, float]:
        """Figures that the caller measures, if there are some."""
        if self._measured is not None:
            found, self._measured = self._measured, None
            return found
        return {} if self.measure is None else _figures(self.measure(self.prepared, mean))

    def _of_units(self, nodes: Mapping[str, Node]) -> dict[str, float]:
        """Deviations of units' models from the best one and from each other, and how good their mean is."""
        if not (found := self.prepared.algorithm.figures.unit_models(nodes)):
            return {}
        models = np.stack(list(found.values()))
        score = self.prepared.objective.evaluate(models.mean(axis=0, keepdims=True), self.prepared.dataset.test)
        return {
            **deviations(models, self._optimum),
            "centroid_test_accuracy": float(score.accuracy[0]),
            "centroid_test_loss": float(score.loss[0]),
        }

    @cached_property
    def _optimum(self) -> Floats | None:
        return best_model(self.prepared.objective, self.prepared.dataset.train, units_of(self.prepared))

    def _chosen(self, names: list[str]) -> list[str]:
        limit = self.prepared.experiment.evaluation.nodes
        if limit is None or limit >= len(names):
            return names
        return [names[int(i)] for i in np.linspace(0, len(names) - 1, limit)]


def _figures(found: Any) -> dict[str, float]:
    """Figures that ``measure`` returned, if they are by name."""
    given: Mapping[Any, Any] = found if isinstance(found, Mapping) else {None: found}
    for name, value in given.items():
        is_number = isinstance(value, Real) or (isinstance(value, np.ndarray) and value.ndim == 0)
        if not isinstance(name, str) or not is_number:
            raise CallerError(
                f"measure: expected numbers by name, such as {{'recall': 0.9}}, found {type(value).__name__} as "
                f"{str(name)[:40]!r}; return them so, with nan where there is none"
            )
    return {name: float(value) for name, value in given.items()}


def _by_node(names: Sequence[str], losses: FloatArray, accuracies: FloatArray | None) -> dict[str, dict[str, float]]:
    """Finite figures of each node's model."""
    found: dict[str, dict[str, float]] = {name: {} for name in names}
    for figure, values in (("test_accuracy", accuracies), ("test_loss", losses)):
        for name, value in zip(names, [] if values is None else values.tolist(), strict=False):
            if math.isfinite(value):
                found[name][figure] = value
    return found


def _distance(models: Iterable[FloatArray], mean: FloatArray) -> float:
    """Root of the mean squared distance of the models from their mean."""
    center = mean.astype(np.float64)
    squares = [float(np.square(model - center).sum()) for model in models]
    return float(np.sqrt(np.mean(squares)))
