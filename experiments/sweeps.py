"""Sweeps: one spec, varied along axes; run, kept, drawn, and held against what is expected.

A study is a folder with `sweep.yaml` (one spec and its axes), `expected.json` (what must come out), and what did,
`results.json` and `figure.png`. Every run's record is written as soon as it is there, and a sweep that was interrupted
goes on where it was with ``--resume``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import gossamer as gs
from gossamer.errors import RunWarning
from gossamer.experiment.reading import override, parse_spec

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
KEPT = ("updates", "virtual_seconds", "mean_model_test_accuracy", "test_accuracy", "worst_node_test_accuracy")
OWN = frozenset({"name", "epsilon", "delta", "claims", "batch_size", "curve"})
"""Keys of a record that no axis may have."""
DIGITS = 5
"""Significant digits of the numbers that are kept."""

Record = dict[str, Any]
Measure = Callable[[Any, Any], dict[str, float]]
"""(prepared run, flat model) -> figures to keep with each evaluation."""
Draw = Callable[[str, Sequence[Record], Path], None]
Condense = Callable[[str, Record], Record]


@dataclass(frozen=True)
class Variant:
    """One run of a sweep: its place on every axis, and its spec."""

    place: dict[str, str]
    experiment: gs.Experiment

    @property
    def name(self) -> str:
        return "/".join(self.place.values())


Runner = Callable[[str, Variant, Path | None], Record]
"""(study, variant, folder for results) -> the figures of its record."""


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
        """The runs of a study."""
        sweep = yaml.safe_load((self.folder / study / "sweep.yaml").read_text())
        axes = {**sweep["axes"], **(sweep.get("full_axes", {}) if full else {})}
        if OWN & set(axes):
            raise ValueError(f"{study}: expected axes with names of their own, found {sorted(OWN & set(axes))}")
        for choice in itertools.product(*(axis.items() for axis in axes.values())):
            place = dict(zip(axes, (name for name, _ in choice), strict=True))
            if any(skipped.items() <= place.items() for skipped in sweep.get("skip", [])):
                continue
            settings = [*(one for _, more in choice for one in more), *(sweep.get("full", []) if full else [])]
            content = override(sweep["spec"], settings)
            unknown = sweep.get("without", {}).get(content["algorithm"]["name"], [])
            content["algorithm"] = {key: value for key, value in content["algorithm"].items() if key not in unknown}
            if content["privacy"].get("mechanism") == "none":
                for key in ("noise_multiplier", "epsilon", "standard_deviation", "norm", "noise_scope"):
                    content["privacy"].pop(key, None)
                content.pop("budget", None)
            content["privacy"]["noise_secret"] = "reproducible"  # a study is to come out the same again
            yield Variant(place, parse_spec(content))

    def placed(self, study: str, records: Sequence[Record], *, full: bool = False) -> list[Record]:
        """Those of ``records`` whose runs `sweep.yaml` still has, condensed, each with its place on the axes."""
        places = {variant.name: variant.place for variant in self.variants(study, full=full)}
        known = [{**record, **places[record["name"]]} for record in records if record["name"] in places]
        return [rounded(self.condense(study, record)) for record in known]

    def run_study(
        self,
        study: str,
        *,
        full: bool = False,
        out: Path | None = None,
        jobs: int = 1,
        known: Sequence[Record] = (),
        only: Mapping[str, str] | None = None,
    ) -> Iterator[list[Record]]:
        """Run all variants that are not ``known`` and lie at the place ``only``; all records so far, after each."""
        have = {record["name"]: record for record in known}
        wanted = [v for v in self.variants(study, full=full) if (only or {}).items() <= v.place.items()]
        todo = [variant for variant in wanted if variant.name not in have]
        order = [variant.name for variant in wanted]
        with ProcessPoolExecutor(jobs) as pool:
            run = pool.map if jobs > 1 else map
            for record in run(self.run_variant, [study] * len(todo), todo, [out] * len(todo)):
                have[record["name"]] = record
                yield [have[name] for name in order if name in have]
        if not todo:
            yield [have[name] for name in order]

    def run_variant(self, study: str, variant: Variant, out: Path | None) -> Record:
        """Run one; its record."""
        started = time.perf_counter()
        folder = out / study / variant.name.replace("/", "-").replace(" ", "-") if out else None
        runner = self.runners.get(study, self._run)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)  # badly chosen settings are what some studies are about
            found = runner(study, variant, folder)
        record: Record = rounded(self.condense(study, {"name": variant.name, **variant.place, **found}))
        accuracy = record["curve"][-1].get("mean_model_test_accuracy") if "curve" in record else None
        said = "" if accuracy is None else f"accuracy {accuracy:.3f}"
        print(f"{study}  {variant.name:36}  {said}  {time.perf_counter() - started:6.1f} s", flush=True)
        return record

    def _run(self, study: str, variant: Variant, folder: Path | None) -> Record:
        result = gs.run(variant.experiment, folder, overwrite=True, measure=self.measures.get(study))
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


def rounded(value: Any) -> Any:
    """``value`` with numbers of few digits in it."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


def find_data() -> None:
    """Let the data sets beside the project be found, unless the user says where they are."""
    if "GOSSAMER_DATA" not in os.environ and SHARED.is_dir():
        os.environ["GOSSAMER_DATA"] = str(SHARED)


def main(paper: Paper, description: str) -> int:
    """What the script of a paper does."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"of {', '.join(paper.studies)}; all by default")
    parser.add_argument("--out", type=Path, help="also keep each run's results folder here")
    parser.add_argument(
        "--full", action="store_true", help="longer runs, or more models or data sets, where a study has them"
    )
    parser.add_argument("--check", action="store_true", help="only say whether the specs are sound")
    parser.add_argument("--resume", action="store_true", help="keep the runs that results.json has")
    parser.add_argument("--redraw", action="store_true", help="run nothing: draw and check what results.json has")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default: 1)")
    options = parser.parse_args()
    unknown = set(options.studies) - set(paper.studies)
    if unknown:
        parser.error(f"expected some of {', '.join(paper.studies)}, found {', '.join(sorted(unknown))}")
    find_data()
    try:
        return int(not all([_do(paper, study, options) for study in options.studies or paper.studies]))
    except gs.GossamerError as error:
        print(f"{sys.argv[0]}: error: {error}", file=sys.stderr)
        return error.exit_code


def _do(paper: Paper, study: str, options: argparse.Namespace) -> bool:
    if options.check:
        print(f"{study}: {len(list(paper.variants(study, full=options.full)))} sound specs")
        return True
    suffix = "-full" if options.full else ""
    results = paper.folder / study / f"results{suffix}.json"
    known = json.loads(results.read_text()) if (options.resume or options.redraw) and results.exists() else []
    records = known = paper.placed(study, known, full=options.full)
    if options.redraw:
        write(results, records)
    else:
        for records in paper.run_study(study, full=options.full, out=options.out, jobs=options.jobs, known=known):
            write(results, records)
    return finish(paper, study, records, paper.folder / study / f"figure{suffix}.png")


def write(results: Path, records: Sequence[Record]) -> None:
    """``results.json``, a line a record."""
    results.write_text("[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]\n")


def finish(paper: Paper, study: str, records: Sequence[Record], figure: Path) -> bool:
    """Draw and check what a study gave; whether all is as expected."""
    from checks import under_revision, unmet

    paper.draw(study, records, figure)
    expected = json.loads((paper.folder / study / "expected.json").read_text())
    for line in under_revision(expected):
        print(f"{study}: under revision: {line}")
    problems = unmet(expected, records)
    for problem in problems:
        print(f"{study}: not as expected: {problem}")
    return not problems
