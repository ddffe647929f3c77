"""Sums of several local rounds, one after the other, as arrays that tests compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gossamer.data.examples import Split
from gossamer.objectives.objective import LocalRound, LocalSum


class RoundSums(NamedTuple):
    """Sum of each round, and numbers of gradients that counted as zero."""

    sums: list[np.ndarray]
    zeroed: np.ndarray


def of_rounds(steps: Callable[[LocalRound, Split], LocalSum], rounds: Sequence[LocalRound], data: Split) -> RoundSums:
    found = [steps(each, data) for each in rounds]
    return RoundSums([one.total for one in found], np.array([one.zeroed for one in found]))
