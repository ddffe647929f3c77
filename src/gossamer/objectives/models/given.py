"""Modules that are given as Python objects, in place of a name that a spec can say."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import gossamer.objectives.torch_extra  # noqa: F401  (says how to install torch where it is missing)

# isort: split
import torch
from torch import nn

from gossamer.errors import ModelError
from gossamer.objectives.models import module_of

Given: TypeAlias = nn.Module | Callable[..., nn.Module]
"""A module, or a class or function that makes one."""


class Made(NamedTuple):
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


def made(given: Any, input_shape: tuple[int, ...], classes: int) -> Made:
    """The module that was ``given``, or made by what was.

    Raises
    ------
    ModelError
        If it is no module and makes none, or cannot be copied.
    """
    if isinstance(given, nn.Module):
        try:
            module = copy.deepcopy(given)
        except Exception as problem:
            raise ModelError(
                f"module: expected a torch.nn.Module that can be copied, found {type(problem).__name__} when copying "
                f"{name_of(given)}; give its class, or a function that makes it"
            ) from problem
        return Made(module, True, digest(module, started=True))
    if not callable(given):
        raise ModelError(
            f"module: expected a torch.nn.Module, or a class or function that makes one, found {type(given).__name__}"
        )
    module = module_of(given, name_of(given), input_shape, classes)
    return Made(module, False, digest(module, started=False))


def digest(module: nn.Module, *, started: bool) -> bytes:
    """Digest of a module's structure, code, plain settings and numbers; those that are trained only if ``started``."""
    found = hashlib.blake2b(digest_size=16)
    for part in _parts(module, started):
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()


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
        yield b"" if nn.parameter.is_lazy(tensor) else _bytes(tensor)


_PLAIN = (bool, int, float, str, tuple, type(None))


def _bytes(tensor: torch.Tensor) -> bytes:
    values = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(values.view(torch.uint8).numpy().data) if values.numel() else b""


def _code(kind: type) -> bytes:
    """Source of a class; where there is none, as at a prompt, what its functions are compiled to."""
    try:
        return inspect.getsource(kind).encode()
    except (OSError, TypeError):
        codes = [value.__code__ for value in vars(kind).values() if inspect.isfunction(value)]
        return repr([(code.co_name, code.co_code, code.co_names, _constants(code)) for code in codes]).encode()


def _constants(code: Any) -> list[Any]:
    return [each for each in code.co_consts if not inspect.iscode(each)]
