"""Journal of a host, and the state that a snapshot in it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gossamer.protocol.encoding import Buffer, register
from gossamer.protocol.link import Link


class Journal(Protocol):
    """Store of inputs, in order.

    Of what was staged and not committed a crash keeps the first few, none, or all.
    """

    def append(self, entry: Sequence[Buffer]) -> None:
        """Stage an entry in pieces, for the next `commit`; what they are views of may change after that."""
        ...

    def snapshot(self, state: Sequence[Buffer]) -> None:
        """Stage a state in pieces, in the place of all entries so far."""
        ...

    def commit(self) -> None:
        """Make durable what was staged, in order; it is when this returns. If it raises, nothing may come of it."""
        ...

    def tidy(self) -> None:
        """Do what a commit would otherwise have to do some time."""
        ...

    def load(self) -> tuple[bytes | None, Iterable[bytes]]:
        """The newest snapshot that is durable, and the entries after it."""
        ...


@register("host.snapshot")
@dataclass
class HostState:
    """All that a host holds, as plain data.

    Attributes
    ----------
    node : dict
        As `protocol.node.state_of` gives it.
    links : dict of str to Link
        The session's.
    timers : dict of str to float
        When each rings.
    finished : str
        Why the node makes no more updates.
    begun : bool
        Whether it has begun.
    now : float
        Of the last input.
    """

    node: dict[str, Any]
    links: dict[str, Link]
    timers: dict[str, float] = field(default_factory=dict)
    finished: str = ""
    begun: bool = False
    now: float = 0.0
