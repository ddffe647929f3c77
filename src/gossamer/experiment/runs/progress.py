"""Progress of a run, for whoever wants to hear of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gossamer.algorithms.plan import Plan
from gossamer.experiment.preparation.prepared import Prepared
from gossamer.experiment.results.observing import Row

if TYPE_CHECKING:
    from gossamer.runtimes.shards import Observed


class Party(NamedTuple):
    """Progress of one that holds data.

    Attributes
    ----------
    name : str
        Name of the node.
    made, planned : int
        Releases so far, and at most.
    ended : str
        Reason why it makes no more; empty while it may.
    """

    name: str
    made: int
    planned: int
    ended: str

    @property
    def share(self) -> float:
        """Share of its plan that is made: 0 to 1."""
        return min(1.0, self.made / self.planned) if self.planned else 1.0


@dataclass(frozen=True)
class Watched:
    """A run under way.

    Attributes
    ----------
    prepared, plan
        Run, as it was prepared and planned.
    simulator : Observed
        Simulator in which it happens.
    """

    prepared: Prepared
    plan: Plan
    simulator: Observed

    @property
    def share(self) -> float:
        """Share of the run that is over, by what is made or by virtual time: 0 to 1."""
        stop = self.plan.stop
        shares = [self.simulator.counters.updates / self.plan.updates if self.plan.updates else 0.0]
        if stop.virtual_seconds:
            shares.append(self.simulator.elapsed / stop.virtual_seconds)
        return min(1.0, max(shares))

    @cached_property
    def _planned(self) -> dict[str, int]:
        return {name: self.plan.releases[name] for name in self.prepared.names}

    def parties(self) -> Sequence[Party]:
        """All that hold data, in order."""
        made, finished, gone = self.simulator.computer.releases, self.simulator.finished, self.simulator.gone
        return [
            Party(name, made(name), planned, finished.get(name, "gone" if name in gone else ""))
            for name, planned in self._planned.items()
        ]

    def staleness(self) -> float | None:
        """Mean staleness of what was mixed in so far; None where the algorithm knows of none."""
        found = self.prepared.algorithm.figures.report(self.simulator.nodes).get("staleness_mean")
        return None if found is None else float(found)


class Progress(Protocol):
    """Is told how a run goes."""

    def planned(self, plan: Plan) -> None: ...
    def began(self, run: Watched) -> None: ...
    def remarked(self, line: str) -> None: ...
    def updated(self, updates: int) -> None: ...
    def looked(self, row: Row) -> None: ...


class NullProgress:
    """Progress that nobody hears."""

    def planned(self, plan: Plan) -> None:
        pass

    def began(self, run: Watched) -> None:
        pass

    def remarked(self, line: str) -> None:
        pass

    def updated(self, updates: int) -> None:
        pass

    def looked(self, row: Row) -> None:
        pass


class Several:
    """Progress that several hear, in turn."""

    def __init__(self, hearers: Sequence[Progress]) -> None:
        self._hearers = hearers

    def planned(self, plan: Plan) -> None:
        for one in self._hearers:
            one.planned(plan)

    def began(self, run: Watched) -> None:
        for one in self._hearers:
            one.began(run)

    def remarked(self, line: str) -> None:
        for one in self._hearers:
            one.remarked(line)

    def updated(self, updates: int) -> None:
        for one in self._hearers:
            one.updated(updates)

    def looked(self, row: Row) -> None:
        for one in self._hearers:
            one.looked(row)
