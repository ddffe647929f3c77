"""Who may hear what is raw of whom."""

from __future__ import annotations

import pytest

from gossamer.protocol.messages import confidants, may_hear

UNITS = {"a": "s", "b": "s", "s": "s", "c": "t", "t": "t"}
"""Two federated units, whose servers show their agents what they have."""
ALONE = {"a": "s", "b": "s"}
"""Two clients that trust one server, each with its own."""


@pytest.mark.parametrize(
    ("trust", "pairs"),
    [
        (UNITS, {("a", "s"), ("b", "s"), ("s", "s"), ("s", "a"), ("s", "b"), ("c", "t"), ("t", "t"), ("t", "c")}),
        (ALONE, {("a", "s"), ("b", "s")}),
        ({}, set()),
    ],
)
def test_raw_data_go_to_the_head_of_a_scope_and_from_it_if_it_is_inside(
    trust: dict[str, str], pairs: set[tuple[str, str]]
) -> None:
    names = ("a", "b", "c", "s", "t")
    assert {(one, other) for one in names for other in names if may_hear(trust, one, other)} == pairs


@pytest.mark.parametrize("trust", [UNITS, ALONE, {}, {"a": "s", "s": "t"}, {"a": "b", "b": "a"}])
def test_confidants_are_all_whom_it_may_come_to(trust: dict[str, str]) -> None:
    """By hand: whoever hears it, whoever may hear it from them, and so on."""
    names = {*trust, *trust.values(), "z"}
    for name in names:
        found = {name}
        for _ in names:
            found |= {other for one in found for other in names if may_hear(trust, one, other)}
        assert confidants(trust, name) == found


def test_clients_of_one_server_hear_nothing_of_each_other() -> None:
    assert confidants(ALONE, "a") == {"a", "s"}
    assert confidants(UNITS, "a") == {"a", "b", "s"}
