"""How long clients' algorithms take to an accuracy when a tenth of the clients is ten times slower.

    python benchmarks/slow_clients.py [speed|private] [--seeds N] [--tune] [--json]

`speed`, without noise: virtual seconds to each of two accuracies, of 20 clients with digits dealt out evenly or by
class. `private`: accuracy and seconds of 400 clients at the same proved epsilon, for two lengths of the run.
Settings are the best of the grids below by the median of seeds 5 to 7 (`--tune` prints all of them): the least seconds
to the first accuracy, or the highest accuracy at the end of the shorter run. Figures are of seeds 0 and up, on one grid
of evaluations for all. Exits with 1, and says where, if FedBuff or FedAsync takes more than half of FedAvg's time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gossamer as gs
from gossamer.experiment.specs.spec_file import parse_spec

ACCURACY = "mean_model_test_accuracy"
TARGETS, HORIZON, EVERY = (0.9, 0.93), 1200.0, 2.0
TUNING = (5, 6, 7)
REQUIRED = 0.5
PARTITIONS: dict[str, Any] = {"iid": "iid", "by class": {"name": "dirichlet", "alpha": 0.5}}
COMMON = {"dataset": "digits", "speeds": {"scenario": {"name": "some_slow", "share": 0.1, "factor": 10}}}
LOCAL = {"local_learning_rate": (0.3, 1.0, 3.0)}

Arm = Mapping[str, Any]

SPEED: dict[str, tuple[Arm, Mapping[str, Sequence[Any]]]] = {
    "FedAvg": ({"name": "fedavg", "rounds": 100_000}, {"clients_per_round": (10, 20), **LOCAL}),
    "FedAvg, 1.3 times as many asked": (
        {"name": "fedavg", "rounds": 100_000, "clients_per_round": 10, "over_selection": 1.3},
        LOCAL,
    ),
    "FedBuff": ({"name": "fedbuff"}, {"buffer": (5, 10), **LOCAL}),
    "FedAsync": ({"name": "fedasync"}, {"mixing": (0.2, 0.6), **LOCAL}),
}
"""By name: what is fixed, and the grid of what is tuned; without noise."""

TRUSTED = {"noise_by": "server", "trusted": "server", "local_epochs": 2, "batch_size": 4}
OWN = {"local_epochs": 2, "batch_size": 4}
RATES = {"local_learning_rate": (0.1, 0.3, 1.0)}
ROUNDS, UPDATES = (30, 60), (3, 6)
"""Lengths: rounds or sums of 100 clients of a trusted server, and updates of each client with noise of its own."""
PRIVATE: dict[str, tuple[Arm, Mapping[str, Sequence[Any]]]] = {
    "trusted server, FedAvg, secret cohorts": (
        {"name": "fedavg", "clients_per_round": 100, "cohorts": "secret", **TRUSTED},
        RATES,
    ),
    "trusted server, FedAvg, public cohorts": ({"name": "fedavg", "clients_per_round": 100, **TRUSTED}, RATES),
    "trusted server, FedAvg, 1.3 times as many asked": (
        {"name": "fedavg", "clients_per_round": 100, "over_selection": 1.3, **TRUSTED},
        RATES,
    ),
    "trusted server, FedBuff": (
        {"name": "fedbuff", "buffer": 100, **TRUSTED},
        {"staleness_exponent": (0.5, 0.0), "learning_rate": (1.0, 2.0), **RATES},
    ),
    "noise of clients, FedAvg": ({"name": "fedavg", **OWN}, RATES),
    "noise of clients, FedBuff": ({"name": "fedbuff", "buffer": 100, "learning_rate": 0.3, **OWN}, RATES),
    "noise of clients, FedAsync": ({"name": "fedasync", "mixing": 0.01, "staleness_weight": "constant", **OWN}, RATES),
}

CHOSEN: dict[str, dict[str, Arm]] = {
    "iid": {
        "FedAvg": {"clients_per_round": 10, "local_learning_rate": 1.0},
        "FedAvg, 1.3 times as many asked": {"local_learning_rate": 1.0},
        "FedBuff": {"buffer": 10, "local_learning_rate": 0.3},
        "FedAsync": {"mixing": 0.2, "local_learning_rate": 1.0},
    },
    "by class": {
        "FedAvg": {"clients_per_round": 10, "local_learning_rate": 1.0},
        "FedAvg, 1.3 times as many asked": {"local_learning_rate": 1.0},
        "FedBuff": {"buffer": 5, "local_learning_rate": 1.0},
        "FedAsync": {"mixing": 0.6, "local_learning_rate": 3.0},
    },
    "private": {
        "trusted server, FedAvg, secret cohorts": {"local_learning_rate": 0.1},
        "trusted server, FedAvg, public cohorts": {"local_learning_rate": 0.3},
        "trusted server, FedAvg, 1.3 times as many asked": {"local_learning_rate": 0.3},
        "trusted server, FedBuff": {"staleness_exponent": 0.0, "learning_rate": 1.0, "local_learning_rate": 0.3},
        "noise of clients, FedAvg": {"local_learning_rate": 1.0},
        "noise of clients, FedBuff": {"local_learning_rate": 0.3},
        "noise of clients, FedAsync": {"local_learning_rate": 0.3},
    },
}
"""The best of each grid; of equal ones the first."""


def speed_run(algorithm: Arm, partition: str, seed: int, targets: Sequence[float] = TARGETS) -> list[float | None]:
    """Virtual seconds until each of the accuracies is first seen, without noise; looked at every two."""
    found = gs.run(
        parse_spec(
            {
                **COMMON,
                "algorithm": {"nodes": 20, "local_epochs": 1, **algorithm},
                "partition": PARTITIONS[partition],
                "privacy": "none",
                "stop": {"virtual_seconds": HORIZON, "accuracy": targets[-1]},
                "evaluation": {"every_seconds": EVERY, "nodes": 1},
                "seed": seed,
            }
        )
    )
    return [time_to(target, found.metrics) for target in targets]


def time_to(accuracy: float, rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Virtual seconds of the first evaluation at or above ``accuracy``; None if there is none."""
    return next((row["virtual_seconds"] for row in rows if row[ACCURACY] >= accuracy), None)


def private_run(algorithm: Arm, length: int, seed: int) -> tuple[float, float, float]:
    """Accuracy at the end, the virtual seconds that it took, and the proved epsilon."""
    key = {"fedavg": {"rounds": ROUNDS if algorithm.get("trusted") else UPDATES}}.get(algorithm["name"])
    extra: dict[str, Any] = {name: values[length] for name, values in key.items()} if key else {}
    stop: dict[str, Any] = {}
    if key is None and algorithm.get("trusted"):
        stop = {"updates": ROUNDS[length]}
    elif key is None:
        extra = {"updates_per_node": UPDATES[length]}
    found = gs.run(
        parse_spec(
            {
                **COMMON,
                "algorithm": {"nodes": 400, **algorithm, **extra},
                "privacy": {"clip": 0.5, "noise_secret": "reproducible"},
                "budget": {"epsilon": 8, "delta": 1e-4},
                "stop": stop,
                "evaluation": {"name": "off", "nodes": 1},
                "seed": seed,
            }
        )
    )
    row, proved = found.metrics[-1], found.guarantee.would_be
    assert proved is not None
    return row[ACCURACY], row["virtual_seconds"], proved.epsilon


def settings_of(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """All settings of a grid."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def median(times: Sequence[float | None]) -> float | None:
    """Median, in which None is longer than all."""
    found = statistics.median(float("inf") if time is None else time for time in times)
    return None if found == float("inf") else found


def tune() -> None:
    """Print the median of seeds 5 to 7 for all settings of all grids."""
    for partition, (name, (fixed, grid)) in itertools.product(PARTITIONS, SPEED.items()):
        for settings in settings_of(grid):
            times = [speed_run({**fixed, **settings}, partition, seed, TARGETS[:1])[0] for seed in TUNING]
            print(f"{partition}; {name}; {settings}: {median(times)} s")
    for name, (fixed, grid) in PRIVATE.items():
        for settings in settings_of(grid):
            ends = [private_run({**fixed, **settings}, 0, seed)[0] for seed in TUNING]
            print(f"private; {name}; {settings}: {statistics.median(ends):.3f}")


def speed(seeds: int) -> list[dict[str, Any]]:
    """A row for each partition and arm: seconds to each accuracy, by seed."""
    rows = []
    for partition, (name, (fixed, _)) in itertools.product(PARTITIONS, SPEED.items()):
        arm = {**fixed, **CHOSEN[partition][name]}
        times = [speed_run(arm, partition, seed) for seed in range(seeds)]
        rows.append({"partition": partition, "arm": name, **dict(zip(map(str, TARGETS), zip(*times), strict=True))})
    return rows


def private(seeds: int) -> list[dict[str, Any]]:
    """A row for each arm and length: accuracy at the end, seconds and proved epsilon, by seed."""
    rows = []
    for (name, (fixed, _)), length in itertools.product(PRIVATE.items(), (0, 1)):
        runs = [private_run({**fixed, **CHOSEN["private"][name]}, length, seed) for seed in range(seeds)]
        accuracies, seconds, epsilons = zip(*runs, strict=True)
        row = {"accuracies": accuracies, "seconds": seconds, "epsilon": max(epsilons)}
        rows.append({"arm": name, "length": ("short", "twice")[length], **row})
    return rows


def shortfalls(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where FedBuff or FedAsync takes more than half of FedAvg's time, a line each seed; never is the horizon."""
    found = []
    by_place = {(row["partition"], row["arm"]): row for row in rows}
    for partition, name, target in itertools.product(PARTITIONS, ("FedBuff", "FedAsync"), map(str, TARGETS)):
        waited = by_place[partition, "FedAvg"][target]
        for seed, (time, other) in enumerate(zip(by_place[partition, name][target], waited, strict=True)):
            if time is None or time > REQUIRED * (HORIZON if other is None else other):
                late = f"{name} reaches {target} after {said(time)}, FedAvg after {said(other)}"
                found.append(f"{partition}, seed {seed}: {late}")
    return found


def said(time: float | None) -> str:
    return "never" if time is None else f"{time:.0f} s"


def show_speed(rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        print(f"{row['partition']:9} {row['arm']:32}", end="")
        for key in map(str, TARGETS):
            print(f" {key}: {said(median(row[key]))} ({', '.join(map(said, row[key]))})", end="")
        print()


def show_private(rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        accuracy, seconds = statistics.median(row["accuracies"]), statistics.median(row["seconds"])
        spread = f"{min(row['accuracies']):.3f} to {max(row['accuracies']):.3f}"
        end = f"{accuracy:.3f} ({spread}), {said(seconds)}, epsilon {row['epsilon']:.3f}"
        print(f"{row['arm']:48} {row['length']:6} {end}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=("speed", "private"), help="one of the two; both by default")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tune", action="store_true", help="print what settings were chosen from, and nothing else")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error(f"argument --seeds: expected 1 or more, found {options.seeds}")
    if options.tune:
        tune()
        return 0
    parts = (options.part,) if options.part else ("speed", "private")
    found = {part: {"speed": speed, "private": private}[part](options.seeds) for part in parts}
    missed = shortfalls(found["speed"]) if "speed" in found else []
    if options.json:
        print(json.dumps({"benchmark": "slow_clients", **found, "shortfalls": missed}))
    else:
        for part, rows in found.items():
            {"speed": show_speed, "private": show_private}[part](rows)
    for line in missed:
        print(f"slow_clients: {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
