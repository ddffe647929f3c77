"""The kernel that a module will ask for, found before there are examples."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import torch
from torch import nn

from gossamer.objectives.chains.compiled import has_products, kernel_of
from gossamer.objectives.torch_chains import chain_of
from gossamer.parameters import Part


def kernel_ahead(
    build: Callable[[], nn.Module], shape: tuple[int, ...], loss: str, exact: bool = False
) -> Callable[[], None]:
    """Return what compiles the kernel of a module for examples of ``shape``, to be called in another thread.

    Parameters
    ----------
    build : callable
        Makes the module. It is asked for shapes alone: no number is drawn for its parameters.
    shape : tuple of int
        Of one example.
    loss : str
        Of `torch_network.LOSSES`.
    exact : bool
        As in `torch_plan.make_plan`.

    Raises
    ------
    Unknown
        If there are no kernels for it.
    """
    with torch.device("meta"):
        module = build().eval()
    parts = [Part(name, tuple(each.shape)) for name, each in module.named_parameters() if each.requires_grad]
    chain = chain_of(module, shape, parts)

    def work() -> None:
        with suppress(Exception):  # met again, and said, by whoever asks for the kernel
            kernel_of(chain, loss, np.dtype(np.float32), has_products(chain) and not exact)

    return work
