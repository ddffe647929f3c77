"""Settings of `fedavg`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, PositiveFloat

from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.privacy.sampling import Poisson
from gossamer.sides.plan import WHOLE


class Settings(ClientSettings):
    """Settings of `fedavg`, beside those of clients.

    Attributes
    ----------
    rounds : int
        T.
    clients_per_round : int, optional
        m, how many clients are in a round, on average where they are drawn in secret; all by default.
    cohorts : {"public", "secret"}
        How the clients of a round are drawn. ``public``: m of them, by coins that everybody knows, so that being drawn
        hides nobody. ``secret``: each with probability m/nodes, by coins of a trusted server, which makes each round
        reveal less of everybody.
    timeout : float, optional
        Seconds after which a round goes on without those who have not answered; without it all are waited for.
    """

    name: Literal["fedavg"] = "fedavg"
    rounds: int = Field(default=20, ge=1, le=1_000_000)
    clients_per_round: int | None = Field(default=None, ge=1, le=1_000_000)
    cohorts: Literal["public", "secret"] = "public"
    timeout: PositiveFloat | None = None

    @property
    def drawn(self) -> int:
        """m."""
        return self.nodes if self.clients_per_round is None else self.clients_per_round

    @property
    def secret(self) -> bool:
        """Whether the server draws the clients of a round in secret."""
        return self.cohorts == "secret" and self.drawn < self.nodes

    @property
    def unseen(self) -> str:
        return "cohorts: secret" if self.secret else ""

    @property
    def sampling(self) -> Poisson:
        """Sampling of the clients of a round, for accounting."""
        return Poisson(self.drawn / self.nodes) if self.secret else WHOLE

    def wrong(self) -> Iterator[str]:
        yield from super().wrong()
        if self.drawn > self.nodes:
            yield (
                f"algorithm.clients_per_round: expected at most the {self.nodes} clients that there are, found "
                f"{self.drawn}"
            )
        if self.cohorts == "secret" and not self.curated:
            yield (
                "algorithm.cohorts: secret coins are those of a server that is trusted, and clients that add their own "
                "noise are seen to send it; take noise_by: server, or cohorts: public"
            )
        if self.updates_per_node is not None:
            yield "algorithm.updates_per_node: fedavg ends after its rounds; leave it out, and say rounds"
