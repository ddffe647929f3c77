"""Flat parameter vectors, and labels that say what may be done with their values.

| label | what it holds | may be sent |
|---|---|---|
| `Public` | computed from public information only | yes |
| `Released` | went through a mechanism and has a receipt in a ledger | yes |
| `Masked` | one share of a secure sum, uniform on its own | yes |
| `Confined` | raw data of a unit of nodes that trust each other with it | inside the unit only |
| a bare ndarray | raw: may depend on data in any way | never |

`Released` is closed under post-processing: sums, differences and slices of `Public` and `Released`
vectors, scaled by numbers that are themselves public or released. Combining anything with a raw array gives
a raw array, and the sum of `Masked` vectors is raw, because it is what the masks were hiding. `Confined` with anything
that may be sent is `Confined`: the runtime lets no such vector leave its unit.

Values are never changed in place: a label freezes the array it is given, or its own copy of a view into an
array that others may write to.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray as FloatArray

LARGEST_VALUE = 1e12
"""Most absolute value of an entry that is sent or accepted.

Far above what training meets, and so far below the largest float32 that what follows stays finite: sums of a million
vectors, and squared norms of any. A model that goes beyond it has diverged; its entries are then taken for this.
"""


class Blank:
    """A vector with a size and no values, for runs that need only the schedule.

    Arithmetic between blanks, and with numbers, gives a blank of the same size, of the dtype that arrays would
    give.
    """

    __array_ufunc__ = None
    __slots__ = ("dtype", "size")

    def __init__(self, size: int, dtype: npt.DTypeLike = np.float32) -> None:
        self.size = size
        self.dtype = np.dtype(dtype)

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __getitem__(self, index: slice) -> Blank:
        return Blank(len(range(*index.indices(self.size))), self.dtype)

    def astype(self, dtype: npt.DTypeLike) -> Blank:
        return Blank(self.size, dtype)

    def joined(self, parts: Sequence[Any]) -> Blank:
        """Return what ``parts``, of which this is the first, are one after the other."""
        return Blank(sum(part.size for part in parts), self.dtype)

    def mixed(self, others: Sequence[Any], shares: Sequence[float]) -> Blank:
        """Return it + sum of (other - it) * share."""
        return sum(((other - self) * share for other, share in zip(others, shares, strict=True)), self)

    def _combine(self, other: Any) -> Any:
        if isinstance(other, Vector):
            return NotImplemented  # its label decides
        dtype = getattr(other, "dtype", self.dtype)
        return self if dtype == self.dtype else Blank(self.size, np.result_type(self.dtype, dtype))

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _combine

    def __eq__(self, other: object) -> bool:
        return type(other) is Blank and self.size == other.size and self.dtype == other.dtype


Values = Any  # an ndarray [size] or a Blank; the two answer to the same operators


class Vector:
    """Base of the labelled vectors, [size]; use a subclass.

    ``Released`` and ``Masked`` are made by a data side (or decoded from a peer); an algorithm only combines
    what it was given.

    Attributes
    ----------
    values : ndarray or Blank
        Its numbers, [size].
    bounded : bool
        Whether it is known that no entry is above `LARGEST_VALUE` in absolute value, or NaN.
    """

    __array_ufunc__ = None  # ndarray + Vector must come to us, not be taken apart element by element
    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("bounded", "values")

    def __init__(self, values: Values) -> None:
        if isinstance(values, np.ndarray):
            if values.ndim != 1:
                raise TypeError(f"{type(self).__name__} holds a flat vector, found shape {values.shape}")
            if values.base is not None and values.flags.writeable:
                values = values.copy()  # whoever holds the base could change it
            values.setflags(write=False)
        elif not isinstance(values, Blank):
            raise TypeError(f"{type(self).__name__} holds a flat vector, found {type(values).__name__}")
        self.values = values
        self.bounded = False

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return int(self.values.size)

    @property
    def nbytes(self) -> int:
        """Bytes of the values alone."""
        return int(self.values.nbytes)

    def __add__(self, other: Any) -> Any:
        label = _LABELS.get((type(self), type(other)))
        if label is None or self.values.size != other.values.size:
            return self.values + _values(other, self)
        return labelled(label, self.values + other.values)

    def __radd__(self, other: Any) -> Any:
        return labelled(_join(self, other), _values(other, self) + self.values)

    def __sub__(self, other: Any) -> Any:
        label = _LABELS.get((type(self), type(other)))
        if label is None or self.values.size != other.values.size:
            return self.values - _values(other, self)
        return labelled(label, self.values - other.values)

    def __rsub__(self, other: Any) -> Any:
        return labelled(_join(self, other), _values(other, self) - self.values)

    def __mul__(self, factor: float) -> Any:
        product = self.values * (factor if type(factor) is float else _number(factor))
        return product if isinstance(self, Masked) else labelled(type(self), product)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Any:
        quotient = self.values / _number(divisor)
        return quotient if isinstance(self, Masked) else labelled(type(self), quotient)

    def __getitem__(self, index: slice) -> Self:
        if not isinstance(index, slice):
            raise TypeError(f"take a slice of a {type(self).__name__}, found index {index!r}")
        return type(self)(self.values[index])

    def astype(self, dtype: npt.DTypeLike) -> Self:
        """The same vector in another floating-point type; what is out of its range saturates."""
        values, wanted = self.values, np.dtype(dtype)
        if values.dtype == wanted:
            return self
        if isinstance(values, Blank):
            return type(self)(values.astype(wanted))
        if wanted.itemsize < values.dtype.itemsize:
            most = np.finfo(wanted).max
            values = np.clip(values, -most, most)
        return type(self)(values.astype(wanted))

    def is_within(self, most: float = LARGEST_VALUE) -> bool:
        """Whether no entry is above ``most`` in absolute value, or NaN."""
        if self.bounded and most >= LARGEST_VALUE:
            return True
        values = self.values
        if isinstance(values, Blank) or values.size == 0:
            return True
        # The sum of squares in a single pass, nearly always; `vdot` does not warn where it overflows.
        found = values.dtype.kind == "f" and float(np.vdot(values, values)) <= most * most
        found = found or (-most <= float(values.min()) and float(values.max()) <= most)
        self.bounded = found and most <= LARGEST_VALUE  # values never change
        return found

    def within(self, most: float = LARGEST_VALUE) -> Self:
        """The same vector, with entries beyond ``most`` taken for it, and NaN for 0."""
        if (self.bounded and most >= LARGEST_VALUE) or self.is_within(most):
            return self
        return type(self)(np.clip(np.nan_to_num(self.values, nan=0.0), -most, most))

    def __eq__(self, other: object) -> bool:
        """Same label and the same bits (NaN equals NaN)."""
        if type(self) is not type(other):
            return NotImplemented
        mine, theirs = self.values, other.values
        if mine.dtype != theirs.dtype or mine.size != theirs.size:
            return False
        if isinstance(mine, Blank) or isinstance(theirs, Blank):
            return type(mine) is type(theirs)
        return bool(mine.tobytes() == theirs.tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        """Have a copy in another process made by the constructor, so that nobody can write to it."""
        return type(self), (self.values,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{self.size}] {self.values.dtype})"


class Public(Vector):
    """Computed from public information only: an initial model, a constant."""

    __slots__ = ()


class Released(Vector):
    """Vector that a mechanism released, or post-processing of such."""

    __slots__ = ()


class Masked(Vector):
    """A share of a secure sum. Its arithmetic gives raw arrays."""

    __slots__ = ()


class Confined(Vector):
    """Raw data of a unit, such as a server and its agents; its arithmetic with what may be sent stays confined."""

    __slots__ = ()


Sendable = Public | Released | Masked | Confined
Model = Public | Released
"""What a node may compute at and send: free of unreleased data."""
_MODELS = frozenset({Public, Released})


_LABELS: Mapping[tuple[type, type], type] = {
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


def _join(left: Vector, right: Any) -> type[Vector] | None:
    """The label of a combination; anything not in the table is raw."""
    return _LABELS.get((type(left), type(right)))


def labelled(label: type[Vector] | None, values: Values) -> Any:
    """Fresh ``values`` [size], which nobody else can change, under their label; without one they are raw."""
    if label is None:
        return values
    blank = isinstance(values, Blank)
    if not blank:
        if type(values) is not np.ndarray:
            return label(values)
        values.setflags(False)  # type: ignore[call-arg]  # by position, which takes half the time
    # What the constructor would find out is known here, and a small vector's sum costs less than asking.
    vector: Vector = object.__new__(label)
    vector.values, vector.bounded = values, blank
    return vector


def _values(other: Any, like: Vector) -> Any:
    values = other.values if isinstance(other, Vector) else other
    if type(values) is not np.ndarray and not isinstance(values, (np.ndarray, Blank)):
        raise TypeError(f"a vector combines with vectors, found {type(other).__name__}")
    if values.shape != like.values.shape:  # numpy would stretch a single number over the whole vector
        raise ValueError(f"a vector of {like.size} numbers combines with its like, found shape {values.shape}")
    return values


def _number(factor: Any) -> float:
    # A numpy float64 scalar would turn float32 vectors into float64; a vector is no coefficient.
    if isinstance(factor, (Vector, np.ndarray)):
        raise TypeError("a vector is scaled by a number, found a vector")
    return float(factor)


V = TypeVar("V", bound=Vector)


def concatenate(vectors: Sequence[V]) -> V:
    """One vector of all ``vectors`` in order; `Released` if any of them is, `Public` otherwise."""
    labels = {type(vector) for vector in vectors}
    if not labels <= _MODELS:
        raise TypeError(f"only Public and Released vectors are concatenated, found {labels}")
    label: Any = Released if Released in labels else Public
    if isinstance(vectors[0].values, Blank):
        whole: V = label(vectors[0].values.joined([vector.values for vector in vectors]))
    else:
        whole = label(np.concatenate([vector.values for vector in vectors]))
    return whole


def square(vector: V) -> V:
    """The square of each entry of a `Public` or `Released` vector, of the same label."""
    _check_model(vector)
    return type(vector)(vector.values * vector.values)


def entrywise(vectors: Sequence[Model], rule: Callable[..., Values], blank: Blank | None = None) -> Model:
    """Return what ``rule`` makes of the entries of vectors, or a ``blank``; `Released` if any of them is."""
    _check_model(*vectors)
    label: Any = Released if any(isinstance(vector, Released) for vector in vectors) else Public
    if isinstance(vectors[0].values, Blank):
        return labelled(label, blank or vectors[0].values)  # type: ignore[no-any-return]
    found: Model = labelled(label, rule(*(vector.values for vector in vectors)))
    return found


def shifted(model: Model, start: Model, end: Model, share: float) -> Model:
    """``model`` + (``end`` - ``start``) * ``share``; `Released` if any of the three is, all [size]."""
    label = _LABELS.get((_LABELS.get((type(model), type(start))), type(end)))  # type: ignore[arg-type]
    found: Model | None = _looped("shifted", label, (share,), model.values, start.values, end.values)
    if found is None:
        _check_model(model, start, end)
        found = model + (end - start) * share
    return found


def mixed(model: Model, others: Sequence[Model], shares: Sequence[float]) -> Model:
    """``model`` + sum of (other - ``model``) * share, all [size]; `Released` if any is."""
    if isinstance(model.values, Blank):
        return entrywise([model, *others], np.add, model.values.mixed([one.values for one in others], shares))
    found = model
    for other, share in zip(others, shares, strict=True):
        found = shifted(found, model, other, share)
    return found


def moved(model: Model, start: Model, end: Model, share: float) -> Model:
    """Model that is `shifted`, within bounds."""
    found = shifted(model, start, end, share)
    return found if found.bounded else found.within()


def stepped(model: Model, move: Model, rate: float) -> Model:
    """``model`` + ``move`` * ``rate`` within bounds; `Released` if one of the two is, both [size]."""
    found: Model | None = _looped("stepped", _LABELS.get((type(model), type(move))), (rate,), model.values, move.values)
    if found is None:
        _check_model(model, move)
        found = model + move * rate
    return found if found.bounded else found.within()


def parted(model: Model, part: Model, kept: float, given: float) -> Model:
    """``model`` * ``kept`` - ``part`` * ``given`` within bounds; `Released` if one of the two is, both [size]."""
    found: Model | None = _looped("parted", _join(model, part), (kept, given), model.values, part.values)
    if found is None:
        _check_model(model, part)
        found = model * kept - part * given
    return found.within()


_LOOPS: dict[str, Any] = {}
"""Those of `vector_loops`, once a compiler is there."""


def _looped(name: str, label: type[Vector] | None, factors: tuple[float, ...], *values: Values) -> Any:
    """Return what a compiled loop makes of arrays, or comes of blanks, labelled; None where others have to find out."""
    first = values[0]
    if type(first) is not np.ndarray:
        alike = type(first) is Blank and values.count(first) == len(values)  # what comes of a blank is the same one
        return labelled(label, first) if alike and label in _MODELS else None
    if (loop := _LOOPS.get(name)) is None:
        if "numba" not in sys.modules:  # to load it takes longer than all that it saves
            return None
        from gossamer.vector_loops import parted, shifted, stepped

        _LOOPS.update(shifted=shifted, stepped=stepped, parted=parted)
        loop = _LOOPS[name]
    if label not in _MODELS or type(factors[0]) is not float:
        return None
    found = np.empty(first.size, first.dtype)
    try:
        square = loop(*values, *factors, found)
    except TypeError:  # arrays that are none, or of several types, or no row in memory
        return None
    if not square >= 0:
        return None
    found.setflags(False)  # type: ignore[call-arg]
    made: Any = object.__new__(label)
    made.values, made.bounded = found, square <= LARGEST_VALUE * LARGEST_VALUE
    return made


def divide_by_roots(vector: Model, squares: Model, floor: float) -> Model:
    """``vector`` / (sqrt(``squares``) + ``floor``), entry by entry; `Released` if either is.

    Parameters
    ----------
    vector, squares : Public or Released
        [size]; no entry of ``squares`` is negative.
    floor : float
        > 0.
    """
    _check_model(vector, squares)
    if isinstance(squares.values, Blank):
        divided = vector.values / squares.values
    else:
        divided = vector.values / (np.sqrt(squares.values) + floor)
    found: Model = labelled(_join(vector, squares), divided)
    return found


def _check_model(*vectors: Vector) -> None:
    labels = {type(vector) for vector in vectors}
    if not labels <= _MODELS:
        raise TypeError(f"only Public and Released vectors are taken entry by entry, found {labels}")


@dataclass(frozen=True)
class Coordinates:
    """Every ``step``-th coordinate of a vector from ``first``; by default all of them.

    The mask of van Dijk et al. (2020), Appendix C.1: the parts with the same ``step``, and each ``first`` below it,
    make up the whole vector.
    """

    first: int = 0
    step: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.step:
            raise ValueError(f"coordinates need 0 <= first < step, found first {self.first} and step {self.step}")

    @property
    def slice(self) -> slice:
        """The slice to index a vector with."""
        return slice(self.first, None, self.step)

    def count(self, size: int) -> int:
        """Count the coordinates of a vector of ``size`` numbers that these are."""
        return len(range(self.first, size, self.step))


ALL = Coordinates()
"""All coordinates."""


def spread(vector: V, where: Coordinates, size: int) -> V:
    """A vector [size] with ``vector`` [where.count(size)] at ``where`` and zeros elsewhere, of the same label.

    Raises
    ------
    ValueError
        If ``vector`` has another number of coordinates.
    """
    if vector.size != where.count(size):
        raise ValueError(f"{where} of {size} numbers are {where.count(size)}, found a vector of {vector.size}")
    if where.step == 1:
        return vector
    if isinstance(vector.values, Blank):
        return type(vector)(Blank(size, vector.values.dtype))
    whole = np.zeros(size, vector.values.dtype)
    whole[where.slice] = vector.values
    return type(vector)(whole)


# Named arrays inside a flat vector, as in a ``state_dict``.


@dataclass(frozen=True)
class Part:
    """One named array inside a flat vector, as in a ``state_dict``."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


def pack(arrays: Mapping[str, npt.ArrayLike], parts: Sequence[Part], dtype: npt.DTypeLike) -> FloatArray:
    """The flat vector [sum of sizes] that holds ``arrays`` in the order of ``parts``.

    Raises
    ------
    ValueError
        If an array has another shape than its part.
    """
    flat = []
    for part in parts:
        array = np.asarray(arrays[part.name], dtype)
        if array.shape != part.shape:
            raise ValueError(f"{part.name} must have shape {part.shape}, found {array.shape}")
        flat.append(array.reshape(-1))
    return np.concatenate(flat)


def unpack(vector: FloatArray, parts: Sequence[Part]) -> dict[str, FloatArray]:
    """Views into ``vector`` [size] under the names and shapes of ``parts``."""
    expected = sum(part.size for part in parts)
    if vector.shape != (expected,):
        raise ValueError(f"the parts need a vector of {expected} numbers, found shape {vector.shape}")
    pieces = np.split(vector, np.cumsum([part.size for part in parts], dtype=np.int64)[:-1])
    return {part.name: piece.reshape(part.shape) for part, piece in zip(parts, pieces)}
