"""Which data an experiment uses, as a spec says it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from gossamer.section import Section

Format = Literal["idx", "libsvm", "csv", "npz", "images"]
Layout = Literal["dense", "sparse"]

GENERATED = "graph_regression"
"""The data set that is drawn, not read."""
IN_MEMORY = "in memory"
"""The data set that was given as arrays, so that a spec of it has no examples."""

_MOST_NUMBERS = 2 * 10**8

Range = Annotated[tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...], Field(min_length=2, max_length=2)]
"""The least and the most."""


class SyntheticSettings(Section):
    """How the examples of ``graph_regression`` are drawn: d = u'w + v with one w, but owners that differ.

    Attributes
    ----------
    owners : int
        How many; the ``natural`` partition gives each of as many nodes the examples of one, in order.
    examples : int
        Training examples of each owner.
    features : int
        Length of u.
    feature_variance : list of float
        An owner's u is normal around 0; its variances along axes turned at random are uniform between these two.
    noise_variance : list of float
        An owner's v is normal around 0; its variance is uniform between these two.
    test_examples : int
        In all, of owners evenly spaced.
    seed : int
        Of the examples; they do not depend on the run's seed.
    """

    owners: int = Field(default=1000, ge=1)
    examples: int = Field(default=100, ge=1)
    features: int = Field(default=2, ge=1)
    feature_variance: Range = (0.2, 1.8)
    noise_variance: Range = (0.5, 1.5)
    test_examples: int = Field(default=1000, ge=1)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _can_be_drawn(self) -> SyntheticSettings:
        for key in ("feature_variance", "noise_variance"):
            low, high = getattr(self, key)
            if low > high:
                raise ValueError(f"{key} must be [least, most], found [{low:g}, {high:g}]")
        # Training features, test features, and a matrix an owner.
        rows = self.owners * (self.examples + self.features) + self.test_examples
        if rows * self.features > _MOST_NUMBERS:
            raise ValueError(
                f"{self.owners} owners with {self.examples} examples of {self.features} features are more than "
                f"{_MOST_NUMBERS:,} numbers; lower one of them"
            )
        return self


class DatasetSettings(Section):
    """A data set by name, or the reader's own files.

    Whatever changes features here uses the example itself and constants given in the spec, never a statistic
    of the data: a mean or a standard deviation over private examples would be a release that no ledger covers.

    Attributes
    ----------
    name : str
        A name that ``gossamer datasets`` lists, or any name where ``path`` is given.
    path : Path, optional
        A file or a folder to read instead of searching.
    test_path : Path, optional
        The file with the test examples, where they are in one of their own.
    format : str, optional
        ``idx``, ``libsvm``, ``csv``, ``npz`` or ``images``; by default what the name of the file says.
    task : str
        ``classification`` turns labels into class numbers, ``regression`` keeps real targets.
    labels : tuple, optional
        The labels in the order of their class numbers. By default those among the training examples, sorted;
        parties that each load their own data must name them, so that they agree.
    positive : tuple, optional
        The labels that count as class 1; all others are class 0. So a problem of many classes becomes one of two.
    target : str or int
        CSV: the target's column, by name or by position from 0 (-1 is the last).
    owner : str, optional
        CSV: the column that says whose example it is, for the natural partition.
    person : str, optional
        CSV: the column that says which person an example is about, for guarantees that cover all of a person's
        examples (``budget.rows_per_person``). NPZ archives have an array of that name.
    ignore : tuple of str
        CSV: columns that are no features.
    features : int or tuple, optional
        What an example looks like: the number of its features; the shape of a picture, ``[1, 28, 28]``, also for
        flat rows of as many features; or, for CSV, the names of the columns that are features, in this order.
        By default as found. Parties that each load their own data must say it, so that they agree.
    layout : str, optional
        ``dense`` or ``sparse`` (CSR) features. By default LIBSVM files are sparse where fewer than one entry
        in ten is non-zero, and everything else is dense.
    divide_by : float, optional
        Features are divided by this constant; by default 255 for pictures, else 1.
    normalise : str
        ``unit_norm`` scales each example to an L2 norm of 1 (zero rows stay zero), ``none`` does not.
    test_fraction : float
        Share of the examples, in (0, 1), kept for testing where the data have no test examples of their own.
        The choice is fixed: it does not depend on the run's seed.
    synthetic : section, optional
        How the examples of ``graph_regression`` are drawn; no other data set has it, and that one has nothing else.
    """

    name: str = Field(min_length=1)
    path: Path | None = None
    test_path: Path | None = None
    format: Format | None = None
    task: Literal["classification", "regression"] = "classification"
    labels: Annotated[tuple[int | str, ...], Field(min_length=2)] | None = None
    positive: Annotated[tuple[int | str, ...], Field(min_length=1)] | None = None
    target: str | int = -1
    owner: Annotated[str, Field(min_length=1)] | None = None
    person: Annotated[str, Field(min_length=1)] | None = None
    ignore: tuple[str, ...] = ()
    features: Annotated[int, Field(gt=0)] | Annotated[tuple[int | str, ...], Field(min_length=1)] | None = None
    layout: Layout | None = None
    divide_by: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    normalise: Literal["none", "unit_norm"] = "none"
    test_fraction: float = Field(default=0.2, gt=0, lt=1)
    synthetic: SyntheticSettings | None = None

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns that are features, where the settings name them."""
        names = self.features if isinstance(self.features, tuple) else ()
        return tuple(name for name in names if isinstance(name, str)) or None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of an example's features, where the settings say it."""
        if not isinstance(self.features, tuple):
            return None if self.features is None else (self.features,)
        if self.columns is not None:
            return (len(self.columns),)
        return tuple(size for size in self.features if isinstance(size, int))

    @model_validator(mode="after")
    def _features_are_sizes_or_names(self) -> DatasetSettings:
        features, columns = self.features, self.columns
        if not isinstance(features, tuple):
            return self
        if columns is None:
            if min(size for size in features if isinstance(size, int)) < 1:
                raise ValueError(f"features must be positive sizes such as [1, 28, 28], found {list(features)}")
            return self
        if len(set(columns)) < len(features):
            raise ValueError(f"features must be sizes, or different names of columns, found {list(features)}")
        if self.ignore:
            raise ValueError("features names the columns, so that others are left out already; leave ignore out")
        if isinstance(self.target, int):
            raise ValueError("features names columns, so that their order is free; name the target's column as well")
        return self

    @model_validator(mode="before")
    @classmethod
    def _what_is_drawn_is_a_regression(cls, values: Any) -> Any:
        """Fill in what follows from the name, so that a written spec says what was done."""
        if not isinstance(values, dict) or values.get("name") != GENERATED:
            return values
        given = {key: value for key, value in values.items() if key != "synthetic" or value is not None}
        return {"task": "regression", "synthetic": SyntheticSettings(), **given}

    @model_validator(mode="after")
    def _drawn_or_read(self) -> DatasetSettings:
        if self.name != GENERATED:
            if self.synthetic is not None:
                raise ValueError(f"synthetic is for {GENERATED}, but this data set is {self.name!r}; leave it out")
            return self
        if self.task != "regression":
            raise ValueError(f"{GENERATED} has real targets, so its task is regression; leave task out")
        for key in sorted(set(type(self).model_fields) - {"name", "task", "synthetic"}):
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(
                    f"{key} does not apply to {GENERATED}, which is drawn as synthetic says; leave it out, or give "
                    "your own data another name"
                )
        return self
