"""The trade-off curve: how often an attacker must miss, for each rate of false alarms, by all that is proved.

Beside it stand what a paper claims of the run, as far as a pair of epsilon and delta can be drawn, and what audits have
measured: an epsilon that the run is not below, or an attack's own false alarms and misses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gossamer.bounded import read_text
from gossamer.privacy.guarantee_card import FILE, LARGEST, GuaranteeCard, GuaranteeEntry, read_guarantee_card
from gossamer.privacy.guarantees import rounded_up
from gossamer.privacy.profile import NOTHING, PrivacyProfile
from gossamer.report.figure import TICKS, Figure, Shown, altair
from gossamer.report.records import RunRecord


@dataclass(frozen=True)
class Proved:
    """Everything that is proved of runs.

    Attributes
    ----------
    card : GuaranteeCard
        Guarantees by observer.
    runs : tuple of RunRecord
        Runs for which it is the same.
    """

    card: GuaranteeCard
    runs: tuple[RunRecord, ...]

    @property
    def first(self) -> GuaranteeEntry:
        """The guarantee that the noise is planned for."""
        return self.card.guarantees[0]


def proved_of(records: Sequence[RunRecord]) -> list[Proved]:
    """Return what is proved, once for all runs of which it is the same; nothing of runs that do not say it.

    Raises
    ------
    DataError
        If a card is damaged, or of another version.
    """
    found: dict[str, Proved] = {}
    for record in records:
        file = record.path / FILE
        if file.exists():
            card = read_guarantee_card(read_text(file, LARGEST), file)
            key = _same_for_all(card)
            found[key] = Proved(card, (*(found[key].runs if key in found else ()), record))
    return list(found.values())


def _same_for_all(card: GuaranteeCard) -> str:
    """All that a card says but for what names its run."""
    text = card.model_copy(update={"receipts": None, "software": None}).to_json()
    return text.replace(f'"run": {json.dumps(card.guarantees[0].run, ensure_ascii=False)}', "")


_ALARMS = np.unique(np.concatenate([np.geomspace(1e-3, 0.1, 24), np.linspace(0, 1, 61)]))
_CLAIMS = 3


class Line(NamedTuple):
    """A curve of the figure.

    Attributes
    ----------
    name : str
        Name in the legend.
    dash : list of int
        Dashes that it is drawn with.
    profile : PrivacyProfile
        Profile of its losses.
    words : str
        Message of the curve.
    """

    name: str
    dash: list[int]
    profile: PrivacyProfile
    words: str


class Point(NamedTuple):
    """An attack that was made."""

    name: str
    alarms: float
    misses: float


def trade_off(found: Proved, name: str, *, public: bool = False) -> Figure:
    """Return the figure of what is proved; with ``public``, without what audits measured."""
    lines = [*_proved(found.first), *_claimed(found)]
    audits = {} if public else _audits(found)
    measured = [*_bounds(audits)]
    points = [*_attacks(audits)]
    rows = [
        {"curve": line.name, "false alarms": _short(at), "misses": _short(miss)}
        for line in [*lines, *measured]
        for at, miss in zip(_ALARMS, line.profile.miss_rate(_ALARMS), strict=True)
    ]
    marks = [{"attack": one.name, "false alarms": _short(one.alarms), "misses": _short(one.misses)} for one in points]
    words = " ".join(
        [
            "False alarms against misses of whoever tries to find out: the higher the curve, the better.",
            *(line.words for line in [*lines, *measured]),
            *(f"{one.name}: {one.alarms:.3g} false alarms, {one.misses:.3g} misses." for one in points),
        ]
    )
    shown = Shown.PRIVATE if measured or points else Shown.PUBLIC
    return Figure(
        name, "What an attacker must get wrong", words, shown, _spec([*lines, *measured], rows, marks), [*rows, *marks]
    )


def _proved(entry: GuaranteeEntry) -> Iterator[Line]:
    name = "proved" if entry.privacy is None else "proved: nothing"
    yield Line(name, [], entry.profile.profile, _said(entry))
    if entry.would_be is not None:
        would_be = entry.would_be
        yield Line("with a noise secret", [8, 4], would_be.profile.profile, f"With a noise secret: {_said(would_be)}")
    yield Line("guessing", [2, 3], NOTHING, "On the line of guessing nothing is learnt.")


def _said(entry: GuaranteeEntry) -> str:
    if entry.privacy == "none":
        return "Nothing is proved: an attacker may make no mistake at all."
    misses = float(entry.profile.profile.miss_rate(np.array([0.05]))[()].item())
    return f"Proved: with 5 false alarms in 100, at least {math.floor(1000 * misses) / 10:g} misses in 100."


def _claimed(found: Proved) -> Iterator[Line]:
    """Curves of papers' claims whose conditions hold; a large epsilon lies along the axes."""
    claims = found.runs[0].summary["privacy"].get("claims") or []
    drawn = [one for one in claims if one.get("valid") is True and isinstance(one.get("epsilon"), int | float)]
    for claim in drawn[:_CLAIMS]:
        epsilon, delta, theorem = float(claim["epsilon"]), float(claim.get("delta") or 0.0), str(claim.get("theorem"))
        profile = PrivacyProfile.of_points([(epsilon, delta)])
        said = f"{theorem} claims epsilon {rounded_up(epsilon)} at delta {delta:g}, which is not proved here."
        yield Line(f"claimed: {theorem}", [6, 2, 2, 2], profile, said)


# Audits


def _audits(found: Proved) -> Mapping[str, Any]:
    """Audits of the first run that has some."""
    for run in found.runs:
        audits = run.summary["privacy"].get("audits")
        if isinstance(audits, Mapping) and audits:
            return audits
    return {}


def _bounds(audits: Mapping[str, Any]) -> Iterator[Line]:
    audit = audits.get("one_run")
    if not isinstance(audit, Mapping) or not isinstance(bound := audit.get("epsilon_lower_bound"), int | float):
        return
    sure = f"{100 * float(audit.get('confidence', 0)):g} %"
    guesses = f"{audit.get('correct')} of {audit.get('guesses')} guesses were right"
    if audit.get("refuted"):
        verdict = "This contradicts what is proved: please report it."
    else:
        verdict = "That does not contradict what is proved."
    said = f"The audit with canaries, where {guesses}, is {sure} sure that epsilon is at least {bound:.3g}. {verdict}"
    profile = PrivacyProfile.of_points([(float(bound), float(audit.get("delta") or 0.0))])
    yield Line(f"measured: at least this leaks ({sure} sure)", [1, 3], profile, said)


def _attacks(audits: Mapping[str, Any]) -> Iterator[Point]:
    audit = audits.get("membership")
    if not isinstance(audit, Mapping):
        return
    for rate in (0.001, 0.01):
        hits = audit.get(f"tpr_at_fpr_{rate:g}")
        if isinstance(hits, int | float):
            yield Point("measured: membership by the loss", rate, 1 - float(hits))


# Drawing


def _spec(lines: list[Line], rows: list[dict[str, Any]], marks: list[dict[str, Any]]) -> dict[str, Any]:
    alt = altair()
    names = [line.name for line in lines]
    legend = alt.Legend(orient="bottom", columns=1, labelLimit=320, symbolType="stroke", symbolSize=400)
    across = alt.X(
        "false alarms:Q",
        title="false alarms",
        axis=alt.Axis(format="%", tickCount=alt.ExprRef(f"min(5, {TICKS})")),
        scale=alt.Scale(domain=[0, 1]),
    )
    up = alt.Y("misses:Q", title="misses", axis=alt.Axis(format="%", tickCount=5), scale=alt.Scale(domain=[0, 1]))
    share = {"format": ".1%"}
    tooltip = [alt.Tooltip("false alarms:Q", **share), alt.Tooltip("misses:Q", **share)]
    domain = alt.Scale(domain=names)
    base = alt.Chart(alt.Data(values=rows))
    drawn = base.mark_line(strokeWidth=2.5).encode(
        x=across,
        y=up,
        color=alt.Color("curve:N", title=None, sort=None, scale=domain, legend=legend),
        strokeDash=alt.StrokeDash(
            "curve:N",
            title=None,
            sort=None,
            legend=legend,
            scale=alt.Scale(domain=names, range=[one.dash or [1, 0] for one in lines]),
        ),
    )
    touched = base.mark_circle(size=120, opacity=0).encode(x=across, y=up, tooltip=[alt.Tooltip("curve:N"), *tooltip])
    layers = [drawn, touched]
    if marks:
        shape = alt.Shape(
            "attack:N", title=None, scale=alt.Scale(range=["diamond"]), legend=alt.Legend(orient="bottom")
        )
        attacks = alt.Chart(alt.Data(values=marks)).mark_point(size=90, filled=True, color="#d55e00")
        layers.append(attacks.encode(x=across, y=up, shape=shape, tooltip=[alt.Tooltip("attack:N"), *tooltip]))
    spec: dict[str, Any] = alt.layer(*layers).properties(width="container", height=320).to_dict()
    return spec


def _short(value: float) -> float:
    return float(f"{value:.4g}")
