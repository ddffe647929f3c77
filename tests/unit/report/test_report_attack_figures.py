"""Grids of pictures and histograms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gossamer.errors import DataError
from gossamer.report.drawing import stretched, write_grid, write_histograms

PIL = pytest.importorskip("PIL.Image", reason="needs gossamer-fl[images]")


def test_stretching() -> None:
    np.testing.assert_allclose(stretched(np.array([-2.0, 0.0, 2.0])), [0, 0.5, 1])
    np.testing.assert_allclose(stretched(np.array([-2.0, 0.0, 2.0]), 0.0, 1.0), [0, 0, 1])
    np.testing.assert_allclose(stretched(np.array([3.0, 3.0])), [0.5, 0.5])
    np.testing.assert_allclose(stretched(np.array([np.nan, np.inf, 1.0])), [0, 0, 1])


def test_each_picture_is_in_its_cell_enlarged_by_a_whole_factor(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    rows = [("first", generator.random((3, 1, 8, 8))), ("the second row", generator.random((3, 1, 8, 8)))]
    write_grid(tmp_path / "grid.png", [(label, list(pictures)) for label, pictures in rows])
    with PIL.open(tmp_path / "grid.png") as file:
        found = np.asarray(file)
    side = 88  # 8 pixels, 11 times: the least whole factor that makes 84
    assert found.shape[0] == 2 * 10 + 2 * side + 6
    for i, (_, pictures) in enumerate(rows):
        for j, picture in enumerate(pictures):
            top, left = 10 + i * (side + 6), found.shape[1] - 10 - (3 - j) * side - (2 - j) * 6
            cell = found[top : top + side, left : left + side]
            expected = np.rint(255 * picture[0]).repeat(11, axis=0).repeat(11, axis=1)
            for channel in range(3):
                np.testing.assert_array_equal(cell[:, :, channel], expected)
    assert (found[:, :80] < 128).any()  # the labels


def test_colours(tmp_path: Path) -> None:
    picture = np.zeros((3, 100, 100))
    picture[0] = 1.0
    write_grid(tmp_path / "grid.png", [("", [picture])])
    with PIL.open(tmp_path / "grid.png") as file:
        found = np.asarray(file)
    assert found[60, -60].tolist() == [255, 0, 0]
    with pytest.raises(DataError, match="1 or 3 channels"):
        write_grid(tmp_path / "grid.png", [("", [np.zeros((2, 8, 8))])])


@pytest.mark.some(3)
@pytest.mark.parametrize("values", [[0.1, 2.0, 30.0, np.inf], [0.0, 0.0], [1.0, 1.0]])
def test_histograms_are_drawn(values: list[float], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs gossamer-fl[figures]")
    write_histograms(tmp_path / "h.png", {"a": np.array(values), "b": np.ones(3)}, "loss")
    with PIL.open(tmp_path / "h.png") as picture:
        assert picture.size[0] > 500
