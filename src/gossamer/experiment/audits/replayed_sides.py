"""Data sides of a run that is held against another one with equal coins: they answer what that one's have answered.

The first run *records* its answers. In the second one, on a neighbouring data set, each data side computes its own
answer with the same coins, so the two differ by what the data do alone; holds the distance against the sensitivity that
its plan declares; and then hands over the answer of the first. So all that follows from releases is the same, and
whatever is not has come around them.

| answer | of the second run |
|---|---|
| `Released` | at most its sensitivity away, in units of its noise; replaced |
| `Masked` | the same masks, so modulo 2^bits at most its sensitivity away; replaced |
| `Public` | the same bytes |
| `Confined` | handed over as it is, inside its trust scope: what leaves that is an answer of another data side |
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gossamer.arrays import Floats
from gossamer.attacks.leak import NoiseScale, repeated, rounding, silent, to_units
from gossamer.experiment.results.records import Result
from gossamer.experiment.runs.trackers import RunProgress, Watched
from gossamer.privacy.mechanisms import Mechanism, NeighboringRelation
from gossamer.protocol.effects import Record
from gossamer.protocol.encoding import encode
from gossamer.protocol.trace import TraceStep
from gossamer.sides.home import Home
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import Rule, Side, SideAnswer
from gossamer.sides.plan import Apart, SidePlan
from gossamer.sides.pool import Machine
from gossamer.sides.sums import Ticket
from gossamer.vectors import Confined, Masked, Released, Vector

# View of a run from outside of its data sides and trust scopes, as bytes that can be compared.
#
# Of a vector that is `Confined` only its size and type are seen, and neither the state of a node in a scope nor what
# it writes into its private log. Everything else is in the view to the last bit: when which node saw which event and
# what it did then, states of all other nodes, ledgers, figures and models, and how many messages and bytes there were.


class SeenStep(NamedTuple):
    """View of a step: digests of the event and of each effect, since all steps of a long run would fill the memory."""

    node: str
    kind: str
    now: float
    event: bytes
    effects: tuple[bytes, ...]


PRIVATE_FILES = frozenset({"private.jsonl", "noise_secret.json", "timing.json"})
"""Files of a results folder that are for nobody else, and the one that says how long a run took."""
_FIGURES = ("metrics", "personalisation")
_SCORES = ("test_", "mean_model_test_", "worst_node_test_", "centroid_", "consensus_", "disagreement", "msd")


@dataclass
class OutsideView(RunProgress):
    """Outside view of a run; held against that of the ``first``, if there is one."""

    recording: Recording
    first: OutsideView | None = None
    steps: list[SeenStep] = field(default_factory=list)
    left: list[dict[str, bytes]] = field(default_factory=list)
    count: int = 0

    def began(self, run: Watched) -> None:
        self._run, trust, spec = run, run.prepared.cast.trust, run.prepared.experiment
        self._inside = trust.keys() | set(trust.values())
        # Without noise and masks a summary says of how many gradients nothing came.
        self._left_out = () if spec.private or spec.terms.hiding else ("gradients_not_finite",)
        # Heads that are in their own scope have models that are raw, and so are all figures of these.
        self._raw_models = any(trust.get(head) == head for head in trust.values())
        self.recording.seconds = lambda: run.simulator.elapsed

    def step(self, step: TraceStep) -> None:
        """See a step of a node."""
        effects = tuple(map(self._digest, self._open(step)))
        seen = SeenStep(step.node, type(step.event).__name__, step.now, self._digest(step.event), effects)
        place, self.count = self.count, self.count + 1
        if self.first is None:
            self.steps.append(seen)
        elif place >= len(self.first.steps):
            raise Leak(f"{step.node} sees {seen.kind} after the first run has ended")
        elif seen != self.first.steps[place]:
            raise Leak(self._difference(self.first.steps[place], seen, step))

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

    def elapsed(self, now: float) -> float:
        """Virtual seconds from the start to a moment on the nodes' clock."""
        return round(now - self._run.simulator.start, 9)

    def _difference(self, expected: SeenStep, found: SeenStep, step: TraceStep) -> str:
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

    def _open(self, step: TraceStep) -> list[Any]:
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


def _place(one: bytes, other: bytes) -> str:
    """Words for the first difference of two documents; nothing of what is no text."""
    try:
        first, second = one.decode(), other.decode()
    except UnicodeDecodeError:
        return ""
    at = next((at for at, pair in enumerate(zip(first, second)) if pair[0] != pair[1]), min(len(first), len(second)))
    start = max(0, at - 30)
    return f": {second[start : at + 20]!r}, expected {first[start : at + 20]!r}"


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
    return tuple(map(_veiled, value)) if isinstance(value, Collection) else value


class Leak(Exception):
    """Something outside of data sides that tells two neighbouring data sets apart; ``str`` says what, in a line."""


class NoiseDifference(NamedTuple):
    """Difference of two draws of a release's noise, with its law: in units of that, if it is no matter of others."""

    side: str
    number: int
    difference: Floats
    law: Mechanism | None
    unit_roundoff: float


@dataclass
class Recording:
    """Answers of a run's data sides, in order, by side.

    Attributes
    ----------
    plans : mapping of str to SidePlan
        Plans of all sides.
    relation : NeighboringRelation
        Relation of data sets that are neighbours, of examples.
    shards : mapping of str to int
        Number of examples of each party.
    answers : dict of str to list of SideAnswer
        Answers by side.
    seconds : callable
        Virtual seconds by now.
    """

    plans: Mapping[str, SidePlan]
    relation: NeighboringRelation
    shards: Mapping[str, int]
    answers: dict[str, list[SideAnswer]] = field(default_factory=dict)
    seconds: Callable[[], float] = lambda: 0.0

    def answer(self, ticket: Ticket, own: SideAnswer) -> SideAnswer:
        """A side's ``own`` answer, which is kept."""
        self.answers.setdefault(ticket.side.name, []).append(own)
        return own


@dataclass
class Replay:
    """Answers of a recording, handed over again.

    Attributes
    ----------
    recording : Recording
        Recording whose answers are handed over.
    compare : callable
        (this replay, ticket, answer of the first run, own answer) -> nothing; raises `Leak`.
    noises : list of NoiseDifference
        Findings, where noise is drawn anew.
    compared, differing, largest
        Number of releases held against the first run's, number of them that differ, and the furthest that one was away,
        in sensitivities.
    """

    recording: Recording
    compare: Callable[[Replay, Ticket, SideAnswer, SideAnswer], None]
    noises: list[NoiseDifference] = field(default_factory=list)
    given: dict[str, int] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)
    compared: int = 0
    differing: int = 0
    largest: float = 0.0

    def answer(self, ticket: Ticket, own: SideAnswer) -> SideAnswer:
        """The answer of the first run, held against this run's ``own``."""
        name, kept = ticket.side.name, self.recording.answers.get(ticket.side.name, [])
        place = self.given[name] = self.given.get(name, 0) + 1
        if place > len(kept):
            raise Leak(f"{self.where(name)}: answered {place} questions, expected {len(kept)}")
        first = kept[place - 1]
        one, other = first.released, own.released
        if type(one) is not type(other) or one.values.dtype != other.values.dtype or one.size != other.size:
            raise Leak(f"{self.where(name)}: answer {place} is {other!r}, expected {one!r}")
        if isinstance(one, Confined):
            return own
        self.compare(self, ticket, first, own)
        return own._replace(released=one)

    def apart(self, ticket: Ticket) -> Apart | None:
        """Distance that an answer may have from the first run's."""
        recording, name = self.recording, ticket.side.name
        return recording.plans[name].apart(ticket.task, recording.relation, recording.shards.get(name, 0))

    def where(self, name: str) -> str:
        """Words for the place of what a side does now."""
        return f"{name} at virtual second {self.recording.seconds():g}"


class _HeardSide(Side):
    """A data side of whose answers somebody hears first, and says what is handed over."""

    answer: Callable[[Ticket, SideAnswer], SideAnswer]

    def release(self, ticket: Ticket, raw: Any) -> SideAnswer:
        return self.answer(ticket, super().release(ticket, raw))


def heard(by: Recording | Replay) -> Machine:
    """Make data sides whose answers are kept, or held against those that were."""

    def machine(name: str, rule: Rule, ledger: Ledger | None, home: Home) -> Side:
        side = _HeardSide(name, rule, ledger, home)
        side.answer = by.answer
        return side

    return machine


def same_coins(replay: Replay, ticket: Ticket, first: SideAnswer, own: SideAnswer) -> None:
    """Hold an answer with the same coins, of neighbouring data, against the sensitivity that is declared.

    Raises
    ------
    Leak
        If it is further away.
    """
    name, apart = ticket.side.name, replay.apart(ticket)
    one, other = np.asarray(first.released.values), np.asarray(own.released.values)
    if apart is None or not isinstance(first.released, Released | Masked):
        if one.tobytes() != other.tobytes():
            raise Leak(f"{replay.where(name)}: an answer that depends on no data has other bytes")
        return
    most = apart.most + (replay.moved.get(name, 0.0) if apart.adds else 0.0)
    if isinstance(first.released, Masked):
        distance, rounded = _steps(one, other), 0.0
    else:
        a, b = _measured(one, apart), _measured(other, apart)
        longest = 1.0 if apart.query is not None else most
        distance, rounded = float(np.linalg.norm(a - b)), rounding(a, b, apart.examples, _unit_roundoff(one), longest)
    replay.moved[name] = distance
    replay.compared += 1
    replay.differing += distance != 0
    if most == math.inf:
        return
    replay.largest = max(replay.largest, distance / most)
    if not distance <= most + rounded < math.inf:
        raise Leak(
            f"{replay.where(name)}: release {replay.given[name]} ({type(ticket.task).__name__}) is "
            f"{distance / most:.4g} times its declared sensitivity away"
        )


def _unit_roundoff(values: Any) -> float:
    return float(np.finfo(values.dtype).eps) / 2


def _steps(one: Any, other: Any) -> float:
    """Steps between two vectors with the same mask and noise, modulo 2^bits."""
    signed = (other - one).view(np.dtype(f"i{one.dtype.itemsize}"))
    return float(np.linalg.norm(signed.astype(np.float64)))


def _measured(answer: Any, apart: Apart) -> Floats:
    """An answer in the numbers in which its sensitivity is declared."""
    if (query := apart.query) is None:
        return np.asarray(answer, np.float64)
    clip = query.mechanism.clip
    return to_units(answer, query, clip if math.isfinite(clip) else 1.0)


def other_noise(replay: Replay, ticket: Ticket, first: SideAnswer, own: SideAnswer) -> None:
    """Note what the noise of a release is, by an answer of the same data with other noise."""
    apart = replay.apart(ticket)
    if apart is None or not apart.noisy or not isinstance(first.released, Released):
        return
    one, other = np.asarray(first.released.values), np.asarray(own.released.values)
    difference = _measured(other, apart) - _measured(one, apart)
    law = None if apart.query is None else apart.query.mechanism
    name = ticket.side.name
    replay.noises.append(NoiseDifference(name, replay.given[name], difference, law, _unit_roundoff(one)))


def check_noise(noises: Sequence[NoiseDifference], scale: NoiseScale) -> None:
    """Look for noise that is missing, or comes twice, or is of another standard deviation than is charged.

    Parameters
    ----------
    noises : sequence of NoiseDifference
        Differences of noise, of one run.
    scale : NoiseScale
        Knowledge of standard deviations from other runs, to which these are added.

    Raises
    ------
    Leak
        If there is such.
    """
    by_size: dict[int, list[NoiseDifference]] = {}
    for one in noises:
        if not one.difference.any():
            raise Leak(f"{one.side}: release {one.number} has no noise")
        by_size.setdefault(len(one.difference), []).append(one)
        if one.law is not None and (normal := one.law.normal) is not None:
            scale.add(one.difference, normal.noise_multiplier)
    for same in by_size.values():
        differences = [one.difference for one in same]
        if len(same) > 1 and (place := silent(differences)) is not None:
            raise Leak(f"{same[0].side}: number {place} of {len(differences[0])} in a release has no noise")
        if (two := repeated(differences, same[0].unit_roundoff)) is not None:
            one, other = (same[place] for place in two)
            raise Leak(f"release {one.number} of {one.side} and {other.number} of {other.side} have the same noise")
    if (found := scale.wrong) is not None:
        raise Leak(f"the standard deviation of noise is {found:.3g} times the one that is charged")


def nothing(replay: Replay, ticket: Ticket, first: SideAnswer, own: SideAnswer) -> None:
    """Hold an answer to be the very same: of the same data, with the same coins.

    Raises
    ------
    Leak
        If it is not.
    """
    if first.released != own.released:
        one, other = np.asarray(first.released.values), np.asarray(own.released.values)
        most = float(np.abs(other.astype(np.float64) - one).max(initial=0))
        raise Leak(f"{replay.where(ticket.side.name)}: the same coins give another answer, by up to {most:.3g}")
