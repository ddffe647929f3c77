"""View of a run from outside of its data sides and trust scopes, as bytes that can be compared.

Of a vector that is `Confined` only its size and type are seen, and neither the state of a node in a scope nor what it
writes into its private log. Everything else is in the view to the last bit: when which node saw which event and what it
did then, states of all other nodes, ledgers, figures and models, and how many messages and bytes there were.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gossamer.experiment.audits.replayed_sides import Leak, Recording
from gossamer.experiment.results.result import Result
from gossamer.experiment.runs.progress import NullProgress, Watched
from gossamer.protocol.effects import Record
from gossamer.protocol.encoding import encode
from gossamer.protocol.trace import Step
from gossamer.vectors import Confined, Vector


class SeenStep(NamedTuple):
    """View of a step: digests of the event and of each effect, since all steps of a long run would fill the memory."""

    node: str
    kind: str
    now: float
    event: bytes
    effects: tuple[bytes, ...]


@dataclass
class HeldView(NullProgress):
    """Outside view of a run; held against that of the ``first``, if there is one."""

    recording: Recording
    first: HeldView | None = None
    steps: list[SeenStep] = field(default_factory=list)
    left: list[dict[str, bytes]] = field(default_factory=list)
    view: OutsideView | None = None
    count: int = 0

    def began(self, run: Watched) -> None:
        self.view = OutsideView(run)
        self.recording.seconds = lambda: run.simulator.elapsed

    def step(self, step: Step) -> None:
        """See a step of a node."""
        assert self.view is not None
        seen, (place, self.count) = self.view.step(step), (self.count, self.count + 1)
        if self.first is None:
            self.steps.append(seen)
        elif place >= len(self.first.steps):
            raise Leak(f"{step.node} sees {seen.kind} after the first run has ended")
        elif seen != self.first.steps[place]:
            raise Leak(self.view.difference(self.first.steps[place], seen, step))

    def ended(self, parts: Iterator[tuple[str, bytes]]) -> None:
        """See some of what is left of the run, by name."""
        found, place = dict(parts), len(self.left)
        self.left.append(found)
        if self.first is None:
            return
        if self.count < len(self.first.steps):
            raise Leak(f"the run ends after {self.count} events, expected {len(self.first.steps)}")
        expected = self.first.left[place]
        if odd := sorted(found.keys() ^ expected.keys()):
            raise Leak(f"{odd[0]} is left of {'this run' if odd[0] in found else 'the first run'} alone")
        for name, content in found.items():
            if content != expected[name]:
                raise Leak(f"{name}: not what the first run has{_place(expected[name], content)}")


def _place(one: bytes, other: bytes) -> str:
    """Words for the first difference of two documents; nothing of what is no text."""
    try:
        first, second = one.decode(), other.decode()
    except UnicodeDecodeError:
        return ""
    at = next((at for at, pair in enumerate(zip(first, second)) if pair[0] != pair[1]), min(len(first), len(second)))
    start = max(0, at - 30)
    return f": {second[start : at + 20]!r}, expected {first[start : at + 20]!r}"


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

    def step(self, step: Step) -> SeenStep:
        """A step of a node."""
        effects = tuple(map(self._digest, self._open(step)))
        return SeenStep(step.node, type(step.event).__name__, step.now, self._digest(step.event), effects)

    def difference(self, expected: SeenStep, found: SeenStep, step: Step) -> str:
        """Words for the first thing in which a ``step``, as it was ``found``, is not as ``expected``."""
        where = f"{found.node} at virtual second {self.elapsed(found.now):.12g}"
        if (expected.node, expected.kind) != (found.node, found.kind):
            return f"{where} sees {found.kind}, expected {expected.node} to see {expected.kind}"
        if expected.now != found.now:
            return f"{where} sees {found.kind}, expected at {self.elapsed(expected.now):.12g}"
        if len(expected.effects) != len(found.effects):
            return f"{where}, {found.kind}: {len(found.effects)} effects, expected {len(expected.effects)}"
        for one, other, effect in zip(expected.effects, found.effects, self._open(step), strict=True):
            if one != other:
                said = repr(getattr(effect, "message", effect))
                shown = said if len(said) <= 120 else f"{said[:117]}..."
                return f"{where}, {found.kind}: {shown} is not what the first run has"
        return f"{where}, {found.kind}: the event itself is another one"

    def _open(self, step: Step) -> list[Any]:
        """Effects that are seen: nodes in a scope keep their records to themselves."""
        inside = step.node in self._inside
        return [effect for effect in step.effects if not (inside and isinstance(effect, Record))]

    def _digest(self, part: Any) -> bytes:
        seen = encode(_veiled(part) if self._inside else part)
        return hashlib.blake2b(seen, digest_size=16).digest()

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
