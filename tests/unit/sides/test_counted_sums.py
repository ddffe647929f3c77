"""Sums of a curator with a count in them: against sums by hand, the noise of each part, and what one client moves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.reference.side_kinds import DATA, LOCAL, OBJECTIVE, SERVER, SHARDS, SIZE, Disk, model

from gossamer.errors import BudgetSpent, SpecError
from gossamer.privacy.clipping import Clipping, QuantileClip, bound_of
from gossamer.privacy.mechanisms import Gaussian, Laplace, Mechanism, NeighboringRelation, NoNoise, ReleaseKind
from gossamer.privacy.tasks import ClippedUpdate, CuratedSum, LocalUpdate, Query
from gossamer.sides.client import clipped
from gossamer.sides.guarantees import OTHERS, curated_guarantees
from gossamer.sides.plan import WHOLE, ClientUpdate, Curator, SidePlan
from gossamer.sides.pool import Pool, open_pool
from gossamer.sides.servers import checked, vote
from gossamer.vectors import Confined

MANY, SHARE = 10_000, 0.2
WORLDS = ("simulation", "deployment")


def curator(law: Mechanism, clients: int = 4, **changes: Any) -> Curator:
    names = tuple(f"client-{number}" for number in range(clients))
    kinds = {ReleaseKind(law.unit(), WHOLE, SIZE): MANY}
    return Curator(
        **{"kinds": kinds, "cohort": clients, "owners": names, "bound": law.clip, "name": SERVER, "count_share": SHARE}
        | changes
    )


def pool(plans: dict[str, SidePlan], world: str = "simulation") -> Pool:
    return open_pool(plans, SHARDS, OBJECTIVE, DATA, Disk(world).home())


def ask(where: Pool, updates: list[Any], law: Mechanism, number: int = 1, **query: Any) -> Any:
    named = tuple((f"client-{place}", Confined(np.asarray(values))) for place, values in enumerate(updates))
    asked = Query(WHOLE, law, **{"normaliser": 4.0, "count_share": SHARE} | query)
    (found,) = where.compute([where.admit(SERVER, CuratedSum(number, model(), named, asked))])
    return found


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_without_noise_it_is_the_sum_and_the_count_of_a_loop(world: str, clip: float) -> None:
    """At other clips than the one at the start, too; one within, one clipped to it, one too long, and one of 0."""
    law = NoNoise(1.0)
    within, at = np.zeros(SIZE), np.zeros(SIZE)
    within[0], at[1] = 0.6 * clip, clip
    updates = [within, at, np.full(SIZE, 3 * clip), np.zeros(SIZE)]
    found = ask(pool({SERVER: curator(law)}, world), updates, law.with_clip(clip), unit=5.0)
    total, count = np.zeros(SIZE), 0.0
    for update in updates:
        length = math.sqrt(sum(float(number) ** 2 for number in update))
        if 0 < length <= clip:
            total, count = total + update, count + (0.5 if length < clip else -0.5)
    assert count == 0.0
    np.testing.assert_allclose(found.released.values, [*(total / 4 / 5), count / 4], rtol=1e-6)
    assert found.too_long == 1
    lone = ask(pool({SERVER: curator(law)}, world), [within], law.with_clip(clip)).released.values
    np.testing.assert_allclose(lone[-1], 0.5 / 4)


@pytest.mark.parametrize("values", [np.full(SIZE, 9.0), np.full(SIZE, np.nan), np.full(SIZE, np.inf)])
def test_what_is_too_long_counts_as_nothing_in_either_part(values: Any) -> None:
    found = ask(pool({SERVER: curator(NoNoise(1.0))}), [values], NoNoise(1.0))
    np.testing.assert_array_equal(found.released.values, 0.0)
    assert found.too_long == 1


@pytest.mark.parametrize("world", WORLDS)
def test_both_parts_have_their_noise(world: str) -> None:
    """4,000 draws: sd of the sum's 3 numbers within 5 %, of the count within 6.5 %; 5.5 sd of the estimate, so 4e-8."""
    m, clip, draws = 2.0, 3.0, 4000
    law = Gaussian(1.0, m)
    where = pool({SERVER: curator(law)}, world)
    found = np.stack(
        [ask(where, [np.zeros(SIZE)], law.with_clip(clip), n, normaliser=1.0).released.values for n in range(draws)]
    )
    assert abs(found[:, :SIZE].std() / (clip * m / math.sqrt(1 - SHARE)) - 1) < 5.5 / math.sqrt(2 * draws * SIZE)
    assert abs(found[:, SIZE].std() / (m / (2 * math.sqrt(SHARE))) - 1) < 5.5 / math.sqrt(2 * draws)


def test_what_one_client_moves_is_what_is_charged() -> None:
    """In units of the noise 1/m where its data are blanked, so 2/m where they are replaced, whatever it hands in."""
    generator, m = np.random.default_rng(1), 1.7
    z, s_b = m / math.sqrt(1 - SHARE), m / (2 * math.sqrt(SHARE))
    longest = 0.0
    for _ in range(2000):
        clip = float(10 ** generator.uniform(-6, 6))
        raw = generator.standard_normal(SIZE)
        raw *= clip * generator.choice([0.0, 0.999, 1.0, 1.0000005, 1.5, 1e30]) / np.linalg.norm(raw)
        found = checked(raw, clip)
        if found is not None:
            joint = np.append(found / (z * clip), vote(found, clip) / s_b)
            longest = max(longest, float(np.linalg.norm(joint)))
    assert longest == pytest.approx(1 / m, rel=1e-9)
    assert vote(np.zeros(SIZE), 1.0) == 0.0  # a client without data has nothing in a release


def test_the_clip_finds_the_quantile_of_norms() -> None:
    """50 clients with norms from 0.1 to 10, evenly in logarithms, and a clip that starts a thousand times too small.

    Near the end the noise moves the fraction within the clip by a standard deviation of 0.003, and it has steps of
    0.02; 0.05 off is 10 standard deviations, so below 1e-20 by chance.
    """
    clients, m = 50, 1.0
    norms = np.logspace(-1, 1, clients)
    updates = np.zeros((clients, SIZE))
    updates[:, 0] = norms
    for quantile in (0.3, 0.8):
        clipping = Clipping(QuantileClip(initial=1e-3, quantile=quantile, count_share=0.5, step_bound=None))
        law = Gaussian(1e-3, m)
        where = pool({SERVER: curator(law, clients, count_share=0.5)})
        log_clip: Any = clipping.initial(model())
        fractions = []
        for number in range(400):
            query = clipping.query(Query(WHOLE, law, float(clients)), log_clip)
            clip = bound_of(log_clip)
            handed = [clipped(update, clip) for update in updates]
            found = ask(where, handed, query.mechanism, number, normaliser=float(clients), count_share=0.5)
            log_clip, mean = clipping.moved(log_clip, found.released)
            assert mean.size == SIZE
            fractions.append(float(np.mean(norms < clip)))
        assert abs(np.mean(fractions[200:]) - quantile) < 0.05


def test_a_sum_is_of_the_planned_share_and_noise() -> None:
    law = Gaussian(1.0, 2.0)
    where = pool({SERVER: curator(law)})
    for share in (0.0, 0.1):
        with pytest.raises(SpecError, match=r"counts updates for a share of 0\.2 of each release"):
            ask(where, [np.zeros(SIZE)], law, count_share=share)
    with pytest.raises(BudgetSpent):
        ask(where, [np.zeros(SIZE)], Gaussian(1.0, 1.0))
    with pytest.raises(SpecError, match="counts updates for a share of 0 of"):
        ask(pool({SERVER: curator(law, count_share=0.0)}), [np.zeros(SIZE)], law)
    assert where.releases(SERVER) == 0
    with pytest.raises(SpecError, match=r"the share of a count lies in \[0, 1\), found 1"):
        curator(law, count_share=1.0)


def test_a_client_clips_to_what_it_is_asked_for_where_that_was_planned() -> None:
    far = ClientUpdate(LOCAL, 1.0, follows=True)
    where = pool({"a": far, "b": ClientUpdate(LOCAL, 1.0)})
    (found,) = where.compute([where.admit("a", ClippedUpdate(0, model(1.0), LOCAL, 1e-6))])
    assert isinstance(found.released, Confined)
    assert np.linalg.norm(found.released.values) == pytest.approx(1e-6, rel=1e-5)
    with pytest.raises(SpecError, match="to the clip of each question, found LocalUpdate"):
        where.admit("a", LocalUpdate(1, model(1.0), LOCAL))
    with pytest.raises(SpecError, match="to the clip that was planned, found ClippedUpdate"):
        where.admit("b", ClippedUpdate(1, model(1.0), LOCAL, 1.0))
    with pytest.raises(SpecError, match="takes noise in proportion to it, found Laplace"):
        ClientUpdate(LOCAL, 1.0, Laplace(1.0, 2.0), 1, SIZE, follows=True)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan, "1"])
def test_a_clip_is_a_number_above_0(bound: Any) -> None:
    with pytest.raises(SpecError):
        ClippedUpdate(0, model(), LOCAL, bound)


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_the_guarantee_is_that_of_the_noise_and_says_how_the_clip_moves(relation: NeighboringRelation) -> None:
    law = Gaussian(1.0, 200.0)
    counted = curated_guarantees(curator(law), 1e-5, relation)[OTHERS]
    alone = curated_guarantees(curator(law, count_share=0.0), 1e-5, relation)[OTHERS]
    assert counted.epsilon == alone.epsilon
    said = " / ".join(counted.assumptions)
    assert "the clip moves by released counts" in said
    assert "clip, noise, local steps" not in said
    assert "noise, local steps" in said
    assert "clip, noise, local steps" in " / ".join(alone.assumptions)
    assert curator(law).drawn().numbers == curator(law, count_share=0.0).drawn().numbers + MANY
