"""Choice of how a module's gradients are computed for examples of one shape: once, by tables, never by a clock.

| what the module is made of | ``auto`` is |
|---|---|
| a chain of layers with kernels (`networks.chains`), found to agree with torch | ``compiled`` |
| layers with rules of their own (`networks.layers`), found to agree with the reference | ``layers`` |
| anything with a loss of another distribution (`networks.network`) | ``threads`` |
| anything else that ``torch.func`` can vectorise | ``threads`` |
| anything else | ``loop`` |

Processor time of one call for 16 nodes, relative to ``threads`` (torch 2.13, one thread, batch a node):

| model | parameters | strategy | 4 | 8 | 16 | 32 | 64 |
|---|---|---|---|---|---|---|---|
| `cnn_mapa` | 4,380 | ``layers`` | 0.61 | 0.66 | 0.69 | 0.69 | 0.76 |
| | | ``vmap`` | 0.36 | 0.57 | 0.71 | 0.92 | 1.14 |
| `lenet5` | 61,706 | ``layers`` | 0.70 | 0.70 | 0.63 | 0.60 | 0.54 |
| | | ``vmap`` | 0.51 | 0.92 | 1.27 | 1.54 | 1.72 |
| `mlp` | 199,210 | ``layers`` | 0.53 | 0.55 | 0.28 | 0.17 | 0.04 |
| | | ``vmap`` | 1.85 | 2.54 | 2.77 | 3.00 | 1.11 |

``vmap`` wins for the smallest models at the smallest batches only, and is never chosen by itself: with it, a node's
result is rounded differently in other company, so a simulation would not repeat a deployment bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Generic, TypeVar

import torch
from torch import Tensor

from gossamer.errors import ModelError
from gossamer.objectives.chains.compiled import has_products, kernel_of
from gossamer.objectives.networks.chains import Unknown, chain_of
from gossamer.objectives.networks.checks import Probed, check_alone, kernel_problem, moved, probe, tried_on
from gossamer.objectives.networks.gradients import (
    ExampleGradients,
    GradientSums,
    LayerGradients,
    LoopedGradients,
    PaddedBatch,
    activations,
    one_torch_thread,
)
from gossamer.objectives.networks.kernel import Kernel
from gossamer.objectives.networks.network import LOSSES, Network

Method = Callable[[Tensor, PaddedBatch, Tensor], GradientSums]
Owned = TypeVar("Owned")


@dataclass(frozen=True)
class Strategy:
    """A way to gradients in torch, and how much goes into one call of it.

    Attributes
    ----------
    method : callable
        (Network, steady) -> Method.
    examples : int
        The most in one call, if memory allows. More amortise the cost of a call, fewer keep threads busy.
    nodes : int
        The most in one call.
    copies : float
        Numbers held for each number that a layer puts out.
    gradients : float
        Numbers held for each parameter, per example.
    """

    method: Callable[[Network, bool], Method]
    examples: int
    nodes: int
    copies: float
    gradients: float

    def limit(self, memory: int, activations: int, size: int, itemsize: int) -> int:
        """Examples that ``memory`` bytes suffice for, at least one."""
        each = (self.copies * activations + self.gradients * size) * itemsize
        return max(1, min(self.examples, int(memory / each)))


STRATEGIES: Mapping[str, Strategy] = {
    "layers": Strategy(LayerGradients, examples=64, nodes=1, copies=4, gradients=0),
    "threads": Strategy(ExampleGradients, examples=128, nodes=1, copies=3, gradients=1.5),
    "vmap": Strategy(ExampleGradients, examples=256, nodes=16, copies=3, gradients=1.5),
    "loop": Strategy(LoopedGradients, examples=128, nodes=1, copies=0, gradients=2),
}


COMPILED = "compiled"
"""Strategy of chains that have kernels; what these cannot hold is computed like ``threads``."""

_LOOPED = (
    "{} needs gradients that are computed in the same way whatever an example's numbers are, and torch.func cannot "
    "vectorise the module ({}); write forward without choices by numbers (torch.where) and autograd functions with a "
    "vmap rule, or simulate"
)
_FORWARD = Strategy(ExampleGradients, examples=512, nodes=1, copies=1, gradients=0)


class Lending(Generic[Owned]):
    """Things that one thread at a time may use, made when all others are lent."""

    def __init__(self, make: Callable[[], Owned]) -> None:
        self._make = make
        self._idle: list[Owned] = []

    @contextmanager
    def lend(self) -> Iterator[Owned]:
        """One of them, until the block ends."""
        try:
            one = self._idle.pop()
        except IndexError:
            one = self._make()
        try:
            yield one
        finally:
            self._idle.append(one)


@dataclass(frozen=True)
class NetworkPlan:
    """Decisions for examples of one shape.

    Attributes
    ----------
    strategy : str
        The row of `STRATEGIES`, or ``compiled``; never ``auto``.
    kernel : Kernel or None
        Compiled, of a chain.
    methods, networks : Lending
        Methods for gradients, and networks for outputs alone, each lent to one thread at a time.
    examples, rows : int
        The most in one call for gradients, and for outputs alone.
    nodes : int
        The most in one call for gradients.
    classes : int or None
        Number of classes that the module tells apart.
    unchained : str
        Reason why there is no kernel, where one was looked for; of ``loop``, why examples are not taken together.
    network : Network
        Network that gradients are taken of: that which is trained, or a graph of it that may see batches.
    put_out : int
        Numbers that the layers put out for an example.
    choosy : bool
        Whether its code may fail on some examples, so that it has to be tried on all before it is trained.
    """

    strategy: str
    kernel: Kernel | None
    methods: Lending[Method]
    networks: Lending[Network]
    examples: int
    rows: int
    nodes: int
    classes: int | None
    unchained: str
    network: Network
    put_out: int
    choosy: bool


def _first_sound(tried: Callable[[], tuple[Kernel, str | None]], other: Kernel) -> Kernel:
    """Return the kernel that is ``tried``, or the ``other`` one if there is something against it."""
    kernel, why = tried()
    return other if why else kernel


def _kernel(network: Network, model: Tensor, shape: tuple[int, ...], single: bool) -> tuple[Kernel | None, str]:
    """The kernel of the network's chain, which agrees with torch, or why there is none; for ``single`` examples."""
    if network.loss.wanted is not None:
        return None, "kernels are for the losses cross_entropy and mse"
    try:
        chain = chain_of(network.module, shape, network.parts)
    except Unknown as problem:
        return None, str(problem)
    dtype = model.numpy().dtype
    loss = next(name for name, known in LOSSES.items() if known == network.loss)

    def tried(products: bool) -> tuple[Kernel, str | None]:
        kernel = Kernel(kernel_of(chain, loss, dtype, products), dtype, network.loss.classifies, products)
        return kernel, kernel_problem(kernel, network, model, shape)

    if has_products(chain) and not single:
        kernel, why = tried(products=True)
        if why is None:
            return replace(kernel, of_one=cache(partial(_first_sound, partial(tried, products=False), kernel))), ""
    kernel, why = tried(products=False)
    return (None, why) if why else (kernel, "")


def make_plan(
    network: Network,
    model: Tensor,
    shape: tuple[int, ...],
    strategy: str,
    memory: int,
    steady: bool = False,
    exact: bool = False,
    kernels: bool = True,
) -> NetworkPlan:
    """Try the network at ``model`` on made-up examples of ``shape``, and decide.

    Parameters
    ----------
    network : Network
        Network to train.
    model : Tensor [size]
        Any parameters of it.
    shape : tuple of int
        Shape of one example.
    strategy : str
        A row of `STRATEGIES`, ``compiled`` or ``auto``.
    memory : int
        Bytes one thread may use for examples.
    steady : bool
        Whether gradients are to take as long whatever numbers they are made of.
    exact : bool
        Whether torch is to see one example at a time, since it rounds otherwise for another number of them.
    kernels : bool
        Whether ``auto`` may be ``compiled``.

    Raises
    ------
    ModelError
        If the module cannot take such examples, its outputs do not suit the loss, it mixes examples, its gradients
        cannot be taken one example at a time, or not by the strategy asked for.
    """
    with one_torch_thread(), torch.random.fork_rng(devices=[]):  # a module that draws numbers is about to be refused
        tried, any_numbers = tried_on(network.copied(), model, shape)
        kernel, no_kernel = (
            _kernel(network, model, shape, steady or exact)
            if strategy in ("auto", COMPILED) and kernels
            else (None, "")
        )
        check_alone(network, moved(model), tried)
        with torch.no_grad():
            outputs = network.outputs(network.parameters(model), tried[:1])
            put_out = activations(network.module, lambda: network.outputs(network.parameters(model), tried[:1]))
        # A chain's layers are torch's own and nothing else, so there is one way to their gradients.
        looped, layers, batched = Probed(None, None, network) if kernel else probe(network, moved(model), tried)
    if looped and (steady or exact or strategy not in ("auto", "loop")):
        asked = f"strategy '{strategy}'" if strategy not in ("auto", "loop") else "compute.rounding: exact"
        raise ModelError(_LOOPED.format("a deployment" if steady else asked, looped))
    if layers and strategy == "layers":
        raise ModelError(f"strategy 'layers' cannot be used, since {layers}; choose 'auto'")
    if strategy == COMPILED and kernel is None:
        raise ModelError(f"strategy 'compiled' cannot be used, since {no_kernel}; choose 'auto'")
    chosen = strategy
    if strategy == "auto":
        chosen = COMPILED if kernel else "loop" if looped else "threads" if layers else "layers"
    row = STRATEGIES["threads" if kernel else chosen]
    taken = batched if chosen == "layers" else network
    return NetworkPlan(
        chosen,
        kernel,
        Lending(lambda: row.method(taken.twin(), steady)),
        Lending(network.twin),
        1 if exact else row.limit(memory, put_out, network.size, model.itemsize),
        _FORWARD.limit(memory, put_out, network.size, model.itemsize),
        row.nodes,
        network.loss.scores(outputs).shape[1] if network.loss.classifies else None,
        no_kernel if looped is None else f"torch.func cannot vectorise the module ({looped})",
        taken,
        put_out,
        looped is not None or not any_numbers,
    )
