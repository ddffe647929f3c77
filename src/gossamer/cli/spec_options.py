"""What every command that takes a spec has in common."""

from __future__ import annotations

import argparse
from pathlib import Path

from gossamer.experiment.reading import read_spec
from gossamer.experiment.spec import Experiment


def add_spec(command: argparse.ArgumentParser) -> None:
    """Add the spec and its overrides to a command."""
    command.add_argument("spec", type=Path, metavar="SPEC", help="the experiment, a YAML file")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key, such as algorithm.nodes=16",
    )
    command.add_argument("--seed", type=int, help="override the seed")
    command.add_argument("--accept-weak", action="store_true", help="take a delta above 0.01: privacy.accept_weak=true")
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def read_experiment(options: argparse.Namespace) -> Experiment:
    """The spec that was given, with its overrides."""
    seed = [] if options.seed is None else [f"seed={options.seed}"]
    weak = ["privacy.accept_weak=true"] * options.accept_weak
    return read_spec(options.spec, [*options.set, *seed, *weak])
