"""Devices that sums of gradients are computed on: the processor, or a graphics card by CUDA.

The same code runs on both, so what a graphics card is to compute is tested without one. On one device the same numbers
come out each time: torch takes its deterministic algorithms, products are in float32 (no TF32) unless a precision says
otherwise, and the processor computes with one thread.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import gossamer.objectives.networks.torch_extra  # noqa: F401  (says how to install torch where it is missing)

# isort: split
import torch
from torch import Tensor
from torch.utils import deterministic

from gossamer.arrays import FloatArray, Floats
from gossamer.errors import ModelError, SpecError, counted
from gossamer.normals import BLOCK
from gossamer.objectives.networks.gradients import one_torch_thread

# The normal numbers of `gossamer.normals`, made by torch, on whatever device.
#
# The same Philox words, bit for bit, in integers of 64 bits whose products wrap around; from these the same polynomials
# in float32. Normals agree to a few units in the last place: compilers contract products and sums in their own ways.

AT_ONCE = 2**20
"""Counters whose words are held at a time; it has no influence on numbers."""

_LOW = 0xFFFFFFFF
_FACTORS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85
_LN2, _ROOT2 = 0.6931471805599453, 1.4142135
_ANGLE, _UNIT = 2.0 * np.pi / 2.0**32, 2.0**-32
_NEAR = 0xB504F400  # 2^32 / sqrt(2), and a little more
_LOGARITHM = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)


def add_normals(sums: Tensor, keys: npt.NDArray[np.uint64], deviations: Floats) -> None:
    """Add normals to ``sums`` [rows, size] of float32: those of each row's ``keys`` [rows, 2], times its deviation.

    A row whose deviation is 0 stays as it is.
    """
    rows = np.flatnonzero(deviations)
    if not len(rows):
        return
    size = sums.shape[1]
    device = sums.device
    blocks = -(-size // (4 * BLOCK))
    together = max(1, AT_ONCE // (BLOCK * blocks))
    key = torch.from_numpy(keys.view(np.int64)).to(device)
    scale = torch.from_numpy(deviations.astype(np.float32)).to(device)[:, None]
    for start in range(0, len(rows), together):
        some = rows[start : start + together]
        # Rows are nearly always one after the other; a slice adds in place.
        whole = slice(some[0], some[-1] + 1) if some[-1] + 1 - some[0] == len(some) else torch.from_numpy(some)
        for first in range(0, blocks, AT_ONCE // BLOCK):
            last = min(first + AT_ONCE // BLOCK, blocks)
            columns = slice(first * 4 * BLOCK, min(last * 4 * BLOCK, size))
            made = normals(key[whole], first, last)[:, : columns.stop - columns.start]
            sums[whole, columns] += made * scale[whole]


def normals(keys: Tensor, first: int, last: int) -> Tensor:
    """Normals of blocks ``first`` to ``last``, of 4 `BLOCK` each, for ``keys`` [rows, 2] of int64; [rows, numbers]."""
    counters = torch.arange(first * BLOCK, last * BLOCK, device=keys.device)
    words = _philox(counters, keys)
    pairs = [_box_muller(words[half], words[half + 1]) for half in (0, 2)]
    made = torch.stack([torch.unflatten(one, 1, (-1, BLOCK)) for pair in pairs for one in pair], dim=2)
    return made.flatten(1)


def _philox(counters: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words below 2^32 for each of ``counters`` [n] and ``keys`` [rows, 2]: key and label; each [rows, n]."""
    key, label = keys[:, :1], keys[:, 1:]
    c0, c1 = (counters & _LOW).expand(len(keys), -1), (counters >> 32).expand(len(keys), -1)
    c2, c3 = (label & _LOW).expand_as(c0), ((label >> 32) & _LOW).expand_as(c0)
    k0, k1 = key & _LOW, (key >> 32) & _LOW
    for _ in range(10):
        p0, p1 = c0 * _FACTORS[0], c2 * _FACTORS[1]  # below 2^64: as signed numbers they wrap around
        c0, c1, c2, c3 = ((p1 >> 32) & _LOW) ^ c1 ^ k0, p1 & _LOW, ((p0 >> 32) & _LOW) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _STEPS[0]) & _LOW, (k1 + _STEPS[1]) & _LOW
    return c0, c1, c2, c3


def _box_muller(lengths: Tensor, angles: Tensor) -> tuple[Tensor, Tensor]:
    radius = (-2.0 * _logarithm(lengths)).clamp(min=0.0).sqrt()
    x, y = _direction(angles)
    return radius * x, radius * y


def _logarithm(word: Tensor) -> Tensor:
    """ln((word + 1/2) / 2^32); see `gossamer.normals`."""
    bits = (word.to(torch.float32) + 0.5).view(torch.int32)
    m = ((bits & 0x7FFFFF) | 0x3F800000).view(torch.float32)
    e = ((bits >> 23) - (127 + 32)).to(torch.float32)
    near, large = word >= _NEAR, m > _ROOT2
    t = torch.where(near, ((_LOW - word).to(torch.float32) + 0.5) * -_UNIT, torch.where(large, m * 0.5, m) - 1.0)
    e = torch.where(near, 0.0, e + large)
    z = t * t
    p = torch.full_like(t, _LOGARITHM[0])
    for coefficient in _LOGARITHM[1:]:
        p = p * t + coefficient
    return t * z * p - 0.5 * z + t + e * _LN2


def _direction(word: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of 2 pi word / 2^32; see `gossamer.normals`."""
    quarters = ((word + (1 << 29)) & _LOW) >> 30
    turned = word - (quarters << 30)
    a = torch.where(turned >= 1 << 31, turned - (1 << 32), turned).to(torch.float32) * _ANGLE
    z = a * a
    sine = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * a + a
    cosine = (2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2
    cosine = cosine * z * z - 0.5 * z + 1.0
    odd = (quarters & 1) != 0
    x, y = torch.where(odd, sine, cosine), torch.where(odd, cosine, sine)
    x = torch.where(((quarters + 1) & 2) != 0, -x, x)
    return x, torch.where((quarters & 2) != 0, -y, y)


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
        Precision of products: ``bfloat16`` for forward and backward passes of networks, ``tf32`` for all products of
        float32 (graphics cards only), None for float32 throughout. Norms, clipping, sums and noise are in float32 in
        any case.
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

    def upload(self, values: npt.NDArray[np.generic]) -> Tensor:
        """A copy on the device; the copying goes on while this thread does."""
        here = torch.empty(
            values.shape, dtype=torch.from_numpy(np.empty(0, values.dtype)).dtype, pin_memory=self.name != "cpu"
        )
        here.numpy()[...] = values
        return here.to(self.place, non_blocking=True)

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
            Number of examples computed at once, for the line that says that there is no room for them.

        Raises
        ------
        ModelError
            If the device's memory does not suffice.
        """
        try:
            with one_torch_thread(), _deterministic(), _products(tf32=self.precision == "tf32"):
                yield
        except torch.OutOfMemoryError:
            raise ModelError(self.full(examples)) from None

    def passing(self) -> AbstractContextManager[Any]:
        """Forward and backward passes of a network, in the precision that is wanted of them."""
        short = self.precision == "bfloat16"
        return torch.autocast(self.name, dtype=torch.bfloat16, cache_enabled=False) if short else nullcontext()

    def full(self, examples: int | None) -> str:
        """Say that memory does not suffice."""
        what = "the examples and a call's models" if examples is None else f"{counted(examples, 'example')} at once"
        return (
            f"compute.device: there is no room on {self.title} for {what}; lower compute.width or compute.memory_mib, "
            f"which is {self.memory // 2**20}, or choose a smaller model, or device: cpu"
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
