"""Running: from a spec to results. A run is what it is made of, how it begins or goes on, and how it ends."""

from __future__ import annotations

import hashlib
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from gossamer.algorithms.plan import Plan
from gossamer.errors import RunWarning
from gossamer.experiment.preparation.ending import INCOMPLETE, NO_KEEPER, STALLED, Keeper, drive, ending, in_words
from gossamer.experiment.preparation.engines import check_number, chosen, maker_of, population_of, reason_against
from gossamer.experiment.preparation.held_out import HeldOutRelease, held_out_plans, release_held_out
from gossamer.experiment.preparation.memory import check_memory
from gossamer.experiment.preparation.planning import device_in_words, plan_run
from gossamer.experiment.preparation.prepare import RUN, FromMemory, Prepared, Sources, nodes_of, prepare, sides_of
from gossamer.experiment.preparation.private_scale import Scaled, rescaled, scaled
from gossamer.experiment.preparation.secrets import (
    KeptSecret,
    NoiseSecret,
    chosen_secret,
    mark,
    samples_seed,
    secret_seed,
    test_mark,
)
from gossamer.experiment.results.observer import Evaluator, Measure, Row
from gossamer.experiment.results.personalisation import personalised
from gossamer.experiment.results.records import NodeRecords, PrivateRecords, ReceiptRecords, Result, RunRecords
from gossamer.experiment.results.results_folder import ResultsFolder, results_folder
from gossamer.experiment.results.summary import divergence
from gossamer.experiment.runs.checkpoints import (
    EVERY,
    Checkpoint,
    Checkpoints,
    Origin,
    check_interval,
    go_on,
    spec_digest,
)
from gossamer.experiment.runs.trackers import Listeners, RunProgress, TraceFile, Watched, listening, trackers_of
from gossamer.experiment.specs.spec import Experiment, placeless
from gossamer.experiment.specs.spec_file import spec_of, write_spec
from gossamer.files import to_csv
from gossamer.objectives.objective import Objective
from gossamer.protocol.snapshots import Kept
from gossamer.runtimes.ray_shards import RayShards
from gossamer.runtimes.simulator import Simulator
from gossamer.sides.receipts import FILE as RECEIPTS
from gossamer.sides.receipts import Book
from gossamer.version import __version__

if TYPE_CHECKING:
    from gossamer.objectives.models import Given


def sources_of(prepared: Prepared, plan: Plan, secret: NoiseSecret | None = None, purpose: str = RUN) -> Sources:
    """Sources that follow from all that decides a run, and from a fresh secret unless one is given."""
    secret = chosen_secret(prepared.experiment, secret)
    noise = secret_seed(prepared, plan.noise, purpose, secret)
    return Sources(noise, samples_seed(prepared.experiment, purpose), secret=secret, purpose=purpose)


@dataclass
class Run:
    """A run of what is prepared and planned already, such as an audit's examples in the place of the spec's own.

    It leaves the number of threads to the caller: sums in BLAS depend on it, and results must not.

    Attributes
    ----------
    prepared, plan
        Run, from `prepare` and `plan_run`.
    sources : Sources
        Sources of noise and samples, such as those of `sources_of`.
    folder : ResultsFolder or None
        Folder for the results; None writes nothing.
    listeners : Listeners
        Those who are told how the run goes.
    checkpoint, engine
        Parameters of `run`; by default there are no checkpoints.
    resumed : Checkpoint or None
        Checkpoint that the run goes on from, in the same ``folder``.
    simulated : bool
        Whether the simulator makes the run, whatever its spec says, as it made the one that is repeated.
    """

    prepared: Prepared
    plan: Plan
    sources: Sources
    folder: ResultsFolder | None = None
    listeners: Listeners = field(default_factory=Listeners)
    checkpoint: float | None = None
    resumed: Checkpoint | None = None
    engine: RayShards | None = None
    simulated: bool = False

    def __post_init__(self) -> None:
        sources, listeners = self.sources, self.listeners
        self.mark = mark(sources.noise)
        # Of the examples as they were read, which is what a repeat compares: a private scale is found anew by it.
        self.tested = "" if self.folder is None or sources.secret is None else test_mark(self.prepared, sources.secret)
        if self.resumed is not None:
            self.resumed.check_run(self.mark, listeners.watch is not None, listeners.measure is not None)
        timed = not self.plan.hides_schedule
        plans = {**self.plan.sides, **held_out_plans(self.prepared, self.plan)}
        self.book = None if self.folder is None else Book(plans, self._name(), timed=timed)
        sources = replace(sources, book=self.book)
        found = self._scaled(sources)
        self.ranges, self.prepared = found.ranges, found.prepared
        self.private = PrivateRecords(self.folder)
        sources = replace(sources, ledgers=found.ledgers)
        self._make(sources)
        if self.book is not None:
            self.book.clock = lambda: self.simulator.elapsed
        self._observe()

    def _scaled(self, sources: Sources) -> Scaled:
        """Find a private scale, or take that which was found before, if the run goes on."""
        ranges = None if self.resumed is None else self.resumed.origin.ranges
        if ranges is not None:
            return Scaled(rescaled(self.prepared, ranges), ranges)
        return scaled(self.prepared, self.plan, sources) if self.prepared.scaled_privately else Scaled(self.prepared)

    def _observe(self) -> None:
        """Make all that looks at the simulation, and list what has a state."""
        prepared, plan, simulator, sides = self.prepared, self.plan, self.simulator, self.sides
        self.node_records = NodeRecords(prepared, plan, simulator)
        ready, listeners = time.perf_counter(), self.listeners
        self.records = RunRecords(prepared, plan, simulator, sides, self.folder, ready, self.ranges)
        self.records.book = self.book
        records, told = self.records, (self.node_records, listeners.progress, listeners.tracking)

        def publish(row: Row) -> None:  # those who are told know nothing of the evaluator: a run is no circle
            records.add(row)
            for one in told:
                one.looked(row)

        spent = lambda: plan.spent(sides.ledgers)  # noqa: E731
        updated, measure = listeners.progress.updated, listeners.measure
        self.evaluator = Evaluator(prepared, plan, simulator, spent, publish, updated, measure)
        self.parts: dict[str, Kept] = {
            "private": self.private,
            "records": self.records,
            "nodes": self.node_records,
            "evaluator": self.evaluator,
            **({"receipts": ReceiptRecords(self.folder, self.book)} if self.folder and self.book else {}),
            "simulator": simulator,
            **({"trace": listeners.watch} if isinstance(listeners.watch, TraceFile) else {}),
        }

    def _make(self, sources: Sources) -> None:
        """Make the simulation and the data sides."""
        compiled, self.engine_line = False, ""
        if self.resumed is not None:
            compiled = self.resumed.origin.compiled  # which the state is of
        elif not self.simulated:
            watched, sharded = self.listeners.watch is not None, self.engine is not None
            compiled, self.engine_line = chosen(self.prepared, self.plan, sources, watched, sharded)
        check_memory(self.prepared, compiled)
        self.simulator: Simulator
        self.sides: Any
        self.compiled = compiled
        if compiled:
            self._spread(sources, "the compiled loop began it")
            self.simulator = population_of(self.prepared, self.plan, sources, self.private.add)
            self.sides = self.simulator.computer
        else:
            nodes, prepared = nodes_of(self.prepared, self.plan), self.prepared
            self.sides = sides_of(prepared, self.plan, sources)
            self._spread(sources)
            self.simulator = Simulator(
                nodes,
                self.sides,
                prepared.world,
                watch=self.listeners.watch,
                record=self.private.add,
                count=prepared.count,
                staleness=prepared.algorithm.figures.staleness,
            )

    def _spread(self, sources: Sources, why: str | None = None) -> None:
        """Have shards compute what data sides are asked, if there are some and nothing, such as ``why``, is against."""
        if self.engine is None:
            return
        check_number(self.engine.shards, len(self.prepared.names))
        if (why := why or reason_against(self.prepared)) is None:
            self.engine.start(maker_of(self.prepared, self.sides), (sources.noise, sources.samples))
            self.sides.spread = self.engine.compute
        else:
            self.engine = None
            warnings.warn(f"this run is made in one process: {why}", RunWarning, stacklevel=6)

    def _name(self) -> str:
        """A text that tells the run from others, also of the same spec, and nothing of its secret or its place."""
        return hashlib.sha256(f"{write_spec(placeless(self.prepared.experiment))}{self.mark}".encode()).hexdigest()

    def go(self) -> Result:
        """Make the run, or what is left of it."""
        with nullcontext() if self.engine is None else closing(self.engine), closing(self.simulator):
            self.begin()
            try:
                if self.evaluator.on and (self.resumed is None or not self.resumed.begun):
                    self.evaluator.look(0.0)
                with self.keeper.heard():
                    self.records.status = drive(self.simulator, self.plan.stop, self.evaluator, self.keeper)
            except KeyboardInterrupt:
                self.records.status = "interrupted"
                self.save()
                raise
            self.end()
            return self.records.result(self.sources.secret)

    def begin(self) -> None:
        """Tell what is run, and write down all that is fixed by now, or go on from the checkpoint, if there is one."""
        progress, secret = self.listeners.progress, self.sources.secret
        progress.planned(self.plan)
        if (remark := self.prepared.objective.computing().remark) is not None:
            progress.remarked(remark)
        if (device := device_in_words(self.prepared)) is not None:
            progress.remarked(f"device: {device}")
        if self.engine_line:
            progress.remarked(self.engine_line)
        self.prepared.objective.tried()
        self.evaluator.rehearse()
        if self.resumed is not None:
            go_on(self.resumed, self.parts)
            if not self.resumed.begun and self.folder is not None:
                self.folder.cut(RECEIPTS, 0)  # what was charged before is charged anew
        if self.folder is not None and self.resumed is None:
            self.folder.clear()
            self.folder.write("spec.yaml", write_spec(self.prepared.experiment))
            if secret is not None:
                purpose = self.sources.purpose.partition(" ")[0]
                KeptSecret.of(secret, self.mark, purpose, tested=self.tested, name=self._name()).write(self.folder.path)
        if self.folder is not None:
            self.folder.write_guarantees(self.plan.guarantees.values(), self.plan.describe(), self._name())
        self.keeper = self._keeper()
        if self.resumed is None:
            self.keeper.begin()
        progress.began(Watched(self.prepared, self.plan, self.simulator))

    def _keeper(self) -> Keeper:
        if self.folder is None:
            return NO_KEEPER
        path, listeners = self.folder.path, self.listeners
        traced, measured = listeners.watch is not None, listeners.measure is not None
        origin = Origin(__version__, spec_digest(path), self.mark, traced, measured, dict(self.ranges), self.compiled)
        return Checkpoints(path, origin, self.parts, math.inf if self.checkpoint is None else self.checkpoint)

    def end(self) -> None:
        """Stop the nodes, evaluate for the last time, and write down what became of the run."""
        records = self.records
        parents = self.prepared.cast.parents
        records.status, records.shortfall = ending(self.simulator, self.prepared.names, parents, records.status)
        if records.status not in ("finished", INCOMPLETE):
            self.simulator.stop(records.status)
        self.remark()
        ended = self.plan.stop.virtual_seconds if records.status == "virtual_seconds" else None
        self.evaluator.look(self.simulator.elapsed if ended is None else ended)
        if self.sources.purpose == RUN:  # what is audited is released, and personal models are not
            records.assess(self.evaluator.areas())
            if self.prepared.experiment.evaluation.release is not None:
                records.held_out = self._release()
            records.personal = personalised(self.prepared, self.simulator.present)
            records.diverged = divergence(self.prepared, records.rows, self.private.not_finite)
            if "ended_worse" in records.diverged and records.status not in ("accuracy", STALLED, INCOMPLETE):
                records.status = "diverged"
        self.save()

    def _release(self) -> HeldOutRelease:
        """Have parties release what is said of their held-out examples; receipts are written before noise is drawn."""
        folder, book = self.folder, self.book
        note = partial(folder.add_receipts, book) if folder is not None and book is not None else lambda: None
        model = self.prepared.algorithm.output(self.simulator.present)
        return release_held_out(self.prepared, self.plan, model, replace(self.sources, book=book), note)

    def save(self) -> None:
        """Write down what the run came to, and what each node did."""
        self.records.save()
        if self.folder is not None and self.book is not None:
            self.folder.end_receipts(self.book)
            self.folder.write("metrics.csv", to_csv(self.records.rows))
            self.node_records.write(self.folder, self.evaluator.scores)
            if self.records.status != "interrupted":
                self.folder.forget_checkpoint()

    def remark(self) -> None:
        """Warn of a run that could not go on, and of what the algorithm has to say of its end."""
        settings, status = self.prepared.experiment.algorithm, self.records.status
        if found := self.records.shortfall:
            warnings.warn(in_words(found, status, self.simulator.elapsed, settings), RunWarning, stacklevel=4)
        if "diverged" in self.simulator.finished.values():
            self.records.status = "diverged"
        for line in self.prepared.algorithm.figures.remarks(self.simulator.nodes):
            warnings.warn(line, RunWarning, stacklevel=4)


def run(
    experiment: Experiment | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    data: Any = None,
    module: Given | Objective | None = None,
    overwrite: bool = False,
    progress: RunProgress | None = None,
    trace: str | Path | None = None,
    measure: Measure | None = None,
    secret: NoiseSecret | None = None,
    track: str | Sequence[str] = (),
    checkpoint: float | None = EVERY,
    engine: RayShards | None = None,
) -> Result:
    """Run an experiment in the simulator, with noise that nobody can guess.

    Parameters
    ----------
    experiment : Experiment, mapping or path
        Spec to run: an object, plain data, or a YAML file.
    out : path, optional
        Folder for the results; None writes nothing.
    data : Data, or Dataset or DataLoader of PyTorch, optional
        Examples from memory, in the place of the spec's ``dataset``; see `Data.read`.
    module : torch.nn.Module, or a class or function that makes one, optional
        The network, in the place of the spec's ``objective.module``. It is copied. A module starts from the parameters
        that it has, which must not come from the private data; what a class or a function makes starts from parameters
        drawn with the spec's seed, and is called with ``input_shape`` and ``classes`` as far as it takes them.
    overwrite : bool
        Whether ``out`` may hold the results of an earlier run, which are then replaced.
    progress : RunProgress, optional
        Is told how the run goes; by default a bar is drawn where somebody sees it, in a terminal or a notebook.
    trace : path, optional
        File for every event and effect, for `gossamer.protocol.trace.replay`.
    measure : callable, optional
        Called with what is run and the run's model [size] at each evaluation; the figures that it returns, by name, are
        added to the row of metrics.
    secret : NoiseSecret, optional
        Secret of an earlier run, to repeat it; by default a fresh one is drawn. The guarantee holds only of one that
        nobody else knows.
    track : str or sequence of str
        Programs that are told of the run: ``tensorboard``, ``mlflow``, ``wandb``, ``trackio``. Those but the first may
        send figures elsewhere, and are told what no guarantee covers, such as scores on test examples, only if they are
        called ``mlflow:all`` and so on.
    checkpoint : float, optional
        Seconds of wall time from one checkpoint in ``out`` to the next, from which `resume_run` goes on; more where
        they would take over 1 % of the run's time. None makes none.
    engine : RayShards, optional
        Shards that compute what the nodes ask for, such as `gossamer.RayShards`; by default there is one process.
        What comes out has the bytes of the simulator, `timing.json` aside. What cannot be sharded runs in one process,
        and a warning says why.

    Raises
    ------
    CallerError
        If the experiment cannot be run; nothing has been released.
    KeyboardInterrupt
        If interrupted; ``out`` then holds the results up to the last evaluation, and a checkpoint of the moment.
    """
    check_interval(checkpoint)
    # Sums in BLAS depend on the number of threads; results must not.
    with threadpool_limits(1), results_folder(out, overwrite=overwrite) as folder:
        trackers = trackers_of(track)
        prepared = prepare(spec_of(experiment), FromMemory(data, module))
        if engine is None:
            check_memory(prepared)
        plan = plan_run(prepared)
        sources, place = sources_of(prepared, plan, secret), None if folder is None else folder.path
        with listening(prepared, plan, progress, trace, measure, trackers, place) as listeners:
            return Run(prepared, plan, sources, folder, listeners, checkpoint=checkpoint, engine=engine).go()
