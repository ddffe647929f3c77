"""``gossamer check``."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gossamer.cli.options import add_reproducible, add_spec, naming, read_experiment, same_options
from gossamer.cli.printing import advise, below, epsilon, guarantees, node_table, print_json, say, warn, wrapped
from gossamer.errors import counted

if TYPE_CHECKING:
    from gossamer.algorithms.plan import Plan
    from gossamer.experiment.preparation.planning import Forecast
    from gossamer.experiment.preparation.prepared import Prepared

DESCRIPTION = "Check a spec: load its data, fix its schedule and noise, and say in plain words what a run would do."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_spec(command)
    add_reproducible(command)
    command.set_defaults(command=check_command)


def check_command(options: argparse.Namespace) -> int:
    """Say what would happen."""
    from gossamer.experiment.preparation.planning import forecast, plan_run
    from gossamer.experiment.preparation.prepare import prepare

    experiment = read_experiment(options)
    with naming(options.spec):
        prepared = prepare(experiment)
        plan = plan_run(prepared)
    if plan.words.estimates:
        say(plan.words.estimates)
    found = forecast(prepared, plan)
    if options.json:
        print_json(_check_document(prepared, plan, found))
    else:
        print(_check_report(prepared, plan, found))
        warn(found.remarks)
        advise(shlex.join(["gossamer", "run", str(options.spec), *same_options(options)]))
    return 0


def _check_document(prepared: Prepared, plan: Plan, found: Forecast) -> dict[str, Any]:
    from gossamer.experiment.preparation.explaining import explain
    from gossamer.experiment.results.summarising import proved

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


def _check_report(prepared: Prepared, plan: Plan, found: Forecast) -> str:
    document = _check_document(prepared, plan, found)
    rows = [
        (name, str(entry["examples"]), str(entry["releases"]), epsilon(plan.epsilons[name]))
        for name, entry in document["plan"].items()
    ]
    return (
        f"{document['algorithm']} on {document['dataset']} ({prepared.dataset.source}), "
        f"{counted(document['parameters'], 'parameter')}\nplan: {plan}\n\n"
        f"{node_table((plan.words.party, 'examples', 'releases', 'epsilon planned'), rows)}{below(plan.words)}\n\n"
        f"{guarantees(plan.guarantee, plan.guarantees)}\n\n"
        f"In plain words:\n{_listed(document['in_plain_words'])}\n\n"
        f"{'The spec can be run, but see the warning.' if found.remarks else 'The spec is sound.'}"
    )


def _listed(words: Mapping[str, str]) -> str:
    return wrapped("\n".join(f"  - {about}: {said}" for about, said in words.items()))
