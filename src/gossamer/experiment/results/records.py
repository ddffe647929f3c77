"""Records of a run under way: figures so far, how it goes, and the files that they are written to."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer.algorithms.plan import Plan, differing
from gossamer.arrays import FloatArray
from gossamer.experiment.preparation.prepared import Prepared
from gossamer.experiment.preparation.secrets import NoiseSecret
from gossamer.experiment.results.observing import Fit, Row
from gossamer.experiment.results.result import Result
from gossamer.experiment.results.results_folder import ResultsFolder
from gossamer.experiment.results.summarising import PrivacyReport, card_of, outcome
from gossamer.sides.pool import Pool
from gossamer.sides.receipts import FILE as RECEIPTS
from gossamer.sides.receipts import Book
from gossamer.trained.card import Card
from gossamer.trained.model import Model
from gossamer.version import __version__

if TYPE_CHECKING:
    from gossamer.runtimes.shards import Observed

_PRIVATE = "private.jsonl"


@dataclass
class PrivateRecords:
    """Lines that nodes write down for themselves, in `private.jsonl`; where nothing is written, only a count of some.

    Attributes
    ----------
    folder : ResultsFolder or None
        Folder that they are written to.
    not_finite : int
        Gradients that were not finite, so far.
    """

    folder: ResultsFolder | None
    not_finite: int = 0

    def add(self, seconds: float, node: str, name: str, value: float) -> None:
        """Write down a ``value`` that a node records at a moment of virtual time."""
        self.not_finite += int(value) if name == "gradients_not_finite" else 0
        if self.folder is not None:
            line = {"virtual_seconds": seconds, "node": node, "name": name, "value": value}
            self.folder.append(_PRIVATE, line)

    def snapshot(self) -> tuple[int, int]:
        """Return the count, and how many bytes were written."""
        return self.not_finite, 0 if self.folder is None else self.folder.length(_PRIVATE)

    def restore(self, snapshot: tuple[int, int]) -> None:
        """Go on from where these records were when this was their `snapshot`; later lines are cut off."""
        self.not_finite, length = snapshot
        if self.folder is not None:
            self.folder.cut(_PRIVATE, length)


@dataclass
class ReceiptRecords:
    """The chain of receipts in a results folder, as part of a checkpoint.

    Attributes
    ----------
    folder : ResultsFolder
        Folder that they are written to.
    book : Book
        Book in which they are noted.
    """

    folder: ResultsFolder
    book: Book

    def snapshot(self) -> tuple[Any, int]:
        """Return how the chain goes on, and how many bytes were written; what was not is written now."""
        self.folder.add_receipts(self.book)
        return self.book.snapshot(), self.folder.length(RECEIPTS)

    def restore(self, snapshot: tuple[Any, int]) -> None:
        """Go on from where the chain was when this was its `snapshot`; later lines are cut off."""
        state, length = snapshot
        self.book.restore(state)
        self.folder.cut(RECEIPTS, length)


@dataclass
class RunRecords:
    """Records of a run, which are valid at every moment of it.

    Attributes
    ----------
    prepared, plan
        Run, as it was prepared and planned.
    simulator : Observed
        Simulator in which it happens.
    sides : Pool
        Data sides, whose ledgers are written.
    folder : ResultsFolder or None
        Folder that they are written to.
    started, ready : float
        Seconds on the clock of the machine: when the run was asked for, and when all was prepared.
    ranges : mapping of str to float
        Ranges of columns that were found privately.
    rows : list of dict
        A row an evaluation.
    fit : dict
        Further figures of a regression, of the moment of the last row.
    status : str
        State of the run, or why it ended.
    personal, diverged, shortfall : dict
        Figures of personal models, of a run that diverged, and of one that did not come to the end of its plan; empty
        where there are none.
    book : Book or None
        Receipts; None where nothing is written.
    """

    prepared: Prepared
    plan: Plan
    simulator: Observed
    sides: Pool
    folder: ResultsFolder | None
    started: float
    ready: float
    ranges: Mapping[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    fit: Fit = field(default_factory=dict)
    status: str = "running"
    personal: dict[str, Any] = field(default_factory=dict)
    diverged: dict[str, Any] = field(default_factory=dict)
    shortfall: dict[str, Any] = field(default_factory=dict)
    book: Book | None = None

    def add(self, row: Row, fit: Fit) -> None:
        """Write down a row of metrics, how well a regression fits at that moment, and what the run is by now."""
        self.rows.append(row)
        self.fit = fit
        if self.folder is not None:
            self.folder.add_metrics(self.rows)
        self.save()

    def snapshot(self) -> tuple[Any, ...]:
        """Return the rows, and the fit of the last."""
        return list(map(dict, self.rows)), dict(self.fit)

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        """Go on from where these records were when this was their `snapshot`; later rows are cut off."""
        rows, self.fit = snapshot
        self.rows[:] = rows
        if self.folder is not None:
            self.folder.set_back(self.rows)

    def save(self) -> None:
        """Replace the files that say what the run is by now."""
        if self.folder is None:
            return
        self.folder.write_lines("ledger.jsonl", (line for ledger in self.sides.ledgers for line in ledger.lines()))
        if self.book is not None:
            self.folder.add_receipts(self.book)
        self.folder.write_model(self.model, self.card)
        self.folder.write_json("summary.json", self.summary())
        self.folder.write_json("timing.json", self.timing())

    @cached_property
    def card(self) -> Card:
        """The card of the run's model."""
        return card_of(self.prepared)

    @property
    def model(self) -> FloatArray:
        """The run's model as it is now: ndarray [size]."""
        return np.asarray(self.prepared.algorithm.output(self.simulator.present).values)

    def summary(self) -> dict[str, Any]:
        """Return what `summary.json` says."""
        last = dict(self.rows[-1]) if self.rows else {}
        return {
            "gossamer": __version__,
            **outcome(self.prepared, self.simulator, self.status, last, self.fit),
            **self.diverged,
            **({"shortfall": self.shortfall} if self.shortfall else {}),
            **({"private_ranges": dict(self.ranges)} if self.ranges else {}),
            **({"personalisation": self.personal} if self.personal else {}),
            "privacy": self._privacy.describe(self.sides.releases),
        }

    @cached_property
    def _privacy(self) -> PrivacyReport:
        return PrivacyReport(self.prepared, self.plan)

    def timing(self) -> dict[str, Any]:
        """Return what `timing.json` says: the only figures that differ between two runs of one seed and secret."""
        now, counters = time.perf_counter(), self.simulator.counters
        return {
            "preparation_seconds": round(self.ready - self.started, 3),
            "run_seconds": round(now - self.ready, 3),
            "events": counters.events,
            "compute_calls": counters.calls,
            "mean_width": round(counters.computed / counters.calls, 2) if counters.calls else 0.0,
            **self.prepared.objective.computing().figures(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        }

    def result(self, secret: NoiseSecret | None) -> Result:
        """Return the run as it is now as a value; ``secret`` is what its noise came from."""
        return Result(
            self.summary(),
            self.plan.guarantee,
            self.rows,
            Model(self.card, self.prepared.objective, self.model),
            self.timing(),
            self.folder.path if self.folder is not None else None,
            differing(self.plan.guarantees),
            secret,
        )
