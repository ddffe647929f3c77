"""Sums of clipped per-example gradients of a network, in two ways.

`ExampleGradients` differentiates each example by itself (``torch.func``: vmap over examples, and over nodes): right
for whatever torch can vectorise, and every per-example gradient exists in memory. `LayerGradients` runs one ordinary
backward pass over the batch and takes norms and sums layer by layer (`networks.layers`): for modules made of known
layers, at little more than the price of a plain training step.

A *pass* finds the inputs of a network's layers and the gradients that come back through them, for a batch of examples.

`BatchPass` shows the module the whole batch: an ordinary forward and backward pass. That is right only if the module
treats every example by itself, whatever the batch, so it is for modules of torch's own layers alone (`is_of_torch`),
and for those whose code can be written as a graph that provably does (`networks.graphs`), which then runs in its place.
`VectorisedPass` can show the module one example at a time: whatever its code does, what belongs to one example cannot
depend on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.func import grad, vmap

from gossamer import threads as shared_threads
from gossamer.arrays import IndexArray
from gossamer.data.examples import Split
from gossamer.errors import DataError
from gossamer.objectives.networks.graphs import ExampleWise, example_wise
from gossamer.objectives.networks.layers import RULES, Joined, LayerCall, clip_factors
from gossamer.objectives.networks.network import Network, removed, scores_of
from gossamer.objectives.objective import check_classes
from gossamer.threads import Item, Result

Passing = Callable[[], AbstractContextManager[None]]
"""Opens the context of forward and backward passes, such as one of another precision."""
Use = Callable[[str, list[LayerCall]], None]
"""Takes a layer's name, and its calls in the order of the forward pass."""


def hooked(layer: nn.Module) -> bool:
    """Whether something is called beside the layer."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)


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
    if "forward" in vars(layer) or hooked(layer):
        return False
    of_torch = kind.__module__.startswith("torch.nn.modules.") and not list(layer.children())
    ours = kind.__module__.startswith("gossamer.objectives.models.")
    return of_torch or ours or kind in (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def trainable_layers(module: nn.Module) -> dict[str, nn.Module]:
    """The modules inside that own a trainable parameter, by name."""
    layers = module.named_modules()
    return {name: layer for name, layer in layers if any(p.requires_grad for p in layer.parameters(recurse=False))}


_LARGE = 2**20
"""Parameters from which on a copy of the model costs more than a look at each of its parts."""


class BatchPass:
    """One forward and one backward pass over the batch.

    Parameters
    ----------
    network : Network
        Used by one thread at a time, and by nothing else: hooks are left in its module, whose parameters are made parts
        of one array for the numbers of each call; of a large one, parts of the model itself while the call lasts.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        some = next(network.module.parameters())
        self._root = torch.zeros((), requires_grad=True, device=some.device)
        self._taps: list[tuple[str, Tensor, Any, tuple[Tensor, Tensor] | None]] = []
        for name, layer in trainable_layers(network.module).items():
            layer.forward = partial(self._tap, name, layer.forward)  # hooks take longer
        self._named = dict(network.module.requires_grad_(False).named_parameters())
        self._large = network.size >= _LARGE
        self._model = some.new_full((), torch.nan).expand(network.size) if self._large else some.new_empty(network.size)
        self._put(self._model)

    def __call__(self, model: Tensor, features: Tensor, targets: Tensor, use: Use) -> None:
        """Hand on all calls that the losses of ``features`` [examples, ...] depend on, the last layer's first."""
        (self._put if self._large else self._model.copy_)(model)
        features, self._taps = self._network.arrange(features), []
        with torch.enable_grad():
            outputs = scores_of(self._network.module(features))
            total = self._network.loss.trained(outputs, targets).sum()
            taps, self._taps = self._taps, []
            if not total.requires_grad:  # no layer is in it
                return
            found = torch.autograd.grad(total, [edge for _, _, edge, _ in taps], allow_unused=True)
        if self._large:
            self._put(self._model)
        calls: dict[str, list[LayerCall]] = {}
        for (name, inputs, _, statistics), gradient in zip(taps, found, strict=True):
            if gradient is not None:
                calls.setdefault(name, []).append(LayerCall(inputs, gradient, statistics))
        for name in reversed(calls):
            use(name, calls[name])

    def _put(self, model: Tensor) -> None:
        """Make the parameters parts of ``model``."""
        for name, values in self._network.parameters(model).items():
            self._named[name].data = values

    def _tap(self, name: str, forward: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        output = forward(inputs)
        statistics = _statistics(output)
        if not output.requires_grad:  # nothing before it has parameters
            output.add_(self._root)
        # An edge stays that of this output, if code changes the array in place afterwards.
        self._taps.append((name, inputs.detach(), get_gradient_edge(output), statistics))
        return output


def _statistics(output: Tensor) -> tuple[Tensor, Tensor] | None:
    """Means and reciprocal deviations that a normalisation has just computed, kept by torch for the way back."""
    made_by: Any = output.grad_fn
    if made_by is None or made_by.name() not in ("NativeGroupNormBackward0", "NativeLayerNormBackward0"):
        return None
    return made_by._saved_result1.detach(), made_by._saved_result2.detach()


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

    def __call__(self, model: Tensor, features: Tensor, targets: Tensor, use: Use) -> None:
        """Hand on all calls, for ``features`` [batches, examples, ...], with the examples of all batches in a row."""
        parameters = self._network.parameters(model)
        if not self._shapes:
            one = {name: values[0] if self._stacked else values for name, values in parameters.items()}
            with torch.no_grad():
                self._network.outputs(one, features[0, :1])
        count = features.shape[1]
        zeros = [features.new_zeros(()).expand(count * shape[0], *shape[1:]) for _, shape in self._shapes]
        gradients, inputs = self._backward(zeros, parameters, features, targets)
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


# Where torch has no rule to take examples together it takes them in turn, and says so in words for its makers.
torch._C._functorch._set_vmap_fallback_warning_enabled(False)  # type: ignore[attr-defined]


class PaddedBatch(NamedTuple):
    """Examples of several nodes, padded to one length.

    Attributes
    ----------
    features : Tensor [nodes, examples, ...]
    targets : Tensor [nodes, examples]
    present : Tensor [nodes, examples] of bool
        False for padding, which counts as no example at all.
    """

    features: Tensor
    targets: Tensor
    present: Tensor


def padded(batches: Sequence[IndexArray]) -> tuple[IndexArray, npt.NDArray[np.bool_]]:
    """Indices of several nodes' examples, [nodes, examples], padded with each node's first one; and False for these."""
    if len(batches) == 1:
        return batches[0][None], np.ones((1, len(batches[0])), np.bool_)
    count = np.array([len(batch) for batch in batches])[:, None]
    present = np.arange(count.max()) < count
    index = np.repeat(np.array([batch[0] for batch in batches]), present.shape[1]).reshape(present.shape)
    index[present] = np.concatenate(batches)
    return index, present


class GradientSums(NamedTuple):
    """Sums of each node.

    Attributes
    ----------
    gradients : Tensor [nodes, size]
        GradientSums of clipped gradients.
    zeroed, unclipped : Tensor [nodes] of int64
        Number of gradients that were not finite, and of those that were finite and within the clip.
    """

    gradients: Tensor
    zeroed: Tensor
    unclipped: Tensor


class ExampleGradients:
    """Per-example gradients one by one, by ``torch.func``.

    Parameters
    ----------
    network : Network
        Used by one thread at a time.
    steady : bool
        Whether what a sum takes must not depend on whether gradients are finite.
    passing : callable
        Context of passes; what they leave is taken in the type of models.
    """

    def __init__(self, network: Network, steady: bool = False, passing: Passing = nullcontext) -> None:
        self.network, self._steady, self._passing = network, steady, passing
        self._by_example = vmap(grad(self._loss), in_dims=(None, 0, 0))
        self._by_node = vmap(self._by_example)

    def gradients(self, models: Tensor, features: Tensor, targets: Tensor) -> list[Tensor]:
        """One array [nodes, examples, part.size] a part, at ``models`` [nodes, size]."""
        if len(models) == 1:  # a model of its own for every node costs grouped convolutions
            found = self._by_example(self.network.parameters(models[0]), features[0], targets[0])
            return [gradient.reshape(1, len(gradient), -1) for gradient in found.values()]
        found = self._by_node(self.network.parameters(models), features, targets)
        return [gradient.reshape(*gradient.shape[:2], -1) for gradient in found.values()]

    def __call__(self, models: Tensor, batch: PaddedBatch, clips: Tensor) -> GradientSums:
        """Sums over each node's examples of gradients scaled to a norm of at most its clip, [nodes] of float64."""
        with self._passing():
            found = self.gradients(models, batch.features, batch.targets)
        gradients = [gradient.to(models.dtype) for gradient in found]
        norms = _squares(gradients).sqrt() if self._steady else _norms(gradients)
        finite = norms.isfinite()
        counted = finite & batch.present
        if self._steady or not finite.all():  # zero times NaN is NaN
            gradients = [torch.where(finite[..., None], gradient, 0) for gradient in gradients]
        weights = torch.where(counted, clip_weights(norms, clips, models.dtype), 0)[:, None]
        sums = torch.cat([(weights @ gradient)[:, 0] for gradient in gradients], dim=1)
        return GradientSums(sums, (batch.present & ~finite).sum(1), (counted & within_clip(norms, clips)).sum(1))

    def _loss(self, parameters: dict[str, Tensor], features: Tensor, target: Tensor) -> Tensor:
        return self.network.losses(parameters, features[None], target[None])[0]


class LoopedGradients(ExampleGradients):
    """Per-example gradients by one ordinary backward pass each: of whatever torch can differentiate, and slow."""

    def gradients(self, models: Tensor, features: Tensor, targets: Tensor) -> list[Tensor]:
        """See `ExampleGradients.gradients`."""
        nodes = zip(models, features.unsqueeze(2), targets.unsqueeze(2))
        found = [torch.stack([plain_sum(self.network, model, *one) for one in zip(*batch)]) for model, *batch in nodes]
        return list(torch.split(torch.stack(found), [part.size for part in self.network.parts], dim=-1))


def plain_sums(network: Network, model: Tensor, features: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """The sum of gradients as they are, of each part: that of one ordinary backward pass."""
    with torch.enable_grad():
        at = {name: values.detach().requires_grad_() for name, values in network.parameters(model).items()}
        total, parts = network.losses(at, features.clone(), targets).sum(), tuple(at.values())
        total = total + parts[0].flatten()[:0].sum()  # also of a loss that no parameter is in
        return torch.autograd.grad(total, parts, allow_unused=True, materialize_grads=True)


def plain_sum(network: Network, model: Tensor, features: Tensor, targets: Tensor) -> Tensor:
    """Parts of `plain_sums` one behind the other, [size]."""
    return torch.cat([part.flatten() for part in plain_sums(network, model.clone(), features, targets)])


def _squares(gradients: Sequence[Tensor]) -> Tensor:
    """Squared L2 norms over all parts, [nodes, examples]."""
    return torch.stack([gradient.square().sum(-1) for gradient in gradients]).sum(0)


def _norms(gradients: Sequence[Tensor]) -> Tensor:
    """L2 norms over all parts, [nodes, examples]; not finite exactly where a component is not."""
    squares = _squares(gradients)
    if squares.isfinite().all():
        return squares.sqrt()
    largest = torch.stack([gradient.abs().amax(-1) for gradient in gradients if gradient.numel()]).amax(0)
    unit = largest.clamp(min=torch.finfo(largest.dtype).tiny)[..., None]
    squares = torch.stack([(gradient / unit).square().sum(-1) for gradient in gradients]).sum(0)
    return largest.double() * squares.sqrt()


def clip_weights(norms: Tensor, clips: Tensor, dtype: torch.dtype) -> Tensor:
    """Factors [nodes, examples] by which each gradient's norm becomes at most its node's clip."""
    weights = (norms.reciprocal() * clips[:, None].to(norms.dtype)).clamp(max=1).to(dtype)
    # A clip may be zero in the norms' precision, and zero times the reciprocal of zero is no number.
    weights = torch.where(norms == 0, 1, weights)
    # A subnormal weight may have been rounded up by any factor; such a gradient vanishes instead.
    return torch.where(weights < torch.finfo(dtype).tiny, 0, weights)


def within_clip(norms: Tensor, clips: Tensor) -> Tensor:
    """Whether each norm [nodes, examples] is at most its node's clip."""
    return norms.double() <= clips[:, None]


class LayerGradients:
    """Norms and sums of per-example gradients from one backward pass, layer by layer; without a clip, of the sum alone.

    Only for a network that `networks.checks.probe` finds nothing against: with a layer that has no rule, or
    parameters used outside their layer, it would be another vector that is clipped and summed.

    Parameters
    ----------
    network : Network
        Used by one thread at a time, and by nothing else: hooks are left in its module.
    steady : bool
        Whether what a sum of one example takes must not depend on whether its gradient is finite.
    """

    def __init__(self, network: Network, steady: bool = False) -> None:
        self.network, self._steady = network, steady
        self._exact = ExampleGradients(network.twin())
        self._layers = trainable_layers(network.module)
        self._own = {
            name: [(key, f"{name}.{key}".lstrip(".")) for key, _ in layer.named_parameters(recurse=False)]
            for name, layer in self._layers.items()
        }
        self._sizes = {part.name: part.size for part in network.parts}
        self._sees_batches = is_of_torch(network.module)
        self._run = BatchPass(network) if self._sees_batches else VectorisedPass(network, stacked=False)

    def __call__(self, models: Tensor, batch: PaddedBatch, clips: Tensor) -> GradientSums:
        """Sums over the examples of one node, [1, size], for its clip [1]; the batch has no padding."""
        model, features, targets, clip = models[0], batch.features[0], batch.targets[0], float(clips)
        if self._sees_batches and not self._steady and clip == np.inf:
            network = self._exact.network
            total = plain_sum(network, model, network.arrange(features), targets)
            if total.isfinite().all():  # so every gradient in it was
                none = torch.zeros(1, dtype=torch.int64)
                return GradientSums(total[None], none, none + len(targets))
        found = self.per_example(model, features, targets)
        weights = np.empty(len(targets), model.numpy().dtype)
        unsound, within = clip_factors(found.square_norms.numpy(), clip, np.finfo(weights.dtype).tiny, weights)
        if not unsound or (self._steady and len(targets) == 1):
            summed = found.weighted_sum(weights)
            if self._steady:  # of one, by the same steps whatever it is: 0 times the bits of NaN is 0
                summed.view(f"u{summed.itemsize}")[...] *= not unsound
            return GradientSums(*map(torch.from_numpy, (summed[None], *np.array([[unsound], [within]]))))
        sound = np.isfinite(found.square_norms.numpy())
        # Rare: these overflow or are not finite, which the exact way tells apart.
        apart = [batch_of(features[n : n + 1], targets[n : n + 1]) for n in np.flatnonzero(~sound)]
        parts = [self._exact(models, one, clips) for one in apart]
        if sound.any():
            parts.append(self(models, batch_of(features[sound], targets[sound]), clips))
        return GradientSums(*(torch.stack(each).sum(0) for each in zip(*parts)))

    def per_example(self, model: Tensor, features: Tensor, targets: Tensor) -> Joined:
        """The gradients of each example."""
        joined = Joined(self._sizes, len(targets))

        def use(name: str, calls: list[LayerCall]) -> None:
            layer = self._layers[name]
            rule = RULES[type(layer)](layer, calls)
            for key, whole in self._own[name]:
                joined.take(whole, rule[key])

        if not self._sees_batches:  # but batches of one example
            features, targets = features[:, None], targets[:, None]
        with torch.no_grad(), np.errstate(all="ignore"):  # what is not finite is seen in the norms
            self._run(model, features, targets, use)
        return joined


def batch_of(features: Tensor, targets: Tensor) -> PaddedBatch:
    """The examples of one node, all present."""
    return PaddedBatch(features[None], targets[None], torch.ones(1, len(targets), dtype=torch.bool))


# A piece is some examples of one node (or of a few under ``vmap``), small enough for the memory setting. Pieces are the
# same whatever the number of threads, each is computed by one thread with torch set to one thread, and their sums are
# added in order. So results depend neither on cores, nor on load, nor on OMP_NUM_THREADS.


def check_split(data: Split, target: tuple[int, ...], classes: int | None, shares: bool) -> None:
    """Raise DataError unless each example has a ``target`` of that shape, of ``classes`` or of ``shares``."""
    if data.features.shape[0] != len(data) or data.targets.shape[1:] != target:
        wanted = ", ".join(["n", *map(str, target)])
        raise DataError(
            f"expected one target [{wanted}] an example [n, ...], found targets {list(data.targets.shape)} and "
            f"features {list(data.features.shape)}; give others, or a module with other outputs"
        )
    if classes is not None:
        check_classes(data.targets, classes, "give the module more outputs")
    if shares and not ((data.targets >= 0) & (data.targets <= 1)).all():
        raise DataError("targets of binary_cross_entropy must be from 0 to 1, found others; mark what is there by 1")


class Piece(NamedTuple):
    """Examples of some nodes that are computed in one go."""

    nodes: list[int]
    indices: list[IndexArray]


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Torch computes with one thread inside, as before outside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def without_subnormals(wanted: bool) -> Iterator[None]:
    """This thread takes numbers below the normal ones of their type for zero, if that is wanted and it can."""
    wanted = wanted and torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if wanted:
            torch.set_flush_denormal(False)


def in_order(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> Iterator[Result]:
    """`threads.in_order`, where torch computes with one thread in each of them."""

    def alone(item: Item) -> Result:
        torch.set_num_threads(1)
        return function(item)

    with one_torch_thread():
        yield from shared_threads.in_order(alone, items, threads)


def pieces(batches: Sequence[IndexArray], examples: int, nodes: int) -> list[Piece]:
    """Every index of ``batches`` in exactly one piece, of at most ``examples`` examples (padding included).

    Parameters
    ----------
    batches : sequence of index arrays
        One a node; an empty batch is in no piece.
    examples : int
        The most in one piece; a longer batch is cut into even runs.
    nodes : int
        The most nodes in one piece.
    """
    found: list[Piece] = []
    for node, batch in enumerate(batches):
        runs = np.array_split(batch, -(-len(batch) // examples)) if len(batch) > examples else [batch]
        for run in runs if len(batch) else ():
            if found and len(found[-1].nodes) < nodes and _fits(found[-1], run, examples):
                found[-1].nodes.append(node)
                found[-1].indices.append(run)
            else:
                found.append(Piece([node], [run]))
    return found


def _fits(piece: Piece, run: IndexArray, examples: int) -> bool:
    """Whether ``run`` can join, with padding."""
    return max(map(len, (*piece.indices, run))) * (len(piece.nodes) + 1) <= examples


def activations(module: nn.Module, call: Callable[[], object]) -> int:
    """Count of the numbers that the innermost layers of ``module`` put out during ``call``."""
    counts: list[int] = []

    def count(_layer: nn.Module, _inputs: object, output: object) -> None:
        counts.append(output.numel() if isinstance(output, Tensor) else 0)

    innermost = [layer for layer in module.modules() if not list(layer.children())]
    with removed(layer.register_forward_hook(count) for layer in innermost):
        call()
    return sum(counts)
