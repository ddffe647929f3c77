"""Scores in words: a table, what stands above it, and what may help.

Whoever reads scores must not take those of a constant predictor for those of a model that has learnt something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gossamer.errors import counted

Assessment = Mapping[str, Any]
"""What `gossamer.objectives.scores.ScoredSample.assess` finds, as JSON has it."""
FIRST = ("auroc", "r2")
"""Figures that a model is judged by first, whichever it has: neither a threshold nor a clip makes them look good."""


class Label(NamedTuple):
    """Words on a figure.

    Attributes
    ----------
    words : str
        Name in words.
    form : str
        Format of its values.
    brief : bool
        Whether it is among the few that a run prints.
    short : str
        Few words, of those that are shown of groups.
    """

    words: str
    form: str = "z.3f"
    brief: bool = True
    short: str = ""


LABELS: Mapping[str, Label] = {
    "auroc": Label("area under the ROC curve", short="ROC area"),
    "average_precision": Label("average precision"),
    "brier": Label("Brier score", "z.4f"),
    "constant_brier": Label("a constant's Brier score", "z.4f"),
    "log_loss": Label("log loss", "z.4f", False),
    "prevalence": Label("share of the outcome", brief=False, short="outcome"),
    "mean_predicted": Label("mean predicted probability", short="predicted"),
    "calibration_slope": Label("calibration slope", "z.2f"),
    "calibration_intercept": Label("calibration intercept", "z.2f"),
    "accuracy": Label("accuracy"),
    "balanced_accuracy": Label("balanced accuracy"),
    "sensitivity": Label("sensitivity", short="sensitivity"),
    "specificity": Label("specificity", short="specificity"),
    "ppv": Label("positive predictive value", brief=False),
    "npv": Label("negative predictive value", brief=False),
    "r2": Label("R2", short="R2"),
    "rmse": Label("RMSE", "z.4g"),
    "mae": Label("mean absolute error", "z.4g", short="mean abs. error"),
    "mean_error": Label("mean error", "z.3g", short="mean error"),
}
"""Figures by name, in the order in which they are shown."""


def first(found: Assessment) -> str:
    """Name of the figure that an assessment judges by; empty where it has none."""
    figures = found.get("figures", {})
    return next((name for name in FIRST if figures.get(name, {}).get("value") is not None), "")


def table_of(found: Assessment, *, brief: bool = False) -> list[tuple[str, ...]]:
    """Rows of a table: each figure with its interval, and that of the constant predictor."""
    if not found:
        return []
    persons = found["persons"]
    of = f"of {counted(found['rows'], 'row', form=',')}"
    of += "" if persons is None else f" of {counted(persons, 'person', form=',')}"
    rows: list[tuple[str, ...]] = [(of, "model", f"{100 * found['level']:g} % interval", "constant")]
    for name, label in LABELS.items():
        if (one := found["figures"].get(name)) and (label.brief or not brief):
            rows.append((label.words, *(shown(name, one[part]) for part in ("value", "interval", "constant"))))
    return rows


def shown(name: str, value: float | Sequence[float] | None) -> str:
    """A value of a figure, or an interval, in words; a dash where there is none."""
    if value is None:
        return "-"
    values = [value] if isinstance(value, int | float) else value
    # Of a model that diverged a figure may have dozens of digits.
    return " to ".join(f"{one:{LABELS[name].form if abs(one) < 1e6 else '.3g'}}" for one in values)


def check(found: Assessment) -> None:
    """Raise a `KeyError`, `TypeError` or `ValueError` if this is no assessment, such as in a file that was edited."""
    said_first(found)
    table_of(found)
    for one in found.get("figures", {}).values():
        if one["interval"] is not None:
            _low, _high = one["interval"]
    for _mean, _share, _rows in found.get("reliability", ()):
        f"{_mean:g}{_share:g}{_rows:g}"
    for column, groups in found.get("groups", {}).items():
        table_of_groups(column, groups)


def reliability_table(found: Assessment) -> list[tuple[str, ...]]:
    """Rows of a table: how often the outcome came where so much was predicted."""
    rows = [("predicted", "came", "rows")]
    return [*rows, *((f"{mean:.3f}", f"{share:.3f}", f"{count:,.0f}") for mean, share, count in found["reliability"])]


def table_of_groups(column: str, groups: Mapping[str, Assessment]) -> list[tuple[str, ...]]:
    """Rows of a table: a few figures of each group of rows."""
    known = [
        name
        for name, label in LABELS.items()
        if label.short and any(name in one.get("figures", {}) for one in groups.values())
    ]
    heads = (LABELS[name].short for name in known)
    rows: list[tuple[str, ...]] = [(f"by {column}", "rows", *heads)]
    for group, one in groups.items():
        figures = one.get("figures", {})
        cells = (within(name, figures[name]) if name in figures else "-" for name in known)
        rows.append((group, f"{one.get('rows', 0):,}", *cells))
    return rows


def within(name: str, one: Mapping[str, Any]) -> str:
    """A figure with its interval."""
    ends = one["interval"]
    return shown(name, one["value"]) + ("" if ends is None or one["value"] is None else f" ({shown(name, ends)})")


def said_first(found: Assessment) -> list[str]:
    """Lines that stand above all figures: that a model is no better than a constant, or that nothing can tell."""
    if not found:
        return []
    name, rows = first(found), counted(found["rows"], "row", form=",")
    if "classes" in found and name != "auroc":
        return [f"There is one class alone in {rows}, so the area under the ROC curve has no value."]
    if found["better"] is not False:
        return []
    one = found["figures"][name]
    line = (
        f"No better than saying the same of every row, as far as {rows} tell: {LABELS[name].words} "
        f"{within(name, one)}, where that has {shown(name, one['constant'])}."
    )
    if (accuracy := found["figures"].get("accuracy")) and (accuracy["gain"] or (0,))[0] <= 0:
        line += (
            f" Always saying {commonest(found)} has an accuracy of {accuracy['constant']:.3f}, and the model has "
            f"{accuracy['value']:.3f}."
        )
    return [line]


def commonest(found: Assessment) -> str:
    """Name of the class that most examples are of."""
    counts = [sum(row) for row in found["confusion"]]
    return str(found["classes"][counts.index(max(counts))])


def warnings_of(found: Assessment) -> list[str]:
    """Lines on what scores cannot tell, and on what may help a model that is no better than a constant."""
    return [*_one_sided(found.get("of_one_class", ())), *_advice(found)]


def _one_sided(owners: Sequence[str]) -> list[str]:
    if not owners:
        return []
    more = f" and {counted(len(owners) - 1, 'other')}" if owners[1:] else ""
    return [
        f"all held-out rows of {owners[0]}{more} are of one class, so nothing tells how the model ranks there; hold "
        "out more (dataset.test_fraction), or rows of both"
    ]


def _advice(found: Assessment) -> list[str]:
    """Advice on a model that is no better than a constant; none of few examples."""
    if not found or found["rows"] < _ENOUGH or found["better"] is None:
        return []
    figures, more = found["figures"], "train longer, or take a larger budget or more rows"
    if not found["better"]:
        error = figures.get("mean_error", {}).get("value")
        if error is None:
            return [f"the model is no better than saying the same of every row; {more}"]
        return [
            f"the model is no better than the mean of the targets, and its predictions are too "
            f"{'low' if error < 0 else 'high'} by {abs(error):.3g} on average; where the clip shortens most errors a "
            "model fits something near the median: raise privacy.clip and lower algorithm.learning_rate, or take a "
            "larger budget or more rows"
        ]
    accuracy = figures.get("accuracy")
    chosen = found.get("threshold", 0.5) != 0.5
    if accuracy is None or chosen or accuracy["gain"] is None or accuracy["gain"][0] > 0 or accuracy["constant"] == 1:
        return []
    # Only probabilities of two classes can be held against a threshold.
    advice = "choose a threshold of your own: gossamer evaluate RUN ROWS --threshold"
    return [
        f"the accuracy of {accuracy['value']:.3f} is no better than always saying {commonest(found)}, which has "
        f"{accuracy['constant']:.3f}; the model does rank rows (area under the ROC curve "
        f"{shown('auroc', figures['auroc']['value'])}), so {advice if 'threshold' in found else more}"
    ]


_ENOUGH = 30
"""Fewest rows of which a model's worth is judged in a warning."""
