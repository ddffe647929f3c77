"""Grids of pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gossamer.report.drawing import stretched, write_grid

PIL = pytest.importorskip("PIL.Image", reason="needs gossamer-fl[images]")
pytest.importorskip("matplotlib", reason="needs gossamer-fl[figures]")


def test_stretching() -> None:
    np.testing.assert_allclose(stretched(np.array([-2.0, 0.0, 2.0])), [0, 0.5, 1])
    np.testing.assert_allclose(stretched(np.array([-2.0, 0.0, 2.0]), 0.0, 1.0), [0, 0, 1])
    np.testing.assert_allclose(stretched(np.array([3.0, 3.0])), [0.5, 0.5])
    np.testing.assert_allclose(stretched(np.array([np.nan, np.inf, 1.0])), [0, 0, 1])


def test_each_picture_is_in_its_cell_and_nothing_is_smoothed(tmp_path: Path) -> None:
    """Of 8 x 8 pixels all are there, in their order, and as wide as high."""
    generator = np.random.default_rng(1)
    above, below = (generator.permutation(np.arange(lowest, lowest + 192)) for lowest in (1, 63))
    rows = [("", list(((values + 0.5) / 255).reshape(3, 1, 8, 8))) for values in (above, below)]
    write_grid(tmp_path / "grid.png", rows)
    with PIL.open(tmp_path / "grid.png") as file:
        found = np.asarray(file.convert("RGB"))
    assert (found[:, :, :1] == found).all()
    middle = len(found) // 2
    for half, values in ((found[:middle], above), (found[middle:], below)):
        cells = {value: np.argwhere(half[:, :, 0] == value) for value in values}
        assert all(np.ptp(cells[value], axis=0).min() + 1 >= 8 and len(cells[value]) >= 64 for value in values)
        places = np.array([cells[value].mean(axis=0) for value in values]).reshape(3, 8, 8, 2)
        assert (np.diff(places[:, :, :, 0], axis=1) > 0).all()
        assert (np.diff(places[:, :, :, 1], axis=2) > 0).all()
        assert (places[1:, :, 0, 1] > places[:-1, :, -1, 1]).all()


def test_colours(tmp_path: Path) -> None:
    picture = np.zeros((3, 100, 100))
    picture[0] = 1.0
    write_grid(tmp_path / "grid.png", [("", [picture])])
    with PIL.open(tmp_path / "grid.png") as file:
        found = np.asarray(file)
    assert found[50, 100].tolist() == [255, 0, 0, 255]
