"""What goes into the layers of a network and what comes back through them, for a batch of examples.

`BatchPass` shows the module the whole batch: an ordinary forward and backward pass. That is right only if the module
treats every example by itself, whatever the batch, so it is for modules of torch's own layers alone (`is_of_torch`).
`ExamplePass` shows the module one example at a time, vectorised by ``torch.func``: whatever its code does, what belongs
to one example cannot depend on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from gossamer.objectives.torch_layers import Call
from gossamer.objectives.torch_network import Network

Calls = dict[str, list[Call]]
"""Under a layer's name, its calls in the order of the forward pass."""

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_of_torch(module: nn.Module) -> bool:
    """Whether a module consists of layers of torch, one after the other or as in the models of this library.

    Only of these do two made-up examples tell how they treat all others: code of one's own may mix examples in large
    batches, or of large values, only.
    """
    return all(_has_known_code(layer) for layer in module.modules())


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
        self._root = torch.zeros((), requires_grad=True)
        self._taps: list[_Tap] = []
        for name, layer in trainable_layers(network.module).items():
            layer.register_forward_hook(partial(self._tap, name))

    def __call__(self, parameters: Mapping[str, Tensor], features: Tensor, targets: Tensor) -> Calls:
        """All calls that the losses of ``features`` [examples, ...] depend on."""
        self._taps = []
        with torch.enable_grad():
            losses = self._network.losses(*self._network.arrange(parameters, features), targets)
            if losses.requires_grad:
                torch.autograd.grad(losses.sum(), self._root)
        taps, self._taps = self._taps, []
        calls: Calls = {}
        for tap in taps:
            if tap.gradient is not None:
                calls.setdefault(tap.name, []).append(Call(tap.inputs, tap.gradient))
        return calls

    def _tap(self, name: str, _layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        if not output.requires_grad:  # nothing before it has parameters
            output = output + self._root
        tap = _Tap(name, inputs[0].detach())
        output.register_hook(tap.receive)  # type: ignore[no-untyped-call]
        self._taps.append(tap)
        return output


class _Tap:
    def __init__(self, name: str, inputs: Tensor) -> None:
        self.name = name
        self.inputs = inputs
        self.gradient: Tensor | None = None

    def receive(self, gradient: Tensor) -> None:
        self.gradient = gradient


class ExamplePass:
    """One forward and one backward pass for each example, vectorised.

    The gradient by a layer's output is the one by a zero that is added to it.

    Parameters
    ----------
    network : Network
        Used by one thread at a time, and by nothing else: hooks are left in its module.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._backward = vmap(grad(self._loss, has_aux=True), in_dims=(None, None, 0, 0))
        self._names: list[str] = []
        self._zeros: list[Tensor] = []
        self._unused: Iterator[Tensor] | None = None
        self._inputs: list[Tensor] = []
        for name, layer in trainable_layers(network.module).items():
            layer.register_forward_hook(partial(self._tap, name))

    def __call__(self, parameters: Mapping[str, Tensor], features: Tensor, targets: Tensor) -> Calls:
        """All calls, for ``features`` [examples, ...], of the same shape every time."""
        if not self._names:
            with torch.no_grad():
                self._network.outputs(parameters, features[:1])
        gradients, inputs = self._backward(self._zeros, dict(parameters), features, targets)
        calls: Calls = {}
        for name, both in zip(self._names, zip(inputs, gradients)):
            # The layer saw a batch of one example; or of several, if the module makes several out of one.
            calls.setdefault(name, []).extend(Call(a, g) for a, g in zip(*(values.unbind(1) for values in both)))
        return calls

    def _loss(
        self, zeros: list[Tensor], parameters: dict[str, Tensor], features: Tensor, target: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        self._unused, self._inputs = iter(zeros), []
        loss = self._network.losses(parameters, features[None], target[None])[0]
        return loss, self._inputs

    def _tap(self, name: str, _layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        if self._unused is None:  # the first time, only shapes are asked for
            self._names.append(name)
            self._zeros.append(torch.zeros_like(output))
            return output
        self._inputs.append(inputs[0])
        return output + next(self._unused)


Pass = Callable[[Mapping[str, Tensor], Tensor, Tensor], Calls]


def pass_for(network: Network) -> Pass:
    """The fastest pass that is right for the network's module."""
    return BatchPass(network) if is_of_torch(network.module) else ExamplePass(network)
