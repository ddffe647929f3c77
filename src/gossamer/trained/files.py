"""A model on disk: `model.safetensors` with its numbers, and its card, beside it and in its metadata."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gossamer.arrays import FloatArray
from gossamer.bounded import elsewhere
from gossamer.errors import DataError
from gossamer.parameters import pack, unpack
from gossamer.trained.card import FILE, LARGEST, METADATA, Card, damaged, read_card

ARRAYS = "model.safetensors"
_SUFFIX = ".safetensors"


def saved(model: FloatArray, card: Card) -> bytes:
    """The content of a safetensors file with the vector ``model`` [size], and with the card in its metadata."""
    arrays = unpack(np.asarray(model), card.arrays)
    return save({name: np.ascontiguousarray(part) for name, part in arrays.items()}, card.metadata)


def read_model(place: Path) -> tuple[Card, FloatArray]:
    """The card and the vector [size] of a folder, or of a safetensors file that was handed on alone.

    Raises
    ------
    DataError
        If there is none, or its files are damaged or do not fit each other.
    """
    try:
        folder = place.is_dir()
        arrays = place / ARRAYS if folder else place
        there = arrays.is_file()
    except (OSError, ValueError) as error:  # a name that is too long, or has a zero byte
        raise DataError(f"{str(place)[:80]}: cannot be read ({error}); give a run's results") from None
    if not there:
        found = elsewhere(place, ARRAYS) or ", found none"
        raise DataError(
            f"{place}: expected the folder of a run, with {ARRAYS}{found}; give a run's results, or a party's --store, "
            "or such a file itself"
        )
    if not folder and place.suffix != _SUFFIX and not _is_model(place):
        raise DataError(
            f"{place}: expected a run's results, a party's --store, or a file that ends in {_SUFFIX}, found a file of "
            "another kind; give the model there"
        )
    inside = _card_inside(arrays)
    beside = _card_beside(place / FILE) if folder else None
    if inside is not None and beside is not None and inside != beside:
        raise damaged(place, f"{FILE} and {ARRAYS} are not of one run")
    card = beside or inside
    if card is None:
        raise DataError(
            f"{place}: expected a model with its card, which says how rows are read, found arrays without one; give "
            "the results folder or file of a run of this Gossamer"
        )
    return card, _vector(arrays, card)


def _is_model(path: Path) -> bool:
    """Whether a file has the form of safetensors, whatever its name."""
    try:
        with safe_open(path, "np"):
            return True
    except (OSError, ValueError, SafetensorError):
        return False


def _card_beside(path: Path) -> Card | None:
    if not path.exists():
        return None
    if not path.is_file():
        raise damaged(path, "it is no file")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LARGEST + 1)
    except UnicodeDecodeError:
        raise damaged(path, "it is not UTF-8 text") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    return read_card(text, path)


def _card_inside(path: Path) -> Card | None:
    try:
        with safe_open(path, "np") as file:
            text = (file.metadata() or {}).get(METADATA)
    except (OSError, ValueError, SafetensorError) as error:
        raise damaged(path, str(error)) from None
    return None if text is None else read_card(text, path)


def _vector(path: Path, card: Card) -> FloatArray:
    """The numbers, in the order of the card's parts."""
    try:
        with safe_open(path, "np") as file:
            names = set(file.keys())
            expected = {part.name for part in card.arrays}
            if names != expected:
                raise damaged(path, f"arrays {sorted(names)[:5]} in the place of {sorted(expected)[:5]}")
            found = {name: file.get_tensor(name) for name in names}
        vector = pack(found, card.arrays, card.objective.dtype)
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        raise error if isinstance(error, DataError) else damaged(path, str(error)) from None
    if not np.isfinite(vector).all():
        raise DataError(
            f"{path}: expected finite numbers, found others: the run diverged, and such a model predicts nothing; "
            "lower its learning rate"
        )
    return vector
