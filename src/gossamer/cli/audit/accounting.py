"""``gossamer account`` and ``gossamer calibrate``: the epsilon of releases, and their noise, without a run."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.cli.commands import check_delta, naming
from gossamer.cli.printing import answered, patience, table, warn, wrapped
from gossamer.errors import CallerError, DataError, PeerError, counted, failing_as, listed
from gossamer.files import read_rows, replaced
from gossamer.privacy import mechanisms
from gossamer.privacy.accounting.accountants import COMPOSITIONS, compositions, epsilon, profile
from gossamer.privacy.accounting.planner import calibrate, gaussian_family, l2_laplace_family
from gossamer.privacy.guarantees import PrivacyProfile, guess, remarks, rounded_up

if TYPE_CHECKING:
    from gossamer.experiment.audits.observers import NetworkPrivacy

# Options that say what is released, and how often, for `gossamer account` and `gossamer calibrate`.

_OF = {
    "size": ("mechanism", "l2_laplace"),
    "epsilon": ("mechanism", "l2_laplace"),
    "composition": ("mechanism", "l2_laplace"),
    "noise_multiplier": ("mechanism", "gaussian"),
    "sampling_rate": ("sampling", "poisson"),
    "dataset_size": ("sampling", "fixed_size"),
    "batch_size": ("sampling", "fixed_size"),
}
"""Options that go with one value of another, which needs all of them but the composition."""
_OF_SAMPLING = tuple(name for name, (other, _) in _OF.items() if other == "sampling")


_OF_A_RUN = ("observer", "in_draws", "apart", "set", "out", "within")
_OF_RELEASES = ("steps", "delta", "rates", "profile", *_OF)


def _leave_out(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    for name in names:
        if getattr(options, name):
            raise CallerError(f"--{name.replace('_', '-')} {why}; leave it out")


def _check_delta(options: argparse.Namespace) -> None:
    """Refuse releases without a delta, and one that says little."""
    if options.delta is None:
        raise CallerError(
            "the following arguments are required: --delta, or else --observers; see gossamer account --help"
        )
    check_delta(options)


def check_options(options: argparse.Namespace, *spared: str) -> None:
    """Refuse options that go with another law or sampling, and the lack of one that is needed, but for ``spared``."""
    for name in (name for name in _OF if name not in spared):
        (other, value), flag = _OF[name], f"--{name.replace('_', '-')}"
        given, chosen = getattr(options, name) is not None, getattr(options, other)
        if given and chosen != value:
            raise CallerError(f"{flag} is for --{other} {value}, found {chosen}; leave it out")
        if not given and chosen == value and name != "composition":
            raise CallerError(f"--{other} {value} needs {flag}; give it, as --help says")


def whose(options: argparse.Namespace, relation: mechanisms.NeighboringRelation) -> str:
    """Name the data sets that are told apart with difficulty."""
    return relation.value if options.group == 1 else f"{relation.value}, {options.group} rows of one person"


def size_of(options: argparse.Namespace) -> int:
    """Number of released coordinates; what Gaussian noise reveals does not depend on it."""
    return 1 if options.mechanism == "gaussian" else int(options.size)


def relation_of(options: argparse.Namespace) -> mechanisms.NeighboringRelation:
    """Return the neighbouring relation: the one that is asked for, or that of the sampling."""
    if options.neighboring_relation is not None:
        return mechanisms.NeighboringRelation(options.neighboring_relation)
    poisson = options.sampling == "poisson"
    return mechanisms.NeighboringRelation.ADD_OR_REMOVE_ONE if poisson else mechanisms.NeighboringRelation.REPLACE_ONE


def schedule_of(options: argparse.Namespace) -> dict[mechanisms.BatchSampling, int]:
    """Return how often each sampling occurs."""
    if getattr(options, "rates", None) is not None:
        usual = {"sampling": "poisson"}
        given = [name for name in ("sampling", *_OF_SAMPLING, "steps") if getattr(options, name) != usual.get(name)]
        if given:
            named = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise CallerError(f"--rates holds rates of poisson sampling, and how often; leave out {named}")
        return read_rates(options.rates)
    if options.steps is None:
        raise CallerError("--steps: expected a number of releases, found none; give one")
    return {_sampling(options): options.steps}


def _sampling(options: argparse.Namespace) -> mechanisms.BatchSampling:
    if options.sampling == "poisson":
        return mechanisms.Poisson(options.sampling_rate)
    if options.group > max(options.dataset_size, 1):
        raise CallerError(
            f"--group must be at most --dataset-size {options.dataset_size}, found {options.group}; take the most rows "
            "that one person has"
        )
    if options.batch_size > options.dataset_size:
        raise CallerError(
            f"--batch-size must be at most --dataset-size {options.dataset_size}, found {options.batch_size}"
        )
    return mechanisms.FixedSize(options.dataset_size, options.batch_size)


def read_rates(path: Path) -> dict[mechanisms.BatchSampling, int]:
    """Poisson rates and how often each occurs, from lines ``rate,count``.

    Raises
    ------
    DataError
        If the file is missing or a line is malformed.
    """
    schedule: dict[mechanisms.BatchSampling, int] = {}
    for number, line in read_rows(path, "the rates", "--rates"):
        try:
            rate, count = line.split(",")
            sampling, times = mechanisms.Poisson(float(rate)), int(count)
        except ValueError as error:
            reason = error if isinstance(error, CallerError) else f"expected rate,count, found {line!r}"
            raise DataError(f"{path}, line {number}: {reason}") from None
        if times < 0:
            raise DataError(f"{path}, line {number}: expected a count of 0 or more, found {times}")
        schedule[sampling] = schedule.get(sampling, 0) + times
    if not any(schedule.values()):
        raise DataError(f"{path}: expected lines rate,count with some count above 0, found none")
    return schedule


_LINES, _SHOWN = 10, 1e-9  # of a printed profile: steps of epsilon, and the delta where it ends


def account_command(options: argparse.Namespace) -> int:
    """Print the epsilon of releases, or what the observers of a run learn."""
    if options.observers is not None:
        return _observers(options)
    _leave_out(options, _OF_A_RUN, "is for --observers, found none")
    relation = relation_of(options)
    _check_delta(options)
    check_options(options, *(_OF_SAMPLING if options.rates is not None else ()))
    mechanism, size = _mechanism(options, relation), size_of(options)
    schedule = schedule_of(options)
    counts = {mechanisms.ReleaseKind(mechanism, sampling, size): n for sampling, n in schedule.items()}
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
    each = document.get("compositions", {document["accountant"]: document["epsilon"]})
    lines = [
        f"({value:.6g}, {options.delta:g})-differential privacy ({whose(options, relation)}) for "
        f"{counted(document['releases'], 'release')} ({name}{' composition' * (name in COMPOSITIONS)})"
        for name, value in each.items()
    ]
    return answered(options, document, "\n".join([*lines, guess(found), *(_profile(found) * options.profile)]))


def _profile(found: PrivacyProfile) -> list[str]:
    """Lines on some points of the whole: what leaked is (epsilon, delta)-differentially private at each."""
    end = next(
        (loss for loss, delta in zip(found.losses, found.deltas, strict=True) if delta < _SHOWN), found.losses[-1]
    )
    points = [end * step / _LINES for step in range(_LINES + 1)]
    return [f"\n{'epsilon':<11} delta", *(f"{at:<11.6g} {found.delta(at):.3g}" for at in points)]


def _accounted(
    options: argparse.Namespace, counts: dict[mechanisms.ReleaseKind, int], relation: mechanisms.NeighboringRelation
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


def _mechanism(options: argparse.Namespace, relation: mechanisms.NeighboringRelation) -> mechanisms.Mechanism:
    """The noise to account for. Guarantees do not depend on its clip."""
    if options.mechanism == "l2_laplace":
        root = math.sqrt(size_of(options))  # of as much Gaussian noise the multiplier would be root / epsilon
        least, most = root / 1e6, min(100 * root, 1e6)
        if not least <= options.epsilon <= most:
            raise CallerError(
                f"--epsilon must lie between {least:.4g} and {most:.4g} at this --size, found {options.epsilon}"
            )
        return mechanisms.L2Laplace(1.0, options.epsilon, relation)
    return mechanisms.Gaussian(1.0, options.noise_multiplier)


def _observers(options: argparse.Namespace) -> int:
    """Print what nodes of a run learn of each other, by how many links are between them."""
    from gossamer.deployment.founding.layout import INVITATION, RECORD, START, TRACE
    from gossamer.deployment.party.agreement import Agreed
    from gossamer.experiment.audits.observers import NetworkPrivacy
    from gossamer.experiment.preparation.prepare import prepare
    from gossamer.experiment.specs.spec_file import read_spec
    from gossamer.keys.invitations import read_signed
    from gossamer.privacy.observers.sensitivity import Participation
    from gossamer.report.leakage_map import drawer

    _leave_out(options, _OF_RELEASES, "is of releases, and --observers takes all from the spec")
    draw = None if options.out is None else drawer(options.out)
    path: Path = options.observers
    deployed = (path / RECORD).is_file()
    spec = path / (RECORD if deployed else "spec.yaml") if path.is_dir() else path
    if path.is_dir() and options.set:
        raise CallerError("--set is for specs, and the run of a folder is over; leave it out, or name the spec itself")
    if (path / INVITATION).is_file():
        raise CallerError(
            f"{path}: expected the folder of a federation, with traces of all its parties, found that of one party, "
            "which does not know what others sent each other; what is against all others holds"
        )
    unread = f"{path}: cannot read traces: ", "; parties write them with --trace", (OSError, PeerError)
    place = nullcontext() if options.out is None else replaced(options.out)  # which may not be there to be written
    with place as out, naming(spec), patience("preparing the run") as now:
        with failing_as(DataError, *unread) if deployed else nullcontext():
            if deployed:
                prepared = Agreed.by(read_signed(path / RECORD), start=path / START).prepared
            else:
                prepared = prepare(read_spec(spec, options.set))
            nodes = (*prepared.cast.workers, *prepared.cast.servers)
            traces = {name: path / name / TRACE for name in nodes} if deployed else None
            if lacking := [name for name, trace in (traces or {}).items() if not trace.is_file()]:
                raise DataError(f"{path}: expected a trace of each party (--trace), found none of {listed(lacking)}")
            draws = Participation(options.in_draws, options.apart or 1)
            within = math.inf if options.within is None else options.within
            found = NetworkPrivacy.of(prepared, options.observer, draws, traces=traces, within=within, tell=now)
        rows = list(found.rows())
        if out is not None and draw is not None:
            out.write(draw(rows, found.guarantee.epsilon))
    return answered(options, found.as_dict(), f"{_told(found)}\n\n{table(_most(rows, options.observer))}")


def _told(found: NetworkPrivacy) -> str:
    """Say what the figures below are, and what they are not."""
    told = found.guarantee
    figure = f"({rounded_up(told.epsilon)}, {told.delta:g})-differential privacy"
    whom = "agent of one" if told.unit == "federated unit" else "of them"
    return wrapped(
        f"Guarantee: {figure if math.isfinite(told.epsilon) else 'none'} for each {told.unit}, against "
        f"{told.observer}.\n"
        f"Below is what single observers learn of one {whom} if all other gradients stay as they are (gradients_fixed)"
        f"{' and noise is secret' if told.would_be else ''}. It is not amplified by sampling, and no guarantee: in "
        f"training, later gradients follow from earlier ones.{_taken(found)}{_late(found)}"
    )


def _taken(found: NetworkPrivacy) -> str:
    """Say in which draws one example, or person, is taken to be, where these are not all."""
    most, apart = found.participation.most, found.participation.apart
    of = f"{f'at most {most}' if most else 'any'} of a node's draws{f' that are {apart} or more apart' * (apart > 1)}"
    taken = f"\nA change of one is taken to be in {of}, which no sampling sees to."
    return taken * (most is not None or apart > 1)


def _late(found: NetworkPrivacy) -> str:
    """Say whose figures are looser, since time was over, and what to do."""
    who = f"{len(found.late):,} of {counted(len(found.found), 'observer', form=',')}"
    return (
        f"\nTime was over for {who}: they learn at most what is told of them, as if they saw all releases and knew all "
        "other noise. Give more time (--within), or name some of them (--observer)."
    ) * bool(found.late)


def _most(rows: Sequence[Mapping[str, Any]], named: Sequence[str]) -> list[list[str]]:
    """Rows of a table: the most that each ``named`` observer learns, or any node, by how many links away it is."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows if named else sorted(rows, key=lambda row: row["links"]):
        what = row["observer"] if named else f"{counted(row['links'], 'link')} away"
        groups.setdefault(what, []).append(row)
    lines = [["observer", "pairs", "most mu", "most epsilon", "least epsilon"]]
    for what, of in groups.items():
        most, least = (pick(of, key=lambda row: row["mu"]) for pick in (max, min))
        figures = ((most, "mu"), (most, "epsilon"), (least, "epsilon"))
        loose = ("at most " * (row["bound"] != "tight") for row, _ in figures)
        lines.append([what, f"{len(of):,}", *(f"{said}{row[key]:.4g}" for said, (row, key) in zip(loose, figures))])
    return lines


def calibrate_command(options: argparse.Namespace) -> int:
    """Print the noise for a budget."""
    relation = relation_of(options)
    _check_delta(options)
    check_options(options, "epsilon", "composition", "noise_multiplier")
    size, schedule = size_of(options), schedule_of(options)
    family = gaussian_family() if options.mechanism == "gaussian" else l2_laplace_family(size, relation)
    found = calibrate(options.epsilon, options.delta, relation, [schedule], family, rows=options.group)
    normal = options.mechanism == "gaussian"
    amount = getattr(found.mechanism, "noise_multiplier" if normal else "epsilon")
    document = {
        "noise_multiplier" if normal else "release_epsilon": amount,
        "epsilon": found.epsilon,
        "delta": options.delta,
        "neighboring_relation": relation.value,
        "rows_per_person": options.group,
        "releases": sum(schedule.values()),
    }
    warn(remarks(found.epsilon, options.delta, options.dataset_size, "the data set", options.group))
    words = "noise multiplier" if normal else "epsilon per full-batch release"
    text = (
        f"{words} {amount:.6g}, for ({rounded_up(found.epsilon, 6)}, {options.delta:g})-differential "
        f"privacy ({whose(options, relation)}) in {counted(document['releases'], 'release')}"
    )
    return answered(options, document, text)
