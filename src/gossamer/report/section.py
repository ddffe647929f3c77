"""A section of a report: a heading, and what stands below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gossamer.report.figure import Figure


@dataclass(frozen=True)
class Section:
    """A part of the page, under a heading.

    Attributes
    ----------
    name : str
        Of its place in the page: letters, digits and hyphens.
    title : str
        Its heading.
    figures : sequence of Figure
        What it draws. The template draws each by ``{{ figure(one) }}``.
    template : str
        File of this room that is filled in below the heading; it sees ``section`` and ``records``.
    values : mapping
        What else the template says, as ``section.values``. All of it is escaped.
    """

    name: str
    title: str
    figures: Sequence[Figure] = ()
    template: str = "figures.html"
    values: Mapping[str, Any] = field(default_factory=dict)
