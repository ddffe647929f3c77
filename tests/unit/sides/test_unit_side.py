"""Data sides of federated units: what is charged, drawn once, and confined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gossamer.data.examples import Split
from gossamer.errors import BudgetSpent, SpecError
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, NoiseState, NoiseStream
from gossamer.privacy.tasks import LocalQuery, LocalUpdate
from gossamer.protocol.effects import Release
from gossamer.randomness import Stream as Generators
from gossamer.randomness import stream
from gossamer.sides.home import Simulated
from gossamer.sides.machine import Ticket
from gossamer.sides.plan import ClientUpdate, StreamPlan
from gossamer.sides.pool import Pool, open_pool
from gossamer.sides.samples import ShardRows
from gossamer.vectors import Confined, Public, Released

SIZE, SEED, RECORDS = 3, 5, 4
WALK = CorrelatedNoise(Factorisation("random_walk", RECORDS), 2.0)


def stream_of(noise: CorrelatedNoise | None = WALK) -> StreamPlan:
    return StreamPlan(noise, RECORDS, SIZE, None, 1, np.inf, ("a", "b"))


class Unit:
    """The data side of a server alone."""

    def __init__(self, noise: CorrelatedNoise | None = WALK) -> None:
        nothing = Split(np.zeros((0, SIZE), np.float32), np.zeros(0))
        objective = LinearModel("squared", SIZE, None, intercept=False, dtype=np.float64)
        self.pool = open_pool({"server-0": stream_of(noise)}, {}, objective, nothing, Simulated(SEED))
        (self.ledger,) = self.pool.ledgers

    def admit(self, effect: Release) -> Ticket:
        return self.pool.admit("server-0", effect)


def unit(noise: CorrelatedNoise | None = WALK) -> Unit:
    return Unit(noise)


def state(value: float, dtype: Any = np.float64) -> Confined:
    return Confined(np.full(SIZE, value, dtype))


def ask(side: Unit, record: int, vector: Any) -> Released:
    (found,) = side.pool.compute([side.admit(Release(record, vector))])
    answer = found.released
    assert type(answer) is Released
    return answer


def test_records_are_the_streams_and_are_charged_one_by_one() -> None:
    side, expected, family = unit(), NoiseStream(WALK, SIZE), Generators(SEED, "server-0", "noise")
    walked = NoiseState()
    for record in range(RECORDS):
        found = ask(side, record, state(10.0 * record))
        noise, walked = expected.draw(walked, family.at(record))
        np.testing.assert_array_equal(found.values, 10.0 * record + noise)
        assert side.ledger.releases == record + 1
    with pytest.raises(BudgetSpent, match="covers 4 releases"):
        side.admit(Release(RECORDS, state(0.0)))
    assert side.ledger.releases == RECORDS


def test_the_last_record_asked_for_again_is_the_same_bytes_and_free() -> None:
    side = unit()
    ask(side, 0, state(1.0))
    first = ask(side, 1, state(2.0))
    assert ask(side, 1, state(2.0)) == first
    assert side.ledger.releases == 2


def test_a_record_is_not_drawn_for_two_states() -> None:
    side = unit()
    ask(side, 0, state(1.0))
    with pytest.raises(SpecError, match="its noise is used once"):
        ask(side, 0, state(1.5))


@pytest.mark.parametrize("record", [1, -1, 7])
def test_records_come_in_order(record: int) -> None:
    side = unit()
    with pytest.raises(SpecError, match="the next record is 0"):
        side.admit(Release(record, state(1.0)))
    assert side.ledger.releases == 0
    ask(side, 0, state(1.0))
    ask(side, 1, state(1.0))
    with pytest.raises(SpecError, match="the next record is 2"):
        side.admit(Release(0, state(1.0)))


def test_a_charge_without_an_answer_is_answered_later() -> None:
    """A crash between the two over-counts nothing and draws nothing twice."""
    side = unit()
    side.admit(Release(0, state(1.0)))
    assert side.ledger.releases == 1
    found = ask(side, 0, state(1.0))
    assert side.ledger.releases == 1
    assert ask(side, 0, state(1.0)) == found


def test_without_noise_a_state_is_released_as_it_is_and_counted() -> None:
    side = unit(None)
    assert ask(side, 0, state(3.0)) == Released(np.full(SIZE, 3.0))
    assert side.ledger.releases == 1


def test_a_state_out_of_range_saturates() -> None:
    found = ask(unit(), 0, state(np.inf, np.float32)).values
    assert found.dtype == np.float32
    assert (found == np.finfo(np.float32).max).all()


def test_the_ledger_has_a_line_for_each_agent() -> None:
    side = unit()
    ask(side, 0, state(0.0))
    lines = side.ledger.lines()
    assert [(line["node"], line["unit"], line["releases"]) for line in lines] == [
        ("a", "server-0", 1),
        ("b", "server-0", 1),
    ]
    assert lines[0]["temporal"] == "random_walk"
    assert lines[0]["records"] == RECORDS


def sides() -> Pool:
    generator = stream(0, "examples")
    data = Split(
        generator.standard_normal((20, SIZE)).astype(np.float32), generator.standard_normal(20).astype(np.float32)
    )
    objective = LinearModel("squared", SIZE, None, intercept=False, l2=0.1, dtype=np.float64)
    plans = {"server-0": stream_of(), "a": ClientUpdate(), "b": ClientUpdate()}
    shards = {"a": ShardRows(np.arange(10)), "b": ShardRows(np.arange(10, 20))}
    return open_pool(plans, shards, objective, data, Simulated(SEED))


def task(round: int = 0, start: float = 0.0) -> LocalUpdate:
    return LocalUpdate(round, Public(np.full(SIZE, start)), LocalQuery(3, 4, 0.5, 1.0))


def test_updates_are_confined_and_cost_nothing() -> None:
    computer = sides()
    tickets = [
        computer.admit("a", task()),
        computer.admit("server-0", Release(0, state(1.0))),
        computer.admit("b", task()),
    ]
    found = computer.compute(tickets)
    assert [type(answer.released) for answer in found] == [Confined, Released, Confined]
    assert all(0 < np.linalg.norm(found[i].released.values) <= 0.5 for i in (0, 2))
    assert computer.releases("a") == computer.releases("b") == computer.releases("server-0") == 1


def test_a_round_has_its_own_coins() -> None:
    """The same again for the same round, others for another round or another agent."""
    computer = sides()

    def update(agent: str, round: int) -> bytes:
        (answer,) = computer.compute([computer.admit(agent, task(round))])
        return answer.released.values.tobytes()

    assert update("a", 3) == update("a", 3)
    assert len({update("a", 3), update("a", 4), update("b", 3)}) == 3
    rows = computer.sides["b"].draw(computer.admit("b", task(3))).drawn
    assert rows.shape == (3, 4)
    assert set(rows.flat) <= set(range(10, 20))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 1, 0.5, 1.0), "steps must be a whole number > 0"),
        ((1, 0, 0.5, 1.0), "batch must be a whole number > 0"),
        ((1, 1, 0.0, 1.0), "rate must be a finite number > 0"),
        ((1, 1, np.inf, 1.0), "rate must be a finite number > 0"),
        ((1, 1, 0.5, 0.0), "clip must be a positive number"),
        ((1, 1, 0.5, np.nan), "clip must be a positive number"),
    ],
)
def test_queries_out_of_range(values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        LocalQuery(*values)


def test_units_have_no_rounds_to_amend() -> None:
    computer = sides()
    ticket = computer.admit("a", task())
    with pytest.raises(SpecError, match="no rounds"):
        computer.amended(ticket, task())
