"""Whether the time of a gradient tells what is in an example: compiled networks on rows of all kinds.

    python benchmarks/value_times.py [--networks cnn_mapa lenet5 tanh pools mlp] [--rounds 200] [--json]

Thirty rows of each kind are computed in one call of the network's kernel, as in a deployed node (`Objective.steady`),
kinds in a random order, round after round: so load from elsewhere falls on all kinds alike, and what is left of it
is taken out by the least of the times. Printed is each kind's time over that of drawn rows; a second set of drawn rows
shows how far such ratios are chance. Models are one that is drawn, all zeros (every maximum a tie) and thirty times the
drawn one (every tanh saturated).

A ratio that is beyond 1.00 by more than a few hundredths is a finding: `chains.kernels` promises that there is none.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping

import numpy as np
from torch import nn

from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.objectives.chains.compiled import CLIPPED
from gossamer.objectives.models import build_model
from gossamer.objectives.networks.gradients import without_subnormals
from gossamer.objectives.networks.module import TorchModule

SHAPE, CLASSES, ROWS = (1, 28, 28), 10, 30


def _lenet_of_tanh() -> nn.Module:
    first = (nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2))
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(400, 84), nn.Tanh(), nn.Linear(84, CLASSES))


def _pools() -> nn.Module:
    first = (nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Sigmoid(), nn.AvgPool2d(2))
    return nn.Sequential(
        *first, nn.Conv2d(8, 8, 3), nn.MaxPool2d(3, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(128, 10)
    )


NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    **{name: lambda name=name: build_model(name, SHAPE, CLASSES) for name in ("cnn_mapa", "lenet5", "mlp")},
    "tanh": _lenet_of_tanh,
    "pools": _pools,
}


def kinds() -> dict[str, FloatArray]:
    """Rows [30, 1, 28, 28] of each kind."""
    generator, shape = np.random.default_rng(0), (ROWS, *SHAPE)
    drawn = generator.standard_normal((2, *shape))
    some = generator.random(shape) < 0.2
    found = {
        "drawn": drawn[0],
        "drawn again": drawn[1],
        "zeros": np.zeros(shape),
        "ones": np.ones(shape),
        "one row": np.repeat(drawn[0][:1], ROWS, axis=0),
        "an image": np.abs(drawn[0]) * some,
        "subnormal": drawn[0] * 1e-40,
        "some subnormal": np.where(some, 1, drawn[0] * 1e-40),
        "large": drawn[0] * 1e4,
        "largest": np.sign(drawn[0]) * 3e38,
        "NaN": np.full(shape, np.nan),
        "some NaN": np.where(some, np.nan, drawn[0]),
    }
    return {name: rows.astype(np.float32) for name, rows in found.items()}


def measure(network: str, rounds: int) -> dict[str, dict[str, float]]:
    """Least time of each kind over that of drawn rows, by model."""
    rows = kinds()
    data = Split(np.concatenate(list(rows.values())), np.zeros(ROWS * len(rows), np.int64))
    objective = TorchModule(NETWORKS[network](), strategy="compiled", threads=1).steady()
    kernel = objective.plan(data).kernel
    assert kernel is not None
    drawn = objective.initial(np.random.default_rng(1)).astype(np.float32)
    x, y, _ = kernel.examples(data, np.arange(1))
    total, squares = np.zeros(objective.size, np.float32), np.empty(ROWS)
    found = {}
    for name, model in {"drawn": drawn, "zeros": np.zeros_like(drawn), "saturated": 30 * drawn}.items():
        times, order = np.empty((rounds, len(rows))), np.random.default_rng(2)
        with kernel.alone(), without_subnormals(True):
            for times_now in times:
                for kind in order.permutation(len(rows)):
                    index, begun = np.arange(kind * ROWS, (kind + 1) * ROWS), time.perf_counter()
                    kernel.run(CLIPPED, x, y, index, model, 1.0, total, squares)
                    times_now[kind] = time.perf_counter() - begun
        least = times.min(0)
        found[name] = dict(zip(rows, (least / least[0]).round(3).tolist(), strict=True))
    return found


def main() -> None:
    """Measure each network and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    found = {network: measure(network, arguments.rounds) for network in arguments.networks}
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    columns = [(network, model) for network, models in found.items() for model in models]
    print(f"{'':14} " + " ".join(f"{network:>9}" for network, _ in columns))
    print(f"{'model':14} " + " ".join(f"{model:>9}" for _, model in columns))
    for kind in kinds():
        print(f"{kind:14} " + " ".join(f"{found[network][model][kind]:9.2f}" for network, model in columns))


if __name__ == "__main__":
    main()
