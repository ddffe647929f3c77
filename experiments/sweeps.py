"""Sweeps: one spec, varied along axes, and its runs.

A study is a folder with `sweep.yaml` (one spec and its axes), `expected.json` (what must come out, and the verdict),
and what did, `results.json` and `figure.png`.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from experiments.checks import lies_at
from experiments.provenance import EnoughError, First, FirstUpdates, Origin, made, spec_hash
from experiments.stored import Record, rounded
from experiments.tuning import Tuning

import gossamer as gs
from gossamer.errors import RunWarning
from gossamer.experiment.specs.spec_file import override, parse_spec

KEPT = ("updates", "virtual_seconds", "mean_model_test_accuracy", "test_accuracy", "worst_node_test_accuracy")
OWN = frozenset({"name", "value", "epsilon", "delta", "claims", "batch_size", "curve", "made"})
"""Keys of a record that no axis may have."""

_NAMED = "algorithm.name="

Measure = Callable[[Any, Any], dict[str, float]]
"""(prepared run, flat model) -> figures to keep with each evaluation."""
Draw = Callable[[str, Sequence[Record]], Any]
"""(study, records) -> figure of Matplotlib."""
Condense = Callable[[str, Record], Record]


@dataclass(frozen=True)
class Variant:
    """One run of a sweep: its place on every axis, and its spec as plain data."""

    place: dict[str, str]
    content: dict[str, Any]

    @property
    def name(self) -> str:
        return "/".join(self.place.values())

    @cached_property
    def experiment(self) -> gs.Experiment:
        """The spec, checked."""
        return parse_spec(self.content)

    @cached_property
    def spec(self) -> str:
        """Hash of the spec."""
        return spec_hash(self.content)


Runner = Callable[[str, Variant, Path | None, FirstUpdates], Record]
"""(study, variant, folder for results, what hears of the run) -> the figures of its record."""


def as_it_is(study: str, record: Record) -> Record:
    """The record."""
    return record


@dataclass(frozen=True)
class Paper:
    """The studies of a paper.

    Attributes
    ----------
    folder : Path
        Where they lie.
    studies : tuple of str
        Their names, which are folders.
    draw : callable
        Draws a study's records.
    kept : tuple of str
        Which figures of an evaluation are kept.
    measures : dict of str to Measure
        By study: further figures of each evaluation.
    runners : dict of str to Runner
        By study: what gives a variant's figures, where that is not a run.
    condense : callable
        (study, record) -> the record that is kept. Of a condensed record it makes the same again.
    """

    folder: Path
    studies: tuple[str, ...]
    draw: Draw
    kept: tuple[str, ...] = KEPT
    measures: Mapping[str, Measure] = field(default_factory=dict)
    runners: Mapping[str, Runner] = field(default_factory=dict)
    condense: Condense = as_it_is

    def variants(self, study: str, *, full: bool = False) -> Iterator[Variant]:
        """The runs of a study, each with the setting that was tuned for its place, where that is known."""
        sweep = self.sweep(study)
        where = sweep.get("tuned_in", study)
        own = full and where == study  # what was tuned in another one, was so at its ordinary size
        tuning = Tuning.of(self.sweep(where), full=own)
        best = tuning.chosen(self._trials_file(where, own)) if tuning else {}
        for place, settings in self._places(study, sweep, full):
            tuned = tuning.place(place) if tuning and tuning.covers(place) else ""
            more = [tuning.setting_of(best[tuned])] if tuning and tuned in best else []
            yield Variant(place, _content(sweep, [*settings, *more]))

    def trials(self, study: str, *, full: bool = False) -> Iterator[tuple[str, float, Variant]]:
        """The runs that tune a study, by those there are: (what is tuned together, the value, the run)."""
        sweep = self.sweep(study)
        tuning = Tuning.of(sweep, full=full)
        tried = tuning.tried(self._trials_file(study, full)) if tuning else {}
        seen: set[str] = set()
        for place, settings in self._places(study, sweep, full) if tuning else ():
            tuned = tuning.place(place)
            if tuned in seen or not tuning.covers(place):
                continue
            seen.add(tuned)
            for value, seed in tuning.trials(tried.get(tuned, {})):
                where = {**place, "value": f"{value:g}", "seed": str(seed)}
                more = [tuning.setting_of(value), f"seed={seed}", *tuning.also]
                yield tuned, value, Variant(where, _content(sweep, [*settings, *more]))

    def _trials_file(self, study: str, full: bool) -> Path:
        return self.folder / study / f"tuning{'-full' if full else ''}.json"

    def sweep(self, study: str) -> dict[str, Any]:
        """What `sweep.yaml` says."""
        found: dict[str, Any] = yaml.safe_load((self.folder / study / "sweep.yaml").read_text())
        return found

    def _places(self, study: str, sweep: Mapping[str, Any], full: bool) -> Iterator[tuple[dict[str, str], list[str]]]:
        """(place on every axis, overrides) of each run."""
        axes = {**sweep["axes"], **(sweep.get("full_axes", {}) if full else {})}
        if OWN & set(axes):
            raise ValueError(f"{study}: expected axes with names of their own, found {sorted(OWN & set(axes))}")
        for choice in itertools.product(*(axis.items() for axis in axes.values())):
            place = dict(zip(axes, (name for name, _ in choice), strict=True))
            if not any(lies_at(place, skipped) for skipped in sweep.get("skip", [])):
                yield place, [*(one for _, more in choice for one in more), *(sweep.get("full", []) if full else [])]

    def placed(self, study: str, records: Sequence[Record], *, full: bool = False) -> list[Record]:
        """Those of ``records`` whose runs `sweep.yaml` still has, condensed, each with its place on the axes."""
        places = {variant.name: variant.place for variant in self.variants(study, full=full)}
        known = [{**record, **places[record["name"]]} for record in records if record["name"] in places]
        return [self.kept_of(study, record) for record in known]

    def kept_of(self, study: str, record: Record) -> Record:
        """What is kept of a record, with numbers of few digits."""
        made_by = {"made": record["made"]} if "made" in record else {}
        condensed = self.condense(study, {key: value for key, value in record.items() if key != "made"})
        return {**rounded(condensed), **made_by}

    def run_study(
        self,
        study: str,
        variants: Sequence[Variant],
        origin: Origin,
        *,
        out: Path | None = None,
        jobs: int = 1,
    ) -> Iterator[Record]:
        """Run ``variants``; the record of each as soon as it is there."""
        each = [[study] * len(variants), variants, [origin] * len(variants), [out] * len(variants)]
        yield from _in_turn(self.run_variant, each, jobs)

    def run_variant(self, study: str, variant: Variant, origin: Origin, out: Path | None = None) -> Record:
        """Run one; its record."""
        started = time.process_time()  # what it costs, also beside other work
        folder = out / study / variant.name.replace("/", "-").replace(" ", "-") if out else None
        first = FirstUpdates()
        found = self._figures(study, variant, folder, first)
        seconds = time.process_time() - started
        record = self.kept_of(study, {"name": variant.name, **variant.place, **found})
        accuracy = record["curve"][-1].get("mean_model_test_accuracy") if "curve" in record else None
        said = "" if accuracy is None else f"accuracy {accuracy:.3f}"
        print(f"{study}  {variant.name:36}  {said}  {seconds:6.1f} s", flush=True)
        return {**record, "made": made(origin, variant.spec, variant.experiment.seed, first.found, seconds)}

    def first_of_each(self, study: str, variants: Sequence[Variant], jobs: int = 1) -> Iterator[First | None]:
        """How each run begins."""
        yield from _in_turn(self.first_of, [[study] * len(variants), variants], jobs)

    def first_of(self, study: str, variant: Variant) -> First | None:
        """How a run begins; None of what is no run."""
        first = FirstUpdates(alone=True)
        with contextlib.suppress(EnoughError):
            self._figures(study, variant, None, first)
        return first.found

    def _figures(self, study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)  # badly chosen settings are what some studies are about
            return self.runners.get(study, self.ordinary)(study, variant, folder, first)

    def ordinary(self, study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
        """Run a variant as it is; the figures of its record."""
        measure = self.measures.get(study)
        result = gs.run(variant.experiment, folder, overwrite=True, measure=measure, progress=first)
        return self.record(variant, result)

    def record(self, variant: Variant, result: gs.Result) -> Record:
        """What is kept of a run."""
        privacy, algorithm = result.summary["privacy"], result.summary["algorithm"]
        guarantee = privacy["guarantee"].get("would_be", privacy["guarantee"])  # of such a run with a noise secret
        own = {algorithm: result.summary[algorithm]} if algorithm in result.summary else {}
        batch_size = getattr(variant.experiment.algorithm, "batch_size", None)  # rounds have sizes of their own
        return {
            "epsilon": guarantee["epsilon"],
            "delta": guarantee["delta"],
            "claims": [{key: claim[key] for key in ("theorem", "epsilon", "valid")} for claim in privacy["claims"]],
            **({"batch_size": batch_size} if batch_size is not None else {}),
            **own,
            "curve": [{key: row[key] for key in self.kept if key in row} for row in result.metrics],
        }


def _content(sweep: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """The spec of a run, with what its algorithm does not know left out, and under the names that it has there."""
    # By another name an override leaves behind what that has no key for; here `renamed` says what becomes of it.
    named = [one.partition("=")[2] for one in settings if one.startswith(_NAMED)]
    algorithm = {**sweep["spec"]["algorithm"], **({"name": named[-1]} if named else {})}
    rest = [one for one in settings if not one.startswith(_NAMED)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)  # an axis leaves behind what it means to
        content = override({**sweep["spec"], "algorithm": algorithm}, rest)
    unknown = sweep.get("without", {}).get(content["algorithm"]["name"], [])
    names = sweep.get("renamed", {}).get(content["algorithm"]["name"], {})
    content["algorithm"] = {names.get(key, key): v for key, v in content["algorithm"].items() if key not in unknown}
    if content["privacy"].get("mechanism") == "none":
        for key in ("noise_multiplier", "epsilon", "standard_deviation", "norm", "noise_scope"):
            content["privacy"].pop(key, None)
        content.pop("budget", None)
    content["privacy"]["noise_secret"] = "reproducible"  # a study is to come out the same again
    return dict(content)


def _in_turn(call: Callable[..., Any], each: Sequence[Sequence[Any]], jobs: int) -> Iterator[Any]:
    """``map``, with as many processes as jobs."""
    if jobs == 1:
        yield from map(call, *each)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(call, *each)
