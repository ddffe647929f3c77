"""What is expected of a study, as data, and whether it came out.

An expectation compares two values of runs, each the median over the runs that match:

    {"what": "in words", "left": VALUE, "at_least" | "at_most": VALUE, "factor": 1.0, "margin": 0.0}

A value is a number, or ``{"of": {axis: place, ...}, "take": QUANTITY, "over": "median"}`` with a quantity of
`QUANTITIES`; a place may be a list of places, and ``over`` be ``least`` or ``most`` instead of ``median``. It holds if
``left >= factor * right + margin`` (or ``<=``).

``"fails": "why"`` marks what a paper says and what does not come out here; it is a problem when it comes out after all.

``"revision": "why"`` marks what came out for a reason that is known to lie in the study, not in what is compared: it is
checked like the others, until the study is run again, and printed with its reason.

``"each": {"name": [text, ...], ...}`` makes an expectation of every combination, with the texts put in for ``{name}``.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Record = dict[str, Any]
ACCURACY = "mean_model_test_accuracy"


class MissingRunError(ValueError):
    """A place at which there is no run yet."""


def final_accuracy(record: Record) -> float:
    return float(record["curve"][-1][ACCURACY])


def final_loss(record: Record) -> float:
    return float(record["curve"][-1]["mean_model_test_loss"])


def final_balanced_accuracy(record: Record) -> float:
    return float(record["curve"][-1]["balanced_accuracy"])


def final_own_accuracy(record: Record) -> float:
    return float(record["curve"][-1]["test_accuracy"])


def worst_node_accuracy(record: Record) -> float:
    return float(record["curve"][-1]["worst_node_test_accuracy"])


def seconds_to(accuracy: float) -> Callable[[Record], float]:
    """Virtual seconds until the mean model first has ``accuracy``; infinite if it never does."""
    return until(accuracy, "virtual_seconds")


def until(accuracy: float, key: str, of: str = ACCURACY) -> Callable[[Record], float]:
    """Updates, or seconds, until the mean model first has ``accuracy``; infinite if it never does."""

    def measure(record: Record) -> float:
        return next((row[key] for row in record["curve"] if row[of] >= accuracy), math.inf)

    return measure


def until_loss(loss: float, of: str) -> Callable[[Record], float]:
    """Virtual seconds until a loss is first as small; infinite if it never is."""

    def measure(record: Record) -> float:
        return next((row["virtual_seconds"] for row in record["curve"] if row[of] <= loss), math.inf)

    return measure


def speed_to(accuracy: float) -> Callable[[Record], float]:
    """One by the virtual seconds until the mean model first has ``accuracy``, for tuning; 0 if it never does."""
    return lambda record: 1 / seconds_to(accuracy)(record)


def settled(key: str) -> Callable[[Record], float]:
    """The median of a figure over the last tenth of the evaluations: single looks are noisy."""

    def measure(record: Record) -> float:
        rows = record["curve"]
        return float(statistics.median(row[key] for row in rows[-max(1, len(rows) // 10) :]))

    return measure


def iterations_to(threshold: str) -> Callable[[Record], float]:
    """Updates until the loss stays below a threshold; infinite if it never does."""

    def measure(record: Record) -> float:
        found = record["iterations_to"][threshold]
        return math.inf if found is None else float(found)

    return measure


def decibels(measure: str) -> Callable[[Record], float]:
    """10 log10 of a squared deviation in the steady state; infinite where models diverged."""

    def level(record: Record) -> float:
        found = record["steady"][measure]
        return math.inf if found is None else 10 * math.log10(found)

    return level


def divergence(of: str, hops: str) -> Callable[[Record], float]:
    """Renyi divergence at so many links from an observer; that of everyone has no links."""
    return lambda record: float(record[of][hops][0])


QUANTITIES: dict[str, Callable[[Record], float]] = {
    "final_accuracy": final_accuracy,
    "final_loss": final_loss,
    "final_balanced_accuracy": final_balanced_accuracy,
    "final_own_accuracy": final_own_accuracy,
    "worst_node_accuracy": worst_node_accuracy,
    "epsilon": lambda record: math.inf if record["epsilon"] is None else float(record["epsilon"]),
    "final_seconds": lambda record: float(record["curve"][-1]["virtual_seconds"]),
    **{f"seconds_to_{reached}": seconds_to(reached) for reached in (0.7, 0.75, 0.8, 0.85)},
    **{f"own_seconds_to_{reached}": until(reached, "virtual_seconds", "test_accuracy") for reached in (0.7, 0.8)},
    "seconds_to_loss_2.2": until_loss(2.2, "mean_model_test_loss"),
    "own_seconds_to_loss_2.2": until_loss(2.2, "test_loss"),
    "speed_to_0.85": speed_to(0.85),
    "updates_to_0.85": until(0.85, "updates"),
    "wall_seconds_to_0.8": until(0.8, "wall_seconds"),
    "final_updates": lambda record: float(record["curve"][-1]["updates"]),
    "settled_gradient_norm": settled("gradient_norm"),
    "settled_accuracy": settled(ACCURACY),
    "settled_loss": settled("mean_model_test_loss"),
    "rounds": lambda record: float(record["rounds"]),
    "bytes": lambda record: float(record["bytes"]),
    "gradients": lambda record: float(record["gradients"]),
    "aggregate_noise": lambda record: float(record["noise_multiplier"]) * math.sqrt(record["rounds"]),
    **{f"iterations_to_{loss}": iterations_to(loss) for loss in ("0.5", "0.6", "0.65", "1", "1.5", "4")},
    "centroid_db": decibels("centroid_msd"),
    "individual_db": decibels("individual_msd"),
    "disagreement_db": decibels("disagreement"),
    "averaged_db": lambda record: 10 * math.log10(record["curve"][-1]["individual_msd"]),
    "centroid_error": lambda record: 1 - float(record["steady"]["centroid_test_accuracy"]),
    "diverged": lambda record: float(record["last_stable_round"] is not None),
    "ssim": lambda record: float(record["ssim"]),
    "off": lambda record: float(record["off"]),
    "local": lambda record: float(record["local"]),
    **{f"{of}_{hops}": divergence(of, hops) for of in ("hops", "muffliato") for hops in "1234"},
    "cosine": lambda record: float(record["cosine"]),
}
OVER: dict[str, Callable[[Sequence[float]], float]] = {"median": statistics.median, "least": min, "most": max}


def expanded(expectations: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Expectations, one for every combination of ``each``."""
    for expected in expectations:
        each = expected.get("each", {})
        for choice in itertools.product(*each.values()):
            yield _filled(
                {key: part for key, part in expected.items() if key != "each"}, dict(zip(each, choice, strict=True))
            )


def _filled(part: Any, names: dict[str, str]) -> Any:
    if isinstance(part, str):
        return part.format(**names)
    if isinstance(part, dict):
        return {key: _filled(one, names) for key, one in part.items()}
    return [_filled(one, names) for one in part] if isinstance(part, list) else part


def under_revision(expectations: Sequence[dict[str, Any]]) -> list[str]:
    """The expectations that say nothing for now, in words, with the reason; one line for all combinations."""
    return [f"{expected['what']}: {expected['revision']}" for expected in expectations if "revision" in expected]


def value(what: Any, records: Sequence[Record]) -> float:
    """A number, or the median (least, most) of a quantity over the runs at a place."""
    if isinstance(what, (int, float)):
        return float(what)
    matching = [record for record in records if lies_at(record, what["of"])]
    if not matching:
        raise MissingRunError(f"no run is at {what['of']}")
    return OVER[what.get("over", "median")]([QUANTITIES[what["take"]](record) for record in matching])


def lies_at(record: Mapping[str, Any], place: Mapping[str, str | list[str]]) -> bool:
    """Whether a record, or a place, has the places of ``place``, or one of each list."""
    return all(record[axis] in (at if isinstance(at, list) else [at]) for axis, at in place.items())


def unmet(expectations: Sequence[dict[str, Any]], records: Sequence[Record]) -> list[str]:
    """The expectations that do not hold, in words and figures, and those that hold although they are said to fail."""
    problems = []
    for expected in expanded(expectations):
        try:
            problem = _unmet(expected, records)
        except MissingRunError as error:
            problem = str(error)
        if problem:
            problems.append(f"{expected['what']}: {problem}")
    return problems


def _unmet(expected: dict[str, Any], records: Sequence[Record]) -> str:
    """Why an expectation does not hold, or should not; empty if all is well."""
    side = "at_least" if "at_least" in expected else "at_most"
    left = value(expected["left"], records)
    bound = expected.get("factor", 1.0) * value(expected[side], records) + expected.get("margin", 0.0)
    # What was never reached is infinite, and not at most anything.
    holds = left >= bound if side == "at_least" else left <= bound and math.isfinite(left)
    if holds and "fails" in expected:
        return f"{left:.4g}, said to fail: {expected['fails']}"
    if not holds and "fails" not in expected:
        return f"{left:.4g}, expected {side.replace('_', ' ')} {bound:.4g}"
    return ""
