"""``gossamer account`` and ``gossamer calibrate``: privacy figures without a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gossamer.cli.printing import print_json
from gossamer.errors import CallerError, DataError
from gossamer.privacy.accountants import epsilon
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation
from gossamer.privacy.planner import calibrate_noise_multiplier
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.sampling import FixedSize, Poisson, Sampling

_SIZE = 1  # the guarantee of Gaussian noise does not depend on how many numbers are released


def add_commands(commands: Any) -> None:
    """Add the two commands to the parser."""
    account = commands.add_parser(
        "account",
        help="epsilon of a number of noisy releases",
        description="Compute the epsilon that is proved for a number of subsampled Gaussian releases.",
    )
    account.add_argument("--mechanism", choices=["gaussian"], default="gaussian")
    account.add_argument(
        "--noise-multiplier",
        type=float,
        required=True,
        metavar="Z",
        help="sd of the noise on the sum over the clip",
    )
    _add_common(account)
    account.add_argument("--rates", type=Path, metavar="FILE", help="lines rate,count instead of one rate and steps")
    account.set_defaults(command=account_command)
    calibrate = commands.add_parser(
        "calibrate",
        help="the least noise for a budget",
        description="Compute the smallest noise multiplier whose proved epsilon is within the budget.",
    )
    calibrate.add_argument("--epsilon", type=float, required=True, metavar="E")
    _add_common(calibrate)
    calibrate.set_defaults(command=calibrate_command)


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--sampling", choices=["poisson", "fixed_size"], default="poisson")
    command.add_argument("--sampling-rate", type=float, metavar="Q", help="of poisson sampling")
    command.add_argument("--dataset-size", type=int, metavar="N", help="of fixed_size sampling")
    command.add_argument("--batch-size", type=int, metavar="B", help="of fixed_size sampling")
    command.add_argument("--steps", type=int, metavar="T", help="number of releases")
    command.add_argument("--delta", type=float, required=True, metavar="D")
    command.add_argument(
        "--neighboring-relation",
        choices=[relation.value for relation in NeighboringRelation],
        help="default: add_or_remove_one for poisson, replace_one for fixed_size",
    )
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def account_command(options: argparse.Namespace) -> int:
    """Print the epsilon of releases."""
    relation = _relation(options)
    if not 1e-2 <= options.noise_multiplier <= 1e6:
        raise CallerError(f"--noise-multiplier must lie between 0.01 and 10^6, found {options.noise_multiplier}")
    mechanism = Gaussian(1.0, options.noise_multiplier)
    schedule = _schedule(options)
    counts = {ReleaseKind(mechanism, sampling, _SIZE): count for sampling, count in schedule.items()}
    accounted = epsilon(counts, options.delta, relation)
    document = {
        "epsilon": accounted.epsilon,
        "delta": options.delta,
        "neighboring_relation": relation.value,
        "accountant": accounted.accountant,
        "releases": sum(schedule.values()),
    }
    if options.json:
        print_json(document)
    else:
        print(
            f"({accounted.epsilon:.6g}, {options.delta:g})-differential privacy ({relation.value}) for "
            f"{document['releases']} releases ({accounted.accountant})"
        )
    return 0


def calibrate_command(options: argparse.Namespace) -> int:
    """Print the noise for a budget."""
    relation = _relation(options)
    schedule = _schedule(options)
    found = calibrate_noise_multiplier(options.epsilon, options.delta, relation, [schedule], 1.0, _SIZE)
    document = {
        "noise_multiplier": found.noise_multiplier,
        "epsilon": found.epsilon,
        "delta": options.delta,
        "neighboring_relation": relation.value,
        "releases": sum(schedule.values()),
    }
    if options.json:
        print_json(document)
    else:
        print(
            f"noise multiplier {found.noise_multiplier:.6g}, for ({found.epsilon:.6g}, {options.delta:g})-differential "
            f"privacy ({relation.value}) in {document['releases']} releases"
        )
    return 0


def _relation(options: argparse.Namespace) -> NeighboringRelation:
    if options.neighboring_relation is not None:
        return NeighboringRelation(options.neighboring_relation)
    poisson = options.sampling == "poisson"
    return NeighboringRelation.ADD_OR_REMOVE_ONE if poisson else NeighboringRelation.REPLACE_ONE


def _schedule(options: argparse.Namespace) -> dict[Sampling, int]:
    if getattr(options, "rates", None) is not None:
        if options.sampling != "poisson" or options.sampling_rate is not None or options.steps is not None:
            raise CallerError("--rates holds rates of poisson sampling; leave out --sampling-rate and --steps")
        return read_rates(options.rates)
    if options.steps is None or not 0 <= options.steps <= 10**9:
        raise CallerError(f"--steps must be a number of releases, 0 to 10^9, found {options.steps}")
    return {_sampling(options): options.steps}


def _sampling(options: argparse.Namespace) -> Sampling:
    if options.sampling == "poisson":
        if options.dataset_size is not None or options.batch_size is not None:
            raise CallerError("--dataset-size and --batch-size are for --sampling fixed_size; leave them out")
        if options.sampling_rate is None:
            raise CallerError("--sampling poisson needs --sampling-rate")
        return Poisson(options.sampling_rate)
    if options.dataset_size is None or options.batch_size is None:
        raise CallerError("--sampling fixed_size needs --dataset-size and --batch-size")
    return FixedSize(options.dataset_size, options.batch_size)


def read_rates(path: Path) -> dict[Sampling, int]:
    """Poisson rates and how often each occurs, from lines ``rate,count``.

    Raises
    ------
    DataError
        If the file is missing or a line is malformed.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot read the rates: {getattr(error, 'strerror', 'not text')}") from None
    schedule: dict[Sampling, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            rate, count = line.split(",")
            sampling, times = Poisson(float(rate)), int(count)
        except ValueError as error:
            reason = error if isinstance(error, CallerError) else f"expected rate,count, found {line!r}"
            raise DataError(f"{path}, line {number}: {reason}") from None
        if times < 0:
            raise DataError(f"{path}, line {number}: expected a count of 0 or more, found {times}")
        schedule[sampling] = schedule.get(sampling, 0) + times
    if not any(schedule.values()):
        raise DataError(f"{path}: expected lines rate,count with some count above 0, found none")
    return schedule
