"""The privacy page: what is proved of a run, in words and pictures for whoever's data these are.

Two pictures of a hundred guesses stand first, since people judge how much they give away better from counts of possible
outcomes than from epsilon [1]; mu is the figure beside them, since it stands for the whole privacy profile [2].

The trade-off curve says how often an attacker must miss, for each rate of false alarms, by all that is proved. Beside
it stand what a paper claims of the run, as far as a pair of epsilon and delta can be drawn, and what audits have
measured: an epsilon that the run is not below, or an attack's own false alarms and misses.

Bars of budgets say what all runs on a data set have taken, and what the next one would take:

| data | what is counted | the budget |
|---|---|---|
| of a deployed party's owner | shares by the owner's ledger, as they were at the end of the run | the policy's |
| of simulations | epsilons of the runs in the report, added up, since nobody keeps a ledger over them | none |

References
----------
[1] Nanayakkara, Smart, Cummings, Kaptchuk and Redmiles, "What are the chances? Explaining the epsilon parameter in
    differential privacy", USENIX Security 2023, arXiv 2303.00738.
[2] Gomez et al., "Gaussian DP for reporting differential privacy guarantees in machine learning", arXiv 2503.10945.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from gossamer.errors import counted
from gossamer.files import MOST_RECORDS, as_written, read_text
from gossamer.privacy.guarantee_card import FILE, LARGEST, GuaranteeCard, GuaranteeEntry, read_guarantee_card
from gossamer.privacy.guarantees import NOTHING, PrivacyProfile, rounded_up, told_apart
from gossamer.report.drawing import TICKS, Figure, PageSection, Shown, altair, chart_of, numbers
from gossamer.report.drawing import told_apart as lines_apart
from gossamer.report.records import RunRecord

MOST = 4
"""Guarantees that a report explains; it names the runs of all others."""
_RUNS = 6
_EVERYTHING = 100


class ProvedOfRuns(NamedTuple):
    """Everything that is proved of runs.

    Attributes
    ----------
    card : GuaranteeCard
        Guarantees by observer.
    runs : sequence of RunRecord
        Runs for which it is the same.
    """

    card: GuaranteeCard
    runs: Sequence[RunRecord]

    @property
    def first(self) -> GuaranteeEntry:
        """The guarantee that the noise is planned for."""
        return self.card.guarantees[0]


def privacy(records: Sequence[RunRecord], public: bool) -> PageSection | None:
    """Return the section for the owners of data; None where no run says what is proved."""
    if not (found := proved_of(records)):
        return None
    names = ["trade-off", *(f"trade-off-{number}" for number in range(2, MOST + 1))]
    promises = [_promise(one, name, len(found) > 1, public) for one, name in zip(found, names)]
    left = [run.name for one in found[MOST:] for run in one.runs]
    shown = [bar for bar in bars(records) if not (public and bar.shown is Shown.PRIVATE)]  # of no owner's ledger
    values = {"promises": promises, "bars": shown, "left": _names(left), "file": FILE}
    return PageSection("privacy", "Privacy", [promise["figure"] for promise in promises], "privacy.html", values)


def _promise(found: ProvedOfRuns, name: str, several: bool, public: bool) -> dict[str, Any]:
    """Text of the page about a guarantee: whose it is where there is a choice, and all that is shown of it."""
    first, said = found.first, []
    if (other := first.would_be) is not None:
        said = [f"With a noise secret it would be otherwise. {sentence(other)} {_guess(other)}"]
    return {
        "runs": _names([run.name for run in found.runs]) if several else "",
        "sentence": sentence(first),
        "icons": icons(first),
        "figure": trade_off(found, name, public=public),
        "remarks": [*said, *map(_capital, first.remarks)],
        "assumptions": [_capital(line) for line in first.assumptions],
        "facts": dict(_facts(found)),
        "others": [f"{sentence(one)} {_guess(one)}" for one in found.card.guarantees[1:]],
    }


def proved_of(records: Sequence[RunRecord]) -> list[ProvedOfRuns]:
    """Return what is proved, once for all runs of which it is the same; nothing of runs that do not say it.

    Raises
    ------
    DataError
        If a card is damaged, or of another version.
    """
    found: dict[str, ProvedOfRuns] = {}
    for record in records:
        file = record.path / FILE
        if file.exists():
            card = read_guarantee_card(read_text(file, LARGEST), file)
            key = _same_for_all(card)
            found[key] = ProvedOfRuns(card, [*(found[key].runs if key in found else ()), record])
    return list(found.values())


def _same_for_all(card: GuaranteeCard) -> str:
    """All that a card says but for what names its run."""
    text = card.model_copy(update={"receipts": None, "software": None}).to_json()
    return text.replace(f'"run": {json.dumps(card.guarantees[0].run, ensure_ascii=False)}', "")


def sentence(entry: GuaranteeEntry) -> str:
    """One sentence: who is protected, from whom, and which unit."""
    question = told_apart(entry.unit, entry.neighboring_relation)
    if entry.privacy == "none":
        return f"Nobody is protected from {entry.observer}: there is no limit to how well they can tell {question}."
    unit = f"Each {entry.unit}{',' if ',' in entry.unit else ''}"
    return f"{unit} is protected from {entry.observer}: there is a limit to how well they can tell {question}."


def icons(entry: GuaranteeEntry) -> list[dict[str, Any]]:
    """A hundred guesses, of which some are right: without looking, and of the best attacker with all that leaked."""
    question = told_apart(entry.unit, entry.neighboring_relation)
    share = 1.0 if entry.best_guess is None else entry.best_guess
    right = min(math.ceil(round(_EVERYTHING * share, 4)), _EVERYTHING)
    if entry.best_guess is None:
        said = "Nothing is proved, so an attacker may be right every time."
    else:
        said = (
            f"The best possible attacker, who knows everything but that and sees all that leaves, is right at most "
            f"{_times(share)} times in 100."
        )
    blind = f"Whoever has to guess {question} is right 50 times in 100."
    return [
        {"title": "Guessing, if you take no part", "right": 50, "words": blind},
        {"title": "The best possible attacker, if you take part", "right": right, "words": said},
    ]


def _times(share: float) -> str:
    """Hundreds of a share, with a digit behind the point, rounded up."""
    return f"{math.ceil(round(10 * _EVERYTHING * share, 4)) / 10:g}"


def _guess(entry: GuaranteeEntry) -> str:
    if entry.best_guess is None:
        return f"{_capital(entry.proof).removesuffix('.')}."
    mu = "" if entry.mu is None else f" (mu {rounded_up(entry.mu, 3)})"
    return f"The best possible attacker is right at most {_times(entry.best_guess)} times in 100{mu}."


def _facts(found: ProvedOfRuns) -> Iterator[tuple[str, str]]:
    entry = found.first
    if entry.epsilon is not None and entry.delta is not None and entry.best_guess is not None:
        yield "mu", "none: no Gaussian covers it" if entry.mu is None else rounded_up(entry.mu, 3)
        yield "best guess", f"{_times(entry.best_guess)} right in 100, instead of 50"
        yield "epsilon", f"{rounded_up(entry.epsilon)} at delta {rounded_up(entry.delta, 3)}"
    yield "unit", entry.unit
    yield "neighbouring data", entry.neighboring_relation.value.replace("_", " ")
    if entry.rows_per_person is not None:
        yield "examples of a person", f"at most {entry.rows_per_person}"
    yield "observer", entry.observer
    yield "proof" if entry.privacy is None else "why there is none", entry.proof
    if mechanism := _flat(found.card.mechanism):
        yield "mechanism", mechanism
    yield "written by", f"Gossamer {found.card.gossamer}"


def _flat(mechanism: Mapping[str, Any]) -> str:
    """The noise in a line; what is nested is left to the file."""
    plain = {
        name: f"{value:.4g}" if isinstance(value, float) else str(value)
        for name, value in mechanism.items()
        if isinstance(value, str | int | float)
    }
    law = [plain.pop("mechanism")] if "mechanism" in plain else []
    return ", ".join([*law, *(f"{name.replace('_', ' ')} {value}" for name, value in plain.items())])


def _names(names: Sequence[str]) -> str:
    more = [f"{len(names) - _RUNS} more"] if len(names) > _RUNS else []
    return ", ".join([*names[:_RUNS], *more])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# The trade-off curve

_ALARMS = np.unique(np.concatenate([np.geomspace(1e-3, 0.1, 24), np.linspace(0, 1, 61)]))
_CLAIMS = 3


class TradeOffCurve(NamedTuple):
    """A curve of a trade-off figure.

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


def trade_off(found: ProvedOfRuns, name: str, *, public: bool = False) -> Figure:
    """Return the figure of what is proved; with ``public``, without what audits measured."""
    audits = {} if public else _audits(found)
    measured, marks = [*_bounds(audits)], [*_attacks(audits)]
    lines = [*_proved(found.first), *_claimed(found), *measured]
    rows = [
        {"curve": line.name, "false alarms": _short(at), "misses": _short(miss)}
        for line in lines
        for at, miss in zip(_ALARMS, line.profile.miss_rate(_ALARMS), strict=True)
    ]
    words = " ".join(
        [
            "False alarms against misses of whoever tries to find out: the higher the curve, the better.",
            *(line.words for line in lines),
            *(f"{m['attack']}: {m['false alarms']:.3g} false alarms, {m['misses']:.3g} misses." for m in marks),
        ]
    )
    shown = Shown.PRIVATE if measured or marks else Shown.PUBLIC
    title, chart = "What an attacker must get wrong", _chart(lines, rows, marks)
    return Figure.of(name, title, words, shown, chart, [*rows, *marks], 320)


def _proved(entry: GuaranteeEntry) -> Iterator[TradeOffCurve]:
    name = "proved" if entry.privacy is None else "proved: nothing"
    yield TradeOffCurve(name, [], entry.profile.profile, _said(entry))
    if entry.would_be is not None:
        would_be = entry.would_be
        yield TradeOffCurve(
            "with a noise secret", [8, 4], would_be.profile.profile, f"With a noise secret: {_said(would_be)}"
        )
    yield TradeOffCurve("guessing", [2, 3], NOTHING, "On the line of guessing nothing is learnt.")


def _said(entry: GuaranteeEntry) -> str:
    if entry.privacy == "none":
        return "Nothing is proved: an attacker may make no mistake at all."
    misses = float(entry.profile.profile.miss_rate(np.array([0.05]))[()].item())
    return f"Proved: with 5 false alarms in 100, at least {math.floor(1000 * misses) / 10:g} misses in 100."


def _claimed(found: ProvedOfRuns) -> Iterator[TradeOffCurve]:
    """Curves of papers' claims whose conditions hold; a large epsilon lies along the axes."""
    claims = found.runs[0].summary["privacy"].get("claims") or []
    drawn = [one for one in claims if one.get("valid") is True and isinstance(one.get("epsilon"), int | float)]
    for claim in drawn[:_CLAIMS]:
        epsilon, delta, theorem = float(claim["epsilon"]), float(claim.get("delta") or 0.0), str(claim.get("theorem"))
        profile = PrivacyProfile.of_points([(epsilon, delta)])
        said = f"{theorem} claims epsilon {rounded_up(epsilon)} at delta {delta:g}, which is not proved here."
        yield TradeOffCurve(f"claimed: {theorem}", [6, 2, 2, 2], profile, said)


# Audits


def _audits(found: ProvedOfRuns) -> Mapping[str, Any]:
    """Audits of the first run that has some."""
    for run in found.runs:
        audits = run.summary["privacy"].get("audits")
        if isinstance(audits, Mapping) and audits:
            return audits
    return {}


def _bounds(audits: Mapping[str, Any]) -> Iterator[TradeOffCurve]:
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
    yield TradeOffCurve(f"measured: at least this leaks ({sure} sure)", [1, 3], profile, said)


def _attacks(audits: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    audit = audits.get("membership")
    if not isinstance(audit, Mapping):
        return
    for rate in (0.001, 0.01):
        hits = audit.get(f"tpr_at_fpr_{rate:g}")
        if isinstance(hits, int | float):
            yield {
                "attack": "measured: membership by the loss",
                "false alarms": rate,
                "misses": _short(1 - float(hits)),
            }


def _chart(lines: Sequence[TradeOffCurve], rows: list[dict[str, Any]], marks: list[dict[str, Any]]) -> Any:
    alt = altair()
    scale, ticks = alt.Scale(domain=[0, 1]), (alt.ExprRef(f"min(5, {TICKS})"), 5)
    across, upwards = (alt.Axis(format="%", tickCount=many) for many in ticks)
    x = alt.X("false alarms:Q", title="false alarms", axis=across, scale=scale)
    y = alt.Y("misses:Q", title="misses", axis=upwards, scale=scale)
    shares, base = numbers(".1%", "false alarms", "misses"), chart_of(rows)
    dashes = [one.dash or [1, 0] for one in lines]
    apart = lines_apart("curve", [line.name for line in lines], dashes=dashes, columns=1, labelLimit=320)
    layers = [
        base.mark_line(strokeWidth=2.5).encode(x=x, y=y, **apart),
        base.mark_circle(size=120, opacity=0).encode(x=x, y=y, tooltip=[alt.Tooltip("curve:N"), *shares]),
    ]
    if marks:
        diamond, legend = alt.Scale(range=["diamond"]), alt.Legend(orient="bottom")
        shape = alt.Shape("attack:N", title=None, scale=diamond, legend=legend)
        attacks = chart_of(marks).mark_point(size=90, filled=True, color="#d55e00")
        layers.append(attacks.encode(x=x, y=y, shape=shape, tooltip=[alt.Tooltip("attack:N"), *shares]))
    return alt.layer(*layers)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


# Budgets

SPENDING = "spending.json"
"""The owner's, in a deployed party's state folder (`gossamer.deployment.party.reporting.SPENDING`)."""
_MOST = 30


class BarPart(NamedTuple):
    """A part of a bar.

    Attributes
    ----------
    name : str
        Name of what takes it.
    kind : {"spent", "planned", "next"}
        Certainty of it.
    start, width : float
        Place and width in percent of the bar.
    words : str
        Amount in words.
    """

    name: str
    kind: str
    start: float
    width: float
    words: str


@dataclass(frozen=True)
class Bar:
    """A budget and what takes it.

    Attributes
    ----------
    title, words : str
        The data set, and everything in words.
    parts : sequence of BarPart
        Parts from left to right.
    limit : float or None
        Place where the budget ends, in percent; None where there is none.
    shown : Shown
        Audience of it: of an owner's ledger the owner alone.
    """

    title: str
    words: str
    parts: Sequence[BarPart]
    limit: float | None
    shown: Shown


def bars(records: Sequence[RunRecord]) -> Iterator[Bar]:
    """Yield a bar for each data set: of an owner's ledger, or of what the simulations in ``records`` add up to."""
    simulated: defaultdict[tuple[str, ...], list[RunRecord]] = defaultdict(list)
    free: Counter[str] = Counter()
    for record in records:
        name, said = str(record.summary.get("dataset", "")), record.guarantee
        if (record.path / SPENDING).exists():
            yield _of_owner(record)
        elif name and said.get("epsilon") is None:
            free[name] += 1
        elif name:  # epsilons of other units, or of other neighbours, do not add up
            simulated[name, str(said.get("unit")), str(said.get("neighboring_relation"))].append(record)
    for (name, unit, _), runs in simulated.items():
        yield _of_simulations(name, unit, runs, free[name])


def _of_owner(record: RunRecord) -> Bar:
    """The bar of an owner's ledger."""
    file = record.path / SPENDING
    with as_written(file, "what the runs took of a budget", "bring back what the node wrote"):
        return _owners_bar(json.loads(read_text(file, MOST_RECORDS)))


def _owners_bar(found: Mapping[str, Any]) -> Bar:
    allowed, total, epsilon = found["allowed"], found["share"], found["epsilon"]
    shares = {str(run["run"]): run["share"] for run in found["runs"]}
    apart = {str(run["series"]) for run in found["runs"] if run["series"] is not None}
    mine = shares.get(found["this_run"]) or 0.0
    end = max(1.0, (total or 1.0) + mine)
    said = [f"The owner's policy allows epsilon {allowed['epsilon']:g} at delta {allowed['delta']:g}."]
    if total is None or epsilon is None:
        said.append("A run without privacy has released from these data, so nothing of the budget is left.")
    else:
        runs = counted(len(shares), "run")
        said.append(f"{runs} took {_percent(total)} of it (epsilon {rounded_up(epsilon)} so far).")
        if mine:
            fits = "which still fits" if total + mine <= 1 else "which the ledger would refuse"
            said.append(f"This run took {_percent(mine)}; the next one like it would take as much again, {fits}.")
        if apart:
            series = counted(len(apart), "series", "series")
            said.append(f"A part of the budget is set aside for {series}, and runs take of that.")
    takers = [(name, "spent", float(share)) for name, share in shares.items() if share]
    parts = _parts([*takers, ("the next", "next", mine)], end)
    return Bar(f"Budget of {found['data_set']}", " ".join(said), parts, 100 / end, Shown.PRIVATE)


def _of_simulations(name: str, unit: str, runs: Sequence[RunRecord], free: int) -> Bar:
    """The bar of simulations on one data set, ``free`` of which have no guarantee."""
    takers: list[tuple[str, str, float]] = []
    for run in runs:
        so_far = (value for value in reversed(run.metrics.get("epsilon_so_far", ())) if value is not None)
        again = float(run.guarantee["epsilon"])  # of the last, what the next one takes
        spent = min(next(so_far, 0.0), again)
        takers += [part for part in ((run.name, "spent", spent), (run.name, "planned", again - spent)) if part[2] > 0]
    total = added(float(run.guarantee["epsilon"]) for run in runs)
    where, more, like = f"{name}, for each {unit},", rounded_up(total), "it" if len(runs) == 1 else "the last"
    if len(runs) == 1:
        said = [f"The run on {where} may spend epsilon {more}, and has spent {rounded_up(spent)}."]
    else:
        delta = rounded_up(added(float(run.guarantee.get("delta") or 0) for run in runs), 3)
        said = [f"The {len(runs)} runs on {where} may spend epsilon {more} in all, at delta {delta}."]
    said += [
        f"The next one like {like} adds {rounded_up(again)}, which makes {rounded_up(added((total, again)))}.",
        "What runs on the same data release adds up.",
        "Over simulations nobody counts it; over deployed runs the owner's ledger does.",
    ]
    if free:
        have = "has" if free == 1 else "have"
        said.append(f"{counted(free, 'more run')} on these data {have} no guarantee: nothing limits what was released.")
    parts = _parts([*takers, ("the next", "next", again)], total + again)
    return Bar(f"Epsilon spent on {name}", " ".join(said), parts, None, Shown.RELEASED)


def _parts(takers: Sequence[tuple[str, str, float]], end: float) -> list[BarPart]:
    """Parts from left to right; of many, those in the middle as one."""
    if len(takers) > _MOST:
        *first, last = takers
        rest = first[_MOST - 2 :]
        takers = [*first[: _MOST - 2], (f"{len(rest)} more", "spent", sum(amount for *_, amount in rest)), last]
    starts = accumulate((amount for *_, amount in takers), initial=0.0)
    return [
        BarPart(name, kind, 100 * start / end, 100 * amount / end, f"{amount:.3g}")
        for (name, kind, amount), start in zip(takers, starts)
    ]


def added(values: Iterable[float]) -> float:
    """Sum of the values as they are written: three times 0.1 is 0.3, not a little more that would be rounded up."""
    return float(sum(Decimal(str(value)) for value in values))


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
