"""A simulation as those see it who look at it from outside, in one process or on several shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gossamer.protocol.node import Node
from gossamer.runtimes.activity import Activity
from gossamer.runtimes.computations import Counters
from gossamer.sides.answers import Computer


class Observed(Protocol):
    """A simulation; see `simulator.Simulator`."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """By name, in the order of their numbers."""
        ...

    @property
    def present(self) -> Mapping[str, Node]:
        """The nodes that are there, or will come back."""
        ...

    @property
    def computer(self) -> Computer:
        """The data sides."""
        ...

    @property
    def counters(self) -> Counters:
        """Counts so far."""
        ...

    @property
    def activity(self) -> Activity:
        """Activity of each node."""
        ...

    @property
    def finished(self) -> Mapping[str, str]:
        """Reasons for which nodes make no more updates, by name."""
        ...

    @property
    def gone(self) -> set[str]:
        """Nodes that will not come back."""
        ...

    @property
    def messages(self) -> int:
        """Messages transmitted so far."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes transmitted so far."""
        ...

    @property
    def start(self) -> float:
        """Seconds on the clock at which the run starts."""
        ...

    @property
    def now(self) -> float:
        """Seconds on the clock."""
        ...

    @property
    def elapsed(self) -> float:
        """Virtual seconds since the start."""
        ...

    def stop(self, reason: str) -> None:
        """Tell every node that the run ends here."""
        ...

    def close(self) -> None:
        """Let nothing happen any more."""
        ...
