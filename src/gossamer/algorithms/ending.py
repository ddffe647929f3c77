"""A node that ends once, for a reason, such as a deadline."""

from __future__ import annotations

from gossamer.protocol.effects import Finish, SetTimer
from gossamer.protocol.node import Effects, Node


class EndingNode(Node):
    """A node whose state says why it has ``finished``, and of one with a ``deadline`` when it ``ends``."""

    deadline: float | None = None
    """Seconds from the start to the end, on the node's clock."""

    def set_deadline(self, now: float) -> Effects:
        """Have the timer ``deadline`` ring, from the start on."""
        if self.deadline is not None:
            self.state.ends = now + self.deadline
            yield SetTimer(self.deadline, "deadline")

    def reset_deadline(self, now: float) -> Effects:
        """Set the timer again after an absence, when all timers are gone."""
        if self.state.ends is not None and not self.state.finished:
            yield SetTimer(max(self.state.ends - now, 0.0), "deadline")

    def finish(self, reason: str) -> Effects:
        """No more updates."""
        if not self.state.finished:
            self.state.finished = reason
            yield Finish(reason)
