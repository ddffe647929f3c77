"""Snapshots as bytes: what is in a value twice is one object again, and other bytes are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import MalformedMessage
from gossamer.privacy.mechanisms import Gaussian, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.protocol.encoding import encode
from gossamer.protocol.snapshots import Kept, Reference, decode_snapshot, encode_snapshot, kept_whole, restore
from gossamer.vectors import Confined, Public


def encoded(value: object) -> bytes:
    return b"".join(encode_snapshot(value))


def test_what_is_there_twice_is_written_once_and_one_object_again() -> None:
    model = Public(np.arange(1000.0))
    query = Query(Poisson(0.5), Gaussian(1.0, 2.0), 3.0)
    value = {("a", 1): [Gradient(1, model, query), Gradient(2, model, query)], "model": model, "none": None}
    data = encoded(value)
    assert model.nbytes < len(data) < 2 * model.nbytes
    found = decode_snapshot(data)
    assert encode(found) == encode(value)
    first, second = found["a", 1]
    assert first.model is second.model is found["model"]
    assert first.query is second.query


_LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text() | st.binary()
_VALUES = st.recursive(
    _LEAVES | st.builds(lambda numbers: Confined(np.array(numbers)), st.lists(st.floats(), max_size=3)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.tuples(st.integers(0, 9), st.text()), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(_VALUES)
def test_a_value_comes_back(value: object) -> None:
    assert encode(decode_snapshot(encoded(value))) == encode(value)


@given(_VALUES, st.data())
def test_other_bytes_give_a_value_or_are_refused(value: object, data: st.DataObject) -> None:
    changed = bytearray(encoded([value, Query(Poisson(0.5), Gaussian(1.0, 2.0), 3.0)]))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedMessage):
        decode_snapshot(bytes(changed))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (7, "expected a value and a table"),
        ((7, []), None),
        (({None: 0}, []), "expected the place of an object before it, found 0"),
        (({None: -1}, [Public(np.zeros(1))]), "expected the place of an object before it, found -1"),
        ((0, [["query", {None: 0}]]), "expected the place of an object before it, found 0"),
        ((0, [7]), "expected vectors and objects in the table, found int"),
        ((0, [[]]), "expected the name of a type, found NoneType"),
        ((0, [["nobody"]]), "unknown type 'nobody'"),
        ((0, [["query", 1]]), "query has 5 fields, found 1"),
        ((0, [["query", 1, 2, "x", 4, 5]]), "query: "),
    ],
)
def test_tables_that_are_none_are_refused(value: object, what: str | None) -> None:
    if what is None:
        assert decode_snapshot(encode(value)) == 7
        return
    with pytest.raises(MalformedMessage, match=what):
        decode_snapshot(encode(value))


@dataclass
class Unknown:
    number: int


def test_what_has_no_encoding_is_refused() -> None:
    with pytest.raises(TypeError, match="no encoding for Unknown; register it or keep something plainer"):
        encoded([Unknown(3)])
    with pytest.raises(TypeError, match="None is no key of a dict in a snapshot"):
        encoded({None: 3})


class Bell(Kept):
    changing = ("rung",)
    acts = ("ring",)

    def __init__(self, rung: int = 0) -> None:
        self.rung = rung

    def ring(self) -> None:
        self.rung += 1

    def forge(self) -> None: ...


@kept_whole
class Rope(NamedTuple):
    bell: Bell
    length: float


class Tower(Kept):
    changing = ("bells", "ropes", "due", "seen")

    def __init__(self) -> None:
        self.bells = {"great": Bell(1), "little": Bell(2)}
        self.ropes: list[Rope] = []
        self.due: list[tuple[int, Callable[[], None]]] = []
        self.seen = {"b", "a"}


def test_parts_are_set_back_where_they_stand_and_values_hold_them() -> None:
    tower, back = Tower(), Tower()
    great, little = tower.bells.values()
    tower.ropes, tower.seen = [Rope(great, 2.5), Rope(great, 3.5)], {"c"}
    tower.due = [(3, great.ring), (4, little.ring)]
    great.ring()
    bells = back.bells["great"], back.bells["little"]
    restore(back, decode_snapshot(encoded(tower), back))
    assert (*back.bells.values(),) == bells
    assert back.seen == {"c"}
    assert back.ropes == [Rope(bells[0], 2.5), Rope(bells[0], 3.5)]
    for _, ring in back.due:
        ring()
    assert [bell.rung for bell in bells] == [3, 3]


def test_what_is_no_part_or_no_act_is_refused_on_both_sides() -> None:
    tower = Tower()
    for wrong in (Rope(Bell(), 1.0), tower.bells["great"].forge, Bell().ring):
        tower.due = [(1, wrong)]
        with pytest.raises(TypeError, match="expected a part of the run"):
            encoded(tower)
    for wrong in ([3], ["1"], [-1], [True], [1, "forge"], [1, "__init__"], [0, "ring"]):
        act = [*wrong, None][:2]
        data = encode(({None: 0}, [["gossamer.protocol.snapshots.Reference", *act]]))
        with pytest.raises(MalformedMessage, match=r"expected a (part of 0 to 2|method of (Bell|Tower)), found"):
            decode_snapshot(data, Tower())
        assert decode_snapshot(data) == Reference(*act)
