"""Who learns what in a network: figures by distance, and what a model gains where noise is set by them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from experiments.observers.figures import draw
from experiments.provenance import EnoughError, FirstUpdates
from experiments.stored import Record
from experiments.sweeps import Paper, Variant
from scipy.optimize import brentq

from gossamer.algorithms.paired_noise import Split
from gossamer.experiment.audits.observers import NetworkPrivacy
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, prepare
from gossamer.experiment.specs.spec_file import parse_spec, resolved
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon
from gossamer.privacy.mechanisms import PairedGaussian
from gossamer.topology.mixing import metropolis

STUDIES = ("accounting", "utility", "pairwise")
EPSILON = 1.0
"""Epsilon that every way to account sets noise for."""
AWAY = 2
"""Links to the nearest observer that noise is set against, in ``network``."""


def by_distance(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """Account for one observer, another node by each seed: Renyi divergences of order 2 by the links to it; no run."""
    if first.alone:
        raise EnoughError
    here = Path(__file__).resolve().parent / study
    prepared = prepare(resolved(variant.experiment, here))
    at = variant.experiment.seed * len(prepared.names) // 5
    network = NetworkPrivacy.of(prepared, [f"node:{prepared.names[at]}"])
    known = muffliato(prepared, at)
    found, bounds = defaultdict(list), defaultdict(list)
    for row in network.rows():
        found[row["links"]].append(row["mu"] ** 2)  # order times mu^2 / 2, and the order is 2
        bounds[row["links"]].append(known[prepared.names.index(row["party"])])
    return {
        "local": float(rounds(prepared)),
        "hops": {
            str(hops): [float(np.mean(found[hops])), min(found[hops]), max(found[hops])] for hops in sorted(found)
        },
        "muffliato": {str(hops): [float(np.mean(bounds[hops]))] for hops in sorted(bounds)},
    }


def rounds(prepared: Prepared) -> int:
    """Rounds of a synchronous run."""
    return int(prepared.experiment.stop.updates // len(prepared.names))


def muffliato(prepared: Prepared, at: int) -> list[float]:
    """Theorem 11 of Muffliato (arXiv 2206.05091) for order 2 and unit noise, by node, against the one ``at``.

    It is at most that of everyone, as its authors advise.
    """
    size, steps = len(prepared.names), rounds(prepared)
    weights = metropolis(prepared.graph).toarray()
    near = list(prepared.graph.neighbours(at))
    total, power = np.zeros(size), np.eye(size)
    for gap in range(steps):
        norms = (power**2).sum(axis=0)
        total += (steps - gap) * (power[:, near] / norms[near]).sum(axis=1)
        power = power @ weights
    return [float(one) for one in np.minimum(total, steps)]


def at_one_epsilon(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """Run with the noise that one way to account asks for."""
    content = {**variant.content, "privacy": dict(variant.content["privacy"])}
    way, more = variant.place["noise by"], dict[str, float]()
    if way == "guarantee":
        del content["privacy"]["noise_multiplier"]
        content["budget"] = {"epsilon": EPSILON, "delta": content["privacy"].pop("delta")}
    else:
        network = NetworkPrivacy.of(prepare(variant.experiment), ["everyone"] if way == "everyone" else ())
        mus = [row["mu"] for row in network.rows() if way == "everyone" or row["links"] >= AWAY]
        allowed = float(brentq(lambda mu: gaussian_epsilon(mu, network.delta) - EPSILON, 1e-3, 100.0))
        content["privacy"]["noise_multiplier"] = float(f"{max(mus) / allowed:.6g}")  # mu falls as one by the noise
        more["noise"] = content["privacy"]["noise_multiplier"]
    return {**PAPER.ordinary(study, Variant(variant.place, content), folder, first), **more}


def of_pairs(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """Run with noise at one epsilon against whoever knows no shared draw, or against any one other node, too."""
    content = {**variant.content, "privacy": dict(variant.content["privacy"])}
    if variant.place["noise"] == "pairwise, one node":
        law, splits = noise_of(variant)
        content["privacy"] |= {
            "delta": content.pop("budget")["delta"],
            "noise_multiplier": float(f"{law.noise_multiplier / least(splits) * (1 + 1e-6):.8g}"),
        }
        content["algorithm"] = {**content["algorithm"], "pair_noise": splits[0].ratio ** 0.5}
    plan = plan_run(prepare(parse_spec(content)))
    told = {who: (one.would_be or one).epsilon for who, one in plan.guarantees.items()}
    return {**PAPER.ordinary(study, Variant(variant.place, content), folder, first), "told": told}


def noise_of(variant: Variant) -> tuple[PairedGaussian, list[Split]]:
    """Noise of the nodes of a run, and its split: with nobody gone, and where some leave without them."""
    prepared = prepare(variant.experiment)
    law = next(iter(plan_run(prepared).mechanisms.values()))
    assert isinstance(law, PairedGaussian)
    split = Split(prepared.graph, (law.shared / law.own) ** 2)
    away = {gone.node for gone in prepared.experiment.faults.absences}  # all leave at once, for good
    return law, [split, *([replace(split, gone=frozenset(away))] if away else [])]


def least(splits: Sequence[Split]) -> float:
    """Least share of the noise that is left for one other node, whoever is gone."""
    return min(split.left(known) for split in splits for known in range(split.graph.nodes))


RUNNERS = {"accounting": by_distance, "utility": at_one_epsilon, "pairwise": of_pairs}
PAPER = Paper(Path(__file__).resolve().parent, STUDIES, draw, runners=RUNNERS)
