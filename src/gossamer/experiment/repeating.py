"""Repeating a run, from its results folder and with its own noise secret.

A repeat has the noise of the run, so it releases nothing that the run did not, as long as all else is the same too. So
it is refused where the version, the examples, or the files and the code that the spec names have changed; and at the
end what came out is compared with what lies in the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from gossamer.algorithms.plan import Plan
from gossamer.bounded import real_path
from gossamer.data.memory import Data
from gossamer.errors import DataError, SpecError
from gossamer.experiment.comparing import Earlier
from gossamer.experiment.planning import plan_run
from gossamer.experiment.prepare import FromMemory, prepare
from gossamer.experiment.prepared import Prepared
from gossamer.experiment.progress import NullProgress, Progress
from gossamer.experiment.reading import read_spec
from gossamer.experiment.result import Result
from gossamer.experiment.results_folder import results_folder
from gossamer.experiment.running import Run
from gossamer.experiment.secrets import FILE, KeptSecret, mark, secret_seed, test_mark
from gossamer.experiment.spec import Experiment
from gossamer.experiment.tracing import tracing
from gossamer.version import __version__

if TYPE_CHECKING:
    from gossamer.objectives.models import Given


def repeat_run(
    results: str | Path,
    out: str | Path | None = None,
    *,
    data: Data | None = None,
    module: Given | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    trace: str | Path | None = None,
) -> Result:
    """Run again what lies in a results folder, with the same noise, and check that the same comes out.

    Parameters
    ----------
    results : path
        The results folder of a run with a noise secret. It is left as it is.
    out : path, optional
        Another folder, for the results of the repeat; None writes nothing.
    data, module
        What the run was given from memory, if it was.
    overwrite, progress, trace
        As for `run`.

    Raises
    ------
    CallerError
        If the folder or its secret cannot be used, or something that decides gradients is not what it was; nothing has
        been released.
    DataError
        If other results came out than lie in the folder.
    """
    path = Path(results)
    if not str(results) or not path.is_dir():
        raise DataError(f"expected the results folder of a run, found no folder {str(results)!r}; give another")
    _check_places(path, out, trace)
    experiment = read_spec(path / "spec.yaml")
    kept, earlier = _secret_of(path, experiment), Earlier.read(path)
    with threadpool_limits(1), results_folder(out, overwrite=overwrite) as folder:
        prepared = prepare(experiment, FromMemory(data, module))
        plan = plan_run(prepared)
        _check_same(path, kept, prepared, plan)
        with tracing(trace, prepared) as watch:
            told = progress or NullProgress()
            result = Run(prepared, plan, folder, progress=told, watch=watch, secret=kept.secret).go()
    earlier.check(result)
    return result


def _check_places(path: Path, out: str | Path | None, trace: str | Path | None) -> None:
    """Raise unless nothing is written where the run's own results lie."""
    kept = real_path(path)
    for option, place in (("--out", out), ("--trace", trace)):
        if place is not None and kept in (found := real_path(place), *found.parents):
            raise SpecError(
                f"{path}: a repeat leaves the results that it repeats as they are, and {place} is inside; choose "
                f"another {option}"
            )


def _secret_of(path: Path, experiment: Experiment) -> KeptSecret:
    if not experiment.secretive:
        raise SpecError(
            f"{path}: this run has no noise secret, because its noise is reproducible or it has none; gossamer run "
            f"{path / 'spec.yaml'} repeats it"
        )
    if not (path / FILE).exists():
        raise DataError(f"{path}: expected the run's noise secret, {FILE}, found none; without it nobody can repeat it")
    kept = KeptSecret.read(path)
    if kept.made_by != "run":
        raise SpecError(
            f"{path}: expected the results of gossamer run, found those of something else ({kept.made_by}); what made "
            "them can make them again"
        )
    if kept.gossamer != __version__:
        raise SpecError(
            f"{path}: made by gossamer {kept.gossamer}, and this is {__version__}, which draws other noise; repeat it "
            "with that version, or run its spec as a new run"
        )
    return kept


def _check_same(path: Path, kept: KeptSecret, prepared: Prepared, plan: Plan) -> None:
    """Raise unless all that decides gradients is what it was, otherwise this is a release of its own; and the test."""
    if mark(secret_seed(prepared, plan.noise, "run", kept.secret)) != kept.run:
        raise DataError(
            f"{path}: the spec, its data, or the files or the code that it names are not what they were, so this would "
            "be another run; bring them back, or run the spec as a new run"
        )
    check_tested(path, kept, prepared)


def check_tested(path: Path, kept: KeptSecret, prepared: Prepared) -> None:
    """Raise unless the test examples are those of the run whose secret was kept.

    Raises
    ------
    DataError
        If they are others.
    """
    if kept.tested and kept.tested != test_mark(prepared, kept.secret):
        raise DataError(
            f"{path}: the test examples are not what they were, so the run's metrics would not come out again; bring "
            "them back"
        )
