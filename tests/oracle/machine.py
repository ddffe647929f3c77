"""Facts of a machine that the last bit of a floating-point number depends on.

Bytes are promised on one machine with one set of packages, and not over machines. So hashes are compared where these
facts are what they were when the hashes were recorded, and elsewhere a test says which of them differs.
"""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import version

from threadpoolctl import threadpool_info

PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "torch", "dp-accounting", "pydantic", "pyyaml", "safetensors")


@cache
def facts() -> dict[str, str]:
    """Those of this machine."""
    from llvmlite import binding
    from torch.backends import cpu

    features = binding.get_host_cpu_features().flatten()
    blas = [info for info in threadpool_info() if info["user_api"] == "blas"]
    return {
        **{package: version(package) for package in PACKAGES},
        "python": platform.python_implementation() + " " + ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
        "C library": " ".join(platform.libc_ver()),
        "BLAS": ", ".join(
            sorted({f"{info['internal_api']} {info['version']} {info['architecture']}" for info in blas})
        ),
        "processor, to compilers": binding.get_host_cpu_name(),
        "its features": hashlib.sha256(features.encode()).hexdigest()[:16],
        "vectors of numpy": ", ".join(_vectors()),
        "vectors of torch": cpu.get_cpu_capability(),
    }


def differing(recorded: dict[str, str]) -> str:
    """Which facts of this machine are not those ``recorded``, in a line; empty if all are."""
    here = facts()
    other = [name for name in recorded.keys() | here.keys() if recorded.get(name) != here.get(name)]
    return "; ".join(f"{name}: {here.get(name)!r}, recorded with {recorded.get(name)!r}" for name in sorted(other))


def _vectors() -> list[str]:
    from numpy._core._multiarray_umath import __cpu_features__

    return sorted(name for name, there in __cpu_features__.items() if there)
