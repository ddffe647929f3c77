"""Losses of other distributions in a network: called for one example at a time, and tried before they are used.

Clipping bounds what one example adds to a gradient if its loss depends on that example alone. So a loss is never given
a batch: ``torch.func`` vectorises it over examples, whose tensors it cannot tell from those of one example.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from gossamer.errors import ModelError, SpecError
from gossamer.objectives.loss_settings import OwnLoss
from gossamer.objectives.torch_network import LOSSES, Loss

_ROWS = 8
"""Made-up examples that a loss is tried on."""


def loss_of(given: str | OwnLoss, classes: int | None) -> Loss:
    """The loss that is ``given`` by its name or as settings, for so many ``classes``; None for real targets.

    Raises
    ------
    SpecError
        If there is none of this name, or it is for other targets.
    ModelError
        If it does not do what `OwnLoss` asks for.
    """
    if not isinstance(given, OwnLoss):
        if given not in LOSSES:
            raise SpecError(f"loss is one of {', '.join(LOSSES)}, found {given!r}")
        return LOSSES[given]
    loss = _own(given, classes)
    if problem := _problem(given, loss, classes):
        raise ModelError(f"objective.loss: {_named(given)} {problem}")
    return loss


def _named(own: OwnLoss) -> str:
    return str(getattr(own, "name", type(own).__name__))


def _own(own: OwnLoss, classes: int | None) -> Loss:
    task = getattr(type(own), "task", None)
    if task not in ("classification", "regression"):
        raise ModelError(f"objective.loss: {_named(own)} must have a task, classification or regression, found {task}")
    if (task == "classification") != (classes is not None):
        found = "real numbers" if classes is None else f"{classes} classes"
        raise SpecError(f"objective.loss: {_named(own)} is for {task}, and the targets are {found}; take another loss")
    try:
        wanted = own.outputs(classes or 1)
    except Exception as error:  # whatever others' code does
        raise ModelError(f"objective.loss: {_named(own)} cannot say its outputs: {_line(error)}") from None
    if type(wanted) is not int or wanted < 1:
        raise ModelError(f"objective.loss: {_named(own)} must need 1 output or more, found {wanted!r}")
    scores = None if type(own).scores is OwnLoss.scores else partial(_scores, own)
    return Loss(partial(_values, own), classes is not None, scores, wanted)


def _rows(outputs: Tensor) -> Tensor:
    """Outputs of each example, [examples] or [examples, outputs]."""
    flat = outputs.reshape(outputs.shape[0], -1)
    return flat[:, 0] if flat.shape[1] == 1 else flat


def _values(own: OwnLoss, outputs: Tensor, targets: Tensor) -> Tensor:
    found: Tensor = vmap(own.loss)(_rows(outputs), targets)
    return found


def _scores(own: OwnLoss, outputs: Tensor) -> Tensor:
    found: Tensor = vmap(own.scores)(_rows(outputs))
    return found.reshape(found.shape[0], -1)


def _problem(own: OwnLoss, loss: Loss, classes: int | None) -> str | None:
    """Reason that a loss cannot be used, by what it does with made-up outputs and targets; None if nothing is found."""
    assert loss.wanted is not None
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn((_ROWS, loss.wanted), generator=generator)
    # Real targets between 0 and 1, where also those losses are defined that are for counts or shares.
    targets = torch.arange(_ROWS) % classes if classes else (torch.arange(_ROWS) + 1) / (_ROWS + 1)
    try:
        return (
            _shape_problem("a loss", loss.values(outputs, targets), (_ROWS,), "one number")
            or _shape_problem("scores", loss.scores(outputs), (_ROWS, classes or 1), _of_one(classes))
            or _values_problem(own, loss, outputs, targets)
        )
    except Exception as error:  # whatever others' code does
        hint = "; take torch's functions, and torch.where in the place of if"
        return f"cannot be computed one example at a time: {_line(error)}{hint}"


def _values_problem(own: OwnLoss, loss: Loss, outputs: Tensor, targets: Tensor) -> str | None:
    """Reason that losses cannot be used for what they are: not finite, or not of one example alone."""
    values = loss.values(outputs, targets)
    if not values.isfinite().all():
        return "gives no finite number for finite outputs; correct it"
    if not vmap(grad(own.loss))(_rows(outputs), targets).isfinite().all():
        return "has no finite gradient for finite outputs; correct it"
    if not torch.equal(values, loss.values(outputs, targets)):
        return "gives another loss when it is asked again; it must depend on outputs and target alone"
    alone = [loss.values(outputs[[n]], targets[[n]]) for n in reversed(range(_ROWS))]
    if not torch.allclose(values, torch.cat(alone[::-1]), rtol=1e-4, atol=1e-6):
        return "gives another loss beside other examples; it must depend on one example's outputs and target alone"
    return None


def _of_one(classes: int | None) -> str:
    return f"{classes} numbers (one a class)" if classes else "one number"


def _shape_problem(what: str, found: Any, expected: tuple[int, ...], words: str) -> str | None:
    if found.shape == expected and found.is_floating_point():
        return None
    shape, kind = list(found.shape[1:]), str(found.dtype).removeprefix("torch.")
    return f"must give {words} as {what} of an example, found shape {shape} of {kind}"


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"
