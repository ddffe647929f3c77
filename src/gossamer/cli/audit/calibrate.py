"""``gossamer calibrate``: the least noise for a budget."""

from __future__ import annotations

import argparse

from gossamer.cli.audit.account import (
    MECHANISMS,
    add_common,
    relation_of,
    schedule_of,
    size_of,
    whose,
)
from gossamer.cli.options import check_delta
from gossamer.cli.printing import print_json, warn
from gossamer.errors import counted
from gossamer.privacy.accounting.planner import calibrate, gaussian_family, l2_laplace_family
from gossamer.privacy.guarantees import remarks, rounded_up
from gossamer.privacy.mechanisms import Gaussian, L2Laplace, Mechanism

DESCRIPTION = "Compute the least noise whose proved epsilon is within the budget."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    command.add_argument("--mechanism", choices=MECHANISMS, default="gaussian")
    command.add_argument("--epsilon", type=float, required=True, metavar="E", help="the budget")
    add_common(command)
    command.set_defaults(command=calibrate_command)


def calibrate_command(options: argparse.Namespace) -> int:
    """Print the noise for a budget."""
    relation = relation_of(options)
    check_delta(options)
    size, schedule = size_of(options), schedule_of(options)
    family = gaussian_family() if options.mechanism == "gaussian" else l2_laplace_family(size, relation)
    found = calibrate(options.epsilon, options.delta, relation, [schedule], family, rows=options.group)
    document = {
        **_noise(found.mechanism),
        "epsilon": found.epsilon,
        "delta": options.delta,
        "neighboring_relation": relation.value,
        "rows_per_person": options.group,
        "releases": sum(schedule.values()),
    }
    warn(remarks(found.epsilon, options.delta, options.dataset_size, "the data set", options.group))
    if options.json:
        print_json(document)
        return 0
    name, amount = next(iter(_noise(found.mechanism).items()))
    words = "epsilon per full-batch release" if name == "release_epsilon" else "noise multiplier"
    print(
        f"{words} {amount:.6g}, for ({rounded_up(found.epsilon, 6)}, {options.delta:g})-differential "
        f"privacy ({whose(options, relation)}) in {counted(document['releases'], 'release')}"
    )
    return 0


def _noise(mechanism: Mechanism) -> dict[str, float]:
    if isinstance(mechanism, L2Laplace):
        return {"release_epsilon": mechanism.epsilon}
    assert isinstance(mechanism, Gaussian)
    return {"noise_multiplier": mechanism.noise_multiplier}
