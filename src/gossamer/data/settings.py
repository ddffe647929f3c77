"""Which data an experiment uses, as a spec says it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Format = Literal["idx", "libsvm", "csv", "npz", "images"]


class DatasetSettings(BaseModel):
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
    ignore : tuple of str
        CSV: columns that are no features.
    features : int, optional
        LIBSVM: number of features; by default the largest index found.
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
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    path: Path | None = None
    test_path: Path | None = None
    format: Format | None = None
    task: Literal["classification", "regression"] = "classification"
    labels: Annotated[tuple[int | str, ...], Field(min_length=2)] | None = None
    positive: Annotated[tuple[int | str, ...], Field(min_length=1)] | None = None
    target: str | int = -1
    owner: str | None = None
    ignore: tuple[str, ...] = ()
    features: Annotated[int, Field(gt=0)] | None = None
    layout: Literal["dense", "sparse"] | None = None
    divide_by: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    normalise: Literal["none", "unit_norm"] = "none"
    test_fraction: float = Field(default=0.2, gt=0, lt=1)
