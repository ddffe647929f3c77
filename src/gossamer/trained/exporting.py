"""Models for other programs: PyTorch, ONNX Runtime and scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from gossamer.errors import CallerError, did_you_mean
from gossamer.extras import install_line
from gossamer.files import write_own
from gossamer.trained.card import ARRAYS, FILE
from gossamer.trained.model import Model


@dataclass(frozen=True)
class Target:
    """A program that models are exported to.

    Attributes
    ----------
    module, function : str
        Maker of the file's content, below `gossamer.trained`.
    file : str
        The usual name.
    needs : tuple of str
        Packages that must be there.
    extra : str
        Extra that the packages come with.
    """

    module: str
    function: str
    file: str
    needs: tuple[str, ...]
    extra: str


TARGETS: Mapping[str, Target] = {
    "torch": Target("torch_export", "torch_file", "model.pt2", ("torch",), "torch"),
    "onnx": Target("torch_export", "onnx_file", "model.onnx", ("torch", "onnx", "onnxscript"), "onnx"),
    "sklearn": Target("sklearn_export", "sklearn_file", "model.joblib", ("sklearn",), "sklearn"),
}


def export_model(model: Model, to: str, out: Path, *, overwrite: bool = False) -> Path:
    """Write a model for another program, for its owner alone; see `gossamer.Model.export`.

    Raises
    ------
    CallerError
        If there is no such target, its packages are not installed, it cannot hold the model, or the file is there
        already or cannot be written.
    """
    target = check_target(to)
    place = out / target.file if out.is_dir() else out
    if not place.parent.is_dir():
        raise CallerError(f"{place}: there is no folder {place.parent}; make it, or choose another")
    if place.exists() and not overwrite:
        raise CallerError(f"{place} exists; choose another name, or replace it with overwrite=True")
    if place.name in (ARRAYS, FILE):
        raise CallerError(f"{place}: {place.name} is the name of a run's own file; choose another")
    content = getattr(import_module(f"gossamer.trained.{target.module}"), target.function)(model)
    try:
        write_own(place, content)
    except OSError as error:
        raise CallerError(f"{place}: cannot be written: {error.strerror or error}; choose another place") from None
    return place


def check_target(to: str) -> Target:
    """The target of that name, whose packages are there.

    Raises
    ------
    CallerError
        If there is no such target, or a package is not installed.
    """
    if not isinstance(to, str) or to not in TARGETS:
        found = str(to)[:40]
        raise CallerError(f"models are exported to {', '.join(TARGETS)}, found {found!r}{did_you_mean(found, TARGETS)}")
    target = TARGETS[to]
    missing = [package for package in target.needs if find_spec(package) is None]
    if missing:
        raise CallerError(
            f"an export to {to} needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            f"installed: {install_line(target.extra)}"
        )
    return target
