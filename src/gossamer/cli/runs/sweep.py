"""``gossamer sweep``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gossamer.cli.options import FileName, add_reproducible, add_spec, naming, overrides_of, settings_of
from gossamer.cli.printing import print_json, say, table, warn
from gossamer.errors import DataError, counted
from gossamer.experiment.specs.folder_names import default_folder

if TYPE_CHECKING:
    from gossamer.report.sections import Section
    from gossamer.studies.study import Study

DESCRIPTION = (
    "Run every combination of settings with several seeds, a folder each, and compare them. The same command goes on "
    "with a sweep that was interrupted. The exit code is 1 if a run failed."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_spec(command)
    add_reproducible(command)
    command.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="KEY=A,B,C",
        help="values of a key, such as algorithm.batch_size=8,32; several give every combination",
    )
    command.add_argument("--seeds", type=int, default=5, metavar="N", help="runs of each setting (default: 5)")
    add_study(command, "sweep")
    command.set_defaults(command=sweep_command)


def add_study(command: argparse.ArgumentParser, kind: str) -> None:
    """Add what all commands have that make several runs."""
    command.add_argument(
        "--jobs", type=int, default=None, metavar="J", help="runs at a time (default: 1; on Ray: all processors)"
    )
    command.add_argument(
        "--engine",
        choices=["processes", "ray"],
        default=None,
        help="where runs are made: processes of this machine, or Ray (default: ray with --address, else processes)",
    )
    command.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of a Ray cluster that this machine is a node of, or auto (default: start Ray here)",
    )
    command.add_argument(
        "--out", action=FileName, metavar="DIR", help=f"folder for the runs' folders (default: runs/<spec>-{kind})"
    )


def sweep_command(options: argparse.Namespace) -> int:
    """Make the runs, and say which setting did best."""
    from gossamer.studies.sweep import FILE, Sweep, marked, plan_sweep, read_grid

    grid = read_grid(options.grid)
    out = options.out or default_folder(options.spec, "sweep", None, settings_of(options))
    with naming(options.spec, out):
        study, settings = plan_sweep(options.spec, grid, out, options.seeds, options.jobs, overrides_of(options), say)
    make(study, options)
    found = Sweep(study, settings, study.scores())
    study.write(FILE, found.as_dict())
    if options.json:
        print_json(found.as_dict())
    else:
        best = "" if found.best is None else f"\n\n* the best mean {found.scores[found.best].kind} on test examples"
        print(f"{table(marked(found))}{best}")
    warn([found.warning])
    return ended(study, FILE)


def make(study: Study, options: argparse.Namespace) -> None:
    """Make the runs of a study; an interrupt leaves those that are done, and says so."""
    from gossamer.cli.runs.study_table import shown
    from gossamer.studies.workers import workers_of

    try:
        with workers_of(options.engine, options.jobs, options.address) as workers:
            warn(workers.remarks)
            with shown(study, workers.at_once) as tell:
                study.make(workers, tell)
    except KeyboardInterrupt:
        done = sum(one.finished for one in study.runs)
        say(
            f"{done} of {counted(len(study.runs), 'run')} are done, in {study.out}; the same command goes on from there"
        )
        raise


def ended(study: Study, file: str, *before: Section) -> int:
    """Write the report, say where all is and what failed, and return the exit code."""
    from gossamer.studies.study import failed

    try:
        if study.finished:
            say(f"Report: {study.report(*before)}")
    except DataError as missing:
        say(f"No report: {missing}; then gossamer report {study.out}/*-seed*")
    say(f"Results: {study.out / file}, and {counted(len(study.finished), 'folder')} beside it")
    for line in failed(study):
        say(f"gossamer: {line}")
    return 1 if study.errors else 0
