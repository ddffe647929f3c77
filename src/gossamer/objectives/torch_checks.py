"""Checks of modules: whether they can be trained with per-example gradients, and whether layer by layer."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gossamer.arrays import FloatArray
from gossamer.errors import ModelError
from gossamer.objectives.torch_gradients import ExampleGradients, LayerGradients
from gossamer.objectives.torch_kernel import Kernel
from gossamer.objectives.torch_layers import handles
from gossamer.objectives.torch_network import SCORES, Network
from gossamer.objectives.torch_stand_ins import with_stand_ins
from gossamer.objectives.torch_taps import for_batches

_BATCH_NORM = nn.modules.batchnorm._BatchNorm
_INSTANCE_NORM = nn.modules.instancenorm._InstanceNorm
_DROPOUT = nn.modules.dropout._DropoutNd


def private_copy(module: nn.Module) -> nn.Module:
    """A copy of ``module`` on the CPU in evaluation mode, if it can be trained with per-example gradients.

    Raises
    ------
    ModelError
        If it is no module, has nothing to train, parameters of mixed or other types than float32 and float64,
        parameters without a shape yet, or a layer that mixes examples or changes itself.
    """
    if not isinstance(module, nn.Module):
        raise ModelError(f"expected a torch.nn.Module, found {type(module).__name__}; create the module first")
    for name, layer in module.named_modules():
        if isinstance(layer, _BATCH_NORM) or (isinstance(layer, _INSTANCE_NORM) and layer.track_running_stats):
            raise ModelError(
                f"layer {name or 'itself'!r} ({type(layer).__name__}) mixes the examples of a batch, so no example has "
                "a gradient of its own; use torch.nn.GroupNorm instead"
            )
    _check_parameters(module)
    _warn_of_dropout(module)
    return with_stand_ins(copy.deepcopy(module).cpu().eval())


def _check_parameters(module: nn.Module) -> None:
    trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not trainable:
        raise ModelError(f"{type(module).__name__} has no parameter to train; at least one must require a gradient")
    for name, parameter in trainable.items():
        if isinstance(parameter, nn.UninitializedParameter):
            raise ModelError(f"parameter {name!r} has no shape yet; run the lazy module on one example first")
    types = {parameter.dtype for parameter in trainable.values()}
    if len(types) > 1 or not types <= {torch.float32, torch.float64}:
        found = ", ".join(sorted(map(str, types)))
        raise ModelError(f"parameters must be all float32 or all float64, found {found}; convert with .float()")


def _warn_of_dropout(module: nn.Module) -> None:
    active = [name for name, layer in module.named_modules() if _drops(layer)]
    if active:
        warnings.warn(
            f"dropout is switched off (in {', '.join(active)}): the module runs in evaluation mode, since its random "
            "numbers would come from a global generator",
            stacklevel=4,
        )


def _drops(layer: nn.Module) -> bool:
    share = layer.p if isinstance(layer, _DROPOUT) else layer.dropout if isinstance(layer, nn.RNNBase) else 0.0
    return bool(share > 0)


def outputs_problem(network: Network, model: Tensor, features: Tensor) -> str | None:
    """Say why the network cannot take such examples [1, ...], or its loss not what it returns for them."""
    try:
        with torch.no_grad():
            outputs = network.outputs(network.parameters(model), features)
    except Exception as problem:
        shape = list(features.shape[1:])
        return f"the module cannot take examples of shape {shape}: {first_line(problem)}"
    if isinstance(outputs, Tensor) and network.loss.suits(tuple(outputs.shape)):
        return None
    return f"the module must return {network.loss.outputs}, found {_described(outputs)} for one example"


def _described(outputs: Any) -> str:
    """Shape of an array, and the kind of all else."""
    if isinstance(outputs, Tensor):
        return f"shape {list(outputs.shape)}"
    if isinstance(outputs, Mapping):
        named = " or ".join(map(repr, SCORES))
        return f"a mapping with the keys {', '.join(map(str, outputs))} and none that is {named}"
    return type(outputs).__name__


def layers_problem(network: Network) -> str | None:
    """Say why gradients are not taken layer by layer: the loss, or a layer that no rule of `torch_layers` covers."""
    if network.loss.wanted is not None:
        return "a loss of another distribution is computed one example at a time"
    for name, layer in network.module.named_modules():
        if any(p.requires_grad for p in layer.parameters(recurse=False)) and not handles(layer):
            return f"layer {name!r} ({type(layer).__name__}) has no rule of its own"
    return None


class Probed(NamedTuple):
    """Findings of a probe of a network.

    Attributes
    ----------
    examples, layers : str or None
        Why ``torch.func`` cannot differentiate the module; why its gradients cannot be taken layer by layer.
    batched : Network
        What is to be used layer by layer: the network, or a graph of it that may see batches.
    """

    examples: str | None
    layers: str | None
    batched: Network


def probe(network: Network, model: Tensor, shape: tuple[int, ...]) -> Probed:
    """Try both ways of `torch_gradients` on two made-up examples of ``shape``, in float64.

    The reference sees one example at a time, so a difference shows a layer of torch that mixes examples, parameters
    that layers share or that are used elsewhere, or inputs that are changed after a layer used them.
    """
    twin = network.double()
    model, features, targets = _made_up(twin, model, shape)
    exact = ExampleGradients(twin)
    before = _remembered(twin.module)
    try:
        alone = [exact.gradients(model[None], features[None, [n]], targets[None, [n]]) for n in range(len(targets))]
    except Exception as problem:
        reason = f"torch.func cannot differentiate the module one example at a time: {first_line(problem)}"
        return Probed(reason, None, network)
    changed = [place for place, value in _remembered(twin.module).items() if before.get(place) != value]
    if changed:
        # What a module keeps of one batch would reach later releases, which are not charged for it.
        reason = f"the module changes itself while it runs ({changed[0]}); it must keep nothing of what it sees"
        return Probed(reason, None, network)
    batched = for_batches(network, shape)
    layers = layers_problem(network) or _difference(batched.double(), model, features, targets, alone)
    return Probed(None, layers, batched)


def _difference(
    twin: Network, model: Tensor, features: Tensor, targets: Tensor, alone: Sequence[Sequence[Tensor]]
) -> str | None:
    """Say why gradients layer by layer are not those of each example ``alone``; None if they are."""
    layers = LayerGradients(twin)
    try:
        per_example = layers.per_example(model, features, targets)
        squares = torch.stack([gradients.square_norms() for gradients in per_example.values()]).sum(0)
        together = [layers.weighted_sum(per_example, one) for one in torch.eye(len(targets), dtype=torch.float64)]
    except Exception as problem:
        return f"gradients cannot be taken layer by layer: {first_line(problem)}"
    for parts, gradient, square in zip(alone, together, squares):
        expected = torch.cat([part.flatten() for part in parts])
        tolerance = 1e-6 * float(expected.norm()) + 1e-12
        if not (expected - gradient).norm() <= tolerance or not abs(square.sqrt() - expected.norm()) <= tolerance:
            return "a layer mixes examples, or parameters are used outside of one layer"
    return None


def kernel_problem(kernel: Kernel, network: Network, model: Tensor, shape: tuple[int, ...]) -> str | None:
    """Return why a compiled kernel is not to be used: it finds other gradients of made-up examples, or other bits."""
    moved, features, targets = _made_up(network.double(), model, shape)
    moved = moved.to(model.dtype)
    twin = network.double()
    for one in range(len(targets)):
        total = np.zeros(network.size, kernel.dtype)
        x, y = features[one].numpy().astype(kernel.dtype).reshape(-1), targets[[one]].numpy().astype(kernel.targets)
        with kernel.alone():
            kernel.sum(x, y, np.zeros(1, np.int64), moved.numpy(), total)
        expected = _gradient(twin, moved.double(), features[[one]], targets[[one]])
        norm = float(np.linalg.norm(expected))
        half, square = np.empty_like(total), np.empty(1)
        with kernel.alone():
            kernel.clipped(x, y, np.zeros(1, np.int64), moved.numpy(), norm / 2, half, square)
        found = (total - expected, half - expected / 2, np.sqrt(square) - norm)
        if not all(np.linalg.norm(error) <= 1e-3 * norm + 1e-12 for error in found):
            return "its kernel finds other gradients than torch"
        if not _alike(kernel, x, y, moved.numpy(), total):
            return "an example's gradient depends on those beside it"
    return None


_COMPANY = ((2, 1), (7, 2), (17, 16), (32, 9), (33, 32), (64, 41))
"""(examples, the place of one among them)."""


def _alike(kernel: Kernel, x: FloatArray, y: npt.NDArray[Any], model: FloatArray, alone: FloatArray) -> bool:
    """Whether an example's gradient has the same bits beside others: such that are no numbers, which add nothing."""
    features, targets = np.concatenate([x, np.full_like(x, np.nan)]), np.repeat(y, 2)
    total = np.empty_like(alone)
    with kernel.alone():
        for count, place in _COMPANY:
            index = np.ones(count, np.int64)
            index[place] = 0
            kernel.clipped(features, targets, index, model, np.inf, total, np.empty(count))
            if not np.array_equal(total, alone):
                return False
    return True


def _gradient(network: Network, model: Tensor, features: Tensor, targets: Tensor) -> npt.NDArray[np.float64]:
    """The gradient of an example [1, ...] by an ordinary backward pass; ``torch.func`` takes a second to import."""
    at = model.clone().requires_grad_()
    loss = network.losses(network.parameters(at), features, targets).sum()
    found: npt.NDArray[np.float64] = torch.autograd.grad(loss, at)[0].numpy()
    return found


def _remembered(module: nn.Module) -> dict[str, object]:
    """All that a module and those inside it hold, in a form that differs when any of it was changed."""
    held: dict[str, object] = {}
    for name, layer in module.named_modules():
        own = {**vars(layer), **layer._parameters, **layer._buffers}
        for key in own.keys() - {"_parameters", "_buffers", "_modules"}:
            value = own[key]
            tensor = isinstance(value, Tensor)
            held[f"{name}.{key}".lstrip(".")] = (id(value), value._version) if tensor else repr(value)
    return held


def _made_up(network: Network, model: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """A model near ``model`` (moved, lest zeros hide something), two examples and their targets."""
    generator = np.random.default_rng(0)
    features = torch.from_numpy(generator.standard_normal((2, *shape)))
    moved = model.double() + 0.05 * torch.from_numpy(generator.standard_normal(len(model)))
    return moved, features, torch.tensor([0, 1]) if network.loss.classifies else torch.zeros(2, dtype=torch.float64)


def first_line(problem: Exception) -> str:
    """Return an exception in one line."""
    return f"{type(problem).__name__}: {(str(problem).strip() or 'no reason given').splitlines()[0]}"
