"""Commands that make several runs: ``sweep`` and ``price``, with a table of how they go."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gossamer.cli.commands import FileName, add_reproducible, add_spec, naming, overrides_of, settings_of
from gossamer.cli.printing import print_json, say, table, warn, wrapped
from gossamer.errors import DataError, counted
from gossamer.experiment.specs.folder_names import default_folder

if TYPE_CHECKING:
    from gossamer.report.figure import PageSection
    from gossamer.studies.study import Study


def sweep_options(command: argparse.ArgumentParser) -> None:
    """Run every combination of settings with several seeds, a folder each, and compare them.

    The same command goes on with a sweep that was interrupted. The exit code is 1 if a run failed.
    """
    add = command.add_argument
    add_spec(command)
    add_reproducible(command)
    add(
        "--grid",
        action="append",
        default=[],
        metavar="KEY=A,B,C",
        help="values of a key, such as algorithm.batch_size=8,32; several give every combination",
    )
    add("--seeds", type=int, default=5, metavar="N", help="runs of each setting (default: 5)")
    add_study(command, "sweep")
    command.set_defaults(command=sweep_command)


def add_study(command: argparse.ArgumentParser, kind: str) -> None:
    """Add what all commands have that make several runs."""
    add = command.add_argument
    add("--jobs", type=int, default=None, metavar="J", help="runs at a time (default: 1; on Ray: all processors)")
    add(
        "--engine",
        choices=["processes", "ray"],
        default=None,
        help="where runs are made: processes of this machine, or Ray (default: ray with --address, else processes)",
    )
    add(
        "--address",
        metavar="HOST:PORT",
        help="of a Ray cluster that this machine is a node of, or auto (default: start Ray here)",
    )
    add("--out", action=FileName, metavar="DIR", help=f"folder for the runs' folders (default: runs/<spec>-{kind})")


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
    from gossamer.cli.live import shown
    from gossamer.studies.runs import workers_of

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


def ended(study: Study, file: str, *before: PageSection) -> int:
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


def price_options(command: argparse.ArgumentParser) -> None:
    """Say what privacy and distance cost.

    Run a private federation with and without noise, each party alone, and all rows in one place, with the same seeds.
    The same command goes on with one that was interrupted.
    """
    add = command.add_argument
    add_spec(command)
    add_reproducible(command)
    add("--seeds", type=int, default=3, metavar="N", help="runs of each (default: 3)")
    add(
        "--epsilons",
        type=_numbers,
        default=None,
        metavar="A,B,C",
        help="further budgets of the federation (default: 0.5,1,2,4)",
    )
    add_study(command, "price")
    command.set_defaults(command=price_command)


def price_command(options: argparse.Namespace) -> int:
    """Make the runs, and say what privacy and distance cost."""
    from gossamer.report.figure import PageSection
    from gossamer.studies.price import EPSILONS, FILE, PRIVATE, Price, in_words, plan_price, rows

    out = options.out or default_folder(options.spec, "price", None, settings_of(options))
    epsilons = EPSILONS if options.epsilons is None else options.epsilons
    with naming(options.spec, out):
        study, guarantee, left_out = plan_price(
            options.spec, out, options.seeds, epsilons, options.jobs, overrides_of(options), say
        )
    make(study, options)
    found = Price(study, guarantee, study.scores(), left_out)
    study.write(FILE, found.as_dict())
    if options.json:
        print_json(found.as_dict())
    else:
        print(f"{table(rows(found))}\n\n" + "\n".join(wrapped(f"  - {line}") for line in in_words(found)))
    warn([PRIVATE, study.added_up()])
    try:
        figure = found.figure()
    except DataError:
        figure = None  # the report says which package is missing
    return ended(study, FILE, *([] if figure is None else [PageSection("price", "Price", [figure])]))


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers with commas between them, found {text[:40]!r}") from None
