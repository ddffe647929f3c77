"""Readings of what nodes that release samples have spent so far, for whoever watches a run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Protocol

from gossamer.algorithms.persons import joint, spread
from gossamer.algorithms.problem import Problem
from gossamer.errors import SpecError
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.privacy.sampling import Poisson

_MOST_READINGS = 32


class Charged(Protocol):
    """A ledger of releases."""

    @property
    def owner(self) -> str:
        """The node."""
        ...

    @property
    def counts(self) -> Counts:
        """Number of charges, by kind."""
        ...


def epsilon_so_far(problem: Problem[Any], ledgers: Iterable[Charged]) -> float | None:
    """The largest epsilon of what nodes have released so far: a reading, not a guarantee, which covers the whole plan.

    None without noise or where it is reproducible, and where nodes differ so much that reading them all would slow
    the run down.
    """
    spec = problem.spec
    if not (spec.private and spec.proved) or spec.reproducible:
        return None
    rows = spec.rows_per_person
    if spread(problem.spec, problem.holdings):
        return _joint_so_far(problem, {ledger.owner: ledger.counts for ledger in ledgers})
    most = _undominated(ledger.counts for ledger in ledgers)
    if len(most) > _MOST_READINGS or not all(kind.mechanism.private for counts in most for kind in counts):
        return None
    worst = revealing(most, rows)
    return max((epsilon(counts, spec.delta, spec.privacy.relation, rows).epsilon for counts in worst), default=0.0)


def _joint_so_far(problem: Problem[Any], counts: Mapping[str, Counts]) -> float | None:
    try:
        return joint(problem, counts, _MOST_READINGS).epsilon
    except SpecError:  # nodes are further apart now than their plans are
        return None


def _undominated(all_counts: Iterable[Counts]) -> list[Counts]:
    """Those of several nodes' counts that may be the worst: no other has as many releases of every kind and more."""
    single: dict[ReleaseKind, int] = {}
    mixed: dict[frozenset[tuple[ReleaseKind, int]], Counts] = {}
    for counts in all_counts:
        if len(counts) > 1:  # a node whose rates differ from one release to the next
            mixed[frozenset(counts.items())] = counts
        for kind, count in counts.items() if len(counts) == 1 else ():
            single[kind] = max(count, single.get(kind, 0))
    front: list[Counts] = []
    for counts in [*mixed.values(), *({kind: count} for kind, count in single.items())]:
        if len(front) > _MOST_READINGS:
            break
        if not any(_within(counts, other) for other in front):
            front = [other for other in front if not _within(other, counts)] + [counts]
    return front


def revealing(all_counts: Iterable[Counts], rows: int) -> list[Counts]:
    """Those of several nodes' counts that no other exceeds in rates and counts: what is revealed grows with both.

    That holds release by release, so also for nodes that release in several ways, such as a scale before the run.
    Where a person has several ``rows``, how many of them are drawn in batches of fixed size depends on more than the
    rate (`planner.calibrate` compares nodes likewise).
    """
    found: list[Counts] = []
    for counts in all_counts:
        if not any(_reveals_less(counts, other, rows) for other in found):
            found = [other for other in found if not _reveals_less(other, counts, rows)] + [counts]
    return found


def _reveals_less(some: Counts, others: Counts, rows: int) -> bool:
    """Whether each release of ``some`` has one of its own among ``others`` that reveals as much or more."""
    least, most = _families(some, rows), _families(others, rows)
    if least is None or most is None:  # several rates within one family: which goes with which is not said
        return _within(some, others)
    return all(
        family in most and kind.sampling.rate <= most[family][0].sampling.rate and count <= most[family][1]
        for family, (kind, count) in least.items()
    )


def _families(counts: Counts, rows: int) -> dict[Hashable, tuple[ReleaseKind, int]] | None:
    """Releases by what they have to have in common to be compared by rate; none where two have it in common."""
    found: dict[Hashable, tuple[ReleaseKind, int]] = {}
    for kind, count in counts.items():
        by_rate = rows == 1 or isinstance(kind.sampling, Poisson)
        found[(kind.mechanism, type(kind.sampling) if by_rate else kind.sampling, kind.size)] = kind, count
    return found if len(found) == len(counts) else None


def _within(some: Counts, others: Counts) -> bool:
    return all(count <= others.get(kind, 0) for kind, count in some.items())
