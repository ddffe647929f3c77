"""A model that a run left behind, to predict with and to export, and rows for it, read as its declaration says."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.arrays import FloatArray, Floats
from gossamer.data.array_files import read_arrays
from gossamer.data.datasets import read_files
from gossamer.data.declaration import Declaration, in_words
from gossamer.data.examples import Features, Labelled, Labels, Split, as_float32, require_finite, with_entries
from gossamer.data.files import infer_format, read_bytes
from gossamer.data.settings import TABLES, DatasetSettings, Format
from gossamer.data.table import NamedRows, table_of
from gossamer.data.table_files import table_file
from gossamer.errors import (
    CallerError,
    DataError,
    ModelError,
    RunWarning,
    counted,
    did_you_mean,
    failing_as,
    listed,
    require_counts,
)
from gossamer.extras import require
from gossamer.files import write_own
from gossamer.objectives.noisy_figures import LEAST
from gossamer.objectives.objective import Objective
from gossamer.objectives.score_words import Assessment, warnings_of
from gossamer.objectives.scores import ScoredSample, check_costs, named_of
from gossamer.trained.card import ARRAYS, FILE, Card, read_model, rebuilt
from gossamer.vectors import unpack


def read(
    data: Declaration, rows: Any, targets: Any = None, *, labelled: bool = False, beside: Sequence[str] = ()
) -> Labelled:
    """Read rows for a model.

    Parameters
    ----------
    data : Declaration
        Declaration of the model's training data.
    rows : path, sequence of mapping, data frame, or array [n, ...]
        A file; rows by the names of columns; or cells or numbers in the order in which the columns are declared. Of
        data without columns: numbers as they are in files, before they are scaled.
    targets : array [n], optional
        Labels or real targets, where the rows do not have them.
    labelled : bool
        Whether the rows have to say their target, and it is read.
    beside : sequence of str
        Further columns whose cells are wanted as they are.

    Returns
    -------
    Labelled
        Features as the model gets them, with class numbers or scaled targets, where they are asked for, and beside
        what is asked for the cells that name persons, if they are there.

    Raises
    ------
    DataError
        If the rows do not fit the model.
    """
    if labelled and targets is not None:
        found, labels = read(data, rows, beside=beside), _labels(targets)
        if len(labels) != (rows := found.features.shape[0]):
            raise DataError(f"expected a target for each of {counted(rows, 'row')}, found {len(labels)}")
        return replace(found, labels=data.targets(labels))
    if isinstance(rows, str | Path):
        return _of_file(data, Path(rows), labelled, beside)
    if not isinstance(rows, Sequence) and hasattr(rows, "__array__") and not hasattr(rows, "to_dict"):
        rows = np.asarray(rows)  # a tensor, or another library's array
    if sp.issparse(rows) and data.declared:
        rows = rows.toarray()
    numbers = sp.issparse(rows) or (isinstance(rows, np.ndarray) and rows.dtype.kind in "biuf" and not data.declared)
    if numbers or not data.tabular:
        _check_named(beside, "the rows")
        return _of_numbers(data, rows, labelled)
    return _of_table(data, _table(data, rows, labelled), labelled, beside)


def _check_named(beside: Sequence[str], source: str) -> None:
    if beside:
        raise DataError(f"{source}: expected a table with the column {beside[0]!r}, found rows without named columns")


def _labels(targets: Any) -> Labels:
    array = np.asarray(targets).reshape(-1)
    return array.astype(np.str_) if array.dtype.kind in "OU" else array.astype(np.float64)


def _of_table(data: Declaration, table: NamedRows, labelled: bool, beside: Sequence[str] = ()) -> Labelled:
    persons = [data.person] if data.person is not None and data.person in table.names else []
    found = data.read(table, labelled=labelled, beside=[*beside, *persons])
    source = table.source or "the rows"
    targets = data.targets(found.labels, source, found.places) if labelled else found.labels
    return replace(found, features=data.prepare(found.features, source), labels=targets)


def _table(data: Declaration, rows: Any, labelled: bool) -> NamedRows:
    """The rows as a table; those without names have the declared columns, and then the target if that is wanted."""
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas' frames, and others like them
        rows = rows.to_dict("records")
    if not isinstance(rows, Sequence | np.ndarray):
        raise DataError(
            f"expected a file, rows by the names of columns, or a list of rows, found {type(rows).__name__}; give one"
        )
    if len(rows) == 0:
        raise DataError("expected rows, found none; give one at least")
    named = [row for row in rows if isinstance(row, Mapping)]
    if len(named) == len(rows):
        return table_of(named)
    names = [*(data.columns or {}), *([str(data.target)] if labelled else [])]
    wrong = next((number for number, row in enumerate(rows, 1) if not _has(row, len(names))), None)
    if wrong is not None:
        raise DataError(
            f"row {wrong}: expected a mapping of columns to cells, or {len(names)} cells in the order "
            f"{', '.join(names)[:300]}; found {_shown(rows[wrong - 1])}"
        )
    return table_of([dict(zip(names, row)) for row in rows])


def _has(row: Any, cells: int) -> bool:
    return isinstance(row, Sequence | np.ndarray) and not isinstance(row, str) and len(row) == cells


def _shown(row: Any) -> str:
    return f"{len(row)} cells" if isinstance(row, Sequence | np.ndarray) else type(row).__name__


def _of_numbers(data: Declaration, rows: Any, labelled: bool, source: str = "") -> Labelled:
    if labelled:
        raise DataError("an evaluation needs the rows' targets: give them as targets, or give a file")
    features: Features
    where = f"{source}: " if source else ""
    if sp.issparse(rows):
        matrix = sp.csr_array(rows)
        features = with_entries(matrix, as_float32(matrix.data))
    else:
        try:
            features = as_float32(np.asarray(rows, np.float64))
        except (ValueError, TypeError):
            raise DataError(
                f"{where}expected rows of {_size(data)}, found cells that are no numbers, or rows of several lengths"
            ) from None
    if features.ndim < 2 or features.shape[0] == 0:
        raise DataError(f"{where}expected rows [n, ...] of {_size(data)}, found an array {list(features.shape)}")
    before = f"{source}, " if source else ""
    require_finite(features, lambda row, column: f"{before}row {row + 1}, feature {column + 1}")
    return Labelled(data.prepare(features, source or "the rows"), np.zeros(0))


def _size(data: Declaration) -> str:
    return f"numbers {list(data.shape)}"


def _of_file(data: Declaration, path: Path, labelled: bool, beside: Sequence[str]) -> Labelled:
    with failing_as(DataError, f"cannot read {str(path)[:80]}: ", "; correct the path"):
        there = path.exists()
    if not there:
        raise DataError(f"there is no file {path} with rows; correct the path")
    form = _format(data, path)
    if form in TABLES:
        table = table_file(path, form, data.csv, least=2 if labelled else 1, trained=True)
        return _of_table(data, table, labelled, beside)
    _check_named(beside, str(path))
    return _of_arrays(data, path, form, labelled)


def _format(data: Declaration, path: Path) -> Format:
    """Return how a file is read: as its name says, or where that says nothing as the model's own files were.

    Raises
    ------
    DataError
        If rows of such files do not fit the model.
    """
    known = not data.tabular or bool(path.suffix) or path.is_dir()  # a table may have any name
    form: Format | None
    try:
        form = infer_format(path) if known else "csv"
    except DataError:
        form = data.format or ("csv" if data.tabular else None)
    if form is None:
        raise DataError(f"{path}: {_wanted(data)}, found a name that ends in {path.suffix}; rename it so")
    if (form in TABLES) != data.tabular and (data.tabular or form == "csv"):  # other tables may have arrays
        other = "a folder that `datasets` did not save" if path.is_dir() else f"{form}, which has no columns with names"
        found = "a table" if form in TABLES else other
        raise DataError(f"{path}: {_wanted(data)}, found {found}; save the rows so")
    return form


def _wanted(data: Declaration) -> str:
    if data.columns is not None:
        return f"this model reads tables (CSV, Parquet) with the columns {', '.join(data.columns)[:300]}"
    return f"this model reads rows of {in_words(data.shape)} without names (NPZ, LIBSVM, IDX or pictures)"


def _of_arrays(data: Declaration, path: Path, form: Format, labelled: bool) -> Labelled:
    """Examples of a file that has no columns: those to train on, and those to test on where there are some."""
    if form == "npz" and not labelled:
        arrays = read_arrays(path, read_bytes(path))
        if "features" in arrays and "targets" not in arrays:
            return _of_numbers(data, arrays["features"], labelled, str(path))
    first = data.first_index if form == "libsvm" else None
    settings = DatasetSettings(name="rows", format=form, features=data.shape, layout=data.layout, first_index=first)
    parts = [part for part in read_files(form, path, None, settings) if part is not None]
    features = [data.prepare(part.features, str(path)) for part in parts]
    joined: Features = sp.csr_array(sp.vstack(features)) if data.layout == "sparse" else np.concatenate(features)
    labels = np.concatenate([part.labels for part in parts])
    places = parts[0].places if len(parts) == 1 else None
    return Labelled(joined, data.targets(labels, str(path), places) if labelled else labels)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for rows, in their order.

    Attributes
    ----------
    values : ndarray [n] of str or float64
        The name of the likeliest class, or the real number, in the target's own unit.
    classes : tuple of str, optional
        Names of the classes; None for a regression.
    probabilities : ndarray [n, classes] of float64, optional
        Probability of each class; None for a regression, and for a hinge loss, which knows none.
    scores : ndarray [n, outputs] of float64
        Scores that the predictions follow from; of a regression in the unit that the model learnt. Two classes of a
        logistic or hinge loss share one score, whose sign decides.
    clipped : mapping of str to int
        Number of rows of each column that had a value outside of its declared range, and were taken for its end.
    """

    values: npt.NDArray[Any]
    classes: tuple[str, ...] | None
    probabilities: Floats | None
    scores: Floats
    clipped: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values.tolist())

    def __getitem__(self, row: Any) -> Any:
        return self.values[row]

    def rows(self) -> list[dict[str, Any]]:
        """Plain data, one mapping a row, counted from 1."""
        found: list[dict[str, Any]] = [
            {"row": number, "prediction": value} for number, value in enumerate(self.values.tolist(), 1)
        ]
        if self.classes is not None:
            likely = self.probabilities
            for entry, each in zip(found, (self.scores if likely is None else likely).tolist()):
                entry |= {"scores": each} if likely is None else {"probabilities": dict(zip(self.classes, each))}
        return found


def predictions(card: Card, scores: Floats, clipped: Mapping[str, int] | None = None) -> Predictions:
    """Predict from ``scores`` [n, outputs] of the model that ``card`` describes."""
    if card.data.labels is None:
        one = scores[:, 0] if scores.shape[1] == 1 else scores
        return Predictions(card.data.own(one), None, None, scores, clipped or {})
    values = np.array(card.data.labels)[named_of(scores)]
    likely = None if card.objective.loss == "hinge" else _probabilities(scores)
    return Predictions(values, card.data.labels, likely, scores, clipped or {})


def _probabilities(scores: Floats) -> Floats:
    """Softmax of scores; one alone is that of the second of two classes, beside a zero."""
    if scores.shape[1] == 1:
        scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def sample_of(
    card: Card, scores: Floats, targets: npt.NDArray[Any], persons: npt.NDArray[Any] | None = None
) -> ScoredSample:
    """Rows that the model of ``card`` gave scores [n, outputs], in the unit of their targets [n]."""
    if card.data.labels is None:
        own = card.data.own
        return ScoredSample(own(scores[:, 0])[:, None], own(targets), persons=persons)
    likely = None if card.objective.loss == "hinge" else _probabilities(scores)
    return ScoredSample(np.asarray(scores, np.float64), targets, card.data.labels, likely, persons)


def assessed(
    card: Card,
    objective: Objective,
    vector: FloatArray,
    test: Split,
    persons: npt.NDArray[Any] | None = None,
    groups: Mapping[str, npt.NDArray[np.str_]] | None = None,
) -> Assessment:
    """Scores of a model on test examples, with intervals; empty where it predicts nothing, or several things of each.

    Those of each group are among them, by column, as in `Model.evaluate`, where there are rows enough for one.
    """
    if not len(test) or test.targets.ndim > 1:
        return {}
    try:
        with np.errstate(all="ignore"):
            sample = sample_of(card, objective.scores(vector, test.features), test.targets, persons)
            found = sample.assess()
    except ModelError:
        return {}
    if not found or not groups:
        return found
    try:
        return {**found, "groups": {name: sample.grouped(those, name, None, LEAST) for name, those in groups.items()}}
    except DataError:  # too few rows for any group
        return found


def _persons(data: Declaration, found: Labelled) -> npt.NDArray[np.str_] | None:
    persons = found.beside.get(data.person or "")
    if persons is not None and (empty := persons == "").any():
        raise DataError(
            f"row {int(empty.argmax()) + 1} of {len(persons)}: {data.person!r} names persons, and is empty; fill it in"
        )
    return persons


class Model(Mapping[str, FloatArray]):
    """A trained model: its arrays by name, and what it says of rows.

    Parameters
    ----------
    card : Card
        Card that says what it is, and how rows are read.
    objective : Objective
        The function that the parameters are of.
    vector : ndarray [size]
        The parameters.

    Examples
    --------
    >>> import gossamer as gs
    >>> result = gs.run(gs.Experiment(privacy="none", stop={"updates": 40}))
    >>> result.model["weight"].shape
    (10, 64)
    >>> result.model.classes
    ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """

    def __init__(self, card: Card, objective: Objective, vector: FloatArray) -> None:
        self.card = card
        self.objective = objective
        self.vector = np.asarray(vector)
        self._arrays = unpack(self.vector, card.arrays)

    def __getitem__(self, name: str) -> FloatArray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        told = self.card.objective
        what = told.module or told.name or "module from memory"
        predicts = "a real number" if self.classes is None else f"one of {len(self.classes)} classes"
        return f"<Model {what}, {len(self.vector):,} parameters, {predicts}>"

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, in the order of their numbers; None for a regression."""
        return self.card.data.labels

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features of a table, in order; empty for all else."""
        return self.card.data.features

    @property
    def output(self) -> str:
        """Figures that follow from scores: ``probabilities``, ``scores`` of a hinge loss, or a ``prediction``."""
        if self.classes is None:
            return "prediction"
        return "scores" if self.card.objective.loss == "hinge" else "probabilities"

    def described(self) -> str:
        """Describe an export of the model as JSON: its card, its inputs in order, and its output."""
        tabular = self.card.data.columns is not None
        exported = {
            "inputs": self.features or None,
            "shape": self.card.data.shape,
            "dtype": "float64" if tabular else "float32",
            "output": self.output,
            "classes": self.classes,
        }
        return json.dumps({"export": exported, "model": self.card.model_dump(mode="json")}, ensure_ascii=False)

    def predict(self, rows: Any) -> Predictions:
        """Predict for raw rows.

        Parameters
        ----------
        rows : path, sequence of mapping, data frame, or array [n, ...]
            A file such as a CSV; rows by the names of their columns; or numbers, before they are scaled: cells in the
            order of the declared columns, and of data without columns features as they are in files.

        Returns
        -------
        Predictions
            One for each row, in their order.

        Raises
        ------
        DataError
            If the rows do not fit the model; it names the row and the column.

        Warns
        -----
        RunWarning
            If values are outside of the declared range of their column, and were taken for its end.
        """
        found = read(self.card.data, rows)
        if found.outside:
            warnings.warn(_clipped(found), RunWarning, stacklevel=2)
        return predictions(self.card, self.objective.scores(self.vector, found.features), found.outside)

    def evaluate(
        self,
        rows: Any,
        targets: Any = None,
        *,
        by: str | Sequence[str] = (),
        threshold: float | None = None,
        cost: Mapping[str, float] | None = None,
        least: int = LEAST,
    ) -> dict[str, Any]:
        """Test the model on rows that have their targets.

        Parameters
        ----------
        rows : path, sequence of mapping or data frame
            Rows as for `predict`; with the target's column, unless ``targets`` has them.
        targets : array [n], optional
            Labels or real targets, as they were written in the training data.
        by : str or sequence of str
            Columns of a table by each of which figures of groups of rows are given.
        threshold : float, optional
            Probability of the second of two classes above which it is named; by default a half, or what ``cost`` says.
        cost : mapping of str to float, optional
            Cost of each ``false_negative`` and ``false_positive``, of which one that is not there is 1; the threshold
            that costs least on these rows is found.
        least : int
            Number of persons, or of rows where persons are not known, that a group has at least; smaller ones are
            merged.

        Returns
        -------
        dict
            ``rows``, ``loss`` (without the L2 term), and what `gossamer.objectives.scores.ScoredSample.assess` finds:
            ``figures`` with intervals and those of the constant predictor, and more; of numbers in the target's unit.
            The loss is that which was minimised: of a target with a declared range in the unit that the model learnt.
            With ``by`` also ``groups``: the same of each group, by column; and ``cost``, with such: the threshold that
            costs least, and what it and the cheaper constant cost a row.

        Raises
        ------
        DataError
            If the rows do not fit the model, or lack their targets or a column.
        CallerError
            If the model knows no probabilities to hold against a threshold, or that, a cost or ``least`` is wrong.

        Warns
        -----
        RunWarning
            If values are outside of the declared range of their column, and were taken for its end; or if the model is
            no better than one that says the same of every row.
        """
        require_counts(least=least)
        check_costs(cost or {})
        columns = [by] if isinstance(by, str) else [*by]
        found = read(self.card.data, rows, targets, labelled=True, beside=columns)
        scored = self.objective.evaluate(self.vector[None], Split(found.features, found.labels))
        scores = self.objective.scores(self.vector, found.features)
        sample = sample_of(self.card, scores, found.labels, _persons(self.card.data, found))
        more: dict[str, Any] = {}
        if cost is not None:
            more["cost"] = sample.cheapest(cost)
            threshold = more["cost"]["threshold"] if threshold is None else threshold
        assessed = sample.assess(threshold)
        if columns:
            more["groups"] = {name: sample.grouped(found.beside[name], name, threshold, least) for name in columns}
        # What is wrong with the call is said before, and alone.
        for line in ([_clipped(found)] if found.outside else []) + warnings_of(assessed):
            warnings.warn(line, RunWarning, stacklevel=2)
        return {"rows": len(found.labels), "loss": float(scored.loss[0]), **assessed, **more}

    def export(self, to: str, out: str | Path = ".", *, overwrite: bool = False) -> Path:
        """Write the model for another program, with all that is done to raw numbers in it.

        Parameters
        ----------
        to : {"torch", "onnx", "sklearn"}
            The program.
        out : path
            A file, or a folder for one of the usual name.
        overwrite : bool
            Whether a file that is there is replaced.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        CallerError
            If the program's packages are not installed, it cannot hold the model, or the file is there already.
        """
        return export_model(self, to, _path(out, "a file or a folder to write to"), overwrite=overwrite)


# Models for other programs: PyTorch, ONNX Runtime and scikit-learn.


@dataclass(frozen=True)
class Target:
    """A program that models are exported to.

    Attributes
    ----------
    module, function : str
        Maker of the file's content, below `gossamer.trained`.
    file : str
        The usual name.
    needs : tuple of str
        Packages that must be there.
    extra : str
        Extra that the packages come with.
    """

    module: str
    function: str
    file: str
    needs: tuple[str, ...]
    extra: str


TARGETS: Mapping[str, Target] = {
    "torch": Target("torch_export", "torch_file", "model.pt2", ("torch",), "torch"),
    "onnx": Target("torch_export", "onnx_file", "model.onnx", ("torch", "onnx", "onnxscript"), "onnx"),
    "sklearn": Target("sklearn_export", "sklearn_file", "model.joblib", ("sklearn",), "sklearn"),
}


def export_model(model: Model, to: str, out: Path, *, overwrite: bool = False) -> Path:
    """Write a model for another program, for its owner alone; see `gossamer.Model.export`.

    Raises
    ------
    CallerError
        If there is no such target, its packages are not installed, it cannot hold the model, or the file is there
        already or cannot be written.
    """
    target = check_target(to)
    place = out / target.file if out.is_dir() else out
    if not place.parent.is_dir():
        raise CallerError(f"{place}: there is no folder {place.parent}; make it, or choose another")
    if place.exists() and not overwrite:
        raise CallerError(f"{place} exists; choose another name, or replace it with overwrite=True")
    if place.name in (ARRAYS, FILE):
        raise CallerError(f"{place}: {place.name} is the name of a run's own file; choose another")
    content = getattr(import_module(f"gossamer.trained.{target.module}"), target.function)(model)
    with failing_as(CallerError, f"{place}: cannot be written: ", "; choose another place"):
        write_own(place, content)
    return place


def check_target(to: str) -> Target:
    """The target of that name, whose packages are there.

    Raises
    ------
    CallerError
        If there is no such target, or a package is not installed.
    """
    if not isinstance(to, str) or to not in TARGETS:
        found = str(to)[:40]
        raise CallerError(
            f"expected a program that models are exported to, found {found!r}{did_you_mean(found, TARGETS)}"
        )
    target = TARGETS[to]
    for package in target.needs:
        if find_spec(package) is None:  # to import it takes seconds
            require(package, f"an export to {to} needs", target.extra)
    return target


def _path(place: Any, what: str) -> Path:
    if not isinstance(place, str | PathLike):
        raise DataError(f"expected {what}, found {type(place).__name__}; give its path")
    return Path(place)


def _clipped(found: Labelled) -> str:
    rows, columns = found.features.shape[0], listed([f"{name} ({number:,})" for name, number in found.outside.items()])
    return (
        "values outside of their column's range were taken for its end, in so many of "
        f"{counted(rows, 'row', form=',')}: {columns}; a model knows nothing beyond"
    )


def load_model(place: str | Path, module: Any = None) -> Model:
    """Read a model that a run left behind.

    Parameters
    ----------
    place : path
        The results folder of a run, a party's state folder, or a safetensors file of a model that Gossamer wrote.
    module : torch.nn.Module, or a class or function that makes one, optional
        The network, where the run had it from memory. Its parameters are replaced, but not its buffers.

    Raises
    ------
    DataError
        If there is no model, it is damaged, or a newer Gossamer wrote it.
    ModelError
        If its network cannot be built.
    """
    path = _path(place, "a run's results folder, or a model's file")
    card, vector = read_model(path)
    where = path / FILE if path.is_dir() else path
    return Model(card, rebuilt(card, where, module), vector)
