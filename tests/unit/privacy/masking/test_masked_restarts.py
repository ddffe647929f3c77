"""An agent behind masks that starts again: it takes no second part in a sum that it has said something secret in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.reference.agent_sides import ChargingMaskedSide
from tests.reference.ledgers import AgentLedger
from tests.unit.sides.test_masked_side import CLIP, NAMES, SIZE, Sum, ask, give_updates, sides

from gossamer.errors import BudgetSpent
from gossamer.privacy.masking import Phase
from gossamer.privacy.tasks import REFUSED, LocalQuery, LocalUpdate, MaskingStep
from gossamer.sides.client import Updates
from gossamer.sides.home import Numbers, numbers_of
from gossamer.sides.machine import NOTHING_PROVIDED, Ticket
from gossamer.sides.samples import ShardRows
from gossamer.vectors import Public


class Kept:
    """A mark that outlives a side, and can fail."""

    def __init__(self) -> None:
        self.round, self.full = -1, False

    def reached(self, round: int) -> None:
        if self.full:
            raise OSError("no space left")
        self.round = round


def deployed(mark: Any = None, agent_noise: float = 0.0, ledger: AgentLedger | None = None) -> ChargingMaskedSide:
    side = sides(agent_noise, rounds=120)["node-0"]
    of, nothing = side.unit, np.arange(0)
    return ChargingMaskedSide("node-0", nothing, None, of, lambda round: NAMES, side.terms, ledger, mark=mark)


def others(agent_noise: float = 0.0) -> dict[str, ChargingMaskedSide]:
    return {name: side for name, side in sides(agent_noise, rounds=120).items() if name != "node-0"}


def test_a_deployed_agent_takes_part_like_a_simulated_one() -> None:
    found = {"node-0": deployed(Kept()), **others()}
    for round in range(2):
        give_updates(found, round)
        total = Sum(found, round).until(5).server.unmask()
        simulated = sides()
        give_updates(simulated, round)
        expected = Sum(simulated, round).until(5).server.unmask()
        np.testing.assert_array_equal(total.values, expected.values)


@pytest.mark.parametrize("said", range(5))
def test_after_a_restart_a_round_is_entered_again_only_if_nothing_secret_was_said(said: int) -> None:
    """The process ends after ``said`` + 1 steps: from the shares on, the round is over for this agent."""
    mark = Kept()
    found = {"node-0": deployed(mark), **others()}
    give_updates(found)
    done = Sum(found).until(said + 1)
    assert mark.round == (0 if said >= Phase.SHARE else -1)
    restarted = {"node-0": deployed(mark)}
    give_updates(restarted)
    again = ask(restarted["node-0"], 0)
    if said >= Phase.SHARE:
        assert again == REFUSED
        for step in range(said + 1):
            assert ask(restarted["node-0"], step, done.asked[step]["node-0"]) == REFUSED
    else:
        assert again != REFUSED != done.answers[0]["node-0"]
        assert again != done.answers[0]["node-0"]  # other keys
    whole = {**restarted, **others()}
    give_updates(whole, round=1)  # the next round is open to it
    assert Sum(whole, round=1).until(5).server.unmask() is not None


def test_the_mark_is_kept_before_the_first_share_is_said() -> None:
    mark = Kept()
    found = {"node-0": deployed(mark), **others()}
    give_updates(found)
    done = Sum(found).until(1)
    mark.full = True
    with pytest.raises(OSError, match="no space"):
        ask(found["node-0"], 1, done.asked[1]["node-0"])
    mark.full = False
    assert ask(found["node-0"], 1, done.asked[1]["node-0"]) != REFUSED  # nothing was said, so it may go on
    assert mark.round == 0


def test_an_older_round_is_refused_after_a_restart() -> None:
    mark = Kept()
    mark.reached(3)
    side = deployed(mark)
    for round in range(5):
        give_updates({"node-0": side}, round)
        assert (ask(side, 0, round=round) == REFUSED) == (round <= 3)


def test_a_charge_stays_when_the_process_ends_before_the_vector_is_sent() -> None:
    mark = Kept()
    ledger = AgentLedger("node-0", sides(0.5)["node-0"].unit.noise, 2)  # type: ignore[arg-type]
    found = {"node-0": deployed(mark, 0.5, ledger), **others(0.5)}
    give_updates(found)
    done = Sum(found).until(2)
    found["node-0"].admit(MaskingStep(0, Phase.MASK, done.asked[2]["node-0"], SIZE, 32))
    assert ledger.releases == 1
    found = {"node-0": deployed(mark, 0.5, ledger), **others(0.5)}
    give_updates(found)
    assert ask(found["node-0"], 2, done.asked[2]["node-0"]) == REFUSED
    assert ledger.releases == 1  # what is refused is not charged
    give_updates(found, round=1)
    Sum(found, round=1).until(5).server.unmask()
    assert ledger.releases == 2
    give_updates(found, round=2)
    done = Sum(found, round=2).until(2)
    with pytest.raises(BudgetSpent, match="covers 2 releases"):
        found["node-0"].admit(MaskingStep(2, Phase.MASK, done.asked[2]["node-0"], SIZE, 32))


def test_secrets_noise_and_samples_are_fresh() -> None:
    """Two processes with the same name, round and update share no key, no mask and no noise."""
    vectors, keys = [], []
    for _ in range(2):
        noise = sides(0.5)["node-0"].unit.noise
        assert noise is not None
        found = {"node-0": deployed(Kept(), 0.5, AgentLedger("node-0", noise, 1)), **others(0.5)}
        give_updates(found)
        done = Sum(found).until(3)
        keys.append(done.answers[0]["node-0"].values.tobytes())
        vectors.append(found["node-0"]._encoded(found["node-0"]._round).tobytes())  # type: ignore[arg-type]
    assert len(set(keys)) == len(set(vectors)) == 2
    task = LocalUpdate(0, Public(np.zeros(SIZE)), LocalQuery(3, 20, 0.1, CLIP))

    def rows(shard: ShardRows, numbers: Numbers) -> np.ndarray:
        nothing: Any = None
        ticket = Ticket(nothing, task, 0, NOTHING_PROVIDED, None)
        drawn: np.ndarray = Updates(nothing, nothing).inputs(ticket, shard, numbers).drawn
        return drawn

    batches = [rows(ShardRows(np.arange(50, 90)), numbers_of(None, "node-0", "sampling")) for _ in range(2)]
    assert batches[0].shape == (3, 20)
    assert ((batches[0] >= 50) & (batches[0] < 90)).all()
    assert batches[0].tolist() != batches[1].tolist()
    whole = ShardRows(np.arange(90))
    fresh, seeded = numbers_of(None, "node-0", "sampling"), numbers_of(4, "node-0", "sampling")
    assert rows(whole, fresh).tolist() != rows(whole, fresh).tolist()
    assert rows(whole, seeded).tolist() == rows(whole, seeded).tolist()


def test_the_noise_of_a_deployed_agent_is_that_of_its_ledger() -> None:
    """Standard deviation of 600 coordinates of one update with noise: within 6 standard errors."""
    noise = sides(0.5)["node-0"].unit.noise
    assert noise is not None
    side = deployed(Kept(), 0.5, AgentLedger("node-0", noise, 10**6))
    drawn = []
    for round in range(120):
        give_updates({"node-0": side}, round)
        side._round.charged = True  # type: ignore[union-attr]
        vector = side._encoded(side._round)  # type: ignore[arg-type]
        drawn += vector.view(np.int32).tolist()
    assert abs(np.std(drawn) / noise.scale - 1) < 6 / np.sqrt(2 * len(drawn))
