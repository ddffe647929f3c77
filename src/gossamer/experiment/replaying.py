"""Replaying a trace through the nodes that a spec describes."""

from __future__ import annotations

from pathlib import Path

from gossamer.experiment.nodes_and_sides import nodes_of
from gossamer.experiment.planning import plan_run
from gossamer.experiment.prepare import prepare
from gossamer.experiment.spec import Experiment
from gossamer.protocol.trace import Difference, read_steps, replay


def replay_run(experiment: Experiment, trace: str | Path) -> Difference | None:
    """Feed a recorded run's events to fresh nodes and compare their effects, bit for bit.

    Parameters
    ----------
    experiment : Experiment
        The spec of the run.
    trace : path
        What ``run(..., trace=...)`` or ``gossamer run --trace`` wrote.

    Returns
    -------
    Difference or None
        The first step at which the nodes answer differently; None if they never do.

    Raises
    ------
    MalformedMessage
        If the file is cut off or is no trace.
    """
    prepared = prepare(experiment)
    nodes = nodes_of(prepared, plan_run(prepared))
    with Path(trace).open("rb") as file:
        return replay(read_steps(file), nodes)
