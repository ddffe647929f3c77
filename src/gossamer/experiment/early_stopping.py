"""Ending a run early by the accuracy of its model: on which examples, and what that does to figures and guarantees.

The whole plan is charged before the run, and what was released by then is a part of it. So a run that ends early has
the guarantee of its plan, whatever decides its end, as long as that is made of what was released and of public
examples: it is post-processing. What is decided by test examples tells of these, which no guarantee covers; and their
accuracy looks better than it is, since the run ended when it was high.

References
----------
Dwork and Roth, "The algorithmic foundations of differential privacy", 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.data.datasets import load_dataset
from gossamer.data.examples import Split
from gossamer.data.settings import IN_MEMORY
from gossamer.errors import DataError, SpecError
from gossamer.experiment.spec import Experiment

PUBLIC, TEST = "public_accuracy", "mean_model_test_accuracy"
"""Figures of an evaluation that may end a run."""
PUBLIC_EXAMPLES = "examples of evaluation.public_path are public, and none of them is protected"
UNITS = "when the run ends is not covered: stop.accuracy looks at models of units, which are not released outside them"


def read_public(experiment: Experiment) -> Split | None:
    """Public examples that a spec names, read as the data set's test examples are; None if it names none.

    Raises
    ------
    CallerError
        If they cannot be read, or do not fit the data set.
    """
    path, settings = experiment.evaluation.public_path, experiment.dataset
    if path is None:
        return None
    if settings.synthetic is not None or settings.name == IN_MEMORY:
        raise SpecError(
            f"evaluation.public_path: expected data of a file, found {settings.name}, with whose settings no file "
            "is read; leave it out"
        )
    if not path.exists():
        raise DataError(f"evaluation.public_path: there is no file {path}; correct the path")
    try:
        return load_dataset(settings.model_copy(update={"test_path": path})).test
    except DataError as error:
        raise DataError(f"evaluation.public_path ({path}): {error}") from None


def decisive(experiment: Experiment) -> str:
    """Figure that `stop.accuracy` goes by."""
    return TEST if experiment.evaluation.public_path is None else PUBLIC


def assumptions(spec: Experiment, *, units: bool) -> list[str]:
    """Assumptions of a guarantee for a run that may end early; ``units`` if nodes are in federated units."""
    if spec.stop.accuracy is None:
        return []
    public = [PUBLIC_EXAMPLES] if spec.evaluation.public_path is not None else []
    return [*public, *([UNITS] if units else [])]


def remark(summary: Mapping[str, Any]) -> list[str]:
    """Line on a run that ended by its test accuracy; ``summary`` is that of the run."""
    if summary.get("stopped_by") != TEST:
        return []
    return [
        "the run ended by its accuracy on test examples, so these chose its end, and its test figures look better than "
        "they are; give public examples to choose by (evaluation.public_path), or leave stop.accuracy out"
    ]
