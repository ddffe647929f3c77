"""A module as a function of a flat parameter vector, and the losses of its outputs."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from gossamer.errors import ModelError, SpecError
from gossamer.objectives.network_settings import OwnLoss
from gossamer.vectors import Part

# A loss of another distribution is never given a batch: clipping bounds what one example adds to a gradient if its
# loss depends on that example alone. ``torch.func`` vectorises it over tensors that it cannot tell from one example's.

_ROWS = 8
"""Made-up examples that a loss is tried on."""


def loss_of(given: str | OwnLoss, classes: int | None) -> NetworkLoss:
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


def _own(own: OwnLoss, classes: int | None) -> NetworkLoss:
    task = getattr(type(own), "task", None)
    if task != ("regression" if classes is None else "classification"):
        if task not in ("classification", "regression"):
            raise ModelError(f"objective.loss: {_named(own)} must have task classification or regression, found {task}")
        found = "real numbers" if classes is None else f"{classes} classes"
        raise SpecError(f"objective.loss: {_named(own)} is for {task}, and the targets are {found}; take another loss")
    try:
        wanted = own.outputs(classes or 1)
    except Exception as error:  # whatever others' code does
        raise ModelError(f"objective.loss: {_named(own)} cannot say its outputs: {_line(error)}") from None
    if type(wanted) is not int or wanted < 1:
        raise ModelError(f"objective.loss: {_named(own)} must need 1 output or more, found {wanted!r}")
    scores = None if type(own).scores is OwnLoss.scores else partial(_scores, own)
    return NetworkLoss(partial(_values, own), classes is not None, scores, wanted)


def _rows(outputs: Tensor) -> Tensor:
    """Outputs of each example, [examples] or [examples, outputs]."""
    flat = outputs.reshape(outputs.shape[0], -1)
    return flat[:, 0] if flat.shape[1] == 1 else flat


def _values(own: OwnLoss, outputs: Tensor, targets: Tensor) -> Tensor:
    return cast(Tensor, vmap(own.loss)(_rows(outputs), targets))


def _scores(own: OwnLoss, outputs: Tensor) -> Tensor:
    found: Tensor = vmap(own.scores)(_rows(outputs))
    return found.reshape(found.shape[0], -1)


def _problem(own: OwnLoss, loss: NetworkLoss, classes: int | None) -> str | None:
    """Reason that a loss cannot be used, by what it does with made-up outputs and targets; None if nothing is found."""
    assert loss.wanted is not None
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn((_ROWS, loss.wanted), generator=generator)
    # Real targets between 0 and 1, where also those losses are defined that are for counts or shares.
    targets = torch.arange(_ROWS) % classes if classes else (torch.arange(_ROWS) + 1) / (_ROWS + 1)
    each = f"{classes} numbers (one a class)" if classes else "one number"
    try:
        return (
            _shape_problem("a loss", loss.values(outputs, targets), (_ROWS,), "one number")
            or _shape_problem("scores", loss.scores(outputs), (_ROWS, classes or 1), each)
            or _values_problem(own, loss, outputs, targets)
        )
    except Exception as error:  # whatever others' code does
        hint = "; take torch's functions, and torch.where in the place of if"
        return f"cannot be computed one example at a time: {_line(error)}{hint}"


def _values_problem(own: OwnLoss, loss: NetworkLoss, outputs: Tensor, targets: Tensor) -> str | None:
    """Reason that losses cannot be used for what they are: not finite, or not of one example alone."""
    values = loss.values(outputs, targets)
    if not (values.isfinite().all() and vmap(grad(own.loss))(_rows(outputs), targets).isfinite().all()):
        return "gives no finite number or gradient for finite outputs; correct it"
    alone = [loss.values(outputs[[n]], targets[[n]]) for n in reversed(range(_ROWS))]
    again = torch.equal(values, loss.values(outputs, targets))
    if not again or not torch.allclose(values, torch.cat(alone[::-1]), rtol=1e-4, atol=1e-6):
        return "gives another loss asked again, or beside others; it must be of one example's outputs and target"
    return None


def _shape_problem(what: str, found: Any, expected: tuple[int, ...], words: str) -> str | None:
    if found.shape == expected and found.is_floating_point():
        return None
    shape, kind = list(found.shape[1:]), str(found.dtype).removeprefix("torch.")
    return f"must give {words} as {what} of an example, found shape {shape} of {kind}"


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"


@dataclass(frozen=True)
class NetworkLoss:
    """A loss of one example, as a function of the module's outputs.

    Attributes
    ----------
    values : callable
        (outputs [examples, ...], targets [examples, ...]) -> losses [examples].
    classifies : bool
        Whether targets are class numbers, and scores one number a class, along the first axis of an example.
    scored : callable, optional
        outputs [examples, ...] -> scores [examples, classes or 1], where outputs are not the scores.
    wanted : int, optional
        Number of numbers that the module must return for an example, of a loss of another distribution; such a loss is
        known neither to kernels nor to a pass over a batch.
    weights : Tensor [classes], optional
        Factors of the losses of each class in training; see `objectives.class_weights`.
    """

    values: Callable[[Tensor, Tensor], Tensor]
    classifies: bool
    scored: Callable[[Tensor], Tensor] | None = None
    wanted: int | None = None
    weights: Tensor | None = None

    def trained(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Losses [examples] whose gradients are taken, which are the weighted ones where there are weights."""
        if self.weights is None:
            return self.values(outputs, targets)
        weights, scores = self.weights.to(outputs), self.scores(outputs)
        return F.cross_entropy(scores + weights.log(), targets, weight=weights, reduction="none")

    def scores(self, outputs: Tensor) -> Tensor:
        """Numbers that examples are predicted by."""
        return outputs if self.scored is None else self.scored(outputs)

    @property
    def outputs(self) -> str:
        """The outputs that the module must return, in words."""
        if (self.wanted or 0) > 1:
            return f"outputs [examples, {self.wanted}]"
        scores = self.wanted is None and self.classifies
        return "scores [examples, 2 or more classes]" if scores else "one number an example"

    def suits(self, shape: tuple[int, ...]) -> bool:
        """Whether there are targets that a module which returns ``shape`` for one example can be trained on."""
        if self.wanted is not None:
            return shape == (1, self.wanted) or (self.wanted == 1 and shape == (1,))
        return shape[:1] == (1,) and 0 not in shape

    def target_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of an example's target, by that which the module returns for one example."""
        one = self.wanted is not None or shape in ((1,), (1, 1))
        return () if one else shape[2:] if self.classifies else shape[1:]

    def made_up(self, target: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Targets [2, ...] of shape ``target`` for trials."""
        if not self.classifies:
            return torch.zeros((2, *target), dtype=dtype)
        return torch.arange(2).view(2, *[1] * len(target)).expand(2, *target)


def _classes(outputs: Tensor) -> Tensor:
    """Scores [examples, classes, ...]; a single output is the logit of the second of two classes."""
    rows = outputs[:, None] if outputs.ndim == 1 else outputs
    return torch.cat([torch.zeros_like(rows), rows], 1) if rows.shape[1] == 1 else rows


def _mean(losses: Tensor) -> Tensor:
    """The mean of an example's losses, [examples]."""
    return losses.flatten(1).mean(1) if losses.ndim > 1 else losses


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return _mean(F.cross_entropy(_classes(outputs), targets, reduction="none"))


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return _mean((outputs.reshape(targets.shape) - targets).square())


def _binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return _mean(F.binary_cross_entropy_with_logits(outputs.reshape(targets.shape), targets, reduction="none"))


LOSSES: Mapping[str, NetworkLoss] = {
    "cross_entropy": NetworkLoss(_cross_entropy, classifies=True, scored=_classes),
    "mse": NetworkLoss(_squared_error, classifies=False),
    "binary_cross_entropy": NetworkLoss(_binary_cross_entropy, classifies=False, scored=torch.sigmoid),
}


SCORES = ("logits", "scores", "output", "out")
"""What a mapping that a module returns calls what the loss is of; the first of these that it has."""


def scores_of(outputs: Any) -> Any:
    """Outputs that the loss is of: the first of several, that of a name in `SCORES`, or the only one of a mapping."""
    if isinstance(outputs, Mapping):
        named = [outputs[name] for name in SCORES if name in outputs]
        return (named or list(outputs.values()))[0] if named or len(outputs) == 1 else outputs
    return outputs[0] if isinstance(outputs, tuple | list) and outputs else outputs


@dataclass(frozen=True)
class Network:
    """A module, never changed, called with parameters that are passed in.

    A call replaces the module's parameters for its duration, so one network serves one thread at a time; each
    further thread works with a `twin`.

    Attributes
    ----------
    module : nn.Module
        Module in evaluation mode. Its own parameters that are named in ``parts`` are only shapes.
    parts : tuple of Part
        The trainable parameters in a flat vector, in order.
    loss : NetworkLoss
    training : tuple of str
        Names of the layers that were in training mode when the module was given.
    """

    module: nn.Module
    parts: tuple[Part, ...]
    loss: NetworkLoss
    training: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of trainable parameters."""
        return sum(self.sizes)

    @cached_property
    def sizes(self) -> list[int]:
        """Number of them in each part."""
        return [part.size for part in self.parts]

    def twin(self) -> Network:
        """The same network for another thread; only the structure is copied, not the numbers in it."""
        shared: dict[int, Any] = {id(each): each for each in self.module.buffers()}
        shared |= {id(each): nn.Parameter(each.detach(), each.requires_grad) for each in self.module.parameters()}
        return replace(self, module=copy.deepcopy(self.module, shared))

    def copied(self) -> Network:
        """The same network with numbers of its own."""
        return replace(self, module=copy.deepcopy(self.module))

    def double(self) -> Network:
        """The same network in float64; its own parameters in ``parts`` are no numbers, which take no memory."""
        # Code that reads these, past what a call is given, is found by it: nothing that comes out is a number.
        named, blank = dict(self.module.named_parameters()), torch.full((), torch.nan, dtype=torch.float64)
        shapes: dict[int, Any] = {id(named[part.name]): nn.Parameter(blank.expand(part.shape)) for part in self.parts}
        return replace(self, module=copy.deepcopy(self.module, shapes).double())

    def parameters(self, model: Tensor) -> dict[str, Tensor]:
        """Views into ``model`` [..., size] by name, each [..., *shape]."""
        before = model.shape[:-1]
        pieces = torch.split(model, self.sizes, dim=-1)
        return {part.name: piece.reshape((*before, *part.shape)) for part, piece in zip(self.parts, pieces)}

    def outputs(self, parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """Outputs for ``features`` [examples, ...], as far as the loss is of them."""
        # Names of a layer that is there twice are left out, since torch would not put back what it replaces twice.
        everywhere = dict(parameters) | {alias: parameters[name] for alias, name in self._aliases}
        return cast(Tensor, scores_of(functional_call(self.module, everywhere, (features,), tie_weights=False)))

    @cached_property
    def _aliases(self) -> tuple[tuple[str, str], ...]:
        """Further places of parameters that several layers share: (the name there, the name in ``parts``)."""
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        known = {part.name for part in self.parts}
        found = (
            (f"{prefix}.{key}".lstrip("."), names[id(parameter)])
            for prefix, layer in self.module.named_modules()
            for key, parameter in layer.named_parameters(recurse=False, remove_duplicate=False)
        )
        return tuple((alias, name) for alias, name in found if alias != name and name in known)

    def arrange(self, features: Tensor) -> Tensor:
        """The same numbers, laid out for speed: with max pooling, images [n, c, h, w] go channels last in memory.

        Torch pools them about three times faster so: a step of `cnn_mapa` takes 0.83 of the time, of `googlenet` 0.88
        (of `vgg19` 1.08). Without pooling the usual layout is faster, and on a graphics card only it is summed in one
        order each time.
        """
        last = features.ndim == 4 and self._pools and not features.is_cuda
        return features.to(memory_format=torch.channels_last) if last else features

    @cached_property
    def _pools(self) -> bool:
        return any(isinstance(layer, nn.MaxPool2d) for layer in self.module.modules())

    def losses(self, parameters: Mapping[str, Tensor], features: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example that is minimised, [examples]."""
        return self.loss.trained(self.outputs(parameters, features), targets)


def removed(hooks: Iterable[RemovableHandle]) -> ExitStack:
    """Context at whose end ``hooks`` are removed."""
    stack = ExitStack()
    for hook in hooks:
        stack.callback(hook.remove)
    return stack


def flat_parameters(module: nn.Module) -> tuple[tuple[Part, ...], npt.NDArray[np.floating]]:
    """The trainable parameters of ``module`` as parts, in the order of its ``state_dict``, and their values."""
    trainable = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    parts = tuple(Part(name, tuple(p.shape)) for name, p in trainable.items())
    return parts, torch.cat([p.reshape(-1) for p in trainable.values()]).numpy()


def frozen_digest(network: Network) -> str | None:
    """SHA-256 of the buffers and parameters of a module that are in no vector; None where there are none."""
    parameters = network.module.named_parameters(remove_duplicate=False)
    fixed = [(name, values) for name, values in parameters if not values.requires_grad]
    kept = dict([*fixed, *network.module.named_buffers(remove_duplicate=False)])
    if not kept:
        return None
    digest = hashlib.sha256()
    for name, values in sorted(kept.items()):
        digest.update(f"{name} {values.dtype} {list(values.shape)}\n".encode())
        digest.update(bytes_of(values))
    return digest.hexdigest()


def bytes_of(values: Tensor) -> bytes:
    """All numbers of an array, as they are in memory."""
    return values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if values.numel() else b""
