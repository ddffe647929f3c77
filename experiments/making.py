"""Making a study's records: those that tune it first, then its own, each written as soon as it is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments.checks import QUANTITIES
from experiments.provenance import Origin
from experiments.stored import Record, Stored, changed, is_measured
from experiments.study import Study
from experiments.sweeps import Variant
from experiments.tuning import trial


@dataclass(frozen=True)
class How:
    """How records are made.

    Attributes
    ----------
    renew : bool
        Whether also those that are there, but for what this commit and kind of machine made.
    only : dict of str to str
        Places on axes; runs elsewhere are left alone.
    jobs : int
        Runs at a time.
    out : Path, optional
        Where each run's results folder is kept.
    """

    renew: bool = False
    only: Mapping[str, str] | None = None
    jobs: int = 1
    out: Path | None = None

    @property
    def origin(self) -> Origin | None:
        """What a record has to be of; nothing where that does not matter."""
        return Origin.here() if self.renew else None


def is_current(record: Record | None, variant: Variant, origin: Origin | None = None) -> bool:
    """Whether there is a record of this spec; and, if asked, of this origin, with nothing changed since its commit."""
    made = {} if record is None else record.get("made", {})
    if made.get("spec") != variant.spec or origin is None:
        return bool(made.get("spec") == variant.spec)
    return origin.is_whole and (made["commit"], made["machine"]) == (origin.commit, origin.machine)


def make(study: Study, how: How) -> list[str]:
    """Make what is not there, or of another spec; or all, by ``how``.

    Returns
    -------
    list of str
        How many of the records that were there came out the same, in words.
    """
    return [*_tune(study, how), *_run(study, how)]


def _tune(study: Study, how: How) -> list[str]:
    """Try the values of the setting that is tuned, and then those that are due beyond them."""
    tuning, lines, made, origin = study.tuning, list[str](), set[str](), how.origin
    while tuning is not None:
        stored = study.trials_so_far()
        have = {record["name"]: record for record in stored.records}
        trials = {one.name: (tuned, value, one) for tuned, value, one in study.trials(how.only or {})}
        unmade = [one for name, (_, _, one) in trials.items() if name not in made]
        todo = [one for one in unmade if not is_current(have.get(one.name), one, origin)]
        if not todo:
            break
        made |= {one.name for one in todo}
        order = [one.name for _, _, one in study.trials({})]
        kept = partial(_trial, {name: (tuned, value) for name, (tuned, value, _) in trials.items()}, tuning.by)
        found = _made(study, how, todo, have, order, "tuning.json", stored, kept)
        lines += [f"tuning: {line}" for line in found]
    return lines


def _trial(trials: Mapping[str, tuple[str, float]], by: str, record: Record) -> Record:
    return trial(record, *trials[record["name"]], QUANTITIES[by](record))


def _run(study: Study, how: How) -> list[str]:
    stored = study.stored()
    have = {record["name"]: record for record in stored.records}
    order = [one.name for one in study.variants({})]
    origin = how.origin
    todo = [one for one in study.variants(how.only or {}) if not is_current(have.get(one.name), one, origin)]
    return _made(study, how, todo, have, order, "results.json", stored)


def _made(
    study: Study,
    how: How,
    todo: Sequence[Variant],
    have: dict[str, Record],
    order: Sequence[str],
    file: str,
    stored: Stored,
    kept: Callable[[Record], Record] = lambda record: record,
) -> list[str]:
    """Make the records ``todo``, and write all that there are after each."""
    if not todo:
        return []
    origin = Origin.here()
    stored.machines[origin.machine] = origin.facts
    before = dict(have)
    for record in study.of.run_study(study.name, todo, origin, out=how.out, jobs=how.jobs):
        have[record["name"]] = kept(record)
        Stored([have[name] for name in order if name in have], stored.machines).write(study.file(file))
    return compared([before[one.name] for one in todo if one.name in before], [have[one.name] for one in todo])


def compared(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    """How many records came out as they were, in words; nothing where none was there."""
    of_time = [record for record in before if is_measured(record)]
    lines = [f"{len(of_time)} runs in real time are not compared"] if of_time else []
    if others := len(before) - len(of_time):
        other = changed(before, after)
        which = f"; not {', '.join(other[:3])}{', ...' if len(other) > 3 else ''}" if other else ""
        lines.append(f"{others - len(other)} of {others} records came out as they were stored{which}")
    return lines
