"""Two distributions beside each other, as one PNG."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.errors import DataError
from gossamer.extras import install_line
from gossamer.files import replaced

_BINS = 40


def write_histograms(
    path: Path, groups: dict[str, npt.NDArray[np.floating]], label: str, *, logarithmic: bool = True
) -> None:
    """Draw a histogram of each group over common bins, as shares of the group.

    Parameters
    ----------
    path : Path
        The file.
    groups : dict of str to ndarray
        Values by name; those that are not finite are left out.
    label : str
        Of the horizontal axis.
    logarithmic : bool
        Whether bins are even in the logarithm; values of 0 then count as the least positive one.

    Raises
    ------
    DataError
        If matplotlib is not installed.
    """
    figure_class = _matplotlib("figure").Figure
    finite = {name: np.asarray(values)[np.isfinite(values)] for name, values in groups.items()}
    bins = _bins(np.concatenate(list(finite.values())), logarithmic)
    figure = figure_class(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for name, values in finite.items():
        shown = np.clip(values, bins[0], bins[-1])
        weights = np.full(len(shown), 1 / max(len(shown), 1))
        axes.hist(shown, bins=bins, weights=weights, alpha=0.5, label=f"{name} ({len(groups[name])})")
    if logarithmic:
        axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel("share")
    axes.legend(frameon=False)
    with replaced(path) as file:
        figure.savefig(file, dpi=120, format="png")


def _bins(values: npt.NDArray[np.floating], logarithmic: bool) -> npt.NDArray[np.float64]:
    values = values[values > 0] if logarithmic else values
    if not len(values):
        return np.linspace(0.1 if logarithmic else 0.0, 1.0, _BINS + 1)
    low, high = float(values.min()), float(values.max())
    if logarithmic:
        low = max(low, high * 1e-6)
        return np.geomspace(low, high if high > low else 2 * low, _BINS + 1)
    return np.linspace(low, high if high > low else low + 1, _BINS + 1)


def _matplotlib(name: str) -> Any:
    try:
        return import_module(f"matplotlib.{name}")
    except ImportError as error:
        raise DataError(f"a histogram needs matplotlib, which is not here: {install_line('figures')}") from error
