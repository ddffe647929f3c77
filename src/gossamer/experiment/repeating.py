"""Repeating a run, from its results folder and with its own noise secret.

A repeat has the noise of the run, so it releases nothing that the run did not, as long as all else is the same too. So
it is refused where the version, the examples, or the files and the code that the spec names have changed; and at the
end what came out is compared with what lies in the folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file
from threadpoolctl import threadpool_limits

from gossamer.errors import DataError, SpecError
from gossamer.experiment.noise_secret import FILE, KeptSecret, mark
from gossamer.experiment.planning import plan_run
from gossamer.experiment.plans import RunPlan
from gossamer.experiment.prepare import Prepared, prepare
from gossamer.experiment.reading import read_spec
from gossamer.experiment.results import ResultsFolder, read_summary
from gossamer.experiment.running import Progress, Result, run_prepared
from gossamer.experiment.secrets import secret_seed
from gossamer.experiment.spec import Experiment
from gossamer.experiment.tracing import tracing
from gossamer.version import __version__


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
    kept, earlier = _secret_of(path, experiment), _Earlier.read(path)
    with threadpool_limits(1):
        folder = ResultsFolder(Path(out), overwrite=overwrite) if out is not None else None
        prepared = prepare(experiment)
        plan = plan_run(prepared)
        _check_same(path, kept, prepared, plan)
        with tracing(trace, prepared) as watch:
            result = run_prepared(
                prepared, plan, folder, progress=progress, watch=watch, purpose="run", secret=kept.secret
            )
    earlier.check(path, result)
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


def _check_same(path: Path, kept: KeptSecret, prepared: Prepared, plan: RunPlan) -> None:
    """Raise unless all that decides gradients is what it was: otherwise this is a release of its own."""
    if mark(secret_seed(prepared, plan.noise, "run", kept.secret)) != kept.run:
        raise DataError(
            f"{path}: the spec, its data, or the files or the code that it names are not what they were, so this would "
            "be another run; bring them back, or run the spec as a new run"
        )


class _Earlier(NamedTuple):
    """Results that lie in the folder: the run's metrics, and its model if it came to its end."""

    rows: list[dict[str, Any]]
    model: Mapping[str, npt.NDArray[Any]] | None

    @classmethod
    def read(cls, path: Path) -> _Earlier:
        """From a results folder.

        Raises
        ------
        DataError
            If it is not one, or not whole.
        """
        ended = read_summary(path).get("status") not in ("interrupted", "running")
        try:
            # A line that a killed process did not finish is none.
            lines = (path / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
            return cls([json.loads(line) for line in lines], load_file(path / "model.safetensors") if ended else None)
        except (OSError, ValueError, SafetensorError) as error:
            raise DataError(
                f"{path}: the results cannot be read ({error}), so no repeat can be held against them"
            ) from None

    def check(self, path: Path, result: Result) -> None:
        """Raise DataError unless a repeat gave the same; of a run that did not end, as far as it came."""
        rows = json.loads(json.dumps(result.metrics))
        same = _alike(self.rows, rows if self.model is not None else rows[: len(self.rows)])
        if not (same and (self.model is None or _same_model(self.model, result))):
            raise DataError(
                f"{path}: the repeat has the same noise and gave other results, as rounding does on another processor "
                "or with another version of numpy or torch; publish one of the two at most"
            )


def _alike(earlier: list[dict[str, Any]], rows: list[dict[str, Any]]) -> bool:
    """The same rows; figures that were measured beside are left out."""
    return len(earlier) == len(rows) and all(
        {key: value for key, value in old.items() if key in new} == new for old, new in zip(earlier, rows, strict=True)
    )


def _same_model(earlier: Mapping[str, npt.NDArray[Any]], result: Result) -> bool:
    return earlier.keys() == result.model.keys() and all(
        part.tobytes() == np.ascontiguousarray(result.model[name]).tobytes() for name, part in earlier.items()
    )
