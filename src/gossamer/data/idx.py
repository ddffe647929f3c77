"""IDX, the format of MNIST: a magic number, big-endian dimensions, then the array.

References
----------
Y. LeCun, C. Cortes, C. J. C. Burges, "The MNIST database of handwritten digits", section "File formats".
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gossamer.data.compression import read_bytes, variant
from gossamer.data.examples import Labelled, Pair
from gossamer.errors import DataError

TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

_MOST_DIMENSIONS = 8
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path) -> npt.NDArray[np.generic]:
    """The array of one IDX file, plain or compressed, in the machine's byte order.

    Raises
    ------
    DataError
        If the magic number is unknown or the length does not match the dimensions.
    """
    content = read_bytes(path)
    magic = content[:4]
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES or magic[3] > _MOST_DIMENSIONS:
        raise DataError(
            f"{path}: expected an IDX file (two zero bytes, a type, the number of dimensions), "
            f"found {magic.hex(' ') or 'an empty file'}"
        )
    dtype, header = np.dtype(_TYPES[magic[2]]), 4 + 4 * magic[3]
    shape = tuple(np.frombuffer(content[4:header].ljust(4 * magic[3], b"\0"), ">u4").tolist())
    expected = header + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise DataError(f"{path}: expected {expected} bytes for shape {shape}, found {len(content)}")
    array = np.frombuffer(content, dtype, offset=header).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def read_idx_folder(folder: Path) -> Pair:
    """The four MNIST files of ``folder`` (any data set in their form), images as [n, 1, height, width].

    Pixels stay in 0..255. The t10k files may both be absent.

    Raises
    ------
    DataError
        If a file is missing or the files do not fit together.
    """
    found = {name: variant(folder, name) for name in TRAIN + TEST}
    required = TRAIN + (TEST if any(found[name] for name in TEST) else ())
    missing = [name for name in required if found[name] is None]
    if missing:
        raise DataError(f"expected IDX files in the folder {folder}, missing: {', '.join(missing)} (or .gz)")
    splits = [
        _read_split(images, labels)
        for images, labels in ([found[name] for name in names] for names in (TRAIN, TEST))
        if images and labels
    ]
    return splits[0], splits[1] if len(splits) == 2 else None


def _read_split(images: Path, labels: Path) -> Labelled:
    pixels, numbers = read_idx(images), read_idx(labels)
    if pixels.dtype != np.uint8 or pixels.ndim != 3:
        raise DataError(
            f"{images}: expected unsigned bytes [n, height, width], found {pixels.dtype} {list(pixels.shape)}"
        )
    if numbers.ndim != 1 or len(numbers) != len(pixels):
        raise DataError(f"{labels}: expected {len(pixels)} labels, found an array {list(numbers.shape)}")
    return Labelled(pixels[:, np.newaxis].astype(np.float32), numbers.astype(np.float64))
