"""Forecast of a run, found without its data: its time on the virtual clock, its messages, and the memory it needs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import numpy as np

from gossamer.algorithms.plan import Plan
from gossamer.experiment.driving import NullObserver, Observer, drive, few_collections
from gossamer.experiment.prepared import Prepared
from gossamer.experiment.shortfall import INCOMPLETE, STALLED, in_words, shortfall, status_of
from gossamer.objectives.glm import LinearModel
from gossamer.runtimes.simulator import Simulator
from gossamer.sides.null import DryRun

_MOST = 50_000
"""After so many messages or updates a look ahead ends: a second or two."""
_PROGRAM = 250 * 2**20
_WITH_TORCH = 400 * 2**20
"""Bytes of the program itself, measured on Linux, with the libraries that it imports."""
_COPIES = 6
"""Vectors of the model's size that a simulation keeps for each node: its own, one averaged, and those under way."""


@dataclass(frozen=True)
class Forecast:
    """Forecast of a run.

    Attributes
    ----------
    virtual_seconds : float
        Until the run ends, on the clock of the simulation; until the look ahead ended, where that is not ``whole``.
    messages, size : int
        How many messages nodes send each other until then, and how many bytes they are in all.
    whole : bool
        Whether the look ahead went to the run's end.
    memory : int
        Bytes, about.
    examples : int
        Bytes of the examples, training and test, which are part of ``memory``.
    remarks : tuple of str
        Lines on why the run would not come to the end of its plan, and on whom it would lose.
    """

    virtual_seconds: float
    messages: int
    size: int
    whole: bool
    memory: int
    examples: int
    remarks: tuple[str, ...] = ()


class _Patience(Observer):
    """An observer that has seen enough after so many messages, or updates that need none."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    @property
    def satisfied(self) -> bool:
        return max(self._simulator.messages, self._simulator.counters.updates) >= _MOST


def forecast(prepared: Prepared, plan: Plan) -> Forecast:
    """Run the nodes of a run without data or vectors on the same virtual clock, but not for long.

    The schedule of a run depends on nothing private, so it is that of the run itself where nothing else ends that,
    such as ``stop.accuracy``.
    """
    simulator = _without_data(prepared, plan, DryRun())
    with few_collections():
        ended = drive(simulator, plan.stop, _Patience(simulator))
    status, settings = status_of(simulator, prepared.names, ended), prepared.experiment.algorithm
    remarks = prepared.algorithm.remarks(simulator.nodes)
    if status in (STALLED, INCOMPLETE):
        found = shortfall(simulator, prepared.cast.parents)
        remarks = [in_words(found, status, simulator.elapsed, settings), *remarks]
    examples = _bytes_of_examples(prepared)
    models = _COPIES * len(simulator.nodes) * prepared.objective.size * prepared.objective.dtype.itemsize
    return Forecast(
        simulator.elapsed,
        simulator.messages,
        simulator.bytes,
        ended != "accuracy",
        _program(prepared) + 2 * examples + models,
        examples,
        tuple(remarks),
    )


def asked_in(prepared: Prepared, plan: Plan) -> dict[str, int]:
    """Count tasks for each node's data side in the whole run, found likewise; messages about masks left out."""
    sides = DryRun()
    simulator = _without_data(prepared, plan, sides)
    with few_collections(), closing(simulator):
        drive(simulator, plan.stop, NullObserver())
    return sides.asked


def _without_data(prepared: Prepared, plan: Plan, sides: DryRun) -> Simulator:
    context = prepared.context(plan.mechanisms, plan.quotas, blank=True, lengths=plan.lengths)
    nodes = prepared.algorithm.build(prepared.experiment.algorithm, context)
    return Simulator(nodes, sides, prepared.world, count=prepared.count)


def _program(prepared: Prepared) -> int:
    if isinstance(prepared.objective, LinearModel):
        return _PROGRAM
    return _WITH_TORCH + prepared.experiment.compute.memory_mib * 2**20


def _bytes_of_examples(prepared: Prepared) -> int:
    dataset = prepared.dataset
    found = 0
    for split in (dataset.train, dataset.test):
        features = split.features
        parts = [features] if isinstance(features, np.ndarray) else [features.data, features.indices, features.indptr]
        found += sum(part.nbytes for part in [*parts, split.targets])
    return found
