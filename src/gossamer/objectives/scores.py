"""Scores of a model on examples, with intervals and beside those of the constant predictor.

The constant predictor says the same of every example, and knows the examples that it is judged by: the share of each
class, or the mean of the targets (of the mean absolute error their median). What is no better has learnt nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.arrays import BoolArray, Floats, IndexArray, IntArray
from gossamer.data.datasets import Dataset
from gossamer.data.examples import Split
from gossamer.errors import CallerError, DataError, ModelError, real_number, shortened
from gossamer.objectives.figures import (
    LEVEL,
    Figures,
    OfWeights,
    by_unit,
    check_threshold,
    deciding,
    interval,
    measuring,
    predicting,
    ranking,
    recalibrated,
    reliability,
    resamples,
)
from gossamer.objectives.objective import Objective
from gossamer.objectives.score_words import Assessment, first

Fit = dict[str, float | None]
"""Figures of a model, each None where it is no number."""

MOST, FEWEST = 1000, 200
"""Resamples of few examples, and of so many that a thousand would take long."""
_WORK = 20_000_000  # examples by classes by resamples that take about a second


@dataclass(frozen=True, eq=False)
class ScoredSample:
    """Examples that a model has given scores.

    Attributes
    ----------
    scores : ndarray [n, outputs]
        Scores of classes, or one score of the second of two; predictions of real targets, in their own unit.
    targets : ndarray [n]
        Numbers of the right classes, or real targets.
    classes : sequence of str, optional
        Names of the classes; None for real targets.
    likely : ndarray [n, classes], optional
        Probability of each class, where the model knows them.
    persons : ndarray [n], optional
        Person that each example is about.
    """

    scores: Floats
    targets: npt.NDArray[Any]
    classes: Sequence[str] | None = None
    likely: Floats | None = None
    persons: npt.NDArray[Any] | None = None

    def assess(self, threshold: float | None = None) -> Assessment:
        """Return the figures, their 95 % intervals, and those of the constant predictor.

        Intervals are between percentiles of bootstrap resamples, of persons with all their rows where persons are
        known, and of rows otherwise: 1,000 of them, and fewer, at least 200, where rows times classes are over 20,000.
        Draws are the same each time. Shares of 0 and 1, which all resamples have, get the interval of Clopper and
        Pearson, of as many persons or rows.

        Parameters
        ----------
        threshold : float, optional
            Probability of the second of two classes above which it is named; by default a half.

        Returns
        -------
        dict
            ``rows``, ``persons`` (None where they are not known), ``resamples``, ``level`` and ``figures``: of each
            name its ``value``, ``interval``, that of the ``constant`` predictor, and the interval of what is gained
            over it (``gain``: above 0 is better, whichever way the figure counts), each None where there is none. Of
            classes also ``classes``, the ``confusion`` [classes, classes] of true and named ones, and, of two,
            ``threshold``, where it is a probability, and the ``reliability`` curve [groups, 3]; of several ``by_class``
            has figures of each against the rest, whose means over the classes that there are stand among ``figures``.
            ``better`` says whether the interval of the gain in what is judged first (area under the ROC curve, or R2)
            is above 0. Empty where scores are not finite, and of no examples.

        Raises
        ------
        CallerError
            If there is a threshold, but no probability to hold against it, or it is none itself.
        """
        if threshold is not None:
            self._check_probable("a threshold")
            check_threshold(threshold)
        if not len(self.targets) or not np.isfinite(self.scores).all() or not np.isfinite(self.targets).all():
            return {}
        two = self.classes is not None and len(self.classes) == 2
        # Ranks of a million rows are found several times as fast where rows of like ranks lie side by side.
        ordered = self._take(np.argsort(of_second(self.scores), kind="stable")) if two else self
        return ordered._assess(threshold)

    def _assess(self, threshold: float | None) -> Assessment:
        scores, targets, classes, units = self.scores, self.targets, self.classes, self._units()
        many, of, more = int(units.max()) + 1, None if self.persons is None else units, dict[str, Any]()
        if classes is None:
            model, constant = _of_numbers(scores[:, 0].astype(np.float64), targets.astype(np.float64), of)
        else:
            named = named_of(scores, self.likely, threshold)
            more |= {"classes": [*classes], "confusion": _confusion(targets, named, len(classes))}
            if len(classes) == 2:
                limit, ill = 0.5 if threshold is None else threshold, targets == 1
                likely = None if self.likely is None else self.likely[:, 1]
                if likely is not None:
                    more |= {"threshold": limit, "reliability": reliability(likely, ill, np.ones(len(ill))).tolist()}
                pair = _against_rest(of_second(scores), likely, named == 1, ill, bool(ill.mean() > limit), of)
                model, constant = map(_alone, pair)
            else:
                model, constant = _of_classes(scores, self.likely, named, targets, len(classes), of)
        count = min(MOST, max(FEWEST, _WORK // (len(targets) * len(classes or "."))))
        draws, ones = resamples(many, count, np.random.default_rng(0)) if many > 1 else (), np.ones(many)
        kinds = _estimates(model(ones), constant(ones), [(model(one), constant(one)) for one in draws])
        if classes is not None:
            each = [1] if len(classes) == 2 else range(len(classes))
            _without_width(kinds, [_counts(units, named == one, targets == one) for one in each])
        for figure in (one for figures in kinds for one in figures.values()):
            # What all resamples have alike but for rounding, and nothing else tells an interval of, has none.
            low, high = figure["interval"] or (0.0, 1.0)
            if math.isclose(low, high, rel_tol=1e-9):
                figure["interval"] = None
        found: dict[str, Any] = {
            "rows": len(targets),
            "persons": None if self.persons is None else many,
            "resamples": count if many > 1 else 0,
            "level": LEVEL,
            "figures": kinds[0],
            **more,
        }
        if kinds[1:]:
            found["by_class"] = {str(name): one for name, one in zip(classes or (), kinds[1:])}
        gain = found["figures"].get(first(found), {}).get("gain")
        return {**found, "better": None if gain is None else gain[0] > 0}

    def _units(self) -> IntArray:
        """Numbers of those who are independent of each other."""
        if self.persons is None:
            return np.arange(len(self.targets))
        return np.unique(self.persons, return_inverse=True)[1].astype(np.int64)

    def _check_probable(self, what: str) -> None:
        if self.classes is None or len(self.classes) != 2 or self.likely is None:
            found = "real targets" if self.classes is None else f"{len(self.classes)} classes"
            found = "a loss that knows none (hinge)" if self.classes and self.likely is None else found
            raise CallerError(f"{what} needs probabilities of two classes, found a model of {found}; leave it out")

    def grouped(
        self, groups: npt.NDArray[np.str_], column: str, threshold: float | None, least: int
    ) -> dict[str, Assessment]:
        """Return what `assess` finds of each group, by name; those that are too small are one, named for all of them.

        Parameters
        ----------
        groups : ndarray [n] of str
            Group of each example.
        column : str
            Name of the column that they are from, for errors.
        threshold : float, optional
            Threshold as of `assess`.
        least : int
            Fewest persons, or rows where persons are not known, of a group.

        Raises
        ------
        DataError
            If there are more than `MOST_GROUPS`, or the column has fewer persons or rows than a group needs.
        """
        names, number = np.unique(groups, return_inverse=True)
        if len(names) > MOST_GROUPS:
            raise DataError(
                f"by: expected a column of at most {MOST_GROUPS} groups, found {len(names):,} different cells in "
                f"{column!r}; take another, or make groups of them"
            )
        units = self._units()

        def many(*those: int) -> int:
            return len(np.unique(units[np.isin(number, those)]))

        rising = sorted(range(len(names)), key=many)
        merged = [one for one in rising if many(one) < least]
        # What is merged must be large enough, too, or else it follows from all rows and the other groups.
        while merged and many(*merged) < least and len(merged) < len(names):
            merged.append(rising[len(merged)])
        if merged and many(*merged) < least:
            raise DataError(
                f"by: expected at least {least} in a group, found {many(*merged)} in all of {column!r}; give more rows"
            )
        chosen = {names[one] or "(empty)": [one] for one in range(len(names)) if one not in merged}
        if merged:
            chosen[", ".join(sorted(names[one] or "(empty)" for one in merged))] = merged
        return {str(name): self._take(np.isin(number, those)).assess(threshold) for name, those in chosen.items()}

    def _take(self, chosen: BoolArray | IntArray) -> ScoredSample:
        likely, persons = (None if array is None else array[chosen] for array in (self.likely, self.persons))
        return replace(self, scores=self.scores[chosen], targets=self.targets[chosen], likely=likely, persons=persons)

    def cheapest(self, cost: Mapping[str, float]) -> dict[str, float]:
        """Return the threshold that costs least on these examples, and what it and the cheaper constant cost a row.

        Parameters
        ----------
        cost : mapping of str to float
            Cost of each ``false_negative`` and ``false_positive``; one that is not there is 1.

        Returns
        -------
        dict
            ``threshold``, ``cost`` and ``constant_cost`` of a row, and both costs.

        Raises
        ------
        CallerError
            If there are no probabilities of two classes, a cost has another name, or it is no number above 0.
        """
        self._check_probable("a cost")
        check_costs(cost)
        missed, alarmed = (float(cost.get(name, 1.0)) for name in _COSTS)
        assert self.likely is not None
        order = np.argsort(-self.likely[:, 1], kind="stable")
        likely, ill = self.likely[order, 1], self.targets[order] == 1
        # Naming the first k, for k from none to all, as far as those are no equals of the next one.
        costs = missed * (ill.sum() - np.append(0, np.cumsum(ill))) + alarmed * np.append(0, np.cumsum(~ill))
        ends = np.append(np.append(1.0, likely), 0.0)
        thresholds = (ends[1:] + ends[:-1]) / 2
        thresholds[[0, -1]] = 1.0, 0.0
        apart = np.append(np.append(True, likely[1:] < likely[:-1]), True)
        best = int(np.where(apart, costs, np.inf).argmin())
        return {
            "threshold": float(thresholds[best]),
            "cost": float(costs[best] / len(ill)),
            "constant_cost": float(min(costs[0], costs[-1]) / len(ill)),
            **dict(zip(_COSTS, (missed, alarmed))),
        }


def check_costs(cost: Mapping[str, float]) -> None:
    """Raise `CallerError` if a cost has another name, or is no number above 0."""
    if unknown := sorted(set(cost) - set(_COSTS)):
        raise CallerError(f"cost: expected {' or '.join(_COSTS)}, found {shortened(unknown[0])}; correct it")
    if wrong := [value for value in cost.values() if not 0 < real_number(value) < math.inf]:
        raise CallerError(f"cost: expected numbers above 0, found {shortened(wrong[0])}; correct it")


MOST_GROUPS = 50
_COSTS = ("false_negative", "false_positive")
GAINS = {
    **dict.fromkeys(("auroc", "average_precision", "accuracy", "balanced_accuracy", "r2"), 1),
    **dict.fromkeys(("brier", "log_loss", "rmse", "mae"), -1),
}
"""Figures that a constant can be beaten in: 1 where more is better, -1 where less is."""


Kinds = Callable[[Floats], list[Figures]]
"""Figures for weights: of the whole, and then of each class against the rest where there are several."""


def _alone(of: OfWeights) -> Kinds:
    return lambda weights: [of(weights)]


def of_second(scores: Floats) -> Floats:
    """Scores of the second of two classes against the first."""
    return scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]


def _estimates(
    values: list[Figures], constants: list[Figures], drawn: Sequence[tuple[list[Figures], list[Figures]]]
) -> list[dict[str, dict[str, Any]]]:
    """Each figure of each kind, from those of the sample, of the constant, and of both in every resample."""
    kinds = []
    for kind, (value, constant) in enumerate(zip(values, constants)):
        kinds.append(found := dict[str, dict[str, Any]]())
        for name in value:
            here, there = (
                np.concatenate([np.zeros(0), *(pair[which][kind][name] for pair in drawn)]) for which in (0, 1)
            )
            found[name] = {
                "value": _finite(value[name]),
                "interval": interval(here),
                "constant": _finite(constant[name]),
                **({"gain": interval(GAINS[name] * (here - there))} if name in GAINS else {}),
            }
    return kinds


def _without_width(kinds: list[dict[str, dict[str, Any]]], counts: Sequence[Mapping[str, int]]) -> None:
    """Give figures that all resamples have alike an interval that does not follow from resamples.

    Of n independent persons, a row of each of whom is right with probability p, all are right with probability p^n at
    most, however alike the rows of a person are: so the interval of a share of 1 begins where that of Clopper and
    Pearson (Biometrika 26, 1934) does for n rows. An area under the curve of 1 is a share of pairs, as many of them
    independent as have no person in common; and a mean over classes is no less than in one of them. Ends of a mean of
    shares are as far off as those of its parts together (G. Zou and A. Donner, Statistics in Medicine 27, 2008); where
    persons are of several classes, so that parts depend on each other, as those one after another: if the mean is below
    that end, then one part is below its own.
    """
    whole, *classes = kinds
    for figures, many in zip(classes or kinds, counts):
        _exact(figures, many)
    if classes:
        ranked = min((many["auroc"] for many in counts if many["auroc"]), default=0)
        _exact(whole, {"accuracy": counts[0]["accuracy"], "auroc": ranked})
    parts = [one["sensitivity"] for one in classes] or [whole["sensitivity"], whole["specificity"]]
    known = [part for part in parts if part["value"] is not None]
    balanced, ends = whole["balanced_accuracy"], [part["interval"] for part in known]
    if balanced["interval"] is not None and len({*balanced["interval"]}) == 1 and all(ends):
        of = [many["sensitivity"] for many in counts] if classes else [counts[0][name] for name in _AT_LOOKS[:2]]
        order = 2 if sum(of) == counts[0]["accuracy"] else 1
        off = [[abs(part["value"] - part["interval"][end]) for part in known] for end in (0, 1)]
        low, high = (float(np.linalg.norm(one, order)) / len(known) for one in off)
        balanced["interval"] = [balanced["value"] - low, balanced["value"] + high]


def _exact(figures: dict[str, dict[str, Any]], counts: Mapping[str, int]) -> None:
    """Give shares of 0 and 1 the interval of so many persons or rows."""
    for name, many in counts.items():
        if (one := figures.get(name, {})).get("value") in (0.0, 1.0) and many:
            reach = 1 - ((1 - LEVEL) / 2) ** (1 / many)
            one["interval"] = [1 - reach, 1.0] if one["value"] else [0.0, reach]
            if name == "auroc":
                one["gain"] = [end - one["constant"] for end in one["interval"]]
                figures["average_precision"]["interval"] = None  # of which nothing like it is known


def _counts(units: IntArray, named: BoolArray, true: BoolArray) -> dict[str, int]:
    """Number of persons, or rows, that each share is of."""
    everybody, ill, well, *said = (
        int(np.count_nonzero(np.bincount(units[rows]))) for rows in (slice(None), true, ~true, named, ~named)
    )
    return {
        **dict.fromkeys(("accuracy", "prevalence"), everybody),
        **dict(zip(("sensitivity", "specificity", "ppv", "npv"), (ill, well, *said))),
        "auroc": min(ill, well, everybody // 2),
    }


def _finite(value: Floats) -> float | None:
    return float(value) if np.isfinite(value) else None


def named_of(scores: Floats, likely: Floats | None = None, threshold: float | None = None) -> IntArray:
    """Number of the class that each example is said to be of."""
    if threshold is not None and likely is not None:
        return (likely[:, 1] > threshold).astype(np.int64)
    # As in an evaluation: of two classes that share a score the second needs more than zero.
    return (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)


def _confusion(targets: npt.NDArray[Any], named: IntArray, classes: int) -> list[list[int]]:
    pairs = np.bincount(targets.astype(np.int64) * classes + named, minlength=classes**2)
    return pairs.reshape(classes, classes).tolist()


def _together(*parts: OfWeights) -> OfWeights:
    return lambda weights: {name: values for part in parts for name, values in part(weights).items()}


def _against_rest(
    scores: Floats, likely: Floats | None, named: BoolArray, true: BoolArray, always: bool, units: IndexArray | None
) -> tuple[OfWeights, OfWeights]:
    """Figures of one class against the rest, and of a constant that names it ``always`` or never."""
    kinds, two = [ranking(scores, true, units), deciding(named, true, units)], np.array([True, False])
    same = [ranking(np.zeros(2), two), deciding(np.full(2, always), two)]
    if likely is not None:
        kinds.append(predicting(likely, true, recalibrated(likely, true, np.ones(len(true))), units))
        same.append(predicting(np.full(2, true.mean()), two))
    # Whatever is named at a threshold, no constant is more accurate than that which names the commonest.
    commonest = 0 if true.mean() > 0.5 else 1
    same.append(lambda weights: {"accuracy": weights[..., commonest] / weights.sum(axis=-1)})
    both, constant = by_unit([true, ~true], units), _together(*same)
    return _together(*kinds), lambda weights: constant(weights @ both)


def _of_classes(
    scores: Floats,
    likely: Floats | None,
    named: IndexArray,
    targets: npt.NDArray[Any],
    classes: int,
    units: IndexArray | None,
) -> tuple[Kinds, Kinds]:
    """Figures of several classes: means over those that there are, and those of each."""
    counts = np.bincount(targets.astype(np.int64), minlength=classes)
    pairs = [
        _against_rest(
            scores[:, one] if likely is None else likely[:, one],
            None if likely is None else likely[:, one],
            named == one,
            targets == one,
            one == counts.argmax(),
            units,
        )
        for one in range(classes)
    ]
    rows, right = np.arange(len(targets)), named == targets
    parts = {"rows": (np.ones_like(right),) * 2, "accuracy": (right, targets == counts.argmax())}
    if likely is not None:
        shares = np.broadcast_to(counts / len(targets), likely.shape)
        least = np.finfo(np.float64).eps
        parts["log_loss"] = tuple(-np.log(np.maximum(p[rows, targets], least)) for p in (likely, shares))
    columns = [by_unit(which, units) for which in zip(*parts.values(), strict=True)]

    def of(which: int) -> Kinds:
        def found(weights: Floats) -> list[Figures]:
            each = [pair[which](weights) for pair in pairs]
            means = {name: _over_classes([one[name] for one in each]) for name in _MEANS if name in each[0]}
            whole, *sums = np.moveaxis(weights @ columns[which], -1, 0)
            own = {name: total / whole for name, total in zip([*parts][1:], sums, strict=True)}
            means["balanced_accuracy"] = _over_classes([one["sensitivity"] for one in each])
            return [means | own, *({name: one[name] for name in _BY_CLASS if name in one} for one in each)]

        return found

    return of(0), of(1)


_MEANS = ("auroc", "average_precision", "brier")
_BY_CLASS = (*_MEANS, "sensitivity", "specificity", "ppv", "prevalence", "mean_predicted")


def _over_classes(values: Sequence[Floats]) -> Floats:
    """Mean over those classes that have the figure."""
    every = np.stack(values)
    known = np.isfinite(every)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(known, every, 0.0).sum(axis=0) / known.sum(axis=0)
    return mean


def _of_numbers(predicted: Floats, targets: Floats, units: IndexArray | None) -> tuple[Kinds, Kinds]:
    said = (predicted, *(np.full(len(targets), same) for same in (targets.mean(), np.median(targets))))
    model, mean, median = (measuring(one, targets, units) for one in said)

    def constant(weights: Floats) -> list[Figures]:
        found, middle = mean(weights), median(weights)
        return [found | {"mae": middle["mae"], "mean_error": np.zeros_like(found["rmse"])}]

    return lambda weights: [model(weights)], constant


# Figures of a moment of a run, which are cheap.


def fit_figures(objective: Objective, model: npt.NDArray[Any], dataset: Dataset, test: Split | None = None) -> Fit:
    """Return figures of a model on test examples, each with ``test_`` before its name.

    Of classes these are balanced accuracy and the accuracy of always naming the commonest one; of two also sensitivity
    and specificity, the area under the ROC curve and average precision; of real targets RMSE, R2, the mean absolute
    error and the mean error, in the target's own unit.

    Parameters
    ----------
    objective : Objective
        Objective that was minimised; of one that predicts nothing, or several targets a row, there are no figures.
    model : ndarray [size]
        Parameters of the model.
    dataset : Dataset
        Data set that says whether there are classes, and the unit of targets.
    test : Split, optional
        Test examples; by default those of ``dataset``.
    """
    examples = dataset.test if test is None else test
    if not len(examples) or examples.targets.ndim > 1:
        return {}
    try:
        with np.errstate(all="ignore"):
            scores = np.asarray(objective.scores(model, examples.features), np.float64)
    except ModelError:
        return {}
    if dataset.classes is not None:
        found = class_figures(scores, examples.targets, dataset.classes)
    else:
        unit = 1.0 if dataset.target_range is None else dataset.target_range.unit
        predicted, targets = scores[:, 0] * unit, examples.targets.astype(np.float64) * unit
        found = {name: _finite(value) for name, value in measuring(predicted, targets)(np.ones(len(targets))).items()}
    return {f"test_{name}": value for name, value in found.items()}


def class_figures(scores: Floats, targets: npt.NDArray[Any], classes: int) -> Fit:
    """Return figures of scores [n, outputs] of classes; see `fit_figures`."""
    if not len(targets) or not np.isfinite(scores).all():
        return {}
    named, ones = named_of(scores), np.ones(len(targets))
    truth = np.asarray(targets).astype(np.int64)
    there = np.bincount(truth, minlength=classes)
    found = np.bincount(truth[named == truth], minlength=classes) / np.maximum(there, 1)
    figures: Fit = {
        "constant_accuracy": float(there.max() / len(truth)),
        "balanced_accuracy": float(found[there > 0].mean()),
    }
    if classes != 2:
        return figures
    more = ranking(of_second(scores), truth == 1)(ones) | deciding(named == 1, truth == 1)(ones)
    return figures | {name: _finite(more[name]) for name in _AT_LOOKS}


_AT_LOOKS = ("sensitivity", "specificity", "auroc", "average_precision")
