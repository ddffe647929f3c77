"""Figures of attacks as PNG: grids of small pictures, a labelled row under another, and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.errors import DataError
from gossamer.files import replaced
from gossamer.report.figure import needed

_BINS = 40


def write_histograms(path: Path, groups: dict[str, npt.NDArray[np.floating]], label: str) -> None:
    """Draw a histogram of each group over common bins, even in the logarithm, as shares of the group.

    Parameters
    ----------
    path : Path
        The file.
    groups : dict of str to ndarray
        Values by name; those that are not finite are left out, and 0 counts as the least positive one.
    label : str
        Label of the horizontal axis.

    Raises
    ------
    DataError
        If matplotlib is not installed.
    """
    figure_class = needed("matplotlib.figure", "figures", "a histogram").Figure
    finite = {name: np.asarray(values)[np.isfinite(values)] for name, values in groups.items()}
    bins = _bins(np.concatenate(list(finite.values())))
    figure = figure_class(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for name, values in finite.items():
        shown = np.clip(values, bins[0], bins[-1])
        weights = np.full(len(shown), 1 / max(len(shown), 1))
        axes.hist(shown, bins=bins, weights=weights, alpha=0.5, label=f"{name} ({len(groups[name])})")
    axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel("share")
    axes.legend(frameon=False)
    with replaced(path) as file:
        figure.savefig(file, dpi=120, format="png")


def _bins(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    values = values[values > 0]
    high = float(values.max(initial=0.0)) or 1.0
    low = max(float(values.min(initial=high)), high * 1e-6) if len(values) else 0.1
    return np.geomspace(low, high if high > low else 2 * low, _BINS + 1)


_CELL, _GAP, _MARGIN = 84, 6, 10  # pixels: least side of a picture, between pictures, around the grid
_FONT = 14
_WHITE = 255


def stretched(picture: FloatArray, low: float | None = None, high: float | None = None) -> FloatArray:
    """``picture`` mapped linearly so that low becomes 0 and high 1; by default its own least and largest value.

    What lies outside is clipped, what is not finite is 0, and a flat picture is grey.
    """
    values = np.nan_to_num(np.asarray(picture, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low = float(values.min()) if low is None else low
    high = float(values.max()) if high is None else high
    return np.clip((values - low) / (high - low), 0.0, 1.0) if high > low else np.full_like(values, 0.5)


def write_grid(path: Path, rows: Sequence[tuple[str, Sequence[FloatArray]]]) -> None:
    """Write a grid as a PNG.

    Parameters
    ----------
    path : Path
        The file.
    rows : sequence of (label, pictures)
        Rows of equally many pictures, all of one size: [height, width], or [channels, height, width] with 1 or 3
        channels, with values in [0, 1]. Pixels are enlarged by a whole factor, never smoothed.

    Raises
    ------
    DataError
        If Pillow is not installed, or an array is no picture.
    """
    image, draw, font = (
        needed(f"PIL.{name}", "images", "a grid of pictures") for name in ("Image", "ImageDraw", "ImageFont")
    )
    face = font.load_default(size=_FONT)
    cells = [[_pixels(picture) for picture in pictures] for _, pictures in rows]
    height, width = cells[0][0].shape[:2]
    labels = max(int(face.getlength(label)) for label, _ in rows) + _GAP
    shape = (
        2 * _MARGIN + len(rows) * (height + _GAP) - _GAP,
        2 * _MARGIN + labels + len(cells[0]) * (width + _GAP) - _GAP,
    )
    canvas = np.full((*shape, 3), _WHITE, np.uint8)
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            top, left = _MARGIN + i * (height + _GAP), _MARGIN + labels + j * (width + _GAP)
            canvas[top : top + height, left : left + width] = cell
    picture = image.fromarray(canvas)
    pen = draw.Draw(picture)
    for i, (label, _) in enumerate(rows):
        middle = _MARGIN + i * (height + _GAP) + height // 2
        pen.text((_MARGIN, middle), label, fill=0, font=face, anchor="lm")
    with replaced(path) as file:
        picture.save(file, format="PNG")


def _pixels(picture: FloatArray) -> npt.NDArray[np.uint8]:
    """Bytes [height, width, 3], enlarged."""
    channels = picture[None] if picture.ndim == 2 else picture
    if channels.ndim != 3 or len(channels) not in (1, 3):
        raise DataError(f"expected a picture [1 or 3 channels, height, width], found {list(picture.shape)}")
    values = np.rint(255 * np.clip(channels, 0, 1)).astype(np.uint8).transpose(1, 2, 0)
    colour = np.repeat(values, 3, axis=2) if len(channels) == 1 else values
    factor = max(1, -(-_CELL // min(colour.shape[:2])))
    return colour.repeat(factor, axis=0).repeat(factor, axis=1)
