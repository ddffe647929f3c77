"""What is expected of a study, as data, and whether it came out.

An expectation compares two values of runs, each the median over the runs that match:

    {"what": "in words", "left": VALUE, "at_least" | "at_most": VALUE, "factor": 1.0, "margin": 0.0}

A value is a number, or ``{"of": {axis: place, ...}, "take": QUANTITY}`` with a quantity of `QUANTITIES`. It holds if
``left >= factor * right + margin`` (or ``<=``).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

Record = dict[str, Any]
ACCURACY = "mean_model_test_accuracy"


def final_accuracy(record: Record) -> float:
    return float(record["curve"][-1][ACCURACY])


def worst_node_accuracy(record: Record) -> float:
    return float(record["curve"][-1]["worst_node_test_accuracy"])


def seconds_to(accuracy: float) -> Callable[[Record], float]:
    """Virtual seconds until the mean model first has ``accuracy``; infinite if it never does."""

    def measure(record: Record) -> float:
        return next((row["virtual_seconds"] for row in record["curve"] if row[ACCURACY] >= accuracy), math.inf)

    return measure


QUANTITIES: dict[str, Callable[[Record], float]] = {
    "final_accuracy": final_accuracy,
    "worst_node_accuracy": worst_node_accuracy,
    "epsilon": lambda record: math.inf if record["epsilon"] is None else float(record["epsilon"]),
    "seconds_to_0.75": seconds_to(0.75),
    "seconds_to_0.8": seconds_to(0.8),
}


def value(what: Any, records: Sequence[Record]) -> float:
    """A number, or the median of a quantity over the runs at a place."""
    if isinstance(what, (int, float)):
        return float(what)
    matching = [record for record in records if all(record[axis] == place for axis, place in what["of"].items())]
    if not matching:
        raise ValueError(f"no run is at {what['of']}")
    return statistics.median(QUANTITIES[what["take"]](record) for record in matching)


def unmet(expectations: Sequence[dict[str, Any]], records: Sequence[Record]) -> list[str]:
    """The expectations that do not hold, in words and figures."""
    problems = []
    for expected in expectations:
        side = "at_least" if "at_least" in expected else "at_most"
        left = value(expected["left"], records)
        bound = expected.get("factor", 1.0) * value(expected[side], records) + expected.get("margin", 0.0)
        # What was never reached is infinite, and not at most anything.
        holds = left >= bound if side == "at_least" else left <= bound and math.isfinite(left)
        if not holds:
            problems.append(f"{expected['what']}: {left:.4g}, expected {side.replace('_', ' ')} {bound:.4g}")
    return problems
