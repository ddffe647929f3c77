"""The algorithms. A new one is a package of its own and its lines here: in the table, and in the union of settings.

Others come by entry points (`registered`), without a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

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
from gossamer.algorithms.synchronous_gossip import box as synchronous_gossip
from gossamer.errors import SpecError, did_you_mean
from gossamer.section import MODULES as MODULES
from gossamer.section import Kind, Registered
from gossamer.section import allowing as allowing


class Table(dict[str, Algorithm[Any]]):
    """Gossamer's own algorithms, by name; one that it lacks is looked for among those that are registered."""

    def __missing__(self, name: str) -> Algorithm[Any]:
        if (found := KIND.find(name)) is None:
            raise SpecError(f"unknown algorithm {name!r}{did_you_mean(name, KIND.all_names())}")
        algorithm: Algorithm[Any] = KIND.load(found)
        return algorithm


OWN: Mapping[str, Algorithm[Any]] = {
    "gossip": gossip.ALGORITHM,
    "allreduce": allreduce.ALGORITHM,
    "mapa": mapa.ALGORITHM,
    "audp": edge_cloud.ALGORITHM,
    "asgd": edge_cloud.ALGORITHM,
    "csgd": edge_cloud.ALGORITHM,
    "increasing": increasing.ALGORITHM,
    "graph_federated": graph_federated.ALGORITHM,
    "fedasync": fedasync.ALGORITHM,
    "fedavg": fedavg.ALGORITHM,
    "local": baselines.ALGORITHM,
    "central": baselines.ALGORITHM,
    "fedbuff": fedbuff.ALGORITHM,
    "d_psgd": synchronous_gossip.ALGORITHM,
    "muffliato": synchronous_gossip.ALGORITHM,
}
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


class _AlgorithmKind(Kind):
    expected = "an Algorithm"

    def settings(self, made: Any) -> Any:
        return made.Settings if isinstance(made, Algorithm) else None


KIND = _AlgorithmKind(
    "algorithm",
    "an",
    "gossamer.algorithms",
    tuple(dict.fromkeys(algorithm.Settings for algorithm in OWN.values())),
)


def registered_as(name: str) -> Registered | None:
    """The registered algorithm of this name, not imported; None if it is one of Gossamer's own, or of nobody's.

    Raises
    ------
    SpecError
        If several register it.
    """
    return None if name in ALGORITHMS else KIND.find(name)


AlgorithmSettings = Annotated[
    Gossip
    | Allreduce
    | Mapa
    | EdgeCloud
    | Increasing
    | GraphFederated
    | FedAsync
    | FedAvg
    | FedBuff
    | Baseline
    | SynchronousGossip,
    Field(discriminator="name"),
    WrapValidator(KIND.known),
    SerializeAsAny(),
]
"""The settings of any algorithm, told apart by ``name``; the union is of Gossamer's own."""
ALONE, TOGETHER = "local", "central"
"""Baselines that share nothing: each node by itself, and all examples at one."""
DEFAULT = Gossip()
"""Of a spec that names no algorithm."""
