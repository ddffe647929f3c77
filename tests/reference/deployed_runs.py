"""Deployments that came to their end, with the trace of each party, and their timing for a simulation."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tests.reference.deployments import QUICK, Life, check_lives, keep_history, parties
from tests.reference.server_traces import asked

from gossamer.algorithms.clients.nodes import SERVER
from gossamer.cli.federation.local_federation import LocalFederation, LocalOutcome
from gossamer.experiment.specs.spec import Experiment
from gossamer.protocol.node import Node
from gossamer.protocol.trace import TraceStep, read_steps
from gossamer.runtimes.mqtt.broker import EmbeddedBroker
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import Absence, FaultSettings, LinkSettings

_SOON = 1e-3
"""Seconds within which clients would begin; they are away by then, and so begin when they come."""


@dataclass(frozen=True)
class Run:
    """A deployment that came to its end."""

    name: str
    federation: LocalFederation
    found: LocalOutcome
    lives: dict[str, Life]
    steps: dict[str, list[TraceStep]]

    def simulated(self) -> dict[str, Node]:
        """Fresh nodes, as the simulator makes them; their keys are signed for this run."""
        prepared, plan = replace(self.federation.prepared, run=self.name), self.federation.plan
        context = prepared.context(plan.mechanisms, plan.quotas)
        nodes: dict[str, Node] = prepared.algorithm.build(prepared.experiment.algorithm, context)
        return nodes


def deployed(experiment: Experiment, folder: Path, store: str | None = None, options: tuple[str, ...] = QUICK) -> Run:
    """A process for each party, over a broker of its own, or the store at a URL; what they did, when all have ended."""
    with EmbeddedBroker() if store is None else nullcontext() as broker:
        url = str(store) if broker is None else broker.url
        federation = LocalFederation.found(experiment, folder, url)
        with parties(federation) as there:
            keep_history(there)
            more = {party: (*options, "--trace", str(folder / party / "trace.bin")) for party in there.names}
            found = federation.run(lambda line: None, more=more)
            lives = {} if found.failed else check_lives(there, {})
        named = there.agreed(there.names[0]).invitation.run
    steps = {party: _read(folder / party / "trace.bin") for party in federation.members}
    return Run(named, federation, found, lives, steps)


def _read(path: Path) -> list[TraceStep]:
    with path.open("rb") as file:
        return list(read_steps(file))


def at_its_times(experiment: Experiment, run: Run) -> Experiment:
    """The spec, with clients of one server that come and train when the deployed ones did, over links without delay.

    So the server of a simulation is asked by the same clients in the same order, and only noise and examples differ.
    """
    times = asked(run.steps[SERVER])
    first = min(min(found) for found in times.values()) - 1.0
    path = run.federation.folder / "times.csv"
    lines, absences = [], []
    for number, name in enumerate(run.federation.prepared.names):
        came, *_ = times[name]
        absences.append(Absence(node=number, start=0.0, end=came - first))
        steps = _steps(run, number)
        lines += [f"{number},{float(seconds) / steps!r}" for seconds in np.diff(times[name])]
    path.write_text("\n".join(lines))
    return experiment.model_copy(
        update={
            "speeds": SpeedSettings(name="file", path=path, stagger=_SOON),
            "links": LinkSettings(latency=0.0),
            "faults": FaultSettings(absences=tuple(absences)),
        }
    )


def _steps(run: Run, number: int) -> int:
    """Local steps of an update: a simulated client takes its seconds for each of them."""
    prepared = run.federation.prepared
    return int(prepared.experiment.algorithm.query(len(prepared.shards[number])).steps)
