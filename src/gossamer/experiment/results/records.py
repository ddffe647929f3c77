"""Records of a run under way, the files that they are written to, and the result at its end."""

from __future__ import annotations

import math
import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.plan import Plan, differing
from gossamer.arrays import FloatArray, IndexArray
from gossamer.errors import counted
from gossamer.experiment.preparation.held_out import HeldOutRelease
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.preparation.secrets import NoiseSecret
from gossamer.experiment.results.observer import Row
from gossamer.experiment.results.results_folder import ResultsFolder
from gossamer.experiment.results.summary import PrivacyReport, card_of, outcome, scores_of
from gossamer.notebooks import Rows, card
from gossamer.objectives.released_scores import FILE as HISTOGRAMS
from gossamer.objectives.score_words import LABELS, Assessment, said_first
from gossamer.privacy.clipping import FixedClip, NoClip, bound_of
from gossamer.privacy.guarantees import Guarantee, rounded_up
from gossamer.protocol.node import Node
from gossamer.protocol.snapshots import Kept
from gossamer.runtimes.simulator import Simulator
from gossamer.sides.ledger import MOST_NAMED
from gossamer.sides.pool import Pool
from gossamer.sides.receipts import FILE as RECEIPTS
from gossamer.sides.receipts import Book
from gossamer.trained.card import Card
from gossamer.trained.model import Model, Predictions
from gossamer.version import __version__

# Records of what each node did, as ``nodes.json`` has them: counts by node, staleness, clips, edges and a timeline.
#
# They are written when a run ends, and are bounded: of more than `MOST_NAMED` nodes only totals, and the counts of each
# are arrays in ``nodes.npz``; of more than `MOST_EDGES` edges only their number.

FILE, ARRAYS = "nodes.json", "nodes.npz"
MOST_EDGES = 5_000
_MOST_CLIPS = 500  # moments at which clips are written down; of more, every second one is kept


@dataclass
class NodeRecords(Kept):
    """Records of the nodes of a run.

    Attributes
    ----------
    prepared, plan
        Run, as it was prepared and planned.
    simulator : Simulator
        Simulator in which it happens.
    clips : list of dict
        The least, median and largest clip at the moments that the run was looked at, where clips move.
    """

    prepared: Prepared
    plan: Plan
    simulator: Simulator
    changing = ("clips", "_looks", "_every")
    clips: list[dict[str, float]] = field(default_factory=list)
    _looks: int = 0
    _every: int = 1

    def looked(self, row: Row) -> None:
        """Write down the clips of this moment."""
        if not self._moving:
            return
        self._looks += 1
        bounds = [bound for node in self.simulator.present.values() if (bound := _clip(node)) is not None]
        if bounds and (self._looks - 1) % self._every == 0:
            values = {"least": min(bounds), "median": float(np.median(bounds)), "most": max(bounds)}
            self.clips.append({"virtual_seconds": row["virtual_seconds"], "updates": row["updates"], **values})
        if len(self.clips) > _MOST_CLIPS:
            self.clips, self._every = self.clips[::2], 2 * self._every

    def write(self, folder: ResultsFolder, scores: Mapping[str, Mapping[str, float]]) -> None:
        """Write all records at the end of the run, with ``scores`` of nodes' models by name."""
        simulator = self.simulator
        activity = simulator.activity
        activity.close(simulator.now)
        count = len(self.prepared.cast.parents) + len(self._joining)
        columns = self._columns()
        few = len(simulator.nodes) <= MOST_NAMED
        found = {
            "virtual_seconds": simulator.elapsed,
            "totals": {"nodes": len(simulator.nodes), "edges": count, **_totals(columns)},
            "staleness": activity.staleness(),
            "clips": self.clips,
            "edges": list(self._edges()) if few and count <= MOST_EDGES else [],
            "timeline": activity.timeline.as_dict(),
            "nodes": list(self._rows(columns, scores)) if few else [],
        }
        folder.write_json(FILE, found, indent=None)
        if not few:
            folder.write_arrays(ARRAYS, {"name": np.array([*simulator.nodes]), **columns})

    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        """Figures of nodes, [nodes] each, by name; no number where a node has none."""
        plan, simulator = self.plan, self.simulator
        found = simulator.activity.table(simulator.elapsed)
        found["neighbours"] = np.array([self._neighbours[name] for name in simulator.nodes])
        held = [name in plan.epsilons for name in simulator.nodes]
        releases = [simulator.computer.releases(name) for name in plan.epsilons]
        epsilons = np.array([*plan.epsilons.values()])
        found["releases"], found["epsilon_planned"] = np.zeros(len(held), np.int64), np.full(len(held), np.nan)
        found["releases"][held] = releases
        found["epsilon_planned"][held] = np.where(np.isinf(epsilons), np.nan, epsilons)
        return found

    def _rows(
        self, columns: Mapping[str, npt.NDArray[Any]], scores: Mapping[str, Mapping[str, float]]
    ) -> Iterator[dict[str, Any]]:
        """Yield a row for each node, without figures that it does not have."""
        held = self.plan.epsilons
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        for (name, node), own in zip(self.simulator.nodes.items(), values, strict=True):
            found = dict(zip(columns, own, strict=True))
            more = {key: found.pop(key) for key in ("releases", "epsilon_planned")}
            found |= {"clip": _clip(node) if self._moving else None, **scores.get(name, {})}
            found |= more if name in held else {}
            yield {"name": name} | {key: value for key, value in found.items() if value is not None and value == value}

    @cached_property
    def _neighbours(self) -> Counter[str]:
        """Number of neighbours of each node, those above and below it included."""
        cast = self.prepared.cast
        degrees = np.bincount(self._joining.ravel(), minlength=len(cast.joined)).tolist()
        found = Counter(dict(zip(cast.joined, degrees, strict=True)))
        found.update([*cast.parents.keys(), *cast.parents.values()])
        return found

    @cached_property
    def _joining(self) -> IndexArray:
        """The graph's edges [edges, 2]; none where all go through the nodes above them, whatever the graph."""
        cast = self.prepared.cast
        return self.prepared.graph.edges[: 0 if cast.parents.keys() & set(cast.joined) else None]

    @cached_property
    def _moving(self) -> bool:
        """Whether clips move."""
        return not isinstance(self.prepared.clipping.policy, FixedClip | NoClip)

    def _edges(self) -> Iterator[tuple[int, int]]:
        """Yield the edges, between numbers of nodes."""
        cast, numbers = self.prepared.cast, {name: number for number, name in enumerate(self.simulator.nodes)}
        for one, other in self._joining.tolist():
            yield numbers[cast.joined[one]], numbers[cast.joined[other]]
        for name, parent in cast.parents.items():
            yield numbers[name], numbers[parent]


def _totals(columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, float]:
    """Sums over all nodes."""
    sums = {name: columns[name].sum().item() for name in columns if name not in _NOT_SUMMED}
    return {name: round(value, 6) for name, value in sums.items()}


_NOT_SUMMED = ("staleness", "neighbours", "epsilon_planned")


def _clip(node: Node) -> float | None:
    """The clip of a node that keeps one, by its logarithm, which was released."""
    log_clip = getattr(node.state, "log_clip", None)
    return None if log_clip is None else round(bound_of(log_clip), 12)


# The result of a run.


@dataclass(frozen=True)
class Result:
    """Figures, guarantee and model of a run.

    Attributes
    ----------
    summary : dict
        Content of ``summary.json``.
    guarantee : Guarantee
        Guarantee of what leaked.
    metrics : list of dict
        A row an evaluation, as in ``metrics.jsonl``.
    model : Model
        The run's model: its arrays by name, as in ``model.safetensors``, and what it predicts.
    timing : dict
        Wall seconds, as in ``timing.json``.
    folder : Path or None
        Folder that the results were written to.
    guarantees : mapping of str to Guarantee
        Guarantees by observer, where they differ.
    secret : NoiseSecret or None
        Secret that noise and samples came from, if nobody may guess them: ``run(experiment, secret=result.secret)`` is
        the same run again. It is not shown when the result is printed.
    """

    summary: dict[str, Any]
    guarantee: Guarantee
    metrics: list[Row]
    model: Model
    timing: dict[str, Any]
    folder: Path | None = None
    guarantees: Mapping[str, Guarantee] = field(default_factory=dict)
    secret: NoiseSecret | None = field(default=None, repr=False)

    def predict(self, rows: Any) -> Predictions:
        """Predict for raw rows, with the run's model; see `Model.predict`."""
        return self.model.predict(rows)

    def frame(self) -> dict[str, list[Any]]:
        """Return the metrics by column, one value for each evaluation, as ``pandas.DataFrame`` and others take them."""
        names = dict.fromkeys(name for row in self.metrics for name in row)
        return {name: [row.get(name) for row in self.metrics] for name in names}

    def plot(self, *names: str, across: str = "virtual_seconds") -> Any:
        """Draw figures of the run over time.

        Parameters
        ----------
        names : str
            Columns of `frame`; by default accuracies and losses.
        across : str
            Axis that they are drawn over: ``virtual_seconds``, ``updates``, ``messages`` or ``bytes``.

        Returns
        -------
        altair.VConcatChart
            Shown by notebooks, and saved by its method ``save``.

        Raises
        ------
        DataError
            If Altair is not installed, which the extra ``report`` installs, or there is no such figure.
        """
        from gossamer.report.curves import chart

        return chart(self.frame(), names, across)

    def __repr__(self) -> str:
        """The result in ten lines at most."""
        guarantee = self.guarantee
        proved = f"epsilon {rounded_up(guarantee.epsilon)} at delta {guarantee.delta:g}, of each {guarantee.unit}"
        rows = {**self._rows(), "guarantee": proved if math.isfinite(guarantee.epsilon) else "none"}
        width = max(map(len, rows))
        return "\n".join([self._title, *(f"  {name:{width}}  {words}" for name, words in rows.items())])

    def _repr_html_(self) -> str:
        """The result as notebooks show it."""
        others = [one._repr_html_() for one in self.guarantees.values() if one != self.guarantee]
        return card(self._title, self._rows(), [self.guarantee._repr_html_(), *others])

    @property
    def _title(self) -> str:
        return f"{self.summary['algorithm']}, {counted(self.summary['nodes'], 'node')}"

    def _rows(self) -> Rows:
        summary, last = self.summary, self.metrics[-1] if self.metrics else {}
        return {
            **dict(zip(("note",), (f"{line} (private)" for line in said_first(summary.get("scores", {}))))),
            "ended": f"{summary['status']}, after {summary['virtual_seconds']:g} virtual seconds",
            "made": f"{summary['updates']:,} updates; {summary['messages']:,} messages, {summary['bytes']:,} bytes",
            **{words: f"{last[name]:.4g} (private)" for name, words in _SHOWN.items() if last.get(name) is not None},
            **({} if self.folder is None else {"results": str(self.folder)}),
        }


_SHOWN = {
    "test_auroc": LABELS["auroc"].words,
    "mean_model_test_accuracy": "test accuracy",
    "test_constant_accuracy": "accuracy of the commonest class",
    "mean_model_test_loss": "test loss",
}
"""Figures of the last evaluation that are shown of a result."""


_PRIVATE = "private.jsonl"


@dataclass
class PrivateRecords(Kept):
    """Lines that nodes write down for themselves, in `private.jsonl`; where nothing is written, only a count of some.

    Attributes
    ----------
    folder : ResultsFolder or None
        Folder that they are written to.
    not_finite : int
        Gradients that were not finite, so far.
    """

    changing = ("not_finite", "_length")
    folder: ResultsFolder | None
    not_finite: int = 0
    _length: int = 0  # what was written when the records were kept

    def add(self, seconds: float, node: str, name: str, value: float) -> None:
        """Write down a ``value`` that a node records at a moment of virtual time."""
        self.not_finite += int(value) if name == "gradients_not_finite" else 0
        if self.folder is not None:
            line = {"virtual_seconds": seconds, "node": node, "name": name, "value": value}
            self.folder.append(_PRIVATE, line)

    def before_snapshot(self) -> None:
        self._length = 0 if self.folder is None else self.folder.length(_PRIVATE)

    def after_restore(self) -> None:
        """Go on after what was written then; later lines are cut off."""
        if self.folder is not None:
            self.folder.cut(_PRIVATE, self._length)


@dataclass
class ReceiptRecords(Kept):
    """The chain of receipts in a results folder, as part of a checkpoint.

    Attributes
    ----------
    folder : ResultsFolder
        Folder that they are written to.
    book : Book
        Book in which they are noted.
    """

    changing = ("book", "_length")
    folder: ResultsFolder
    book: Book
    _length: int = 0

    def before_snapshot(self) -> None:
        """Write what was noted; the clock decides when, so what is noted late waits for a look of the run's own."""
        self.folder.add_receipts(self.book, late=False)
        self._length = self.folder.length(RECEIPTS)

    def after_restore(self) -> None:
        """Go on after what was written then; later lines are cut off."""
        self.folder.cut(RECEIPTS, self._length)


@dataclass
class RunRecords(Kept):
    """Records of a run, which are valid at every moment of it.

    Attributes
    ----------
    prepared, plan
        Run, as it was prepared and planned.
    simulator : Simulator
        Simulator in which it happens.
    sides : Pool
        Data sides, whose ledgers are written.
    folder : ResultsFolder or None
        Folder that they are written to.
    ready : float
        Moment on the machine's clock at which all was prepared.
    ranges : mapping of str to float
        Ranges of columns that were found privately.
    rows : list of dict
        A row an evaluation.
    scores : mapping
        Scores of the run's model with their intervals, once the run is over; see `assess`.
    status : str
        State of the run, or why it ended.
    personal, diverged, shortfall : dict
        Figures of personal models, of a run that diverged, and of one that did not come to the end of its plan; empty
        where there are none.
    book : Book or None
        Receipts; None where nothing is written.
    held_out : HeldOutRelease or None
        Release of parties' held-out examples, once it is made.
    """

    changing = ("rows",)
    prepared: Prepared
    plan: Plan
    simulator: Simulator
    sides: Pool
    folder: ResultsFolder | None
    ready: float
    ranges: Mapping[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    scores: Assessment = field(default_factory=dict)
    status: str = "running"
    personal: dict[str, Any] = field(default_factory=dict)
    diverged: dict[str, Any] = field(default_factory=dict)
    shortfall: dict[str, Any] = field(default_factory=dict)
    book: Book | None = None
    held_out: HeldOutRelease | None = None

    def add(self, row: Row) -> None:
        """Write down a row of metrics, and what the run is by now."""
        self.rows.append(row)
        if self.folder is not None:
            self.folder.append("metrics.jsonl", row)
        self.save()

    def assess(self, areas: Sequence[float]) -> None:
        """Score the run's model on the test examples, with intervals; ``areas`` under ROC curves are of nodes' own."""
        found = scores_of(self.prepared, self.model)
        own = {"nodes": {"auroc": float(np.mean(areas)), "worst_auroc": min(areas)}} if areas else {}
        self.scores = {**found, **own} if found else {}

    def after_restore(self) -> None:
        """Go on after these rows; later ones are cut off."""
        if self.folder is not None:
            self.folder.set_back(self.rows)

    def save(self) -> None:
        """Replace the files that say what the run is by now."""
        if self.folder is None:
            return
        released = self.held_out
        self.folder.write_lines("ledger.jsonl", [*self.sides.lines(), *(released.lines if released else [])])
        if released is not None:
            self.folder.write_json(HISTOGRAMS, released.scores.document(), indent=None)
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
            **outcome(self.prepared, self.simulator, self.status, last),
            **({"scores": self.scores} if self.scores else {}),
            **self.diverged,
            **({"shortfall": self.shortfall} if self.shortfall else {}),
            **({"private_ranges": dict(self.ranges)} if self.ranges else {}),
            **({"personalisation": self.personal} if self.personal else {}),
            **({"private_evaluation": self.held_out.scores.summary()} if self.held_out else {}),
            "privacy": self._privacy.describe(self.sides.releases),
        }

    @cached_property
    def _privacy(self) -> PrivacyReport:
        return PrivacyReport(self.prepared, self.plan)

    def timing(self) -> dict[str, Any]:
        """Return what `timing.json` says: the only figures that differ between two runs of one seed and secret."""
        now, counters = time.perf_counter(), self.simulator.counters
        return {
            "preparation_seconds": round(self.ready - self.prepared.began, 3),
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
