"""Networks by name, and networks of one's own.

| name | parameters | for |
|---|---|---|
| `mlp` | 199,210 | anything (28 x 28) |
| `lenet5` `lenet5_tanh` | 61,706 | images (28 x 28) |
| `cnn_mapa` | 4,380 | images (28 x 28) |
| `shufflenet` `mobilenetv2` `efficientnet_b0` `mobilenet` | 1.3, 2.3, 2.9, 3.2 million | images (32 x 32) |
| `googlenet` `resnext29` `resnet18` `senet18` `vgg19` | 6.2, 9.1, 11.2, 11.3, 20.0 million | images (32 x 32) |
| `lstm` | 43 million | sequences (21 frames of 260 features, 32,000 classes) |
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, NamedTuple, TypeAlias

import gossamer.objectives.networks.torch_extra  # noqa: F401  (says how to install torch where it is missing)

# isort: split
import torch
from torch import nn

from gossamer.data.settings import IN_MEMORY
from gossamer.errors import ModelError, did_you_mean
from gossamer.objectives.models import images
from gossamer.objectives.models.small import LSTM, MLP, CNNMapa, LeNet5, LeNet5Tanh
from gossamer.objectives.networks.checks import copied
from gossamer.objectives.networks.network import bytes_of
from gossamer.randomness import digest_of

Given: TypeAlias = nn.Module | Callable[..., nn.Module]
"""A module, or a class or function that makes one."""


class BuiltModule(NamedTuple):
    """A module for examples of one shape.

    Attributes
    ----------
    module : nn.Module
        A copy, for nobody else.
    started : bool
        Whether its parameters are where a run starts; those of a class or a function are drawn.
    code : bytes
        Digest of all that decides its gradients, apart from parameters that are drawn.
    """

    module: nn.Module
    started: bool
    code: bytes


def name_of(given: Any) -> str:
    """Name of the module's class, or of what makes it."""
    named = given if hasattr(given, "__qualname__") else type(given)
    return str(named.__qualname__).rpartition(".")[2]


def made(given: Any, input_shape: tuple[int, ...], classes: int) -> BuiltModule:
    """The module that was ``given``, or made by what was.

    Raises
    ------
    ModelError
        If it is no module and makes none, or cannot be copied.
    """
    if isinstance(given, nn.Module):
        module = copied(given)
        return BuiltModule(module, True, digest(module, started=True))
    if not callable(given):
        raise ModelError(
            f"module: expected a torch.nn.Module, or a class or function that makes one, found {type(given).__name__}"
        )
    module = module_of(given, name_of(given), input_shape, classes)
    return BuiltModule(module, False, digest(module, started=False))


def digest(module: nn.Module, *, started: bool) -> bytes:
    """Digest of a module's structure, code, plain settings and numbers; those that are trained only if ``started``."""
    return digest_of(_parts(module, started))


def _parts(module: nn.Module, started: bool) -> Iterator[bytes]:
    yield repr(module).encode()
    kinds = {kind for layer in module.modules() for kind in type(layer).__mro__}
    own = [kind for kind in kinds if not kind.__module__.startswith(("torch.", "builtins", "typing"))]
    for kind in sorted(own, key=lambda each: (each.__module__, each.__qualname__)):
        yield f"{kind.__module__}.{kind.__qualname__}".encode()
        yield _code(kind)
    for name, layer in module.named_modules():
        plain = {key: value for key, value in vars(layer).items() if isinstance(value, _PLAIN)}
        yield f"{name} {sorted(plain.items())}".encode()
    fixed = [(name, each) for name, each in module.named_parameters() if started or not each.requires_grad]
    for name, tensor in (*fixed, *module.named_buffers()):
        yield name.encode()
        yield b"" if nn.parameter.is_lazy(tensor) else bytes_of(tensor)


_PLAIN = (bool, int, float, str, tuple, type(None))


def _code(kind: type) -> bytes:
    """Source of a class; where there is none, as at a prompt, what its functions are compiled to."""
    try:
        return inspect.getsource(kind).encode()
    except (OSError, TypeError):
        codes = [value.__code__ for value in vars(kind).values() if inspect.isfunction(value)]
        return repr([(code.co_name, code.co_code, code.co_names, _constants(code)) for code in codes]).encode()


def _constants(code: Any) -> list[Any]:
    return [each for each in code.co_consts if not inspect.iscode(each)]


Builder = Callable[[tuple[int, ...], int], nn.Module]
"""(input_shape, classes) -> module; shapes are those of one example."""

MODELS: Mapping[str, Builder] = {
    "mlp": MLP,
    "lenet5": LeNet5,
    "lenet5_tanh": LeNet5Tanh,
    "cnn_mapa": CNNMapa,
    "shufflenet": images.ShuffleNet,
    "mobilenetv2": images.MobileNetV2,
    "efficientnet_b0": images.EfficientNetB0,
    "mobilenet": images.MobileNet,
    "googlenet": images.GoogLeNet,
    "resnext29": images.ResNeXt29,
    "resnet18": images.ResNet18,
    "senet18": images.SENet18,
    "vgg19": images.VGG19,
    "lstm": LSTM,
}


def build_model(name: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network ``name`` for examples of ``input_shape`` and ``classes`` classes.

    Raises
    ------
    ModelError
        For a name not in `MODELS`, or examples of a shape that the network cannot take.
    """
    if name not in MODELS:
        raise ModelError(f"model: unknown name {name!r}{did_you_mean(name, MODELS)}")
    return module_of(lambda: MODELS[name](tuple(input_shape), classes), name, input_shape, classes)


def load_module(reference: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A network of one's own, from code that can be imported.

    Parameters
    ----------
    reference : str
        ``package.module:Class``, or a function in place of the class. It is called with ``input_shape`` and
        ``classes``, as far as its signature takes them.
    input_shape : tuple of int
        Shape of one example.
    classes : int
        Number of classes.

    Raises
    ------
    ModelError
        If the module cannot be imported, lacks the name, or what the call returns is no ``torch.nn.Module``.
    """
    path, colon, name = reference.partition(":")
    if path == IN_MEMORY:
        raise ModelError(
            f"objective.module: {name or 'it'} was given from memory, and a spec has no code; run it from Python with "
            "the same module: gs.run(spec, module=...)"
        )
    if not (path and colon and name):
        raise ModelError(f"one's own model is written 'package.module:Class', found {reference!r}")
    try:
        found = import_module(path)
    except Exception as problem:
        raise ModelError(
            f"cannot import {path!r} for model {reference!r}: {_reason(problem)}; "
            "is it installed, or its folder on PYTHONPATH?"
        ) from problem
    if not callable(make := getattr(found, name, None)):
        raise ModelError(f"expected a class or function {name!r} in {path!r} for model {reference!r}, found none")
    return module_of(make, reference, input_shape, classes)


def module_of(make: Callable[..., Any], name: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Call ``make`` with the shape of an example and the number of classes, as far as its signature takes them.

    Raises
    ------
    ModelError
        If the call fails, or returns no ``torch.nn.Module``; it says ``name``.
    """
    try:
        with torch.random.fork_rng(devices=[]):  # what stays as it is is the same everywhere
            torch.default_generator.manual_seed(0)
            module = make(**_taken(make, {"input_shape": tuple(input_shape), "classes": classes}))
    except ModelError:
        raise
    except Exception as problem:
        raise ModelError(f"creating {name!r} failed: {_reason(problem)}") from problem
    if not isinstance(module, nn.Module):
        raise ModelError(f"{name!r} must give a torch.nn.Module, found {type(module).__name__}")
    return module


def _reason(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"


def _taken(make: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """Keep those of the keyword arguments ``offered`` that the callable takes."""
    parameters = signature(make).parameters
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return offered
    return {name: value for name, value in offered.items() if name in parameters}
