"""Question to an agent's data side while its unit's sum is masked: for its message of one step.

It is known without cryptography, which masks need and is optional: whoever meets tasks has to tell these apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gossamer.protocol.encoding import register
from gossamer.vectors import Masked, Public

STEPS = 5
"""Announce, share, mask, confirm, reveal: 0 to 4."""
MASK = 2
"""The step whose message is the masked vector."""
REFUSED = Public(np.empty(0, np.uint8))
"""The answer of a data side that will not say what it was asked for; also what comes before the first step."""


@register("task.masking_step")
@dataclass(frozen=True)
class MaskingStep:
    """The agent's message of one step; it takes no time.

    A step is asked for again with the same ``incoming``, and is answered with the same bytes. Any other question is
    answered with `REFUSED`.

    Attributes
    ----------
    round : int
        Of the unit.
    step : int
        0 to 4.
    incoming : Public
        What the server sent, as bytes; before the first step, nothing.
    answer_size : int
        How many numbers the answer has.
    bits : int
        Of each.
    """

    round: int
    step: int
    incoming: Public
    answer_size: int
    bits: int = 8

    steps = base = 0
    amendable, kept = False, True

    @property
    def id(self) -> int:
        """Below 0, so that it is none of the updates' own."""
        return -1 - (self.round * STEPS + self.step)

    @property
    def label(self) -> type[Masked] | type[Public]:
        """Label of the answer's vector."""
        return Masked if self.step == MASK else Public

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """Type of the answer's numbers."""
        return np.dtype(f"u{self.bits // 8}")


def step_of(task: int) -> tuple[int, int] | None:
    """The round and the step that a task's id belongs to; None if it is no masking step's."""
    return divmod(-1 - task, STEPS) if task < 0 else None
