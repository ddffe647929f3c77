"""Constants that an algorithm needs and a spec leaves out, estimated on examples that are not the nodes'."""

from __future__ import annotations

from dataclasses import asdict

from gossamer.algorithms.interface import SYNTHETIC
from gossamer.algorithms.problem import Estimated as Estimated
from gossamer.algorithms.table import ALGORITHMS
from gossamer.arrays import FloatArray
from gossamer.data.datasets import Dataset
from gossamer.data.examples import Split
from gossamer.experiment.problem_constants import estimate_problem, public_sample, synthetic_sample
from gossamer.experiment.spec import Experiment
from gossamer.objectives.objective import Objective


def needs_estimates(experiment: Experiment) -> bool:
    """Whether the algorithm needs what the spec does not say."""
    return bool(_missing(experiment))


def estimates_on(experiment: Experiment) -> str | None:
    """Name of the sample that an algorithm's constants are estimated on; None if it has none to estimate."""
    estimates = ALGORITHMS[experiment.algorithm.name].estimates
    return None if estimates is None else estimates.source(experiment.algorithm)


def _missing(experiment: Experiment) -> tuple[str, ...]:
    estimates = ALGORITHMS[experiment.algorithm.name].estimates
    return () if estimates is None else estimates.missing(experiment.algorithm)


def with_estimates(
    experiment: Experiment, objective: Objective, dataset: Dataset, initial: FloatArray, seed: int
) -> tuple[Experiment, Estimated]:
    """The experiment with what its algorithm needs and does not say, and where that is from.

    Parameters
    ----------
    experiment : Experiment
        One that `needs_estimates`.
    objective : Objective
        What is minimised.
    dataset : Dataset
        The protected one: the shape of its examples and the number of its classes are looked at, and whether a public
        data set has an example of its.
    initial : ndarray [size]
        The common starting model.
    seed : int
        Public.

    Raises
    ------
    DataError
        If the sample does not fit, or nothing can be estimated from it.
    """
    found = estimate_problem(objective, _sample(experiment, dataset, seed), initial, seed)
    missing = {name: value for name, value in asdict(found).items() if name in _missing(experiment)}
    complete = experiment.model_copy(update={"algorithm": experiment.algorithm.model_copy(update=missing)})
    return complete, Estimated(missing, found.examples, found.smoothness_by)


def _sample(experiment: Experiment, dataset: Dataset, seed: int) -> Split:
    shape = tuple(dataset.train.features.shape[1:])
    own, source = experiment.dataset, estimates_on(experiment)
    if source == SYNTHETIC:
        return synthetic_sample(shape, dataset.classes, seed=seed, unit_norm=own.normalise == "unit_norm")
    public = own.model_copy(update={"name": source, "path": None, "test_path": None})
    return public_sample(public, own, shape, dataset.classes, seed=seed, protected=dataset.train)
