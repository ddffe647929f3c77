"""``gossamer simulate-faults``: real nodes through generated faults, and the shortest schedule that fails."""

from __future__ import annotations

import argparse
import shlex
import time
from functools import cache, partial

from gossamer.cli.commands import read_experiment, same_options
from gossamer.cli.printing import answered, patience, say
from gossamer.errors import counted
from gossamer.experiment.specs.spec_file import read_text, write_spec
from gossamer.faults.trials import Failure, Trial, first_failing, small_runs
from gossamer.processes import results

_CHUNK = 50  # seeds that a process takes at a time


@cache
def _trial(spec: str) -> Trial:
    """Trial of a spec, made once in a process."""
    return Trial.of(read_text(spec))


def _failing(spec: str, seeds: range) -> int | None:
    return first_failing(_trial(spec), seeds)


def simulate_faults_command(options: argparse.Namespace) -> int:
    """Run the seeds; 1 if one fails."""
    experiment = read_experiment(options)
    spec = write_spec(experiment)
    for remark in small_runs(experiment)[1]:
        say(remark)
    last = options.first + options.seeds
    chunks = [range(start, min(start + _CHUNK, last)) for start in range(options.first, last, _CHUNK)]
    began, done, failing = time.perf_counter(), 0, None
    with patience("running seeds") as now:
        for chunk, failing in zip(chunks, results([partial(_failing, spec, chunk) for chunk in chunks], options.jobs)):
            done += len(chunk)
            now(f"running seeds, {done} of {options.seeds} are done")
            if failing is not None:
                break
    seconds = time.perf_counter() - began
    if failing is not None:
        with patience(f"looking for the shortest schedule with which seed {failing} fails"):
            failure = Failure.of(_trial(spec), failing)
    else:
        failure = None
    again = None if failure is None else _command(options, failure.seed)
    document = {"algorithm": experiment.algorithm.name, "first": options.first, "seeds": options.seeds}
    document["failure"] = None if failure is None else failure.as_dict() | {"again": again}
    held = f"{experiment.algorithm.name}: {counted(options.seeds, 'seed')} from {options.first} on, and everything held"
    answered(options, document, held if failure is None else f"{failure}\nagain: {again}")
    say(f"{done / seconds:.1f} seeds a second")
    return 0 if failure is None else 1


def _command(options: argparse.Namespace, seed: int) -> str:
    """Command that runs one seed again."""
    words = ["gossamer", "simulate-faults", str(options.spec), *same_options(options)]
    return shlex.join([*words, "--seeds", "1", "--first", str(seed)])
