"""The world that the nodes of a simulation live in: speeds, links, faults, and when its clock starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gossamer.errors import SpecError
from gossamer.randomness import stream
from gossamer.runtimes.links import FaultSettings, LinkSettings
from gossamer.runtimes.speeds import Speeds, SpeedSettings


@dataclass(frozen=True)
class World:
    """World that the nodes live in; the same settings and seed give the same schedule.

    Attributes
    ----------
    speeds, links, faults
        Sections of a spec.
    seed : int
        Of the clock's offset, speeds and links.
    width : int
        Most computations gathered into one call; 1 computes each on its own.
    servers : tuple of str
        Nodes that hold no data: they are there from the start, and have no speed.
    units : mapping of str to str
        The unit of each node that is in one, such as a server and its agents.
    told : bool
        Whether nodes are told, before each answer of a data side, how many updates all of them have made.
    """

    speeds: SpeedSettings = field(default_factory=SpeedSettings)
    links: LinkSettings = field(default_factory=LinkSettings)
    faults: FaultSettings = field(default_factory=FaultSettings)
    seed: int = 0
    width: int = 1024
    servers: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    told: bool = False


def clock_start(seed: int) -> float:
    """Seconds on the clock at which a run starts."""
    return float(stream(seed, "clock").integers(1 << 14, 1 << 15))


def check_world(
    speeds: SpeedSettings,
    faults: FaultSettings,
    nodes: int,
    seed: int,
    links: LinkSettings | None = None,
    *,
    servers: int = 0,
) -> None:
    """Raise unless a simulation of so many nodes with data, and servers after them, can be built from these sections.

    Raises
    ------
    CallerError
        If update times or a trace are missing, or a node that does not exist is named.
    """
    Speeds(speeds, nodes, seed)
    if faults.availability is not None:
        faults.availability.away(nodes, seed)
    named = [("faults.absences", absence.node) for absence in faults.absences]
    links = links or LinkSettings()
    named += [("links.partitions", number) for cut in links.partitions for number in cut.group]
    named += [("links.exceptions", number) for one in links.exceptions or () for number in one.numbers]
    for key, number in named:
        if number >= nodes + servers:
            raise SpecError(f"{key}: a node is a number below {nodes + servers}, found {number}")
