"""Checks of modules: what they are made of and what they put out, where they fail, and what kernels find of them."""

from __future__ import annotations

import copy
import linecache
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gossamer.arrays import FloatArray
from gossamer.errors import ModelError
from gossamer.objectives.torch_kernel import Kernel
from gossamer.objectives.torch_layers import handles
from gossamer.objectives.torch_network import SCORES, Network
from gossamer.objectives.torch_stand_ins import with_stand_ins


def private_copy(module: nn.Module) -> nn.Module:
    """A copy of ``module`` on the CPU in evaluation mode, if it can be trained with per-example gradients.

    Raises
    ------
    ModelError
        If it is no module, has nothing to train, parameters of mixed or other types than float32 and float64,
        parameters without a shape yet, or an embedding that mixes examples or changes itself.
    """
    if not isinstance(module, nn.Module):
        raise ModelError(f"expected a torch.nn.Module, found {type(module).__name__}; create the module first")
    _check_parameters(module)
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


def outputs_problem(network: Network, model: Tensor, features: Tensor) -> str | None:
    """Say why the network cannot take such examples [1, ...], or its loss not what it returns for them."""
    try:
        with torch.no_grad():
            outputs = network.outputs(network.parameters(model), features)
    except Exception as problem:
        return f"the module cannot take examples of shape {list(features.shape[1:])}: {reason(problem)}"
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


_TORCH, _OURS = str(Path(torch.__file__).parent), str(Path(__file__).parent)


def reason(problem: BaseException, *, told: bool = True) -> str:
    """Say why code of others fails, in words of ours, not of torch's insides: a layer and its input, or a line.

    Parameters
    ----------
    problem : exception
        From a call of a module, or of its gradient.
    told : bool
        Whether what that code says of a problem that it raises itself may be repeated: it may hold numbers that the
        code was given.
    """
    frames = [(frame, line, frame.f_code.co_filename) for frame, line in traceback.walk_tb(problem.__traceback__)]
    (_, line, path), innermost = (
        next(each for each in reversed(frames) if not each[2].startswith(_TORCH)),
        frames[-1][2],
    )
    text = linecache.getline(path, line).strip()
    if told and innermost == path and text.startswith(("raise ", "assert ")):
        return " ".join(f"{type(problem).__name__}: {problem}".split())
    calls = [frame.f_locals for frame, *_ in frames if frame.f_code.co_name == "_call_impl"]
    if calls and innermost.startswith(_TORCH) and type(layer := calls[-1]["self"]).__module__.startswith("torch.nn."):
        name = next(name for name, each in calls[0]["self"].named_modules() if each is layer)
        shapes = [str(list(each.shape)) for each in calls[-1]["args"] if isinstance(each, Tensor)]
        kind = type(layer).__name__ if list(layer.children()) else " ".join(repr(layer).split())
        return f"layer {name or 'itself'!r} is {kind}, and is given {' and '.join(shapes) or 'no array'}"
    if "modified by an inplace operation" in str(problem):
        return "it changes an array in place that its gradient still needs; write x = 2 * x for x *= 2"
    if path.startswith(_OURS):
        return "torch cannot compute it"
    return f"line {line} of {Path(path).name}" + (f": {text}" if text and told else "")


def layers_problem(network: Network) -> str | None:
    """Say why gradients are not taken layer by layer: the loss, or a layer that no rule of `torch_layers` covers."""
    if network.loss.wanted is not None:
        return "a loss of another distribution is computed one example at a time"
    for name, layer in network.module.named_modules():
        if any(p.requires_grad for p in layer.parameters(recurse=False)) and not handles(layer):
            return f"layer {name!r} ({type(layer).__name__}) has no rule of its own"
    return None


def kernel_problem(kernel: Kernel, network: Network, model: Tensor, shape: tuple[int, ...]) -> str | None:
    """Return why a compiled kernel is not to be used: it finds other gradients of made-up examples, or other bits."""
    generator, twin = np.random.default_rng(0), network.double()
    features = torch.from_numpy(generator.standard_normal((2, *shape)))
    moved = (model.double() + 0.05 * torch.from_numpy(generator.standard_normal(len(model)))).to(model.dtype)
    targets = torch.tensor([0, 1]) if network.loss.classifies else torch.zeros(2, dtype=torch.float64)
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
