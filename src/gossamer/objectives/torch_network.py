"""A module as a function of a flat parameter vector, and the losses of its outputs."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from gossamer.parameters import Part


@dataclass(frozen=True)
class Loss:
    """A loss of one example, as a function of the module's outputs.

    Attributes
    ----------
    values : callable
        (outputs [examples, ...], targets [examples]) -> losses [examples].
    classifies : bool
        Whether targets are class numbers, and scores one number a class.
    scored : callable, optional
        outputs [examples, ...] -> scores [examples, classes or 1], where outputs are not the scores.
    wanted : int, optional
        Of a loss of another distribution, how many numbers the module must return for an example; such a loss is known
        neither to kernels nor to a pass over a batch.
    """

    values: Callable[[Tensor, Tensor], Tensor]
    classifies: bool
    scored: Callable[[Tensor], Tensor] | None = None
    wanted: int | None = None

    def scores(self, outputs: Tensor) -> Tensor:
        """Numbers that examples are predicted by."""
        return outputs if self.scored is None else self.scored(outputs)

    @property
    def outputs(self) -> str:
        """The outputs that the module must return, in words."""
        if self.wanted is not None and self.wanted > 1:
            return f"outputs [examples, {self.wanted}]"
        if self.wanted == 1:
            return "one number an example"
        return "scores [examples, 2 or more classes]" if self.classifies else "one number an example"

    def suits(self, shape: tuple[int, ...]) -> bool:
        """Whether a module that returns ``shape`` for one example can be trained with it."""
        if self.wanted is not None:
            return shape == (1, self.wanted) or (self.wanted == 1 and shape == (1,))
        return len(shape) == 2 and shape[0] == 1 and shape[1] > 1 if self.classifies else shape in ((1,), (1, 1))


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.reshape(targets.shape) - targets).square()


LOSSES: Mapping[str, Loss] = {
    "cross_entropy": Loss(_cross_entropy, classifies=True),
    "mse": Loss(_squared_error, classifies=False),
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
        In evaluation mode. Its own parameters that are named in ``parts`` are only shapes.
    parts : tuple of Part
        The trainable parameters in a flat vector, in order.
    loss : Loss
    training : tuple of str
        Names of the layers that were in training mode when the module was given.
    """

    module: nn.Module
    parts: tuple[Part, ...]
    loss: Loss
    training: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of trainable parameters."""
        return sum(part.size for part in self.parts)

    def twin(self) -> Network:
        """The same network for another thread; only the structure is copied, not the numbers in it."""
        tensors = chain(self.module.parameters(), self.module.buffers())
        return replace(self, module=copy.deepcopy(self.module, {id(tensor): tensor for tensor in tensors}))

    def copied(self) -> Network:
        """The same network with numbers of its own."""
        return replace(self, module=copy.deepcopy(self.module))

    def double(self) -> Network:
        """The same network in float64."""
        return replace(self, module=copy.deepcopy(self.module).double())

    def parameters(self, model: Tensor) -> dict[str, Tensor]:
        """Views into ``model`` [..., size] by name, each [..., *shape]."""
        pieces = torch.split(model, [part.size for part in self.parts], dim=-1)
        return {part.name: piece.reshape((*piece.shape[:-1], *part.shape)) for part, piece in zip(self.parts, pieces)}

    def outputs(self, parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """Outputs for ``features`` [examples, ...], as far as the loss is of them."""
        # Names of a layer that is there twice are left out, since torch would not put back what it replaces twice.
        everywhere = dict(parameters) | {alias: parameters[name] for alias, name in self._aliases}
        outputs: Tensor = scores_of(functional_call(self.module, everywhere, (features,), tie_weights=False))
        return outputs

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

    def arrange(self, parameters: Mapping[str, Tensor], features: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """The same numbers, laid out for speed: with max pooling, images [n, c, h, w] go channels last in memory.

        Torch pools them about three times faster so: a step of `cnn_mapa` takes 0.83 of the time, of `googlenet` 0.88
        (of `vgg19` 1.08). Without pooling the usual layout is faster, and on a graphics card only it is summed in one
        order each time.
        """
        if not self._pools or features.is_cuda:
            return dict(parameters), features
        return {name: _channels_last(values) for name, values in parameters.items()}, _channels_last(features)

    @cached_property
    def _pools(self) -> bool:
        return any(isinstance(layer, nn.MaxPool2d) for layer in self.module.modules())

    def losses(self, parameters: Mapping[str, Tensor], features: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example, [examples]."""
        return self.loss.values(self.outputs(parameters, features), targets)


def _channels_last(values: Tensor) -> Tensor:
    return values.to(memory_format=torch.channels_last) if values.ndim == 4 else values


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
        digest.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
