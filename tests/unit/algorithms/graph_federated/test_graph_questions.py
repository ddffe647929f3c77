"""The nodes of a unit that masks, where agents are asked different things, or too much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.unit.algorithms.graph_federated.test_graph_masking import unit

from gossamer.protocol.effects import Record


def test_an_agent_that_was_asked_something_else_is_left_out() -> None:
    """It says so itself, or its server has lost its mind: the others refuse a list with it on, so it is on none."""
    found = unit(rounds=1)
    odd = found.sides["node-2"]
    odd.terms = replace(odd.terms, agreed=b"another spec")
    found.run()
    ((_, total, names),) = found.sums
    assert names == ("node-0", "node-1", "node-3")
    np.testing.assert_array_equal(total, found.plain(0, names))
    assert found.server.state.unanswered == 1


def test_an_agent_that_refuses_a_model_is_out_of_that_sum_alone() -> None:
    """It withdraws, as where its data side will not say something else; with nobody left the round has no sum."""
    found = unit(rounds=2)
    far = found.sides["node-1"]
    everybody, far.terms = far.terms, replace(far.terms, radius=-1.0)
    while found.server.state.round == 0:
        found.step()
    far.terms = everybody
    found.run()
    assert [names for _, _, names in found.sums] == [("node-0", "node-2", "node-3"), found.names]
    assert found.server.state.unanswered == 1
    nobody = unit(rounds=1)
    for side in nobody.sides.values():
        side.terms = replace(side.terms, radius=-1.0)
    nobody.run()
    assert nobody.sums == [(0, None, ())]
    assert nobody.records == [Record("masked_sum_refused", 0.0)]
    assert nobody.server.w.values.tolist() == nobody.initial.values.tolist()
    assert (found.server.rounds_made, nobody.server.rounds_made) == ((2, 0, 2), (0, 1, 1))


def test_below_the_minimum_of_agents_who_were_asked_the_same_there_is_no_sum() -> None:
    found = unit(rounds=1)
    for name in ("node-1", "node-2"):
        found.sides[name].terms = replace(found.sides[name].terms, agreed=b"another spec")
    found.run()
    assert found.sums == [(0, None, ())]
    assert found.server.state.unanswered == 4
    assert found.records == [Record("masked_sum_refused", 2.0)]
