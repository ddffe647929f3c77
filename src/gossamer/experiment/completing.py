"""What a spec leaves to be estimated, estimated: the constants of `mapa`'s schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.algorithms import mapa
from gossamer.data.datasets import Dataset
from gossamer.data.split import Split
from gossamer.experiment.estimating import estimate_problem, public_sample, synthetic_sample
from gossamer.experiment.spec import Experiment
from gossamer.objectives.objective import FloatArray, Objective

CONSTANTS = ("gradient_sd", "smoothness", "loss_gap")


@dataclass(frozen=True)
class Estimated:
    """Constants that the spec leaves out, as they were estimated on so many examples that are not the nodes'."""

    constants: Mapping[str, float]
    examples: int
    smoothness_by: str

    def __str__(self) -> str:
        how = {"smoothness": f" ({self.smoothness_by})"}
        found = ", ".join(f"{name} {value:.4g}{how.get(name, '')}" for name, value in self.constants.items())
        return f"estimated on {self.examples} examples that are not the nodes': {found}"


def needs_estimates(experiment: Experiment) -> bool:
    """Whether the algorithm needs what the spec does not say."""
    return isinstance(experiment.algorithm, mapa.Settings) and not experiment.algorithm.complete


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
    settings = experiment.algorithm
    assert isinstance(settings, mapa.Settings)
    found = estimate_problem(objective, _sample(experiment, settings, dataset, seed), initial, seed)
    missing = {name: getattr(found, name) for name in CONSTANTS if getattr(settings, name) is None}
    complete = experiment.model_copy(update={"algorithm": settings.model_copy(update=missing)})
    return complete, Estimated(missing, found.examples, found.smoothness_by)


def _sample(experiment: Experiment, settings: mapa.Settings, dataset: Dataset, seed: int) -> Split:
    shape = tuple(dataset.train.features.shape[1:])
    own = experiment.dataset
    if settings.estimate_on == "synthetic":
        return synthetic_sample(shape, dataset.classes, seed=seed, unit_norm=own.normalise == "unit_norm")
    public = own.model_copy(update={"name": settings.estimate_on, "path": None, "test_path": None})
    return public_sample(public, own, shape, dataset.classes, seed=seed, protected=dataset.train)
