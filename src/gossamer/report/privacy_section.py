"""The privacy page: what is proved of a run, in words and pictures for whoever's data these are.

Two pictures of a hundred guesses stand first, since people judge how much they give away better from counts of possible
outcomes than from epsilon [1]; mu is the figure beside them, since it stands for the whole privacy profile [2].

References
----------
[1] Nanayakkara, Smart, Cummings, Kaptchuk and Redmiles, "What are the chances? Explaining the epsilon parameter in
    differential privacy", USENIX Security 2023, arXiv 2303.00738.
[2] Gomez et al., "Gaussian DP for reporting differential privacy guarantees in machine learning", arXiv 2503.10945.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.privacy.guarantee_card import FILE, GuaranteeEntry
from gossamer.privacy.guarantees import rounded_up, told_apart
from gossamer.report.budget_bar import Bar, bars
from gossamer.report.figure import Figure, Section, Shown
from gossamer.report.records import RunRecord
from gossamer.report.trade_off import Proved, proved_of, trade_off

MOST = 4
"""Guarantees that a report explains; it names the runs of all others."""
_RUNS = 6
_EVERYTHING = 100


@dataclass(frozen=True)
class Icons:
    """A hundred guesses, of which some are right.

    Attributes
    ----------
    title : str
        Title that says whose guesses they are.
    right : int
        Number of right ones, rounded up.
    words : str
        The same in words.
    """

    title: str
    right: int
    words: str


@dataclass(frozen=True)
class Promise:
    """A guarantee as the page has it.

    Attributes
    ----------
    runs : str
        Names of the runs that it is for; empty where there is no choice.
    sentence : str
        Sentence on who is protected, and from whom.
    icons : tuple of Icons
        Guesses without the run, and with it.
    figure : Figure
        The trade-off curve.
    remarks, assumptions : sequence of str
        Lines on what makes it weak, and on what has to be true.
    facts : mapping of str to str
        All figures, and how they were found.
    others : sequence of str
        Sentences on what is proved against other observers.
    """

    runs: str
    sentence: str
    icons: tuple[Icons, ...]
    figure: Figure
    remarks: Sequence[str]
    assumptions: Sequence[str]
    facts: Mapping[str, str]
    others: Sequence[str]


def privacy(records: Sequence[RunRecord], public: bool) -> Section | None:
    """Return the section for the owners of data; None where no run says what is proved."""
    found = proved_of(records)
    if not found:
        return None
    promises = [_promise(one, number, len(found), public) for number, one in enumerate(found[:MOST])]
    left = [run.name for one in found[MOST:] for run in one.runs]
    values = {"promises": promises, "bars": budget_bars(records, public), "left": _names(left), "file": FILE}
    return Section("privacy", "Privacy", [promise.figure for promise in promises], "privacy.html", values)


def budget_bars(records: Sequence[RunRecord], public: bool) -> list[Bar]:
    """Return the bars of budgets; with ``public``, those that tell of no owner's ledger."""
    return [bar for bar in bars(records) if not (public and bar.shown is Shown.PRIVATE)]


def _promise(found: Proved, number: int, all_of_them: int, public: bool) -> Promise:
    first = found.first
    return Promise(
        runs=_names([run.name for run in found.runs]) if all_of_them > 1 else "",
        sentence=sentence(first),
        icons=icons(first),
        figure=trade_off(found, "trade-off" if not number else f"trade-off-{number + 1}", public=public),
        remarks=[*_would_be(first), *map(_capital, first.remarks)],
        assumptions=[_capital(line) for line in first.assumptions],
        facts=dict(_facts(found)),
        others=[f"{sentence(one)} {_guess(one)}" for one in found.card.guarantees[1:]],
    )


def sentence(entry: GuaranteeEntry) -> str:
    """One sentence: who is protected, from whom, and which unit."""
    question = told_apart(entry.unit, entry.neighboring_relation)
    if entry.privacy == "none":
        return f"Nobody is protected from {entry.observer}: there is no limit to how well they can tell {question}."
    unit = f"Each {entry.unit}{',' if ',' in entry.unit else ''}"
    return f"{unit} is protected from {entry.observer}: there is a limit to how well they can tell {question}."


def icons(entry: GuaranteeEntry) -> tuple[Icons, Icons]:
    """Guesses of the best possible attacker, without looking and with all that leaked."""
    question = told_apart(entry.unit, entry.neighboring_relation)
    blind = Icons("Guessing, if you take no part", 50, f"Whoever has to guess {question} is right 50 times in 100.")
    share = 1.0 if entry.best_guess is None else entry.best_guess
    right = min(math.ceil(round(_EVERYTHING * share, 4)), _EVERYTHING)
    if entry.best_guess is None:
        said = "Nothing is proved, so an attacker may be right every time."
    else:
        said = (
            f"The best possible attacker, who knows everything but that and sees all that leaves, is right at most "
            f"{_times(share)} times in 100."
        )
    return blind, Icons("The best possible attacker, if you take part", right, said)


def _times(share: float) -> str:
    """Hundreds of a share, with a digit behind the point, rounded up."""
    return f"{math.ceil(round(10 * _EVERYTHING * share, 4)) / 10:g}"


def _guess(entry: GuaranteeEntry) -> str:
    if entry.best_guess is None:
        return f"{_capital(entry.proof).removesuffix('.')}."
    return f"The best possible attacker is right at most {_times(entry.best_guess)} times in 100{_mu(entry)}."


def _mu(entry: GuaranteeEntry) -> str:
    return "" if entry.mu is None else f" (mu {rounded_up(entry.mu, 3)})"


def _would_be(entry: GuaranteeEntry) -> Iterator[str]:
    if entry.would_be is not None:
        yield f"With a noise secret it would be otherwise. {sentence(entry.would_be)} {_guess(entry.would_be)}"


def _facts(found: Proved) -> Iterator[tuple[str, str]]:
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
    plain = {name: value for name, value in mechanism.items() if isinstance(value, str | int | float)}
    law = [str(plain.pop("mechanism"))] if "mechanism" in plain else []
    return ", ".join([*law, *(f"{name.replace('_', ' ')} {_short(value)}" for name, value in plain.items())])


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _names(names: Sequence[str]) -> str:
    more = [f"{len(names) - _RUNS} more"] if len(names) > _RUNS else []
    return ", ".join([*names[:_RUNS], *more])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
