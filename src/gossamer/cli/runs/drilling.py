"""``gossamer simulate-faults --incidents``: a script of incidents in virtual time, and what became of whom."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gossamer.cli.patience import patience
from gossamer.cli.printing import print_json, say, table, wrapped
from gossamer.errors import counted
from gossamer.experiment.spec import Experiment
from gossamer.faults.drills import ALL, Drill, Outcome
from gossamer.faults.fates import Fate
from gossamer.faults.incidents import Script, duration
from gossamer.processes import results
from gossamer.protocol.counters import counters_of, forgotten
from gossamer.protocol.link import Link

_CHUNK = 5  # seeds that a process takes at a time


@dataclass(frozen=True)
class _Work:
    """Seeds of a drill, as another process can take them."""

    experiment: Experiment
    script: Script
    seeds: range

    def __call__(self) -> list[Outcome]:
        drill = _drill(self.experiment, self.script)
        return [drill.run(seed) for seed in self.seeds]


_DRILLS: dict[str, Drill] = {}  # of this process


def _drill(experiment: Experiment, script: Script) -> Drill:
    key = experiment.model_dump_json() + script.model_dump_json()
    if key not in _DRILLS:
        _DRILLS[key] = Drill.of(experiment, script, recall)
    return _DRILLS[key]


def recall(links: Mapping[str, Link], theirs: Mapping[str, Link]) -> str | None:
    """Reason why a party does not go on with a state: its peers know of messages that it has forgotten."""
    lost = forgotten(links, {name: counters_of(link) for name, link in theirs.items()})
    return "; ".join(f"{name} {what}" for name, what in lost.items()) or None


def drill(options: argparse.Namespace, experiment: Experiment) -> int:
    """Run the drill; 1 if something did not hold."""
    script, last = Script.read(Path(options.incidents)), options.first + options.seeds
    replaced = Drill.of(experiment, script, recall).replaced  # what cannot be run is said at once
    for line in replaced:
        say(line)
    chunks = [range(start, min(start + _CHUNK, last)) for start in range(options.first, last, _CHUNK)]
    began, found = time.perf_counter(), list[Outcome]()
    with patience("running the drill") as now:
        for outcomes in results([_Work(experiment, script, chunk) for chunk in chunks], options.jobs):
            found += outcomes
            now(f"running the drill, {len(found)} of {options.seeds} seeds are done")
    seconds, failed = time.perf_counter() - began, [outcome for outcome in found if outcome.problems]
    shown = (failed or found)[0]
    if options.json:
        print_json(
            {
                "algorithm": experiment.algorithm.name,
                "first": options.first,
                "seeds": options.seeds,
                "replaced": replaced,
                "failed": {outcome.seed: list(outcome.problems) for outcome in failed},
                "fates": {title: [asdict(fate) for fate in fates] for title, fates in shown.fates.items()},
                "latest": _latest(found),
            }
        )
    else:
        print(f"{experiment.algorithm.name}, seed {shown.seed}: {ALL}, in virtual time\n")
        print(shown_as_table(shown.fates[ALL]))
        _print_notes(shown.fates[ALL])
        _print_latest(found)
        for outcome in failed:
            print(f"seed {outcome.seed} does not hold: {'; '.join(outcome.problems)}")
        held = "not everything held" if failed else "everything held"
        print(f"{len(found) - len(failed)} of {counted(len(found), 'seed')} from {options.first} on: {held}")
    say(f"{60 * len(found) / seconds:.1f} seeds a minute")
    return 1 if failed else 0


def shown_as_table(fates: Sequence[Fate]) -> str:
    """A line for each node."""
    head = ("node", "incident", "later by", "at most", "charged", "end")
    rows = [
        (
            fate.party,
            fate.incident,
            "-" if fate.delay is None else _later(fate.delay),
            "-" if fate.delay is None else duration(fate.allowed),
            "-" if fate.charged is None else str(fate.charged),
            fate.end,
        )
        for fate in fates
    ]
    return table([head, *rows])


def _later(seconds: float) -> str:
    return duration(seconds) if seconds >= 0 else f"-{duration(-seconds)}"


def _print_notes(fates: Sequence[Fate]) -> None:
    for fate in fates:
        if fate.note:
            print(wrapped(f"{fate.party}: {fate.note}"))


def _print_latest(found: Sequence[Outcome]) -> None:
    print()
    for title, latest in _latest(found).items():
        print(f"{title}: hit {_later(latest['hit'])} later at most, others {_later(latest['others'])}")


def _latest(found: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """The longest delays of all seeds, by what happens, of those hit and of the others."""
    latest: dict[str, dict[str, float]] = {}
    for outcome in found:
        for title, fates in outcome.fates.items():
            most = latest.setdefault(title, {"hit": 0.0, "others": 0.0})
            for fate in fates:
                who = "others" if fate.incident == "none" else "hit"
                most[who] = max(most[who], fate.delay or 0.0)
    return latest
