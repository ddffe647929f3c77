"""Commands that make several runs: ``sweep`` and ``price``, with a table of how they go."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gossamer.cli.commands import naming, overrides_of, settings_of
from gossamer.cli.printing import answered, in_blocks, say, warn, wrapped
from gossamer.errors import DataError, counted
from gossamer.experiment.specs.folder_names import default_folder

if TYPE_CHECKING:
    from gossamer.report.drawing import PageSection
    from gossamer.studies.study import Study


def sweep_command(options: argparse.Namespace) -> int:
    """Make the runs, and say which setting did best."""
    from gossamer.studies.sweep import Paper, marked, plan_sweep, read_grid

    grid, paper = read_grid(options.grid), Paper(read_grid(options.label, "--label"), options.figure, options.baseline)
    out = options.out or default_folder(options.spec, "sweep", None, settings_of(options))
    with naming(options.spec, out):
        found = plan_sweep(options.spec, grid, out, options.seeds, options.jobs, overrides_of(options), paper, say)
    make(found, options)
    best = "" if found.best is None else f"\n\n* the best mean {found.scores[found.best].called} on test examples"
    useless = [name for name, score in found.scores.items() if not score.better]
    said = [f"No better than saying the same of every row: {', '.join(useless)}."] if useless else []
    first = "".join(f"{wrapped(line)}\n\n" for line in [*said, *found.diverged()])
    answered(options, found.as_dict(), f"{first}{in_blocks(marked(found), 1 + max(1, len(grid)))}{best}")
    warn([found.warning])
    found.publish()
    say(f"Article: {found.out}/{{{','.join(found.article.files)}}}")
    say(f"Caption: {found.article.caption}")
    return ended(found)


def make(study: Study, options: argparse.Namespace) -> None:
    """Make the runs of a study; an interrupt leaves those that are done, and says so."""
    from gossamer.studies.runs import workers_of

    try:
        with workers_of(options.engine, options.jobs) as workers:
            warn(workers.remarks)
            study.make(workers, say)
    except KeyboardInterrupt:
        done = sum(one.finished for one in study.runs)
        say(
            f"{done} of {counted(len(study.runs), 'run')} are done, in {study.out}; the same command goes on from there"
        )
        raise


def ended(study: Study, *before: PageSection) -> int:
    """Write the report, say where all is and what failed, and return the exit code."""
    try:
        if study.finished:
            say(f"Report: {study.report(*before)}")
    except DataError as missing:
        say(f"No report: {missing}; then gossamer report {study.out}/*-seed*")
    say(f"Results: {study.out / study.FILE}, and {counted(len(study.finished), 'folder')} beside it")
    for folder, error in study.errors.items():
        say(f"gossamer: {folder.name} failed: {error}")
    return 1 if study.errors else 0


def price_command(options: argparse.Namespace) -> int:
    """Make the runs, and say what privacy and distance cost."""
    from gossamer.report.drawing import PageSection
    from gossamer.studies.price import EPSILONS, PRIVATE, in_words, plan_price, rows

    out = options.out or default_folder(options.spec, "price", None, settings_of(options))
    epsilons = EPSILONS if options.epsilons is None else options.epsilons
    with naming(options.spec, out):
        found = plan_price(options.spec, out, options.seeds, epsilons, options.jobs, overrides_of(options), say)
    make(found, options)
    lines = in_words(found)
    words = "\n".join(wrapped(f"  - {line}") for line in lines)
    answered(options, found.as_dict(), f"{in_blocks(rows(found))}\n\n{words}")
    warn([PRIVATE, found.added_up()])
    try:
        figure = found.figure()
    except DataError:
        figure = None  # the report says which package is missing
    figures = [] if figure is None else [figure]
    return ended(found, PageSection("price", "Price", figures, values={"lines": lines}))
