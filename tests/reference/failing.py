"""The first seed of faults that fails, shortened."""

from __future__ import annotations

from collections.abc import Iterable

from gossamer.faults.trials import Failure, Trial, first_failing


def first_failure(trial: Trial, seeds: Iterable[int]) -> Failure | None:
    seed = first_failing(trial, seeds)
    return None if seed is None else Failure.of(trial, seed)
