"""Runs of a study: each with a folder of its own, so that a study goes on where it was interrupted.

A finished run's folder is kept. One that was interrupted goes on from its checkpoint; without one it is run anew, from
its beginning and with its own noise secret. What it released before it releases again, and nothing more, as a repeat
does. A folder that was made from another spec is refused, since a study that mixed the two would say nothing of either.

A run that another machine makes is begun here: its secret is drawn and kept before it is handed over, so whoever makes
it again, because a worker or this machine was lost, makes the same.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.errors import CallerError, DataError, GossamerError, RunWarning, shortened
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.preparation.secrets import FILE, KeptSecret, NoiseSecret
from gossamer.experiment.results.results_folder import CHECKPOINT, UNFINISHED, ResultsFolder, read_summary
from gossamer.experiment.runs.repeating import resume_run
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.reading import read_spec, write_spec
from gossamer.experiment.specs.spec import Experiment

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
                    run(self.experiment, self.folder, overwrite=True, secret=secret)
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
            resume_run(self.folder)
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
                KeptSecret(secret, _NOT_YET).write(self.folder)
        return secret

    def _begun_with(self) -> NoiseSecret | None:
        """The noise secret of the run that was interrupted here, if that left one that nobody else knows.

        Where the data, the code or the version are others by now it gives other noise, which has nothing in common with
        that of the earlier run (`secret_seed`).
        """
        if not self.experiment.secretive or not (self.folder / FILE).exists():
            return None
        try:
            return KeptSecret.read(self.folder).secret
        except DataError:
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
