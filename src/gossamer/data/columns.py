"""Columns of a table as a spec declares them: which are features, what their cells say, and by what they are scaled.

All constants are public: nothing here is learnt from cells.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from gossamer.arrays import Floats
from gossamer.data.dates import NAMES, Part, as_date, check_format, days_of, in_days
from gossamer.errors import DataError, SpecError, failing_as
from gossamer.files import read_text, refusals
from gossamer.section import Section
from gossamer.strict_yaml import load_yaml

_NAMED = {"tab": "\t", "comma": ",", "semicolon": ";", "space": " ", "pipe": "|"}


def _separator(text: str) -> str:
    found = _NAMED.get(text, text)
    if len(found) != 1 or found.isalnum() or found in "\"'\r\n.+-_":
        raise ValueError("separator must be one sign such as ';', or tab")
    return found


def _encoding(name: str) -> str:
    try:
        "a".encode(name)
    except (LookupError, UnicodeError, ValueError):
        raise ValueError("encoding must be that of a text, such as utf-8, latin-1 or windows-1252") from None
    return name


class CsvSettings(Section):
    """Dialect of a CSV file.

    Attributes
    ----------
    separator : str
        Stands between cells: one sign, or ``tab``.
    decimal : str
        Stands before the decimals of numbers: a point or a comma.
    encoding : str
        Encoding of letters, such as ``latin-1``.
    header : bool, optional
        Whether the first row has the columns' names. Without it columns are called ``0``, ``1``, ... By default it has,
        and a first row that has numbers, dates or the like in it is refused.
    row_names : bool, optional
        Whether each row below the header begins with a cell that has no name there, as R's ``write.table`` writes; it
        is left out.
    """

    separator: Annotated[str, AfterValidator(_separator)] = ","
    decimal: Literal[".", ","] = "."
    encoding: Annotated[str, AfterValidator(_encoding)] = "utf-8"
    header: bool | None = None
    row_names: bool | None = None

    @property
    def in_utf8(self) -> bool:
        """Whether letters are written in UTF-8."""
        return self.encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig")

    def _problems(self) -> Iterator[str]:
        if self.separator == self.decimal:
            yield "a comma cannot stand between cells and in numbers; say separator: ';' as well, or tab"
        if self.row_names and self.header is False:
            yield ("row_names is about files with a header, and header: false says there is none; leave one out")


_LEAST, _MOST = 1.1754944e-38, 3.4028234e38
"""The least and the most of the normal numbers of float32."""

Kind = Literal["number", "category", "boolean", "date"]

Finite = Annotated[float, Field(allow_inf_nan=False)]
Interval = Annotated[tuple[Finite, ...], Field(min_length=2, max_length=2)]
"""The least and the most."""


def _marks(given: Any) -> Any:
    """Marks as cells have them; one may stand for a list of one."""
    items = given if isinstance(given, list | tuple) else [given]
    return None if given is None else tuple(_text(item, "missing_marks") for item in items)


Marks = Annotated[tuple[str, ...] | None, BeforeValidator(_marks)]
"""Texts of cells that say nothing, beside the usual ones."""


class ScaleConstants(Section):
    """Public numbers that features are scaled by.

    Attributes
    ----------
    range : list of float, optional
        The least and the most that values can be: mapped to -1 and 1, and values outside are taken for the nearer one.
    mean, deviation : float, optional
        Published figures of such values: the mean is taken off them, and they are divided by the deviation.
    """

    lacking: ClassVar[str] = ""
    """What is said where there are none, of a class that needs some."""
    range: Interval | None = None
    mean: Finite | None = None
    deviation: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None

    def _problems(self) -> Iterator[str]:
        if self.lacking and (self.range, self.mean, self.deviation) == (None, None, None):
            yield self.lacking
        if self.range is not None and (self.mean, self.deviation) != (None, None):
            yield "give a range, or a mean and a deviation, found both"
        if self.range is not None and not self.range[0] < self.range[1]:
            low, high = self.range
            yield f"range must be [least, most], the least being less, found [{low:g}, {high:g}]"
        if (self.mean is None) != (self.deviation is None):
            yield "give a mean and a deviation, found one of them"
        held = [abs(number) for number in (*(self.range or ()), self.mean) if number is not None]
        spans = [self.shift_and_unit[1], *(number for number in held if number)] if self.scaled else []
        if not all(_LEAST <= number <= _MOST for number in spans):
            yield (f"numbers must fit float32, as features do: 0, or from {_LEAST:.2g} to {_MOST:.2g} in size")

    @property
    def scaled(self) -> bool:
        """Whether there are any."""
        return self.range is not None or self.mean is not None

    @property
    def shift_and_unit(self) -> tuple[float, float]:
        """Number taken off a value, and the one that the rest is divided by."""
        if self.range is not None:
            low, high = self.range
            return low / 2 + high / 2, high / 2 - low / 2
        return (0.0, 1.0) if self.mean is None or self.deviation is None else (self.mean, self.deviation)

    def applied(self, values: npt.NDArray[Any], *, clipped: bool = True) -> npt.NDArray[Any]:
        """Return ``values`` less the shift and in the unit, of their own type; ``clipped`` to a range, if there is."""
        number = values.dtype.type
        if clipped and self.range is not None:
            values = values.clip(*map(number, self.range))
        shift, unit = map(number, self.shift_and_unit)
        return np.asarray((values - shift) / unit)


# A clip limits how far one example moves a model, so a target of 130 would take a private run hundreds of steps to
# reach. So models learn it near -1 to 1 by public constants, and people see it in its own unit.


class TargetRange(ScaleConstants):
    """Constants that targets of a regression are scaled by; a list of two numbers is short for its ``range``.

    Attributes
    ----------
    range : list of float, optional
        The least and the most that targets can be: mapped to -1 and 1. Training examples outside are taken for the
        nearer one.
    mean, deviation : float, optional
        Published figures of such targets: the mean is taken off them, and they are divided by the deviation.
    """

    lacking: ClassVar[str] = "give the least and the most target, such as [80, 200], or a mean and a deviation"

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return {"range": list(given)}
        if not isinstance(given, Mapping | cls):
            raise ValueError(f"expected the least and the most target, such as [80, 200], found {given!r:.40}")
        return given

    @property
    def unit(self) -> float:
        """The target's own units in one of the model's."""
        return self.shift_and_unit[1]

    def inside(self, targets: npt.ArrayLike, *, clipped: bool) -> npt.NDArray[np.float32]:
        """Targets [n] as a model learns them.

        Parameters
        ----------
        targets : array_like [n]
            Targets in their own unit.
        clipped : bool
            Whether those outside of the range are taken for its nearer end.

        Raises
        ------
        DataError
            If one is no finite number of float32 then.
        """
        values = np.asarray(targets, np.float64)
        found = self._as_learnt(values, clipped=clipped)
        if not np.isfinite(found).all():
            raise DataError(
                f"the target {values[~np.isfinite(found)][0]:g} is no finite number of float32 once it is scaled by "
                "the target's range; correct it"
            )
        return found

    def _as_learnt(self, values: Floats, *, clipped: bool = False) -> npt.NDArray[np.float32]:
        with np.errstate(over="ignore"):
            found: npt.NDArray[np.float32] = self.applied(values, clipped=clipped).astype(np.float32)
        return found

    def own(self, targets: npt.NDArray[Any]) -> Floats:
        """Targets or predictions [n] of a model in their own unit."""
        shift, unit = self.shift_and_unit
        return np.asarray(targets, np.float64) * unit + shift

    def exactly(self, targets: npt.NDArray[Any]) -> Floats:
        """Targets [n] in their own unit that are, once more scaled, just these: of all that round to them, one."""
        found = self.own(targets)
        for near in (found, np.nextafter(found, np.inf), np.nextafter(found, -np.inf)):
            found = np.where(self._as_learnt(near) == targets, near, found)
        return found


NoTargetRange = Literal["none"]
"""Targets are learnt as they are, and that is meant."""

# The tags have a bracket, so that errors do not show them as keys.
TargetSettings = Annotated[
    Annotated[NoTargetRange, Tag("[none]")] | Annotated[TargetRange, Tag("[range]")],
    Discriminator(lambda value: "[none]" if isinstance(value, str) and value == "none" else "[range]"),
]


class Column(ScaleConstants):
    """A column that is a feature: a number, a text of several, true or false, or a date.

    A list is short for its ``range`` (two numbers, or two dates) or its ``categories`` (texts), and a kind for itself:
    ``[0, 120]``, ``[2015-01-01, 2024-12-31]``, ``[female, male]``, ``boolean``.

    Attributes
    ----------
    kind : str, optional
        ``number`` is one feature, scaled as it says here; ``category`` is a feature for each text, 1 where the cell has
        that text and 0 elsewhere; ``boolean`` is one feature, 0 or 1; ``date`` is what ``parts`` say. By default what
        the other keys say.
    categories : tuple of str, optional
        The texts that cells may have, in the order of their features. Any other is refused.
    missing : number, text or truth value, optional
        Read where a cell is empty, NA, N/A, NaN, null, none, ``#N/A``, ``<NA>``, a question mark, a point or a dash. By
        default such a cell is refused.
    missing_marks : tuple of str, optional
        Further texts in cells of this column that say nothing, such as -9 or 999, in place of
        ``dataset.missing_marks``; an empty list says that nothing does.
    range : list of float, optional
        The least and the most that values can be: mapped to -1 and 1, and values outside are taken for the nearer one.
    mean, deviation : float, optional
        Published figures of such values: the mean is taken off them, and they are divided by the deviation.
    was_empty : bool, optional
        Whether there is a further feature, 1 where a cell was empty and 0 elsewhere.
    since : date or str, optional
        Dates: what days are counted from, a public date or the name of another column of dates, such as that of birth;
        by default the first date of the range.
    format : str, optional
        Dates: how they are written, such as ``%d.%m.%Y``; by default as ISO 8601 has it, such as 2024-01-31.
    parts : tuple of str, optional
        Dates: which of ``days``, ``month`` and ``weekday`` are features; by default days. They are a number, scaled as
        it says here; a month and a weekday are categories, and an empty cell has none.
    """

    kind: Kind = "number"
    categories: Annotated[tuple[str, ...] | None, Field(min_length=2)] = None
    missing: bool | float | str | None = None
    missing_marks: Marks = None
    was_empty: bool | None = None
    since: str | None = None
    format: Annotated[str, AfterValidator(check_format)] | None = None
    parts: Annotated[tuple[Part, ...], Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, given: Any) -> Any:
        if isinstance(given, str):
            given = {"kind": given}
        elif isinstance(given, list | tuple):
            given = _of_list(given)
        if isinstance(given, Mapping):
            given = in_days(given)
        if not isinstance(given, Mapping) or given.get("categories") is None:
            return given
        texts = given["categories"]
        if not isinstance(texts, list | tuple):
            raise ValueError(f"categories must be a list of texts such as [female, male], found {texts!r}")
        return {"kind": "category", **given, "categories": [_text(item) for item in texts]}

    def _decide(self) -> None:
        if self.kind == "category" and self.categories and self.missing is not None:
            object.__setattr__(self, "missing", _text(self.missing))

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        texts, dated, missing = self.categories or (), self.kind == "date", self.missing
        said, number = missing is not None, None if isinstance(missing, bool | str) else missing
        both = sorted({*texts} & {*(self.missing_marks or ())})
        foreign = [key for key in ("since", "format", "parts") if getattr(self, key) is not None]
        constants = [key for key in ("range", "mean", "deviation") if getattr(self, key) is not None]
        low, high = self.range or (-math.inf, math.inf)
        rules = {
            "categories": (self.kind == "category") != (self.categories is not None),
            "constants": not self.is_number and constants,
            "twice": len(set(texts)) < len(texts),
            "marks": both,
            "missing_truth": said and self.kind == "boolean" and not isinstance(missing, bool),
            "missing_category": said and texts and missing not in texts,
            "missing_part": said and dated and not self.is_number,
            "missing_number": said and self.is_number and number is None,
            "missing_outside": self.is_number and number is not None and not low <= number <= high,
            "was_empty": self.was_empty and not said and (self.is_number or not dated),
            "dates": not dated and foreign,
            "parts": len(set(self.of_dates)) < len(self.of_dates),
            "since": dated and self.is_number and self.since is None,
        }
        found = {"both": both, "foreign": foreign, "listed": [*texts], "parts": [*self.of_dates]}
        said_as = {"constants": " and ".join(constants), "texts": ", ".join(texts)}
        unit = "number of days" if dated else "number"
        yield from refusals(__file__, rules, s=self, unit=unit, **found, **said_as)

    @property
    def of_dates(self) -> tuple[Part, ...]:
        """Parts of dates that are features; none of other columns."""
        return (self.parts or ("days",)) if self.kind == "date" else ()

    @property
    def is_number(self) -> bool:
        """Whether it is a number, or a date of whose days there is one."""
        return self.kind == "number" or "days" in self.of_dates

    @property
    def start(self) -> float | None:
        """Days from 1970 to the date that days are counted from; None where that is another column's."""
        return None if self.since is None or as_date(self.since) is None else days_of(self.since)

    @property
    def other(self) -> str | None:
        """The column that days are counted from, if it is one."""
        return self.since if self.start is None else None

    def names(self, name: str) -> tuple[str, ...]:
        """Names of the features of a column called ``name``."""
        texts = self.categories or tuple(text for part in self.of_dates for text in NAMES.get(part, ()))
        whole = () if self.categories is not None or (self.kind == "date" and not self.is_number) else (name,)
        return (*whole, *(f"{name}={text}" for text in texts), *((f"{name} was empty",) if self.was_empty else ()))


def _of_list(given: list[Any] | tuple[Any, ...]) -> dict[str, Any]:
    """Return what a list is short for."""
    if any(isinstance(item, bool) for item in given):
        raise ValueError("yes and no without quotes are truth values: write boolean, or the texts in quotes")
    if given and all(isinstance(item, int | float) for item in given):
        if len(given) != 2:
            raise ValueError(
                f"a list of two numbers is a range, found {len(given)}; write {{categories: [...]}} for numbers that "
                "stand for something else"
            )
        return {"range": list(given)}
    if len(given) == 2 and all(as_date(item) is not None for item in given):
        return {"range": list(given)}
    if (text := _unsigned(given)) is not None:
        raise ValueError(
            f"{text} is a text in YAML, whose exponents have a sign: write {text.lower().replace('e', 'e+')}, or "
            "{categories: [...]} for a text"
        )
    return {"categories": list(given)}


def _unsigned(given: list[Any] | tuple[Any, ...]) -> str | None:
    """A text in what was meant as a range: 1.0e4, or 1e4 beside a number."""
    numbers = any(isinstance(item, int | float) for item in given)
    texts = [item for item in given if isinstance(item, str) and _UNSIGNED.fullmatch(item)]
    return next((text for text in texts if numbers or "." in text), None)


_UNSIGNED = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE]\d+")


def _text(value: Any, what: str = "categories") -> str:
    """A category, or a mark, as cells have it."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{what} must be texts, found {value!r}; put it in quotes")
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value).strip()


Columns = dict[str, Column]


def texts_as_keys(given: Any) -> Any:
    """Let numbers be names: files without a header have none else."""
    if not isinstance(given, Mapping):
        return given
    return {
        str(key) if isinstance(key, int) and not isinstance(key, bool) else key: item for key, item in given.items()
    }


# The tags have a bracket, so that errors do not show them as keys.
DeclaredColumns = Annotated[
    Annotated[Annotated[Columns, Field(min_length=1)], BeforeValidator(texts_as_keys), Tag("[columns]")]
    | Annotated[Path, Tag("[path]")],
    Discriminator(lambda value: "[path]" if isinstance(value, str | Path) else "[columns]"),
]
"""Columns by name, in the order of their features; or a file that has them."""


def read_columns(path: Path) -> Any:
    """The columns that a public YAML file declares, as plain data.

    Raises
    ------
    SpecError
        If it cannot be read, or has no columns.
    """
    with failing_as(SpecError, f"dataset.columns: cannot read {path}: ", "; correct its path"):
        text = read_text(path)
    with failing_as(SpecError, f"{path}, ", of=SpecError):
        content = load_yaml(text)
    if not isinstance(content, Mapping):
        raise SpecError(f"{path}: expected columns with what they are, such as age: [0, 120], found {content!r:.60}")
    return content


def feature_names(columns: Columns) -> tuple[str, ...]:
    """The names of all features, in order."""
    return tuple(feature for name, column in columns.items() for feature in column.names(name))


def with_marks(columns: Columns, marks: Sequence[str]) -> Columns:
    """Columns with the marks of the whole file, where they do not say others."""
    return {
        name: column
        if column.missing_marks is not None or not marks
        else column.model_copy(update={"missing_marks": marks})
        for name, column in columns.items()
    }
