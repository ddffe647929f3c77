"""What is read of a file with released histograms, which somebody else may have written."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import DataError
from gossamer.objectives.released_scores import FILE, ReleasedScores
from gossamer.objectives.score_histogram import BINS, SIZE, edges

PART = {"rows": 100, "noise": 5.0, "values": bytes(8 * SIZE).hex()}
WHOLE = {"run": "5e" * 16, "of": ["a", "b"], "epsilon": 0.5, "prevalence": None, "edges": edges(None).tolist()}
WHOLE |= {"groups": [""], "parties": {}, "step": 2.0**-10, "masked": {"a": PART, "b": PART}}


def read(folder: Path, **changed: Any) -> ReleasedScores | None:
    (folder / FILE).write_text(json.dumps({**WHOLE, **changed}))
    return ReleasedScores.read(folder)


def test_a_whole_sum_is_opened(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found is not None
    assert [*found.opened().summary()["parties"]] == ["all"]


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon": "much"},
        {"epsilon": [1]},
        {"prevalence": "rare"},
        {"prevalence": 0, "edges": [-math.inf] * (BINS - 1)},
        {"prevalence": 1, "edges": [math.inf] * (BINS - 1)},
        {"masked": {"a": {**PART, "noise": 1e300}, "b": PART}},
        {"masked": {"a": {**PART, "noise": 1e154}, "b": {**PART, "noise": 1e154}}},
        {"masked": {"a": {**PART, "rows": "many"}, "b": PART}},
    ],
)
def test_numbers_that_are_none_are_refused_in_a_line(changed: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected what a party released") as error:
        read(tmp_path, **changed)
    assert "\n" not in str(error.value)
