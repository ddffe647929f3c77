"""NumPy's archives of arrays, none of which is read before it is known to be as large as its file says."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from gossamer.data.compression import archive
from gossamer.errors import DataError

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_arrays(path: Path, content: bytes) -> dict[str, npt.NDArray[np.generic]]:
    """Return the arrays of an NPZ archive, by name; nothing in it is unpickled.

    Raises
    ------
    DataError
        If it is no such archive, is damaged, or has an array that is larger than what there is of it.
    """
    try:
        with archive(path, content) as members:
            return {
                member.filename.removesuffix(".npy"): _array(members, member)
                for member in members.infolist()
                if not member.is_dir()
            }
    except DataError:
        raise
    # numpy reads a damaged header as code, which raises whatever it likes; what is encrypted is a RuntimeError
    except Exception as error:
        raise DataError(f"{path}: expected an NPZ archive of plain arrays ({error})") from None


def _array(members: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[np.generic]:
    with members.open(member) as file:
        _check_size(file, member)
    with members.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _check_size(file: IO[bytes], member: zipfile.ZipInfo) -> None:
    """Refuse an array whose header says more than follows it: memory would be taken for all of it."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"{member.filename} is of a version of NPY that is not known")
    shape, _, kind = _HEADERS[version](file)
    size = math.prod(shape) * kind.itemsize
    if not kind.hasobject and size > member.file_size:
        raise ValueError(f"{member.filename} has the shape {shape}, and fewer numbers")
