"""Kernels of chains do the same for every example, whatever its numbers: they are run as Python, line by line.

No clock is read here: `benchmarks/value_times.py` does that.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numba import njit

pytest.importorskip("torch", reason="needs the extra torch")

from gossamer.objectives.chains import layers as writers
from gossamer.objectives.chains.kernels import U

PROGRAM = """
import json, sys, warnings
from collections import Counter
import numpy as np
from torch import nn
import importlib, numba
from gossamer.objectives.chains import compiled, exponentials, kernels
from gossamer.objectives.networks.kernel import chain_of
from gossamer.objectives.networks.network import flat_parameters

warnings.simplefilter("ignore")
np.seterr(all="ignore")
numba.core.config.DISABLE_JIT = True
for loops in (kernels, exponentials):
    importlib.reload(loops)
conv = (nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(2, 2, 2), nn.MaxPool2d(2, 1), nn.Tanh())
dense = (nn.Conv2d(1, 2, 2), nn.GroupNorm(1, 2), nn.Sigmoid(), nn.AvgPool2d(2), nn.ReLU(), nn.MaxPool2d(2, 1))
flat = (nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 3), nn.Tanh())
CHAINS = {
    "convolutions": (nn.Sequential(*conv, nn.Flatten(), nn.Linear(2, 3)), (1, 6, 6)),
    "dense": (nn.Sequential(*dense, nn.Flatten(), nn.Linear(2, 3)), (1, 5, 5)),
    "flat": (nn.Sequential(*flat, nn.Linear(3, 3)), (6,)),
}
generator = np.random.default_rng(0)


def examples(size):
    drawn = [generator.standard_normal(size) for _ in range(3)]
    same = [np.zeros(size), np.ones(size), -np.ones(size)]
    odd = [drawn[0] * 1e-40, drawn[0] * 1e30, np.full(size, np.nan), np.full(size, np.inf)]
    return np.array([*drawn, *same, *odd, np.where(np.arange(size) % 2, np.nan, 1)]).astype(np.float32)


def lines(run, *arguments):
    found = Counter()

    def watch(frame, event, argument):
        if frame.f_code.co_name == "run" or "chains" in frame.f_code.co_filename:
            if event == "line":
                found[frame.f_code.co_name, frame.f_lineno] += 1
            return watch

    sys.settrace(watch)
    try:
        run(*arguments)
    finally:
        sys.settrace(None)
    return found


SPOILT = sys.argv[1:] == ["spoilt"]
said = {}
for name, (module, shape) in CHAINS.items():
    chain, (_, model) = chain_of(module, shape, flat_parameters(module)[0]), flat_parameters(module)
    text = (compiled.write_flat if compiled.is_flat(chain) else compiled.write)(chain, "cross_entropy")
    if SPOILT:  # a loop that leaves out what is zero
        loop = "    for p in range(n):"
        text = text.replace(loop, loop + "\\n        if x[xo + p] == 0:\\n            continue")
    space = {}
    exec(compile(compiled._HEAD.format(signature="void()", cache=False) + text, "chains", "exec"), space)
    x = examples(int(np.prod(shape)))
    seen = []
    for model in (model, np.zeros_like(model), 30 * model):
        for row in range(len(x)):
            total, squares, index = np.zeros_like(model), np.empty(1), np.array([row])
            y = np.zeros(len(x), np.int64) + row % 3
            arguments = (0, x.reshape(-1), y, index, model, 0.1, total, squares)
            seen.append(sorted(map(list, lines(space["run"], *arguments).items())))
    said[name] = [sum(count for _, count in seen[0]), sum(one != seen[0] for one in seen), len(seen)]
print(json.dumps(said))
"""


def counted(*arguments: str) -> dict[str, list[int]]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_every_example_takes_the_same_steps() -> None:
    """Drawn, equal, tiny and huge numbers, and none at all; with models that are drawn, zero and saturated."""
    for name, (steps, others, examples) in counted().items():
        assert steps > 500, name
        assert (others, examples) == (0, 33), name


@pytest.mark.slow
def test_steps_that_are_left_out_are_seen() -> None:
    assert counted("spoilt")["convolutions"][1] > 0


OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False}
"""What the library compiles its loops with."""


def branches(size: int) -> tuple[int, int]:
    """Conditional branches and selects in the machine's version of a pool over windows of ``size``."""
    names: dict[str, Any] = {"U": U, "np": np, "in_order": njit(**OPTIONS)}
    exec(writers.window(size), names)
    array, number = "float32[::1]", "uint64"
    given = ", ".join((array, number, "int32[::1]", number, array, *[number] * 6))
    compiled = njit(f"void({given})", **OPTIONS)(names[f"window_{size}"].py_func)
    (code,) = compiled.inspect_llvm().values()
    return len(re.findall(r"\bbr i1\b", code)), len(re.findall(r"\bselect\b", code))


def test_maxima_over_windows_are_selected_without_branches() -> None:
    """A branch for each number of a window would be 7 more for windows of 4 by 4 than for those of 3 by 3."""
    (few, some), (many, more) = branches(3), branches(4)
    assert many - few < 4
    assert more - some >= 7
