"""Privacy accounting: time and tightness, against dp-accounting and the characteristic function.

Four tables: 10,000 different sampling rates in one plan; plans of one rate with epsilons from 0.05 to 20, next to
dp-accounting's privacy loss distributions at intervals of 1e-4 and, with --fine, 1e-5 (ours should be at most 1.01
times the first and never below the second); calibrations; and, with --region N, N plans drawn from multipliers 0.3 to
50, rates 1e-6 to 1 and up to 1e8 releases, next to nearly exact figures (tests/reference/accounting_characteristic.py):
how much epsilon and delta are too large. Where few releases reveal much, the reference has none, and a row says so.

    python benchmarks/accounting.py [--json] [--fine] [--region N]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from dp_accounting.pld import privacy_loss_distribution

from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.planner import calibrate_noise_multiplier, gaussian_releases
from gossamer.privacy.mechanisms import BatchSampling, NeighboringRelation, Poisson

DELTA, ADD = 1e-5, NeighboringRelation.ADD_OR_REMOVE_ONE
DISTINCT, MOST_SECONDS, MOST_RATIO = 10_000, 20.0, 1.01
RATES = {
    "linear 1e-4 .. 1e-2": np.linspace(1e-4, 1e-2, DISTINCT),
    "linear 1e-3 .. 5e-2": np.linspace(1e-3, 5e-2, DISTINCT),
    "geometric 1e-6 .. 1e-1": np.geomspace(1e-6, 1e-1, DISTINCT),
}
# noise multiplier, rate, releases: epsilons from 0.05 to 20
PLANS = [
    (4.0, 0.005, 300),
    (8.0, 0.01, 3000),
    (1.0, 0.001, 3000),
    (2.0, 0.05, 100),
    (5.0, 0.9, 40),
    (1.0, 0.01, 3000),
    (1.0, 0.02, 4000),
    (0.5, 0.02, 200),
    (3.0, 0.3, 1000),
]
BUDGETS = [(1.0, 0.01, 3000), (8.0, 0.1, 200), (0.1, 0.001, 10_000)]


def timed(ask: Callable[[], float]) -> tuple[float, float]:
    start = time.perf_counter()
    answer = ask()
    return answer, time.perf_counter() - start


def ours(multiplier: float, schedule: Mapping[BatchSampling, int]) -> float:
    return accountants.epsilon(gaussian_releases(multiplier, schedule), DELTA, ADD).epsilon


def theirs(multiplier: float, rate: float, count: int, interval: float) -> float:
    single = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier, value_discretization_interval=interval, sampling_prob=rate
    )
    return float(single.self_compose(count).get_epsilon_for_delta(DELTA))


def many_rates() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for multiplier in (1.0, 4.0):
        for name, rates in RATES.items():
            schedule = {Poisson(float(rate)): 1 for rate in rates}
            epsilon, seconds = timed(lambda m=multiplier, s=schedule: ours(m, s))
            rows.append(
                {
                    "rates": name,
                    "multiplier": multiplier,
                    "epsilon": round(epsilon, 4),
                    "seconds": round(seconds, 3),
                    "required": MOST_SECONDS,
                }
            )
    return rows


def one_rate(fine: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for plan in PLANS:
        multiplier, rate, count = plan
        epsilon, seconds = timed(lambda p=plan: ours(p[0], {Poisson(p[1]): p[2]}))
        coarse, their_seconds = timed(lambda p=plan: theirs(*p, 1e-4))
        row: dict[str, object] = {
            "multiplier": multiplier,
            "rate": rate,
            "releases": count,
            "epsilon": round(epsilon, 5),
            "seconds": round(seconds, 4),
            "theirs_s": round(their_seconds, 3),
            "over_1e-4": round(epsilon / coarse, 6),
            "required": MOST_RATIO,
        }
        if fine:
            row["over_1e-5"] = round(epsilon / theirs(*plan, 1e-5), 7)
        rows.append(row)
    return rows


def calibrations() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for budget, rate, count in BUDGETS:
        start = time.perf_counter()
        found = calibrate_noise_multiplier(budget, DELTA, ADD, [{Poisson(rate): count}])
        rows.append(
            {
                "budget": budget,
                "rate": rate,
                "releases": count,
                "multiplier": round(found.noise_multiplier, 5),
                "epsilon": round(found.epsilon, 6),
                "seconds": round(time.perf_counter() - start, 3),
            }
        )
    return rows


REGION_DELTAS = (1e-3, 1e-5, 1e-8, 1e-12)
PAIRS = {ADD: ("remove", "add"), NeighboringRelation.REPLACE_ONE: ("replace",)}


def region(plans: int) -> list[dict[str, object]]:
    """Plans drawn at random, evenly in logarithms, and in the last row the largest of what is too much."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.reference import accounting_characteristic as exact

    rng, rows = np.random.default_rng(0), []
    for _ in range(plans):
        multiplier, rate = math.exp(rng.uniform(math.log(0.3), math.log(50))), 10 ** rng.uniform(-6, 0)
        count, delta = int(10 ** rng.uniform(1, 8)), float(rng.choice(REGION_DELTAS))
        relation = list(PAIRS)[int(rng.integers(2))]
        counts = gaussian_releases(multiplier, {Poisson(rate): count})
        epsilon, seconds = timed(lambda c=counts, d=delta, r=relation: accountants.epsilon(c, d, r).epsilon)
        if epsilon == 0:
            continue
        row: dict[str, object] = {
            "multiplier": f"{multiplier:.3g}",
            "rate": f"{rate:.2g}",
            "releases": f"{count:.2g}",
            "delta": delta,
            "replace": relation is not ADD,
            "epsilon": f"{epsilon:.5g}",
            "seconds": round(seconds, 3),
        }
        try:
            losses = [exact.pair(direction, multiplier, rate) for direction in PAIRS[relation]]
            able = [loss for loss in losses if epsilon < count * float(np.max(loss.losses))]
            true, before = (max(exact.delta(loss, count, e) for loss in able) for e in (epsilon, epsilon * 0.999))
        except ArithmeticError:
            rows.append({**row, "excess": "-", "of delta": "-"})
            continue
        excess = math.log(delta / true) / math.log(before / true) / 1000
        of_delta = accountants.delta(counts, epsilon, relation) / true - 1
        rows.append({**row, "excess": f"{excess:.1e}", "of delta": f"{of_delta:.1e}"})
    worst = {
        name: f"{max(float(str(row[name])) for row in rows if row[name] != '-'):.1e}" for name in ("excess", "of delta")
    }
    least = {
        name: f"{min(float(str(row[name])) for row in rows if row[name] != '-'):.1e}" for name in ("excess", "of delta")
    }
    seconds = max(float(str(row["seconds"])) for row in rows)
    blank = dict.fromkeys(rows[0], "")
    return [
        *rows,
        {**blank, "multiplier": "largest", "seconds": seconds, **worst},
        {**blank, "multiplier": "least", **least},
    ]


def show(title: str, rows: list[dict[str, object]]) -> None:
    print(title)
    print("".join(f"{name:>24}" if name == "rates" else f"{name:>12}" for name in rows[0]))
    for row in rows:
        print("".join(f"{value:>24}" if name == "rates" else f"{value:>12}" for name, value in row.items()))
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--fine", action="store_true", help="also dp-accounting at an interval of 1e-5 (minutes)")
    parser.add_argument("--region", type=int, default=0, metavar="N", help="also N plans from the region (minutes)")
    arguments = parser.parse_args()
    tables = {
        "10,000 different rates": many_rates(),
        "one rate": one_rate(arguments.fine),
        "calibration": calibrations(),
        **({"region": region(arguments.region)} if arguments.region else {}),
    }
    if arguments.json:
        print(json.dumps({"benchmark": "accounting", "delta": DELTA, "tables": tables}))
        return
    for title, rows in tables.items():
        show(title if title == "region" else f"{title}, delta {DELTA:g}", rows)


if __name__ == "__main__":
    main()
