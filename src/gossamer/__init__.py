"""Asynchronous, decentralised, differentially private federated learning.

>>> import gossamer as gs
>>> result = gs.run(gs.Experiment(dataset="digits", budget=gs.Budget(epsilon=5, delta=1e-4)))  # doctest: +SKIP
>>> print(result.guarantee)  # doctest: +SKIP
"""

from gossamer.algorithms.allreduce import Settings as Allreduce
from gossamer.algorithms.edge_cloud import Settings as EdgeCloud
from gossamer.algorithms.gossip import Settings as Gossip
from gossamer.algorithms.graph_federated import Settings as GraphFederated
from gossamer.algorithms.increasing import Settings as Increasing
from gossamer.algorithms.mapa import Settings as Mapa
from gossamer.errors import (
    AccountingError,
    BudgetSpent,
    BudgetUnreachable,
    CallerError,
    DataError,
    GossamerError,
    MalformedMessage,
    ModelError,
    PeerError,
    RunWarning,
    SpecError,
    TopologyError,
)
from gossamer.experiment.noise_secret import NoiseSecret
from gossamer.experiment.reading import read_spec
from gossamer.experiment.repeating import repeat_run
from gossamer.experiment.replaying import replay_run
from gossamer.experiment.running import Result, run
from gossamer.experiment.spec import (
    Budget,
    ComputeSettings,
    EvaluationSettings,
    Experiment,
    ObjectiveSettings,
    PrivacySettings,
    StopSettings,
)
from gossamer.privacy.clipping import FixedClip, NoClip, QuantileClip, StageClip
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.version import __version__

__all__ = [
    "AccountingError",
    "Allreduce",
    "Budget",
    "BudgetSpent",
    "BudgetUnreachable",
    "CallerError",
    "ComputeSettings",
    "DataError",
    "EdgeCloud",
    "EvaluationSettings",
    "Experiment",
    "FixedClip",
    "GossamerError",
    "Gossip",
    "GraphFederated",
    "Guarantee",
    "Increasing",
    "MalformedMessage",
    "Mapa",
    "ModelError",
    "NeighboringRelation",
    "NoClip",
    "NoiseSecret",
    "ObjectiveSettings",
    "PeerError",
    "PrivacySettings",
    "QuantileClip",
    "Result",
    "RunWarning",
    "SpecError",
    "StageClip",
    "StopSettings",
    "TopologyError",
    "__version__",
    "read_spec",
    "repeat_run",
    "replay_run",
    "run",
]
