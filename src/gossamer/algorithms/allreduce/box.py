"""SYNC: synchronous decentralised SGD with differential privacy, the baseline of A(DP)2SGD.

In each round every member k

1. samples a batch and computes g~ = sum of clipped gradients + noise at w          (at the data side)
2. w_k = w - eta g~                       (or the move that `Settings.optimizer` makes of g~)
3. takes part in a ring all-reduce: w = mean of all w_k, in 2 (K - 1) messages a node.

Everybody waits for the slowest, and at most for ``timeout``: a member that is silent for longer is left out of the
round, and comes back when it is ready (see `allreduce.member`). A round that is tried again averages the same w_k: no
gradient is computed twice, so nothing is released twice.

With ``noise: pairwise`` every member shares draws with every other (`gossamer.algorithms.paired_noise`), and all of
them cancel in the mean of line 3, the only model that there is.

References
----------
Xu, Zhang and Wang, "A(DP)2SGD", Appendix A (SYNC).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, PositiveFloat

from gossamer.algorithms.allreduce.member import AllreduceNode
from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Algorithm, Clips, few
from gossamer.algorithms.nodes import model_of
from gossamer.algorithms.paired_noise import PairedSettings, check, paired_plan
from gossamer.algorithms.plan import Terms
from gossamer.protocol.node import Node
from gossamer.vectors import Model


class Settings(PairedSettings):
    """Settings of `allreduce`.

    Attributes
    ----------
    timeout : float, optional
        Seconds without the chunk that is due, after which the silent are left out. None waits, except for peers
        that are known to be down.
    patience : float
        Seconds without the chunk that is due, if there is no timeout, after which the member before is asked whether it
        is there, then twice as many, and so on.
    updates_per_node : int, optional
        Rounds.
    """

    name: Literal["allreduce"] = "allreduce"
    timeout: PositiveFloat | None = None
    patience: float = Field(default=60.0, ge=1e-3)


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The members, by name."""
    return {name: AllreduceNode(name, context, settings) for name in context.names}


def output(nodes: Mapping[str, Node]) -> Model:
    """The outcome of the newest round."""
    return model_of(max(nodes.values(), key=lambda node: int(node.state.round)))


# Nothing is claimed of the paper's synchronous baseline. That a round's outcome is the mean of its members' vectors is
# tested against the mean itself.
ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    output=output,
    terms=lambda settings: Terms(paired=settings.noise == "pairwise"),
    check=check,
    plan=paired_plan,
    clips=Clips(("fixed", "quantile")),
    small_runs=lambda settings: few((3, 3), (4, 2), (6, 1), bounded=("timeout",), batch_size=4),
)
