"""Settings of `fedbuff`, and what follows from them alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, PositiveFloat

from gossamer.algorithms.context import Batches
from gossamer.algorithms.optimizer import Optimizer
from gossamer.privacy.unit_tasks import LocalQuery
from gossamer.section import Section


class Settings(Section):
    """Settings of `fedbuff`.

    Attributes
    ----------
    nodes : int
        Clients; the server is one more.
    buffer : int
        K, updates that the server waits for before it takes a step.
    learning_rate : float
        eta_g, of the server, for the mean update in its buffer.
    server_optimizer : str or mapping, optional
        What the server makes of the mean update in its buffer; ``sgd`` takes it as it is.
    staleness_exponent : float
        a >= 0: an update that is tau steps of the server old counts (1 + tau)^-a.
    local_steps : int
        Q, mini-batch steps of a client from the model that it fetched.
    local_learning_rate : float
        eta_l, of each of them.
    batch_size : int
        Examples of a local step, drawn with replacement.
    updates_per_node : int, optional
        Quota of updates of each client.
    """

    name: Literal["fedbuff"] = "fedbuff"
    nodes: int = Field(default=10, ge=1, le=1_000_000)
    buffer: int = Field(default=5, ge=1, le=1_000_000)
    learning_rate: float = Field(default=1.0, gt=0, le=1e6)
    server_optimizer: Optimizer = None
    staleness_exponent: float = Field(default=0.5, ge=0, le=10)
    local_steps: int = Field(default=5, ge=1, le=1_000_000)
    local_learning_rate: PositiveFloat = 0.1
    batch_size: int = Field(default=16, ge=1, le=1_000_000)
    updates_per_node: int | None = Field(default=None, ge=1, le=10_000_000)

    @property
    def query(self) -> LocalQuery:
        """The question for every update. Steps are not clipped one by one: the update is, as a whole."""
        return LocalQuery(self.local_steps, self.batch_size, self.local_steps * self.local_learning_rate)


@dataclass(frozen=True)
class LocalRounds(Batches):
    """The workload: all local steps of an update are one batch, which may be larger than the shard."""

    def check(self, updates: int) -> None:
        """Drawn with replacement, examples never run out."""


def workload(settings: Settings, shard_sizes: Mapping[str, int], seed: int) -> LocalRounds:
    """Examples of each client's updates."""
    return LocalRounds(settings.local_steps * settings.batch_size, shard_sizes, settings.updates_per_node)
