"""Records of what each node did, read back from ``nodes.json`` of a results folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gossamer.bounded import MOST_RECORDS, read_text
from gossamer.errors import DataError
from gossamer.report.records import RunRecord

FILE = "nodes.json"
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
    edges : sequence of (int, int)
        Pairs of nodes that were joined, as places in ``nodes``; empty of very many.
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
    edges: Sequence[tuple[int, int]] = field(repr=False)
    staleness: Mapping[str, Any] = field(repr=False)
    clips: Sequence[Mapping[str, float]] = field(repr=False)
    shown: Sequence[str] = field(repr=False)
    spans: Sequence[Span] = field(repr=False)
    merged_within: float = 0.0

    def without(self, names: Sequence[str]) -> NodeRecord:
        """Return the same without some figures of nodes."""
        nodes = [{name: value for name, value in node.items() if name not in names} for node in self.nodes]
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return NodeRecord(**{**fields, "nodes": nodes})

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
    file = record.path / FILE
    try:
        owners = {str(name): str(owner) for name, owner in record.summary.get("owners", {}).items()}
        return _parsed(record.name, json.loads(read_text(file, MOST_RECORDS)), owners)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise DataError(
            f"{file}: expected what gossamer run writes of nodes, found something else; run it again, or delete the "
            "file"
        ) from None


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
