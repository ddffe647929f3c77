"""Ways in which gradients are computed, as runs tell and record them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_KEPT = {"compiled": "kept for next time", "in memory": "not kept"}
"""What becomes of kernels that were just compiled, by where they are from."""


@dataclass(frozen=True)
class Computing:
    """A way to gradients; it changes speed, and results in the last digits.

    Attributes
    ----------
    strategy : str
        ``linear``, or that of a network.
    unchained : str
        Why a network has no kernels, where they would have been taken; empty where nobody needs to know.
    kernels : str or None
        Where they are from; see `chains.compiled.Made`.
    seconds : float
        Wall time that it took to have kernels.
    products : bool
        Whether kernels leave wide linear layers to BLAS, by a table of sizes and a trial.
    device : str or None
        Where sums of gradients are computed, if a device was asked for.
    """

    strategy: str
    unchained: str = ""
    kernels: str | None = None
    seconds: float = 0.0
    products: bool = False
    device: str | None = None

    @property
    def remark(self) -> str | None:
        """A line for whoever waits for a run."""
        if self.unchained:
            return f"network: {self.unchained}, so gradients are computed by strategy '{self.strategy}'"
        kept = _KEPT.get(self.kernels or "")
        return None if kept is None else f"network: compiling its kernels took {self.seconds:.1f} s ({kept})"

    def figures(self) -> dict[str, Any]:
        """Entries of ``timing.json``."""
        return {
            "strategy": self.strategy,
            "kernels": self.kernels,
            "kernel_seconds": round(self.seconds, 3),
            "wide_layers_by_blas": self.products,
            **({} if self.device is None else {"device": self.device}),
        }
