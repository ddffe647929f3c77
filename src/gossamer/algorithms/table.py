"""The algorithms. A new one is a package of its own and its lines here: in the table, and in the union of settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from gossamer.algorithms.allreduce import box as allreduce
from gossamer.algorithms.edge_cloud import box as edge_cloud
from gossamer.algorithms.fedbuff import box as fedbuff
from gossamer.algorithms.gossip import box as gossip
from gossamer.algorithms.graph_federated import box as graph_federated
from gossamer.algorithms.increasing import box as increasing
from gossamer.algorithms.interface import Algorithm
from gossamer.algorithms.mapa import box as mapa

ALGORITHMS: Mapping[str, Algorithm[Any]] = {
    "gossip": gossip.ALGORITHM,
    "allreduce": allreduce.ALGORITHM,
    "mapa": mapa.ALGORITHM,
    "audp": edge_cloud.ALGORITHM,
    "asgd": edge_cloud.ALGORITHM,
    "csgd": edge_cloud.ALGORITHM,
    "increasing": increasing.ALGORITHM,
    "graph_federated": graph_federated.ALGORITHM,
    "fedbuff": fedbuff.ALGORITHM,
}

Gossip = gossip.Settings
Allreduce = allreduce.Settings
Mapa = mapa.Settings
EdgeCloud = edge_cloud.Settings
Increasing = increasing.Settings
GraphFederated = graph_federated.Settings
FedBuff = fedbuff.Settings

AlgorithmSettings = Annotated[
    Gossip | Allreduce | Mapa | EdgeCloud | Increasing | GraphFederated | FedBuff, Field(discriminator="name")
]
"""The settings of any algorithm, told apart by ``name``."""
DEFAULT = Gossip()
"""Of a spec that names no algorithm."""
