"""A node whose learning rate follows a schedule, by its own updates or by those of all nodes."""

from __future__ import annotations

from typing import Any

from gossamer.algorithms.context import Context, updates_per_epoch
from gossamer.algorithms.ending import EndingNode
from gossamer.algorithms.learning_rate import EpochRate
from gossamer.protocol.events import Counted
from gossamer.protocol.node import Effects, on


class ScheduledNode(EndingNode):
    """A node whose state counts its own ``updates`` and, once it was told, those of all nodes (``counted``)."""

    def follow(self, rate: EpochRate, context: Context) -> None:
        """Take a schedule."""
        self._rate, self._epoch = rate, updates_per_epoch(context, self.name, by_all=rate.by_all)

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        s = self.state
        updates = (s.counted or 0) if self._rate.by_all else s.updates
        return self._rate.at(updates / self._epoch)

    @on(Counted)
    def count(self, event: Counted, now: float) -> Effects:
        """Remember how many updates came before the one that is about to be made."""
        self.state.counted = event.updates
        yield from ()


def goes_by_all(settings: Any) -> bool:
    """Whether the learning rate of some settings goes by the updates of all nodes."""
    rate: EpochRate = settings.learning_rate
    return rate.by_all
