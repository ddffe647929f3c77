"""A deployed server of a unit: its records are those of the planned stream, whatever crashes there are in between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.reference.graph_slow import noise_factor

from gossamer.data.examples import Split
from gossamer.deployment.party.data_side import SideFile
from gossamer.errors import BudgetSpent, DataError, SpecError
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, NoiseLaw, StreamRecord, Temporal
from gossamer.privacy.streams.graph_bounds import GradientAt, UpdateBound, gaussian_mu_of
from gossamer.privacy.streams.records import RecordNoise, rounding_error
from gossamer.protocol.effects import Release
from gossamer.runtimes.storage.file import IN_MEMORY, WrongStore
from gossamer.sides.deployed import Deployed
from gossamer.sides.ledger import MemoryLedger
from gossamer.sides.plan import StreamPlan
from gossamer.sides.pool import Pool, open_pool
from gossamer.vectors import Confined, Released

ROUNDS, SIZE, DEVIATION = 6, 3, 2.0
BOUND = UpdateBound(0.5, 1.0, 4, GradientAt.RELEASED)
KINDS: list[tuple[str, int | None]] = [
    ("independent", None),
    ("random_walk", None),
    ("sqrt_toeplitz", None),
    ("banded", 1),
    ("banded", 3),
    ("banded", 5),
]
CORRELATED = [kind for kind in KINDS if kind[0] != "independent"]


class Kept:
    """Records that outlive a side."""

    def __init__(self) -> None:
        self.records: list[StreamRecord] = []

    def kept(self) -> Sequence[StreamRecord]:
        return list(self.records)

    def keep(self, record: StreamRecord, most: int) -> None:
        self.records = [*self.records, record][-most:]


def noise_of(temporal: str, bands: int | None = None, law: NoiseLaw = NoiseLaw.GAUSSIAN) -> CorrelatedNoise:
    return CorrelatedNoise(Factorisation(Temporal(temporal), ROUNDS, bands), DEVIATION, law)


def plan_of(noise: CorrelatedNoise | None, size: int) -> StreamPlan:
    return StreamPlan(noise, ROUNDS, size, BOUND.moved, BOUND.agents_sampled, 0.5, ("a", "b"))


def ledger_of(noise: CorrelatedNoise | None, size: int = SIZE) -> MemoryLedger:
    return MemoryLedger("server-0", plan_of(noise, size).charges())


def side_of(ledger: MemoryLedger, records: Any = None) -> Pool:
    stream = ledger.charges.law
    objective = LinearModel("squared", stream.size, None, intercept=False)
    home = Deployed(lambda name, plan: ledger, records)
    nothing = Split(np.zeros((0, stream.size), np.float32), np.zeros(0))
    return open_pool({"server-0": plan_of(stream.noise, stream.size)}, {}, objective, nothing, home)


def ask(side: Pool, number: int, state: np.ndarray) -> np.ndarray:
    (found,) = side.compute([side.admit("server-0", Release(number, Confined(state.copy())))])
    assert type(found.released) is Released
    return np.asarray(found.released.values)


def states(rounds: int = ROUNDS, size: int = SIZE) -> np.ndarray:
    return np.cumsum(np.random.default_rng(2).normal(0, 1, (rounds, size)), axis=0)


@pytest.fixture
def z(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """What every record draws, in order, in the place of noise."""
    numbers = np.random.default_rng(9).normal(0, 1, (40, SIZE))
    drawn = iter(numbers)
    monkeypatch.setattr(RecordNoise, "_noisy", lambda self, raw: raw + next(drawn))
    return numbers


@pytest.mark.parametrize(("temporal", "bands"), KINDS)
@pytest.mark.parametrize("crashes", [(), (1,), (3, 4), (1, 2, 3, 4, 5)])
def test_records_are_rows_of_the_product_over_any_crashes(
    z: np.ndarray, temporal: str, bands: int | None, crashes: tuple[int, ...]
) -> None:
    """A x + B z: states plus the planned stream's noise, of a process that ends before some of the records."""
    ledger, kept, found = ledger_of(noise_of(temporal, bands)), Kept(), []
    side = side_of(ledger, kept)
    for number, state in enumerate(states()):
        if number in crashes:
            side = side_of(ledger, kept)
        found.append(ask(side, number, state))
    expected = states() + noise_factor(temporal, ROUNDS, bands) @ z[:ROUNDS]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert ledger.releases == ROUNDS


@pytest.mark.parametrize(("temporal", "bands"), KINDS)
def test_a_record_that_was_charged_and_not_kept_is_drawn_anew_under_its_charge(
    z: np.ndarray, temporal: str, bands: int | None
) -> None:
    """The process ends after the charge, in each round, twice: the noise drawn then was never seen."""
    ledger, kept, found = ledger_of(noise_of(temporal, bands)), Kept(), []
    for number, state in enumerate(states()):
        for _ in range(2):
            side_of(ledger, kept).admit("server-0", Release(number, Confined(state)))
            assert ledger.releases == number + 1
        found.append(ask(side_of(ledger, kept), number, state))
    expected = states() + noise_factor(temporal, ROUNDS, bands) @ z[:ROUNDS]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert ledger.releases == ROUNDS
    with pytest.raises(BudgetSpent, match="covers 6 releases of this kind"):
        side_of(ledger, kept).admit("server-0", Release(ROUNDS, Confined(states()[0])))


@pytest.mark.parametrize(("temporal", "bands"), CORRELATED)
def test_a_record_that_was_kept_is_answered_with_the_same_bytes_after_a_crash(temporal: str, bands: int | None) -> None:
    ledger, kept = ledger_of(noise_of(temporal, bands)), Kept()
    first = [ask(side_of(ledger, kept), number, state) for number, state in enumerate(states()[:3])]
    restarted = side_of(ledger, kept)
    assert ask(restarted, 2, states()[2]).tobytes() == first[2].tobytes()
    assert ledger.releases == 3
    with pytest.raises(SpecError, match="record 2 was another state's"):
        ask(restarted, 2, states()[2] + 1e-9)
    with pytest.raises(SpecError, match="the next record is 3"):
        restarted.admit("server-0", Release(1, Confined(states()[1])))


@pytest.mark.parametrize(("temporal", "bands"), CORRELATED)
@pytest.mark.parametrize("lost", ["all", "the last", "the first"])
def test_what_goes_on_from_lost_records_is_refused_and_not_charged(temporal: str, bands: int | None, lost: str) -> None:
    ledger, kept = ledger_of(noise_of(temporal, bands)), Kept()
    side = side_of(ledger, kept)
    for number, state in enumerate(states()[:4]):
        ask(side, number, state)
    kept.records = {"all": [], "the last": kept.records[:-1], "the first": kept.records[1:]}[lost]
    with pytest.raises(BudgetSpent, match="record 4 goes on from records before it"):
        side_of(ledger, kept).admit("server-0", Release(4, Confined(states()[4])))
    assert ledger.releases == 4
    if lost == "the last" and temporal == "random_walk":
        with pytest.raises(BudgetSpent, match="record 3 goes on"):  # nor is the one before drawn again
            side_of(ledger, kept).admit("server-0", Release(3, Confined(states()[3])))


def test_without_records_only_independent_noise_goes_on_after_a_restart() -> None:
    for temporal, bands in KINDS:
        ledger = ledger_of(noise_of(temporal, bands))
        side = side_of(ledger)
        for number in range(3):  # one process needs nothing on disk
            ask(side, number, states()[number])
        restarted = side_of(ledger)
        if temporal == "independent":
            ask(restarted, 3, states()[3])
        else:
            with pytest.raises(BudgetSpent, match="an earlier process"):
                restarted.admit("server-0", Release(3, Confined(states()[3])))


def test_a_first_record_that_was_charged_and_lost_is_drawn_anew() -> None:
    ledger = ledger_of(noise_of("random_walk"))
    side_of(ledger).admit("server-0", Release(0, Confined(states()[0])))
    ask(side_of(ledger), 0, states()[0])
    assert ledger.releases == 1


def test_in_one_process_a_record_asked_for_again_is_the_same_bytes() -> None:
    for temporal, bands in KINDS:
        side = side_of(ledger_of(noise_of(temporal, bands)))
        ask(side, 0, states()[0])
        first = ask(side, 1, states()[1])
        assert ask(side, 1, states()[1]).tobytes() == first.tobytes()
        with pytest.raises(SpecError, match="another state's"):
            ask(side, 1, states()[2])


@pytest.mark.parametrize("record", [1, -1, 7])
def test_records_come_in_order(record: int) -> None:
    side = side_of(ledger_of(noise_of("random_walk")))
    with pytest.raises(SpecError, match="the next record is 0"):
        side.admit("server-0", Release(record, Confined(states()[0])))
    assert side.releases("server-0") == 0


def test_without_noise_states_are_released_as_they_are() -> None:
    side = side_of(ledger_of(None))
    np.testing.assert_array_equal(ask(side, 0, states()[0]), states()[0])
    huge = ask(side, 1, np.full(SIZE, np.inf, np.float32))
    assert (huge == np.finfo(np.float32).max).all()
    ticket = side.admit("server-0", Release(2, Confined(states()[0])))
    with pytest.raises(SpecError, match="no rounds"):
        side.amended(ticket, None)


# The noise itself


@pytest.mark.parametrize("law", list(NoiseLaw))
@pytest.mark.parametrize(("temporal", "bands"), KINDS)
def test_noise_has_the_planned_covariance_over_crashes(temporal: str, bands: int | None, law: NoiseLaw) -> None:
    """Every record by a process of its own, 4,000 coordinates as so many samples. Entries of the sample covariance,
    whitened by the planned one, within 6 standard errors (Laplace: kurtosis 3 more): false alarm 1e-7."""
    size = 4000
    ledger, kept = ledger_of(noise_of(temporal, bands, law), size), Kept()
    walk = states(ROUNDS, size)
    found = np.stack([ask(side_of(ledger, kept), number, state) for number, state in enumerate(walk)]) - walk
    planned = DEVIATION * noise_factor(temporal, ROUNDS, bands)
    white = np.linalg.solve(planned, found)
    error = math.sqrt((5.0 if law is NoiseLaw.LAPLACE else 2.0) / size)
    np.testing.assert_allclose(white @ white.T / size, np.eye(ROUNDS), atol=6 * error)
    law_of_z = stats.norm() if law is NoiseLaw.GAUSSIAN else stats.laplace(scale=math.sqrt(0.5))
    assert stats.kstest(white.ravel(), law_of_z.cdf).pvalue > 1e-7


def test_no_two_records_share_noise_over_a_crash() -> None:
    """What was drawn and lost is not drawn again, under any of the laws."""
    for law in NoiseLaw:
        for temporal, bands in KINDS:
            noise = RecordNoise(noise_of(temporal, bands, law), SIZE, BOUND.moved, BOUND.agents_sampled, 0.5)
            state = states()[0]
            assert noise.answer(state, []).tobytes() != noise.answer(state, []).tobytes()


# What is proved


@pytest.mark.parametrize(("temporal", "bands"), KINDS)
@pytest.mark.parametrize("deviation", [0.01, 2.0, 500.0])
def test_the_noise_on_the_grid_is_worth_what_was_planned(temporal: str, bands: int | None, deviation: float) -> None:
    """mu_G of what is drawn, with its rounding, against the planned one: no larger, and not much smaller."""
    noise = CorrelatedNoise(Factorisation(Temporal(temporal), ROUNDS, bands), deviation)
    grid = RecordNoise(noise, 1000, BOUND.moved, BOUND.agents_sampled, 0.5).grid
    assert grid is not None
    worth = noise.factorisation.sensitivity / grid.equivalent.noise_multiplier
    planned = gaussian_mu_of(noise, BOUND)
    assert grid.error == rounding_error(1000, ROUNDS, BOUND.agents_sampled, 0.5)
    assert 0.998 * planned < worth <= planned


@pytest.mark.parametrize(("temporal", "bands"), KINDS)
def test_what_one_change_moves_is_covered_in_every_record(
    temporal: str, bands: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs whose updates differ by D in every round, in one direction or in any: the integers that get noise are
    apart by (C 1)_i (D + rounding) at most, given the same answers before; near that in one direction."""
    noise = noise_of(temporal, bands)
    drawer = RecordNoise(noise, SIZE, BOUND.moved, BOUND.agents_sampled, 0.5)
    grid, generator = drawer.grid, np.random.default_rng(4)
    assert grid is not None
    raw: list[np.ndarray] = []
    monkeypatch.setattr(RecordNoise, "_noisy", lambda self, vector: raw.append(grid.rounded(vector)) or vector)
    moved = noise.factorisation._moved()
    for straight in (True, False):
        largest = 0.0
        for _ in range(20):
            common = generator.normal(0, 0.2, (ROUNDS, SIZE))
            direction = generator.normal(0, 1, (1 if straight else ROUNDS, SIZE))
            change = BOUND.moved * direction / np.linalg.norm(direction, axis=1, keepdims=True)
            answers = generator.normal(0, 9, (ROUNDS, SIZE))
            both = []
            for updates in (common, common + change):
                raw.clear()
                walk = np.zeros(SIZE)
                past: list[StreamRecord] = []
                for number, update in enumerate(updates):
                    walk = walk + update
                    drawer.answer(walk, past[-drawer.needed :] if drawer.needed else [])
                    past.append(StreamRecord(number, walk, answers[number]))
                both.append(np.stack(raw).astype(float))
            apart = np.linalg.norm(both[0] - both[1], axis=1) * grid.step / moved
            assert (apart <= grid.sensitivity(NeighboringRelation.ADD_OR_REMOVE_ONE)).all()
            largest = max(largest, float(apart.max()))
        assert largest > 0.999 * BOUND.moved


def test_errors_of_states_are_less_than_what_is_provided_for() -> None:
    """Sums of 40 updates over 300 rounds in float64, against exact ones."""
    generator, rounds, agents, size = np.random.default_rng(0), 300, 40, 5
    state, exact = np.zeros(size), [0] * size
    scale = 1 << 200
    for _ in range(rounds):
        updates = generator.normal(0, 1, (agents, size))
        updates /= np.linalg.norm(updates, axis=1, keepdims=True)
        total = np.zeros(size)
        for update in updates:
            total = total + update
        before, state = state, state + total / agents
        for k in range(size):
            exact[k] = sum(int(update * scale) for update in updates[:, k].tolist())
        step = np.array([value / agents / scale for value in exact])
        assert np.linalg.norm((state - before) - step) <= rounding_error(size, rounds, agents, 1.0)
    assert rounding_error(size, rounds, agents, 1.0) < 1e-9


def test_noise_out_of_range_is_refused_at_once() -> None:
    noise = CorrelatedNoise(Factorisation(Temporal.RANDOM_WALK, ROUNDS), 1e-15)
    with pytest.raises(SpecError, match="too little for states"):
        RecordNoise(noise, SIZE, UpdateBound(1e-3, 1e-3, 1000, GradientAt.RELEASED).moved, 1000, 1e-3)
    assert RecordNoise(noise_of("random_walk"), SIZE, None, 1, math.inf).grid is not None  # nothing is proved of it


# On disk


def test_records_and_marks_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "side.sqlite"
    ledger, found = ledger_of(noise_of("banded", 3)), []
    for number, state in enumerate(states()):
        file = SideFile(path, "run", "server-0")
        found.append(ask(side_of(ledger, file), number, state))
        file.close()
    assert path.stat().st_mode & 0o077 == 0
    file = SideFile(path, "run", "server-0")
    assert [record.number for record in file.kept()] == [3, 4, 5]
    for record in file.kept():
        np.testing.assert_array_equal(record.answer, found[record.number])
        np.testing.assert_array_equal(record.state, states()[record.number])
    assert file.round == -1
    file.reached(4)
    file.reached(2)  # a mark only grows
    assert file.round == 4
    file.close()
    file = SideFile(path, "run", "server-0")
    assert file.round == 4
    file.close()
    with pytest.raises(WrongStore, match="of node 'server-0', expected node 'server-1'"):
        SideFile(path, "run", "server-1")


def test_records_of_two_sizes_are_refused() -> None:
    file = SideFile(IN_MEMORY, "run", "server-0")
    for number in range(2):
        file.keep(StreamRecord(number, np.zeros(2 + number), np.zeros(2 + number)), 5)
    with pytest.raises(DataError, match=r"records have \[2, 3\] numbers"):
        file.kept()


def test_a_record_that_cannot_be_kept_is_not_answered(z: np.ndarray) -> None:
    """The disk is full: nothing is said, and the next process draws the record anew."""

    class Full(Kept):
        def keep(self, record: StreamRecord, most: int) -> None:
            raise OSError("no space left")

    ledger, kept = ledger_of(noise_of("random_walk")), Full()
    side = side_of(ledger, kept)
    with pytest.raises(OSError, match="no space"):
        ask(side, 0, states()[0])
    assert ledger.releases == 1
    again = ask(side_of(ledger, Kept()), 0, states()[0])
    np.testing.assert_allclose(again, states()[0] + z[1])
    assert kept.records == []
