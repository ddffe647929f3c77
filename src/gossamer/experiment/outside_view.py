"""View of a run from outside of its data sides and trust scopes, as bytes that can be compared.

Of a vector that is `Confined` only its size and type are seen, and neither the state of a node in a scope nor what it
writes into its private log. Everything else is in the view to the last bit: when which node saw which event and what it
did then, states of all other nodes, ledgers, figures and models, and how many messages and bytes there were.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.experiment.progress import Watched
from gossamer.experiment.result import Result
from gossamer.protocol.effects import Record
from gossamer.protocol.encoding import encode
from gossamer.protocol.trace import Step
from gossamer.vectors import Confined, Vector

PRIVATE_FILES = frozenset({"private.jsonl", "noise_secret.json", "timing.json"})
"""Files of a results folder that are for nobody else, and the one that says how long a run took."""
_FIGURES = ("metrics", "personalisation")
_SCORES = ("test_", "mean_model_test_", "worst_node_test_", "centroid_", "consensus_", "disagreement", "msd")


class OutsideView:
    """Views of one run.

    Parameters
    ----------
    run : Watched
        The run.
    """

    def __init__(self, run: Watched) -> None:
        self._run = run
        trust = run.prepared.cast.trust
        self._inside = trust.keys() | set(trust.values())
        spec = run.prepared.experiment
        # Without noise and masks a summary says of how many gradients nothing came.
        self._left_out = () if spec.private or spec.terms.hiding else ("gradients_not_finite",)
        # Heads that are in their own scope have models that are raw, and so are all figures of these.
        self._raw_models = any(trust.get(head) == head for head in trust.values())

    def elapsed(self, now: float) -> float:
        """Virtual seconds from the start to a moment on the nodes' clock."""
        return round(now - self._run.simulator.start, 9)

    def step(self, step: Step) -> bytes:
        """A step of a node."""
        if not self._inside:
            return encode(step)
        effects = step.effects
        if step.node in self._inside:
            effects = [effect for effect in effects if not isinstance(effect, Record)]
        return encode(_veiled((step.now, step.node, step.event, effects)))

    def end(self, result: Result) -> Iterator[tuple[str, bytes]]:
        """Parts of what is left of a run, each with its name."""
        run = self._run.simulator
        sides: Any = run.computer
        for name, node in run.nodes.items():
            if name not in self._inside:
                yield f"state of {name}", encode(_veiled(node.state))
        yield "ledgers", self._json([line for ledger in sides.ledgers for line in ledger.lines()])
        yield "counts", encode((run.messages, run.bytes, run.counters.updates, run.counters.rejected, run.elapsed))
        yield "staleness", self._json(run.activity.staleness())
        yield "summary", self._json(result.summary)
        yield "metrics", self._json(result.metrics)
        yield "model", encode(self._run.prepared.algorithm.output(run.present))

    def files(self, folder: Path) -> Iterator[tuple[str, bytes]]:
        """Files of a results folder, by their names, as far as they may be known."""
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = path.relative_to(folder).as_posix()
            if name not in PRIVATE_FILES and not (self._raw_models and path.suffix == ".csv"):
                yield name, self._file(path)

    def _file(self, path: Path) -> bytes:
        if not (self._raw_models or self._left_out) or path.suffix not in (".json", ".jsonl"):
            return path.read_bytes()
        lines = path.read_text(encoding="utf-8")
        documents = lines.splitlines() if path.suffix == ".jsonl" else [lines]
        return b"\n".join(self._json(json.loads(line)) for line in documents)

    def _json(self, document: Any) -> bytes:
        return json.dumps(self._covered(document), sort_keys=True, default=str).encode()

    def _covered(self, document: Any) -> Any:
        """Return a document without figures that no guarantee covers, such as those of models that are raw."""
        if not self._raw_models and not self._left_out:
            return document
        if isinstance(document, Mapping):
            return {key: self._covered(value) for key, value in document.items() if not self._uncovered(str(key))}
        if isinstance(document, list | tuple):
            return [self._covered(value) for value in document]
        return document

    def _uncovered(self, key: str) -> bool:
        return key in self._left_out or (self._raw_models and (key in _FIGURES or key.startswith(_SCORES)))


def _veiled(value: Any) -> Any:
    """Return a value that can be encoded, with nothing of what is confined but its size and type."""
    if isinstance(value, Confined):
        return ("confined", value.size, str(value.values.dtype))
    if isinstance(value, Vector | str | int | float | bytes | np.ndarray | None):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if is_dataclass(value):
        return (type(value).__name__, *(_veiled(getattr(value, field.name)) for field in fields(value)))
    if isinstance(value, Mapping):
        return tuple((_veiled(key), _veiled(item)) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return ("set", *sorted(map(_veiled, value)))
    if isinstance(value, Collection):
        return tuple(map(_veiled, value))
    return value


def difference(expected: Step, found: Step, view: OutsideView) -> str:
    """Words for the first thing in which two steps differ."""
    where, now = f"{found.node} at virtual second", view.elapsed(found.now)
    if (expected.node, type(expected.event)) != (found.node, type(found.event)):
        return (
            f"{where} {now:g} sees {type(found.event).__name__}, expected {expected.node} to see "
            f"{type(expected.event).__name__}"
        )
    if expected.now != found.now:
        return f"{where} {now:.12g} sees {type(found.event).__name__}, expected at {view.elapsed(expected.now):.12g}"
    here = f"{where} {now:g}, {type(found.event).__name__}"
    if len(expected.effects) != len(found.effects):
        return f"{here}: {len(found.effects)} effects, expected {len(expected.effects)}"
    for one, other in zip(expected.effects, found.effects, strict=True):
        if view.step(Step(0.0, found.node, found.event, [one])) != view.step(
            Step(0.0, found.node, found.event, [other])
        ):
            return f"{here}: {_described(other)} is not {_described(one)} of the first run"
    return f"{here}: the event itself is another one"


def _described(effect: Any) -> str:
    said = repr(getattr(effect, "message", effect))
    return said if len(said) <= 120 else f"{said[:117]}..."
