"""Low-rank adapters: layers of a network stay as they are, and small ones beside them are trained.

A layer ``W x + b`` becomes ``W x + b + (alpha / rank) B A x``. W and b are public and in no vector; A [rank, inputs]
and B [outputs, rank] are `nn.Linear` layers, so gradients of examples come by the rules of these.

References
----------
Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022, section 4.1: A is drawn, B begins at zero.
"""

from __future__ import annotations

import gossamer.objectives.networks.torch_extra  # noqa: F401  (says how to install torch where it is missing)

# isort: split
import copy
from typing import cast

import torch
from torch import Tensor, nn

from gossamer.errors import SpecError, did_you_mean
from gossamer.objectives.network_settings import AdapterSettings


class LowRank(nn.Module):
    """A layer ``base``, and beside it ``scale * up(down(x))``."""

    def __init__(self, base: nn.Module, sizes: tuple[int, int], rank: int, scale: float) -> None:
        super().__init__()
        (inputs, outputs), dtype = sizes, next(base.parameters()).dtype
        self.base, self.scale = base, scale
        self.down = nn.Linear(inputs, rank, bias=False, dtype=dtype)
        self.up = nn.Linear(rank, outputs, bias=False, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begin as the layer alone; those inside have been drawn before."""
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs [..., outputs] for ``x`` [..., inputs]."""
        return cast(Tensor, self.base(x) + self.scale * self.up(self.down(x)))


def _sizes(layer: nn.Module) -> tuple[int, int] | None:
    """Inputs and outputs of a `nn.Linear`, or of the `Conv1D` of transformers, its transpose; None of other layers."""
    kind = type(layer)
    if kind is not nn.Linear and (kind.__module__, kind.__name__) != ("transformers.pytorch_utils", "Conv1D"):
        return None
    shape = cast(Tensor, layer.weight).shape
    return (shape[1], shape[0]) if kind is nn.Linear else (shape[0], shape[1])


def adapt(module: nn.Module, settings: AdapterSettings) -> nn.Module:
    """Return a frozen copy of ``module`` with adapters beside those of its layers that ``settings`` name.

    Raises
    ------
    SpecError
        If there is no such layer, or it is no `nn.Linear` and none of transformers' `Conv1D`.
    """
    module = copy.deepcopy(module).requires_grad_(False)  # whoever makes it may give the same one again
    layers = {name: layer for name, layer in module.named_modules(remove_duplicate=False) if name}
    made: dict[nn.Module, LowRank] = {}  # a layer that stands in two places stays one
    for wanted in settings.modules:
        found = [name for name in layers if f".{name}".endswith(f".{wanted}")]
        if not found:
            known = {name.rpartition(".")[2] for name, layer in layers.items() if _sizes(layer)}
            raise SpecError(f"objective.adapters.modules: no layer is called {wanted!r}{did_you_mean(wanted, known)}")
        for name in found:
            if (sizes := _sizes(layer := layers[name])) is None:
                kind = type(layer).__name__
                raise SpecError(f"objective.adapters.modules: layer {name!r} is {kind}, expected Linear; leave it out")
            with torch.random.fork_rng(devices=[]):  # A is drawn anew for a run
                made[layer] = made.get(layer) or LowRank(layer, sizes, settings.rank, settings.alpha / settings.rank)
            module.set_submodule(name, made[layer])
    return module
