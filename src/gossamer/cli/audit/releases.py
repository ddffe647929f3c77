"""Options that say what is released, and how often, for `gossamer account` and `gossamer calibrate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from gossamer.bounded import read_text
from gossamer.cli.options import add_accept_weak
from gossamer.errors import CallerError, DataError
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.sampling import FixedSize, Poisson, Sampling

MECHANISMS = ("gaussian", "l2_laplace")
_MOST_COORDINATES = 10**12


def add_common(command: argparse.ArgumentParser) -> None:
    """Add the options of both commands."""
    command.add_argument("--size", type=int, metavar="D", help="of l2_laplace: number of coordinates released")
    command.add_argument("--sampling", choices=["poisson", "fixed_size"], default="poisson")
    command.add_argument("--sampling-rate", type=float, metavar="Q", help="of poisson sampling")
    command.add_argument("--dataset-size", type=int, metavar="N", help="of fixed_size sampling")
    command.add_argument("--batch-size", type=int, metavar="B", help="of fixed_size sampling")
    command.add_argument("--steps", type=int, metavar="T", help="number of releases")
    command.add_argument("--delta", type=float, required=True, metavar="D")
    add_accept_weak(command)
    command.add_argument(
        "--group", type=int, default=1, metavar="M", help="the most rows of one person, who is protected (default: 1)"
    )
    command.add_argument(
        "--neighboring-relation",
        choices=[relation.value for relation in NeighboringRelation],
        help="default: add_or_remove_one for poisson, replace_one for fixed_size",
    )
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def whose(options: argparse.Namespace, relation: NeighboringRelation) -> str:
    """Name the data sets that are told apart with difficulty."""
    return relation.value if options.group == 1 else f"{relation.value}, {options.group} rows of one person"


def size_of(options: argparse.Namespace) -> int:
    """Number of released coordinates; what Gaussian noise reveals does not depend on it."""
    if options.mechanism == "gaussian":
        if options.size is not None:
            raise CallerError("--size is for --mechanism l2_laplace; leave it out")
        return 1
    if options.size is None:
        raise CallerError("--mechanism l2_laplace needs --size, the number of coordinates released")
    if not 1 <= options.size <= _MOST_COORDINATES:
        raise CallerError(f"--size must be a number of coordinates, 1 to 10^12, found {options.size}")
    return int(options.size)


def relation_of(options: argparse.Namespace) -> NeighboringRelation:
    """Return the neighbouring relation: the one that is asked for, or that of the sampling."""
    if options.neighboring_relation is not None:
        return NeighboringRelation(options.neighboring_relation)
    poisson = options.sampling == "poisson"
    return NeighboringRelation.ADD_OR_REMOVE_ONE if poisson else NeighboringRelation.REPLACE_ONE


def schedule_of(options: argparse.Namespace) -> dict[Sampling, int]:
    """Return how often each sampling occurs."""
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
    if options.group > max(options.dataset_size, 1):
        raise CallerError(
            f"--group must be at most --dataset-size {options.dataset_size}, found {options.group}; take the most rows "
            "that one person has"
        )
    return FixedSize(options.dataset_size, options.batch_size)


def read_rates(path: Path) -> dict[Sampling, int]:
    """Poisson rates and how often each occurs, from lines ``rate,count``.

    Raises
    ------
    DataError
        If the file is missing or a line is malformed.
    """
    try:
        lines = read_text(path).splitlines()
    except OSError as error:
        raise DataError(f"{path}: cannot read the rates: {error.strerror}") from None
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
