"""The price of privacy and of distance: one federation with and without noise, each party alone, all in one place."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gossamer.algorithms.plan import Plan
from gossamer.algorithms.table import ALONE as ALONE_BASELINE
from gossamer.algorithms.table import TOGETHER, Baseline
from gossamer.errors import CallerError, SpecError, shortened
from gossamer.experiment.preparation.planning import asked_in
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.specs.spec import Experiment
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.files import words_beside
from gossamer.objectives.score_words import commonest
from gossamer.privacy.guarantees import Guarantee, rounded_up
from gossamer.report.curves import PricePoint, price_figure
from gossamer.report.drawing import Figure
from gossamer.studies import study as of
from gossamer.studies.runs import Tell

# Variants of a private federation that its price is read off: without noise, each party alone, all rows in one place.
#
# All look at as many examples as the federation does: so many passes over the training examples, in batches of its
# size. The last two share nothing that is private, so they have no noise: what a party can do by itself anyway, and
# what could be had if privacy and distance were no matter.

_NO_NOISE: Mapping[str, Any] = {"privacy": "none", "budget": None, "personalisation": None}
_RATES = ("local_learning_rate", "learning_rate")
_LEVELS = ("noise_multiplier", "epsilon", "standard_deviation", "agent_noise")


def without_noise(experiment: Experiment, *, clipped: bool = False) -> Experiment:
    """Return the same federation with no noise, and no clip unless it is to stay ``clipped``, as masks need it.

    Raises
    ------
    SpecError
        If its algorithm cannot do without.
    """
    plain = _plain(experiment)
    if "noise" in plain["algorithm"]:
        plain["algorithm"]["noise"] = "none"
    privacy = {"mechanism": "none", "clip": plain["privacy"].get("clip") if clipped else None}
    return parse_spec({**plain, **_NO_NOISE, "privacy": privacy})


def with_epsilon(experiment: Experiment, epsilon: float) -> Experiment:
    """Return the same federation with noise for another budget.

    Raises
    ------
    SpecError
        If its noise meets none.
    """
    plain = _plain(experiment)
    budget = {**(plain.get("budget") or {"delta": experiment.delta}), "epsilon": epsilon}
    privacy = {**plain["privacy"], **dict.fromkeys(_LEVELS)}
    return parse_spec({**plain, "privacy": privacy, "budget": budget, "personalisation": None})


def alone(prepared: Prepared, passes: float) -> Experiment:
    """Return a run in which each party trains on its own examples, and says nothing to anybody."""
    return parse_spec(_baseline(prepared, ALONE_BASELINE, len(prepared.names), passes))


def in_one_place(prepared: Prepared, passes: float) -> Experiment:
    """Return a run of one machine that has all examples."""
    experiment = prepared.experiment
    plain = _baseline(prepared, TOGETHER, 1, passes)
    speeds = {"name": "constant", "seconds": experiment.speeds.seconds}
    return parse_spec({**plain, "partition": "iid", "speeds": speeds, "links": None, "faults": None})


def passes_of(prepared: Prepared, plan: Plan) -> float:
    """Return how often a run looks at its training examples, by its schedule.

    Raises
    ------
    SpecError
        If its algorithm does not count in passes.
    """
    workload, name = prepared.workload, prepared.experiment.algorithm.name
    try:
        workload.updates_in(1.0)
    except SpecError:
        raise SpecError(f"{name} does not count in passes over the examples, so no such run is like it") from None
    asked = asked_in(prepared, plan)
    looked = sum(workload.of(name, i) for name in prepared.names for i in range(asked.get(name, 0)))
    if not looked:
        raise SpecError("no examples are looked at in a run; let it be longer")
    return looked / sum(prepared.shard_sizes.values())


def _baseline(prepared: Prepared, name: str, nodes: int, passes: float) -> dict[str, Any]:
    plain = _plain(prepared.experiment)
    evaluation = {**plain["evaluation"], "every_updates": None, "nodes": None}
    algorithm = {"name": name, "nodes": nodes, **_learning(plain["algorithm"])}
    smallest = min(prepared.shard_sizes.values())
    algorithm["batch_size"] = min(algorithm.get("batch_size", Baseline().batch_size), smallest)
    return {**plain, **_NO_NOISE, "algorithm": algorithm, "evaluation": evaluation, "stop": {"epochs": passes}}


def _learning(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Batch, learning rate and optimizer of an algorithm, as far as a baseline has the like."""
    rate = next((settings[key] for key in _RATES if settings.get(key) is not None), None)
    optimizer = None if _RATES[0] in settings else settings.get("optimizer")
    found = {"batch_size": settings.get("batch_size"), "learning_rate": rate, "optimizer": optimizer}
    kept: dict[str, Any] = {}
    for key, value in found.items():
        try:
            Baseline.model_validate({key: value})
        except ValidationError:
            continue  # such as a schedule over rounds; the baseline's own default stands
        if value is not None:
            kept[key] = value
    return kept


def _plain(experiment: Experiment) -> dict[str, Any]:
    return experiment.model_dump(mode="json")


EPSILONS = (0.5, 1.0, 2.0, 4.0)
NOISY, CLEAN, ALONE, ONE_PLACE = "with-noise", "without-noise", "alone", "in-one-place"
"""Settings that are compared, as their folders are called."""
_WORDS = words_beside(__file__)
CALLED: Mapping[str, str] = _WORDS["called"]


@dataclass(kw_only=True, repr=False)
class Price(of.Study):
    """Variants of a federation, and what came of them.

    Attributes
    ----------
    guarantee : Guarantee
        Guarantee of the federation as its spec has it.
    left_out : mapping of str to str
        Variants that cannot be run, and why.
    """

    FILE = "price.json"
    guarantee: Guarantee
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def points(self) -> list[PricePoint]:
        """Scores of the federation with noise, by increasing proved epsilon; nothing where none is proved."""
        noisy = [one for name, one in self.scores.items() if name not in (CLEAN, ALONE, ONE_PLACE)]
        return sorted(
            PricePoint(one.epsilon, one.score.mean, *_hull(one))
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
        constants = [one.constant for one in self.scores.values() if one.constant is not None]
        if constants:
            others["always the same"] = constants[0]
        delta = max(one.delta for one in self.scores.values() if one.delta is not None)
        return price_figure(next(iter(self.scores.values())).called, delta, self.points, others)

    def called(self, setting: str) -> str:
        return CALLED.get(setting, f"federation, {setting.replace('=', ' ')}")

    def as_dict(self) -> dict[str, Any]:
        return {
            "guarantee": self.guarantee.as_dict(),
            "variants": {name: one.as_dict() for name, one in self.scores.items()},
            "left_out": dict(self.left_out),
            "warning": self.added_up(),
            "runs": self.described(),
        }


def _hull(one: of.Scores) -> tuple[float, float]:
    """Least and largest score of seeds, and of what their intervals reach."""
    ends = [*one.score.values, *(one.interval or ())]
    return min(ends), max(ends)


def price(
    spec: of.Spec,
    *,
    out: str | Path,
    seeds: int = 3,
    epsilons: Sequence[float] = EPSILONS,
    jobs: int | None = None,
    engine: str = "processes",
    settings: Sequence[str] = (),
    tell: Tell = of.nobody,
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
        Number of runs of each variant.
    epsilons : sequence of float
        Further budgets of the federation, at the spec's delta.
    jobs : int, optional
        Runs at a time, at most; by default one on this machine, and on Ray as many as it has processors.
    engine : str
        Engine that makes runs: ``processes`` of this machine, or ``ray``, on the cluster that ``RAY_ADDRESS`` names or
        else started here.
    settings : sequence of str
        Overrides, as ``--set`` takes them.
    tell : callable, optional
        Is called with a line about each run.

    Raises
    ------
    CallerError
        If the spec has no noise, or none that anything is proved of, or cannot be run; nothing has been run.
    """
    planned = plan_price(spec, Path(out), seeds, epsilons, jobs, settings, tell)
    return planned.made_by(engine, jobs, tell)


def plan_price(
    spec: of.Spec,
    out: Path,
    seeds: int,
    epsilons: Sequence[float],
    jobs: int | None,
    settings: Sequence[str],
    tell: Tell,
) -> Price:
    """Check every variant and every folder; return the price, of which no run is made."""
    of.check_runs(1, seeds, jobs)  # before the data are read
    _check_epsilons(epsilons)
    experiment = _private(of.experiment_of(spec, settings))
    remarks, left_out = list[str](), dict[str, str]()
    prepared, plan = of.checked(experiment, NOISY, remarks)
    first = _makers(experiment, partial(passes_of, prepared, plan), prepared, epsilons)
    runs, shared = of.runs_of(out, first, seeds, jobs, tell, remarks, {NOISY: plan.words.shared}, left_out)
    for name, why in left_out.items():
        tell(f"{CALLED.get(name, name)} is left out: {why}")
    return Price(out=out, runs=runs, shared=shared, guarantee=plan.guarantee, left_out=left_out)


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
        of.checked(found, CLEAN, [])
        return found
    except CallerError:
        return without_noise(experiment, clipped=True)


def _private(experiment: Experiment) -> Experiment:
    """The experiment, if it has noise that something is proved of."""
    if not experiment.private:
        raise SpecError(_WORDS["no_noise"])
    if not experiment.proved:
        raise SpecError(_WORDS["nothing_proved"])
    return experiment.model_copy(update={"personalisation": None})


def _check_epsilons(epsilons: Sequence[float]) -> None:
    wrong = [one for one in epsilons if not 0 < one < math.inf]
    if wrong:
        raise SpecError(f"--epsilons: expected numbers above 0, found {shortened(wrong[0])}; correct it")
    if len({*epsilons}) < len(epsilons):
        raise SpecError("--epsilons: expected each number once, found one twice; leave it out")


# The price in plain words: how much worse a score is for privacy and for distance, and how much longer a run takes.


def in_words(price: Price) -> list[str]:
    """Return sentences, each about one part of the price, as far as its runs are finished."""
    scores = price.scores
    said = [_protected(price), *price.diverged()]
    if scores and not any(one.better for name, one in scores.items() if name != ALONE):
        return [*said, _WORDS["no_model"].format(_saying(price))]
    if NOISY in scores and CLEAN in scores:
        said.append(f"Privacy {_priced(scores[NOISY], scores[CLEAN], 'costs')}: {_between(price, CLEAN, NOISY)}.")
        if not scores[NOISY].better:
            said[-1] += f" With noise, the model is no better than {_saying(price)}."
    if CLEAN in scores and ONE_PLACE in scores:
        less, more = scores[ONE_PLACE], scores[CLEAN]
        said.append(
            f"Distance {_priced(more, less, 'costs')}: {_between(price, ONE_PLACE, CLEAN)}. {_resources(more, less)}"
        )
    if NOISY in scores and ALONE in scores:
        gained = _priced(scores[NOISY], scores[ALONE], "costs a party", "gains a party")
        said.append(f"Joining, with noise, {gained}: {_between(price, ALONE, NOISY)}.")
    return said


def _saying(price: Price) -> str:
    """Words on what a constant predictor says."""
    judged = (one.summary().get("scores", {}) for one in price.finished)
    named = next((commonest(found) for found in judged if "classes" in found), None)
    return "saying the same of every row" if named is None else f"always saying {named}"


def rows(price: Price) -> list[tuple[str, ...]]:
    """Return the table: a row for each variant."""
    scores = price.scores
    kind = next((one.called for one in scores.values()), of.ACCURACY)
    columns = ["epsilon", *of.columns_of(scores), "virtual s", "MiB sent"]
    found = [("", *(kind if name == "score" else name for name in columns))]
    for name, one in scores.items():
        figures = one.figures()
        found.append((price.called(name), *(figures.get(column, "-") for column in columns)))
    return found


PRIVATE: str = _WORDS["private"]


def _protected(price: Price) -> str:
    guarantee = price.guarantee
    if math.isinf(guarantee.epsilon):
        return f"Nothing is guaranteed of these runs. {guarantee.proof}"
    return (
        f"Each {guarantee.unit} has epsilon {rounded_up(guarantee.epsilon)} at delta {guarantee.delta:g}, against "
        f"{guarantee.observer}."
    )


def _priced(here: of.Scores, there: of.Scores, worse: str, better: str | None = None) -> str:
    """Say how much a score is ``worse`` than another, or ``better``, if that is more than none."""
    if (lost := _lost(here, there)) is None:
        return "cannot be priced in scores, since a run has none"
    if lost <= 0 and better is None:
        return f"{worse} no {_WORDS['scores'][here.kind]} that these test rows show{_over_seeds(here, there)}"
    if lost < 0:
        return f"{better} {_amount(here, -lost)}{_doubt(there, here, -lost)}"
    return f"{worse} {_amount(here, lost)}{_doubt(here, there, lost)}"


def _lost(worse: of.Scores, better: of.Scores) -> float | None:
    """Return the amount by which a score is less good than another, whichever way it counts."""
    return None if worse.rank is None or better.rank is None else worse.rank - better.rank


def _amount(one: of.Scores, lost: float) -> str:
    what = "points of accuracy" if one.kind == of.ACCURACY else f"of {_WORDS['scores'][one.kind]}"
    return f"{_figure(one, lost)} {what}"


def _figure(one: of.Scores, lost: float) -> str:
    return f"{100 * lost:.1f}" if one.kind == of.ACCURACY else f"{lost:.3g}"


def difference(one: of.Spread, other: of.Spread) -> tuple[float, float] | None:
    """The 95 % interval of a difference of means, by Welch's t; None where values of both are alike, or one of one.

    References
    ----------
    B. L. Welch, "The generalization of Student's problem when several different population variances are involved",
    Biometrika 34 (1947).
    """
    from scipy.stats import ttest_ind  # which takes long to import

    if min(len(one.values), len(other.values)) < 2 or not (one.deviation or other.deviation):
        return None
    low, high = ttest_ind(one.values, other.values, equal_var=False).confidence_interval()
    return float(low), float(high)


def _over_seeds(here: of.Scores, there: of.Scores, lost: float | None = None) -> str:
    """The interval of what is lost over seeds, and whether they decide that something is."""
    ends, fewest = difference(here.score, there.score), min(len(here.score.values), len(there.score.values))
    if ends is None:
        return f", of {f'{fewest} seeds that score alike' if fewest > 1 else 'one seed'}, which decides nothing"
    low, high = ends if here.kind == of.LOSS else (-ends[1], -ends[0])
    seeds = f"{fewest} seeds"
    within = f"{_figure(here, low)} to {_figure(here, high)}"
    if lost is not None and low <= 0 <= high:
        return f", which {seeds} do not tell from none ({within})"
    return f" ({within} over {seeds})"


def _doubt(one: of.Scores, other: of.Scores, lost: float) -> str:
    """The interval over seeds, and whether each score is within the interval of test rows of the other."""
    over = _over_seeds(one, other, lost)
    pairs = [(a.interval, b.score.mean) for a, b in ((one, other), (other, one))]
    within = [ends[0] <= mean <= ends[1] for ends, mean in pairs if ends is not None and mean is not None]
    decided = over.startswith(" (")
    return f"{over}, which is within the intervals of test rows" if decided and within and all(within) else over


def _between(price: Price, first: str, second: str) -> str:
    return ", and ".join(f"{_scored(price.scores[one])} {_WORDS['with'][one]}" for one in (first, second))


def _scored(one: of.Scores) -> str:
    fit = "" if one.r2.mean is None else f" (R2 {one.r2.mean:.3f})"
    figures = one.figures()
    within = f" ({figures['95 %']})" if one.interval is not None and not fit else ""
    return f"{figures['score']}{fit}{within}"


def _resources(more: of.Scores, less: of.Scores) -> str:
    """Compare clock and bytes."""
    sent = (one.size.mean or 0.0 for one in (more, less))
    here, there = (f"{size / 2**20:.3g} MiB" if size else "nothing" for size in sent)
    seconds = (of.number(one.seconds.mean, ".4g") for one in (more, less))
    return f"It takes {next(seconds)} virtual seconds instead of {next(seconds)}, and sends {here} instead of {there}."
