"""Settings of the data that an experiment uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from gossamer.data.columns import (
    CsvSettings,
    DeclaredColumns,
    Marks,
    ScaleConstants,
    TargetRange,
    TargetSettings,
    feature_names,
    read_columns,
)
from gossamer.errors import SpecError, beginning
from gossamer.files import refusals
from gossamer.section import Section

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class DeclaredScale(Section):
    """Each number is scaled by the constants of its column (``dataset.columns``)."""

    name: Literal["declared"] = "declared"


class NoScale(Section):
    """Numbers are left as they are; this also says that it is meant."""

    name: Literal["none"] = "none"


class ConstantScale(ScaleConstants):
    """All features are scaled by the same public constants."""

    name: Literal["constant"] = "constant"
    lacking: ClassVar[str] = "give a range, such as [0, 255], or a mean and a deviation"


class PrivateScale(Section):
    """Numbers that no constants are declared for are scaled by ranges that nodes find together, privately.

    Before the run each node releases, once and with noise, how large the values of its columns are; the range is the
    same for all, and both kinds of releases are within one budget.

    Attributes
    ----------
    share : float
        Share of the budget's epsilon that the release may cost by itself; what is left after composition is the run's.
    noise_multiplier : float, optional
        Noise multiplier of the release, where there is no budget, or instead of a share.
    magnitudes : list of float
        Public bounds of absolute values: the least and the most that are told apart.
    """

    name: Literal["private"] = "private"
    share: float = Field(default=0.1, gt=0, lt=1)
    noise_multiplier: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None
    magnitudes: Annotated[tuple[Positive, ...], Field(min_length=2, max_length=2)] = (1e-3, 1e6)

    def _problems(self) -> Iterator[str]:
        least, most = self.magnitudes
        if not least < most:
            yield f"magnitudes must be [least, most], the least being less, found [{least:g}, {most:g}]"


def _named(given: Any) -> Any:
    """Let a text stand for a scale of that name, and constants alone for themselves."""
    if isinstance(given, str):
        return {"name": given}
    return {"name": "constant", **given} if isinstance(given, Mapping) else given


Scale = Annotated[DeclaredScale | NoScale | ConstantScale | PrivateScale, Field(discriminator="name")]
ScaleSettings = Annotated[Scale, BeforeValidator(_named)]


Format = Literal["idx", "libsvm", "csv", "npz", "images", "parquet", "datasets", "cifar10"]
TABLES: tuple[Format, ...] = ("csv", "parquet", "datasets")
"""Formats with columns that have names."""
PICTURES: tuple[Format, ...] = ("idx", "images", "cifar10")
"""Formats with pixels of 0 to 255."""
Layout = Literal["dense", "sparse"]

GENERATED = "graph_regression"
"""The data set that is drawn, not read."""
IN_MEMORY = "in memory"
"""The data set that was given as arrays, so that a spec of it has no examples."""

_MOST_NUMBERS = 2 * 10**8

Range = Annotated[tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...], Field(min_length=2, max_length=2)]
"""The least and the most."""


class SyntheticSettings(Section):
    """Law of the examples of ``graph_regression``: d = u'w + v with one w, but owners that differ.

    Attributes
    ----------
    owners : int
        Number of owners; the ``natural`` partition gives each of as many nodes the examples of one, in order.
    examples : int
        Training examples of each owner.
    features : int
        Length of u.
    feature_variance : list of float
        An owner's u is normal around 0; its variances along axes turned at random are uniform between these two.
    noise_variance : list of float
        An owner's v is normal around 0; its variance is uniform between these two.
    test_examples : int
        Number of test examples in all, of owners evenly spaced.
    seed : int
        Seed of the examples; they do not depend on the run's seed.
    """

    owners: int = Field(default=1000, ge=1)
    examples: int = Field(default=100, ge=1)
    features: int = Field(default=2, ge=1)
    feature_variance: Range = (0.2, 1.8)
    noise_variance: Range = (0.5, 1.5)
    test_examples: int = Field(default=1000, ge=1)
    seed: int = Field(default=0, ge=0)

    def _problems(self) -> Iterator[str]:
        for key in ("feature_variance", "noise_variance"):
            low, high = getattr(self, key)
            if low > high:
                yield f"{key} must be [least, most], found [{low:g}, {high:g}]"
        # Training features, test features, and a matrix an owner.
        rows = self.owners * (self.examples + self.features) + self.test_examples
        if rows * self.features > _MOST_NUMBERS:
            yield (
                f"{self.owners} owners with {self.examples} examples of {self.features} features are more than "
                f"{_MOST_NUMBERS:,} numbers; lower one of them"
            )


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
        ``idx``, ``libsvm``, ``csv``, ``parquet``, ``datasets`` (a folder that Hugging Face's ``save_to_disk`` wrote),
        ``npz``, ``images`` or ``cifar10``; by default what the name of the file says.
    task : str
        ``classification`` turns labels into class numbers, ``regression`` keeps real targets.
    labels : tuple, optional
        The labels in the order of their class numbers. By default those among the training examples, sorted;
        parties that each load their own data must name them, so that they agree.
    positive : tuple, optional
        The labels that count as class 1; all others are class 0. So a problem of many classes becomes one of two.
    target : str or int
        Tables: the target's column, by name or by position from 0 (-1 is the last).
    owner : str, optional
        Tables: the column that says whose example it is, for the natural partition.
    person : str, optional
        Tables: the column that says which person an example is about, for guarantees that cover all of a person's
        examples (``budget.rows_per_person``). NPZ archives have an array of that name.
    ignore : tuple of str
        Tables: columns that are no features.
    features : int or tuple, optional
        Form of an example: the number of its features; the shape of a picture, ``[1, 28, 28]``, also for flat rows of
        as many features; or, for tables, the names of the columns that are features, in this order. By default as
        found. Parties that each load their own data must say it, so that they agree.
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
    test_by : {"owner"}, optional
        ``owner``: that share is kept of each owner's examples, and one at least, so that none is without. By default it
        is kept of each class.
    synthetic : section, optional
        Law of the examples of ``graph_regression``; no other data set has it, and that one has nothing else.
    columns : mapping, optional
        Tables: the columns that are features, in this order, each with what its cells say and public constants to
        scale it by; or a public YAML file of them. All other columns are left out.
    scale : text or mapping, optional
        ``declared``: numbers are scaled as ``columns`` say, the default where there are any. ``none``: they are left as
        they are, and nothing is said of it. ``private``: numbers without constants are scaled by ranges that nodes
        find together, with noise and charged. Or constants for all features, such as ``{range: [0, 255]}``.
    csv : section, optional
        Dialect of CSV files, if not with commas, points and in UTF-8.
    target_range : list of float or mapping, optional
        Regressions: the least and the most that targets can be, ``[80, 200]``, or ``{mean: 130, deviation: 20}``. So
        models learn targets near -1 to 1; predictions and errors are in the target's own unit. ``none``: targets are
        learnt as they are, and nothing is said of it.
    missing_marks : tuple of str, optional
        Tables: what stands in cells that say nothing, such as -9 or 999, beside what usually does. A column may have
        marks of its own instead.
    first_index : int, optional
        LIBSVM files: the index of the first feature, 1 or 0; by default 1.
    drop_unlabelled : bool, optional
        Tables: whether rows whose target is empty are left out, with a line that counts them, and not refused.
    prevalence : float, optional
        Share of the second of two ``labels``, as it is known without these rows: of what is published, never counted.
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
    test_by: Literal["owner"] | None = None
    synthetic: SyntheticSettings | None = None
    columns: DeclaredColumns | None = None
    scale: ScaleSettings | None = None
    csv: CsvSettings | None = None
    target_range: TargetSettings | None = None
    missing_marks: Marks = None
    first_index: Literal[0, 1] | None = None
    drop_unlabelled: bool | None = None
    prevalence: Annotated[float, Field(gt=0, lt=1)] | None = None

    def complete(self) -> DatasetSettings:
        """These settings with the columns that a file of its own declares.

        Raises
        ------
        SpecError
            If the file cannot be read, or does not say what columns are.
        """
        if not isinstance(self.columns, Path):
            return self
        with beginning(str(self.columns), SpecError):
            return type(self)(**{**self.model_dump(), "columns": read_columns(self.columns)})

    @property
    def target_scale(self) -> TargetRange | None:
        """Constants that real targets are scaled by, if there are any."""
        return self.target_range if isinstance(self.target_range, TargetRange) else None

    @property
    def named(self) -> tuple[str, ...] | None:
        """The names of the columns that are features, where ``features`` names them."""
        names = self.features if isinstance(self.features, tuple) else ()
        return tuple(name for name in names if isinstance(name, str)) or None

    @property
    def chosen(self) -> tuple[str, ...] | None:
        """The names of the columns that are features, where the settings name them."""
        return tuple(self.columns) if isinstance(self.columns, dict) else self.named

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of an example's features, where the settings say it."""
        if isinstance(self.columns, dict):
            return (len(feature_names(self.columns)),)
        if not isinstance(self.features, tuple):
            return None if self.features is None else (self.features,)
        if self.named is not None:
            return (len(self.named),)
        return tuple(size for size in self.features if isinstance(size, int))

    def _decide(self) -> None:
        if self.columns is not None and self.scale is None:
            object.__setattr__(self, "scale", DeclaredScale())

    def _problems(self) -> Iterator[str]:
        named, scale, labels = self.named, self.scale, list(map(str, self.labels or ()))
        features = [*self.features] if isinstance(self.features, tuple) else []
        shape = [size for size in features if isinstance(size, int)]
        columns = self.columns if isinstance(self.columns, dict) else {}
        by_place, in_memory, drawn = isinstance(self.target, int), self.name == IN_MEMORY, self.name == GENERATED
        other = [key for key in ("features", "ignore", "divide_by") if getattr(self, key) not in (None, ())]
        roles = {key: name for key in ("target", "owner", "person") if (name := getattr(self, key)) in columns}
        twice = [name for name, times in Counter(feature_names(columns)).items() if times > 1]
        given = sorted(key for key, field in type(self).model_fields.items() if getattr(self, key) != field.default)
        own = [key for key in given if key not in ("name", "task", "synthetic")]
        rules = {
            "sizes": named is None and shape and min(shape) < 1,
            "names": named is not None and len(set(named)) < len(features),
            "names_of_arrays": named is not None and by_place and in_memory,
            "ignored": named is not None and self.ignore,
            "target_of_features": named is not None and by_place,
            "declared_of_none": self.columns is None and isinstance(scale, DeclaredScale),
            "private_of_none": self.columns is None and isinstance(scale, PrivateScale),
            "columns_of_arrays": self.columns is not None and in_memory,
            "other_key": self.columns is not None and other,
            "constants": self.columns is not None and isinstance(scale, ConstantScale),
            "role": roles,
            "target_of_columns": columns and by_place and not (self.csv is not None and self.csv.header is False),
            "twice": twice,
            "target_range": self.target_range is not None and self.task != "regression",
            "prevalence": self.prevalence is not None and len(labels) != 2,
            "positive": self.prevalence is not None and self.positive and [*map(str, self.positive)] != labels[1:],
            "private_of_sparse": isinstance(scale, PrivateScale)
            and (self.normalise != "none" or self.layout == "sparse"),
            "two_scales": isinstance(scale, ConstantScale) and self.divide_by is not None,
            "synthetic": not drawn and self.synthetic is not None,
            "task_of_drawn": drawn and self.task != "regression",
            "key_of_drawn": drawn and own,
        }
        found = {"features": features, "other": other, "roles": [*roles.items()], "twice": twice, "own": own}
        return refusals(__file__, rules, s=self, **found)

    @model_validator(mode="before")
    @classmethod
    def _what_is_drawn_is_a_regression(cls, values: Any) -> Any:
        """Fill in what follows from the name, so that a written spec says what was done."""
        if not isinstance(values, dict) or values.get("name") != GENERATED:
            return values
        given = {key: value for key, value in values.items() if key != "synthetic" or value is not None}
        return {"task": "regression", "synthetic": SyntheticSettings(), **given}
