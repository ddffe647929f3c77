"""Table 1 and Figs. 2 to 4 of A(DP)2SGD: run them, draw them, and check what is expected of them.

    python experiments/adp2sgd/run.py [STUDY ...] [--out DIR] [--full] [--check]

A study is a folder beside this file: `sweep.yaml` holds one spec and the axes along which it is varied, `expected.json`
what must come out, `figure.png` and `results.json` what did. ``--full`` is the paper's size, which takes a GPU or days.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import gossamer as gs
from gossamer.experiment.reading import override, parse_spec

HERE = Path(__file__).resolve().parent
STUDIES = ("table-1", "figure-2", "figure-3", "figure-4")
SHARED = HERE.parents[2] / "shared" / "data"
KEPT = ("updates", "virtual_seconds", "mean_model_test_accuracy", "test_accuracy", "worst_node_test_accuracy")


@dataclass(frozen=True)
class Variant:
    """One run of a sweep: its place on every axis, and its spec."""

    place: dict[str, str]
    experiment: gs.Experiment

    @property
    def name(self) -> str:
        return "/".join(self.place.values())


def variants(study: str, *, full: bool = False) -> Iterator[Variant]:
    """The runs of a study."""
    sweep = yaml.safe_load((HERE / study / "sweep.yaml").read_text())
    axes = {**sweep["axes"], **(sweep.get("full_axes", {}) if full else {})}
    for choice in itertools.product(*(axis.items() for axis in axes.values())):
        place = dict(zip(axes, (name for name, _ in choice), strict=True))
        settings = [*(sweep.get("full", []) if full else []), *(one for _, more in choice for one in more)]
        content = override(sweep["spec"], settings)
        unknown = sweep.get("without", {}).get(content["algorithm"]["name"], [])
        content["algorithm"] = {key: value for key, value in content["algorithm"].items() if key not in unknown}
        if content["privacy"].get("mechanism") == "none":
            content["privacy"].pop("noise_multiplier", None)
        yield Variant(place, parse_spec(content))


def run_study(study: str, *, full: bool = False, out: Path | None = None) -> list[dict[str, Any]]:
    """Run all variants; a record of each."""
    records = []
    for variant in variants(study, full=full):
        started = time.perf_counter()
        folder = out / study / variant.name.replace("/", "-").replace(" ", "-") if out else None
        result = gs.run(variant.experiment, folder, overwrite=True)
        records.append(_record(variant, result))
        accuracy = result.summary["metrics"]["mean_model_test_accuracy"]
        print(
            f"{study}  {variant.name:28}  accuracy {accuracy:.3f}  {time.perf_counter() - started:6.1f} s", flush=True
        )
    return records


def _record(variant: Variant, result: gs.Result) -> dict[str, Any]:
    privacy = result.summary["privacy"]
    return {
        "name": variant.name,
        **variant.place,
        "epsilon": privacy["guarantee"]["epsilon"],
        "delta": privacy["guarantee"]["delta"],
        "claims": [{key: claim[key] for key in ("theorem", "epsilon", "valid")} for claim in privacy["claims"]],
        "batch_size": variant.experiment.algorithm.batch_size,
        "curve": [{key: row[key] for key in KEPT} for row in result.metrics],
    }


def find_data() -> None:
    """Let the data sets beside the project be found, unless the user says where they are."""
    if "GOSSAMER_DATA" not in os.environ and SHARED.is_dir():
        os.environ["GOSSAMER_DATA"] = str(SHARED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"of {', '.join(STUDIES)}; all by default")
    parser.add_argument("--out", type=Path, help="also keep each run's results folder here")
    parser.add_argument("--full", action="store_true", help="the paper's size")
    parser.add_argument("--check", action="store_true", help="only say whether the specs are sound")
    options = parser.parse_args()
    unknown = set(options.studies) - set(STUDIES)
    if unknown:
        parser.error(f"expected some of {', '.join(STUDIES)}, found {', '.join(sorted(unknown))}")
    find_data()
    failed = False
    try:
        for study in options.studies or STUDIES:
            if options.check:
                print(f"{study}: {len(list(variants(study, full=options.full)))} sound specs")
                continue
            failed |= not finish(study, run_study(study, full=options.full, out=options.out), full=options.full)
    except gs.GossamerError as error:
        print(f"run.py: error: {error}", file=sys.stderr)
        return error.exit_code
    return int(failed)


def finish(study: str, records: list[dict[str, Any]], *, full: bool) -> bool:
    """Write, draw and check what a study gave; whether all is as expected."""
    from checks import unmet
    from figures import draw

    folder = HERE / study
    suffix = "-full" if full else ""
    (folder / f"results{suffix}.json").write_text(json.dumps(records, indent=1) + "\n")
    draw(study, records, folder / f"figure{suffix}.png")
    problems = unmet(json.loads((folder / "expected.json").read_text()), records)
    for problem in problems:
        print(f"{study}: not as expected: {problem}")
    return not problems


if __name__ == "__main__":
    sys.exit(main())
