"""Runs in memory: what is left of one when it is over."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import gossamer as gs


@pytest.mark.parametrize("algorithm", ["gossip", "fedavg", pytest.param("increasing", marks=pytest.mark.slow)])
def test_a_run_leaves_nothing_in_memory(algorithm: str) -> None:
    """A loop over runs would hold the examples of each until Python looks for circles, which it does rarely."""
    kept: list[Any] = []

    def look(prepared: Any, model: Any) -> dict[str, float]:
        kept.append(weakref.ref(prepared))
        return {}

    content = {
        "dataset": "digits",
        "algorithm": {"name": algorithm, "nodes": 4},
        "privacy": {"clip": 1, "noise_multiplier": 1},
    }
    gs.run({**content, "stop": {"updates": 8}})  # what is compiled now is kept for ever, with what called for it
    gc.collect()
    gc.disable()
    try:
        result = gs.run({**content, "stop": {"updates": 8}}, measure=look)
        assert result.summary["updates"] == 8
        assert kept[0]() is None
    finally:
        gc.enable()
