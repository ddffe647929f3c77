"""A timeline of some nodes that never grows: spans that began close to each other become one when there are too many.

A span is kept with its start and its seconds. Once there are more than `SPANS`, those of one node and kind that began
in the same *step* of time are one: it starts where the first of them did and has the seconds of all, so that no second
is lost or counted twice, and no span reaches beyond the last that it was made of. Steps double until there are few
enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

NODES, SPANS = 50, 2_000
"""Most nodes of a timeline, and most spans."""
COMPUTING, AWAY, SENDING = "computing", "away", "sending"
"""Kinds of spans: what is none of them is waiting. Sending takes no seconds: it is a moment."""
_FINEST = 2.0**-20  # seconds: spans that begin closer to each other than this are one from the start


class Timeline:
    """Spans of some nodes of a run.

    Parameters
    ----------
    names : sequence of str
        All nodes; of more than `NODES` as many are chosen, evenly in their order, the first and the last among them.

    Attributes
    ----------
    step : float
        Seconds within which spans that begin are one.
    places : mapping of str to int
        Place of each chosen node among them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        chosen = np.unique(np.linspace(0, len(names) - 1, min(NODES, len(names))).round().astype(np.int64))
        self.places = {names[number]: place for place, number in enumerate(chosen.tolist())}
        self.step = _FINEST
        self._spans: dict[tuple[int, str, int], list[float]] = {}

    def add(self, place: int, kind: str, start: float, seconds: float = 0.0, count: int = 1) -> None:
        """Add what the node at a place did, from ``start``, ``count`` times one after the other."""
        key = place, kind, int(start / self.step)
        span = self._spans.get(key)
        if span is not None:
            if start < span[0]:
                span[0] = start
            span[1] += seconds
            span[2] += count
            return
        self._spans[key] = [start, seconds, count]
        while len(self._spans) > SPANS:
            self._coarser()

    def _coarser(self) -> None:
        spans, self._spans = self._spans, {}
        self.step *= 2
        for (number, kind, place), span in spans.items():
            kept = self._spans.setdefault((number, kind, place // 2), span)
            if kept is not span:
                kept[0] = min(kept[0], span[0])
                kept[1] += span[1]
                kept[2] += span[2]

    def snapshot(self) -> tuple[Any, ...]:
        """Return all that changes, as plain data."""
        return self.step, {key: list(span) for key, span in self._spans.items()}

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        """Be as the timeline was whose `snapshot` this is."""
        self.step, self._spans = snapshot

    def as_dict(self) -> dict[str, Any]:
        """Return the timeline as plain data, ordered by node, kind and time."""
        return {
            "nodes": [*self.places],
            "merged_within": self.step if self.step > _FINEST else 0.0,
            "spans": [
                [number, kind, round(start, 9), round(seconds, 9), int(count)]
                for (number, kind, _), (start, seconds, count) in sorted(self._spans.items())
            ],
        }
