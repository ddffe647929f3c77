"""What two lying peers of eight cost, with a robust rule and without, on MNIST at epsilon 5 (delta 1e-5).

    GOSSAMER_DATA=DATA python benchmarks/hostile_peers.py CASE [--seeds 0-4]   # appends to hostile_peers.jsonl
    python benchmarks/hostile_peers.py table                                   # writes docs/how-to/peers.md from it

A record is one run: its case, attack, rule, seed, test accuracy (the mean over honest nodes, or of the server's model),
commit, and a digest of its spec. Runs that are recorded are not made again. Rates were tuned without liars and without
a rule, and radii on seeds from 100 on (``tune-CASE``), which no table has, with a rate of the server where the rule has
one; that of gossip with softmax is one of ``radii``. The attack ``away`` is none: the two are not there, and what is
lost by that is lost with any rule. Of ``graph`` the peers are servers, and epsilon is that of a
client with all its examples. ``local`` is eight nodes that share nothing, which a radius of zero comes to.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gossamer as gs
from gossamer.errors import RunWarning

ATTACKS = ("sign_flip", "drift", "scaled", "nan")
AGENTS = 400
GOSSIP = {"name": "gossip", "nodes": 8, "topology": "complete", "batch_size": 250}
SOFTMAX = GOSSIP | {"learning_rate": 2.0, "updates_per_node": 120}
CLIENTS = {"nodes": 8, "privacy_unit": "example"}
SHORT = CLIENTS | {"local_steps": 10, "batch_size": 120, "local_learning_rate": 0.6}
NOISY = CLIENTS | {"local_steps": 5, "batch_size": 120, "local_learning_rate": 4.0}
DEEP = CLIENTS | {"local_steps": 10, "batch_size": 300, "local_learning_rate": 4.0}
GRAPH = {"name": "graph_federated", "units": 8, "agents": AGENTS, "topology": "complete", "batch_size": 20}


def clipping(radius: float, **rate: float) -> dict[str, Any]:
    """Centred clipping, perhaps with the server's rate that it was tuned with: clipped updates are shorter."""
    return {"name": "centred_clipping", "radius": radius, **rate}


TRIMMED = {"name": "trimmed_mean", "trim": 2}


@dataclass(frozen=True)
class Case:
    """A kind of run, the rule that it is shown with, and those that it was tuned among."""

    objective: str
    algorithm: dict[str, Any]
    rule: dict[str, Any] | None = None
    tried: tuple[dict[str, Any], ...] = ()
    liars: tuple[int, ...] = (1, 4)


MEDIAN = {"name": "median"}
DEEP_RULES = (
    clipping(2.0, learning_rate=2.0),
    (clipping(2.0), clipping(2.0, learning_rate=2.0), MEDIAN, MEDIAN | {"learning_rate": 2.0}, {"learning_rate": 2.0}),
)
SERVERS = (8 * AGENTS + 1, 8 * AGENTS + 4)  # which come after the agents
CASES = {
    "gossip": Case("softmax", SOFTMAX, clipping(0.04)),
    "fedavg": Case("softmax", SHORT | {"name": "fedavg", "rounds": 40}, TRIMMED),
    "fedbuff": Case("softmax", SHORT | {"name": "fedbuff", "buffer": 8, "updates_per_node": 40}, TRIMMED),
    "graph": Case(
        "softmax",
        GRAPH | {"step_size": 1.0, "rounds": 15},
        clipping(0.3),
        (clipping(0.3), clipping(0.1), TRIMMED),
        SERVERS,
    ),
    "gossip-cnn": Case(
        "cnn_mapa",
        GOSSIP | {"learning_rate": 4.0, "updates_per_node": 50},
        clipping(0.02),
        (clipping(0.02), clipping(0.05)),
    ),
    "noisy-fedavg-cnn": Case("cnn_mapa", NOISY | {"name": "fedavg", "rounds": 20}, clipping(1.0)),
    "fedavg-cnn": Case("cnn_mapa", DEEP | {"name": "fedavg", "rounds": 10}, *DEEP_RULES),
    "fedbuff-cnn": Case(
        "cnn_mapa",
        DEEP | {"name": "fedbuff", "buffer": 8, "updates_per_node": 10},
        clipping(1.5, learning_rate=1.5),
        (clipping(2.0), clipping(1.5, learning_rate=1.5), TRIMMED, {"learning_rate": 1.5}),
    ),
}
LOCAL = {"local": "gossip", "local-cnn": "gossip-cnn"}
RADII = (0.01, 0.04, 0.12, 0.4, 1.2, 4.0)
"""Radii of gossip with softmax, for which sign flips and drifts are run."""
RECORDS = Path(__file__).with_suffix(".jsonl")
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "peers.md"
START, END = "<!-- benchmarks/hostile_peers.py -->\n", "<!-- end -->"


def experiment(case: Case, attack: str | None, rule: Any, seed: int) -> gs.Experiment:
    return gs.Experiment(
        dataset="mnist",
        objective=case.objective,
        algorithm=case.algorithm | with_rule(rule),
        budget={"epsilon": 5, "delta": 1e-5},
        privacy={"clip": 1.0},
        faults=faults(case, attack),
        stop={"virtual_seconds": 5000},  # a round without a rule waits for ever for whoever sends no numbers
        evaluation="off",
        seed=seed,
    )


def with_rule(rule: dict[str, Any] | None) -> dict[str, Any]:
    if rule is None:
        return {}
    said = dict(rule)
    rate = {"learning_rate": said.pop("learning_rate")} if "learning_rate" in said else {}
    return rate | ({"aggregation": said} if said else {})


def faults(case: Case, attack: str | None) -> dict[str, Any]:
    if attack == "away":
        return {"absences": [{"node": number, "start": 0} for number in case.liars]}
    return {} if attack is None else {"hostile": {"nodes": case.liars, "attack": attack}}


def runs(name: str) -> tuple[Case, list[tuple[str | None, Any]]]:
    """A case, and attack and rule of each of its runs for one seed: those that say most come first."""
    if name == "radii":
        return CASES["gossip"], [(a, clipping(r)) for r in RADII for a in (None, "sign_flip", "drift")]
    if name in LOCAL:
        case = CASES[LOCAL[name]]
        keys = {key: value for key, value in case.algorithm.items() if key != "topology"}
        return Case(case.objective, keys | {"name": "local"}), [(None, None)]
    case = CASES[name.removeprefix("tune-")]
    if name.startswith("tune-"):
        return case, [(a, rule) for rule in (None, *case.tried) for a in ("sign_flip", "drift", None)]
    with_it, without = ([(attack, rule) for attack in ATTACKS] for rule in (case.rule, None))
    return case, [*with_it[:2], (None, None), *with_it[2:], *without, (None, case.rule), ("away", None)]


def key(record: dict[str, Any]) -> tuple[str, ...]:
    return record["case"], str(record["attack"]), json.dumps(record["rule"]), str(record["seed"])


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


def made(name: str, seeds: range, until: float, few: bool) -> Iterator[dict[str, Any]]:
    done = {key(record) for record in recorded()}
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    case, wanted = runs(name)
    wanted = wanted[: 1 + len(ATTACKS)] if few else wanted
    for attack, rule in wanted:
        for seed in seeds:
            record = {"case": name, "attack": attack, "rule": rule, "seed": seed}
            if key(record) in done or time.monotonic() > until:
                continue
            spec = experiment(case, attack, rule, seed)
            digest = hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:12]
            accuracy = float(gs.run(spec).summary["metrics"]["test_accuracy"])
            yield record | {"accuracy": accuracy, "commit": commit.stdout.strip(), "spec": digest}


def table() -> None:
    """Write means over seeds into the page: accuracy without a rule and with it, and the most that is lost with it."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for record in recorded():
        found[key(record)[:3]].append(record["accuracy"])

    def mean(case: str, attack: str | None, rule: Any) -> float:
        return statistics.fmean(found.get((case, str(attack), json.dumps(rule))) or [float("nan")])

    def cell(case: str, attack: str | None, rule: Any) -> str:
        return "not run" if (value := mean(case, attack, rule)) != value else f"{value:.3f}"

    lines = [f"| run | seeds | nobody lies | {' | '.join(WORDS.values())} | most lost with it |", "|---" * 8 + "|"]
    for name, case in CASES.items():
        with_it = [mean(name, attack, case.rule) for attack in ATTACKS]
        if not found[name, "None", "null"] or any(value != value for value in with_it):
            continue
        counts = {len(found[name, str(a), json.dumps(case.rule)]) for a in ATTACKS} | {len(found[name, "None", "null"])}
        rule = case.rule or {}
        how = f"radius {rule['radius']}" if "radius" in rule else f"trim {rule['trim']}"
        cells = [f"{cell(name, a, None)} / {cell(name, a, case.rule)}" for a in (None, *ATTACKS)]
        lost = 100 * (mean(name, None, None) - min(with_it))
        seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
        how += f", rate {rule['learning_rate']}" if "learning_rate" in rule else ""
        run = f"{case.algorithm['name']}, `{case.objective}`, batches of {case.algorithm['batch_size']}"
        row = (f"{run}, {how}", seeds, *cells, f"{lost:.1f} points")
        lines.append(f"| {' | '.join(row)} |")
    text = PAGE.read_text()
    before, _, rest = text.partition(START)
    PAGE.write_text(f"{before}{START}\n" + "\n".join(lines) + f"\n\n{END}{rest.partition(END)[2]}")


WORDS = {"sign_flip": "sign flip", "drift": "drift", "scaled": "scaled by 10", "nan": "no numbers"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=[*CASES, *(f"tune-{name}" for name in CASES), "radii", *LOCAL, "table"])
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no run after so many")
    parser.add_argument("--few", action="store_true", help="only what the cost follows from: no liars, and the rule")
    options = parser.parse_args()
    if options.case == "table":
        return table()
    warnings.simplefilter("ignore", RunWarning)
    first, _, last = options.seeds.partition("-")
    until = time.monotonic() + 60 * options.minutes
    for record in made(options.case, range(int(first), int(last or first) + 1), until, options.few):
        with RECORDS.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main())
