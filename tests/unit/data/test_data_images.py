"""Pictures in folders and zips; PNG keeps pixels exactly, so they can be compared."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gossamer.data.picture_files import read_images
from gossamer.errors import DataError

Image = pytest.importorskip("PIL.Image")


def _picture(folder: Path, name: str, pixels: np.ndarray) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def colours(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    generator = np.random.default_rng(5)
    names = ["train/red/2.png", "train/blue/1.png", "train/red/1.png", "test/blue/9.png"]
    pixels = {name: generator.integers(0, 256, (4, 3, 3), np.uint8) for name in names}
    for name, array in pixels.items():
        _picture(tmp_path / "set", name, array)
    (tmp_path / "set" / "train" / "red" / "notes.txt").write_text("no picture")
    return tmp_path / "set", pixels


@pytest.mark.parametrize("zipped", [False, True])
def test_pictures_in_order_of_names(colours, tmp_path: Path, zipped: bool) -> None:
    folder, pixels = colours
    path = folder
    if zipped:
        path = tmp_path / "set.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for file in folder.rglob("*.*"):
                archive.write(file, file.relative_to(folder))
    train, test = read_images(path)
    assert train.labels.tolist() == ["blue", "red", "red"]
    assert train.features.shape == (3, 3, 4, 3)
    expected = pixels["train/red/2.png"].transpose(2, 0, 1)
    assert np.array_equal(train.features[2], expected)
    assert test is not None
    assert np.array_equal(test.features[0], pixels["test/blue/9.png"].transpose(2, 0, 1))


def test_grey_pictures_have_one_channel(tmp_path: Path) -> None:
    _picture(tmp_path, "train/a/1.png", np.array([[0, 7], [8, 255]], np.uint8))
    train, test = read_images(tmp_path)
    assert train.features.tolist() == [[[[0, 7], [8, 255]]]]
    assert test is None


def test_sizes_must_agree(colours) -> None:
    folder, _ = colours
    _picture(folder, "train/red/3.png", np.zeros((5, 3, 3), np.uint8))
    with pytest.raises(DataError, match=r"one size, found train/red/3\.png of 3x5 and train/blue/1\.png of 3x4"):
        read_images(folder)


def test_sixteen_bits_are_refused_not_cut(tmp_path: Path) -> None:
    _picture(tmp_path, "train/a/1.png", np.array([[0, 60_000]], np.uint16))
    with pytest.raises(DataError, match=r"8 bits a channel in train/a/1\.png"):
        read_images(tmp_path)


def test_a_broken_picture_is_named(colours) -> None:
    folder, _ = colours
    (folder / "train" / "red" / "1.png").write_bytes(b"\x89PNG no more")
    with pytest.raises(DataError, match=r"train/red/1\.png is not a picture"):
        read_images(folder)


def test_no_pictures(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected pictures as train/<class>/<name>"):
        read_images(tmp_path)
    (tmp_path / "set.zip").write_bytes(b"no zip")
    with pytest.raises(DataError, match="expected a folder or a zip"):
        read_images(tmp_path / "set.zip")


def test_without_pillow_it_says_what_to_install(colours, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DataError, match=r'-m pip install "pillow>='):
        read_images(colours[0])
