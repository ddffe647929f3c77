"""Planning a run: its algorithm does it, from what `experiment` knows of the spec and the data."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from gossamer.algorithms.interface import SYNTHETIC
from gossamer.algorithms.plan import Plan
from gossamer.algorithms.problem import Problem, Quotas, StopSettings
from gossamer.algorithms.table import registered_as
from gossamer.errors import RunWarning, SpecError
from gossamer.experiment import others_code
from gossamer.experiment.driving import Observer, drive, few_collections
from gossamer.experiment.early_stopping import assumptions
from gossamer.experiment.estimates import estimates_on
from gossamer.experiment.prepared import Prepared, public_seed
from gossamer.experiment.private_scale import beforehand
from gossamer.experiment.spec import Experiment
from gossamer.privacy.mechanisms import Mechanism, NoNoise
from gossamer.runtimes.simulator import Simulator
from gossamer.sides.null import DryRun

OTHERS_CODE = "the code of {code} is trusted: its algorithm plans all that it releases, and sends nothing else"
"""Assumption of a guarantee for an algorithm that another distribution registers."""
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
    if problem.estimates is not None:
        found = replace(found, words=replace(found.words, estimates=str(problem.estimates)))
    if (code := registered_as(spec.algorithm.name)) is not None:
        found = found.assuming(OTHERS_CODE.format(code=code))
    for line in [*others_code.assumptions(spec), *assumptions(spec, units=bool(prepared.units))]:
        found = found.assuming(line)
    for line in [*found.words.advice, *prepared.advice(found.mechanisms, found.quotas, found.updates)]:
        warnings.warn(line, RunWarning, stacklevel=2)
    _check_looks(spec)
    return found.reproducible() if spec.private and spec.reproducible else found


def _check_beforehand(problem: Problem[Any], plan: Plan) -> None:
    """Refuse releases before the run that its plan does not cover: nobody would charge them."""
    for kind, count in problem.beforehand.items():
        if not all((plan.side(name).counts() or {}).get(kind, 0) >= count for name in problem.names):
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
    return Problem(
        settings=spec.algorithm,
        spec=spec,
        text=json.dumps(spec.model_dump(mode="json"), sort_keys=True),
        names=prepared.names,
        shard_sizes=prepared.shard_sizes,
        parts=prepared.objective.parts,
        graph=prepared.graph,
        initial=prepared.initial,
        seed=public_seed(spec),
        run=prepared.run,
        clipping=prepared.clipping,
        first_clip=_first_clip(prepared),
        # Drawn anew: a generator takes bytes of the operating system's, and what a party takes has to stay as it is.
        first_state=lambda: prepared.clipping.initial(prepared.drawn_initial()),
        workload=prepared.workload,
        sampling=prepared.sampling,
        schedule=lambda stop, quotas: _dry_run(prepared, stop, quotas).counts,
        asks=lambda stop, quotas: _dry_run(prepared, stop, quotas).asked,
        check=partial(_check_nodes, prepared),
        absences=spec.faults.away,
        holdings=prepared.holdings,
        estimates=prepared.estimates,
        # Also where the constants are written out: they may be what an earlier run estimated.
        public_examples=estimates_on(spec) not in (None, SYNTHETIC),
        server=prepared.cast.hub,
        beforehand=beforehand(prepared),
    )


def _first_clip(prepared: Prepared) -> float:
    clip = prepared.experiment.privacy.clip
    if clip is not None and clip.initial_bound is not None:
        return clip.initial_bound
    return prepared.algorithm.clips.first(prepared.experiment.algorithm)


def _dry_run(prepared: Prepared, stop: StopSettings, quotas: Quotas | None) -> DryRun:
    """Count what is asked in a run of the schedule: the same nodes on the same clock, with nothing in their vectors."""
    context = prepared.context(dict.fromkeys(prepared.names, NoNoise()), quotas, blank=True)
    nodes = prepared.algorithm.build(prepared.experiment.algorithm, context)
    sides = DryRun()
    with few_collections(), closing(Simulator(nodes, sides, prepared.world, count=prepared.count)) as simulator:
        drive(simulator, stop, _Ahead(simulator, stop))
    return sides


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
