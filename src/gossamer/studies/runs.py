"""Runs of a study: each with a folder of its own, so that a study goes on where it was interrupted.

A finished run's folder is kept. One that was interrupted goes on from its checkpoint; without one it is run anew, from
its beginning and with its own noise secret. What it released before it releases again, and nothing more, as a repeat
does. A folder that was made from another spec is refused, since a study that mixed the two would say nothing of either.

A run that another machine makes is begun here: its secret is drawn and kept before it is handed over, so whoever makes
it again, because a worker or this machine was lost, makes the same.
"""

from __future__ import annotations

import platform
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from gossamer.errors import CallerError, DataError, GossamerError, RunWarning, counted, shortened
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.preparation.secrets import FILE, KeptSecret, NoiseSecret
from gossamer.experiment.results.results_folder import CHECKPOINT, UNFINISHED, ResultsFolder, packed, unpack
from gossamer.experiment.runs.repeats import resume_run
from gossamer.experiment.runs.running import run
from gossamer.experiment.runs.trackers import NullProgress
from gossamer.experiment.specs.spec import Experiment
from gossamer.experiment.specs.spec_file import read_spec, write_spec
from gossamer.processes import results
from gossamer.report.records import read_summary
from gossamer.runtimes.ray_shards import ENDED, UNGUARDED, connected
from gossamer.version import __version__

# Workers that make the runs of a study: processes of this machine, or of a Ray cluster.

# Runs as tasks of a Ray cluster, whose machines need not share any files.
#
# A task gets a run with its noise secret, makes it in a folder of its own, and returns the files. A task whose worker
# was lost is given to another, with the same secret: so what it released is released again, and nothing more.

MOST_TRIES = 3
"""Workers that may be lost with one and the same run."""
_LOST = f"{counted(MOST_TRIES, 'worker')} were lost with it, one after another, as happens where memory runs out"
_AHEAD = 2
"""Runs asked for a processor: none is idle in between, and a cluster that grows sees that more are needed."""
_LEAVING = 5.0
"""Seconds for workers to clear away what nobody waits for."""


class RayTasks:
    """Tasks with a processor each, and a GPU where a spec names one, begun in order.

    Parameters
    ----------
    ray : module
        The package, connected.
    jobs : int, optional
        Runs that are asked for at a time, at most; by default all, and Ray has them wait for processors.
    """

    remarks = (UNGUARDED,)

    def __init__(self, ray: Any, jobs: int | None = None) -> None:
        self._ray, self._jobs = ray, jobs

    @property
    def at_once(self) -> int:
        """Runs that there are processors for, and that may be asked for."""
        return self._jobs or max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def outcomes(self, runs: Sequence[StudyRun], tell: Callable[[str], None]) -> Iterator[RunOutcome]:
        """Make the runs, and write what comes back to their folders.

        Raises
        ------
        CallerError
            If Ray itself ends.
        """
        task = self._ray.remote(num_cpus=1, max_retries=0)(made_there)
        waiting, asked, lost = deque(runs), dict[Any, StudyRun](), Counter[int]()
        try:
            while waiting or asked:
                while waiting and len(asked) < (self._jobs or _AHEAD * self.at_once):
                    one = waiting.popleft()
                    # A GPU where its spec names one.
                    given = {"name": f"run {one.folder.name}", "num_gpus": int(one.experiment.compute.device == "cuda")}
                    asked[task.options(**given).remote(one, one.begin(), __version__)] = one
                (first, *_), _ = self._ray.wait(list(asked))
                one = asked.pop(first)
                found = self._found(first, one)
                lost[one.number] += found is None
                if found is None and lost[one.number] < MOST_TRIES:
                    tell(f"{one.setting}, seed {one.seed}: its worker was lost, and it is taken up again")
                    waiting.appendleft(one)
                else:
                    yield found or RunOutcome(one.number, _LOST, 0.0)
        finally:
            self._leave([*asked])

    def _found(self, task: Any, one: StudyRun) -> RunOutcome | None:
        """Return the outcome of a task that is done, with its files written; None if its worker was lost."""
        errors = self._ray.exceptions
        try:
            outcome, files = self._ray.get(task)
        except errors.RayTaskError as error:
            return RunOutcome(one.number, _refused(error), 0.0)
        except (errors.LocalRayletDiedError, errors.RaySystemError):
            raise CallerError(f"{ENDED}; the same command goes on with what is left") from None
        except errors.RayError:
            return None
        if files:
            unpack(files, one.folder)
        return cast("RunOutcome", outcome)

    def _leave(self, asked: list[Any]) -> None:
        """Have tasks that nobody waits for any longer end, and take away the folders that they work in."""
        for task in asked:
            self._ray.cancel(task)
        if asked:
            self._ray.wait(asked, num_returns=len(asked), timeout=_LEAVING)


def made_there(one: StudyRun, secret: NoiseSecret | None, version: str) -> tuple[RunOutcome, dict[str, bytes]]:
    """Make a run at a worker; return its outcome, and the files of its results folder by name."""
    host = platform.node()
    if version != __version__:
        error = f"{host} has gossamer {__version__}, expected {version} as here; install the same on every machine"
        return RunOutcome(one.number, error, 0.0), {}
    with TemporaryDirectory(prefix="gossamer-") as place:
        there = replace(one, folder=Path(place) / "run")
        outcome = there.make(secret)
        try:
            files = packed(there.folder)
        except DataError as large:
            outcome, files = replace(outcome, error=outcome.error or str(large)), {}
    return (replace(outcome, error=f"on {host}: {outcome.error}") if outcome.error else outcome), files


def _refused(error: Exception) -> str:
    """Reason why a worker could not even begin, such as a package that it lacks."""
    cause = getattr(error, "cause", None) or error
    last = ([line.strip() for line in str(cause).splitlines() if line.strip()] or [type(cause).__name__])[-1]
    return f"a worker could not begin it: {last}; install gossamer and the spec's own packages on every machine"


ENGINES = ("processes", "ray")
Tell = Callable[[str], None]
"""Is called with a line about how it goes."""


@dataclass(frozen=True)
class Processes:
    """Processes of this machine; with one run at a time, this process.

    Attributes
    ----------
    at_once : int
        Number of runs at once.
    remarks : sequence of str
        Remarks, of which there are none.
    """

    at_once: int = 1
    remarks: Sequence[str] = ()

    def outcomes(self, runs: Sequence[StudyRun], tell: Tell) -> Iterator[RunOutcome]:
        """Make the runs."""
        return results(runs, self.at_once, in_order=False)


Workers = Processes | RayTasks
"""Whoever makes runs: about how many at a time, what people should know before the first, and the outcomes."""


@contextmanager
def workers_of(engine: str, jobs: int | None = None) -> Iterator[Workers]:
    """Workers, for as long as the block takes.

    Parameters
    ----------
    engine : str
        ``processes`` of this machine, or ``ray``.
    jobs : int, optional
        Runs at a time, at most; by default one on this machine, and on Ray as many as it has processors.

    Raises
    ------
    CallerError
        If there is no such engine, or Ray is not installed or does not answer.
    """
    if engine not in ENGINES:
        raise CallerError(f"expected the engine {' or '.join(ENGINES)}, found {engine!r}")
    if engine != "ray":
        yield Processes(jobs or 1)
        return
    with connected(jobs) as ray:
        yield RayTasks(ray, jobs)


_MISSING = "nothing"
_NOT_YET = "0" * 32
"""In the place of what a secret was drawn for, until the run has found that out."""


@dataclass(frozen=True)
class RunOutcome:
    """End of a run.

    Attributes
    ----------
    number : int
        Number of the run.
    error : str
        Reason why it failed, in a line; empty if it did not.
    seconds : float
        Wall time.
    """

    number: int
    error: str
    seconds: float


@dataclass(frozen=True)
class StudyRun:
    """One run of a study, as another process can make it.

    Attributes
    ----------
    setting : str
        Name of what it has in common with others, which differ from it in their seed.
    experiment : Experiment
        Spec of the run.
    folder : Path
        Folder that its results go to.
    number : int
        Number of the run.
    """

    setting: str
    experiment: Experiment
    folder: Path
    number: int

    def __call__(self) -> RunOutcome:
        """Make the run."""
        return self.make(self._begun_with())

    def make(self, secret: NoiseSecret | None) -> RunOutcome:
        """Make the run with a noise secret, or with a fresh one."""
        began, error = time.perf_counter(), ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RunWarning)  # they were told before the first run
                if not self._resumed():
                    run(self.experiment, self.folder, overwrite=True, secret=secret, progress=NullProgress())
        except GossamerError as problem:
            error = str(problem)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        return RunOutcome(self.number, " ".join(error.split()), time.perf_counter() - began)

    def _resumed(self) -> bool:
        """Whether the run went on from its checkpoint; otherwise, as with other data or code by now, it begins anew."""
        if not (self.folder / CHECKPOINT).exists():
            return False
        try:
            resume_run(self.folder, progress=NullProgress())
        except CallerError:
            return False
        return True

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.experiment.seed

    @property
    def finished(self) -> bool:
        """Whether its folder has the results of the whole run."""
        if not (self.folder / "summary.json").exists():
            return False
        return self.summary().get("status") not in UNFINISHED

    def summary(self) -> dict[str, Any]:
        """Its ``summary.json``."""
        return read_summary(self.folder)

    def begin(self) -> NoiseSecret | None:
        """Return the run's noise secret, which is kept in its folder from now on; None if it needs none."""
        if not self.experiment.secretive:
            return None
        if (secret := self._begun_with()) is None:
            secret, folder = NoiseSecret.fresh(), ResultsFolder(self.folder, overwrite=True)
            with folder.held():
                folder.clear()
                folder.write("spec.yaml", write_spec(self.experiment))
                KeptSecret.of(secret, _NOT_YET).write(self.folder)
        return secret

    def _begun_with(self) -> NoiseSecret | None:
        """The noise secret of the run that was interrupted here, if that left one that nobody else knows.

        Where the data, the code or the version are others by now it gives other noise, which has nothing in common with
        that of the earlier run (`secret_seed`).
        """
        if not self.experiment.secretive or not (self.folder / FILE).exists():
            return None
        with suppress(DataError):
            return KeptSecret.read(self.folder).secret
        return None

    def check_folder(self) -> None:
        """Raise unless its folder is empty, or has results of the very same spec.

        Raises
        ------
        CallerError
            In one line that names the folder.
        """
        ResultsFolder(self.folder, overwrite=True)
        if not (spec := self.folder / "spec.yaml").exists():
            return
        there = _flat(read_spec(spec).model_dump(mode="json"))
        if there == _flat(self.experiment.model_dump(mode="json")):
            return
        here = _flat(_complete(self.experiment).model_dump(mode="json"))
        if there != here:
            raise DataError(f"{self.folder}: made from another spec ({_difference(there, here)}); choose another --out")


def each_seed(setting: str, first: Experiment, seeds: int, out: Path, number: int) -> list[StudyRun]:
    """Runs of one setting with so many seeds from that of the ``first`` on, numbered from ``number`` on."""
    specs = [first.model_copy(update={"seed": seed}) for seed in range(first.seed, first.seed + seeds)]
    return [
        StudyRun(setting, spec, out / f"{setting}-seed{spec.seed}", index) for index, spec in enumerate(specs, number)
    ]


def _complete(experiment: Experiment) -> Experiment:
    """The spec as a run writes it down, with what is found out before the run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        return prepare(experiment).experiment


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The first key in which two specs differ, and both values."""
    key = next(key for key in {**here, **there} if there.get(key, _MISSING) != here.get(key, _MISSING))
    old, new = (shortened(spec.get(key, _MISSING), 40) for spec in (there, here))
    return f"{key} is {old} there and {new} here"


def _flat(content: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in content.items():
        found.update(_flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value})
    return found
