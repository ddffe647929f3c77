"""Compiled loops give the same bits wherever their arrays lie: small ones come to lie near each other by chance.

A compiler that cannot tell that two arrays do not overlap compares their addresses when a loop begins, and takes
another, slower loop if they are near. With sums that it may reorder the two do not round alike, so such a sum must not
be in a loop that also writes.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.sampling import examples

from gossamer.data.examples import Split
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import LocalRound, Minibatches, Training
from gossamer.vectors import ALL

WIDTH, FEATURES, EXAMPLES = 4, 4, 24
INPUTS, CALLS = examples(20), 40
"""With a sum of squares in the loop that writes them one call in twenty rounds otherwise: 0.95^200 < 4e-5 by default,
and 0.95^800 < 2e-18 with ``--slow``."""


@pytest.fixture(scope="module")
def shaken() -> Callable[[], None]:
    """Has the allocator hand out other addresses from now on."""
    try:
        library = ctypes.CDLL(None)
        library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        library.free.argtypes = [ctypes.c_void_p]
    except (OSError, TypeError, AttributeError):
        pytest.skip("the allocator of this system cannot be reached")
    held: list[Any] = []
    generator = random.Random(1)

    def shake() -> None:
        held.extend(library.malloc(generator.randrange(24, 220)) for _ in range(generator.randrange(12)))
        generator.shuffle(held)
        while len(held) > 60:
            library.free(held.pop())

    return shake


def questions(objective: LinearModel, data: Split, generator: np.random.Generator) -> Iterator[Callable[[], Any]]:
    """Calls of all loops, each on arrays of its own."""
    models = generator.standard_normal((WIDTH, objective.size)).astype(objective.dtype)
    rows = [generator.integers(EXAMPLES, size=4) for _ in range(WIDTH)]
    rates, clips = np.full(WIDTH, 0.5), np.full(WIDTH, 0.4)
    steps = [Training(Minibatches(each.copy(), np.array([2, 2])), 0.5, 0.9, 0.1) for each in rows]
    batches = [each.reshape(2, 2) for each in rows]
    yield lambda: objective.local_updates(models.copy(), data, batches, rates, clips).updates
    yield lambda: objective.clipped_gradients(models.copy(), data, [each.copy() for each in rows], 0.4).sums
    yield lambda: objective.local_training(models.copy(), data, steps).updates
    one = LocalRound(models[:1].copy(), np.zeros(1, np.int64), rows[0], np.full(4, 0.5), 0.5, 0.4, ALL)
    yield lambda: objective.local_steps(one, data).total


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sparse", [False, True])
def test_results_do_not_depend_on_addresses(sparse: bool, dtype: str, shaken: Callable[[], None]) -> None:
    generator = np.random.default_rng(5)
    x = generator.standard_normal((EXAMPLES, FEATURES)).astype(np.float32)
    data = Split(sp.csr_array(x) if sparse else x, generator.integers(2, size=EXAMPLES))
    objective = LinearModel("logistic", FEATURES, 2, l2=0.01, dtype=dtype)
    for _ in range(INPUTS):
        for question in questions(objective, data, generator):
            expected = np.asarray(question()).tobytes()
            for _ in range(CALLS):
                shaken()
                assert np.asarray(question()).tobytes() == expected
