"""A guarantee never comes as an epsilon alone."""

from __future__ import annotations

import json
import math

import pytest

from gossamer.privacy import guarantees
from gossamer.privacy.mechanisms import NeighboringRelation


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_the_sentence_names_everything_the_figure_depends_on(relation: NeighboringRelation) -> None:
    guarantee = guarantees.planned(1.25, 1e-5, relation, "composed by PLD", "links are not tapped")
    text = str(guarantee)
    for part in (
        "(1.25, 1e-05)-differential privacy",
        guarantee.unit,
        guarantee.observer,
        relation.value,
        "composed by PLD",
        "timing of messages is not covered",
        "links are not tapped",
    ):
        assert part in text
    assert ("blanking" in text) == (relation is NeighboringRelation.ADD_OR_REMOVE_ONE)


def test_as_data_it_is_json_with_all_parts() -> None:
    guarantee = guarantees.planned(1.25, 1e-5, NeighboringRelation.REPLACE_ONE, "PLD")
    values = json.loads(json.dumps(guarantee.as_dict(), allow_nan=False))
    assert set(values) == {
        "epsilon",
        "delta",
        "mu",
        "best_guess",
        "unit",
        "neighboring_relation",
        "observer",
        "assumptions",
        "proof",
        "remarks",
        "rows_per_person",
    }
    assert values["neighboring_relation"] == "replace_one"


def test_no_guarantee_says_none_and_why() -> None:
    nothing = guarantees.none("privacy: none", NeighboringRelation.ADD_OR_REMOVE_ONE)
    assert math.isinf(nothing.epsilon)
    assert str(nothing) == "Guarantee: none. privacy: none"
    assert nothing.as_dict()["epsilon"] is None
    assert nothing.as_dict()["privacy"] == "none"


@pytest.mark.parametrize(
    ("bound", "digits", "text"),
    [
        (2.77106, 4, "2.772"),
        (4.0, 4, "4"),
        (0.11450001, 3, "0.115"),
        (9.9999, 4, "10"),
        (0.1, 4, "0.1"),
        (0, 4, "0"),
    ],
)
def test_a_bound_is_never_printed_smaller_than_it_is(bound: float, digits: int, text: str) -> None:
    assert guarantees.rounded_up(bound, digits) == text
