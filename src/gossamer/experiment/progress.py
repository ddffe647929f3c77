"""Progress of a run, for whoever wants to hear of it."""

from __future__ import annotations

from typing import Protocol

from gossamer.algorithms.plan import Plan
from gossamer.experiment.observing import Row


class Progress(Protocol):
    """Is told how a run goes."""

    def planned(self, plan: Plan) -> None: ...
    def remarked(self, line: str) -> None: ...
    def updated(self, updates: int) -> None: ...
    def looked(self, row: Row) -> None: ...


class NullProgress:
    """Progress that nobody hears."""

    def planned(self, plan: Plan) -> None:
        pass

    def remarked(self, line: str) -> None:
        pass

    def updated(self, updates: int) -> None:
        pass

    def looked(self, row: Row) -> None:
        pass
