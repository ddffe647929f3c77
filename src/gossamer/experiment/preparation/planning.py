"""Planning a run, which its algorithm does from what is known of the spec and the data, and what the run will take."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gossamer.algorithms.interface import SYNTHETIC
from gossamer.algorithms.plan import Plan
from gossamer.algorithms.problem import Problem, Quotas, StopSettings
from gossamer.algorithms.table import registered_as
from gossamer.errors import RunWarning, SpecError
from gossamer.experiment.preparation.driving import (
    INCOMPLETE,
    STALLED,
    NullObserver,
    Observer,
    drive,
    few_collections,
    in_words,
    shortfall,
    status_of,
)
from gossamer.experiment.preparation.prepared import Prepared, public_seed
from gossamer.experiment.preparation.private_scale import beforehand
from gossamer.experiment.preparation.problem_constants import estimates_on
from gossamer.experiment.specs.spec import Experiment, of_others
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy import guarantees
from gossamer.privacy.mechanisms import Mechanism, NoNoise
from gossamer.protocol.encoding import encode
from gossamer.runtimes.simulator import Simulator
from gossamer.sides.plan import counts_of
from gossamer.sides.pool import DryRun

OTHERS_CODE = "the code of {code} is trusted: its algorithm plans all that it releases, and sends nothing else"
"""Assumption of a guarantee for an algorithm that another distribution registers."""
TRUSTED = "the code of {code} is trusted: {promise}, and it does nothing else"
"""Assumption for a topology, a partition or a loss that another distribution registers."""
PUBLIC_EXAMPLES = "examples of evaluation.public_path are public, and none of them is protected"
UNITS = "when the run ends is not covered: stop.accuracy looks at models of units, which are not released outside them"
_LOOKS = 1000
"""Most evaluations in the time of an update."""
_LONG = 100_000
"""Updates after which a look ahead is said to be long: some ten seconds."""


def plan_run(prepared: Prepared) -> Plan:
    """Fix schedule, noise and guarantee.

    Raises
    ------
    CallerError
        If what the spec asks for does not fit together, or no noise meets the budget.
    """
    spec = prepared.experiment
    problem = problem_of(prepared)
    found = prepared.algorithm.plan(problem)
    _check_beforehand(problem, found)
    estimates = "" if prepared.estimates is None else str(prepared.estimates)
    found = replace(found, words=replace(found.words, server=prepared.cast.hub, estimates=estimates))
    if estimates_on(spec) not in (None, SYNTHETIC):
        # Also where the constants are written out: they may be what an earlier run estimated.
        found = found.assuming(guarantees.PUBLIC_EXAMPLES)
    if (code := registered_as(spec.algorithm.name)) is not None:
        found = found.assuming(OTHERS_CODE.format(code=code))
    for line in _assumptions(prepared):
        found = found.assuming(line)
    for line in [*found.words.advice, *prepared.advice(found.mechanisms, found.quotas, found.updates)]:
        warnings.warn(line, RunWarning, stacklevel=2)
    _check_looks(spec)
    return found.reproducible() if spec.private and spec.reproducible else found


def _assumptions(prepared: Prepared) -> list[str]:
    """Assumptions of a guarantee on code of others, and on what may end the run early."""
    spec = prepared.experiment
    found = [
        TRUSTED.format(code=one, promise=kind.promise or f"its {kind.noun} is public") for kind, one in of_others(spec)
    ]
    if spec.stop.accuracy is not None:
        found += [PUBLIC_EXAMPLES] if spec.evaluation.public_path is not None else []
        found += [UNITS] if prepared.cast.trust else []
    return found


def _check_beforehand(problem: Problem[Any], plan: Plan) -> None:
    """Refuse releases before the run that its plan does not cover: nobody would charge them."""
    for kind, count in problem.beforehand.items():
        if not all((counts_of(plan.side(name)) or {}).get(kind, 0) >= count for name in problem.names):
            raise SpecError(
                "dataset.scale: private is for nodes that release sums over samples of their own examples, and those "
                "of this algorithm and its settings release something else; declare ranges under dataset.columns"
            )


def _check_looks(spec: Experiment) -> None:
    """Refuse looks in such numbers that a run would do nothing else."""
    every, seconds = spec.evaluation.every_seconds, spec.speeds.seconds
    if every is not None and spec.evaluation.name == "on" and spec.speeds.name != "file" and every < seconds / _LOOKS:
        raise SpecError(
            f"evaluation.every_seconds is {every:g}, more than {_LOOKS} looks in the {seconds:g} s of an update "
            "(speeds.seconds); raise it"
        )


def problem_of(prepared: Prepared) -> Problem[Any]:
    """Return the problem that the algorithm plans for.

    Raises
    ------
    CallerError
        If a node cannot make the first update, or the settings do not fit together.
    """
    spec = prepared.experiment
    text = json.dumps(spec.model_dump(mode="json"), sort_keys=True)
    return Problem(
        spec=spec,
        shard_sizes=prepared.shard_sizes,
        parts=prepared.objective.parts,
        graph=prepared.graph,
        initial=prepared.initial,
        seed=public_seed(spec),
        run=prepared.run,
        agreed=hashlib.sha256(encode((text, prepared.run))).digest(),
        first_clip=_first_clip(prepared),
        workload=prepared.workload,
        dry_run=partial(_dry_run, prepared),
        check=partial(_check_nodes, prepared),
        holdings=prepared.holdings,
        beforehand=beforehand(prepared),
    )


def _first_clip(prepared: Prepared) -> float:
    clip = prepared.experiment.privacy.clip
    if clip is not None and clip.initial_bound is not None:
        return clip.initial_bound
    return prepared.algorithm.clips.first(prepared.experiment.algorithm)


def _dry_run(prepared: Prepared, stop: StopSettings, quotas: Quotas | None) -> DryRun:
    """Count what is asked in a run of the schedule."""
    sides = DryRun()
    with few_collections(), closing(_without_data(prepared, sides, quotas=quotas)) as simulator:
        drive(simulator, stop, _Ahead(simulator, stop))
    return sides


def _without_data(
    prepared: Prepared, sides: DryRun, plan: Plan | None = None, quotas: Quotas | None = None
) -> Simulator:
    """The same nodes on the same clock, with nothing in their vectors: of a plan, or before there is one."""
    if plan is None:
        context = prepared.context(dict.fromkeys(prepared.names, NoNoise()), quotas, blank=True)
    else:
        context = prepared.context(plan.mechanisms, plan.quotas, blank=True, lengths=plan.lengths)
    nodes = prepared.algorithm.build(prepared.experiment.algorithm, context)
    return Simulator(nodes, sides, prepared.world, count=prepared.count)


class _Ahead(Observer):
    """Says once, of a schedule that takes long to look ahead at, how long that may be."""

    def __init__(self, simulator: Simulator, stop: StopSettings) -> None:
        self._simulator, self._stop, self._told, self._began = simulator, stop, False, time.monotonic()

    def after(self) -> None:
        made = self._simulator.counters.updates
        if self._told or made < _LONG:
            return
        self._told, of = True, ""
        if (most := self._stop.updates) is not None:
            minutes = (time.monotonic() - self._began) / 60 * (most / made - 1)
            of = f" of {most:,}" + (f", about {minutes:.0f} minutes to go" if minutes > 1 else "")
        warnings.warn(
            f"the schedule that stop fixes is looked ahead at, and is long: {made:,} updates{of}; "
            "algorithm.updates_per_node or stop.epochs in its place need no such look",
            RunWarning,
            stacklevel=2,
        )


def _check_nodes(prepared: Prepared, mechanisms: Mapping[str, Mechanism]) -> None:
    """Build the nodes once, or raise, before a run."""
    prepared.algorithm.build(prepared.experiment.algorithm, prepared.context(mechanisms, None, blank=True))


# What a run will take, found without its data
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
        Seconds until the run ends on the clock of the simulation, or the look ahead, where that is not ``whole``.
    messages, size : int
        Number of messages that nodes send each other until then, and of their bytes in all.
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
    simulator = _without_data(prepared, DryRun(), plan)
    with few_collections():
        ended = drive(simulator, plan.stop, _Patience(simulator))
    status, settings = status_of(simulator, prepared.names, ended), prepared.experiment.algorithm
    remarks = prepared.algorithm.figures.remarks(simulator.nodes)
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
    with few_collections(), closing(_without_data(prepared, sides, plan)) as simulator:
        drive(simulator, plan.stop, NullObserver())
    return sides.asked


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
