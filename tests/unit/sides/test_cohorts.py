"""Cohorts that a curator draws in secret: who is charged, who is in a sum, and what is proved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from scipy.stats import binom
from tests.reference.side_kinds import (
    BOUND,
    CLIENTS,
    DATA,
    OBJECTIVE,
    POISSON,
    SERVER,
    SHARDS,
    SIZE,
    UPDATE_KIND,
    UPDATE_LAW,
    Disk,
    model,
)

from gossamer.errors import BudgetSpent, SpecError
from gossamer.privacy.mechanisms import BatchSampling, FixedSize, Gaussian, Poisson, ReleaseKind
from gossamer.privacy.mechanisms import NeighboringRelation as Relation
from gossamer.privacy.tasks import Cohort, CuratedSum, Query
from gossamer.sides.guarantees import CURATOR, OTHERS, curated_guarantees
from gossamer.sides.plan import WHOLE, Curator
from gossamer.sides.pool import Pool, open_pool
from gossamer.vectors import Confined, Released

WORLDS = ["simulation", "deployment", "laboratory"]
MANY = 10_000
SECRET = Query(POISSON, UPDATE_LAW, 1.5)


def curator(sampling: BatchSampling = POISSON, most: int = MANY, **changes: Any) -> Curator:
    kind = ReleaseKind(UPDATE_LAW.unit(), sampling, SIZE)
    return Curator(**{"kinds": {kind: most}, "cohort": 3, "owners": CLIENTS, "bound": BOUND, "name": SERVER} | changes)


def pool(world: str = "simulation", plan: Curator | None = None, disk: Disk | None = None) -> Pool:
    home = (disk or Disk(world)).home()
    return open_pool({SERVER: plan or curator()}, SHARDS, OBJECTIVE, DATA, home)


def ask(where: Pool, task: Any) -> Any:
    (found,) = where.compute([where.admit(SERVER, task)])
    return found.released


def cohort(number: int = 0, query: Query = SECRET, clients: int = 3) -> Cohort:
    return Cohort(number, model(), clients, query)


def drawn(where: Pool, number: int = 0) -> tuple[str, ...]:
    found = ask(where, cohort(number))
    assert type(found) is Confined
    assert set(found.values.tolist()) <= {0.0, 1.0}
    return tuple(name for name, chosen in zip(CLIENTS, found.values, strict=True) if chosen)


def summed(members: tuple[str, ...], number: int = 0, query: Query = SECRET, value: float = 0.1) -> CuratedSum:
    updates = tuple((name, Confined(np.full(SIZE, value))) for name in members)
    return CuratedSum(1000 + number, model(), updates, query, number)


@pytest.mark.parametrize("world", WORLDS)
def test_each_client_is_drawn_by_a_coin_of_its_own(world: str) -> None:
    """All eight cohorts of three clients at rate 1/2: each of 800 draws, so that a count beyond 6 standard deviations
    has probability 2e-9 each; one in 6e7 runs fails."""
    where, draws = pool(world), 800
    found = [drawn(where, number) for number in range(draws)]
    low, high = binom(draws, 1 / 8).ppf([1e-9, 1 - 1e-9])
    for members in [(), ("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c"), CLIENTS]:
        assert low <= found.count(members) <= high


@pytest.mark.parametrize("world", WORLDS)
def test_everybody_is_charged_before_the_coins_fall_and_not_again(world: str) -> None:
    where = pool(world)
    ticket = where.admit(SERVER, cohort())
    assert [where.releases(name) for name in CLIENTS] == [1, 1, 1]
    (found,) = where.compute([ticket])
    members = tuple(name for name, chosen in zip(CLIENTS, found.released.values, strict=True) if chosen)
    assert type(ask(where, summed(members))) is Released
    assert [where.releases(name) for name in CLIENTS] == [1, 1, 1]


@pytest.mark.parametrize("world", WORLDS)
def test_the_sum_has_the_planned_noise_whoever_was_drawn(world: str) -> None:
    """3,000 sums less what is in them; 5 % of 9,000 numbers' deviation is 6.7 standard deviations, 1e-11."""
    where, count, rest = pool(world), 3000, []
    for number in range(count):
        members = drawn(where, number)
        rest.append(ask(where, summed(members, number)).values * SECRET.normaliser - 0.1 * len(members))
    assert abs(np.std(rest) / UPDATE_LAW.standard_deviation - 1) < 0.05


def test_a_member_that_is_silent_is_left_out() -> None:
    where = pool(plan=curator(kinds={ReleaseKind(Gaussian(BOUND, 1e-9).unit(), POISSON, SIZE): MANY}))
    query = Query(POISSON, Gaussian(BOUND, 1e-9), 1.0)
    for number in range(40):
        found = ask(where, cohort(number, query)).values
        members = tuple(name for name, chosen in zip(CLIENTS, found, strict=True) if chosen)
        answer = ask(where, summed(members[:1], number, query)).values
        np.testing.assert_allclose(answer, 0.1 if members else 0.0, atol=1e-7)


@pytest.mark.parametrize("world", WORLDS)
def test_only_those_who_were_drawn_are_summed_and_once(world: str) -> None:
    where, number = pool(world), 0
    while len(members := drawn(where, number)) != 1:
        number += 1
    others = tuple(name for name in CLIENTS if name not in members)
    for task in (
        summed(CLIENTS, number),
        summed(others[:1], number),
        summed(members, number, Query(POISSON, UPDATE_LAW, 3.0)),
        summed(members, number, Query(POISSON, Gaussian(BOUND, 1.0), 1.5)),
    ):
        with pytest.raises(SpecError, match="sums the cohort that was drawn, by its query"):
            where.admit(SERVER, task)
    with pytest.raises(SpecError, match="newest cohort, once, after it was drawn; found 77"):
        where.admit(SERVER, summed(members, 77))
    ask(where, summed(members, number))
    for value in (0.1, 0.2):  # the difference of two sums with one noise would be bare
        with pytest.raises(SpecError, match="newest cohort, once"):
            where.admit(SERVER, summed(members, number, value=value))


@pytest.mark.parametrize("world", WORLDS)
def test_a_sum_is_not_answered_twice(world: str) -> None:
    where = pool(world)
    ticket = where.admit(SERVER, summed(drawn(where)))
    where.compute([ticket])
    with pytest.raises(SpecError, match="answered once"):
        where.compute([ticket])


@pytest.mark.parametrize("world", WORLDS)
def test_a_newer_cohort_ends_the_one_before(world: str) -> None:
    where = pool(world)
    first = drawn(where, 0)
    drawn(where, 1)
    with pytest.raises(SpecError, match="newest cohort"):
        where.admit(SERVER, summed(first, 0))


def test_nobody_is_summed_before_the_coins_fall() -> None:
    where = pool()
    where.admit(SERVER, cohort())
    with pytest.raises(SpecError, match="after it was drawn"):
        where.admit(SERVER, summed(()))


@pytest.mark.parametrize("world", ["deployment", "laboratory"])
def test_after_a_restart_a_cohort_is_lost_and_stays_charged(world: str) -> None:
    disk = Disk(world)
    members = drawn(pool(world, disk=disk))
    where = pool(world, disk=disk)
    with pytest.raises(SpecError, match="newest cohort"):
        where.admit(SERVER, summed(members))
    assert where.releases("a") == 1
    drawn(where)
    assert where.releases("a") == 2


@pytest.mark.parametrize("world", WORLDS)
def test_cohorts_end_with_the_plan(world: str) -> None:
    where = pool(world, curator(most=2))
    members = [drawn(where, number) for number in range(2)][-1]
    with pytest.raises(BudgetSpent, match="refused"):
        where.admit(SERVER, cohort(2))
    assert type(ask(where, summed(members, 1))) is Released


def test_no_two_sums_share_their_noise() -> None:
    """Sums of nobody, of the simulated world, where everything follows from a seed."""
    where = pool()
    found = []
    for number in range(20):
        drawn(where, number)
        found.append(ask(where, summed((), number)).values)
    public = curator(kinds={UPDATE_KIND: 20})
    bare = CuratedSum(0, model(), (("a", Confined(np.zeros(SIZE))),), Query(WHOLE, UPDATE_LAW, 1.5))
    found.append(ask(pool(plan=public), bare).values)
    assert len(np.unique(found)) == 21 * SIZE


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (cohort(query=Query(WHOLE, UPDATE_LAW, 1.5)), "draws some of its 3 clients"),
        (cohort(clients=4), "draws some of its 3 clients, found 4"),
        (cohort(query=Query(POISSON, Gaussian(2 * BOUND, 2.0), 1.5)), "updates of length 0.5"),
        (CuratedSum(0, model(), (("a", Confined(np.zeros(SIZE))),), SECRET), "whose clients are public"),
    ],
)
def test_what_the_charge_would_not_cover_is_refused(task: Any, message: str) -> None:
    where = pool()
    with pytest.raises(SpecError, match=message):
        where.admit(SERVER, task)
    assert where.releases("a") == 0


def test_another_rate_is_not_in_the_plan() -> None:
    where = pool()
    with pytest.raises(BudgetSpent, match="not in the plan"):
        where.admit(SERVER, cohort(query=Query(Poisson(0.4), UPDATE_LAW, 1.5)))


def test_plans_that_cut_somebody_off_or_draw_otherwise_are_refused() -> None:
    with pytest.raises(SpecError, match="coins may draw all 3 clients, and a sum may have 2"):
        curator(cohort=2)
    with pytest.raises(SpecError, match="Poisson"):
        curator(FixedSize(3, 2))
    with pytest.raises(SpecError, match="clients must be a whole number > 0, found 0"):
        cohort(clients=0)


@pytest.mark.some(1)
@pytest.mark.parametrize(("rate", "rounds", "multiplier"), [(0.01, 300, 0.8), (0.1, 100, 1.5), (0.5, 10, 3.0)])
def test_what_is_proved_is_what_dp_accounting_proves(rate: float, rounds: int, multiplier: float) -> None:
    """Of a client that comes or goes, to 1 %; nothing is proved against who sees the coins."""
    law = Gaussian(BOUND, multiplier)
    plan = curator(kinds={ReleaseKind(law.unit(), Poisson(rate), SIZE): rounds})
    found = curated_guarantees(plan, 1e-5, Relation.ADD_OR_REMOVE_ONE)
    other = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    other.compose(SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier)), rounds))
    assert found[OTHERS].epsilon == pytest.approx(other.get_epsilon(1e-5), rel=0.01)
    assert "nor anyone who sees whom it talks to" in found[OTHERS].observer
    assert any("secret coins" in line for line in found[OTHERS].assumptions)
    assert math.isinf(found[CURATOR].epsilon)


def test_public_cohorts_are_not_amplified() -> None:
    """So many sums, each with everybody or nobody in it, cost what so many sums with everybody cost."""
    rounds, relation = 20, Relation.REPLACE_ONE
    public = curated_guarantees(curator(kinds={UPDATE_KIND: rounds}), 1e-5, relation)[OTHERS]
    secret = curated_guarantees(curator(most=rounds), 1e-5, relation)[OTHERS]
    assert secret.epsilon < 0.8 * public.epsilon
    assert not any("secret coins" in line for line in public.assumptions)
    assert "nor anyone who sees whom it talks to" not in public.observer
