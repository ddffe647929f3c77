"""Inputs of a network's layers and the gradients that come back through them, for a batch of examples.

`BatchPass` shows the module the whole batch: an ordinary forward and backward pass. That is right only if the module
treats every example by itself, whatever the batch, so it is for modules of torch's own layers alone (`is_of_torch`),
and for those whose code can be written as a graph that provably does (`networks.graphs`), which then runs in its place.
`VectorisedPass` can show the module one example at a time: whatever its code does, what belongs to one example cannot
depend on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from gossamer.objectives.networks.graphs import ExampleWise, example_wise
from gossamer.objectives.networks.layers import LayerCall
from gossamer.objectives.networks.network import Network

Use = Callable[[str, list[LayerCall]], None]
"""Takes a layer's name, and its calls in the order of the forward pass."""

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_of_torch(module: nn.Module) -> bool:
    """Whether a module consists of layers of torch, one after the other or as in the models of this library.

    Graphs that provably keep examples apart count as such. Only of these do two made-up examples tell how they treat
    all others: code of one's own may mix examples in large batches, or of large values, only.
    """
    return isinstance(module, ExampleWise) or all(_has_known_code(layer) for layer in module.modules())


def for_batches(network: Network, shape: tuple[int, ...]) -> Network:
    """The network with a graph in its module's place, where only so it may see batches of examples of ``shape``."""
    if is_of_torch(network.module):
        return network
    graph = example_wise(network.twin().module, shape, _has_known_code)
    return network if graph is None else replace(network, module=graph)


def _has_known_code(layer: nn.Module) -> bool:
    kind = type(layer)
    if "forward" in vars(layer) or any(getattr(layer, hooks) for hooks in _HOOKS):
        return False
    of_torch = kind.__module__.startswith("torch.nn.modules.") and not list(layer.children())
    ours = kind.__module__.startswith("gossamer.objectives.models.")
    return of_torch or ours or kind in (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def trainable_layers(module: nn.Module) -> dict[str, nn.Module]:
    """The modules inside that own a trainable parameter, by name."""
    layers = module.named_modules()
    return {name: layer for name, layer in layers if any(p.requires_grad for p in layer.parameters(recurse=False))}


class BatchPass:
    """One forward and one backward pass over the batch.

    Parameters
    ----------
    network : Network
        Used by one thread at a time, and by nothing else: hooks are left in its module.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        device = next(network.module.parameters()).device
        self._root = torch.zeros((), requires_grad=True, device=device)
        self._waiting: dict[str, list[_Tap]] = {}
        self._use: Use = _keep_nothing
        for name, layer in trainable_layers(network.module).items():
            layer.register_forward_hook(partial(self._tap, name))

    def __call__(self, parameters: Mapping[str, Tensor], features: Tensor, targets: Tensor, use: Use) -> None:
        """Hand on all calls that the losses of ``features`` [examples, ...] depend on, the last layer's first.

        What a layer leaves is used while it is in a near cache, and its memory goes to the next.
        """
        self._waiting, self._use = {}, use
        with torch.enable_grad():
            losses = self._network.losses(*self._network.arrange(parameters, features), targets)
            if losses.requires_grad:
                torch.autograd.grad(losses.sum(), self._root)
        waiting, self._waiting, self._use = self._waiting, {}, _keep_nothing
        for name, taps in waiting.items():  # some of their outputs are not in the losses
            if calls := _calls(taps):
                use(name, calls)

    def _tap(self, name: str, _layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        if not output.requires_grad:  # nothing before it has parameters
            output = output + self._root
        tap = _Tap(inputs[0].detach(), _statistics(output))
        output.register_hook(partial(self._receive, name, tap))  # type: ignore[no-untyped-call]
        self._waiting.setdefault(name, []).append(tap)
        return output

    def _receive(self, name: str, tap: _Tap, gradient: Tensor) -> None:
        tap.gradient = gradient
        taps = self._waiting[name]
        if all(each.gradient is not None for each in taps):
            del self._waiting[name]
            self._use(name, _calls(taps))


class _Tap:
    def __init__(self, inputs: Tensor, statistics: tuple[Tensor, Tensor] | None) -> None:
        self._inputs: Tensor | None = inputs
        self._statistics = statistics
        self.gradient: Tensor | None = None

    def taken(self) -> LayerCall | None:
        """The call, if its outputs mattered. The graph of the pass keeps the tap, which therefore keeps nothing."""
        inputs, gradient, statistics = self._inputs, self.gradient, self._statistics
        self._inputs = self.gradient = self._statistics = None
        return None if inputs is None or gradient is None else LayerCall(inputs, gradient, statistics)


def _calls(taps: list[_Tap]) -> list[LayerCall]:
    return [call for tap in taps if (call := tap.taken()) is not None]


def _keep_nothing(_name: str, _calls: list[LayerCall]) -> None:
    """Outside of a pass."""


def _statistics(output: Tensor) -> tuple[Tensor, Tensor] | None:
    """Means and reciprocal deviations that a normalisation has just computed, kept by torch for the way back."""
    made_by: Any = output.grad_fn
    if made_by is None or made_by.name() not in ("NativeGroupNormBackward0", "NativeLayerNormBackward0"):
        return None
    return made_by._saved_result1, made_by._saved_result2


class VectorisedPass:
    """One forward and one backward pass for each of several batches, vectorised by ``torch.func``.

    Batches are of single examples at one model; or those of several nodes, each with a model of its own, which like
    `BatchPass` is right only where a module treats every example by itself. The gradient by a layer's output is the one
    by a zero that is added to it.

    Parameters
    ----------
    network : Network
        Used by one thread at a time, and by nothing else: hooks are left in its module.
    stacked : bool
        Whether each batch has a model of its own.
    """

    def __init__(self, network: Network, *, stacked: bool) -> None:
        self._network, self._stacked = network, stacked
        self._backward = vmap(grad(self._loss, has_aux=True), in_dims=(None, 0 if stacked else None, 0, 0))
        self._shapes: list[tuple[str, torch.Size]] = []
        self._unused: Iterator[Tensor] | None = None
        self._inputs: list[Tensor] = []
        for name, layer in trainable_layers(network.module).items():
            layer.register_forward_hook(partial(self._tap, name))

    def __call__(self, parameters: Mapping[str, Tensor], features: Tensor, targets: Tensor, use: Use) -> None:
        """Hand on all calls, for ``features`` [batches, examples, ...], with the examples of all batches in a row."""
        if not self._shapes:
            one = {name: values[0] if self._stacked else values for name, values in parameters.items()}
            with torch.no_grad():
                self._network.outputs(one, features[0, :1])
        count = features.shape[1]
        zeros = [features.new_zeros(()).expand(count * shape[0], *shape[1:]) for _, shape in self._shapes]
        gradients, inputs = self._backward(zeros, dict(parameters), features, targets)
        calls: dict[str, list[LayerCall]] = {}
        for (name, shape), *both in zip(self._shapes, inputs, gradients, strict=True):
            # A layer may see several rows, if the module makes these out of an example.
            rows = (values.unflatten(1, (count, shape[0])).flatten(0, 1).unbind(1) for values in both)
            calls.setdefault(name, []).extend(LayerCall(a, g) for a, g in zip(*rows, strict=True))
        for name, each in calls.items():
            use(name, each)

    def _loss(
        self, zeros: list[Tensor], parameters: dict[str, Tensor], features: Tensor, targets: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        self._unused, self._inputs = iter(zeros), []
        return self._network.losses(parameters, features, targets).sum(), self._inputs

    def _tap(self, name: str, _layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        if self._unused is None:  # the first time, only shapes are asked for
            self._shapes.append((name, output.shape))
            return output
        self._inputs.append(inputs[0])
        return output + next(self._unused)
