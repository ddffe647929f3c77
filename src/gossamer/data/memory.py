"""Examples that are arrays already, checked once, where they are given."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from pydantic import Field, ValidationError, field_validator

from gossamer.arrays import BoolArray
from gossamer.data.column_hints import Codes, doubts
from gossamer.data.columns import Column, NoTargetRange, TargetRange, TargetSettings
from gossamer.data.datasets import Dataset, dataset_of
from gossamer.data.examples import Features, Labelled, Labels, Owners, Places, as_float32, require_finite, with_entries
from gossamer.data.settings import IN_MEMORY, DatasetSettings
from gossamer.errors import DataError, RunWarning, SpecError, beginning, counted
from gossamer.mistakes import place, said
from gossamer.section import Section

_APPLY = frozenset(
    DatasetSettings.model_fields.keys()
    - {"path", "test_path", "format", "target", "owner", "person", "ignore", "synthetic", "columns", "csv"}
    - {"missing_marks", "first_index"}
)
"""Keys of the section ``dataset`` that say something of arrays; the others are about files."""
_TARGET = "target"
"""Name of the targets, where features have names."""


class Data:
    """Examples from memory, in place of the files that a spec names; see `run`.

    Arrays are copied as far as they are converted, and must not be changed afterwards. They are never printed: neither
    by this object nor by an error, which says where something is wrong and not what stands there.

    Parameters
    ----------
    x : array_like [n, ...], or scipy sparse array [n, features]
        Features, an example a row. A data frame's columns name them.
    y : array_like [n], or [n, ...] of several targets an example
        Class labels (whole numbers, texts or truth values), or real targets where ``task`` is ``regression``. For
        networks also several answers of yes or no an example, [n, answers], or a class number for each place of it.
    owners : array_like [n], optional
        Owner of each example, for ``partition: natural``: texts or whole numbers.
    persons : array_like [n], optional
        Person that each example is about, for ``budget.rows_per_person``: texts or whole numbers.
    x_test, y_test : array_like, optional
        Examples to test on, both or neither; by default ``dataset.test_fraction`` of the others are held out.
    feature_names : sequence of str, optional
        Names of the features, [features].
    labels : sequence of int or str, optional
        The labels in the order of their class numbers; by default those found, sorted.
    task : {"classification", "regression"}, optional
        Kind of targets; by default as the spec says, which is ``classification`` unless it says otherwise.
    target_range : sequence of float, or mapping, optional
        The least and the most that real targets can be, or their ``mean`` and ``deviation``, from public knowledge; see
        ``dataset.target_range``.

    Raises
    ------
    DataError
        With one line: which argument, what was expected, and what was found.

    Examples
    --------
    >>> Data([[0.5, 1.0], [0.25, -1.0]], ["yes", "no"], feature_names=["age", "dose"])
    Data(x=[2, 2], y=[2], feature_names=[2])
    """

    def __init__(
        self,
        x: npt.ArrayLike | sp.sparray | sp.spmatrix,
        y: npt.ArrayLike,
        *,
        owners: npt.ArrayLike | None = None,
        persons: npt.ArrayLike | None = None,
        x_test: npt.ArrayLike | sp.sparray | sp.spmatrix | None = None,
        y_test: npt.ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        labels: Sequence[int | str] | None = None,
        task: Literal["classification", "regression"] | None = None,
        target_range: Sequence[float] | Mapping[str, float] | TargetRange | NoTargetRange | None = None,
    ) -> None:
        features = _features(x, "x")
        if feature_names is None and isinstance(features, np.ndarray):
            _check_columns(_columns(x) or [], features)
        self.train = Labelled(
            features,
            _labels(y, "y", features, several=True),
            _who(owners, "owners", features),
            _who(persons, "persons", features),
            places=_rows("y", features),
        )
        columns = _columns(x)
        names = columns if feature_names is None else feature_names
        declared = _Said.of(labels=labels, task=task, feature_names=names, target_range=target_range)
        self.test = _tested(
            x_test, y_test, features, columns or declared.feature_names, several=self.train.labels.ndim > 1
        )
        self.feature_names, self.labels = declared.feature_names, declared.labels
        self.task, self.target_range = declared.task, declared.target_range
        if self.train.labels.ndim > 1:
            if (labels, target_range) != (None, None) or task == "classification":
                raise DataError("y: expected no labels, task or range for several targets an example; leave them out")
            self.task, self.target_range = "regression", "none"
        _check_names(self.feature_names, features, columns)

    @classmethod
    def read(cls, examples: Any, test: Any = None, **said: Any) -> Data:
        """Read a `torch.utils.data.Dataset` or `DataLoader` once, into a memory-mapped file that goes with the process.

        What it shuffles, or augments at random, is as it was drawn then; a run draws its own batches.

        Parameters
        ----------
        examples : Dataset or DataLoader
            Pairs of features and target, or mappings of features and ``label``; of a loader, batches of them. Pictures
            of Pillow become [channels, rows, columns]. One of `datasets` (`load_from_disk`) is read alike.
        test : Dataset or DataLoader, optional
            Examples to test on, read alike.
        **said
            Other arguments of `Data`.

        Raises
        ------
        DataError
            If it has no end, draws examples with replacement, or they differ in form.
        """
        if type(_sampler(examples)).__name__ == "RandomSampler":
            warnings.warn(
                "data: the loader shuffles; examples stay in the order in which they are read, and what it draws at "
                "random is drawn once: a run draws its own batches",
                RunWarning,
                stacklevel=2,
            )
        x_test, y_test = (None, None) if test is None else _streamed(test, "test")
        return cls(*_streamed(examples, "data"), x_test=x_test, y_test=y_test, **said)

    def __repr__(self) -> str:
        train, test = self.train, self.test
        shapes = {"x": train.features, "y": train.labels, "owners": train.owners, "persons": train.persons}
        if test is not None:
            shapes |= {"x_test": test.features, "y_test": test.labels}
        shown = [f"{name}={list(each.shape)}" for name, each in shapes.items() if each is not None]
        names = [f"feature_names=[{len(self.feature_names)}]"] if self.feature_names else []
        return f"Data({', '.join([*shown, *names])})"

    def settings(self, spec: DatasetSettings | None) -> DatasetSettings:
        """The section ``dataset`` of a run with these examples; ``spec`` is what the spec has, if it has one.

        Raises
        ------
        SpecError
            If the spec names other examples, or contradicts what was given with the arrays.
        """
        content = {} if spec is None else spec.model_dump(exclude_defaults=True)
        if spec is not None and spec.name != IN_MEMORY:
            raise SpecError(
                f"the spec's dataset is {spec.name!r}, and data= gives other examples; leave one of them out, or call "
                f"the spec's {IN_MEMORY!r}"
            )
        if content.get("target") == _TARGET and spec is not None and spec.named is not None:
            del content["target"]  # as such a run wrote it
        if foreign := sorted(content.keys() - _APPLY):
            raise SpecError(f"dataset.{foreign[0]} is about files, and data= gives arrays; leave it out")
        own = {"labels": self.labels, "task": self.task, "features": self.feature_names}
        given = {key: value for key, value in (own | {"target_range": self.target_range}).items() if value is not None}
        if twice := [key for key in given if key in content and getattr(spec, key) != given[key]]:
            raise SpecError(f"dataset.{twice[0]} of the spec is not what data= says; leave one of them out")
        named = {"target": _TARGET} if self.feature_names else {}
        with beginning("dataset", SpecError):
            return DatasetSettings(**{**content, **given, **named, "name": IN_MEMORY})

    def dataset(self, settings: DatasetSettings) -> Dataset:
        """The data set that ``settings`` make of these examples.

        Raises
        ------
        DataError
            If labels do not fit together, examples are not as ``features`` says, or nothing is left to test on.
        """
        labels = self.train.labels
        if settings.task == "classification" and labels.dtype.kind == "f" and (labels != np.round(labels)).any():
            raise DataError(
                "y: expected whole numbers, texts or truth values for a classification, found numbers with fractions; "
                "for real targets give task='regression'"
            )
        return dataset_of(settings, self.train, self.test, Path(IN_MEMORY), IN_MEMORY)


def _streamed(source: Any, name: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any]]:
    """Features [n, ...], mapped from a file that is gone with the process, and targets [n, ...]."""
    kind = type(source).__name__
    batches: Any = getattr(source, "batch_sampler", None)
    drops = type(batches).__name__ == "BatchSampler" and batches.drop_last and hasattr(batches.sampler, "__len__")
    if drops and (left := len(batches.sampler) % batches.batch_size):
        warnings.warn(
            f"{name}: the loader drops its last {counted(left, 'example')}, which fill no batch, so no run has them; "
            "give its dataset, or drop_last=False",
            RunWarning,
            stacklevel=3,
        )
    if getattr(_sampler(source), "replacement", False):
        raise DataError(
            f"{name}: expected each example once, found a loader that draws with replacement, and what is proved is of "
            "one row; give its dataset"
        )
    try:
        count = len(source)
    except TypeError:
        raise DataError(
            f"{name}: expected examples with an end, found {kind} without a length; give it __len__, or arrays"
        ) from None
    items = source if hasattr(source, "__iter__") else (source[n] for n in range(count))
    targets: list[npt.NDArray[Any]] = []
    first: tuple[tuple[int, ...], tuple[int, ...]] = (), ()
    with tempfile.TemporaryFile() as file:
        for number, item in enumerate(items):
            if number == count:
                raise DataError(
                    f"{name}: expected {counted(count, 'item')}, as its length says, found more; end it there"
                )
            x, y = _pair(item, name)
            x, y = (_array(each, name) if batches is not None else _array(each, name)[None] for each in (x, y))
            shapes = x.shape[1:], y.shape[1:]
            first = first if targets else shapes
            if shapes != first or len(x) != len(y):
                raise DataError(
                    f"{name}, item {number}: expected features {list(first[0])} and targets {list(first[1])} as in the "
                    f"first, found {len(x)} of {list(shapes[0])} and {len(y)} of {list(shapes[1])}; give all one shape"
                )
            file.write(np.ascontiguousarray(as_float32(_numbers(x, name))).data)
            targets.append(y)
        if not file.tell():
            raise DataError(f"{name}: expected examples with features, found none in {kind}")
        y = np.concatenate(targets)
        file.flush()
        return np.memmap(file, np.float32, "r", shape=(len(y), *first[0])), y


def _sampler(source: Any) -> Any:
    """Sampler that a loader draws examples by; None of what is no loader."""
    own = getattr(source, "sampler", None)
    return getattr(getattr(source, "batch_sampler", None), "sampler", own)


def _pair(item: Any, name: str) -> tuple[Any, Any]:
    """Features and target of an item."""
    if isinstance(item, Mapping) and len(key := {"label", "labels", "target"} & item.keys()) == 1 and len(item) == 2:
        (features,) = item.keys() - key
        item = item[features], item[key.pop()]
    if not isinstance(item, tuple | list) or len(item) != 2:
        found = f"{type(item).__name__}" + (f" of {', '.join(map(str, item))}" if isinstance(item, Mapping) else "")
        raise DataError(
            f"{name}: expected pairs of features and target, found {found}; let __getitem__ return a pair, or "
            "leave two columns"
        )
    x, y = item
    if hasattr(x, "getbands"):  # a picture of Pillow: its channels come last, if it says any
        x = np.atleast_3d(np.asarray(x)).transpose(2, 0, 1)
    return x, y


def _features(values: Any, name: str) -> Features:
    if sp.issparse(values):
        found = sp.csr_array(values)
        if found.dtype.kind not in "biuf":
            raise DataError(f"{name}: expected numbers, found {found.dtype}; encode categories and dates as numbers")
        found.sum_duplicates()
        converted: Features = with_entries(found, as_float32(found.data))
    else:
        array = _numbers(_array(values, name), name, _columns(values))
        converted = as_float32(array)
    if converted.ndim < 2 or 0 in converted.shape:
        raise DataError(
            f"{name}: expected at least one example a row and one feature, [n, ...], found {list(converted.shape)}"
        )
    require_finite(converted, lambda row, column: f"{name}, row {row}, column {column}")
    return converted


def _numbers(array: npt.NDArray[Any], name: str, columns: Sequence[str] | None = None) -> npt.NDArray[Any]:
    """Numbers and truth values, also where they are held as objects, as in a data frame that has columns of both."""
    if array.dtype.kind == "O" and array.ndim == 2:
        for number, cells in enumerate(array.T):
            where = f"{name}, column {columns[number] if columns else number!r}"
            _check_there(np.array([_is_missing(each) for each in cells], bool), where)
            if other := [each for each in cells if not isinstance(each, Real | Decimal)]:
                found = type(other[0]).__name__
                raise DataError(f"{where}: expected numbers, found {found}; encode categories and dates as numbers")
        return array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: expected numbers, found {array.dtype}; encode categories and dates as numbers")
    return array


def _check_columns(names: Sequence[str], features: npt.NDArray[np.float32]) -> None:
    """Refuse columns of a frame that say which row this is, and warn of marks for "not measured"."""
    for name, what in doubts(names, features):
        raise DataError(
            f"x: column {name!r} {what}; leave it out, such as with x.drop(columns=[{name!r}]), or give feature_names= "
            "if it is a feature"
        )
    for number, name in enumerate(names):
        if (mark := Codes.of(features[:, number]).found(Column())) is not None:
            warnings.warn(
                f"x: {mark} in column {name!r} stands apart from its other numbers, as a mark for 'not measured' does, "
                "and is taken for a number; put a usual one in its place if so, or give feature_names= if not",
                RunWarning,
                stacklevel=4,
            )


def _array(values: Any, name: str) -> npt.NDArray[Any]:
    if isinstance(values, np.ma.MaskedArray):
        _check_there(np.ma.getmaskarray(values), name)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):  # rows of different lengths; a tensor that requires a gradient
        raise DataError(
            f"{name}: expected an array, found {type(values).__name__} that is none; give rows of one length, and "
            "detached tensors"
        ) from None
    mixed = array.dtype.kind == "U" and isinstance(values, list | tuple)  # where NaN has become the text 'nan'
    held = np.asarray(values, object) if mixed else array
    if held.dtype.kind == "O" and held.ndim == 1:
        _check_there(np.array([_is_missing(each) for each in held], bool), name)
    return array


def _check_there(missing: BoolArray, name: str) -> None:
    """Refuse examples of which something is ``missing`` [n, ...]."""
    rows = np.unique(np.argwhere(np.atleast_1d(missing))[:, 0])
    if len(rows):
        raise DataError(
            f"{name}: expected a value everywhere, found {counted(len(rows), 'row')} without, the first row {rows[0]}; "
            "fill in what is missing, or leave the example out"
        )


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas' NA is neither equal nor different
        return True


def _not_empty(texts: npt.NDArray[np.str_], name: str) -> npt.NDArray[np.str_]:
    _check_there(np.char.strip(texts) == "", name)
    return texts


def _labels(values: Any, name: str, features: Features, *, several: bool = False) -> Labels:
    given = _array(values, name)
    if several and given.ndim > 1 and given.size > len(given) == features.shape[0]:
        array: npt.NDArray[Any] = given
    else:
        array = _of_length(_texts(given), name, features)
    if array.dtype.kind not in "biufU":
        raise DataError(f"{name}: expected numbers or texts, found {array.dtype}; convert it, such as with astype(str)")
    if array.dtype.kind == "U":
        return _not_empty(array, name)
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise DataError(
            f"{name}: expected finite numbers, found {counted(int((~np.isfinite(numbers)).sum()), 'other')}, the first "
            f"in row {int(np.argwhere(~np.isfinite(numbers))[0, 0])}; leave these examples out"
        )
    return numbers


def _who(values: Any, name: str, features: Features) -> Owners | None:
    if values is None:
        return None
    array = _of_length(_texts(_array(values, name)), name, features)
    if array.dtype.kind == "f":
        _check_there(np.isnan(array), name)
    if array.dtype.kind not in "iuU":
        raise DataError(f"{name}: expected texts or whole numbers, found {array.dtype}; convert it, with astype(str)")
    return _not_empty(array.astype(np.str_), name) if array.dtype.kind == "U" else array.astype(np.int64)


def _texts(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Texts that are held as objects, as data frames have them, as texts; all else as it is."""
    held = array.dtype.kind == "O" and array.ndim == 1 and all(isinstance(each, str) for each in array)
    return array.astype(np.str_) if held else array


def _of_length(array: npt.NDArray[Any], name: str, features: Features) -> npt.NDArray[Any]:
    count = features.shape[0]
    if array.shape == (count, 1):  # a column, as a data frame of one gives
        return array[:, 0]
    if array.shape != (count,):
        raise DataError(f"{name}: expected one for each of {counted(count, 'example')}, found {list(array.shape)}")
    return array


def _tested(x: Any, y: Any, train: Features, names: Sequence[str] | None, *, several: bool) -> Labelled | None:
    """Examples to test on; columns of a data frame are those of the training examples that have their ``names``."""
    if x is None and y is None:
        return None
    if x is None or y is None:
        given, missing = ("y_test", "x_test") if x is None else ("x_test", "y_test")
        raise DataError(f"{missing}: expected it with {given}, found none; give both or neither")
    features = _features(x, "x_test")
    if features.shape[1:] != train.shape[1:]:
        raise DataError(
            f"x_test: expected examples of shape {list(train.shape[1:])} as in x, found {list(features.shape[1:])}"
        )
    if sp.issparse(features) != sp.issparse(train):
        raise DataError("x_test: expected a sparse array where x is one, and no other, found one of each")
    if names is not None and (columns := _columns(x)) is not None and columns != [*names]:
        # Names that two columns share do not say which is which.
        if other := sorted({*columns} ^ {*names}) or [name for name in columns if columns.count(name) > 1]:
            raise DataError(
                f"x_test: expected the columns of x, found a difference in {other[0]!r}; name them alike, or give an "
                "array"
            )
        features = features[:, [columns.index(name) for name in names]]
    labels = _labels(y, "y_test", features, several=several)
    return Labelled(features, labels, places=_rows("y_test", features))


def _rows(name: str, features: Features) -> Places:
    """Places of arrays' examples, counted from 0 as arrays are."""
    return Places(name, np.arange(features.shape[0]), "row")


def _columns(x: Any) -> list[str] | None:
    """Names of a data frame's columns, if all are texts."""
    columns = list(getattr(x, "columns", ()))
    return columns if columns and all(isinstance(column, str) for column in columns) else None


class _Said(Section):
    """Declarations beside the arrays, checked as a spec's are."""

    labels: Annotated[tuple[int | str, ...], Field(min_length=2)] | None = None
    task: Literal["classification", "regression"] | None = None
    feature_names: tuple[str, ...] | None = None
    target_range: TargetSettings | None = None

    @field_validator("labels", "feature_names")
    @classmethod
    def _differ(cls, names: Sequence[int | str] | None) -> Sequence[int | str] | None:
        if names is not None and len(set(names)) < len(names):
            raise ValueError(f"expected each once, found {len(names) - len(set(names))} again")
        return names

    @classmethod
    def of(cls, **given: Any) -> _Said:
        try:
            return cls.model_validate({key: _plain(value) for key, value in given.items()})
        except ValidationError as error:
            problem = error.errors()[0]  # in words without what was found: examples that are mixed up are private
            key = str(place(problem)[0])
            raise DataError(f"{key}: {said(problem)}{_REMEDIES.get(key, '')}") from None


_REMEDIES = {
    "labels": "; name every class once, by whole numbers or texts",
    "feature_names": "; give a text for each feature, such as ['age', 'weight']",
}


def _plain(values: Any) -> Any:
    """Values of a sequence as Python's own; anything else as it is."""
    if isinstance(values, str | Mapping | TargetRange) or not isinstance(values, Iterable):
        return values
    found = (value.item() if isinstance(value, np.generic) else value for value in values)
    return tuple(int(value) if isinstance(value, bool) else value for value in found)


def _check_names(names: Sequence[str] | None, features: Features, columns: Sequence[str] | None) -> None:
    if names is None:
        return
    if features.ndim != 2:
        raise DataError(f"feature_names: expected none for examples of shape {list(features.shape[1:])}; leave it out")
    if len(names) != features.shape[1]:
        raise DataError(
            f"feature_names: expected {counted(features.shape[1], 'text')}, one for each feature, found {len(names)}"
        )
    if columns is not None and tuple(columns) != names and {*columns} == {*names}:
        raise DataError(
            "feature_names: expected the columns of x in their order, found them in another; leave feature_names out, "
            "or order the columns of x so"
        )
