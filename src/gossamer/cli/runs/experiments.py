"""``gossamer run`` and ``gossamer check``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gossamer.algorithms.plan import Plan
from gossamer.cli.plan_output import epsilon, guarantees, node_table
from gossamer.cli.printing import Bar, describe_row, print_json, say, wrapped
from gossamer.cli.spec_options import add_reproducible, add_spec, read_experiment
from gossamer.errors import BudgetSpent, CallerError, counted
from gossamer.experiment.planning import plan_run
from gossamer.experiment.prepare import Prepared, prepare
from gossamer.experiment.repeating import repeat_run
from gossamer.experiment.running import Result, run
from gossamer.experiment.summarising import proved

Start = tuple[Path, Callable[[Bar], Result]]
"""The folder for results, and a function that makes them."""


def add_commands(commands: Any) -> None:
    """Add the two commands to the parser."""
    running = commands.add_parser("run", help="run an experiment", description="Run an experiment.")
    add_spec(running, optional=True)
    add_reproducible(running)
    running.add_argument(
        "--repeat", metavar="RESULTS", help="repeat the run of a results folder, with its noise secret"
    )
    running.add_argument("--out", type=Path, help="folder for the results (default: runs/<spec>-seed<seed>)")
    running.add_argument("--overwrite", action="store_true", help="replace the results of an earlier run in --out")
    running.add_argument("--engine", choices=["sim"], default="sim", help="where nodes run (default: sim)")
    running.add_argument("--trace", type=Path, metavar="FILE", help="also write every event and effect to FILE")
    running.set_defaults(command=run_command)
    checking = commands.add_parser(
        "check",
        help="say what a run would do and guarantee, without running it",
        description="Check a spec: load its data, fix its schedule and noise, and say what is guaranteed.",
    )
    add_spec(checking)
    add_reproducible(checking)
    checking.set_defaults(command=check_command)


def run_command(options: argparse.Namespace) -> int:
    """Run the experiment and say what came of it."""
    out, start = _repeat(options) if options.repeat is not None else _run(options)
    bar = Bar()
    try:
        result = start(bar)
    except KeyboardInterrupt:
        bar.close()
        if (out / "summary.json").exists():
            say(f"{out} holds the results up to the last evaluation")
        raise
    finally:
        bar.close()
    if options.json:
        print_json(result.summary)
    else:
        print(_report(result, options.repeat))
    spent = [name for name, reason in result.summary["finished"].items() if reason == "budget"]
    if spent:
        say(
            f"gossamer: the ledger of {spent[0]} refused a release ({counted(len(spent), 'node')} in all); it covers "
            "no more"
        )
    return BudgetSpent.exit_code if spent else 0


def _run(options: argparse.Namespace) -> Start:
    if options.spec is None:
        raise CallerError("expected a SPEC to run, or --repeat RESULTS, found neither; give one")
    experiment = read_experiment(options)
    out = options.out or Path("runs") / f"{options.spec.stem}-seed{experiment.seed}"
    more = {"overwrite": options.overwrite, "trace": options.trace}
    return out, lambda bar: run(experiment, out, progress=bar, **more)


def _repeat(options: argparse.Namespace) -> Start:
    given = {
        "SPEC": options.spec is not None,
        "--set": bool(options.set),
        "--seed": options.seed is not None,
        "--accept-weak": options.accept_weak,
        "--reproducible": options.reproducible,
    }
    found = [name for name, there in given.items() if there]
    if found:
        raise CallerError(f"--repeat takes everything from the results folder, found {found[0]} as well; leave it out")
    out = options.out or Path("runs") / f"{Path(options.repeat).resolve().name}-repeat"
    more = {"overwrite": options.overwrite, "trace": options.trace}
    return out, lambda bar: repeat_run(options.repeat, out, progress=bar, **more)


def _report(result: Result, repeated: str | None) -> str:
    summary = result.summary
    nodes = summary["privacy"]["nodes"]
    rows = [(name, str(entry["releases"]), epsilon(entry["epsilon"])) for name, entry in nodes.items()]
    return (
        f"\n{summary['algorithm']}: {counted(summary['nodes'], 'node')} made {counted(summary['updates'], 'update')} "
        f"and sent {counted(summary['messages'], 'message')} in {summary['virtual_seconds']:g} virtual seconds "
        f"({result.timing['run_seconds']:.1f} s here)\n"
        f"{describe_row(result.metrics[-1])}\n\n"
        f"{node_table(('node', 'releases', 'epsilon'), rows)}\n\n"
        f"{guarantees(result.guarantee, result.guarantees)}\n\n"
        f"{_claims(summary['privacy']['claims'])}"
        f"{'' if repeated is None else _same_run(repeated)}"
        f"Results: {result.folder}"
    )


def _same_run(repeated: str) -> str:
    return f"{wrapped(f'This is {repeated} again, with its noise: the same run, and no second release.')}\n\n"


def _claims(claims: list[dict[str, Any]]) -> str:
    """What papers claim of such a run, which is not what is proved."""
    return "".join(f"{wrapped(_claim(claim))}\n\n" for claim in claims)


def _claim(claim: dict[str, Any]) -> str:
    if claim["epsilon"] is None:
        return f"{claim['theorem']} claims nothing of such a run: {claim['why']}"
    said = f"Claimed, not proved: {claim['theorem']}: epsilon {claim['epsilon']:.4g} at delta {claim['delta']:g}"
    return said if claim["valid"] else f"{said}, but its own conditions fail: {claim['why']}"


def check_command(options: argparse.Namespace) -> int:
    """Say what would happen."""
    prepared = prepare(read_experiment(options))
    plan = plan_run(prepared)
    if plan.estimates is not None:
        say(str(plan.estimates))
    if options.json:
        print_json(_check_document(prepared, plan))
    else:
        print(_check_report(prepared, plan))
    return 0


def _check_document(prepared: Prepared, plan: Plan) -> dict[str, Any]:
    return {
        "algorithm": prepared.experiment.algorithm.name,
        "dataset": prepared.dataset.name,
        "nodes": len(prepared.names),
        "parameters": prepared.objective.size,
        "updates": plan.updates,
        "mechanism": plan.describe(),
        **plan.figures,
        **proved(plan),
        "plan": {
            name: {"examples": prepared.shard_sizes[name], "releases": plan.releases(name)} for name in prepared.names
        },
    }


def _check_report(prepared: Prepared, plan: Plan) -> str:
    document = _check_document(prepared, plan)
    rows = [
        (name, str(entry["examples"]), str(entry["releases"]), epsilon(plan.epsilons[name]))
        for name, entry in document["plan"].items()
    ]
    return (
        f"{document['algorithm']} on {document['dataset']} ({prepared.dataset.source}), "
        f"{counted(document['parameters'], 'parameter')}\nplan: {plan}\n\n"
        f"{node_table(('node', 'examples', 'releases', 'epsilon'), rows)}\n\n"
        f"{guarantees(plan.guarantee, plan.guarantees)}\n\nThe spec is sound."
    )
