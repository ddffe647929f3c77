"""Records of what each node did, as ``nodes.json`` has them: counts by node, staleness, clips, edges and a timeline.

They are written when a run ends, and are bounded: of more than `MOST_NODES` nodes only totals, of more than
`MOST_EDGES` edges only their number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer.algorithms.plan import Plan
from gossamer.arrays import IndexArray
from gossamer.experiment.preparation.prepared import Prepared
from gossamer.experiment.results.observing import Row
from gossamer.privacy.clipping import FixedClip, NoClip, bound_of
from gossamer.protocol.node import Node
from gossamer.runtimes.activity import Done

if TYPE_CHECKING:
    from gossamer.runtimes.shards import Observed

FILE = "nodes.json"
MOST_NODES, MOST_EDGES = 10_000, 5_000
_MOST_CLIPS = 500  # moments at which clips are written down; of more, every second one is kept


@dataclass
class NodeRecords:
    """Records of the nodes of a run.

    Attributes
    ----------
    prepared, plan
        Run, as it was prepared and planned.
    simulator : Observed
        Simulator in which it happens.
    clips : list of dict
        The least, median and largest clip at the moments that the run was looked at, where clips move.
    """

    prepared: Prepared
    plan: Plan
    simulator: Observed
    clips: list[dict[str, float]] = field(default_factory=list)
    _looks: int = 0
    _every: int = 1

    def looked(self, row: Row) -> None:
        """Write down the clips of this moment."""
        if not self._moving:
            return
        self._looks += 1
        bounds = [bound for node in self.simulator.present.values() if (bound := _clip(node)) is not None]
        if bounds and (self._looks - 1) % self._every == 0:
            values = {"least": min(bounds), "median": float(np.median(bounds)), "most": max(bounds)}
            self.clips.append({"virtual_seconds": row["virtual_seconds"], "updates": row["updates"], **values})
        if len(self.clips) > _MOST_CLIPS:
            self.clips, self._every = self.clips[::2], 2 * self._every

    def snapshot(self) -> tuple[Any, ...]:
        """Return the clips that were written down, and how many looks there were."""
        return list(self.clips), self._looks, self._every

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        """Be as the records were whose `snapshot` this is."""
        self.clips, self._looks, self._every = snapshot

    def as_dict(self, scores: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
        """Return all records as plain data, with ``scores`` of nodes' models by name, at the end of the run."""
        simulator = self.simulator
        activity = simulator.activity
        activity.close(simulator.now)
        count = len(self.prepared.cast.parents) + len(self._joining)
        few = len(simulator.nodes) <= MOST_NODES
        return {
            "virtual_seconds": simulator.elapsed,
            "totals": {"nodes": len(simulator.nodes), "edges": count, **self._totals()},
            "staleness": activity.staleness(),
            "clips": self.clips,
            "edges": list(self._edges()) if few and count <= MOST_EDGES else [],
            "timeline": activity.timeline.as_dict(),
            "nodes": [self._row(name, scores.get(name, {})) for name in simulator.nodes] if few else [],
        }

    def _totals(self) -> dict[str, float]:
        """Sums over all nodes."""
        activity, elapsed = self.simulator.activity, self.simulator.elapsed
        found = dict.fromkeys(_SUMMED, 0.0)
        for name in self.simulator.nodes:
            for key, value in zip(_SUMMED, activity.of(name, elapsed)[:6], strict=True):
                found[key] += value
        releases = sum(self.simulator.computer.releases(name) for name in self.plan.epsilons)
        counts = {key: round(value, 6) if key.endswith("seconds") else int(value) for key, value in found.items()}
        return {**counts, "releases": releases}

    def _row(self, name: str, scores: Mapping[str, float]) -> dict[str, Any]:
        """Row of one node, without figures that it does not have."""
        node, plan, simulator = self.simulator.nodes[name], self.plan, self.simulator
        found = {
            "name": name,
            **simulator.activity.of(name, simulator.elapsed)._asdict(),
            "neighbours": self._neighbours[name],
            "clip": _clip(node) if self._moving else None,
            **scores,
        }
        if name in plan.epsilons:
            epsilon = plan.epsilons[name]
            found["releases"] = simulator.computer.releases(name)
            found["epsilon_planned"] = epsilon if math.isfinite(epsilon) else None
        return {key: value for key, value in found.items() if value is not None}

    @cached_property
    def _neighbours(self) -> Counter[str]:
        """Number of neighbours of each node, those above and below it included."""
        cast = self.prepared.cast
        degrees = np.bincount(self._joining.ravel(), minlength=len(cast.joined)).tolist()
        found = Counter(dict(zip(cast.joined, degrees, strict=True)))
        found.update([*cast.parents.keys(), *cast.parents.values()])
        return found

    @cached_property
    def _joining(self) -> IndexArray:
        """The graph's edges [edges, 2]; none where all go through the nodes above them, whatever the graph."""
        cast = self.prepared.cast
        return self.prepared.graph.edges[: 0 if cast.parents.keys() & set(cast.joined) else None]

    @cached_property
    def _moving(self) -> bool:
        """Whether clips move."""
        return not isinstance(self.prepared.clipping.policy, FixedClip | NoClip)

    def _edges(self) -> Iterator[tuple[int, int]]:
        """Yield the edges, between numbers of nodes."""
        cast, numbers = self.prepared.cast, {name: number for number, name in enumerate(self.simulator.nodes)}
        for one, other in self._joining.tolist():
            yield numbers[cast.joined[one]], numbers[cast.joined[other]]
        for name, parent in cast.parents.items():
            yield numbers[name], numbers[parent]


_SUMMED = Done._fields[:6]
"""Counts of a node that make a sum."""


def _clip(node: Node) -> float | None:
    """The clip of a node that keeps one, by its logarithm, which was released."""
    log_clip = getattr(node.state, "log_clip", None)
    return None if log_clip is None else round(bound_of(log_clip), 12)
