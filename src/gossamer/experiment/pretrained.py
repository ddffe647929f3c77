"""Common starting models that are read from a file, in place of ones that are drawn.

Whoever names a file says that it does not come from the private data: guarantees assume that, and nothing here can
check it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator
from safetensors import SafetensorError
from safetensors.numpy import load

from gossamer.bounded import MOST_RECORDS, read_file, real_path
from gossamer.errors import SpecError, counted
from gossamer.parameters import Part, pack
from gossamer.section import Section
from gossamer.vectors import Public

_NAMED = 5
"""Most differences that an error lists."""


class PretrainedSettings(Section):
    """A model that all nodes start from.

    Attributes
    ----------
    path : path, optional
        A safetensors file with the model's arrays, by name, such as a run's `model.safetensors`. It must not come from
        the private data of the run. In a federation's spec it is left out: each party says where its own copy lies.
    sha256 : str, optional
        SHA-256 of the file, 64 hexadecimal digits; another file is refused. A run fills it in, so that its spec says
        which file it was.
    """

    path: Path | None = None
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")

    @model_validator(mode="after")
    def _names_a_file(self) -> Self:
        if self.path is None and self.sha256 is None:
            raise ValueError("which file is it? give a path")
        return self


def pretrained_file(settings: PretrainedSettings) -> tuple[bytes, PretrainedSettings]:
    """Content of the file, and the settings with its hash.

    Raises
    ------
    SpecError
        If there is no such file, or it has another hash than the settings say.
    """
    if settings.path is None:
        raise SpecError(f"objective.pretrained: where is the file with SHA-256 {settings.sha256}? give its path")
    try:
        content = read_file(settings.path, MOST_RECORDS)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _wrong(
            settings.path, f"cannot be read ({reason}); give a safetensors file (a party: --pretrained FILE)"
        ) from None
    found = hashlib.sha256(content).hexdigest()
    if settings.sha256 not in (None, found):
        raise _wrong(
            settings.path, f"expected SHA-256 {settings.sha256}, found {found}; give the file that was agreed on"
        )
    return content, settings.model_copy(update={"path": real_path(settings.path), "sha256": found})


def read_pretrained(
    settings: PretrainedSettings, parts: Sequence[Part], dtype: npt.DTypeLike
) -> tuple[Public, PretrainedSettings]:
    """The model in a file, [sum of the parts' sizes], and the settings with the file's hash.

    Raises
    ------
    SpecError
        If the file is not readable, is not the one with that hash, does not hold exactly the arrays that ``parts``
        names, in their shapes, or holds a number that is not finite.
    """
    (content, known), path = pretrained_file(settings), settings.path
    try:
        arrays: dict[str, npt.NDArray[Any]] = load(content)
    except KeyError as error:
        raise _wrong(path, f"has numbers of type {error.args[0]}; save them as float16, float32 or float64") from None
    except (SafetensorError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise _wrong(path, f"is no safetensors file ({reason}); save the model's state_dict as one") from None
    if differing := _differences(arrays, parts):
        more = f", and {counted(len(differing) - _NAMED, 'more difference')}" if len(differing) > _NAMED else ""
        raise _wrong(path, f"is of another model: {'; '.join(differing[:_NAMED])}{more}")
    with np.errstate(over="ignore"):
        vector = Public(pack(arrays, parts, dtype))
    if not vector.is_within():
        raise _wrong(path, f"has numbers that are not finite, or too large for {np.dtype(dtype)}; give a sound model")
    return vector, known


def _differences(arrays: Mapping[str, npt.NDArray[Any]], parts: Sequence[Part]) -> list[str]:
    """Differences of a file's arrays from a model's parts."""
    found = []
    for part in parts:
        array = arrays.get(part.name)
        if array is None:
            found.append(f"{part.name} {list(part.shape)} is missing")
        elif array.shape != part.shape:
            found.append(f"{part.name} is {list(array.shape)}, expected {list(part.shape)}")
        elif array.dtype.kind != "f":
            found.append(f"{part.name} holds {array.dtype}, expected floating-point numbers")
    known = {part.name for part in parts}
    return found + [f"{name[:80]!r} is not in the objective" for name in sorted(arrays.keys() - known)]


def _wrong(path: Path | None, what: str) -> SpecError:
    return SpecError(f"objective.pretrained: {path} {what}")
