"""Settings of `fedbuff`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat

from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.section import NEWER

STALENESS = 0.5


class Settings(ClientSettings):
    """Settings of `fedbuff`, beside those of clients.

    Attributes
    ----------
    buffer : int
        K, updates that the server waits for before it takes a step; of K clients where the server adds the noise,
        or clients mask.
    staleness_exponent : float, optional
        a >= 0: an update that is tau steps of the server old counts (1 + tau)^-a. With ``masking`` none is old. By
        default 0.5, as in the paper, and 0 where the server adds noise, which weights would not make smaller.
    timeout : float, optional
        With ``masking``: seconds after which each of the five steps of a sum goes on without those who have not
        answered; without it all are waited for.
    """

    name: Literal["fedbuff"] = "fedbuff"
    buffer: int = Field(default=5, ge=1, le=1_000_000)
    staleness_exponent: float | None = Field(default=None, ge=0, le=10)
    timeout: Annotated[PositiveFloat | None, NEWER] = None

    def weight(self, stale: int) -> float:
        """s, at most 1, of an update that is so many steps old."""
        exponent = STALENESS if self.staleness_exponent is None else self.staleness_exponent
        return float((1 + stale) ** -exponent)

    def decided(self, private: bool) -> Self:
        """Fill in the default that depends on whether there is noise."""
        if self.staleness_exponent is not None:
            return self
        return self.model_copy(update={"staleness_exponent": 0.0 if self.curated and private else STALENESS})

    def wrong(self) -> Iterator[str]:
        yield from super().wrong()
        if self.buffer > self.nodes:
            yield f"algorithm.buffer: expected at most the {self.nodes} clients that there are, found {self.buffer}"
        if self.masking is None:
            if self.timeout is not None:
                yield "algorithm.timeout: only clients that mask are waited for; leave it out, or say masking: secure"
            return
        yield from self.masking.wrong(self.buffer)
        if self.staleness_exponent not in (None, STALENESS):
            yield (
                "algorithm.staleness_exponent: updates that are masked together are all made at the newest model, so "
                "none is old; leave it out"
            )
