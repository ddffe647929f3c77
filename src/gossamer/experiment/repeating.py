"""Repeating a run, from its results folder and with its own noise secret.

A repeat has the noise of the run, so it releases nothing that the run did not, as long as all else is the same too. So
it is refused where the version, the examples, or the files and the code that the spec names have changed; and at the
end what came out is compared with what lies in the folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from threadpoolctl import threadpool_limits

from gossamer.errors import DataError, SpecError
from gossamer.experiment.noise_secret import FILE, KeptSecret, mark
from gossamer.experiment.planning import plan_run
from gossamer.experiment.plans import RunPlan
from gossamer.experiment.prepare import Prepared, prepare
from gossamer.experiment.reading import read_spec
from gossamer.experiment.results import ResultsFolder, read_summary
from gossamer.experiment.running import Progress, Result, run_prepared, tracing
from gossamer.experiment.secrets import secret_seed
from gossamer.experiment.spec import Experiment
from gossamer.version import __version__

_ENDED_BEFORE = ("interrupted", "running")


def repeat_run(
    results: str | Path,
    out: str | Path | None = None,
    *,
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
    _check_places(path, out, trace)
    experiment = read_spec(path / "spec.yaml")
    kept, summary = _secret_of(path, experiment), read_summary(path)
    with threadpool_limits(1):
        folder = ResultsFolder(Path(out), overwrite=overwrite) if out is not None else None
        prepared = prepare(experiment)
        plan = plan_run(prepared)
        _check_same(path, kept, prepared, plan)
        with tracing(trace, prepared) as watch:
            result = run_prepared(
                prepared, plan, folder, progress=progress, watch=watch, purpose="run", secret=kept.secret
            )
    _compare(path, summary, result)
    return result


def _check_places(path: Path, out: str | Path | None, trace: str | Path | None) -> None:
    """Raise unless nothing is written where the run's own results lie."""
    for option, place in (("--out", out), ("--trace", None if trace is None else Path(trace).parent)):
        if place is not None and Path(place).resolve() == path.resolve():
            raise SpecError(f"{path}: a repeat leaves the results that it repeats as they are; choose another {option}")


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
        raise SpecError(f"{path}: expected the results of gossamer run, found those of an {kept.made_by}; audit again")
    if kept.gossamer != __version__:
        raise SpecError(
            f"{path}: made by gossamer {kept.gossamer}, and this is {__version__}, which draws other noise; repeat it "
            "with that version, or run its spec as a new run"
        )
    return kept


def _check_same(path: Path, kept: KeptSecret, prepared: Prepared, plan: RunPlan) -> None:
    """Raise unless all that decides gradients is what it was: otherwise this is a release of its own."""
    if mark(secret_seed(prepared, plan.noise, "run", kept.secret)) != kept.run:
        raise DataError(
            f"{path}: the spec, its data, or the files or the code that it names are not what they were, so this would "
            "be another run; bring them back, or run the spec as a new run"
        )


def _compare(path: Path, summary: dict[str, Any], result: Result) -> None:
    """Raise unless the results are those of the folder; of a run that ended before its time, as far as it came."""
    # A line that a killed process did not finish is none.
    lines = (path / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    earlier, rows = [json.loads(line) for line in lines], json.loads(json.dumps(result.metrics))
    if summary["status"] in _ENDED_BEFORE:
        same = _alike(earlier, rows[: len(earlier)])
    else:
        same = _alike(earlier, rows) and _same_model(path, result)
    if not same:
        raise DataError(
            f"{path}: the repeat has the same noise and gave other results, as rounding does on another processor or "
            "with another version of numpy or torch; publish one of the two at most"
        )


def _alike(earlier: list[dict[str, Any]], rows: list[dict[str, Any]]) -> bool:
    """The same rows; figures that were measured beside are left out."""
    return len(earlier) == len(rows) and all(
        {key: value for key, value in old.items() if key in new} == new for old, new in zip(earlier, rows, strict=True)
    )


def _same_model(path: Path, result: Result) -> bool:
    parts = load_file(path / "model.safetensors")
    return parts.keys() == result.model.keys() and all(
        part.tobytes() == np.ascontiguousarray(result.model[name]).tobytes() for name, part in parts.items()
    )
