"""State that an algorithm keeps outside of its nodes' states is found by the contract, wherever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gossamer.algorithms.gossip import box as gossip
from gossamer.protocol.effects import Effect, Record
from gossamer.protocol.node import Node
from gossamer.testing.contracts import AlgorithmContract

Count = Callable[[Any], int]


def of_the_node(node: Any) -> int:
    node.hidden = getattr(node, "hidden", 0) + 1
    return int(node.hidden)


def of_the_class(node: Any) -> int:
    type(node).hidden = getattr(type(node), "hidden", 0) + 1
    return int(type(node).hidden)


NUMBERS = {"of a module": 0}


def of_the_module(node: Any) -> int:
    NUMBERS["of a module"] += 1
    return NUMBERS["of a module"]


def of_the_state(node: Any) -> int:
    return int(node.state.updates)


def contract(count: Count) -> AlgorithmContract:
    """Of gossip whose nodes write down a number with everything that they do."""

    class Counting(AlgorithmContract):
        settings = gossip.Settings(nodes=4, topology="complete")

        def nodes(self, **options: Any) -> dict[str, Node]:
            found = super().nodes(**options)
            NUMBERS.clear()
            NUMBERS["of a module"] = 0  # as one does who has seen two runs differ
            kind = type(found["node-0"])

            def handle(node: Any, event: Any, now: float) -> list[Effect]:
                return [*kind.handle(node, event, now), Record("count", count(node))]

            noting = type("Noting", (kind,), {"handle": handle})
            for node in found.values():
                node.__class__ = noting
            return found

    return Counting()


@pytest.mark.parametrize("count", [of_the_node, of_the_class, of_the_module])
def test_what_changes_outside_of_the_state_is_found(count: Count) -> None:
    """The runs themselves are the same each time."""
    found = contract(count)
    with pytest.raises(AssertionError, match=r"effects of node-. on .* that follow from its state alone"):
        found.test_all_that_changes_is_in_the_state()


def test_what_is_in_the_state_is_none() -> None:
    contract(of_the_state).test_all_that_changes_is_in_the_state()
