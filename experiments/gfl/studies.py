"""Graph federated learning's figures, and what released states are worth at one guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from experiments.gfl.figures import draw
from experiments.provenance import EnoughError, FirstUpdates
from experiments.stored import Record
from experiments.sweeps import Paper, Variant
from tests.reference import gfl_slow

from gossamer.algorithms.graph_federated.settings import combination
from gossamer.data.examples import Split
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.results.observer import best_model, deviations, units_of
from gossamer.experiment.results.results_folder import ResultsFolder
from gossamer.experiment.runs.running import Run, sources_of
from gossamer.experiment.runs.trackers import listening

STUDIES = ("figure-2", "figure-3", "figure-4", "figure-5", "levels", "consensus", "guarantees", "whole-loss")
MEASURES = ("centroid_msd", "individual_msd", "disagreement", "centroid_test_accuracy")
DRAWN = {"figure-2": MEASURES[:2], "figure-4": MEASURES[:1], "figure-5": MEASURES[3:]}
"""Studies whose figures show curves, and of what."""
POINTS = 20
"""About how many of a curve are kept."""
AVERAGED = (0, 2, 5, 10, 20, 40)
"""Rounds of averaging after a run."""
CLEAN = 256
"""Test examples of Fig. 5."""
LARGEST_SPREAD = 0.3
"""Of the noise on features: the standard deviations of agents are uniform from 0 to this."""


def on_noisy_features(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """A run whose agents have features with noise of their own, tested on some of the clean test examples."""
    prepared = prepare(variant.experiment)
    train, test = prepared.dataset.train, prepared.dataset.test
    generator = np.random.default_rng([variant.experiment.seed, 5])
    spreads = generator.uniform(0, LARGEST_SPREAD, len(prepared.shards))
    chosen = generator.choice(len(test), CLEAN, replace=False)
    dataset = replace(
        prepared.dataset,
        train=Split(with_noise(train.features, prepared.shards, spreads, generator), train.targets),
        test=Split(test.features[chosen], test.targets[chosen]),
    )
    prepared = replace(prepared, dataset=dataset)
    plan, results = plan_run(prepared), ResultsFolder(folder, overwrite=True) if folder is not None else None
    sources = sources_of(prepared, plan, purpose="noisy features")
    with listening(prepared, plan, first) as listeners:
        result = Run(prepared, plan, sources, results, listeners).go()
    return PAPER.record(variant, result)


def then_averaged(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """A run of the recursion that is written without the library, after which units average their *models*.

    So they do from each round of its second half; the measures are means over these.
    """
    if first.alone:
        raise EnoughError  # it is no run of the library
    prepared, settings = prepare(variant.experiment), variant.experiment.algorithm
    train, privacy = prepared.dataset.train, variant.experiment.privacy
    units = [[(train.features[rows], train.targets[rows]) for rows in unit] for unit in units_of(prepared)]
    matrix = combination(settings, prepared.graph)
    path = gfl_slow.train(
        units,
        matrix,
        noise=variant.place["noise"],
        deviation=privacy.standard_deviation or 0.0,
        gradient_at="hidden",
        rounds=settings.rounds,
        step_size=settings.step_size,
        l2=variant.experiment.objective.l2,
        agents_sampled=settings.agents_sampled,
        local_steps=settings.local_steps,
        batch_size=settings.batch_size,
        generator=np.random.default_rng(variant.experiment.seed),
        clip=privacy.clip.bound,
    )
    best = best_model(prepared.objective, train, units_of(prepared))
    curve = []
    for averaged in AVERAGED:
        found = [
            deviations(np.linalg.matrix_power(matrix, averaged) @ models, best) for models in path[len(path) // 2 :]
        ]
        curve.append({"averaged": averaged, **{key: float(np.mean([one[key] for one in found])) for key in found[0]}})
    return {"epsilon": None, "delta": None, "last_stable_round": None, "steady": curve[0], "curve": curve}


def with_noise(features: Any, shards: Sequence[Any], spreads: Any, generator: np.random.Generator) -> Any:
    """Features with normal noise, of a spread for each shard; of sparse ones, on the entries that are there."""
    by_row = np.zeros(features.shape[0])
    for rows, spread in zip(shards, spreads, strict=True):
        by_row[rows] = spread
    noisy = features.copy()
    if hasattr(noisy, "indptr"):
        noisy.data += (generator.normal(size=noisy.nnz) * np.repeat(by_row, np.diff(noisy.indptr))).astype(np.float32)
        return noisy
    each = by_row.reshape(-1, *(1 for _ in noisy.shape[1:]))
    return noisy + (generator.normal(size=noisy.shape) * each).astype(np.float32)


def condense(study: str, record: Record) -> Record:
    """The steady state, whether there was one, and the curves that figures show."""
    if "steady" in record:
        return record
    curve, report = record["curve"], record["graph_federated"]
    kept = ("name", *(key for key in record if isinstance(record[key], str)), "epsilon", "delta")
    found = {key: record[key] for key in kept}
    found["last_stable_round"] = report.get("last_stable_round")
    found["steady"] = steady(curve) if found["last_stable_round"] is None else dict.fromkeys(MEASURES[:3])
    if study in DRAWN:
        units, step = len(report["rounds"]), max(1, len(curve) // POINTS)
        found["curve"] = [
            {"round": row["updates"] // units, **{key: row[key] for key in DRAWN[study]}} for row in curve[::step]
        ]
    return found


def steady(curve: Sequence[Record]) -> dict[str, float | None]:
    """Means of the measures over the second half of the looks; None of what is not a number in all of them."""
    half = curve[len(curve) // 2 :]
    values = {key: [row[key] for row in half] for key in MEASURES if key in half[0]}
    return {key: None if None in found else float(np.mean(found)) for key, found in values.items()}


PAPER = Paper(
    Path(__file__).resolve().parent,
    STUDIES,
    draw,
    kept=("updates", *MEASURES),
    runners={"figure-5": on_noisy_features, "levels": on_noisy_features, "consensus": then_averaged},
    condense=condense,
)
