"""The algorithms. A new one is a package of its own, and a word in the row of boxes here.

Others come by entry points (`registered`), without a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, SerializeAsAny, WrapValidator

from gossamer.algorithms.allreduce import box as allreduce
from gossamer.algorithms.baselines import box as baselines
from gossamer.algorithms.edge_cloud import box as edge_cloud
from gossamer.algorithms.fedasync import box as fedasync
from gossamer.algorithms.fedavg import box as fedavg
from gossamer.algorithms.fedbuff import box as fedbuff
from gossamer.algorithms.gossip import box as gossip
from gossamer.algorithms.graph_federated import box as graph_federated
from gossamer.algorithms.increasing import box as increasing
from gossamer.algorithms.interface import Algorithm
from gossamer.algorithms.mapa import box as mapa
from gossamer.algorithms.push_sum import box as push_sum
from gossamer.algorithms.synchronous_gossip import box as synchronous_gossip
from gossamer.errors import SpecError, did_you_mean
from gossamer.section import Kind, Registered


class Table(dict[str, Algorithm[Any]]):
    """Gossamer's own algorithms, by name; one that it lacks is looked for among those that are registered."""

    def __missing__(self, name: str) -> Algorithm[Any]:
        if (found := KIND.find(name)) is None:
            raise SpecError(f"unknown algorithm {name!r}{did_you_mean(name, KIND.all_names())}")
        algorithm: Algorithm[Any] = KIND.load(found)
        return algorithm


_BOXES = (
    *(gossip, allreduce, mapa, edge_cloud, increasing, graph_federated),
    *(fedasync, fedavg, baselines, fedbuff, synchronous_gossip, push_sum),
)
OWN: Mapping[str, Algorithm[Any]] = {name: box.ALGORITHM for box in _BOXES for name in box.ALGORITHM.names}
ALGORITHMS = Table(OWN)

Gossip = gossip.Settings
Allreduce = allreduce.Settings
Mapa = mapa.Settings
EdgeCloud = edge_cloud.Settings
Increasing = increasing.Settings
GraphFederated = graph_federated.Settings
FedAsync = fedasync.Settings
FedAvg = fedavg.Settings
Baseline = baselines.Settings
FedBuff = fedbuff.Settings
SynchronousGossip = synchronous_gossip.Settings
PushSum = push_sum.Settings


class _AlgorithmKind(Kind):
    expected = "an Algorithm"

    def settings(self, made: Any) -> Any:
        return made.Settings if isinstance(made, Algorithm) else None


KIND = _AlgorithmKind("algorithm", "gossamer.algorithms", tuple(box.Settings for box in _BOXES))


def registered_as(name: str) -> Registered | None:
    """The registered algorithm of this name, not imported; None if it is one of Gossamer's own, or of nobody's.

    Raises
    ------
    SpecError
        If several register it.
    """
    return None if name in ALGORITHMS else KIND.find(name)


if TYPE_CHECKING:
    AlgorithmSettings = Any
else:
    AlgorithmSettings = Annotated[
        reduce(or_, (box.Settings for box in _BOXES)),
        Field(discriminator="name"),
        WrapValidator(KIND.known),
        SerializeAsAny(),
    ]
"""The settings of any algorithm, told apart by ``name``; the union is of Gossamer's own."""
ALONE, TOGETHER = "local", "central"
"""Baselines that share nothing: each node by itself, and all examples at one."""
DEFAULT = Gossip()
"""Of a spec that names no algorithm."""
