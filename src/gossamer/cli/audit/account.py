"""``gossamer account``: the epsilon of releases, without a run."""

from __future__ import annotations

import argparse
import math
from typing import Any

from gossamer.cli.audit.releases import (
    MECHANISMS,
    add_common,
    relation_of,
    schedule_of,
    size_of,
    whose,
)
from gossamer.cli.options import FileName, check_delta
from gossamer.cli.printing import print_json, warn
from gossamer.errors import CallerError, counted
from gossamer.privacy.accounting.accountants import epsilon, profile
from gossamer.privacy.accounting.pure_composition import COMPOSITIONS, compositions
from gossamer.privacy.guarantees import guess, remarks
from gossamer.privacy.mechanisms import Gaussian, L2Laplace, Mechanism, NeighboringRelation
from gossamer.privacy.profile import PrivacyProfile
from gossamer.privacy.releases import ReleaseKind

_LINES, _SHOWN = 10, 1e-9  # of a printed profile: steps of epsilon, and the delta where it ends
DESCRIPTION = "Compute the epsilon that is proved for a number of subsampled noisy releases."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    command.add_argument("--mechanism", choices=MECHANISMS, default="gaussian")
    command.add_argument(
        "--noise-multiplier", type=float, metavar="Z", help="of gaussian: sd of the noise on the sum over the clip"
    )
    command.add_argument(
        "--epsilon", type=float, metavar="E", help="of l2_laplace: pure epsilon of one release on a full batch"
    )
    add_common(command)
    command.add_argument(
        "--rates", action=FileName, metavar="FILE", help="lines rate,count instead of one rate and steps"
    )
    command.add_argument(
        "--composition", choices=[*COMPOSITIONS, "all"], help="of l2_laplace: how releases add up (default: tight)"
    )
    command.add_argument(
        "--profile", action="store_true", help="the delta at every epsilon, not at one: some in words, all in --json"
    )
    command.set_defaults(command=account_command)


def account_command(options: argparse.Namespace) -> int:
    """Print the epsilon of releases."""
    relation = relation_of(options)
    check_delta(options)
    mechanism, size = _mechanism(options, relation), size_of(options)
    schedule = schedule_of(options)
    counts = {ReleaseKind(mechanism, sampling, size): n for sampling, n in schedule.items()}
    found = profile([(counts, options.group)], relation)
    document: dict[str, Any] = {
        **_accounted(options, counts, relation),
        "delta": options.delta,
        "mu": found.mu if found.mu < math.inf else None,
        "best_guess": found.accuracy,
        "neighboring_relation": relation.value,
        "rows_per_person": options.group,
        "releases": sum(schedule.values()),
    }
    warn(remarks(document["epsilon"], options.delta, options.dataset_size, "the data set", options.group))
    if options.profile:
        document["profile"] = {"epsilon": found.losses, "delta": found.deltas}
    if options.json:
        print_json(document)
        return 0
    lines = document.get("compositions", {document["accountant"]: document["epsilon"]})
    for name, value in lines.items():
        how = f"{name} composition" if name in COMPOSITIONS else name
        print(
            f"({value:.6g}, {options.delta:g})-differential privacy ({whose(options, relation)}) for "
            f"{counted(document['releases'], 'release')} ({how})"
        )
    print(guess(found))
    if options.profile:
        _print_profile(found)
    return 0


def _print_profile(found: PrivacyProfile) -> None:
    """Some points of the whole: what leaked is (epsilon, delta)-differentially private at each."""
    end = next(
        (loss for loss, delta in zip(found.losses, found.deltas, strict=True) if delta < _SHOWN), found.losses[-1]
    )
    print(f"\n{'epsilon':<11} delta")
    for step in range(_LINES + 1):
        at = end * step / _LINES
        print(f"{at:<11.6g} {found.delta(at):.3g}")


def _accounted(
    options: argparse.Namespace, counts: dict[ReleaseKind, int], relation: NeighboringRelation
) -> dict[str, Any]:
    """The epsilon that was asked for, where it comes from, and the other ones if all were asked for."""
    accounted = epsilon(counts, options.delta, relation, options.group)
    if accounted.epsilon == math.inf:
        raise CallerError(f"no epsilon is proved at --delta {options.delta:g} for these releases; take a larger delta")
    tight = {"epsilon": accounted.epsilon, "accountant": accounted.accountant}
    if options.composition in (None, "tight"):
        return tight
    if len(counts) > 1:
        raise CallerError(f"--composition {options.composition} is for releases of one rate; use --composition tight")
    if options.group > 1:
        raise CallerError("--composition is for single rows; use --composition tight with --group")
    ((kind, count),) = counts.items()
    found = compositions(kind, count, options.delta, relation)
    if options.composition == "all":
        return {**tight, "compositions": found}
    return {"epsilon": found[options.composition], "accountant": f"{options.composition} composition"}


def _mechanism(options: argparse.Namespace, relation: NeighboringRelation) -> Mechanism:
    """The noise to account for. Guarantees do not depend on its clip."""
    if options.mechanism == "l2_laplace":
        if options.noise_multiplier is not None:
            raise CallerError("--noise-multiplier is for --mechanism gaussian; l2_laplace takes --epsilon and --size")
        if options.epsilon is None:
            raise CallerError("--mechanism l2_laplace needs --epsilon, that of one release on a full batch")
        root = math.sqrt(size_of(options))  # of as much Gaussian noise the multiplier would be root / epsilon
        least, most = root / 1e6, min(100 * root, 1e6)
        if not least <= options.epsilon <= most:
            raise CallerError(
                f"--epsilon must lie between {least:.4g} and {most:.4g} at this --size, found {options.epsilon}"
            )
        return L2Laplace(1.0, options.epsilon, relation)
    if options.epsilon is not None or options.composition is not None:
        name = "--epsilon" if options.epsilon is not None else "--composition"
        raise CallerError(f"{name} is for --mechanism l2_laplace; gaussian takes --noise-multiplier")
    if options.noise_multiplier is None:
        raise CallerError("--mechanism gaussian needs --noise-multiplier")
    if not 1e-2 <= options.noise_multiplier <= 1e6:
        raise CallerError(f"--noise-multiplier must lie between 0.01 and 10^6, found {options.noise_multiplier}")
    return Gaussian(1.0, options.noise_multiplier)
