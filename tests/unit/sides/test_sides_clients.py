"""Client-level data sides: what is clipped, how much noise there is, what a curator checks, and what is proved."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.reference.side_kinds import (
    BOUND,
    CLIENTS,
    DATA,
    LOCAL,
    OBJECTIVE,
    SERVER,
    SHARDS,
    SIZE,
    UPDATE_KIND,
    UPDATE_LAW,
    Disk,
    Sum,
    masked_plan,
    model,
)

from gossamer.algorithms.clients.nodes import NoisedUpdateAtClip
from gossamer.errors import BudgetSpent, DataError, SpecError
from gossamer.privacy.mechanisms import BallGaussian, Gaussian, L2Laplace, NeighboringRelation, NoNoise, ReleaseKind
from gossamer.privacy.pairs import GaussianFull
from gossamer.privacy.streams.graph_bounds import own_server_guarantee
from gossamer.privacy.tasks import REFUSED, CuratedSum, LocalQuery, LocalUpdate, Query
from gossamer.protocol.effects import Record
from gossamer.runtimes.storage.ledger import LedgerFile, admits_all, stored_ledger
from gossamer.sides import masked_side
from gossamer.sides.client import Updates, clipped
from gossamer.sides.guarantees import (
    CURATOR,
    OTHERS,
    curated_guarantees,
    deployed_guarantee,
    noised_guarantee,
)
from gossamer.sides.home import Simulated
from gossamer.sides.plan import WHOLE, ClientUpdate, Curator, SidePlan, Trust
from gossamer.sides.pool import Pool, open_pool
from gossamer.sides.servers import checked
from gossamer.vectors import Confined

DELTA, MOST = 1e-5, 7
WORLDS = ("simulation", "deployment")
FAR = LocalQuery(2, 4, 50.0)
"""Steps that are far longer than the bound."""


def pool(plans: dict[str, SidePlan], world: str = "simulation") -> Pool:
    return open_pool(plans, SHARDS, OBJECTIVE, DATA, Disk(world).home())


def ask(where: Pool, node: str, task: Any) -> Any:
    (found,) = where.compute([where.admit(node, task)])
    return found


def test_a_whole_update_is_clipped() -> None:
    vector = np.array([3.0, 4.0, 0.0])
    np.testing.assert_allclose(clipped(vector, 0.5), [0.3, 0.4, 0.0], rtol=1e-15)
    np.testing.assert_array_equal(clipped(vector, 6.0), vector)
    np.testing.assert_array_equal(clipped(vector, math.inf), vector)
    np.testing.assert_array_equal(clipped(np.array([1.0, np.nan, 0.0]), 0.5), 0.0)
    np.testing.assert_array_equal(clipped(np.array([np.inf, 1.0, 0.0]), 0.5), 0.0)
    assert clipped(np.array([1e38, 1e38], np.float32), 1.0) @ np.ones(2) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("world", WORLDS)
def test_a_noised_update_is_the_clipped_one_with_noise_of_the_planned_size(world: str) -> None:
    """Of 4,000 draws of three coordinates the standard deviation is within 5 % with probability 1 - 1e-14
    (chi-squared), and the mean within 5.5 of its own with 1 - 1e-7."""
    count = 4000
    plan = ClientUpdate(FAR, BOUND, UPDATE_LAW, count, SIZE)
    raw = pool({"a": ClientUpdate(FAR)})
    where = pool({"a": plan}, world)
    task = LocalUpdate(0, model(1.0), FAR)
    length = float(np.linalg.norm(ask(raw, "a", task).released.values))
    assert length > 2 * BOUND
    found = np.stack([ask(where, "a", task).released.values for _ in range(count)])
    assert abs((found - found.mean(axis=0)).std() / UPDATE_LAW.standard_deviation - 1) < 0.05
    # Batches differ from one update to the next; all are as long as the bound, so none of their means is longer.
    assert np.linalg.norm(found.mean(axis=0)) < BOUND + 5.5 * UPDATE_LAW.standard_deviation * math.sqrt(SIZE / count)


@pytest.mark.parametrize("world", WORLDS)
def test_noise_is_in_proportion_to_the_clip_of_each_question(world: str) -> None:
    """Each is charged alike. Of 1,000 draws of three coordinates at a clip the standard deviation is within 10 % with
    probability 1 - 1e-13 (chi-squared), and the mean is longer than the clip by 5.5 of its own with 1e-7."""
    count, clips = 1000, (BOUND / 8, BOUND, 4 * BOUND)
    where = pool({"a": ClientUpdate(FAR, BOUND, UPDATE_LAW, count * len(clips), SIZE, follows=True)}, world)
    multiplier = UPDATE_LAW.noise_multiplier
    for clip in clips:
        task = NoisedUpdateAtClip(0, model(1.0), FAR, clip)
        found = np.stack([ask(where, "a", task).released.values for _ in range(count)])
        assert abs((found - found.mean(axis=0)).std() / (multiplier * clip) - 1) < 0.1
        assert np.linalg.norm(found.mean(axis=0)) < clip * (1 + 5.5 * multiplier * math.sqrt(SIZE / count))
    (line,) = [line for ledger in where.ledgers for line in ledger.lines()]
    assert (line["releases"], line["noise_multiplier"], line["probability"]) == (count * len(clips), multiplier, 1.0)
    with pytest.raises(BudgetSpent):
        where.admit("a", NoisedUpdateAtClip(1, model(1.0), FAR, clips[0]))
    with pytest.raises(SpecError, match="to the clip of each question, found LocalUpdate"):
        where.admit("a", LocalUpdate(1, model(1.0), FAR))


def test_a_client_answers_the_planned_question_alone() -> None:
    where = pool({"a": ClientUpdate(LOCAL, BOUND, UPDATE_LAW, 1, SIZE)})
    with pytest.raises(SpecError, match="makes updates by"):
        where.admit("a", LocalUpdate(0, model(), FAR))
    assert where.releases("a") == 0


def test_noise_has_the_clip_of_the_updates() -> None:
    with pytest.raises(SpecError, match="has that clip"):
        ClientUpdate(LOCAL, 2 * BOUND, UPDATE_LAW, 1, SIZE)
    with pytest.raises(SpecError, match="a length above 0"):
        ClientUpdate(LOCAL, 0.0)


def test_noise_for_vectors_of_half_the_clip_is_refused() -> None:
    """Its sensitivity is the clip; two updates of that length are up to twice as far apart."""
    ball = BallGaussian(BOUND, 2.0)
    with pytest.raises(SpecError, match="twice that apart"):
        ClientUpdate(LOCAL, BOUND, ball, 1, SIZE)
    with pytest.raises(SpecError, match="twice that apart"):
        curator(ball)


@pytest.mark.parametrize("trust", list(Trust))
def test_of_what_has_no_noise_nothing_is_proved_whatever_the_number(trust: Trust) -> None:
    """It is admitted without end, so a planned number of 0 is no promise."""
    relation, bare = NeighboringRelation.REPLACE_ONE, NoNoise(BOUND)
    assert math.isinf(ClientUpdate(LOCAL, BOUND, bare, 0, SIZE).revealed(trust).divergence(2.0, relation))
    some = {UPDATE_KIND: 1, ReleaseKind(bare.unit(), WHOLE, SIZE): 0}
    assert math.isinf(curator(kinds=some).revealed(trust).divergence(2.0, relation))


def test_noise_of_others_counts_for_who_trusts_them() -> None:
    """rho of h members is that of one over h, as tau is nothing here; and no more are trusted than are in a sum."""
    relation, alone = NeighboringRelation.REPLACE_ONE, masked_plan(8.0)
    two = replace(alone, honest=2)
    own = alone.revealed(Trust.NOBODY).divergence(2.0, relation)
    assert two.revealed(Trust.NOBODY).divergence(2.0, relation) == own
    assert two.revealed(Trust.SCOPE).divergence(2.0, relation) == pytest.approx(own / 2, rel=1e-9)
    for honest in (0, alone.bound.group.minimum + 1, True):
        with pytest.raises(SpecError, match="trusted to add their noise"):
            replace(alone, honest=honest)
    with pytest.raises(SpecError, match="whole number of masked sums"):
        replace(alone, sums=-1)
    with pytest.raises(SpecError, match="whole number of updates"):
        ClientUpdate(LOCAL, BOUND, UPDATE_LAW, -1, SIZE)


@pytest.mark.parametrize("plan", ["noised", "curated"])
def test_whole_updates_enter_no_budget_of_examples_that_come_and_go(plan: str) -> None:
    """One example less may turn an update round: that is 2 C, of which such a budget would count C."""
    side: SidePlan = ClientUpdate(LOCAL, BOUND, UPDATE_LAW, 1, SIZE) if plan == "noised" else curator()
    for relation in NeighboringRelation:
        budget, file = admits_all(relation), LedgerFile(":memory:")
        if relation is NeighboringRelation.REPLACE_ONE:
            assert stored_ledger(file, SERVER, "data", "run", budget, side, Trust.SCOPE).releases == 0
            continue
        with pytest.raises(SpecError, match="twice its bound"):
            stored_ledger(file, SERVER, "data", "run", budget, side, Trust.SCOPE)


def test_pure_noise_of_clients_is_possible_too() -> None:
    law = L2Laplace(BOUND, 1.0, NeighboringRelation.REPLACE_ONE)
    plan = ClientUpdate(LOCAL, BOUND, law, 1, SIZE)
    assert np.isfinite(ask(pool({"a": plan}), "a", LocalUpdate(0, model(), LOCAL)).released.values).all()
    assert noised_guarantee(plan, DELTA, NeighboringRelation.REPLACE_ONE).epsilon <= 1.0 + 1e-9


# Curators


def curator(law: Any = UPDATE_LAW, **changes: Any) -> Curator:
    kind = ReleaseKind(law.unit(), WHOLE, SIZE)
    return replace(Curator({kind: MOST}, len(CLIENTS), CLIENTS, BOUND, SERVER), **changes)


def summed(updates: dict[str, Any], law: Any = UPDATE_LAW, **query: Any) -> CuratedSum:
    vectors = tuple((name, Confined(np.asarray(values, np.float64))) for name, values in updates.items())
    return CuratedSum(0, model(), vectors, Query(WHOLE, law, 2.0, **query))


def test_a_curator_takes_no_update_that_is_too_long() -> None:
    """Exactly, without noise: one of length C counts, one that is longer by rounding is scaled, all others are 0."""
    law = NoNoise(BOUND)
    where = pool({SERVER: curator(law)})
    full, a_bit = np.array([BOUND, 0.0, 0.0]), np.array([0.0, BOUND * (1 + 1e-8), 0.0])
    for third in ([0.0, 0.0, 2 * BOUND], [np.nan, 0.0, 0.0], [0.0, np.inf, 0.0]):
        found = ask(where, SERVER, summed({"a": full, "b": a_bit, "c": third}, law))
        np.testing.assert_allclose(found.released.values, np.array([BOUND, BOUND, 0.0]) / 2, rtol=1e-12)
        assert found.notes == (Record("updates_too_long", 1.0),)


@pytest.mark.parametrize("world", WORLDS)
def test_a_curators_noise_is_that_of_the_plan_on_the_sum(world: str) -> None:
    """Sum of three, less 2 S.D.: as for noised updates above; the normaliser divides both."""
    count = 3000
    where = pool({SERVER: curator(kinds={UPDATE_KIND: count})}, world)
    task = summed(dict.fromkeys(CLIENTS, np.full(SIZE, 0.1)))
    found = np.stack([ask(where, SERVER, task).released.values for _ in range(count)]) * 2.0
    assert abs((found - 0.3).std() / UPDATE_LAW.standard_deviation - 1) < 0.05


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (summed({"a": np.zeros(SIZE), "d": np.zeros(SIZE)}), "its own clients, found 2, with d"),
        (summed({}), "1 to 3 of its own clients, found 0"),
        (summed({"a": np.zeros(SIZE)}, Gaussian(2 * BOUND, 2.0)), "of updates of length 0.5"),
        (summed({"a": np.zeros(SIZE)}, count_share=0.1), "counts updates for a share of 0 of each release"),
    ],
)
def test_a_curator_refuses_what_its_noise_does_not_hide(task: CuratedSum, message: str) -> None:
    where = pool({SERVER: curator()})
    with pytest.raises(SpecError, match=message):
        where.admit(SERVER, task)
    assert where.releases(SERVER) == 0


def test_a_curator_adds_no_other_noise_than_planned() -> None:
    where = pool({SERVER: curator()})
    with pytest.raises(BudgetSpent, match="not in the plan"):
        where.admit(SERVER, summed({"a": np.zeros(SIZE)}, Gaussian(BOUND, 1.9)))


def test_a_client_is_in_a_sum_once_and_sizes_fit() -> None:
    one = ("a", Confined(np.zeros(SIZE)))
    with pytest.raises(SpecError, match="in a sum once"):
        CuratedSum(0, model(), (one, one), Query(WHOLE, UPDATE_LAW, 1.0))
    with pytest.raises(SpecError, match="3 numbers"):
        CuratedSum(0, model(), (("a", Confined(np.zeros(2))),), Query(WHOLE, UPDATE_LAW, 1.0))


def test_a_client_that_is_in_no_more_sums_is_refused_and_others_go_on() -> None:
    where = pool({SERVER: curator(kinds={UPDATE_KIND: 1})})
    ask(where, SERVER, summed({"a": np.zeros(SIZE)}))
    with pytest.raises(BudgetSpent, match="a: release refused"):
        where.admit(SERVER, summed({"a": np.zeros(SIZE), "b": np.zeros(SIZE)}))
    ask(where, SERVER, summed({"b": np.zeros(SIZE)}))
    assert (where.releases("a"), where.releases("b"), where.releases("c"), where.releases(SERVER)) == (1, 1, 0, 2)


def test_plans_of_curators_are_checked() -> None:
    with pytest.raises(SpecError, match="cohort of 1 or more"):
        curator(cohort=0)


# Masked sums of clients' updates


def test_a_masked_sum_is_that_of_updates_clipped_as_a_whole() -> None:
    """Members' steps have no clip of their own; the group scales each whole update to its bound."""
    plan = masked_plan(0.0)
    members = open_pool(dict.fromkeys(CLIENTS, plan), SHARDS, OBJECTIVE, DATA, Simulated(4))
    raw = open_pool(dict.fromkeys(CLIENTS, ClientUpdate()), SHARDS, OBJECTIVE, DATA, Simulated(4))
    start = 20.0
    updates = [ask(raw, name, LocalUpdate(0, model(start), LOCAL)).released.values for name in CLIENTS]
    assert all(np.linalg.norm(update) > BOUND for update in updates)
    total = Sum(dict.fromkeys(CLIENTS, members), plan.bound, 0, start).total().values
    expected = sum(clipped(update, plan.bound.longest) for update in updates)
    np.testing.assert_allclose(total, expected, atol=3 * SIZE * plan.bound.fixed.resolution)


def test_no_update_is_made_for_a_round_that_a_member_takes_no_part_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms, coins and rounds are looked at before anything is computed, and before any batch is drawn."""
    made, drawn = [], []
    updates, inputs = Updates.compute, Updates.inputs
    monkeypatch.setattr(Updates, "compute", lambda self, asked: made.extend(asked) or updates(self, asked))
    monkeypatch.setattr(Updates, "inputs", lambda self, *of: drawn.append(of) or inputs(self, *of))
    plan = masked_plan(0.5)
    where = pool({"a": plan, "b": replace(plan, coins=lambda round: ("a", "c"))})

    def asked(name: str, round: int, query: LocalQuery = LOCAL) -> int:
        before = len(made), len(drawn)
        assert ask(where, name, LocalUpdate(round, model(), query)).released == REFUSED
        assert len(made) - before[0] == len(drawn) - before[1]
        return len(made) - before[0]

    assert asked("a", 0, FAR) == 0  # not as agreed
    assert asked("a", 10) == 0  # beyond the last round
    assert asked("b", 0) == 0  # the coins are against it
    assert asked("a", 1) == 1
    assert asked("a", 1) == asked("a", 0) == 0
    assert asked("a", 2) == 1


def test_a_member_that_adds_noise_has_a_ledger() -> None:
    shared: Any = Updates(OBJECTIVE, DATA)
    with pytest.raises(DataError, match="a: an agent that adds noise needs a ledger"):
        masked_side.MemberRule("a", masked_plan(0.5), SHARDS["a"], shared, Simulated(1), None)
    masked_side.MemberRule("a", masked_plan(0.0), SHARDS["a"], shared, Simulated(1), None)


# What is proved


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_guarantees_are_those_of_so_many_gaussian_releases(relation: NeighboringRelation) -> None:
    """mu = sqrt(T) S/s, at which the Gaussian's own delta, in closed form, is the one that was asked for."""
    sensitivity = BOUND * (2 if relation is NeighboringRelation.REPLACE_ONE else 1)
    mu = math.sqrt(MOST) * sensitivity / UPDATE_LAW.standard_deviation
    noised = ClientUpdate(LOCAL, BOUND, UPDATE_LAW, MOST, SIZE)
    for found in (noised_guarantee(noised, DELTA, relation), curated_guarantees(curator(), DELTA, relation)[OTHERS]):
        assert float(GaussianFull(mu).divergence(np.array([found.epsilon]))[0]) == pytest.approx(DELTA, rel=1e-3)
        assert float(GaussianFull(mu).divergence(np.array([found.epsilon]))[0]) <= DELTA
        assert "for each client with all of its data" in str(found)
        assert "whether any one client was" in str(found)
        assert deployed_guarantee(found, noised.drawn()).epsilon == pytest.approx(found.epsilon, rel=1e-12)


def test_against_a_curator_nothing_is_proved() -> None:
    found = curated_guarantees(curator(), DELTA, NeighboringRelation.REPLACE_ONE)
    assert math.isinf(found[CURATOR].epsilon)
    assert "raw update" in str(found[CURATOR])
    assert "but not the trusted server" in found[OTHERS].observer
    assert any("trusted: the server" in line for line in found[OTHERS].assumptions)


def test_without_noise_nothing_is_proved() -> None:
    relation = NeighboringRelation.REPLACE_ONE
    bare = ClientUpdate(LOCAL, BOUND, NoNoise(BOUND), 1, SIZE)
    assert math.isinf(noised_guarantee(bare, DELTA, relation).epsilon)
    assert math.isinf(noised_guarantee(ClientUpdate(LOCAL), DELTA, relation).epsilon)
    assert math.isinf(curated_guarantees(curator(NoNoise(BOUND)), DELTA, relation)[OTHERS].epsilon)
    for deviation, proved in ((0.0, False), (8.0, True)):
        plan = masked_plan(deviation)
        found = own_server_guarantee(plan.noise, plan.sums, DELTA, plan.honest).epsilon
        assert math.isfinite(found) == proved


def test_an_update_too_long_for_its_norm_counts_as_nothing_and_says_nothing() -> None:
    """Of float64 numbers whose squares overflow; a warning would tell of a client's data."""
    huge = np.full(3, 1e200)
    np.testing.assert_array_equal(clipped(huge, 0.5), np.zeros(3))
    assert checked(huge, 0.5) is None
