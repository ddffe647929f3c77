"""``run``: from a spec to results."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from gossamer.algorithms.plan import Plan, differing
from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.memory import Data
from gossamer.errors import RunWarning
from gossamer.experiment.cards import card_of
from gossamer.experiment.diverging import divergence
from gossamer.experiment.driving import drive, few_collections
from gossamer.experiment.from_memory import FromMemory
from gossamer.experiment.noise_secret import KeptSecret, NoiseSecret, mark
from gossamer.experiment.observing import Evaluator, Measure, Row
from gossamer.experiment.personalising import personalised
from gossamer.experiment.planning import plan_run
from gossamer.experiment.plans import nodes_of, sides_of
from gossamer.experiment.prepare import Prepared, prepare
from gossamer.experiment.private_scale import scaled
from gossamer.experiment.reading import spec_of, write_spec
from gossamer.experiment.results import ResultsFolder
from gossamer.experiment.secrets import chosen_secret, secret_seed, test_mark
from gossamer.experiment.spec import Experiment
from gossamer.experiment.summarising import PrivacyReport, outcome
from gossamer.experiment.tracing import tracing
from gossamer.privacy.guarantees import Guarantee
from gossamer.protocol.trace import Step
from gossamer.runtimes.simulator import Simulator
from gossamer.trained.card import Card
from gossamer.trained.model import Model
from gossamer.trained.predictions import Predictions
from gossamer.version import __version__

if TYPE_CHECKING:
    from gossamer.objectives.models.given import Given

_RUN = "run"
"""The purpose of all that is no audit."""


class Progress(Protocol):
    """Is told how a run goes."""

    def planned(self, plan: Plan) -> None: ...
    def remarked(self, line: str) -> None: ...
    def updated(self, updates: int) -> None: ...
    def looked(self, row: Row) -> None: ...


class Silence:
    """Progress that nobody hears."""

    def planned(self, plan: Plan) -> None:
        pass

    def remarked(self, line: str) -> None:
        pass

    def updated(self, updates: int) -> None:
        pass

    def looked(self, row: Row) -> None:
        pass


@dataclass(frozen=True)
class Result:
    """What a run gave.

    Attributes
    ----------
    summary : dict
        As in ``summary.json``.
    guarantee : Guarantee
        What is proved about what leaked.
    metrics : list of dict
        A row an evaluation, as in ``metrics.jsonl``.
    model : Model
        The run's model: its arrays by name, as in ``model.safetensors``, and what it predicts.
    timing : dict
        Wall seconds, as in ``timing.json``.
    folder : Path or None
        Where the results were written.
    guarantees : mapping of str to Guarantee
        By observer, where they differ.
    secret : NoiseSecret or None
        What noise and samples came from, if nobody may guess them: ``run(experiment, secret=result.secret)`` is the
        same run again. It is not shown when the result is printed.
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


def run(
    experiment: Experiment | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    data: Data | None = None,
    module: Given | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    trace: str | Path | None = None,
    measure: Measure | None = None,
    secret: NoiseSecret | None = None,
) -> Result:
    """Run an experiment in the simulator, with noise that nobody can guess.

    Parameters
    ----------
    experiment : Experiment, mapping or path
        What to run: a spec as an object, as plain data, or a YAML file.
    out : path, optional
        Folder for the results; None writes nothing.
    data : Data, optional
        Examples from memory, in the place of the spec's ``dataset``.
    module : torch.nn.Module, or a class or function that makes one, optional
        The network, in the place of the spec's ``objective.module``. It is copied. A module starts from the parameters
        that it has, which must not come from the private data; what a class or a function makes starts from parameters
        drawn with the spec's seed, and is called with ``input_shape`` and ``classes`` as far as it takes them.
    overwrite : bool
        Whether ``out`` may hold the results of an earlier run, which are then replaced.
    progress : Progress, optional
        Is told how the run goes.
    trace : path, optional
        File for every event and effect, for `gossamer.protocol.trace.replay`.
    measure : callable, optional
        Called with what is run and the run's model [size] at each evaluation; the figures that it returns, by name, are
        added to the row of metrics.
    secret : NoiseSecret, optional
        That of an earlier run, to repeat it; by default a fresh one is drawn. The guarantee holds only of one that
        nobody else knows.

    Raises
    ------
    CallerError
        If the experiment cannot be run; nothing has been released.
    KeyboardInterrupt
        If interrupted; ``out`` then holds the results up to the last evaluation.
    """
    with threadpool_limits(1):  # sums in BLAS depend on the number of threads; results must not
        folder = ResultsFolder(Path(out), overwrite=overwrite) if out is not None else None
        started = time.perf_counter()
        prepared = prepare(spec_of(experiment), FromMemory(data, module))
        plan = plan_run(prepared)
        drawn = chosen_secret(prepared.experiment, secret)
        with tracing(trace, prepared) as watch:
            session = _Run(prepared, plan, folder, progress or Silence(), started, watch, measure=measure, secret=drawn)
            return session.go()


def run_prepared(
    prepared: Prepared,
    plan: Plan,
    folder: ResultsFolder | None = None,
    *,
    progress: Progress | None = None,
    watch: Callable[[Step], None] | None = None,
    blank: IndexArray | None = None,
    purpose: str,
    secret: NoiseSecret | None = None,
) -> Result:
    """Run what is prepared and planned already, such as an audit's examples in the place of the spec's own.

    Parameters
    ----------
    prepared, plan
        From `prepare` and `plan_run`.
    folder : ResultsFolder, optional
        Where the results go; None writes nothing.
    progress : Progress, optional
        Is told how the run goes.
    watch : callable, optional
        Sees every step of every node, as a trace has it.
    blank : ndarray of int64, optional
        Rows whose slots hold nothing: they count in the sizes of shards and are sampled, and have no gradient.
    purpose : str
        What decides gradients beside what is prepared; runs that differ in it share no noise.
    secret : NoiseSecret, optional
        As for `run`.
    """
    with threadpool_limits(1):
        started = time.perf_counter()
        drawn = chosen_secret(prepared.experiment, secret)
        run = _Run(prepared, plan, folder, progress or Silence(), started, watch, blank, purpose=purpose, secret=drawn)
        return run.go()


@dataclass
class _Run:
    """One run under way: the simulator, what was seen so far, and where it is written."""

    prepared: Prepared
    plan: Plan
    folder: ResultsFolder | None
    progress: Progress
    started: float
    watch: Callable[[Step], None] | None
    blank: IndexArray | None = None
    measure: Measure | None = None
    purpose: str = _RUN
    secret: NoiseSecret | None = None
    rows: list[Row] = field(default_factory=list)
    status: str = "running"
    personal: dict[str, Any] = field(default_factory=dict)
    diverged: dict[str, Any] = field(default_factory=dict)
    not_finite: int = 0

    def __post_init__(self) -> None:
        prepared, plan = self.prepared, self.plan
        nodes = nodes_of(prepared, plan)
        seed = secret_seed(prepared, plan.noise, self.purpose, self.secret)
        self.mark = mark(seed)
        self.scaled = scaled(prepared, plan, seed, self.blank)
        self.prepared = prepared = self.scaled.prepared
        self.sides = sides_of(prepared, plan, seed, self.blank, self.scaled.ledgers)
        self.simulator = Simulator(
            nodes, self.sides, prepared.world, watch=self.watch, record=self.record, count=prepared.count
        )
        self.evaluator = Evaluator(prepared, plan, self.simulator, self.spent, self.publish, self.measure)
        self.ready = time.perf_counter()

    def go(self) -> Result:
        self.progress.planned(self.plan)
        if (remark := self.prepared.objective.computing().remark) is not None:
            self.progress.remarked(remark)
        self.evaluator.rehearse()
        if self.folder is not None:
            self.folder.clear()
            self.folder.write("spec.yaml", write_spec(self.prepared.experiment))
            if self.secret is not None:
                tested = test_mark(self.prepared, self.secret)
                kept = KeptSecret(self.secret, self.mark, self.purpose.partition(" ")[0], tested=tested)
                kept.write(self.folder.path)
        try:
            if self.evaluator.on:
                self.evaluator.look(0.0)
            with few_collections():
                self.status = drive(self.simulator, self.plan.stop, self)
        except KeyboardInterrupt:
            self.status = "interrupted"
            self.save()
            raise
        if self.status != "finished":
            self.simulator.stop(self.status)
        if self.status == "stalled":
            warnings.warn(
                f"no node can make another update, from virtual second {self.simulator.elapsed:g} on or before, and "
                "the run ends here; look at faults and links, or give stop.virtual_seconds",
                RunWarning,
                stacklevel=2,
            )
        self.remark()
        ended = self.plan.stop.virtual_seconds if self.status == "virtual_seconds" else None
        self.evaluator.look(self.simulator.elapsed if ended is None else ended)
        if self.purpose == _RUN:  # what is audited is released, and personal models are not
            self.personal = personalised(self.prepared, self.simulator.present)
            self.diverged = divergence(self.prepared, self.rows, self.not_finite)
            if "ended_worse" in self.diverged and self.status != "accuracy":
                self.status = "diverged"
        self.save()
        return Result(
            self.summary(),
            self.plan.guarantee,
            self.rows,
            Model(self.card, self.prepared.objective, self.model),
            self.timing(),
            self.folder.path if self.folder is not None else None,
            differing(self.plan.guarantees),
            self.secret,
        )

    def remark(self) -> None:
        """Say what the algorithm has to say of how the run ended."""
        if "diverged" in self.simulator.finished.values():
            self.status = "diverged"
        for line in self.prepared.algorithm.remarks(self.simulator.nodes):
            warnings.warn(line, RunWarning, stacklevel=3)

    # The observer of `drive`

    @property
    def timed(self) -> bool:
        return self.evaluator.timed

    def before(self, upcoming: float) -> None:
        self.evaluator.before(upcoming)

    def after(self) -> None:
        self.progress.updated(self.simulator.counters.updates)
        self.evaluator.after()

    @property
    def satisfied(self) -> bool:
        return self.evaluator.satisfied

    def spent(self) -> float | None:
        return self.plan.spent(self.sides.ledgers)

    # What is written

    def publish(self, row: Row) -> None:
        self.rows.append(row)
        if self.folder is not None:
            self.folder.append("metrics.jsonl", row)
        self.save()
        self.progress.looked(row)

    def record(self, seconds: float, node: str, name: str, value: float) -> None:
        self.not_finite += int(value) if name == "gradients_not_finite" else 0
        if self.folder is not None:
            line = {"virtual_seconds": seconds, "node": node, "name": name, "value": value}
            self.folder.append("private.jsonl", line)

    def save(self) -> None:
        if self.folder is None:
            return
        self.folder.write_lines("ledger.jsonl", (line for ledger in self.sides.ledgers for line in ledger.lines()))
        self.folder.write_model(self.model, self.card)
        self.folder.write_json("summary.json", self.summary())
        self.folder.write_json("timing.json", self.timing())

    @cached_property
    def card(self) -> Card:
        return card_of(self.prepared)

    @property
    def model(self) -> FloatArray:
        return np.asarray(self.prepared.algorithm.output(self.simulator.present).values)

    def summary(self) -> dict[str, Any]:
        last = dict(self.rows[-1]) if self.rows else {}
        return {
            "gossamer": __version__,
            **outcome(self.prepared, self.simulator, self.status, last, self.evaluator.fit),
            **self.diverged,
            **({"private_ranges": dict(self.scaled.ranges)} if self.scaled.ranges else {}),
            **({"personalisation": self.personal} if self.personal else {}),
            "privacy": self.privacy.describe(self.sides.releases),
        }

    @cached_property
    def privacy(self) -> PrivacyReport:
        return PrivacyReport(self.prepared, self.plan)

    def timing(self) -> dict[str, Any]:
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
