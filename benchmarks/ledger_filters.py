"""How much of a policy runs need, and how many fit into one: by each filter over runs, and by the accountant.

The first table has the epsilon that a policy has to allow for one run, over the epsilon that the run is calibrated to.
The second has how many runs of epsilon 1 a policy of 4 admits; "fixed" is what a series that is set aside would hold,
all of them at once. Runs are planned with the least noise, all at delta 1e-5. The third has the seconds of processor
time that it takes to admit or refuse a run, or to read a series, for plans that are hard to analyse.

    python benchmarks/ledger_filters.py [--generated N] [--times] [--json]

--times prints the third table only; --generated adds N plans with 10 to 10,000 releases at rates from 0.001 to 1,
evenly on a logarithmic scale.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from time import process_time
from typing import NamedTuple

import numpy as np

from gossamer.errors import BudgetSpent
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.accounting.filters import (
    EitherFilter,
    FilterTotal,
    RenyiFilter,
    RunSeries,
    SeriesPlan,
    widest_order_of,
)
from gossamer.privacy.accounting.gaussian_dp import PlanCurve
from gossamer.privacy.accounting.planner import calibrate_noise_multiplier, gaussian_releases
from gossamer.privacy.accounting.renyi import renyi_epsilon, widest_order
from gossamer.privacy.mechanisms import BatchSampling, Counts, FixedSize, NeighboringRelation, Poisson
from gossamer.runtimes.storage.ledger import LedgerFile

DELTA = 1e-5
TARGETS = 1.0, 2.0, 4.0, 8.0
ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


class Plan(NamedTuple):
    """A run: so many releases on samples of one sort, under a relation."""

    releases: int
    sampling: BatchSampling
    relation: NeighboringRelation

    def __str__(self) -> str:
        how = "fixed size, " if isinstance(self.sampling, FixedSize) else ""
        return f"{self.releases} x {self.sampling.rate:.3g} ({how}{self.relation.value})"

    def calibrated(self, target: float) -> Counts:
        """The releases, with the least noise for an epsilon."""
        schedule = {self.sampling: self.releases}
        found = calibrate_noise_multiplier(target, DELTA, self.relation, [schedule])
        return gaussian_releases(found.noise_multiplier, schedule)


FOUR = [Plan(20, Poisson(1.0), ADD), *(Plan(n, Poisson(q), ADD) for n, q in ((3000, 0.01), (100, 0.01), (3000, 0.001)))]
OTHERS = [
    Plan(500, Poisson(0.05), ADD),
    *(plan._replace(relation=REPLACE) for plan in FOUR),
    Plan(500, FixedSize(1000, 50), REPLACE),
    Plan(100, FixedSize(1000, 10), REPLACE),
]


def generated(number: int) -> list[Plan]:
    """Plans of the same kind, from a seed."""
    generator = np.random.default_rng(2024)
    releases, rates = 10 ** generator.uniform(1, 4, number), 10 ** generator.uniform(-3, 0, number)
    return [
        Plan(
            round(n),
            Poisson(float(q)) if i % 3 < 2 else FixedSize(10_000, math.ceil(q * 10_000)),
            (ADD, REPLACE, REPLACE)[i % 3],
        )
        for i, (n, q) in enumerate(zip(releases, rates))
    ]


def needs(counts: Counts, relation: NeighboringRelation, target: float) -> dict[str, float]:
    """The epsilon that one run takes, by filter: Renyi alone at all of delta, then each at half, and either."""
    policies = target * np.geomspace(1, 8, 400)

    def by_renyi(delta: float) -> float:
        found: dict[int, float] = {}
        for policy in policies.tolist():
            order = widest_order(policy, delta)
            if order not in found:
                found[order] = renyi_epsilon(order, RenyiFilter(1.0, 0.5, relation, order).spent(counts), delta)
            if found[order] <= policy:
                return float(policy)
        return math.inf

    filters = EitherFilter(target, DELTA, relation, 8.0).gaussian
    failure = filters.failures * (1 - 1e-12)
    mu = PlanCurve.of(counts, relation).mu(failure)
    gaussian = filters.needed(FilterTotal(mu**2, failure))
    halves = by_renyi(DELTA / 2)
    return {"renyi alone": by_renyi(DELTA), "renyi": halves, "gaussian": gaussian, "either": min(halves, gaussian)}


def fitting(counts: Counts, relation: NeighboringRelation, policy: float) -> dict[str, int]:
    """How many such runs a policy admits."""
    alone = RenyiFilter(policy, DELTA, relation, widest_order(policy, DELTA))
    filters = EitherFilter(policy, DELTA, relation, widest_order_of(policy, DELTA))
    total, gaussian = FilterTotal(), 0
    while filters.gaussian.covers(total := total.plus(filters.gaussian.entry(counts, total))):
        gaussian += 1
    fixed = 0
    while epsilon({kind: n * (fixed + 1) for kind, n in counts.items()}, DELTA, relation).epsilon <= policy:
        fixed += 1
    half = int(filters.renyi.level / filters.renyi.spent(counts))
    return {
        "renyi alone": int(alone.level / alone.spent(counts)),
        "renyi": half,
        "gaussian": gaussian,
        "either": max(half, gaussian),
        "fixed": fixed,
    }


def rows(number: int) -> Iterator[dict[str, object]]:
    """All that is measured."""
    for plan in [*FOUR, *OTHERS, *generated(number)]:
        for target in TARGETS:
            found = needs(plan.calibrated(target), plan.relation, target)
            yield {"plan": str(plan), "calibrated": target, **{by: value / target for by, value in found.items()}}
    for plan in FOUR:
        yield {"plan": str(plan), "policy": 4.0, **fitting(plan.calibrated(1.0), plan.relation, 4.0)}


def hard() -> Iterator[tuple[str, Counts, NeighboringRelation]]:
    """Plans that take long to analyse: little noise, many releases, many rates."""
    for n, rate, multiplier in (
        (3000, 0.01, 1.2),
        (3000, 0.001, 0.7),
        (10**7, 1e-4, 2.0),
        (100, 0.01, 0.3),
        (10_000, 0.01, 0.1),
        (100, 0.01, 0.01),
        (10_000, 0.01, 0.01),
    ):
        for relation in (ADD, REPLACE):
            plan = gaussian_releases(multiplier, {Poisson(rate): n})
            yield f"{n} x {rate:g}, multiplier {multiplier:g} ({relation.value})", plan, relation
    generator = np.random.default_rng(2024)
    for n in (100, 1000, 10_000):
        rates = (10 ** generator.uniform(-3, -1, n)).tolist()
        for relation in (ADD, REPLACE):
            plan = gaussian_releases(4.0, {Poisson(rate): 1 for rate in rates})
            yield f"{n} different rates, multiplier 4 ({relation.value})", plan, relation
        plan = gaussian_releases(4.0, {FixedSize(10**7, math.ceil(rate * 10**7)): 1 for rate in rates})
        yield f"{n} different sizes, multiplier 4 (replace_one)", plan, REPLACE


def times() -> Iterator[dict[str, object]]:
    """Seconds to decide on a run, and to read a series."""
    for name, plan, relation in hard():
        file, budget = LedgerFile(":memory:"), EitherFilter(4.0, DELTA, relation, widest_order_of(4.0, DELTA))
        start, admitted = process_time(), True
        try:
            file.open("a", "data", "run", budget, plan)
        except BudgetSpent:
            admitted = False
        yield {"plan": name, "seconds": process_time() - start, "admitted": admitted}
        file.close()
    for runs, releases, rate, multiplier in ((12, 3000, 0.01, 4.0), (12, 3000, 0.01, 0.01), (1, 100, 0.01, 0.01)):
        series = RunSeries("series", 1e9, DELTA / 2, (SeriesPlan(runs, releases, rate, multiplier),))
        start = process_time()
        series.check(ADD)
        name = f"series of {runs} runs, {releases} x {rate:g}, multiplier {multiplier:g}"
        yield {"plan": name, "seconds": process_time() - start, "admitted": True}


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--generated", type=int, default=0, metavar="N", help="so many plans more")
    options.add_argument("--json", action="store_true", help="one JSON document a line")
    options.add_argument("--times", action="store_true", help="how long decisions take, and nothing else")
    chosen = options.parse_args()
    for row in times() if chosen.times else rows(chosen.generated):
        if chosen.json:
            print(json.dumps(row), flush=True)
            continue
        numbers = "  ".join(f"{by} {value:.3g}" for by, value in row.items() if isinstance(value, (int, float)))
        print(f"{row['plan']:60} {numbers}", flush=True)


if __name__ == "__main__":
    main()
