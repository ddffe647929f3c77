"""Checks of modules: what they are made of and what they put out, where they fail, and what kernels find of them."""

from __future__ import annotations

import copy
import linecache
import os
import sysconfig
import traceback
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gossamer.arrays import FloatArray
from gossamer.errors import ModelError
from gossamer.files import words_beside
from gossamer.objectives.networks.gradients import (
    ExampleGradients,
    LayerGradients,
    LoopedGradients,
    for_batches,
    plain_sums,
)
from gossamer.objectives.networks.kernel import Kernel
from gossamer.objectives.networks.layers import Joined, handles
from gossamer.objectives.networks.network import SCORES, Network, bytes_of, flat_parameters, removed
from gossamer.objectives.networks.stand_ins import with_stand_ins

# Nothing but the shape of an example is known, so numbers of several kinds are offered, and the first kind that the
# module can take is kept. What it does is seen from what it puts out and holds, never from its layers' names.

Seen = dict[nn.Module, tuple[Tensor, Tensor]]
_SEED, _ROWS = 0, 3
"""Seed and number of made-up examples."""
WORDS = words_beside(__file__)
"""What is said of modules that cannot be trained."""
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
        raise ModelError(WORDS["draws"])
    try:
        # What one example sets for all, such as the largest of their numbers, shows at the others alone.
        turns = [features.roll(-first, 0) for first in range(_ROWS)]
        found = (_mixing(one, model, each, "", None if first else alone) for first, each in enumerate(turns))
        problem = next(filter(None, found), None)
    except Exception as error:  # whatever others' code does
        raise ModelError(WORDS["one"].format(_ROWS, reason(error))) from error
    for name in network.training:
        other.module.get_submodule(name).training = True
    with suppress(Exception):  # it never runs in this mode, so it may fail there
        problem = problem or _mixing(other, model, features, " in training mode")
    if problem:
        raise ModelError(problem)
    drawn = torch.get_rng_state()
    torch.manual_seed(_SEED)
    if not torch.equal(drawn, torch.get_rng_state()):
        warnings.warn(WORDS["dropout"], stacklevel=2)


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

    torch.manual_seed(_SEED)  # so that dropout drops the same
    with removed(layer.register_forward_hook(watch) for layer in network.module.modules()):
        return _outputs(network, model, features), seen


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
            array = torch.as_tensor(value)
            once = array[tuple(slice(1 if step == 0 else None) for step in array.stride())]  # what is repeated
            told = array.dtype, array.shape, hash(bytes_of(once))
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
        Reasons why ``torch.func`` cannot take examples together, and why gradients cannot be taken layer by layer.
    batched : Network
        Network to use layer by layer: the given one, or a graph of it that may see batches.
    """

    vectorised: str | None
    layers: str | None
    batched: Network


def moved(network: Network) -> Tensor:
    """A model near the module's own numbers, lest zeros hide something."""
    given = flat_parameters(network.module)[1]
    noise = torch.from_numpy(np.random.default_rng(1).standard_normal(len(given), given.dtype))
    return torch.from_numpy(given).add_(noise, alpha=0.05)


def probe(network: Network, features: Tensor, target: tuple[int, ...] = ()) -> Probed:
    """Try the ways of `networks.gradients` near a model on two of ``features``, in float64 if the module's code can.

    The reference sees one example at a time, so a difference shows a layer of torch that mixes examples, parameters
    that layers share or that are used elsewhere, or inputs that are changed after a layer used them.

    Raises
    ------
    ModelError
        If the module has no gradient of one example, or changes itself.
    """
    targets = network.loss.made_up(target, features.dtype)
    failures = list[Exception]()
    ways = (network.double, ExampleGradients), (network.copied, ExampleGradients), (lambda: network, LoopedGradients)
    for made, way in ways:
        # Code that makes arrays of float32 takes no others.
        twin, dtype = made(), features.dtype if failures else torch.float64
        some, aims = features[:2].to(dtype), targets.to(dtype) if targets.dtype.is_floating_point else targets
        kept = remembered(twin.module)
        batched = network if failures else for_batches(network, tuple(features.shape[1:]))
        problem = "its code needs numbers of one type" if failures else layers_problem(network)
        # Code may write over what it is given, and of a large network there is little room beside one gradient.
        layers = problem or _layered(batched, moved(network).double(), some.clone(), aims)
        try:
            for n in range(2):
                alone = way(twin).gradients(moved(network).to(dtype)[None], some[None, [n]], aims[None, [n]])
                if isinstance(layers, Joined):
                    layers = _difference(layers, n, alone) or layers
                del alone
        except Exception as error:  # whatever others' code does
            failures.append(error)
            continue
        check_unchanged(kept, twin.module)
        problem = layers if isinstance(layers, str) else None
        return Probed(reason(failures[-1]) if twin is network else None, problem, batched)
    raise ModelError(f"the module has no gradient of one example alone: {reason(failures[-1])}") from failures[-1]


def _layered(network: Network, model: Tensor, features: Tensor, targets: Tensor) -> Joined | str:
    """Gradients of examples layer by layer in float64, or why they are not taken so."""
    layers = LayerGradients(network.double())
    try:
        found = layers.per_example(model, features, targets)
        found.weighted_sum(np.ones(len(targets)))  # which fails here, if it does
        return found
    except Exception as error:
        return f"gradients cannot be taken layer by layer: {reason(error)}"


def _difference(layers: Joined, place: int, alone: Sequence[Tensor]) -> str | None:
    """Say why the gradient at ``place`` layer by layer is not that of the example ``alone``; None if it is."""
    norm, weights = float(nn.utils.get_total_norm(alone)), np.eye(len(layers.square_norms))[place]
    errors = _distance(layers.weighted_sum(weights), alone), abs(float(layers.square_norms[place].sqrt()) - norm)
    if not all(error <= 1e-6 * norm + 1e-12 for error in errors):
        return "a layer mixes examples, or parameters are used outside of one layer"
    return None


def _distance(found: FloatArray, parts: Sequence[Tensor]) -> float:
    """L2 norm of ``found`` less ``parts`` one behind the other, which takes its place: there is no room for more."""
    for piece, part in zip(np.split(found, np.cumsum([part.numel() for part in parts])), parts):
        piece.reshape(tuple(part.shape))[...] -= part.numpy()
    return float(np.linalg.norm(found))


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
    return with_stand_ins(copied(module).cpu().eval())


def copied(module: nn.Module) -> nn.Module:
    """A copy of ``module``.

    Raises
    ------
    ModelError
        If it cannot be copied, or has a weight that is made otherwise with each pass.
    """
    for name, layer in module.named_modules():
        for each in (layer, *layer._forward_pre_hooks.values()):
            kind, torchs = type(each).__name__, type(each).__module__.startswith("torch.nn.utils.")
            if torchs and kind in WORDS["remade"] and (layer.training or kind[0] != "_"):
                place = f".{name}".partition(".parametrizations.")[0][1:] or "itself"
                raise ModelError(f"layer {place!r} has torch's {WORDS['remade'][kind]}")
    try:
        return copy.deepcopy(module)
    except Exception as problem:  # whatever others' code does
        raise ModelError(WORDS["copied"].format(type(problem).__name__, type(module).__name__)) from problem


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


_TORCH, _OURS = (f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1]))
_INSTALLED = str(Path(torch.__file__).parents[1]), sysconfig.get_path("stdlib")
_PYTHONS = (AttributeError, NameError, KeyError, ImportError, ArithmeticError)
"""Errors that are Python's own, or say what it would."""


def reason(problem: BaseException, *, told: bool = True) -> str:
    """Say why code of others fails, in words of ours, not of torch's insides: a layer and its input, or a line.

    Parameters
    ----------
    problem : exception
        Exception from a call of a module, or of its gradient.
    told : bool
        Whether what that code says of a problem that it raises itself may be repeated: it may hold numbers that the
        code was given.
    """
    frames = [(frame, line, frame.f_code.co_filename) for frame, line in traceback.walk_tb(problem.__traceback__)]
    own = [each for each in frames if not each[2].startswith((_OURS, *_INSTALLED))]
    _, line, path = (own or [each for each in frames if not each[2].startswith(_TORCH)])[-1]
    innermost, text = frames[-1][2], linecache.getline(path, line).strip()
    place = f"line {line} of {Path(path).name}" + (f": {text}" if text and told else "")
    there = f", in {place}" if own else ""
    # What Python or that code itself says is repeated, and nothing that torch does.
    raised = linecache.getline(innermost, frames[-1][1]).strip().startswith(("raise ", "assert "))
    if told and (isinstance(problem, _PYTHONS) or (raised and not innermost.startswith(_TORCH))):
        return f"{' '.join(f'{type(problem).__name__}: {problem}'.split())}{there}"
    calls = [frame.f_locals for frame, *_ in frames if frame.f_code.co_name == "_call_impl"]
    if calls and innermost.startswith(_TORCH) and type(layer := calls[-1]["self"]).__module__.startswith("torch.nn."):
        name = next(name for name, each in calls[0]["self"].named_modules() if each is layer)
        shapes = [str(list(each.shape)) for each in calls[-1]["args"] if isinstance(each, Tensor)]
        kind = type(layer).__name__ if list(layer.children()) else " ".join(repr(layer).split())
        return f"layer {name or 'itself'!r} is {kind}, and is given {' and '.join(shapes) or 'no array'}{there}"
    if "modified by an inplace operation" in str(problem):
        return "it changes an array in place that its gradient still needs; write x = 2 * x for x *= 2"
    return "torch cannot compute it" if path.startswith(_OURS) else place


def layers_problem(network: Network) -> str | None:
    """Say why gradients are not taken layer by layer: the loss, or a layer that no rule of `networks.layers` covers."""
    if network.loss.wanted is not None:
        return "a loss of another distribution is computed one example at a time"
    for name, layer in network.module.named_modules():
        if any(p.requires_grad for p in layer.parameters(recurse=False)) and not handles(layer):
            return f"layer {name!r} ({type(layer).__name__}) has no rule of its own"
    return None


def kernel_problem(kernel: Kernel, network: Network, model: Tensor, shape: tuple[int, ...]) -> str | None:
    """Return why a compiled kernel is not to be used: it finds other gradients of made-up examples, or other bits."""
    twin, features = network.double(), torch.from_numpy(np.random.default_rng(0).standard_normal((2, *shape)))
    targets = network.loss.made_up((), torch.float64)
    for one in range(len(targets)):
        x, y = features[one].numpy().astype(kernel.dtype).reshape(-1), targets[[one]].numpy().astype(kernel.targets)
        expected = plain_sums(twin, model.double(), features[[one]], targets[[one]])
        norm, total = float(nn.utils.get_total_norm(expected)), np.empty(network.size, kernel.dtype)
        kernel.sum(x, y, np.zeros(1, np.int64), model.numpy(), total, norm / 2, square := np.empty(1))
        total *= 2  # as it is, of a clip that halves it
        errors = [_distance(total, expected), abs(float(np.sqrt(square[0])) - norm)]
        kernel.sum(x, y, np.zeros(1, np.int64), model.numpy(), total)
        errors.append(_distance(total.copy(), expected))
        del expected
        if not all(error <= 1e-3 * norm + 1e-12 for error in errors):
            return "its kernel finds other gradients than torch"
        if not _alike(kernel, x, y, model.numpy(), total):
            return "an example's gradient depends on those beside it"
        del total
    return None


_COMPANY = ((2, 1), (7, 2), (17, 16), (32, 9), (33, 32), (64, 41))
"""(examples, the place of one among them)."""


def _alike(kernel: Kernel, x: FloatArray, y: npt.NDArray[Any], model: FloatArray, alone: FloatArray) -> bool:
    """Whether an example's gradient has the same bits beside others: such that are no numbers, which add nothing."""
    features, targets = np.concatenate([x, np.full_like(x, np.nan)]), np.repeat(y, 2)
    total = np.empty_like(alone)
    for count, place in _COMPANY:
        index = np.ones(count, np.int64)
        index[place] = 0
        kernel.sum(features, targets, index, model, total, np.inf, np.empty(count))
        if not np.array_equal(total, alone):
            return False
    return True
