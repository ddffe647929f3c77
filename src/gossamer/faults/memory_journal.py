"""A journal in memory, for tests of crashes in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gossamer.protocol.encoding import Buffer


@dataclass
class MemoryJournal:
    """A journal that outlives its host: what was committed is there, and of what was staged what `crash` keeps."""

    base: bytes | None = None
    entries: list[bytes] = field(default_factory=list)
    staged: list[tuple[bool, bytes]] = field(default_factory=list)  # whether it is a snapshot, and what
    reaper: Callable[[str], None] = lambda doing: None

    def append(self, entry: Sequence[Buffer]) -> None:
        self.reaper("staging an input")
        self.staged.append((False, b"".join(entry)))

    def snapshot(self, state: Sequence[Buffer]) -> None:
        self.reaper("staging a snapshot")
        self.staged.append((True, b"".join(state)))

    def commit(self) -> None:
        self.reaper("committing")
        self.crash(len(self.staged))

    def tidy(self) -> None:
        pass

    def crash(self, keep: int = 0) -> None:
        """End here: of what was staged, the first ``keep`` had reached the disk."""
        for snapshot, data in self.staged[:keep]:
            if snapshot:
                self.base, self.entries = data, []
            else:
                self.entries.append(data)
        self.staged = []

    def load(self) -> tuple[bytes | None, Sequence[bytes]]:
        return self.base, tuple(self.entries)

    def copy(self) -> MemoryJournal:
        """Copy what is durable, to go its own way."""
        return MemoryJournal(self.base, self.entries.copy())
