"""Bars of privacy budgets: what all runs on a data set have taken, and what the next one would take.

| data | what is counted | the budget |
|---|---|---|
| of a deployed party's owner | shares by the owner's ledger, as they were at the end of the run | the policy's |
| of simulations | epsilons of the runs in the report, added up, since nobody keeps a ledger over them | none |
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from gossamer.bounded import MOST_RECORDS, read_text
from gossamer.errors import DataError, counted
from gossamer.privacy.guarantees import rounded_up
from gossamer.report.figure import Shown
from gossamer.report.records import RunRecord

FILE = "spending.json"
"""The owner's, in a deployed party's state folder (`gossamer.deployment.party.results.SPENDING`)."""
_MOST = 30


class Part(NamedTuple):
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
    parts : sequence of Part
        Parts from left to right.
    limit : float or None
        Place where the budget ends, in percent; None where there is none.
    shown : Shown
        Audience of it: of an owner's ledger the owner alone.
    """

    title: str
    words: str
    parts: Sequence[Part]
    limit: float | None
    shown: Shown


def bars(records: Sequence[RunRecord]) -> Iterator[Bar]:
    """Yield a bar for each data set: of an owner's ledger, or of what the simulations in ``records`` add up to."""
    simulated: defaultdict[tuple[str, ...], list[RunRecord]] = defaultdict(list)
    free: Counter[str] = Counter()
    for record in records:
        name, said = str(record.summary.get("dataset", "")), record.guarantee
        if (record.path / FILE).exists():
            yield _of_owner(record)
        elif name and said.get("epsilon") is None:
            free[name] += 1
        elif name:  # epsilons of other units, or of other neighbours, do not add up
            simulated[name, str(said.get("unit")), str(said.get("neighboring_relation"))].append(record)
    for (name, unit, _), runs in simulated.items():
        yield _of_simulations(name, unit, runs, free[name])


# An owner's ledger


def _of_owner(record: RunRecord) -> Bar:
    file = record.path / FILE
    try:
        found = json.loads(read_text(file, MOST_RECORDS))
        return _owners_bar(found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataError(
            f"{file}: expected what the runs took of a budget, found it damaged; bring back what the node wrote"
        ) from None


def _owners_bar(found: Mapping[str, Any]) -> Bar:
    allowed, this = found["allowed"], found["this_run"]
    shares = {str(run["run"]): run["share"] for run in found["runs"]}
    taken = [(name, float(share)) for name, share in shares.items() if share]
    apart = sorted({str(run["series"]) for run in found["runs"] if run["series"] is not None})
    mine = shares.get(this) or 0.0
    total = found["share"]
    end = max(1.0, (total or 1.0) + mine)
    parts = list(_parts([(name, "spent", share) for name, share in taken] + [("the next", "next", mine)], end))
    budget = f"epsilon {allowed['epsilon']:g} at delta {allowed['delta']:g}"
    return Bar(
        title=f"Budget of {found['data_set']}",
        words=" ".join(_owners_words(budget, found["epsilon"], total, mine, len(shares), apart)),
        parts=parts,
        limit=100 / end,
        shown=Shown.PRIVATE,
    )


def _owners_words(
    budget: str, epsilon: float | None, total: float | None, mine: float, runs: int, apart: Sequence[str]
) -> Iterator[str]:
    yield f"The owner's policy allows {budget}."
    if total is None or epsilon is None:
        yield "A run without privacy has released from these data, so nothing of the budget is left."
        return
    yield f"{counted(runs, 'run')} took {_percent(total)} of it (epsilon {rounded_up(epsilon)} so far)."
    if mine:
        fits = "which still fits" if total + mine <= 1 else "which the ledger would refuse"
        yield f"This run took {_percent(mine)}; the next one like it would take as much again, {fits}."
    if apart:
        yield f"A part of the budget is set aside for {counted(len(apart), 'series', 'series')}, and runs take of that."


# Simulations


def _of_simulations(name: str, unit: str, runs: Sequence[RunRecord], free: int) -> Bar:
    planned = [(run.name, float(run.guarantee["epsilon"])) for run in runs]
    spent = [min(_spent(run), epsilon) for run, (_, epsilon) in zip(runs, planned, strict=True)]
    again, total = planned[-1][1], _sum(epsilon for _, epsilon in planned)
    takers = [
        part
        for (run, epsilon), so_far in zip(planned, spent, strict=True)
        for part in ((run, "spent", so_far), (run, "planned", epsilon - so_far))
        if part[2] > 0
    ]
    deltas = _sum(float(run.guarantee.get("delta") or 0) for run in runs)
    return Bar(
        title=f"Epsilon spent on {name}",
        words=" ".join(_simulated_words(f"{name}, for each {unit},", planned, spent, deltas, free)),
        parts=list(_parts([*takers, ("the next", "next", again)], total + again)),
        limit=None,
        shown=Shown.RELEASED,
    )


def _spent(run: RunRecord) -> float:
    """Epsilon of what was released, by the last evaluation."""
    return next((value for value in reversed(run.metrics.get("epsilon_so_far", ())) if value is not None), 0.0)


def _simulated_words(
    where: str, planned: Sequence[tuple[str, float]], spent: Sequence[float], deltas: float, free: int
) -> Iterator[str]:
    runs, again, total = len(planned), planned[-1][1], _sum(epsilon for _, epsilon in planned)
    if runs == 1:
        yield f"The run on {where} may spend epsilon {rounded_up(total)}, and has spent {rounded_up(spent[0])}."
    else:
        more = f"epsilon {rounded_up(total)} in all, at delta {rounded_up(deltas, 3)}"
        yield f"The {runs} runs on {where} may spend {more}."
    like = "it" if runs == 1 else "the last"
    yield f"The next one like {like} adds {rounded_up(again)}, which makes {rounded_up(_sum((total, again)))}."
    yield "What runs on the same data release adds up."
    yield "Over simulations nobody counts it; over deployed runs the owner's ledger does."
    if free:
        have = "has" if free == 1 else "have"
        yield f"{counted(free, 'more run')} on these data {have} no guarantee: nothing limits what was released."


def _parts(takers: Sequence[tuple[str, str, float]], end: float) -> Iterator[Part]:
    """Parts from left to right; of many, those in the middle as one."""
    if len(takers) > _MOST:
        *first, last = takers
        rest = first[_MOST - 2 :]
        takers = [*first[: _MOST - 2], (f"{len(rest)} more", "spent", sum(amount for *_, amount in rest)), last]
    start = 0.0
    for name, kind, amount in takers:
        yield Part(name, kind, 100 * start / end, 100 * amount / end, f"{amount:.3g}")
        start += amount


def _sum(values: Iterable[float]) -> float:
    """Sum of the values as they are written: three times 0.1 is 0.3, not a little more that would be rounded up."""
    return float(sum(Decimal(str(value)) for value in values))


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
