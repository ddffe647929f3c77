"""Epochs of a run: passes of all nodes together over all shards, in expectation, as `gossamer.algorithms.learning_rate`
counts them.

Of node i with n_i examples the ledger has the rate p_i = b / n_i at which each release samples, and how many releases
there were. With one batch b at all nodes, an epoch is as many releases as sum n_i / b = sum 1 / p_i.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gossamer.bounded import MOST_RECORDS, read_text

LEDGER = "ledger.jsonl"


def updates_in_epoch(folder: Path, summary: Mapping[str, Any]) -> float | None:
    """Return how many updates of a run make an epoch; None where rates change, or are those of clients and no examples.

    A ledger that cannot be read tells nothing, as if it were not there: nothing else on the page depends on it.
    """
    try:
        lines = [json.loads(line) for line in read_text(folder / LEDGER, MOST_RECORDS).splitlines() if line]
        return _updates(lines, int(summary["updates"]), int(summary["parameters"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, RecursionError):
        return None


def _updates(lines: list[dict[str, Any]], updates: int, parameters: int) -> float | None:
    taken = [line for line in lines if line.get("size") == parameters]  # others found a scale, before the run
    whole = any("protects" in line or "unit" in line for line in taken)
    nodes = Counter(line["node"] for line in taken)
    if not taken or not updates or whole or max(nodes.values()) > 1:
        return None
    releases = sum(int(line["releases"]) for line in taken)
    return updates / releases * sum(1 / _rate(line) for line in taken)


def _rate(line: Mapping[str, Any]) -> float:
    """Probability that a release takes a given example."""
    if "probability" in line:
        return float(line["probability"])
    return float(line["batch_size"]) / float(line["dataset_size"])
