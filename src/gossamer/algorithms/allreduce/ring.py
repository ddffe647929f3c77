"""Ring all-reduce as a value: the average of the members' vectors in 2 (m - 1) messages each.

Each vector is cut into m chunks. In the first m - 1 steps (reduce-scatter) a member adds the chunk it receives to its
own and passes the sum on, so that each ends up with one finished chunk; in the last m - 1 (all-gather) finished chunks
go round. In every step the member at ``position`` sends chunk ``position - step`` and receives the one before it.

References
----------
Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from gossamer.protocol.encoding import register
from gossamer.vectors import Model, concatenate


@register("ring.reduction")
@dataclass(frozen=True)
class Reduction:
    """One member's side of an all-reduce under way.

    Attributes
    ----------
    position : int
        The member's place in the ring, 0 <= position < members.
    step : int
        Chunks received so far, up to 2 (members - 1).
    parts : tuple of vectors
        The chunks: own values, partial sums, or finished sums.
    """

    position: int
    step: int
    parts: tuple[Model, ...]

    @property
    def members(self) -> int:
        return len(self.parts)

    @property
    def done(self) -> bool:
        return self.step == 2 * (self.members - 1)

    @property
    def outgoing(self) -> Model:
        """Part that goes to the next member in this step."""
        return self.parts[(self.position - self.step) % self.members]

    @property
    def _incoming(self) -> int:
        return (self.position - self.step - 1) % self.members

    @property
    def incoming_size(self) -> int:
        """Number of coordinates of the chunk that is due from the member before."""
        return self.parts[self._incoming].size

    def take(self, part: Model) -> Reduction:
        """The reduction after receiving ``part`` from the member before."""
        index = self._incoming
        value = self.parts[index] + part if self.step < self.members - 1 else part
        parts = (*self.parts[:index], value, *self.parts[index + 1 :])
        return replace(self, step=self.step + 1, parts=parts)

    @property
    def average(self) -> Model:
        """The mean of all members' vectors; the same bits at every member."""
        mean: Model = concatenate(self.parts) / self.members
        return mean


def begin(vector: Model, position: int, members: int) -> Reduction:
    """Cut ``vector`` into ``members`` chunks whose sizes differ by at most one; some may be empty."""
    bounds = [vector.size * i // members for i in range(members + 1)]
    parts = tuple(vector[start:stop] for start, stop in pairwise(bounds))
    return Reduction(position, 0, parts)
