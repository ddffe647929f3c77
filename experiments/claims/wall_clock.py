"""Runs over real processes: a federation on this machine, one party slowed by signals, and its model over wall time.

The spec says who is slowed and how much, as it does for a simulation: by the scenario ``one_slow`` of its speeds. That
party's process is stopped (SIGSTOP) and let go on (SIGCONT) in turn, so that it has 1/factor of the time. Models are
made again from the parties' traces once all is over, so nothing disturbs the run while it is timed.
"""

from __future__ import annotations

import heapq
import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from experiments.checks import ACCURACY
from experiments.stored import Record

from gossamer.cli.federation.local_federation import STATE, LocalFederation
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import CallerError
from gossamer.experiment.preparation.prepare import nodes_of
from gossamer.experiment.specs.spec import Experiment
from gossamer.protocol.events import Completed
from gossamer.protocol.node import Node
from gossamer.protocol.trace import read_steps
from gossamer.runtimes.mqtt.broker import EmbeddedBroker
from gossamer.runtimes.speeds import OneSlow

PERIOD = 0.2
"""Seconds in which a slowed process runs once."""
GRID = 0.25
"""Seconds between looks at the model."""
TRACE = "trace.bin"
PATIENCE = ("--gone-after", "5")
"""Arguments of parties: at the end some wait for what a slow one has not said."""


def timed(experiment: Experiment) -> Record:
    """Run a federation of processes; the accuracy of its model over the seconds since the first gradient."""
    secret = experiment.privacy.model_copy(update={"noise_secret": "fresh"})  # parties' noise cannot be repeated
    experiment = experiment.model_copy(update={"privacy": secret})
    with tempfile.TemporaryDirectory() as place, EmbeddedBroker() as broker:
        federation = LocalFederation.found(experiment, Path(place) / "federation", broker.url)
        more = {n: ("--trace", str(federation.folder / n / TRACE), *PATIENCE) for n in federation.members}
        with slowed(federation, experiment):
            outcome = federation.run(lambda line: None, more=more)
        if outcome.failed:
            raise CallerError(f"a party of the wall-clock study failed: {outcome.failed}")
        planned = max(summary["privacy"]["epsilon"] for summary in outcome.summaries.values())
        return {"epsilon": planned, "delta": experiment.delta, "curve": list(looks(federation))}


@contextmanager
def slowed(federation: LocalFederation, experiment: Experiment) -> Iterator[None]:
    """Have one party's process stopped most of the time, from when its node runs to its end."""
    scenario, over = experiment.speeds.scenario, threading.Event()
    if not isinstance(scenario, OneSlow):
        yield
        return
    name = federation.prepared.names[scenario.node]
    turns = threading.Thread(target=_take_turns, args=(federation, name, PERIOD / scenario.factor, over))
    turns.start()
    try:
        yield
    finally:
        over.set()
        turns.join()


def _take_turns(federation: LocalFederation, name: str, runs: float, over: threading.Event) -> None:
    """Of each period the process of ``name`` runs for so many seconds."""
    while not over.wait(runs):
        process = federation.processes.get(name)
        if process is None or process.pid is None or not process.is_alive() or _state(federation, name) != "running":
            continue
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
            over.wait(PERIOD - runs)
            os.kill(process.pid, signal.SIGCONT)


def _state(federation: LocalFederation, name: str) -> str:
    try:
        return str(StateFolder(federation.folder / name / STATE).status()["state"])
    except CallerError:
        return "starting"


def looks(federation: LocalFederation) -> Iterator[dict[str, Any]]:
    """The run's model, as the traces of all parties have it, every `GRID` seconds since the first gradient."""
    nodes, most = nodes_of(federation.prepared, federation.plan), federation.prepared.experiment.stop.virtual_seconds
    updates, began, look = 0, None, 0
    with ExitStack() as files:
        traces = [
            read_steps(files.enter_context((federation.folder / name / TRACE).open("rb")))
            for name in federation.members
        ]
        for step in heapq.merge(*traces, key=lambda step: step.now):
            while began is not None and step.now - began >= look * GRID:
                yield _look(federation, nodes, look * GRID, updates)
                look += 1
                if most is not None and look * GRID > most:
                    return
            nodes[step.node].handle(step.event, step.now)
            if isinstance(step.event, Completed):
                updates += 1
                began = step.now if began is None else began
        yield _look(federation, nodes, look * GRID, updates)


def _look(federation: LocalFederation, nodes: Mapping[str, Node], seconds: float, updates: int) -> dict[str, Any]:
    model = federation.prepared.algorithm.output(nodes).values
    accuracy = federation.metrics(np.asarray(model))["test_accuracy"]
    return {"wall_seconds": seconds, "updates": updates, ACCURACY: accuracy}
