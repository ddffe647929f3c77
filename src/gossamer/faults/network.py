"""Faulty links: what becomes of each frame.

A `Faults` is a schedule written out frame by frame, so a property test can generate it and shrink a failure to the
shortest schedule that shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.protocol.frames import Chunk, Data, Frame, frame_size


@dataclass(frozen=True)
class Partition:
    """From ``start`` until ``end`` (seconds), no frame gets from ``group`` to the others or back."""

    start: float
    end: float
    group: frozenset[str]

    def __str__(self) -> str:
        return f"from {self.start:g} s to {self.end:g} s: {', '.join(sorted(self.group))} cut off from the others"

    def cuts(self, sender: str, to: str, now: float) -> bool:
        """Whether a frame put on the link at ``now`` is lost."""
        return self.start <= now < self.end and (sender in self.group) != (to in self.group)


@dataclass(frozen=True)
class Sieve:
    """From ``start`` until ``end`` (seconds), a broker passes some frames and loses others.

    Attributes
    ----------
    start, end : float
        When; without an end, infinite.
    loses : {"messages", "acknowledgements"} or int
        Frames that it loses; a number of bytes for all that are longer.
    sender : str, optional
        Whose frames; by default everybody's.
    """

    start: float
    end: float
    loses: str | int
    sender: str | None = None

    def __str__(self) -> str:
        what = self.loses if isinstance(self.loses, str) else f"frames of more than {self.loses} bytes"
        return f"from {self.start:g} s to {self.end:g} s: {what} of {self.sender or 'everybody'} lost, all else arrives"

    def stops(self, sender: str, frame: Frame, now: float) -> bool:
        """Whether a frame put on the link at ``now`` is lost."""
        if not self.start <= now < self.end or self.sender not in (None, sender):
            return False
        if isinstance(self.loses, int):
            return frame_size(frame) > self.loses
        return isinstance(frame, Data | Chunk) == (self.loses == "messages")


@dataclass(frozen=True)
class Faults:
    """Fates of the frames of a run, in the order in which they are transmitted.

    Attributes
    ----------
    fates : tuple of tuples of float
        Entry i lists the delays, in seconds, after which the copies of frame i arrive: none for a loss, two for
        a duplicate. Different delays reorder frames.
    partitions : tuple of Partition
        Who cannot reach whom, and when.
    delay : float
        Seconds that every frame after the last of ``fates`` takes.
    """

    fates: tuple[tuple[float, ...], ...] = ()
    partitions: tuple[Partition, ...] = ()
    delay: float = 0.1

    def delays(self, index: int, sender: str, to: str, now: float) -> tuple[float, ...]:
        """Seconds from ``now``, when frame ``index`` is put on the link, until each of its copies arrives."""
        if any(partition.cuts(sender, to, now) for partition in self.partitions):
            return ()
        return self.fates[index] if index < len(self.fates) else (self.delay,)
