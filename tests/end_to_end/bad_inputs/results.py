"""Results of a run that were damaged, and commands that read them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from tests.end_to_end.bad_inputs.case import Case, Make

MEMBERSHIP, REPEAT = "attack membership results", "run --repeat results --out again"
NO_MODEL = "model.safetensors: expected the model of a run, found it damaged"
REPORT = "report results"


def _written(name: str, content: bytes) -> Make:
    def make(folder: Path) -> None:
        (folder / "results" / name).write_bytes(content)

    return make


def _cut(name: str, size: int) -> Make:
    return lambda folder: os.truncate(folder / "results" / name, size)


def _gone(name: str) -> Make:
    return lambda folder: (folder / "results" / name).unlink()


def _summary(change: Callable[[dict[str, Any]], Any]) -> Make:
    """A summary in which something is another thing."""

    def make(folder: Path) -> None:
        path = folder / "results" / "summary.json"
        said = json.loads(path.read_text())
        change(said)
        path.write_text(json.dumps(said))

    return make


def _model(change: Callable[[dict[str, Any]], Any]) -> Make:
    """A model in which something is another thing."""

    def make(folder: Path) -> None:
        path = folder / "results" / "model.safetensors"
        parts = {name: array.copy() for name, array in load_file(path).items()}
        change(parts)
        save_file(parts, path)

    return make


def _linked(name: str, target: str) -> Make:
    def make(folder: Path) -> None:
        (folder / "results" / name).unlink()
        (folder / "results" / name).symlink_to(target)

    return make


DAMAGED: tuple[tuple[str, str, Make, str], ...] = (
    ("no summary", MEMBERSHIP, _gone("summary.json"), "expected the results folder of a run, with a summary.json"),
    ("an empty summary", MEMBERSHIP, _cut("summary.json", 0), "expected the results folder of a run"),
    ("a summary that is cut off", MEMBERSHIP, _cut("summary.json", 99), "expected the results folder of a run"),
    ("a summary that is a list", MEMBERSHIP, _written("summary.json", b"[1]"), "expected the results folder of a run"),
    ("a summary of bytes", MEMBERSHIP, _written("summary.json", bytes(range(256))), "expected the results folder"),
    ("a summary of brackets", MEMBERSHIP, _written("summary.json", b"[" * 100_000), "expected the results folder"),
    ("a summary that never ends", MEMBERSHIP, _linked("summary.json", "/dev/zero"), "expected the results folder"),
    (
        "a guarantee that is a number",
        MEMBERSHIP,
        _summary(lambda said: said["privacy"].update(guarantee=3)),
        "expected the results",
    ),
    ("a count that is a text", REPORT, _summary(lambda said: said.update(updates="many")), "expected the results"),
    (
        "an accuracy that is a text",
        REPORT,
        _summary(lambda said: said["metrics"].update(mean_model_test_accuracy="high")),
        "expected the results",
    ),
    ("metrics that are a list", REPORT, _summary(lambda said: said.update(metrics=[1])), "expected the results"),
    (
        "an epsilon that is a text",
        REPORT,
        _summary(lambda said: said["privacy"]["guarantee"].update(epsilon="small")),
        "expected the results",
    ),
    (
        "a guarantee of a newer version",
        REPORT,
        _written("guarantee.json", b'{"format": 9, "gossamer": "7.1"}'),
        "guarantee.json: expected a guarantee of format 2, found format 9, written by gossamer 7.1; install",
    ),
    ("no privacy", MEMBERSHIP, _summary(lambda said: said.pop("privacy")), "expected the results folder"),
    ("no spec", MEMBERSHIP, _gone("spec.yaml"), "spec.yaml"),
    ("a spec that is cut off", MEMBERSHIP, _cut("spec.yaml", 30), "spec.yaml"),
    ("a spec of brackets", MEMBERSHIP, _written("spec.yaml", b"a: " + b"[" * 20_000), "it is nested too deeply"),
    ("a spec that never ends", MEMBERSHIP, _linked("spec.yaml", "/dev/zero"), "or a device, expected a file"),
    ("no model", MEMBERSHIP, _gone("model.safetensors"), "model.safetensors"),
    ("an empty model", MEMBERSHIP, _cut("model.safetensors", 0), "model.safetensors"),
    ("a model that is cut off", MEMBERSHIP, _cut("model.safetensors", 200), "model.safetensors"),
    (
        "a model of bytes",
        MEMBERSHIP,
        _written("model.safetensors", bytes(range(256)) * 9),
        NO_MODEL,
    ),
    (
        "a model that says 2**60",
        MEMBERSHIP,
        _written("model.safetensors", (1 << 60).to_bytes(8, "little") + b"{}"),
        "model.safetensors",
    ),
    ("a model that never ends", MEMBERSHIP, _linked("model.safetensors", "/dev/zero"), "model.safetensors"),
    (
        "a model of NaN",
        MEMBERSHIP,
        _model(lambda parts: parts["bias"].fill(np.nan)),
        "model.safetensors: expected finite numbers, found others",
    ),
    (
        "a model of another shape",
        MEMBERSHIP,
        _model(lambda parts: parts.update(bias=np.ones(3, np.float32))),
        NO_MODEL,
    ),
    (
        "a model with other parts",
        MEMBERSHIP,
        _model(lambda parts: parts.pop("bias")),
        NO_MODEL,
    ),
    ("no secret", REPEAT, _gone("noise_secret.json"), "noise_secret.json"),
    ("a secret that is cut off", REPEAT, _cut("noise_secret.json", 9), "noise_secret.json"),
    (
        "a secret that others may read",
        REPEAT,
        lambda folder: (folder / "results" / "noise_secret.json").chmod(0o644),
        "noise_secret.json",
    ),
    ("a secret that is a list", REPEAT, _written("noise_secret.json", b"[1]"), "noise_secret.json"),
    ("a repeat without a spec", REPEAT, _gone("spec.yaml"), "spec.yaml"),
    ("a repeat of no metrics", REPEAT, _gone("metrics.jsonl"), "metrics.jsonl"),
    (
        "metrics of brackets",
        REPEAT,
        _written("metrics.jsonl", b"[" * 100_000 + b"\n"),
        "metrics.jsonl: expected rows of metrics",
    ),
    (
        "metrics that never end",
        REPEAT,
        _linked("metrics.jsonl", "/dev/zero"),
        "metrics.jsonl: expected rows of metrics",
    ),
)
"""Each with the command that reads it."""

KIND = "results"
CASES: tuple[Case, ...] = (
    *(Case(f"results: {name}", KIND, command, says, make=make, of="results") for name, command, make, says in DAMAGED),
    Case(
        "run: into results that are there",
        KIND,
        "run results/spec.yaml --out results",
        "results exists and is not empty",
        of="results",
    ),
    Case(
        "sweep: into runs of another spec",
        KIND,
        "sweep spec.yaml --seeds 1 --out .",
        "algorithm.nodes is 3 there and 4 here); choose another --out",
        {
            "spec.yaml": "{algorithm: {name: gossip, nodes: 4, batch_size: 20, updates_per_node: 3}, "
            "budget: {epsilon: 8, delta: 1.0e-4}}"
        },
        make=lambda folder: (folder / "results").rename(folder / "spec-seed0"),
        of="results",
    ),
    Case("resume: a run that has ended", KIND, "run --resume results", "this run has ended", of="results"),
    *(
        Case(
            f"resume: {what}",
            KIND,
            "run --resume results",
            expected,
            make=_written("checkpoint.bin", content),
            of="results",
        )
        for what, content, expected in (
            ("an empty checkpoint", b"", "checkpoint.bin: expected a checkpoint as a run wrote it, but it begins with"),
            ("a checkpoint of an older format", b"gossamer checkpoint 1\n{}\n", "but it begins with something else"),
            ("a pickle", b"\x80\x04N.", "checkpoint.bin: expected a checkpoint as a run wrote it"),
        )
    ),
    Case("repeat: into itself", KIND, "run --repeat results --out results --overwrite", "results", of="results"),
    Case("status: results of a simulation", KIND, "status results", "there is no status.json", of="results"),
)
