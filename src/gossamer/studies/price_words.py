"""The price in plain words: how much worse a score is for privacy and for distance, and how much longer a run takes."""

from __future__ import annotations

import math

from gossamer.privacy.guarantees import rounded_up
from gossamer.studies.price import ALONE, CALLED, CLEAN, NOISY, ONE_PLACE, Price
from gossamer.studies.scores import ACCURACY, Scores


def in_words(price: Price) -> list[str]:
    """Return sentences, each about one part of the price, as far as its runs are finished."""
    scores = price.scores
    said = [_protected(price)]
    if scores and not any(one.better for one in scores.values()):
        return [*said, _NO_MODEL]
    if NOISY in scores and CLEAN in scores:
        said.append(f"Privacy {_costs(scores[NOISY], scores[CLEAN])}: {_between(price, CLEAN, NOISY)}.")
        if not scores[NOISY].better:
            said[-1] += " With noise the model is no better than one that says the same of every row."
    if CLEAN in scores and ONE_PLACE in scores:
        less, more = scores[ONE_PLACE], scores[CLEAN]
        said.append(f"Distance {_costs(more, less)}: {_between(price, ONE_PLACE, CLEAN)}. {_resources(more, less)}")
    if NOISY in scores and ALONE in scores:
        said.append(f"Joining, with noise, {_gains(scores[NOISY], scores[ALONE])}: {_between(price, ALONE, NOISY)}.")
    return said


_NO_MODEL = (
    "No model here, with noise or without, is better than one that says the same of every row, so these scores price "
    "nothing: train longer, at other rates or with other features, and ask again."
)


def rows(price: Price) -> list[tuple[str, ...]]:
    """Return the table: a row for each variant."""
    fits = any(one.r2.values for one in price.scores.values())
    kind = next((one.kind for one in price.scores.values()), ACCURACY)
    head = ("", "epsilon", kind, "+-", *(["R2"] if fits else []), "virtual s", "MiB sent")
    return [
        head,
        *(
            _row(CALLED.get(name, f"federation, {name.replace('=', ' ')}"), one, fits)
            for name, one in price.scores.items()
        ),
    ]


PRIVATE = (
    "Scores are of test examples, which no guarantee covers, and the models of runs without noise tell of the training "
    "examples: keep the folder to yourself."
)


def _protected(price: Price) -> str:
    guarantee = price.guarantee
    if math.isinf(guarantee.epsilon):
        return f"Nothing is guaranteed of these runs. {guarantee.proof}"
    return (
        f"Each {guarantee.unit} has epsilon {rounded_up(guarantee.epsilon)} at delta {guarantee.delta:g}, against "
        f"{guarantee.observer}."
    )


def _row(name: str, one: Scores, fits: bool) -> tuple[str, ...]:
    return (
        name,
        "-" if one.epsilon is None else rounded_up(one.epsilon),
        _value(one, one.score.mean),
        _value(one, one.score.deviation),
        *([_number(one.r2.mean, ".3f")] if fits else []),
        _number(one.seconds.mean, ".4g"),
        _number(None if one.size.mean is None else one.size.mean / 2**20, ".3g"),
    )


def _costs(worse: Scores, better: Scores) -> str:
    """Say how much a score is worse than another."""
    lost = _lost(worse, better)
    if lost is None:
        return "cannot be priced in scores, since a run has none"
    if lost <= 0:
        return f"costs no {worse.kind} here"
    return f"costs {_amount(worse, lost)}{_doubt(worse, better, lost)}"


def _gains(here: Scores, there: Scores) -> str:
    """Say how much a score is better than another, or worse."""
    lost = _lost(here, there)
    if lost is None:
        return "cannot be priced in scores, since a run has none"
    said = "gains a party" if lost < 0 else "costs a party"
    return f"{said} {_amount(here, abs(lost))}{_doubt(here, there, lost)}"


def _lost(worse: Scores, better: Scores) -> float | None:
    """Return the amount by which a score is less good than another, whichever way it counts."""
    if worse.rank is None or better.rank is None:
        return None
    return worse.rank - better.rank


def _amount(one: Scores, lost: float) -> str:
    return f"{100 * lost:.1f} points of accuracy" if one.kind == ACCURACY else f"{lost:.3g} of test loss"


def _doubt(one: Scores, other: Scores, lost: float) -> str:
    """Say so where seeds alone make as large a difference."""
    spread = math.hypot(one.score.deviation or 0.0, other.score.deviation or 0.0)
    return ", which is no more than seeds differ" if abs(lost) <= spread else ""


def _between(price: Price, first: str, second: str) -> str:
    return ", and ".join(f"{_scored(price.scores[one])} {_WITH[one]}" for one in (first, second))


def _scored(one: Scores) -> str:
    fit = "" if one.r2.mean is None else f" (R2 {one.r2.mean:.3f})"
    return f"{_value(one, one.score.mean)}{fit}"


_WITH = {
    ONE_PLACE: "with all rows in one place",
    CLEAN: "as a federation without noise",
    NOISY: "as a federation with noise",
    ALONE: "with its own rows alone",
}


def _resources(more: Scores, less: Scores) -> str:
    """Compare clock and bytes."""
    sent = (one.size.mean or 0.0 for one in (more, less))
    here, there = (f"{size / 2**20:.3g} MiB" if size else "nothing" for size in sent)
    seconds = (_number(one.seconds.mean, ".4g") for one in (more, less))
    return f"It takes {next(seconds)} virtual seconds instead of {next(seconds)}, and sends {here} instead of {there}."


def _value(one: Scores, value: float | None) -> str:
    return _number(value, ".3f" if one.kind == ACCURACY else ".4g")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
