"""Settings of `fedasync`, and the weights of stale models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.section import Section, bare


class Constant(Section):
    """s = 1, however old a model is."""

    name: Literal["constant"] = "constant"

    def of(self, stale: int) -> float:
        return 1.0


class Hinge(Section):
    """s = 1 up to b steps of the server, and 1/(a (tau - b) + 1) for a model of tau > b.

    Attributes
    ----------
    a : float
        Steepness; 0 is `constant`.
    b : int
        Steps that cost a model nothing.
    """

    name: Literal["hinge"] = "hinge"
    a: float = Field(default=10.0, ge=0, le=1e6)
    b: int = Field(default=4, ge=0, le=10_000_000)

    def of(self, stale: int) -> float:
        return 1 / (self.a * max(stale - self.b, 0) + 1)


class Polynomial(Section):
    """s = (1 + tau)^-a for a model that is tau steps of the server old.

    Attributes
    ----------
    a : float
        The exponent; 0 is `constant`.
    """

    name: Literal["polynomial"] = "polynomial"
    a: float = Field(default=0.5, ge=0, le=10)

    def of(self, stale: int) -> float:
        return float((1 + stale) ** -self.a)


Weight = Annotated[Constant | Hinge | Polynomial, Field(discriminator="name"), bare("name")]
"""s of the paper's section 5.2, a name or a mapping with a ``name``: in (0, 1], and 1 for a model that is not stale."""


class Settings(ClientSettings):
    """Settings of `fedasync`, beside those of clients.

    Attributes
    ----------
    noise_by : {"client", "server"}
        Always ``client``: a server that takes every model alone has no sum to add noise to.
    trusted : {"server"}, optional
        Nobody is.
    masking : str or mapping, optional
        None: there is no sum to hide a model in.
    learning_rate : float
        Always 1; ``mixing`` is in its place.
    server_optimizer : str or mapping, optional
        None: a server that mixes models makes no steps along updates.
    mixing : float
        alpha: how far the server goes from its model to one that is not stale.
    staleness_weight : str or mapping
        s: ``mixing`` is multiplied with it, for a model that was trained from one tau steps of the server old.
    """

    name: Literal["fedasync"] = "fedasync"
    mixing: float = Field(default=0.6, gt=0, le=1)
    staleness_weight: Weight = Polynomial()

    @property
    def or_trust(self) -> str:
        return ""

    def wrong(self) -> Iterator[str]:
        if self.curated:
            yield (
                "algorithm.noise_by: fedasync mixes each client's model in alone, so there is no sum for a server to "
                "add noise to; take noise_by: client, or fedavg"
            )
        else:
            yield from super().wrong()
        if self.masking is not None:
            yield (
                "algorithm.masking: fedasync mixes each client's model in alone, so there is no sum to hide it in; "
                "leave it out, or take fedavg"
            )
        if self.learning_rate != 1:
            yield f"algorithm.learning_rate: fedasync has mixing in its place, found {self.learning_rate}; leave it out"
        if self.server_optimizer is not None:
            yield (
                "algorithm.server_optimizer: the server of fedasync mixes models, and makes no steps along updates; "
                "leave it out, or take fedbuff"
            )
