"""Fig. 8: a spec run by processes that talk over a broker, and the accuracy of the models that its server sent out."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from experiments.stored import Record

from gossamer.algorithms.clients.nodes import SERVER, Halt, NewestAtClip
from gossamer.arrays import FloatArray
from gossamer.errors import GossamerError
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.protocol.effects import Send
from gossamer.protocol.trace import TraceStep, read_steps

LOOKS = 10
LONG = 900.0
"""Seconds after which a testbed has failed."""


def by_processes(content: Mapping[str, Any], folder: Path | None) -> Record:
    """Run a spec by ``gossamer up``; the test accuracy of the server's models over its updates and over seconds.

    Noise comes from the machine, and the order of updates from its scheduler, so no two runs are the same.
    """
    privacy = {key: value for key, value in content["privacy"].items() if key != "noise_secret"}
    spec = {key: value for key, value in content.items() if key != "speeds"} | {"privacy": privacy}
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "up") if folder is None else folder
        return {"epsilon": None, "delta": None, "claims": [], "curve": _curve(spec, _trace(spec, Path(place), out))}


def _trace(spec: Mapping[str, Any], place: Path, out: Path) -> list[TraceStep]:
    """The server's steps in a run of all processes."""
    path = place / "spec.yaml"
    path.write_text(yaml.safe_dump(dict(spec)), "utf-8")
    command = [sys.executable, "-m", "gossamer", "up", str(path), "--out", str(out), "--trace"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False, env=dict(os.environ))
    if done.returncode:
        last = done.stderr.strip().splitlines() or ["it says nothing"]
        raise GossamerError(f"gossamer up ended with {done.returncode}: {last[-1]}")
    with (out / SERVER / "trace.bin").open("rb") as file:
        return list(read_steps(file))


def sent(steps: list[TraceStep]) -> Iterator[tuple[int, float, FloatArray]]:
    """Updates, seconds since the first model went out, and the model, of each that a server sent."""
    first: float | None = None
    for step in steps:
        for effect in step.effects:
            if isinstance(effect, Send) and isinstance(effect.message, NewestAtClip | Halt):
                first = step.now if first is None else first
                version = effect.message.version
                yield version, step.now - first, effect.message.model.values


def _curve(spec: Mapping[str, Any], steps: list[TraceStep]) -> list[Record]:
    """A look at the first model, and after each tenth of the updates."""
    prepared = prepare(parse_spec(spec))
    models = {updates: (seconds, model) for updates, seconds, model in reversed(list(sent(steps)))}  # the first of each
    last = max(models)
    wanted = [min(models, key=lambda updates: abs(updates - last * look / LOOKS)) for look in range(LOOKS + 1)]
    found = prepared.objective.evaluate(np.stack([models[at][1] for at in wanted]), prepared.dataset.test)
    return [
        {"updates": at, "wall_seconds": models[at][0], "mean_model_test_accuracy": float(accuracy)}
        for at, accuracy in zip(wanted, found.accuracy, strict=True)
    ]
