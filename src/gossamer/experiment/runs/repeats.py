"""Repeating a run, from its results folder and with its own noise secret.

A repeat has the noise of the run, so it releases nothing that the run did not, as long as all else is the same too. So
it is refused where the version, the examples, or the files and the code that the spec names have changed; and at the
end what came out is compared with what lies in the folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from gossamer.data.settings import IN_MEMORY
from gossamer.errors import DataError, SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import FromMemory, Prepared, nodes_of, prepare
from gossamer.experiment.preparation.secrets import FILE, KeptSecret, check_mark, mark, test_mark
from gossamer.experiment.results.observer import Measure
from gossamer.experiment.results.records import Result
from gossamer.experiment.results.results_folder import CHECKPOINT, UNFINISHED, ResultsFolder, results_folder
from gossamer.experiment.runs.checkpoints import EVERY, check_interval, read_checkpoint
from gossamer.experiment.runs.running import Run, sources_of
from gossamer.experiment.runs.trackers import RunProgress, listening
from gossamer.experiment.specs.spec import Experiment
from gossamer.experiment.specs.spec_file import read_spec
from gossamer.files import MOST_RECORDS, as_written, read_file, read_text, real_path
from gossamer.objectives.released_scores import FILE as HISTOGRAMS
from gossamer.privacy import guarantee_card
from gossamer.protocol.trace import ReplayDifference, read_steps, replay
from gossamer.report.records import read_summary
from gossamer.runtimes.ray_shards import RayShards
from gossamer.trained.card import saved
from gossamer.version import __version__

if TYPE_CHECKING:
    from gossamer.objectives.models import Given


# Replaying a trace through the nodes that a spec describes.


def replay_run(experiment: Experiment, trace: str | Path) -> ReplayDifference | None:
    """Feed a recorded run's events to fresh nodes and compare their effects, bit for bit.

    Parameters
    ----------
    experiment : Experiment
        The spec of the run.
    trace : path
        Trace that ``run(..., trace=...)`` or ``gossamer run --trace`` wrote.

    Returns
    -------
    Difference or None
        The first step at which the nodes answer differently; None if they never do.

    Raises
    ------
    MalformedMessage
        If the file is cut off or is no trace.
    """
    prepared = prepare(experiment)
    nodes = nodes_of(prepared, plan_run(prepared))
    with Path(trace).open("rb") as file:
        return replay(read_steps(file), nodes)


# Resuming a run whose process was killed or interrupted, from the checkpoint in its results folder.
#
# What it did after the checkpoint happens again, to the same bytes: everything follows from the spec, the examples
# and the run's noise secret, and each release's noise and sample from the number of its charge. So it is the same
# release, and the ledger, which is set back to the checkpoint with all else, has it once. Where something that noise
# follows from is not what it was, nothing is resumed.


def resume_run(
    results: str | Path,
    *,
    data: Any = None,
    module: Given | None = None,
    progress: RunProgress | None = None,
    trace: str | Path | None = None,
    measure: Measure | None = None,
    checkpoint: float | None = EVERY,
    engine: RayShards | None = None,
) -> Result:
    """Go on with the run of a results folder from its checkpoint, to the bytes that it would have had at its end.

    Parameters
    ----------
    results : path
        The results folder of a run that was killed or interrupted; the rest of the results goes there too.
    data, module, measure
        Arguments that the run was given, if it was.
    progress, checkpoint
        Arguments as for `run`.
    trace : path, optional
        The trace of the run, if it writes one: what it has from after the checkpoint is cut off.
    engine : RayShards, optional
        Shards that compute for the run from now on, as for `run`, whether or not there were any before.

    Raises
    ------
    CallerError
        If there is nothing to resume, or something that the run depends on is not what it was; nothing is lost by it.
    KeyboardInterrupt
        If interrupted, as `run`.
    """
    check_interval(checkpoint)
    path = _resumed_folder(results)
    folder = ResultsFolder(path, overwrite=True)
    with threadpool_limits(1), folder.held():
        resumed = read_checkpoint(path)
        experiment = read_spec(path / "spec.yaml")
        kept = _kept_secret(path) if experiment.secretive else None
        prepared = prepare(experiment, FromMemory(data, module))
        if kept is not None:
            check_tested(path, kept, prepared)
        plan = plan_run(prepared)
        sources = sources_of(prepared, plan, None if kept is None else kept.secret)
        with listening(prepared, plan, progress, trace, measure, goes_on=True) as listeners:
            return Run(prepared, plan, sources, folder, listeners, checkpoint, resumed, engine).go()


def _folder(results: str | Path) -> Path:
    if not str(results) or not Path(results).is_dir():
        raise DataError(f"expected the results folder of a run, found no folder {str(results)!r}; give another")
    return Path(results)


def _resumed_folder(results: str | Path) -> Path:
    """Return the folder of a run that can be resumed, as far as the names of its files tell."""
    path = _folder(results)
    if (path / CHECKPOINT).exists():
        return path
    if (path / "summary.json").exists() and read_summary(path).get("status") not in UNFINISHED:
        raise SpecError(f"{path}: this run has ended, so there is nothing to resume; gossamer report {path} shows it")
    raise DataError(
        f"{path}: expected a checkpoint, {CHECKPOINT}, found none, so there is nothing to resume; run the spec anew"
    )


def _kept_secret(path: Path) -> KeptSecret:
    if not (path / FILE).exists():
        raise DataError(
            f"{path}: expected the run's noise secret, {FILE}, found none; without it nobody can repeat the run, or go "
            "on with its noise: run the spec as a new run"
        )
    kept, named = KeptSecret.read(path), _named_in(path / guarantee_card.FILE)
    if kept.name and named and kept.name != named:
        raise SpecError(
            f"{path}: {FILE} is of another run than {guarantee_card.FILE} beside it; bring back the one that this run "
            "wrote, without which nobody can repeat it or go on with its noise"
        )
    return kept


def _named_in(card: Path) -> str:
    """Name of the run in its guarantee; empty where that is missing or damaged, which a repeat says by itself."""
    try:
        return guarantee_card.read_guarantee_card(read_text(card, guarantee_card.LARGEST), card).guarantees[0].run
    except (OSError, DataError):
        return ""


# Holding a repeat against the results that it repeats: which files say something else, and what that means.
#
# Rounding that differs between processors, or between versions of numpy or torch, reaches the model first, and
# figures through it. So where the model came out the same, byte for byte, and something else did not, that file was
# changed after the run; and so was a model that differs while every figure of it is the same.

_METRICS, _MODEL, _SUMMARY = "metrics.jsonl", "model.safetensors", "summary.json"
_LINES = ("metrics.csv", "ledger.jsonl", "private.jsonl", guarantee_card.FILE, HISTOGRAMS, "nodes.json", "nodes.npz")
"""What a result has only in a folder."""

_REMEDY = "bring back what the run wrote, or no repeat can be held against it"


@dataclass(frozen=True)
class Earlier:
    """Results that lie in a folder.

    Attributes
    ----------
    path : Path
        The folder.
    rows : list of dict
        The run's metrics.
    summary : dict
        Summary of the run.
    model : bytes, or None
        Model of the run, if it came to its end.
    """

    path: Path
    rows: list[dict[str, Any]]
    summary: dict[str, Any]
    model: bytes | None

    @classmethod
    def read(cls, path: Path) -> Earlier:
        """The results in ``path``.

        Raises
        ------
        DataError
            If it is not a run's folder, or not whole.
        """
        summary = read_summary(path)
        ended = summary.get("status") not in UNFINISHED
        with as_written(path / _MODEL, "the run's model", _REMEDY):
            model = read_file(path / _MODEL, MOST_RECORDS) if ended else None
        return cls(path, _read_rows(path / _METRICS), summary, model)

    def check(self, result: Result) -> None:
        """Raise DataError unless a repeat gave the same; of a run that did not end, as far as it came."""
        if not (differing := self._differing(result)):
            return
        named, be = " and ".join(differing), "were" if differing[1:] else "was"
        if self.model is not None and not {_METRICS, _MODEL} <= set(differing):
            same = "figures" if _MODEL in differing else "model"
            raise DataError(
                f"{self.path}: {named} {be} changed since the run, because the repeat gave its {same} again, to the "
                f"last bit, and something else there; publish one of the two at most"
            )
        raise DataError(
            f"{self.path}: the repeat has the same noise and gave other results than {named}, which {be} changed since "
            "the run, or rounding is another on this processor or with this version of numpy or torch; publish one of "
            "the two at most"
        )

    def _differing(self, result: Result) -> list[str]:
        """The files that do not say what the repeat gave."""
        rows = json.loads(json.dumps(result.metrics))
        if self.model is None:
            return [] if _alike(self.rows, rows[: len(self.rows)]) else [_METRICS]
        alike = {
            _METRICS: _alike(self.rows, rows),
            _MODEL: self.model == saved(result.model.vector, result.model.card),
            _SUMMARY: _alike(self.summary, json.loads(json.dumps(result.summary))),
        }
        if result.folder is not None:
            alike.update({name: _bytes(self.path / name) == _bytes(result.folder / name) for name in _LINES})
        return [name for name, same in alike.items() if not same]


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """A row a line; one that a killed process did not finish is none."""
    with as_written(path, "rows of metrics", _REMEDY):
        return [{**json.loads(line)} for line in read_file(path, MOST_RECORDS).split(b"\n")[:-1]]


def _bytes(path: Path) -> bytes:
    """Content of a file; nothing where there is none."""
    return read_file(path, MOST_RECORDS) if path.exists() else b""


def _alike(earlier: Any, new: Any) -> bool:
    """The same values; keys that only the earlier ones have were added: measured beside, or by an attack."""
    if isinstance(earlier, dict) and isinstance(new, dict):
        return all(key in earlier and _alike(earlier[key], value) for key, value in new.items())
    if isinstance(earlier, list) and isinstance(new, list):
        return len(earlier) == len(new) and all(map(_alike, earlier, new))
    return bool(earlier == new)


def repeat_run(
    results: str | Path,
    out: str | Path | None = None,
    *,
    data: Any = None,
    module: Given | None = None,
    overwrite: bool = False,
    progress: RunProgress | None = None,
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
        Arguments that the run was given from memory, if it was.
    overwrite, progress, trace
        Arguments as for `run`.

    Raises
    ------
    CallerError
        If the folder or its secret cannot be used, or something that decides gradients is not what it was; nothing has
        been released.
    DataError
        If other results came out than lie in the folder.
    """
    path = _folder(results)
    _check_places(path, out, trace)
    experiment = read_spec(path / "spec.yaml")
    kept, earlier = _secret_of(path, experiment), Earlier.read(path)
    made_by = earlier.summary.get("engine")  # the other one rounds otherwise
    if made_by == "compiled" and trace is not None:
        raise SpecError(
            f"{path}: this run was made by the compiled loop, of which there is no trace; leave --trace out, or run "
            "the spec as a new run with compute.engine: simulator"
        )
    with threadpool_limits(1), results_folder(out, overwrite=overwrite) as folder:
        prepared = prepare(experiment, FromMemory(data, module))
        plan = plan_run(prepared)
        sources = sources_of(prepared, plan, kept.secret)
        check_mark(path, mark(sources.noise), kept.run)
        check_tested(path, kept, prepared)
        with listening(prepared, plan, progress, trace) as listeners:
            result = Run(prepared, plan, sources, folder, listeners, simulated=made_by == "simulator").go()
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
        made_by = "what made it" if experiment.dataset.name == IN_MEMORY else f"gossamer run {path / 'spec.yaml'}"
        raise SpecError(
            f"{path}: this run has no noise secret, because its noise is reproducible or it has none; {made_by} "
            "repeats it"
        )
    kept = _kept_secret(path)
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


def check_tested(path: Path, kept: KeptSecret, prepared: Prepared) -> None:
    """Raise unless the test examples are those of the run whose secret was kept, and what is released of them is.

    Raises
    ------
    DataError
        If they are others.
    """
    if kept.tested and kept.tested != test_mark(prepared, kept.secret):
        raise DataError(
            f"{path}: the test examples are not what they were, or what is released of them is not, so the run's "
            "metrics would not come out again; bring them back"
        )
