"""Clients that come and go: when each node with data is away, by a trace of when it is there, or by day and night.

Whatever says who is there, it hides nobody: who takes part is for all to see, and nothing is amplified by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from gossamer.bounded import read_text
from gossamer.errors import DataError
from gossamer.randomness import stream
from gossamer.section import Section, bare

Span = tuple[float, float]
"""From, until; virtual seconds, infinite for ever."""


class DayAndNight(Section):
    """Each client is there for the same part of every day, and each has a morning of its own.

    Attributes
    ----------
    day : float
        Virtual seconds.
    there : float
        Share of the day that a client is there.
    spread : float
        Share of the day over which mornings are spread, drawn from the public seed; with 0 all come and go together.
    """

    name: Literal["day_and_night"] = "day_and_night"
    day: PositiveFloat = 86_400.0
    there: float = Field(default=0.5, gt=0, lt=1)
    spread: float = Field(default=1.0, ge=0, le=1)

    def away(self, nodes: int, seed: int) -> list[Iterator[Span]]:
        """Return when each node is away, in order and for ever."""
        mornings = self.spread * self.day * stream(seed, "availability").random(nodes)
        return [self._nights(float(morning)) for morning in mornings]

    def _nights(self, morning: float) -> Iterator[Span]:
        for number in count():
            end = morning + number * self.day
            start = max(0.0, end - (1 - self.there) * self.day)
            if end > start:
                yield start, end


class Trace(Section):
    """Clients are there when a file says so.

    Attributes
    ----------
    path : Path
        Lines ``node,from,to`` (node a number from 0; virtual seconds): the node is there from ``from`` until ``to``,
        or for ever if ``to`` is empty. Every node with data has a line.
    every : float, optional
        Seconds after which the trace begins again; without it a node is gone for good after its last line.
    """

    name: Literal["trace"] = "trace"
    path: Path
    every: PositiveFloat | None = None

    def away(self, nodes: int, seed: int) -> list[Iterator[Span]]:
        """Return when each node is away, in order.

        Raises
        ------
        DataError
            If the file is missing, a line is malformed, or a node has none or is there twice at once.
        """
        return [_gaps(spans, self.every) for spans in read_trace(self.path, nodes, self.every)]


def _gaps(spans: list[Span], every: float | None) -> Iterator[Span]:
    """Gaps between ``spans``, which begin again after so many seconds."""
    gone = 0.0
    whole = spans[0][0] == 0 and all(before == after for (_, before), (after, _) in pairwise(spans))
    if every is not None and whole and spans[-1][1] == every:
        return  # is never away, however often that is said
    for start in [0.0] if every is None else map(every.__mul__, count()):
        for came, left in spans:
            if start + came > gone:
                yield gone, start + came
            gone = start + left
    if gone < math.inf:
        yield gone, math.inf


def read_trace(path: Path, nodes: int, every: float | None = None) -> list[list[Span]]:
    """Times at which each node is there, in order, from a file of ``node,from,to`` lines.

    Raises
    ------
    DataError
        If the file is missing, a line is malformed, or a node has none or is there twice at once.
    """
    spans: list[list[Span]] = [[] for _ in range(nodes)]
    last = math.inf if every is None else every
    try:
        lines = read_text(path).splitlines()
    except OSError as error:
        raise DataError(f"{path}: cannot read the trace ({error.strerror}); check faults.availability.path") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            node, came, left = (part.strip() for part in line.split(","))
            spans[_number(node, nodes)].append(_span(came, left or repr(last), last))
        except ValueError:
            within = "" if every is None else f", and up to {every:g}"
            heading = number == 1 and not any(character.isdecimal() for character in line)
            remedy = "put # before a heading" if heading else "correct the line"
            raise DataError(
                f"{path}, line {number}: expected node,from,to with a node from 0 to {nodes - 1} and from < "
                f"to{within}, found {line!r}; {remedy}"
            ) from None
    for node_number, found in enumerate(spans):
        found.sort()
        if not found:
            raise DataError(f"{path}: node {node_number} has no line; say when it is there")
        for (_, before), (after, _) in pairwise(found):
            if after < before:
                raise DataError(f"{path}: node {node_number} is there twice at second {after:g}; join these lines")
    return spans


def _number(text: str, nodes: int) -> int:
    number = int(text)
    if not 0 <= number < nodes:
        raise ValueError
    return number


def _span(came: str, left: str, last: float) -> Span:
    start, end = float(came), float(left)
    if not 0 <= start < end <= last:  # also what is not a number
        raise ValueError
    return start, end


Availability = Annotated[Annotated[DayAndNight | Trace, Field(discriminator="name")], bare("name")]
