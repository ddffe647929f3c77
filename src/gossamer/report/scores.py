"""Scores of runs with their intervals, beside those of the constant predictor, and how right probabilities were; and
those that parties released of held-out examples.

Axes reach as far as intervals do, and shares have the whole of theirs, so no figure makes more of a difference than the
test rows tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gossamer.errors import DataError, counted
from gossamer.objectives.released_scores import FILE, ReleasedScores
from gossamer.objectives.score_words import LABELS, said_first, shown, table_of, table_of_groups, within
from gossamer.privacy.guarantees import rounded_up
from gossamer.report import drawing
from gossamer.report.records import RunRecord

_DRAWN = (
    *("auroc", "average_precision", "accuracy", "balanced_accuracy"),
    *("sensitivity", "specificity", "ppv", "npv", "r2"),
)
"""Figures of one scale, on which 1 is perfect."""


def _intervals(run: str, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name in _DRAWN:
        one = found.get("figures", {}).get(name)
        if one is None or one["value"] is None or one["interval"] is None:
            continue
        low, high = map(float, one["interval"])
        row = {"run": run, "figure": LABELS[name].words, "value": float(one["value"]), "low": low, "high": high}
        rows.append(row | ({} if one["constant"] is None else {"constant": float(one["constant"])}))
    return rows


def remarks(records: Sequence[RunRecord]) -> list[str]:
    """Return what must be known before any score is looked at, by run."""
    return [f"{record.name}: {line}" for record in records for line in said_first(record.scores)]


def scores(records: Sequence[RunRecord], public: bool) -> drawing.PageSection | None:
    """Return what test examples tell of the runs' models, and how well; nothing in public."""
    if public or not (rows := rows_of(records)):
        return None
    intervals = [row for record in records for row in _intervals(record.name, record.scores)]
    curves = [
        {"run": record.name, "predicted": float(mean), "came": float(share), "rows": float(count)}
        for record in records
        for mean, share, count in record.scores.get("reliability", ())
    ]
    figures = [draw(found) for draw, found in ((_of_intervals, intervals), (_of_reliability, curves)) if found]
    values = {"rows": rows, "groups": dict(groups_of(records)), "shown": drawing.Shown.PRIVATE}
    return drawing.PageSection("scores", "Scores", figures, "scores.html", values)


def groups_of(records: Sequence[RunRecord]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield, for each run and column that groups are by, what they are by, and rows of a table."""
    for record in records:
        for column, groups in record.scores.get("groups", {}).items():
            heading, *rows = table_of_groups(column, groups)
            title = f"by {column}" if len(records) == 1 else f"{record.name}, by {column}"
            yield title, [dict(zip(heading, row, strict=True)) for row in rows]


def rows_of(records: Sequence[RunRecord]) -> list[dict[str, str]]:
    """Rows of a table, by heading: each figure of the run's model, or of those of the first runs, a column each."""
    tested = [record for record in records if record.scores.get("figures")]
    if len(tested) == 1:
        heading, *rows = table_of(tested[0].scores)
        return [dict(zip(heading, row, strict=True)) for row in rows]
    if not (held := {record.name: record.scores["figures"] for record in tested[:_COMPARED]}):
        return []
    found = {record.name: counted(record.scores["rows"], "row", form=",") for record in tested[:_COMPARED]}
    return [{_HEADING: "number of test rows", **found}] + [
        {_HEADING: label.words, **{run: _beside_constant(name, one.get(name)) for run, one in held.items()}}
        for name, label in LABELS.items()
        if any(name in one for one in held.values())
    ]


def _beside_constant(name: str, one: Mapping[str, Any] | None) -> str:
    if one is None or one["value"] is None:
        return drawing.NOTHING
    return within(name, one) + ("" if one["constant"] is None else f"; constant {shown(name, one['constant'])}")


_COMPARED = 3
"""Most runs that the table has a column of; more are too many for a sheet of paper."""
_HEADING = "value, 95 % interval; constant"


def _of_intervals(rows: list[dict[str, Any]]) -> drawing.Figure:
    alt = drawing.altair()
    runs, names = (list(dict.fromkeys(row[key] for row in rows)) for key in ("run", "figure"))
    # One that diverged may have an R2 of minus a million, and would leave the others no room.
    low = max(-1.0, min(0.0, *(row["low"] for row in rows)))
    upwards = alt.Y("figure:N", title=None, sort=names, axis=alt.Axis(labelLimit=220))
    base = drawing.chart_of(rows).encode(y=upwards, yOffset=alt.YOffset("run:N", sort=runs))
    # One column: the chart takes its height before the names of figures have taken of its width.
    apart = drawing.told_apart("run", runs, **drawing.within_width(runs) | {"columns": 1})
    across = alt.Scale(domain=[low, 1], nice=False, clamp=True)
    value, constant = (alt.X(f"{key}:Q", scale=across) for key in ("value", "constant"))
    tooltip = ["run:N", "figure:N", *drawing.numbers(".3f", "value", "low", "high")]
    ticks = base.transform_filter("isValid(datum.constant)").mark_tick(thickness=3, color=drawing.COLOURS[-1])
    layers = [
        base.mark_rule(size=2).encode(x=alt.X("low:Q", title=_ACROSS, scale=across), x2="high:Q", **apart),
        base.mark_circle(size=60, opacity=1).encode(x=value, color=apart["color"], tooltip=tooltip),
        ticks.encode(x=constant, tooltip=["figure:N", *drawing.numbers(".3f", "constant")]),
    ]
    said = "; ".join(
        f"{row['run'] + ', ' if runs[1:] else ''}{row['figure']}: "
        f"{row['value']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
        for row in rows[:_SAID]
    )
    title = "Scores of the runs' models" if runs[1:] else "Scores of the run's model"
    height = max(120, 26 * len(names) * min(len(runs), 4))
    return drawing.Figure.of(
        "scores",
        title,
        f"{title} on test examples ({_TICK}): {said}.",
        drawing.Shown.PRIVATE,
        alt.layer(*layers),
        rows,
        height,
    )


_ACROSS = "95 % interval"  # short, or on a phone it takes the chart's place
_TICK = "a grey tick: saying the same of every row"
_SAID = 9


def _of_reliability(rows: list[dict[str, Any]]) -> drawing.Figure:
    alt = drawing.altair()
    runs = list(dict.fromkeys(row["run"] for row in rows))
    most = max(max(row["predicted"], row["came"]) for row in rows)
    scale = alt.Scale(domain=[0, most], nice=True)
    apart = drawing.told_apart("run", runs, **drawing.within_width(runs))
    right = [{"predicted": 0.0, "came": 0.0}, {"predicted": most, "came": most}]
    x = alt.X("predicted:Q", title="predicted, mean of a tenth of the rows", scale=scale)
    y = alt.Y("came:Q", title="how often it came", scale=scale)
    tooltip = ["run:N", *drawing.numbers(".3~g", "predicted", "came", "rows")]
    layers = [
        drawing.chart_of(right).mark_line(strokeDash=[4, 4], color=drawing.COLOURS[-1]).encode(x=x, y=y),
        drawing.chart_of(rows).mark_line(point=True).encode(x=x, y=y, tooltip=tooltip, **apart),
    ]
    said = ", ".join(f"{row['came']:.3g} where {row['predicted']:.3g} was predicted" for row in rows[:10])
    title = "How right probabilities are"
    words = f"{title}: on the dashed line what was predicted came as often. {runs[0]}: it came {said}."
    return drawing.Figure.of("reliability", title, words, drawing.Shown.PRIVATE, alt.layer(*layers), rows, 280)


# Figures that parties released of held-out examples, with intervals: a public page may show them as well.

_AT = ("sensitivity", "specificity", "ppv")
_TOLD = ("auroc", "average_precision", "brier", "calibration_intercept", "calibration_slope", *_AT)


def private_evaluation(records: Sequence[RunRecord], public: bool) -> drawing.PageSection | None:
    """Return the tables of runs whose parties released how their held-out examples are scored.

    In public without those of which nothing is guaranteed: without noise they are exact scores on test examples.
    """
    found = {name: one for name, one in _released(records).items() if one and not (public and one["epsilon"] is None)}
    if not found:
        return None
    tables = {
        name: [_released_row(who, figures, one.get("threshold", 0.5)) for who, figures in _parts(one).items()]
        for name, one in found.items()
    }
    epsilons = {name: None if one["epsilon"] is None else rounded_up(one["epsilon"]) for name, one in found.items()}
    values = {"tables": tables, "noise": epsilons, "told": found}
    return drawing.PageSection("evaluation", "Private evaluation", (), "evaluation.html", values)


def _released(records: Sequence[RunRecord]) -> dict[str, Any]:
    """Figures by run; of parties of one deployed run together, made of what each has in its folder."""
    found: dict[str, Any] = {}
    parts: dict[str, list[ReleasedScores]] = {}
    for record in records:
        told = record.summary.get("private_evaluation")
        own = ReleasedScores.read(record.path) if told else None
        if own is not None and (own.run or record.threshold is not None):
            parts.setdefault(f"run {own.run}" if own.run else record.name, []).append(own)
        elif told and record.threshold is not None:
            raise DataError(f"{record.path}: --threshold needs its {FILE}, found none; give the whole folder")
        elif told:
            found[record.name] = told
    at = next((record.threshold for record in records if record.threshold is not None), 0.5)
    return found | {name: ReleasedScores.together(of).summary(at) for name, of in parts.items()}


def _parts(found: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of all, of each group, and of each party where there are several."""
    each = found["parties"] if len(found["parties"]) > 1 else {}
    whole = "these parties" if found.get("missing") else "all parties"
    return {whole: found["figures"], **found.get("groups", {}), **each}


def _released_row(name: str, figures: Mapping[str, Mapping[str, float | None]], at: float) -> dict[str, str]:
    cells = {key: _cell(key, figures.get(key, {})) for key in _TOLD}
    if (same := figures.get("constant_brier", {}).get("value")) is not None:
        cells["brier"] += f"; constant {shown('brier', same)}"
    words = {key: LABELS[key].words + (f" at {at:.3g}" if key in _AT else "") for key in _TOLD}
    return {"held-out examples of": name, **{words[key]: cell for key, cell in cells.items()}}


def _cell(name: str, one: Mapping[str, float | None]) -> str:
    """A figure with its interval."""
    value, low, high = (one.get(end) for end in ("value", "low", "high"))
    if low is None or high is None:
        return drawing.NOTHING if value is None else shown(name, value)
    return f"{'unknown' if value is None else shown(name, value)} ({shown(name, (low, high))})"
