"""Results folders, read back: the summary of a run, its metrics by column, and what each node did."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from gossamer.errors import DataError, shortened
from gossamer.files import MOST_RECORDS, as_written, elsewhere, read_text
from gossamer.objectives.score_words import LABELS, check

# An epoch is a pass of all nodes together over all shards, in expectation, as in `algorithms.learning_rate`. Of node i
# with n_i examples the ledger has the rate p_i = b / n_i at which each release samples, and how many releases there
# were. With one batch b at all nodes, an epoch is as many releases as sum n_i / b = sum 1 / p_i.

LEDGER = "ledger.jsonl"


def updates_in_epoch(folder: Path, summary: Mapping[str, Any]) -> float | None:
    """Return how many updates of a run make an epoch; None where rates change, or are those of clients and no examples.

    A ledger that cannot be read tells nothing, as if it were not there: nothing else on the page depends on it.
    """
    try:
        lines = [json.loads(line) for line in read_text(folder / LEDGER, MOST_RECORDS).splitlines() if line]
        return _updates(lines, int(summary["updates"]), int(summary["parameters"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, RecursionError):
        return None


def _updates(lines: list[dict[str, Any]], updates: int, parameters: int) -> float | None:
    taken = [line for line in lines if line.get("size") == parameters]  # others found a scale, before the run
    whole = any("protects" in line or "unit" in line for line in taken)
    alike = [line["node"] if isinstance(line["node"], list) else [line["node"]] for line in taken]
    nodes = Counter(name for names in alike for name in names)
    if not taken or not updates or whole or max(nodes.values()) > 1:
        return None
    releases = sum(int(line["releases"]) * len(names) for line, names in zip(taken, alike, strict=True))
    return updates / releases * sum(len(names) / _rate(line) for line, names in zip(taken, alike, strict=True))


def _rate(line: Mapping[str, Any]) -> float:
    """Probability that a release takes a given example."""
    if "probability" in line:
        return float(line["probability"])
    return float(line["batch_size"]) / float(line["dataset_size"])


SUMMARY = "summary.json"
"""File by which a results folder is known."""

EPOCHS = "epochs"
"""Column of epochs, which is made of that of updates."""

Columns = Mapping[str, Sequence[float | None]]
"""Figures by name, one for each evaluation; None where there was none."""


@dataclass(frozen=True)
class RunRecord:
    """A run as its results folder tells it.

    Attributes
    ----------
    name : str
        What the run is called in a report: the name of the folder, or what a sweep or a price calls it.
    path : Path
        The folder.
    summary : dict
        ``summary.json``.
    metrics : mapping of str to sequence of float or None
        ``metrics.jsonl`` by column, and `EPOCHS` where they are known.
    threshold : float, optional
        Probability at which figures of released histograms are asked for, in the place of the summary's.
    """

    name: str
    path: Path
    summary: Mapping[str, Any]
    metrics: Columns = field(repr=False)
    threshold: float | None = None

    @property
    def setting(self) -> str:
        """The name without its seed: runs that share it differ in their seed alone."""
        seed = self.summary.get("seed")
        return self.name.removesuffix(f"-seed{seed}").removesuffix(f", seed {seed}")

    @property
    def interrupted(self) -> bool:
        """Whether the run did not come to its end."""
        return self.summary.get("status") in ("running", "interrupted")

    @property
    def secret_schedule(self) -> bool:
        """Whether the guarantee holds only if the run's times, and numbers of messages and updates, are kept secret."""
        return bool(self.summary["privacy"].get("secret_schedule"))

    @cached_property
    def guarantee(self) -> Mapping[str, Any]:
        """The guarantee, as `Guarantee.as_dict` has it."""
        return dict(self.summary["privacy"]["guarantee"])

    @property
    def scores(self) -> Mapping[str, Any]:
        """Scores of the run's model with their intervals; empty where there are none."""
        return dict(self.summary.get("scores", {}))


def read_records(folders: Sequence[Path]) -> list[RunRecord]:
    """Return the runs of ``folders``, by names that tell them apart.

    Raises
    ------
    DataError
        If one is not the results folder of a run, or stands there twice.
    """
    resolved = [folder.resolve() for folder in folders]
    twice = [str(folder) for folder, real in zip(folders, resolved, strict=True) if resolved.count(real) > 1]
    if twice:
        raise DataError(f"{twice[0]} is there twice; give each results folder once")
    names = _names(resolved)
    return [read_record(folder, name) for folder, name in zip(folders, names, strict=True)]


def read_record(folder: Path, name: str | None = None) -> RunRecord:
    """Return the run of ``folder``.

    Raises
    ------
    DataError
        If it is not the results folder of a run.
    """
    summary = read_summary(folder)
    metrics = _columns(folder / "metrics.jsonl")
    if (each := updates_in_epoch(folder, summary)) is not None and "updates" in metrics:
        metrics[EPOCHS] = [None if made is None else made / each for made in metrics["updates"]]
    return RunRecord(name or folder.resolve().name, folder, summary, metrics)


def _names(folders: Sequence[Path]) -> list[str]:
    """The last part of each path, and as many parts before it as tell them apart."""
    for parts in range(1, max(len(folder.parts) for folder in folders) + 1):
        names = ["/".join(folder.parts[-parts:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def read_summary(folder: Path) -> dict[str, Any]:
    """``summary.json`` of a results folder.

    Raises
    ------
    DataError
        If the folder is not that of a run.
    """
    try:
        summary = json.loads(read_text(folder / SUMMARY, MOST_RECORDS))
        if not isinstance(summary["privacy"]["guarantee"], dict) or not isinstance(summary["algorithm"], str):
            raise TypeError
        if not isinstance(summary["privacy"].get("audits", {}), dict):
            raise TypeError
        _check_numbers(summary, _NUMBERS)
        _check_numbers(summary["privacy"]["guarantee"], _PROVED)
        _check_numbers(summary.get("metrics") or {}, ("test_accuracy", *SCORES))
        check(summary.get("scores", {}))
        if (released := summary.get("private_evaluation")) is not None:
            _check_released(released)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataError(
            f"{folder}: expected the results folder of a run, with a {SUMMARY}{elsewhere(folder, SUMMARY)}; give one "
            "that gossamer run wrote"
        ) from None
    return dict(summary)


_NUMBERS = ("nodes", "updates", "messages", "bytes", "virtual_seconds")
_PROVED = ("epsilon", "delta", "mu", "best_guess")
"""Figures of a summary and of its guarantee that a report writes as numbers."""
SCORES = {
    "mean_model_test_accuracy": "accuracy of the mean model",
    "test_constant_accuracy": "accuracy of the commonest class",
    **{f"test_{name}": label.words for name, label in LABELS.items() if name != "accuracy"},
}
"""Scores among the metrics of a summary, in words."""


def _check_numbers(found: Mapping[str, Any], names: Sequence[str]) -> None:
    if not all(isinstance(found.get(name), int | float | None) for name in names):
        raise TypeError


def _check_released(found: Mapping[str, Any]) -> None:
    """Raise as `read_summary` catches it unless these are figures that were released of held-out examples."""
    _check_numbers({"epsilon": found["epsilon"]}, ("epsilon",))
    if not isinstance(found.get("threshold", 0.5), int | float) or not isinstance(found.get("missing", []), list):
        raise TypeError
    for figures in (found["figures"], *found["parties"].values(), *found.get("groups", {}).values()):
        for one in figures.values():
            _check_numbers(one, ("value", "low", "high"))


def _columns(file: Path) -> dict[str, list[float | None]]:
    """Figures by name. A last line that is cut off is left out: the run was killed while it wrote."""
    try:
        lines = read_text(file, MOST_RECORDS).split("\n")
    except OSError:
        return {}  # nothing was evaluated
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line) if line else None
        except ValueError:
            if number == len(lines):
                break
            raise DataError(f"{file}:{number}: expected a JSON object, found {shortened(line)}; run it again") from None
        if isinstance(row, dict):
            rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [_number(row.get(name)) for row in rows] for name in names}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


# What each node did

NODES = "nodes.json"
"""File with what each node did."""
KINDS = ("computing", "away", "sending")
"""What a node does; what is none of it is waiting."""
PRIVATE = ("test_accuracy", "test_loss")
"""Figures of a node that no guarantee covers."""


class Span(NamedTuple):
    """Something that a node did, from ``start``, for so many ``seconds``, so many ``times``."""

    node: str
    kind: str
    start: float
    seconds: float
    times: int


@dataclass(frozen=True)
class NodeRecord:
    """Nodes of a run.

    Attributes
    ----------
    run : str
        Name of the run.
    seconds : float
        Virtual seconds that it took.
    total : int
        Number of nodes.
    nodes : sequence of mapping
        Figures of each node, by the names of ``nodes.json``; empty of very many.
    joined : int
        Number of pairs of nodes that were joined.
    edges : sequence of (int, int)
        These pairs, as places in ``nodes``; empty of very many.
    staleness : mapping
        ``measured``, ``width`` and ``counts``; empty where there is none.
    clips : sequence of mapping
        Clips at moments of the run.
    shown : sequence of str
        Nodes that there are spans of.
    spans : sequence of Span
        Spans of what they did.
    merged_within : float
        Seconds within which spans that began are one; 0 where each is itself.
    """

    run: str
    seconds: float
    total: int
    nodes: Sequence[Mapping[str, Any]] = field(repr=False)
    joined: int
    edges: Sequence[tuple[int, int]] = field(repr=False)
    staleness: Mapping[str, Any] = field(repr=False)
    clips: Sequence[Mapping[str, float]] = field(repr=False)
    shown: Sequence[str] = field(repr=False)
    spans: Sequence[Span] = field(repr=False)
    merged_within: float = 0.0

    def without(self, names: Sequence[str]) -> NodeRecord:
        """Return the same without some figures of nodes."""
        nodes = [{name: value for name, value in node.items() if name not in names} for node in self.nodes]
        return replace(self, nodes=nodes)

    def has(self, figure: str) -> bool:
        """Whether a figure is known of some node."""
        return any(figure in node for node in self.nodes)


def differs(nodes: Sequence[Mapping[str, Any]], figure: str) -> bool:
    """Whether a figure differs between nodes by more than can be seen."""
    return len({f"{node[figure]:.4g}" for node in nodes if figure in node}) > 1


def read_nodes(record: RunRecord) -> NodeRecord:
    """Return what the nodes of a run did.

    Raises
    ------
    DataError
        If the file is not what a run writes.
    """
    file = record.path / NODES
    with as_written(file, "what gossamer run writes of nodes", "run it again, or delete the file"):
        owners = {str(name): str(owner) for name, owner in record.summary.get("owners", {}).items()}
        return _parsed(record.name, json.loads(read_text(file, MOST_RECORDS)), owners)


def _parsed(run: str, found: Mapping[str, Any], owners: Mapping[str, str]) -> NodeRecord:
    timeline, staleness = found["timeline"], found["staleness"]
    shown = [_called(name, owners) for name in timeline["nodes"]]
    nodes = [_node(node, owners) for node in found["nodes"]]
    edges = [(int(one), int(other)) for one, other in found["edges"]]
    if any(not 0 <= end < len(nodes) for edge in edges for end in edge):
        raise IndexError
    return NodeRecord(
        run,
        _finite(found["virtual_seconds"]),
        int(found["totals"]["nodes"]),
        nodes,
        int(found["totals"]["edges"]),
        edges,
        {**staleness, "counts": [int(n) for n in staleness["counts"]], "width": int(staleness["width"])}
        if staleness
        else {},
        [{name: _finite(value) for name, value in clip.items()} for clip in found["clips"]],
        shown,
        [_span(shown, *span) for span in timeline["spans"]],
        _finite(timeline["merged_within"]),
    )


def _called(name: Any, owners: Mapping[str, str]) -> str:
    """Return the name of a node, with whose data it has where the spec says so."""
    return f"{name} ({owners[name]})" if name in owners else str(name)


def _node(found: Mapping[str, Any], owners: Mapping[str, str]) -> dict[str, Any]:
    figures = {name: _finite(value) for name, value in found.items() if name != "name"}
    return {"name": _called(found["name"], owners), **{name: figures[name] for name in _NEEDED}, **figures}


_NEEDED = ("updates", "messages", "bytes", "computing_seconds", "away_seconds", "idle_seconds")
"""Figures that every node has."""


def _span(shown: Sequence[str], place: int, kind: str, start: float, seconds: float, count: int) -> Span:
    if kind not in KINDS:
        raise ValueError(kind)
    return Span(shown[place], kind, _finite(start), _finite(seconds), int(count))


def _finite(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(value)
    return value
