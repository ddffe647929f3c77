"""Noise that a budget needs where the number of releases follows from the noise, as it does in MAPA's stages.

More noise makes the stages longer, and longer stages release more. What is looked for is a fixed point: the least noise
multiplier z at which the T(z) updates of the stages meet the budget. There may be none, because T grows with z^2 while
epsilon falls with sqrt(T)/z: beyond some noise nothing is gained.

T does not always grow with z: where P = 1, noise shortens a stage. So the search does not iterate T -> z(T) -> T(z),
which would need that, but looks for the least z whose own plan meets the budget. What it returns always does; that no
smaller z does rests on epsilon falling with z, as it does because T/z^2 falls in every stage, up to the rounding of T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

from gossamer.algorithms.mapa.schedule import MOST_UPDATES, Moment, Problem, Stage, gaussian_second_moment, stages
from gossamer.errors import AccountingError, BudgetUnreachable, SpecError
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.planner import LEAST_MULTIPLIER, MOST_MULTIPLIER, gaussian_releases
from gossamer.privacy.accounting.pure_composition import compositions
from gossamer.privacy.accounting.renyi import check_delta, check_epsilon
from gossamer.privacy.mechanisms import L2Laplace, NeighboringRelation
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.sampling import Sampling

MOST_PLANNED = 10**9
"""No epsilon is computed for more updates than this."""

_PRECISION = 5e-4  # relative, of the multiplier
_FAR = 10.0  # times the budget
_MOST_LOSS = 1e3  # of privacy


@dataclass(frozen=True)
class StagePlan:
    """Stages, and what they cost an edge.

    Attributes
    ----------
    stages : tuple of Stage
        In order.
    updates : int
        T, the server's updates in all stages.
    releases : int
        How many of them one edge is charged for.
    """

    stages: tuple[Stage, ...]
    updates: int
    releases: int


@dataclass(frozen=True)
class CalibratedStages:
    """The least noise that meets a budget, and the stages that go with it.

    Attributes
    ----------
    noise_multiplier : float
        z: standard deviation of the noise on a sum, over the clip.
    epsilon : float
        What is proved for the plan's releases; never above the budget.
    plan : StagePlan
        The stages at that noise.
    """

    noise_multiplier: float
    epsilon: float
    plan: StagePlan


def plan_stages(
    problem: Problem, moment: Moment, count: int, nodes: int | None = None, clip: float | None = None
) -> StagePlan:
    """The first ``count`` stages, each to its end.

    Parameters
    ----------
    problem, moment, clip
        As for `gossamer.algorithms.mapa.schedule.stages`.
    count : int
        At least 1.
    nodes : int, optional
        K edges that take strict turns: each is charged for ceil((T + K - 1)/K) releases, since K - 1 are under way when
        update T is made. By default one edge is charged for all T, which holds for every edge in whatever order they
        come, as long as nothing is dropped and nobody crashes.

    Raises
    ------
    SpecError
        If a stage takes more than `MOST_UPDATES` updates.
    """
    plan = _plan(problem, moment, count, nodes, clip)
    if plan.stages[-1].updates >= MOST_UPDATES:
        number = len(plan.stages)
        advice = f"plan at most {number - 1} stages" if number > 1 else "give less noise or a larger initial clip"
        raise SpecError(f"stage {number} would take more than 2^63 - 1 updates; {advice}")
    return plan


def _plan(problem: Problem, moment: Moment, count: int, nodes: int | None, clip: float | None) -> StagePlan:
    found = tuple(islice(stages(problem, moment, clip), count))
    updates = sum(stage.updates for stage in found)
    return StagePlan(found, updates, -(-(updates + nodes - 1) // nodes) if nodes else updates)


def gaussian_epsilon(
    releases: int, noise_multiplier: float, delta: float, relation: NeighboringRelation, sampling: Sampling
) -> float:
    """Epsilon proved for so many Gaussian releases; the clip may be another one in each.

    Raises
    ------
    AccountingError
        If there are more than `MOST_PLANNED`, delta is not inside (0, 1), or no accountant covers the sampling.
    """
    if releases > MOST_PLANNED:
        raise AccountingError(
            f"epsilon is computed for at most 10^9 releases, found {releases}; plan fewer stages or leave delta out"
        )
    return accountants.epsilon(gaussian_releases(noise_multiplier, {sampling: releases}), delta, relation).epsilon


def l2_laplace_epsilons(
    releases: int,
    epsilon: float,
    size: int,
    delta: float,
    relation: NeighboringRelation,
    sampling: Sampling,
) -> dict[str, float]:
    """Epsilons of so many L2-Laplace releases at ``delta``, by each way of composing them (`compositions`).

    None where there are more than `MOST_PLANNED`, or so much is lost in them that no number means anything: what is
    computed grows with it.

    Parameters
    ----------
    releases : int
        How many.
    epsilon : float
        Of one, on its batch.
    size : int
        d, the number of parameters.
    delta : float
        In (0, 1).
    relation : NeighboringRelation
        Of ``epsilon``, and of the totals.
    sampling : Sampling
        How batches are drawn.
    """
    gaussian = epsilon**2 * releases / size / 2  # about the mean loss of all, without sampling
    if releases > MOST_PLANNED or gaussian > _MOST_LOSS:
        return {}
    kind = ReleaseKind(L2Laplace(1.0, epsilon, relation), sampling, size)
    return compositions(kind, releases, delta, relation)


@dataclass(frozen=True)
class _Search:
    problem: Problem
    size: int
    count: int
    nodes: int | None
    clip: float | None
    budget: tuple[float, float]
    relation: NeighboringRelation
    sampling: Sampling

    def plan(self, noise_multiplier: float) -> StagePlan:
        moment = gaussian_second_moment(self.size, noise_multiplier, self.problem.batch_size)
        return _plan(self.problem, moment, self.count, self.nodes, self.clip)

    def spent(self, noise_multiplier: float) -> float:
        """Epsilon of the stages that this noise makes; infinite where it is far above the budget."""
        plan = self.plan(noise_multiplier)
        if plan.updates > MOST_PLANNED:
            return math.inf
        # Huge epsilons take a lot of memory to compute, and part of the releases never costs more than all of them.
        for part in range(3, int(math.log10(plan.releases)) + 1):
            if self.epsilon(10**part, noise_multiplier) > _FAR * self.budget[0]:
                return math.inf
        return self.epsilon(plan.releases, noise_multiplier)

    def epsilon(self, releases: int, noise_multiplier: float) -> float:
        return gaussian_epsilon(releases, noise_multiplier, self.budget[1], self.relation, self.sampling)


def calibrate_stages(
    problem: Problem,
    size: int,
    count: int,
    budget: tuple[float, float],
    relation: NeighboringRelation,
    sampling: Sampling,
    nodes: int | None = None,
    clip: float | None = None,
) -> CalibratedStages:
    """The least noise multiplier, to 0.1 %, with which the stages it makes meet the budget.

    Parameters
    ----------
    problem, clip
        As for `gossamer.algorithms.mapa.schedule.stages`.
    size : int
        d, the number of parameters.
    count : int
        How many stages.
    budget : (float, float)
        Epsilon and delta, for each edge's examples.
    relation : NeighboringRelation
        Of the budget.
    sampling : Sampling
        How the edge that is sampled most densely, the one with the fewest examples, draws its batches.
    nodes : int, optional
        As for `plan_stages`.

    Raises
    ------
    AccountingError
        If epsilon is not positive, delta not inside (0, 1), or no accountant covers the sampling scheme.
    BudgetUnreachable
        If no multiplier up to `MOST_MULTIPLIER` does, with at most `MOST_PLANNED` updates.
    """
    epsilon, delta = budget
    check_epsilon(epsilon)
    check_delta(delta)
    search = _Search(problem, size, count, nodes, clip, budget, relation, sampling)
    tried = [LEAST_MULTIPLIER]
    while search.spent(tried[-1]) > epsilon:
        if tried[-1] >= MOST_MULTIPLIER:
            raise _unreachable(search, min(tried, key=search.spent))
        tried.append(min(2 * tried[-1], MOST_MULTIPLIER))
    low, high = tried[-2:] if len(tried) > 1 else tried * 2
    while high / low > 1 + _PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if search.spent(middle) <= epsilon else (middle, high)
    return CalibratedStages(high, search.spent(high), search.plan(high))


def _unreachable(search: _Search, best: float) -> BudgetUnreachable:
    (epsilon, delta), updates, spent = search.budget, search.plan(best).updates, search.spent(best)
    found = (
        f"the least epsilon found is {spent:.4g}, at noise multiplier {best:g} and {updates:.4g} updates"
        if spent < math.inf
        else f"with at most {MOST_PLANNED:.0e} updates epsilon is always more than {_FAR:g} times that"
    )
    return BudgetUnreachable(
        f"no noise meets epsilon {epsilon:g} at delta {delta:g}: more noise makes stages longer, and longer stages "
        f"release more; {found}; plan fewer stages or a larger budget, or have more examples"
    )
