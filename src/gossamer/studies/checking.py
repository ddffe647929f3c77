"""Checking settings before any of their runs: as `gossamer check` does, with each warning once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gossamer.algorithms.plan import Plan
from gossamer.errors import CallerError, RunWarning
from gossamer.experiment.planning import plan_run
from gossamer.experiment.prepare import prepare
from gossamer.experiment.prepared import Prepared
from gossamer.experiment.spec import Experiment


@dataclass
class Remarks:
    """Warnings of several runs, each once.

    Attributes
    ----------
    lines : list of str
        In the order in which they came.
    """

    lines: list[str] = field(default_factory=list)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Gather what runs are warned of inside the block."""
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", RunWarning)
            yield
        self.lines += dict.fromkeys(
            str(one.message)
            for one in found
            if issubclass(one.category, RunWarning) and str(one.message) not in self.lines
        )


def checked(experiment: Experiment, name: str, remarks: Remarks) -> tuple[Prepared, Plan]:
    """Prepare and plan a run of the setting ``name``, of which nothing is computed.

    Raises
    ------
    CallerError
        If it cannot be run; the line begins with the setting.
    """
    try:
        with remarks.gathered():
            prepared = prepare(experiment)
            return prepared, plan_run(prepared)
    except CallerError as error:
        raise type(error)(f"{name}: {error}") from error.__cause__
