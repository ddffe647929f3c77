"""What nodes of each algorithm say in a small run, line by line as it was read beside the paper."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from tests.paper.conversations import SPECS, conversation

from gossamer.algorithms.table import ALGORITHMS
from gossamer.errors import RunWarning
from gossamer.experiment.specs.spec_file import read_spec


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.parent.name}-{spec.stem}")
def test_the_conversation_is_as_written(spec: Path) -> None:
    if "masked" in spec.stem:
        pytest.importorskip("cryptography", reason="needs the extra secure")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        said = conversation(spec)
    assert said.splitlines() == spec.with_suffix(".txt").read_text(encoding="utf-8").splitlines()


def test_every_algorithm_has_one() -> None:
    written = {id(ALGORITHMS[read_spec(spec).algorithm.name]) for spec in SPECS}
    assert written == {id(algorithm) for algorithm in ALGORITHMS.values()}
