"""What a spec leaves to be estimated, estimated."""

from __future__ import annotations

from gossamer.data.datasets import Dataset
from gossamer.experiment.spec import Experiment
from gossamer.objectives.objective import Objective


def with_estimates(experiment: Experiment, objective: Objective, dataset: Dataset) -> Experiment:
    """The experiment with what its algorithm needs and does not say."""
    return experiment
