"""Progress of a run, for whoever wants to hear of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gossamer.algorithms.plan import Plan
from gossamer.experiment.observing import Row
from gossamer.experiment.watching import Watched


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
