"""Labels of vectors: what every combination gives, and that values never change."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import numba  # noqa: F401  # loaded, so that there are loops
import numpy as np
import pytest

from gossamer.vectors import (
    LARGEST_VALUE,
    Blank,
    Confined,
    Coordinates,
    Masked,
    Part,
    Public,
    Released,
    Vector,
    concatenate,
    pack,
    shifted,
    spread,
    stepped,
    unpack,
)

RAW = np.ndarray
KINDS: dict[type, Callable[[np.ndarray], Any]] = {
    Public: Public,
    Released: Released,
    Masked: Masked,
    Confined: Confined,
    RAW: lambda values: values,
}
# The docstring's rule, pair by pair. Whatever is not here must come out raw.
CLOSED = {
    (Public, Public): Public,
    (Public, Released): Released,
    (Released, Public): Released,
    (Released, Released): Released,
    (Confined, Confined): Confined,
    (Confined, Public): Confined,
    (Public, Confined): Confined,
    (Confined, Released): Confined,
    (Released, Confined): Confined,
}
PAIRS = [(left, right) for left in KINDS for right in KINDS if (left, right) != (RAW, RAW)]


def make(kind: type, *values: float) -> Any:
    return KINDS[kind](np.array(values, np.float32))


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_label_of_every_pair(left: type, right: type) -> None:
    for combine in [operator.add, operator.sub]:
        result = combine(make(left, 5, 7), make(right, 1, 2))
        assert type(result) is CLOSED.get((left, right), RAW)
        values = result.values if isinstance(result, Vector) else result
        assert values.tolist() == combine(np.array([5.0, 7.0]), np.array([1.0, 2.0])).tolist()


@pytest.mark.parametrize(("kind", "label"), [(Public, Public), (Released, Released), (Masked, RAW)])
def test_scaling_keeps_label_and_float32(kind: type, label: type) -> None:
    for factor in [2, 2.0, np.float64(2), np.float32(2), np.int64(2)]:
        for result in (make(kind, 1, 2) * factor, factor * make(kind, 1, 2), make(kind, 4, 8) / factor):
            assert type(result) is label
            values = result.values if isinstance(result, Vector) else result
            assert values.dtype == np.float32
            assert values.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("kind", [Public, Released, Masked])
def test_vector_is_no_coefficient(kind: type) -> None:
    for factor in (make(kind, 1, 2), np.ones(2)):
        with pytest.raises(TypeError, match="scaled by a number"):
            make(kind, 1, 2) * factor
        with pytest.raises(TypeError, match="scaled by a number"):
            factor * make(kind, 1, 2)


@pytest.mark.parametrize("kind", [Public, Released, Masked])
def test_combines_with_vectors_only(kind: type) -> None:
    for other in (1.0, [1.0, 2.0], None):
        with pytest.raises(TypeError, match="combines with vectors"):
            make(kind, 1, 2) + other


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_shifted_model_is_the_sum_to_the_bit(dtype: type) -> None:
    for labels in list(product((Public, Released), repeat=3)):
        drawn = np.random.default_rng(0).normal(size=(3, 57)).astype(dtype)
        model, start, end = (label(row.copy()) for label, row in zip(labels, drawn, strict=True))
        found = shifted(model, start, end, 0.3)
        assert found == model + (end - start) * 0.3
        with pytest.raises(ValueError, match="read-only"):
            found.values[0] = 1.0
        blank: Any = Public(Blank(3, dtype))
        assert shifted(blank, blank, blank, 0.3) == blank


def test_only_models_of_one_size_are_shifted() -> None:
    model, raw = Public(np.ones(3)), np.ones(3)
    for other in (Confined(raw.copy()), Masked(raw.copy()), raw):
        for three in ((model, model, other), (model, other, model), (other, model, model)):
            with pytest.raises((TypeError, AttributeError)):
                shifted(*three, 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="combines with its like"):
        shifted(model, Public(np.ones(1)), Public(np.ones(1)), 0.5)


def test_what_was_found_within_a_bound_is_within_none_that_is_smaller() -> None:
    vector = Public(np.array([5.0, -3.0]))
    assert vector.is_within()
    assert vector.is_within(6.0)
    assert vector.is_within()
    assert not vector.is_within(4.0)
    assert vector.within(4.0).values.tolist() == [4.0, -3.0]
    assert vector.is_within()
    large = Public(np.array([2 * LARGEST_VALUE]))
    assert large.is_within(3 * LARGEST_VALUE)
    assert not large.is_within()


@pytest.mark.parametrize("kind", [Public, Released, Masked])
def test_slice_keeps_label(kind: type) -> None:
    assert make(kind, 1, 2, 3)[1:] == make(kind, 2, 3)
    with pytest.raises(TypeError, match="slice"):
        make(kind, 1, 2, 3)[0]


@pytest.mark.parametrize("kind", [Public, Released, Masked])
def test_values_are_frozen(kind: type) -> None:
    values = np.array([1.0, 2.0])
    vector = KINDS[kind](values)
    for array in (vector.values, values, vector[:1].values):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9.0


@pytest.mark.parametrize("kind", [Public, Released, Masked])
def test_row_of_a_buffer_does_not_follow_the_buffer(kind: type) -> None:
    buffer = np.zeros((2, 3))
    vector = KINDS[kind](buffer[0])
    buffer[:] = 7.0
    assert vector.values.tolist() == [0.0, 0.0, 0.0]
    assert not np.shares_memory(vector.values, buffer)


def test_slice_shares_memory() -> None:
    vector = make(Released, 1, 2, 3)
    assert np.shares_memory(vector[1:].values, vector.values)


@pytest.mark.parametrize("values", [np.zeros((2, 2)), np.array(1.0), [1.0], 1.0, None])
def test_refuses_what_is_no_flat_vector(values: Any) -> None:
    with pytest.raises(TypeError, match="flat vector"):
        Released(values)


def test_in_place_operators_make_new_vectors() -> None:
    vector = first = make(Released, 1, 2)
    vector += make(Public, 1, 1)
    vector *= 2
    assert first.values.tolist() == [1.0, 2.0]
    assert vector == make(Released, 4, 6)


def test_equality_is_of_label_dtype_and_bits() -> None:
    nan = np.array([np.nan], np.float32)
    assert Released(nan.copy()) == Released(nan.copy())
    assert make(Released, 0.0) != make(Released, -0.0)
    assert make(Released, 1) != make(Public, 1)
    assert make(Released, 0) != Released(np.zeros(1, np.int32))
    assert make(Released, 1) != Released(np.ones(2, np.float32))
    assert make(Released, 1) != Released(Blank(1))
    assert Released(Blank(1)) == Released(Blank(1))


def test_vectors_are_unhashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(make(Public, 1))


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_blank_has_the_label_size_and_dtype_of_the_real_thing(left: type, right: type) -> None:
    for combine in [operator.add, operator.sub]:
        for dtypes in [(np.float32, np.float32), (np.float32, np.float64)]:
            real = combine(*(KINDS[kind](np.zeros(3, dtype)) for kind, dtype in zip((left, right), dtypes)))
            blank = combine(*(KINDS[kind](Blank(3, dtype)) for kind, dtype in zip((left, right), dtypes)))  # type: ignore[arg-type]
            assert type(blank) is (Blank if type(real) is RAW else type(real))
            assert (blank.size, blank.nbytes) == (real.size, real.nbytes)


def test_blank_scales_slices_and_concatenates_like_the_real_thing() -> None:
    def results(values: Any) -> list[Any]:
        vector = Released(values)
        return [vector * 2.0, 0.5 * vector, vector / 3, vector[2:9:2], vector[:-1], concatenate([vector, vector])]

    for real, blank in zip(results(np.ones(10, np.float32)), results(Blank(10))):
        assert type(blank) is Released
        assert isinstance(blank.values, Blank)
        assert (blank.size, blank.nbytes, blank.values.shape) == (real.size, real.nbytes, real.values.shape)
    assert type(Masked(Blank(3)) * 2) is Blank


def test_blank_refuses_another_size_as_arrays_do() -> None:
    for make_values in (Blank, np.ones):
        with pytest.raises(ValueError, match="3"):
            Released(make_values(3)) + Released(make_values(4))


def test_concatenate_labels() -> None:
    public, released, masked = make(Public, 1), make(Released, 2), make(Masked, 3)
    assert concatenate([public, public]) == make(Public, 1, 1)
    assert concatenate([public, released]) == make(Released, 1, 2)
    with pytest.raises(TypeError, match="are concatenated"):
        concatenate([released, masked])
    with pytest.raises(TypeError, match="are concatenated"):
        concatenate([released, np.ones(1)])  # type: ignore[type-var]


def test_pack_and_unpack_are_inverse() -> None:
    parts = [Part("weight", (2, 3)), Part("bias", (2,)), Part("scale", ())]
    arrays = {"weight": np.arange(6).reshape(2, 3), "bias": np.array([6, 7]), "scale": np.array(8)}
    vector = pack(arrays, parts, np.float32)
    assert vector.dtype == np.float32
    assert vector.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    back = unpack(vector, parts)
    assert all(np.array_equal(back[name], arrays[name]) for name in arrays)
    assert all(np.shares_memory(array, vector) for array in back.values())


def test_pack_and_unpack_refuse_other_shapes() -> None:
    parts = [Part("weight", (2, 3))]
    with pytest.raises(ValueError, match=r"weight.*\(2, 3\).*\(3, 2\)"):
        pack({"weight": np.zeros((3, 2))}, parts, np.float32)
    with pytest.raises(ValueError, match=r"6 numbers.*\(5,\)"):
        unpack(np.zeros(5), parts)


# Coordinates


@pytest.mark.parametrize("size", range(1, 8))
def test_the_parts_of_a_step_make_up_the_whole(size: int) -> None:
    whole = Released(np.arange(1.0, size + 1))
    for step in range(1, 5):
        parts = [Coordinates(first, step) for first in range(step)]
        assert [part.count(size) for part in parts] == [len(range(size)[part.slice]) for part in parts]
        together = sum(
            (spread(whole[part.slice], part, size) for part in parts[1:]), spread(whole[::step], parts[0], size)
        )
        assert together == whole


def test_spreading_keeps_label_and_dtype() -> None:
    for vector in (Public(np.ones(2, np.float32)), Released(np.ones(2)), Masked(np.ones(2))):
        spreaded = spread(vector, Coordinates(1, 2), 4)
        assert type(spreaded) is type(vector)
        assert spreaded.values.dtype == vector.values.dtype
        np.testing.assert_array_equal(spreaded.values, [0, 1, 0, 1])
    blank = spread(Released(Blank(2, np.float64)), Coordinates(0, 3), 5)
    assert (type(blank), blank.size, blank.values.dtype) == (Released, 5, np.float64)
    assert isinstance(blank.values, Blank)


def test_all_coordinates_are_the_vector_itself() -> None:
    vector = Released(np.ones(3))
    assert spread(vector, Coordinates(), 3) is vector


@pytest.mark.parametrize("count", [1, 3])
def test_only_a_vector_of_these_coordinates_is_spread(count: int) -> None:
    with pytest.raises(ValueError, match="are 2, found a vector of"):
        spread(Released(np.ones(count)), Coordinates(0, 2), 4)


@pytest.mark.parametrize(("first", "step"), [(-1, 2), (2, 2), (0, 0)])
def test_coordinates_that_do_not_exist_are_refused(first: int, step: int) -> None:
    with pytest.raises(ValueError, match="first < step"):
        Coordinates(first, step)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_entries_beyond_the_largest_are_taken_for_it(dtype: type) -> None:
    most = dtype(LARGEST_VALUE)
    values = np.array([0, 1, -2e12, np.inf, -np.inf, np.nan, 3e38, 1e12], dtype)
    vector = Released(values)
    assert not vector.is_within()
    kept = vector.within()
    assert type(kept) is Released
    assert kept.values.dtype == dtype
    assert kept.values.tolist() == [0, 1, -most, most, -most, 0, most, most]
    assert kept.is_within()
    assert kept.within() is kept
    assert Confined(values).within(2.0).values.tolist() == [0, 1, -2, 2, -2, 0, 2, 2]


@pytest.mark.parametrize("size", [1, 5, 100_000])
def test_one_bad_entry_is_seen_wherever_it_is(size: int) -> None:
    for bad in [1.0001e12, -1.0001e12, 3e38, np.inf, -np.inf, np.nan]:
        for dtype in (np.float32, np.float64):
            for place in {0, size // 2, size - 1}:
                values = np.full(size, 1e12, dtype)
                assert Public(values).is_within()
                values = np.full(size, -1e12, dtype)
                values[place] = bad
                assert not Public(values).is_within()


def test_vectors_without_entries_or_without_values_are_within_any_bound() -> None:
    for vector in (Public(np.zeros(0)), Public(Blank(3))):
        assert vector.is_within(0.0)
        assert vector.within() is vector


def test_bounds_hold_for_integers_too() -> None:
    """Whose squares would wrap around."""
    assert not Masked(np.array([255, 0], np.uint8)).is_within(16.0)
    assert Masked(np.array([255, 0], np.uint8)).is_within(255.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_loops_round_as_the_operators_do(size: int, dtype: type) -> None:
    """Of equal sizes and types; of others the operators say what is wrong, or what comes of it."""
    draw = np.random.default_rng(size)
    a, b, c = (kind(draw.normal(0, 1e3, size).astype(dtype)) for kind in (Public, Released, Public))
    assert shifted(a, b, c, 0.3) == a + (c - b) * 0.3
    assert stepped(a, b, -0.7) == a + b * -0.7
    wider = Public(draw.normal(size=size))
    assert shifted(wider, b, a, 0.3) == wider + (a - b) * 0.3
    strided = Public(np.repeat(c.values, 2)[::2])
    assert shifted(a, b, strided, 0.3) == a + (c - b) * 0.3
    with pytest.raises((ValueError, TypeError)):
        stepped(a, Released(np.zeros(size + 2, dtype)), 0.1)
    with pytest.raises(TypeError):
        shifted(a, Confined(np.zeros(size, dtype)), c, 0.1)


@pytest.mark.parametrize("bad", [1e13, -1e13, np.inf, np.nan])
def test_a_step_ends_within_bounds(bad: float) -> None:
    start, move = Public(np.ones(3, np.float32)), Released(np.array([1.0, bad, 2.0], np.float32))
    assert stepped(start, move, 1.0) == (start + move).within()
    assert not shifted(start, start, move, 1.0).is_within()


def test_arrays_of_a_population_are_held_within_the_bounds_of_vectors() -> None:
    """The compiled loop has no vectors, so it says once more what becomes of entries that are too large or NaN."""
    from gossamer.algorithms.population import hold

    large = np.float32(LARGEST_VALUE)
    for entries in ([1.0, -2.0, large], [np.nan, 3.0], [np.inf, -np.inf, np.nan], [2 * large, -2 * large, 0.5]):
        values = np.array(entries, np.float32)
        expected = Public(values.copy()).within().values
        with np.errstate(over="ignore"):
            square = float(np.sum(values * values))
        hold(values, square)
        assert values.tobytes() == expected.tobytes()
