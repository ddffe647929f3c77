"""Messages that reach the server of clients that mask: keys, and vectors that say nothing by themselves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.algorithms.clients.nodes import SERVER
from gossamer.protocol.events import Received
from gossamer.protocol.trace import read_steps
from gossamer.vectors import Masked, Public, Vector


def check_masked(trace: Path, kinds: set[type], count: int, size: int) -> None:
    """Check that a traced run's server got ``count`` masked vectors [size], and beside them bytes alone.

    A masked vector is uniform modulo 2^32: its mean is within five standard deviations of a half (6e-7 each).
    """
    with open(trace, "rb") as file:
        steps = list(read_steps(file))
    said = [step.event.message for step in steps if step.node == SERVER and isinstance(step.event, Received)]
    assert {type(message) for message in said} == kinds
    sent = [vector for message in said for vector in _vectors(message)]
    masked = [vector for vector in sent if isinstance(vector, Masked)]
    assert len(masked) == count
    for vector in masked:
        assert (vector.size, vector.values.dtype) == (size, np.uint32)
        assert abs(vector.values.mean() / 2**32 - 0.5) < 5 * math.sqrt(1 / 12 / size)
    others = [vector for vector in sent if not isinstance(vector, Masked)]
    assert others
    assert all(type(vector) is Public and vector.values.dtype == np.uint8 for vector in others)


def _vectors(value: Any) -> list[Vector]:
    return [item for item in vars(value).values() if isinstance(item, Vector)]
