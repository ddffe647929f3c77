"""Trials of a module on made-up examples: what it does with them, and which ways there are to its gradients.

Nothing but the shape of an example is known, so numbers of several kinds are offered, and the first kind that the
module can take is kept. What it does is seen from what it puts out and holds, never from its layers' names.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.errors import ModelError
from gossamer.objectives.torch_checks import layers_problem, outputs_problem, reason
from gossamer.objectives.torch_gradients import ExampleGradients, LayerGradients, LoopedGradients
from gossamer.objectives.torch_network import Network
from gossamer.objectives.torch_taps import for_batches

Seen = dict[nn.Module, tuple[Tensor, Tensor]]
_SEED, _ROWS = 0, 3
"""Seed and number of made-up examples."""
_INSIDE = ("_modules", "_parameters", "_buffers")
"""Where a module keeps what its names are for."""


def tried_on(network: Network, model: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, bool]:
    """Examples [3, ...] of ``shape`` that the network takes at ``model``, and whether it takes any numbers.

    Raises
    ------
    ModelError
        If it takes none of the examples that are made up, or its outputs for them are not what the loss needs.
    """
    generator, rows = np.random.default_rng(0), (_ROWS, *shape)
    # The last two are numbers of categories, or lengths, which may have to be above zero.
    kinds = generator.standard_normal(rows), generator.integers(1, 3, rows), generator.integers(0, 2, rows)
    found: list[tuple[Tensor, bool]] = []
    for numbers in kinds:
        features = torch.from_numpy(numbers).to(model.dtype)
        if (problem := outputs_problem(network, model, features[:1])) is None:
            found.append((features, numbers is kinds[0]))
            if _outputs(network, model, features[:1]).isfinite().all():
                return found[-1]
    if found:
        return found[0]
    try:
        _outputs(network, model, features[:1])
    except Exception:  # which has been told by now
        with suppress(Exception):
            _outputs(network, model, features)
            problem = "the module takes several examples, but not one alone; use torch.nn.GroupNorm for what mixes them"
    raise ModelError(problem or "")


def check_alone(network: Network, model: Tensor, features: Tensor) -> None:
    """Raise ModelError unless outputs for each of ``features`` [3, ...] are its own, and leave nothing behind."""
    one, other = network.copied(), network.copied()
    alone, _ = _outputs(one, model, features[:1]), _outputs(other, model, features[1:2])
    # What a module keeps of one batch would reach later releases, which are not charged for it. A table that it makes
    # for the shape of its examples is the same whatever they are.
    kept = remembered(one.module)
    check_unchanged(kept, other.module)
    drawn = torch.get_rng_state()
    again = _outputs(one, model, features[:1])
    check_unchanged(kept, one.module)
    if not torch.equal(drawn, torch.get_rng_state()) or _differ(alone, again, 0.0):
        raise ModelError(
            "the module draws random numbers, in evaluation mode too, so an example has no gradient of its own; leave "
            "them out (noise belongs to the mechanism), or to training: F.dropout(x, p, training=self.training)"
        )
    try:
        problem = _mixing(one, model, features, "", alone)
    except Exception as error:  # whatever others' code does
        raise ModelError(
            f"the module takes one example, but not {_ROWS} at once ({reason(error)}); write forward for any number of "
            "examples, along the first axis"
        ) from error
    for name in network.training:
        other.module.get_submodule(name).training = True
    with suppress(Exception):  # it never runs in this mode, so it may fail there
        problem = problem or _mixing(other, model, features, " in training mode")
    if problem:
        raise ModelError(problem)
    drawn = torch.get_rng_state()
    torch.manual_seed(_SEED)
    if not torch.equal(drawn, torch.get_rng_state()):
        off = "dropout is switched off: it would draw from a global generator, so the module runs in evaluation mode"
        warnings.warn(off, stacklevel=2)


def _mixing(network: Network, model: Tensor, features: Tensor, mode: str, alone: Tensor | None = None) -> str | None:
    """Say that outputs for an example change with those beside it, or that the module itself does in training."""
    kept, module = remembered(network.module), network.module
    (outputs, layers), (beside, others) = (_watched(network, model, rows) for rows in (features, features[[0, 0, 0]]))
    frozen = "call .eval() on it before, with which what it holds stays as it is" if mode else ""
    mixed = _differ(outputs[:1], beside[:1]) or (alone is not None and _differ(alone, outputs[:1], 1e-3))
    if mixed or len(outputs) != _ROWS:
        names = {layer: f"layer {name!r} ({type(layer).__name__})" for name, layer in module.named_modules() if name}
        pairs = ((layer, layers[layer], others[layer]) for layer in layers if layer in others)
        blamed = (names.get(layer) for layer, (x, y), (u, v) in pairs if _differ(y, v) and not _differ(x, u))
        what = f"{next(blamed, None) or 'the module'} mixes the examples of a batch{mode}"
        instead = f"use torch.nn.GroupNorm instead{', or ' if mode else ''}{frozen}"
        return f"{what}, so no example has a gradient of its own; {instead}"
    if mode and (place := _changed(kept, module)):
        return f"the module changes itself{mode} ({place}), and must keep nothing of what it sees; {frozen}"
    return None


def _watched(network: Network, model: Tensor, features: Tensor) -> tuple[Tensor, Seen]:
    """Outputs for ``features``; and what each layer was first given, and put out, of the first example."""
    seen: Seen = {}

    def watch(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            seen.setdefault(layer, (inputs[0][:1].clone(), output[:1].clone()))

    hooks = [layer.register_forward_hook(watch) for layer in network.module.modules()]
    torch.manual_seed(_SEED)  # so that dropout drops the same
    try:
        return _outputs(network, model, features), seen
    finally:
        for hook in hooks:
            hook.remove()


def _differ(one: Tensor, other: Tensor, share: float = 1e-5) -> bool:
    """Whether arrays differ by more than rounding, which depends on what is computed together."""
    one, other = one.double(), other.double()
    bound = share * float(one.nan_to_num().abs().max()) if one.numel() else 0.0
    return one.shape != other.shape or not torch.allclose(one, other, rtol=0, atol=bound, equal_nan=True)


def _outputs(network: Network, model: Tensor, features: Tensor) -> Tensor:
    with torch.no_grad():
        return network.outputs(network.parameters(model), features.clone()).clone()


def check_unchanged(kept: Mapping[str, object], module: nn.Module) -> None:
    """Raise ModelError if a module holds something else than what it `remembered` before."""
    if place := _changed(kept, module):
        raise ModelError(f"the module changes itself while it runs ({place}); it must keep nothing of what it sees")


def _changed(kept: Mapping[str, object], module: nn.Module) -> str | None:
    found = remembered(module)
    return next((place for place in {**kept, **found} if kept.get(place) != found.get(place)), None)


def remembered(module: nn.Module) -> dict[str, object]:
    """All that a module holds, also in what is no layer of it, by place: the same as long as no number changes."""
    return dict(_held(module, (), set()))


def _held(value: Any, place: tuple[str, ...], seen: set[int]) -> Iterator[tuple[str, object]]:
    parts: Mapping[Any, Any] = {} if isinstance(value, type | ModuleType | Tensor) else getattr(value, "__dict__", {})
    told: object = type(value).__qualname__ if parts else repr(value).partition(" at 0x")[0]
    if isinstance(value, Tensor | np.ndarray):
        with suppress(Exception):  # of kinds that have no bytes
            array = torch.as_tensor(value).detach().cpu().contiguous()
            told = array.dtype, array.shape, hash(array.reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, Mapping | list | tuple | deque):
        parts = value if isinstance(value, Mapping) else dict(enumerate(value))
        told = len(parts)
    yield ".".join(place), told
    if id(value) not in seen:
        seen.add(id(value))
        for key, part in parts.items():
            yield from _held(part, place if key in _INSIDE else (*place, str(key)), seen)


class Probed(NamedTuple):
    """Findings of a probe of a network.

    Attributes
    ----------
    vectorised, layers : str or None
        Why ``torch.func`` cannot take examples together; why gradients cannot be taken layer by layer.
    batched : Network
        What is to be used layer by layer: the network, or a graph of it that may see batches.
    """

    vectorised: str | None
    layers: str | None
    batched: Network


def moved(model: Tensor) -> Tensor:
    """A model near ``model``, lest zeros hide something."""
    return model + 0.05 * torch.from_numpy(np.random.default_rng(1).standard_normal(len(model))).to(model.dtype)


def probe(network: Network, model: Tensor, features: Tensor) -> Probed:
    """Try the ways of `torch_gradients` at ``model`` on two of ``features``, in float64 if the module's code can.

    The reference sees one example at a time, so a difference shows a layer of torch that mixes examples, parameters
    that layers share or that are used elsewhere, or inputs that are changed after a layer used them.

    Raises
    ------
    ModelError
        If the module has no gradient of one example, or changes itself.
    """
    targets = torch.tensor([0, 1]) if network.loss.classifies else torch.zeros(2, dtype=model.dtype)
    double, failures = network.double(), list[Exception]()
    for twin, way in ((double, ExampleGradients), (network.copied(), ExampleGradients), (network, LoopedGradients)):
        # Code that makes arrays of float32 takes no others.
        dtype = torch.float64 if twin is double else model.dtype
        at, some, aims = (
            model.to(dtype),
            features[:2].to(dtype),
            targets.to(dtype) if targets.dtype.is_floating_point else targets,
        )
        kept = remembered(twin.module)
        try:
            alone = [way(twin).gradients(at[None], some[None, [n]], aims[None, [n]]) for n in range(2)]
        except Exception as problem:  # whatever others' code does
            failures.append(problem)
            continue
        check_unchanged(kept, twin.module)
        if twin is not double:
            return Probed(
                reason(failures[-1]) if twin is network else None, "its code needs numbers of one type", network
            )
        batched = for_batches(network, tuple(features.shape[1:]))
        return Probed(None, layers_problem(network) or _difference(batched.double(), at, some, aims, alone), batched)
    raise ModelError(f"the module has no gradient of one example alone: {reason(failures[-1])}") from failures[-1]


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
        return f"gradients cannot be taken layer by layer: {reason(problem)}"
    for parts, gradient, square in zip(alone, together, squares):
        expected = torch.cat([part.flatten() for part in parts])
        tolerance = 1e-6 * float(expected.norm()) + 1e-12
        if not (expected - gradient).norm() <= tolerance or not abs(square.sqrt() - expected.norm()) <= tolerance:
            return "a layer mixes examples, or parameters are used outside of one layer"
    return None
