"""``gossamer check``, ``gossamer run`` and ``gossamer flower``."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.cli.commands import naming, read_experiment, same_options, settings_of
from gossamer.cli.logs import STDERR, door_for, live, logged, progress
from gossamer.cli.printing import (
    PlainProgress,
    advise,
    answered,
    below,
    describe_row,
    epsilon,
    figure,
    guarantees,
    judgement,
    node_table,
    print_json,
    private_evaluation,
    say,
    table,
    warn,
    wrapped,
)
from gossamer.errors import ENDED_SHORT, BudgetSpent, CallerError, counted
from gossamer.experiment.specs.folder_names import default_folder
from gossamer.files import write_own

if TYPE_CHECKING:
    from gossamer.algorithms.plan import Plan, Words
    from gossamer.experiment.preparation.planning import Forecast
    from gossamer.experiment.preparation.prepare import Prepared
    from gossamer.experiment.results.records import Result
    from gossamer.experiment.specs.spec import Experiment


def check_command(options: argparse.Namespace) -> int:
    """Say what would happen."""
    from gossamer.experiment.preparation.engines import chosen
    from gossamer.experiment.preparation.memory import check_memory
    from gossamer.experiment.preparation.planning import forecast, plan_run
    from gossamer.experiment.preparation.prepare import Sources, prepare

    experiment = read_experiment(options)
    with naming(options.spec):
        prepared = prepare(experiment)
        check_memory(prepared)
        plan = plan_run(prepared)
        compiled, engine = chosen(prepared, plan, Sources(0), watched=False)
        check_memory(prepared, compiled)
    if plan.words.estimates:
        say(wrapped(plan.words.estimates))
    found = forecast(prepared, plan)
    if options.json:
        print_json(_check_document(prepared, plan, found))
    else:
        print(_check_report(prepared, plan, found, engine))
        warn(found.remarks)
        advise(shlex.join(["gossamer", "run", str(options.spec), *same_options(options)]))
    return 0


def _check_document(prepared: Prepared, plan: Plan, found: Forecast) -> dict[str, Any]:
    from gossamer.experiment.preparation.planning import explain, proved

    return {
        "algorithm": prepared.experiment.algorithm.name,
        "dataset": prepared.dataset.name,
        "nodes": len(prepared.names),
        "parameters": prepared.objective.size,
        "updates": plan.updates,
        **plan.figures,
        **proved(plan),
        "plan": {
            name: {"examples": prepared.shard_sizes[name], "releases": plan.releases[name]} for name in prepared.names
        },
        "forecast": asdict(found),
        "in_plain_words": explain(prepared, plan, found),
    }


def _check_report(prepared: Prepared, plan: Plan, found: Forecast, engine: str) -> str:
    document = _check_document(prepared, plan, found)
    rows = [
        (name, str(entry["examples"]), str(entry["releases"]), epsilon(plan.epsilons[name]))
        for name, entry in document["plan"].items()
    ]
    size = counted(document["parameters"], "parameter")
    what = f"{document['algorithm']} on {document['dataset']} ({prepared.dataset.source}), {size}\nplan: {plan}"
    what += f"\n{engine}" if engine else ""
    plainly = "\n".join(f"  - {about}: {said}" for about, said in document["in_plain_words"].items())
    return (
        f"{wrapped(what)}\n\n"
        f"{node_table((plan.words.party, 'examples', 'releases', 'epsilon planned'), rows)}{below(plan.words)}\n\n"
        f"{guarantees(plan.guarantee, plan.guarantees)}\n\n"
        f"In plain words:\n{wrapped(plainly)}\n\n"
        f"{'The spec can be run, but see the warning.' if found.remarks else 'The spec is sound.'}"
    )


Start = tuple[Path, Callable[[PlainProgress], "Result"]]
"""The folder for results, and a function that makes them."""


def run_command(options: argparse.Namespace) -> int:
    """Run the experiment and say what came of it."""
    made_by = _resume if options.resume is not None else _repeat if options.repeat is not None else _run
    return _made(options, *made_by(options))


def flower_command(options: argparse.Namespace) -> int:
    """Run the clients of a Flower app, and say what came of it."""
    from gossamer.flower.app import FlowerApp, settled

    with naming(options.spec):
        spec = settled(read_experiment(options))
    if options.start is not None and options.start.exists() and not options.overwrite:
        raise CallerError(f"--start: {options.start} exists; choose another name, or replace it with --overwrite")
    python = options.python or sys.executable
    with closing(FlowerApp(options.app, spec.algorithm.nodes, python, spec.seed, options.timeout)) as app:
        if options.start is not None:
            write_own(options.start, app.start)
            return 0
        return _made(options, *_started(options, spec, data=app.data(), module=app, checkpoint=None))


def _made(options: argparse.Namespace, out: Path, start: Callable[[PlainProgress], Result]) -> int:
    from gossamer.experiment.preparation.ending import made
    from gossamer.experiment.results.observer import remark
    from gossamer.experiment.results.summary import troubles
    from gossamer.objectives.released_scores import doubts_of
    from gossamer.objectives.score_words import warnings_of

    shown = progress(lines=options.log_file == STDERR)
    try:
        with logged(options, out.name), naming(options.spec, out, options.trace), door_for(options) as door:
            with live(door, [out]):
                result = start(shown)
            shown.ended(result.summary)
    except KeyboardInterrupt:
        shown.close()
        if (out / "summary.json").exists():
            say(f"{out} holds the results up to the last evaluation{_goes_on(out)}")
        raise
    finally:
        shown.close()
    answered(options, result.summary, _report(result, shown.words, getattr(options, "repeat", None)))
    noise = result.summary["privacy"]["mechanism"]
    warn(troubles(result.summary, private="none" not in (noise.get("mechanism"), noise.get("noise"))))
    if "ended_worse" not in result.summary:  # which needs other advice
        warn(warnings_of(result.summary.get("scores", {})))
    warn([*remark(result.summary), *doubts_of(result.summary.get("private_evaluation", {}))])
    if short := result.summary.get("shortfall"):
        say(f"gossamer: {result.summary['status']}: {made(short)}")
    if spent := result.summary["ended"].get("budget", 0):
        say(
            f"gossamer: {counted(spent, 'ledger')} refused a release, and {'covers' if spent == 1 else 'cover'} no more"
        )
    return BudgetSpent.exit_code if spent else ENDED_SHORT if short else 0


def _run(options: argparse.Namespace) -> Start:
    if options.spec is None:
        raise CallerError("expected a SPEC to run, or --repeat RESULTS, or --resume RESULTS, found none; give one")
    return _started(options, read_experiment(options), **_kept(options))


def _started(options: argparse.Namespace, experiment: Experiment, **given: Any) -> Start:
    from gossamer.experiment.runs.running import run

    out = options.out or default_folder(options.spec, "", experiment.seed, settings_of(options))
    given |= {"overwrite": options.overwrite, "trace": options.trace, "track": options.track}
    return out, lambda shown: run(experiment, out, progress=shown, **given)


def _repeat(options: argparse.Namespace) -> Start:
    from gossamer.experiment.runs.repeats import repeat_run

    more = {"--checkpoint": options.checkpoint is not None, "--shards": options.shards is not None}
    _check_alone("--repeat", options, more)
    out = options.out or Path("runs") / f"{options.repeat.resolve().name}-repeat"
    given = {"overwrite": options.overwrite, "trace": options.trace}
    return out, lambda shown: repeat_run(options.repeat, out, progress=shown, **given)


def _resume(options: argparse.Namespace) -> Start:
    from gossamer.experiment.runs.repeats import resume_run

    more = {"--repeat": options.repeat, "--out": options.out, "--overwrite": options.overwrite}
    _check_alone("--resume", options, {name: bool(value) for name, value in more.items()})
    given = {"trace": options.trace, **_kept(options)}
    return options.resume, lambda shown: resume_run(options.resume, progress=shown, **given)


def _check_alone(option: str, options: argparse.Namespace, more: dict[str, bool]) -> None:
    """Refuse what says another run than the results folder of ``option`` does."""
    given = {
        "SPEC": options.spec is not None,
        "--set": bool(options.set),
        "--seed": options.seed is not None,
        "--reproducible": options.reproducible,
        "--track": bool(options.track),
        **more,
    }
    found = [name for name, there in given.items() if there]
    if found:
        raise CallerError(f"{option} takes everything from the results folder, found {found[0]} as well; leave it out")


def _kept(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds from one checkpoint to the next, and shards that compute for the run, if they were said."""
    every = options.checkpoint
    found = {} if every is None else {"checkpoint": every if every < math.inf else None}
    if options.shards is not None:
        from gossamer.runtimes.ray_shards import RayShards

        found["engine"] = RayShards(options.shards)
    return found


def _goes_on(out: Path) -> str:
    from gossamer.experiment.results.results_folder import CHECKPOINT

    return f"; gossamer run --resume {shlex.quote(str(out))} goes on" if (out / CHECKPOINT).exists() else ""


def _report(result: Result, words: Words, repeated: Path | None) -> str:
    from gossamer.objectives.score_words import said_first

    summary = result.summary
    privacy, owners = summary["privacy"], summary.get("owners", {})
    if "spread" in privacy:
        releases, planned = privacy["spread"]["releases"], privacy["spread"]["epsilon"]
        rows = [(f"the {name}", str(releases[name]), epsilon(planned[name])) for name in releases]
    else:
        rows = [
            (f"{name} ({owners[name]})" if name in owners else name, str(entry["releases"]), epsilon(entry["epsilon"]))
            for name, entry in privacy["nodes"].items()
        ]
    scores = summary.get("scores", {})
    judged = "".join(f"\n{wrapped(line)}\n" for line in said_first(scores))
    tested = f"\n{judgement(scores)}\n" if scores else ""
    if scores and not words.shared and summary["nodes"] > 1:
        tested += f"\n{wrapped(_of_nobody(words, scores.get('nodes')))}\n"
    again = ""
    if repeated is not None:
        again = f"{wrapped(f'This is {repeated} again, with its noise: the same run, and no second release.')}\n\n"
    return (
        f"{judged}\n{summary['algorithm']}: {words.parties(summary['nodes'])} made "
        f"{counted(summary['updates'], words.made)} and sent {counted(summary['messages'], 'message')} in "
        f"{summary['virtual_seconds']:g} virtual seconds ({result.timing['run_seconds']:.1f} s here)\n"
        f"{describe_row(result.metrics[-1], words)}\n{tested}"
        f"{_personal(summary.get('personalisation'))}{private_evaluation(summary.get('private_evaluation'))}\n"
        f"{node_table((words.party, 'releases', 'epsilon planned'), rows)}{below(words)}\n\n"
        f"{guarantees(result.guarantee, result.guarantees)}\n\n"
        f"{_claims(summary['privacy']['claims'])}"
        f"{again}"
        f"Results: {result.folder}\n"
        f"Next: gossamer report {shlex.quote(str(result.folder))}"
    )


def _of_nobody(words: Words, own: Mapping[str, float] | None) -> str:
    """Words on whose scores these are where each party has a model of its own, and what is known of those."""
    said = f"These scores are of the mean of all {words.party}s' models, which nobody has"
    if own is None:
        return f"{said}."
    return f"{said}; their own have an area under the ROC curve of {own['auroc']:.3f} (worst {own['worst_auroc']:.3f})."


def _personal(found: dict[str, Any] | None) -> str:
    """Figures of personal models beside those of what they were made from, and whom these models are for."""
    if found is None:
        return ""
    rows: list[tuple[str, ...]] = [("test figures", "personal models", "worst", "made from", "worst")]
    for name, words in _PERSONAL.items():
        if name in found["personal"]:
            rows.append(
                (words, *(figure(found[of], key, "none") for of in _MODELS for key in (name, f"worst_node_{name}")))
            )
    return f"\n{table(rows)}\n{wrapped(found['note'])}\n"


_MODELS = ("personal", "final_model")
_PERSONAL = {
    "test_accuracy": "accuracy",
    "own_classes_test_accuracy": "accuracy as own classes are mixed",
    "test_loss": "loss",
}


def _claims(claims: list[dict[str, Any]]) -> str:
    """Claims of papers about such a run, which are not what is proved."""
    if not claims:
        return ""
    lines = "\n".join(wrapped(f"  - {_claim(claim)}") for claim in claims)
    return f"{wrapped(_COMPARISON)}\n{lines}\n\n"


_COMPARISON = (
    "Only for comparison, what the algorithm's paper says of such a run; it is not proved here, and nothing above "
    "relies on it (docs/privacy/claims.md says more):"
)


def _claim(claim: dict[str, Any]) -> str:
    if claim["epsilon"] is None:
        return f"{claim['theorem']} says nothing of it: {claim['why']}"
    figures = f"epsilon {claim['epsilon']:.4g} at delta {claim['delta']:g}"
    if claim["valid"]:
        return f"{claim['theorem']} claims {figures}"
    return (
        f"{claim['theorem']} promises nothing, since its own conditions do not hold: {claim['why']}; its formula alone "
        f"would give {figures}"
    )
