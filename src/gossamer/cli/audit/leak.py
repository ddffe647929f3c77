"""``gossamer audit leak``: nothing but noise tells two neighbouring data sets apart."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from gossamer.cli.options import add_spec, naming, read_experiment, same_options
from gossamer.cli.printing import patience, print_json, table

if TYPE_CHECKING:
    from gossamer.experiment.audits.leaking import LeakAudit

DESCRIPTION = (
    "Run a spec on pairs of neighbouring data sets with equal coins, hand over the releases of the first run to the "
    "second, and look for any difference outside of data sides; each release may be at most its sensitivity away."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_spec(command)
    command.add_argument("--pairs", type=int, default=100, metavar="N", help="how many pairs (default: 100)")
    command.add_argument("--updates", type=int, default=200, metavar="U", help="most updates of a run (default: 200)")
    command.set_defaults(command=leak_command)


def leak_command(options: argparse.Namespace) -> int:
    """Run the pairs, and say what differs."""
    from gossamer.experiment.audits.leaking import audit_leak
    from gossamer.experiment.preparation.prepare import prepare

    experiment = read_experiment(options)
    with naming(options.spec), patience("preparing the run") as now:
        found = audit_leak(
            prepare(experiment),
            pairs=options.pairs,
            updates=options.updates,
            progress=lambda done: now(f"running pairs, {done} of {options.pairs} are done"),
        )
    again = None if found.leak is None else _again(options, found)
    if options.json:
        print_json(found.as_dict() | {"again": again})
    else:
        print(_report(found, noisy=experiment.privacy.mechanism != "none"))
        if again is not None:
            print(f"again: {again}")
    return 0 if found.leak is None else 1


def _report(found: LeakAudit, *, noisy: bool) -> str:
    rows = [
        ("pairs of neighbouring data sets", f"{found.pairs:,}"),
        ("releases compared", f"{found.releases:,}"),
        ("of these, with a row that differs", f"{found.differing:,}"),
        ("largest distance, of the sensitivity", f"{found.largest:.4f}"),
        ("differences outside of data sides", "0" if found.leak is None else "1, and it ended there"),
    ]
    if found.leak is None:
        told = "noise told the two data sets of a pair apart."
        if not noisy:
            told = "releases told the two data sets of a pair apart, and they have no noise."
        unseen = "" if found.differing else "\nNo release was of a row that differs: raise --pairs or --updates."
        return f"{table(rows)}\n\nNothing but {told}{unseen}"
    row = f" ({found.neighbours} in the place of a row)" if found.neighbours else ""
    return f"{table(rows)}\n\nLeak in pair {found.pairs}{row}: {found.leak}"


def _again(options: argparse.Namespace, found: LeakAudit) -> str:
    """Command that finds it again."""
    words = ["gossamer", "audit", "leak", str(options.spec), *same_options(options)]
    return shlex.join([*words, "--updates", str(options.updates), "--pairs", str(found.pairs)])
