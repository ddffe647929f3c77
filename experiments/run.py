"""Runs the studies: every figure and table of the four papers, with what made it.

    python experiments/run.py [PAPER[/STUDY] ...]            what is not there yet, or of another spec
    python experiments/run.py [PAPER[/STUDY] ...] --check    nothing: do specs, records and verdicts stand?
    python experiments/run.py [PAPER[/STUDY] ...] --again    all, beside what is stored: does it come out the same?
    python experiments/run.py [PAPER[/STUDY] ...] --renew    what another commit or kind of machine made, in its place
    python experiments/run.py [PAPER[/STUDY] ...] --redraw   nothing: figures, the table of verdicts, the list of items

Each run's record is written as soon as it is there, so what was interrupted goes on where it was. A record says of what
commit, machine, spec and seed it is; ``--check`` makes its first updates again and holds them against it. ``--again``
changes nothing that is stored: what comes out is kept in files that end in ``-again``, which git ignores, and which go
when all is the same. The command exits with 1 if something is not as expected, or comes out otherwise than before on
one kind of machine, and with 2 if it cannot be run.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARED = HERE.parent.parent / "shared" / "data"
sys.path.insert(0, str(HERE.parent))

from experiments.drawn import save  # noqa: E402
from experiments.hours import hours  # noqa: E402
from experiments.making import How, compared, is_current, make  # noqa: E402
from experiments.provenance import Origin, begins_alike  # noqa: E402
from experiments.stored import Record, ResultsError, changed  # noqa: E402
from experiments.study import Study, StudyError, every_study, named  # noqa: E402
from experiments.sweeps import Variant  # noqa: E402
from experiments.verdicts import Verdict, linked, renewed, seeds_of  # noqa: E402

import gossamer as gs  # noqa: E402


def run(study: Study, options: argparse.Namespace) -> bool:
    """Make the records that are not there, and draw."""
    if not _foretold(study, options):
        return False
    for line in make(study, How(options.renew, options.only, options.jobs, options.out)):
        print(f"{study.title}: {line}")
    return redraw(study, options)


def again(study: Study, options: argparse.Namespace) -> bool:
    """Make all once more, beside what is stored; whether it is as expected, and the same on this kind of machine."""
    if not _foretold(study, options):
        return False
    beside, here, same = replace(study, again=True), Origin.here().machine, True
    make(beside, How(True, options.only, options.jobs, options.out))
    for what, stored, made, which in (
        ("tuning: ", study.trials_so_far(), beside.trials_so_far(), [one for _, _, one in study.trials(options.only)]),
        ("", study.stored(), beside.stored(), study.variants(options.only)),
    ):
        names = {one.name for one in which}
        before = [record for record in stored.records if record["name"] in names]
        after = [record for record in made.records if record["name"] in names]
        for line in compared(before, after):
            print(f"{study.title}: {what}{line}")
        if missing := len(after) - len(before):
            print(f"{study.title}: {what}{missing} records were not stored")
        of_here = [record for record in before if record.get("made", {}).get("machine") == here]
        same = same and not missing and not changed(of_here, after)
    whole = not options.only and not study.full
    well = _said(study, Verdict.read(study.folder).problems(beside.stored().records) if whole else []) and same
    for file in map(beside.file, ("results.json", "tuning.json")):
        if well:
            file.unlink(missing_ok=True)
        elif file.exists():
            print(f"{study.title}: what came out is in {file}")
    return well


def _foretold(study: Study, options: argparse.Namespace) -> bool:
    """Whether to begin: at once, or with ``--yes`` where it is said that hours will pass."""
    lines = [*hours(study.title, study.variants(options.only))]
    for line in lines:
        print(
            line if options.yes else f"{line}; say --yes to begin. Ctrl-C stops, and what is done is kept", flush=True
        )
    return options.yes or not lines


def redraw(study: Study, options: argparse.Namespace) -> bool:
    """Draw what is there; whether it is as expected."""
    records = study.stored().records
    if missing := len(study.variants({})) - len(records):
        print(f"{study.title}: not drawn, {missing} runs are missing")
        return False
    save(study.of.draw(study.name, records), records, study.file("figure.png"))
    verdict = Verdict.read(study.folder)
    for line in verdict.revised:
        print(f"{study.title}: under revision: {line}")
    return _said(study, verdict.problems(records))


def check(study: Study, options: argparse.Namespace) -> bool:
    """Whether specs are sound, records are of them and begin as they say, and the verdict follows."""
    variants = study.variants(options.only)
    have = {record["name"]: record for record in study.stored().records}
    sound = [one for one in variants if one.experiment is not None]
    current = [one for one in sound if is_current(have.get(one.name), one)]
    print(
        f"{study.title}: {len(sound)} sound specs, {len(current)} with a record, {seeds_of(list(have.values()))} seeds"
    )
    for place in study.edges():
        print(f"{study.title}: the best {study.tuning.setting} of {place} is at an edge of those that were tried")
    problems = Verdict.read(study.folder).problems(list(have.values())) if not options.only and not study.full else []
    return _said(study, [*problems, *_beginnings(study, current, have, options.jobs)])


def _beginnings(study: Study, variants: Sequence[Variant], have: Mapping[str, Record], jobs: int) -> Iterator[str]:
    origin = Origin.here()
    for variant, first in zip(variants, study.of.first_of_each(study.name, variants, jobs), strict=True):
        recorded = have[variant.name]["made"]
        if not begins_alike(recorded, first, origin):
            where = "" if recorded["machine"] == origin.machine else f", on {recorded['machine']}"
            yield f"{variant.name} begins otherwise than at commit {recorded['commit']}{where}: --renew makes it anew"


def _said(study: Study, problems: Sequence[str]) -> bool:
    for problem in problems:
        print(f"{study.title}: not as expected: {problem}")
    return not problems


def place(text: str) -> tuple[str, str]:
    """An axis and a place on it, from ``axis=place``."""
    axis, equals, at = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected axis=place, found {text}")
    return axis, at


def positive(text: str) -> int:
    """A number of jobs."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, found {text}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("studies", nargs="*", metavar="PAPER[/STUDY]", help="all by default")
    found.add_argument(
        "--full", action="store_true", help="longer runs, more models or data sets, where there are some"
    )
    found.add_argument(
        "--only", type=place, action="append", default=[], metavar="AXIS=PLACE", help="runs at one place"
    )
    found.add_argument("--yes", action="store_true", help="begin runs that take hours without a graphics card")
    found.add_argument("--jobs", type=positive, default=1, help="runs at a time (default: 1)")
    found.add_argument("--out", type=Path, help="also keep each run's results folder here")
    how = found.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="run nothing: do specs, records and verdicts stand?")
    how.add_argument("--again", action="store_true", help="run all once more, and change nothing: is it the same?")
    how.add_argument("--renew", action="store_true", help="run what another commit or machine made, in its place")
    how.add_argument("--redraw", action="store_true", help="run nothing: draw, and renew the table of verdicts")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, check or draw."""
    options = parser().parse_args(arguments)
    options.only = dict(options.only)
    if "GOSSAMER_DATA" not in os.environ and SHARED.is_dir():
        os.environ["GOSSAMER_DATA"] = str(SHARED)
    does = check if options.check else again if options.again else redraw if options.redraw else run
    well, where = list[bool](), ""
    try:
        studies = named(options.studies, options.full)
        if not any(study.variants(options.only) for study in studies):
            studies[0].refuse_place(options.only)
        for study in studies:
            where = f"{study.title}: "
            well.append(does(study, options))
    except (gs.GossamerError, ResultsError, StudyError) as error:
        print(f"run.py: error: {where}{error}", file=sys.stderr)
        return 2
    if does in (run, redraw) and not options.full:
        folders = {title: study.folder for title, study in every_study().items()}
        for page, change in ((HERE / "README.md", renewed), (HERE / "items.md", linked)):
            page.write_text(change(page.read_text("utf-8"), folders), "utf-8")
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
