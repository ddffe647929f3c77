"""Figures that parties released of held-out examples, with intervals: a public page may show them as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gossamer.objectives.released_scores import ReleasedScores
from gossamer.objectives.score_words import LABELS, shown
from gossamer.privacy.guarantees import rounded_up
from gossamer.report.drawing import NOTHING, PageSection
from gossamer.report.records import RunRecord

_AT_A_HALF = ("sensitivity", "specificity")
_SAID = (
    *("auroc", "average_precision", "brier", "constant_brier"),
    *("calibration_intercept", "calibration_slope", *_AT_A_HALF),
)
_WORDS = {name: LABELS[name].words + (" at 0.5" if name in _AT_A_HALF else "") for name in _SAID}


def private_evaluation(records: Sequence[RunRecord], public: bool) -> PageSection | None:
    """Return the tables of runs whose parties released how their held-out examples are scored.

    In public without those of which nothing is guaranteed: without noise they are exact scores on test examples.
    """
    found = {name: one for name, one in _released(records).items() if one and not (public and one["epsilon"] is None)}
    if not found:
        return None
    tables = {
        name: [_row("these parties" if one.get("missing") else "all parties", one["figures"]), *_parts(one)]
        for name, one in found.items()
    }
    epsilons = {name: None if one["epsilon"] is None else rounded_up(one["epsilon"]) for name, one in found.items()}
    missing = {name: one["missing"] for name, one in found.items() if one.get("missing")}
    together = [name for name, one in found.items() if one.get("together")]
    values = {"tables": tables, "noise": epsilons, "missing": missing, "together": together}
    return PageSection("evaluation", "Private evaluation", (), "evaluation.html", values)


def _released(records: Sequence[RunRecord]) -> dict[str, Any]:
    """Figures by run; of parties of one deployed run together, made of what each has in its folder."""
    found: dict[str, Any] = {}
    parts: dict[str, list[ReleasedScores]] = {}
    for record in records:
        told = record.summary.get("private_evaluation")
        if told and (own := ReleasedScores.read(record.path)) is not None and own.run:
            parts.setdefault(f"run {own.run}", []).append(own)
        elif told:
            found[record.name] = told
    return found | {name: ReleasedScores.together(of).summary() for name, of in parts.items()}


def _parts(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """Rows of each group, and of each party where there are several."""
    each = found["parties"] if len(found["parties"]) > 1 else {}
    return [_row(name, figures) for name, figures in {**found.get("groups", {}), **each}.items()]


def _row(name: str, figures: Mapping[str, Mapping[str, float | None]]) -> dict[str, str]:
    return {"held-out examples of": name, **{said: _cell(key, figures.get(key, {})) for key, said in _WORDS.items()}}


def _cell(name: str, one: Mapping[str, float | None]) -> str:
    """A figure with its interval."""
    value, low, high = (one.get(end) for end in ("value", "low", "high"))
    if low is None or high is None:
        return NOTHING if value is None else shown(name, value)
    return f"{'unknown' if value is None else shown(name, value)} ({shown(name, (low, high))})"
