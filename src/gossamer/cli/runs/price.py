"""``gossamer price``."""

from __future__ import annotations

import argparse

from gossamer.cli.options import add_reproducible, add_spec, naming, overrides_of, settings_of
from gossamer.cli.printing import print_json, say, table, warn, wrapped
from gossamer.cli.runs.sweep import add_study, ended, make
from gossamer.errors import DataError
from gossamer.experiment.specs.folder_names import default_folder

DESCRIPTION = (
    "Run a private federation with and without noise, each party alone, and all rows in one place, with the same "
    "seeds, and say what privacy and distance cost. The same command goes on with one that was interrupted."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_spec(command)
    add_reproducible(command)
    command.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each (default: 3)")
    command.add_argument(
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
    from gossamer.report.sections import Section
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
    return ended(study, FILE, *([] if figure is None else [Section("price", "Price", [figure])]))


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers with commas between them, found {text[:40]!r}") from None
