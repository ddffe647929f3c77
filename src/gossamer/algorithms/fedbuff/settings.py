"""Settings of `fedbuff`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from gossamer.algorithms.clients.settings import ClientSettings


class Settings(ClientSettings):
    """Settings of `fedbuff`, beside those of clients.

    Attributes
    ----------
    buffer : int
        K, updates that the server waits for before it takes a step; of K clients where the server adds the noise.
    staleness_exponent : float
        a >= 0: an update that is tau steps of the server old counts (1 + tau)^-a.
    """

    name: Literal["fedbuff"] = "fedbuff"
    buffer: int = Field(default=5, ge=1, le=1_000_000)
    staleness_exponent: float = Field(default=0.5, ge=0, le=10)

    def weight(self, stale: int) -> float:
        """s, at most 1, of an update that is so many steps old."""
        return float((1 + stale) ** -self.staleness_exponent)

    def wrong(self) -> Iterator[str]:
        yield from super().wrong()
        if self.buffer > self.nodes:
            yield f"algorithm.buffer: expected at most the {self.nodes} clients that there are, found {self.buffer}"
        if self.masking is not None:
            yield (
                "algorithm.masking: masks are bound to one model, and a buffer of fedbuff has updates of several; "
                "leave it out, or take fedavg"
            )
