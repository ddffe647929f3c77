"""Settings of `increasing`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from gossamer.algorithms.increasing.delay import Delay, RoundsAhead
from gossamer.algorithms.increasing.size_schedules import ConstantSizes, Sizes
from gossamer.algorithms.increasing.sizes import Counts, Weights
from gossamer.algorithms.increasing.steps import ConstantRate, RoundRate
from gossamer.privacy.tasks import UPDATES
from gossamer.section import Composite


class Settings(Composite):
    """Settings of `increasing`.

    Attributes
    ----------
    nodes : int
        n, the number of clients; server and aggregators come on top.
    sizes : int or schedule
        s_i, gradients in round i: ``constant``, ``power``, ``log`` and ``theory`` of all clients together, ``privacy``
        of each client.
    weights : {"equal", "shards"} or list of float
        p_c, the share of each client in s_i; a list sums to 1.
    counts : {"rounded", "coins"}
        Whether s_ic is p_c s_i rounded, or drawn by coin flips.
    learning_rate : float or schedule
        eta, of one gradient.
    delay : rule
        When a client waits: ``rounds`` holds it back in rounds beyond k + d, ``tau`` by the age of its model.
    round_update : {"batch", "clipped_sum", "sequential"}, optional
        What a round's update is, and so what is proved. By default ``batch`` with noise, ``sequential`` without.
    receive : {"printed"}, optional
        What a client's model becomes when a newer one comes. By default that, less all of its own updates that it
        lacks; ``printed`` as the paper's ISRReceive has it, less those of the round at work alone.
    parts : int
        D: in each round a client computes and sends one of D parts of the model, scaled by D.
    aggregators : list of int
        Between clients and server: how many there are on each level, from the server down.
    patience : float
        Seconds after which clients that others wait for are asked whether they are alive, then twice as many, and so on
        until one sends something.
    rounds : int, optional
        T, rounds of each client.
    gradients : int, optional
        K, of all clients together: the run has the least number of rounds with so many.
    """

    name: Literal["increasing"] = "increasing"
    nodes: int = Field(default=5, ge=1, le=1_000_000)
    sizes: Sizes = ConstantSizes(size=100)
    weights: Weights = "equal"
    counts: Counts = "rounded"
    learning_rate: RoundRate = ConstantRate(initial=0.01)
    delay: Delay = RoundsAhead()
    round_update: Literal["batch", "clipped_sum", "sequential"] | None = None
    receive: Literal["printed"] | None = None
    parts: int = Field(default=1, ge=1)
    aggregators: tuple[PositiveInt, ...] = ()
    patience: float = Field(default=60.0, ge=1e-3)
    rounds: int | None = Field(default=None, ge=1, le=10_000_000)
    gradients: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _aggregators_have_children(self) -> Self:
        levels = [*self.aggregators, self.nodes]
        if levels != sorted(levels):
            raise ValueError(
                f"aggregators: every level has at least as many as the one above, and at most as many as there are "
                f"nodes ({self.nodes}); found {list(self.aggregators)}"
            )
        return self

    @property
    def updates_per_node(self) -> int | None:
        """Rounds of each client, where the settings say it."""
        return self.rounds

    @property
    def proved(self) -> bool:
        """Whether a guarantee is proved for what a round's update is."""
        return self.round_update is None or UPDATES[self.round_update]

    @property
    def sampling(self) -> str | None:
        """Sampling of a round's examples, where the algorithm says it: nothing is proved for drawing with
        replacement."""
        return "with_replacement" if self.round_update == "sequential" else None

    @property
    def clipped_whole(self) -> bool:
        """Whether a round's sum is clipped as a whole."""
        return self.round_update == "clipped_sum"

    @property
    def sensitivity(self) -> float:
        """Most that an example that comes or goes moves a round's sum, in clips."""
        return 2.0 if self.clipped_whole else 1.0

    def decided(self, private: bool) -> Self:
        """Fill in the default that depends on whether there is noise."""
        if self.round_update is not None:
            return self
        return self.model_copy(update={"round_update": "batch" if private else "sequential"})
