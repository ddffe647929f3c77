"""The price of privacy and of distance: one federation with and without noise, each party alone, all in one place."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gossamer.errors import CallerError, SpecError, shortened
from gossamer.experiment.prepared import Prepared
from gossamer.experiment.spec import Experiment
from gossamer.privacy.guarantees import Guarantee
from gossamer.report.curves import Point, price_figure
from gossamer.report.figure import Figure
from gossamer.studies.checking import Remarks, checked
from gossamer.studies.grid import check_runs
from gossamer.studies.runs import StudyRun, each_seed
from gossamer.studies.scores import Scores
from gossamer.studies.study import Spec, Study, check_folders, experiment_of, needs_folder, nobody
from gossamer.studies.variants import alone, in_one_place, passes_of, with_epsilon, without_noise
from gossamer.studies.workers import Tell, workers_of

FILE = "price.json"
EPSILONS = (0.5, 1.0, 2.0, 4.0)
NOISY, CLEAN, ALONE, ONE_PLACE = "with-noise", "without-noise", "alone", "in-one-place"
"""Settings that are compared, as their folders are called."""
CALLED: Mapping[str, str] = {
    NOISY: "federation with noise",
    CLEAN: "federation without noise",
    ALONE: "each party alone",
    ONE_PLACE: "all rows in one place",
}


@dataclass(frozen=True)
class Price:
    """Scores of the variants of a federation.

    Attributes
    ----------
    study : Study
        The runs.
    guarantee : Guarantee
        Of the federation as its spec has it.
    scores : mapping of str to Scores
        Of the finished runs, by variant.
    left_out : mapping of str to str
        Variants that cannot be run, and why.
    """

    study: Study
    guarantee: Guarantee
    scores: Mapping[str, Scores]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def points(self) -> list[Point]:
        """Scores of the federation with noise, by increasing proved epsilon; nothing where none is proved."""
        noisy = [one for name, one in self.scores.items() if name not in (CLEAN, ALONE, ONE_PLACE)]
        return sorted(
            Point(one.epsilon, one.score.mean, min(one.score.values), max(one.score.values))
            for one in noisy
            if one.epsilon is not None and one.score.mean is not None
        )

    def figure(self) -> Figure | None:
        """Return scores against proved epsilon as a figure; None where nothing is proved.

        Raises
        ------
        DataError
            If the packages that draw it are not installed.
        """
        if not self.points:
            return None
        means = {
            CALLED[name]: self.scores[name].score.mean for name in (ONE_PLACE, CLEAN, ALONE) if name in self.scores
        }
        others = {name: mean for name, mean in means.items() if mean is not None}
        delta = max(one.delta for one in self.scores.values() if one.delta is not None)
        return price_figure(next(iter(self.scores.values())).kind, delta, self.points, others)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as in ``price.json``."""
        return {
            "guarantee": self.guarantee.as_dict(),
            "variants": {name: one.as_dict() for name, one in self.scores.items()},
            "left_out": dict(self.left_out),
            "warning": self.study.added_up(),
            "runs": self.study.described(),
        }


def price(
    spec: Spec,
    *,
    out: str | Path,
    seeds: int = 3,
    epsilons: Sequence[float] = EPSILONS,
    jobs: int | None = None,
    engine: str | None = None,
    address: str | None = None,
    settings: Sequence[str] = (),
    tell: Tell = nobody,
) -> Price:
    """Run a private federation with and without noise, each party alone, and all rows in one place.

    All have the same seeds, and as many passes over the training examples. Runs that ``out`` has the results of
    already are kept.

    Parameters
    ----------
    spec : Experiment, mapping or path
        The federation, with noise.
    out : path
        Folder for the runs' folders, for ``price.json`` and the report.
    seeds : int
        How many runs each variant has.
    epsilons : sequence of float
        Further budgets of the federation, at the spec's delta.
    jobs : int, optional
        Runs at a time, at most; by default one on this machine, and on Ray as many as it has processors.
    engine : str, optional
        Where runs are made: by ``processes`` of this machine, or by ``ray``; by default ``ray`` with an address.
    address : str, optional
        ``HOST:PORT`` of a Ray cluster that this machine is a node of, or ``auto``; by default Ray is started here.
    settings : sequence of str
        Overrides, as ``--set`` takes them.
    tell : callable, optional
        Is called with a line about each run.

    Raises
    ------
    CallerError
        If the spec has no noise, or none that anything is proved of, or cannot be run; nothing has been run.
    """
    study, guarantee, left_out = plan_price(spec, Path(out), seeds, epsilons, jobs, settings, tell)
    with workers_of(engine, jobs, address) as workers:
        study.make(workers, tell)
    found = Price(study, guarantee, study.scores(), left_out)
    study.write(FILE, found.as_dict())
    return found


def plan_price(
    spec: Spec,
    out: Path,
    seeds: int,
    epsilons: Sequence[float],
    jobs: int | None,
    settings: Sequence[str],
    tell: Tell,
) -> tuple[Study, Guarantee, dict[str, str]]:
    """Check every variant and every folder; return the study, its guarantee, and variants that cannot be run."""
    _check_epsilons(epsilons)
    check_runs(len(CALLED) + len(epsilons), seeds, jobs)
    needs_folder(out)
    experiment = _private(experiment_of(spec, settings))
    remarks = Remarks()
    prepared, plan = checked(experiment, NOISY, remarks)
    shared = {NOISY: plan.words.shared}
    left_out: dict[str, str] = {}
    runs: list[StudyRun] = []
    for name, make in _makers(experiment, partial(passes_of, prepared, plan), prepared, epsilons).items():
        try:
            found = make()
            if name not in shared:
                shared[name] = checked(found, name, remarks)[1].words.shared
        except CallerError as problem:
            left_out[name] = str(problem).removeprefix(f"{name}: ")
            continue
        runs += each_seed(name, found, seeds, out, len(runs))
    check_folders(runs)
    for line in [f"warning: {line}" for line in remarks.lines]:
        tell(line)
    for name, why in left_out.items():
        tell(f"{CALLED.get(name, name)} is left out: {why}")
    return Study(out, runs, shared), plan.guarantee, left_out


def _makers(
    experiment: Experiment, passes: Callable[[], float], prepared: Prepared, epsilons: Sequence[float]
) -> dict[str, Callable[[], Experiment]]:
    """Variants by name, from what could be had at best to what a party has anyway."""
    own = None if experiment.budget is None else experiment.budget.epsilon
    further = {f"epsilon={one:g}": partial(with_epsilon, experiment, one) for one in epsilons if one != own}
    return {
        ONE_PLACE: lambda: in_one_place(prepared, passes()),
        CLEAN: lambda: _sound_without_noise(experiment),
        NOISY: lambda: experiment,
        **further,
        ALONE: lambda: alone(prepared, passes()),
    }


def _sound_without_noise(experiment: Experiment) -> Experiment:
    """The federation without noise; with its clip where it cannot be run without."""
    try:
        found = without_noise(experiment)
        checked(found, CLEAN, Remarks())
        return found
    except CallerError:
        return without_noise(experiment, clipped=True)


def _private(experiment: Experiment) -> Experiment:
    """The experiment, if it has noise that something is proved of."""
    if not experiment.private:
        raise SpecError(
            "price compares a federation with and without noise, and this spec says privacy: none; give it a budget, "
            "such as budget: {epsilon: 5, delta: 1.0e-5}, and leave privacy: none out"
        )
    if not experiment.proved:
        raise SpecError("nothing is proved of this spec's noise, so there is no epsilon to pay for; take another noise")
    return experiment.model_copy(update={"personalisation": None})


def _check_epsilons(epsilons: Sequence[float]) -> None:
    wrong = [one for one in epsilons if not 0 < one < math.inf]
    if wrong:
        raise SpecError(f"--epsilons: expected numbers above 0, found {shortened(wrong[0])}; correct it")
    if len({*epsilons}) < len(epsilons):
        raise SpecError("--epsilons: expected each number once, found one twice; leave it out")
