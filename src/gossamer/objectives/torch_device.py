"""Devices that sums of gradients are computed on: the processor, or a graphics card by CUDA.

The same code runs on both, so what a graphics card is to compute is tested without one. On one device the same numbers
come out each time: torch takes its deterministic algorithms, products are in float32 (no TF32) unless a precision says
otherwise, and the processor computes with one thread.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import gossamer.objectives.torch_extra  # noqa: F401  (says how to install torch where it is missing)

# isort: split
import torch
from torch import Tensor
from torch.utils import deterministic

from gossamer.arrays import FloatArray
from gossamer.errors import ModelError, SpecError
from gossamer.objectives.torch_batching import one_torch_thread

_WORKSPACE = ":4096:8"
"""Of cuBLAS, by which it repeats itself."""
_SAID = ".*max_pool2d_with_indices_backward_cuda.*"
"""Torch warns of its kernel for channels that come last; those of this library come first, and each input is
gathered."""


@dataclass(frozen=True)
class Device:
    """A device, and how it is to compute.

    Attributes
    ----------
    name : str
        ``cpu`` or ``cuda``.
    memory : int
        Bytes that a piece of a call may take.
    precision : str or None
        Of products: ``bfloat16`` for forward and backward passes of networks, ``tf32`` for all products of float32
        (graphics cards only), None for float32 throughout. Norms, clipping, sums and noise are in float32 in any case.
    """

    name: str
    memory: int
    precision: str | None = None

    @property
    def place(self) -> torch.device:
        """The device as torch calls it."""
        return torch.device(self.name)

    @property
    def title(self) -> str:
        """Its name for people, and its memory."""
        if self.name == "cpu":
            return "cpu"
        found = torch.cuda.get_device_properties(0)
        return f"cuda ({found.name}, {found.total_memory // 2**20} MiB)"

    def upload(self, values: npt.NDArray[np.generic], dtype: torch.dtype | None = None) -> Tensor:
        """A copy on the device; the copying goes on while this thread does."""
        here = torch.empty(
            values.shape, dtype=torch.from_numpy(np.empty(0, values.dtype)).dtype, pin_memory=self.name != "cpu"
        )
        here.numpy()[...] = values
        there = here.to(self.place, non_blocking=True)
        return there if dtype is None else there.to(dtype)

    def download(self, values: Tensor) -> FloatArray:
        """A copy in ordinary memory, which nobody else holds."""
        if self.name == "cpu":
            return values.numpy()
        here = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        here.copy_(values)
        return here.numpy()

    @contextmanager
    def computing(self, examples: int | None = None) -> Iterator[None]:
        """Compute with torch as the device is to, and as before outside.

        Parameters
        ----------
        examples : int, optional
            How many are computed at once, for the line that says that there is no room for them.

        Raises
        ------
        ModelError
            If the device's memory does not suffice.
        """
        with ExitStack() as stack:
            stack.enter_context(one_torch_thread())
            stack.enter_context(_deterministic())
            stack.enter_context(_products(tf32=self.precision == "tf32"))
            try:
                yield
            except torch.OutOfMemoryError:
                raise ModelError(self.full(examples)) from None

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Forward and backward passes of a network, in the precision that is wanted of them."""
        if self.precision != "bfloat16":
            yield
            return
        with torch.autocast(self.name, dtype=torch.bfloat16, cache_enabled=False):
            yield

    def full(self, examples: int | None) -> str:
        """Say that memory does not suffice."""
        if examples is None:
            return (
                f"compute.device: there is no room on {self.title} for the training examples and a call's models; "
                "lower compute.width, or choose device: cpu"
            )
        if examples == 1:
            return (
                f"compute.device: {self.title} is too small for one example of this model; choose a smaller model, or "
                "device: cpu"
            )
        return (
            f"compute.device: there is no room on {self.title} for {examples} examples at once; lower "
            f"compute.memory_mib, which is {self.memory // 2**20}"
        )


def device_of(wanted: str, memory_mib: int, precision: str | None = None) -> Device:
    """The device that a spec asks for: ``auto`` is a graphics card where torch can use one, and else the processor.

    Raises
    ------
    SpecError
        If it is not there.
    """
    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise SpecError(
            f"compute.device: cuda needs a GPU that torch can use, and torch {torch.__version__} finds none; choose "
            "auto or cpu, or install a torch with CUDA"
        )
    name = "cuda" if there and wanted != "cpu" else "cpu"
    if name == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", _WORKSPACE)  # read when CUDA is first used
    return Device(name, memory_mib * 2**20, precision)


@contextmanager
def _deterministic() -> Iterator[None]:
    """Torch takes algorithms that repeat themselves, where it has any, and says so where it has none."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _SAID)
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


@contextmanager
def _products(tf32: bool) -> Iterator[None]:
    """Products of float32 are rounded to TF32 if that is wanted, whatever the process does otherwise."""
    matrices, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    places: tuple[Any, ...]
    wanted: bool | str = tf32
    if hasattr(matrices, "fp32_precision"):
        places = matrices, convolutions.conv  # type: ignore[attr-defined]
        name, wanted = "fp32_precision", "tf32" if tf32 else "ieee"
    else:  # torch 2.8
        places, name = (matrices, convolutions), "allow_tf32"
    before = [getattr(place, name) for place in places]
    for place in places:
        setattr(place, name, wanted)
    try:
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            setattr(place, name, value)
