"""Asynchronous, decentralised, differentially private federated learning.

>>> import gossamer as gs
>>> result = gs.run(gs.Experiment(dataset="digits", budget=gs.Budget(epsilon=5, delta=1e-4)))  # doctest: +SKIP
>>> print(result.guarantee)  # doctest: +SKIP

A name is imported when it is first asked for, so that ``import gossamer`` and the command's ``--help`` are quick.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gossamer.protocol.registries import known_by
from gossamer.version import __version__

if TYPE_CHECKING:
    from gossamer.algorithms.table import (
        Allreduce,
        Baseline,
        EdgeCloud,
        FedAsync,
        FedAvg,
        FedBuff,
        Gossip,
        GraphFederated,
        Increasing,
        Mapa,
        SynchronousGossip,
    )
    from gossamer.arrays import FloatArray
    from gossamer.data.datasets import declared_form, load_dataset
    from gossamer.data.examples import Split
    from gossamer.data.memory import Data
    from gossamer.data.partition import ByPerson, Dirichlet, Iid, Linear, Natural, Pathological, Shard, Sizes, partition
    from gossamer.data.settings import DatasetSettings, SyntheticSettings
    from gossamer.deployment.party.data import load_party_split
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
    from gossamer.experiment.planning import plan_run
    from gossamer.experiment.prepare import prepare
    from gossamer.experiment.prepared import Prepared
    from gossamer.experiment.pretrained import PretrainedSettings
    from gossamer.experiment.reading import override, parse_spec, read_spec
    from gossamer.experiment.repeating import repeat_run
    from gossamer.experiment.replaying import replay_run
    from gossamer.experiment.result import Result
    from gossamer.experiment.resuming import resume_run
    from gossamer.experiment.running import run
    from gossamer.experiment.sections import (
        ComputeSettings,
        DeploymentSettings,
        EvaluationSettings,
        ObjectiveSettings,
        PersonalisationSettings,
    )
    from gossamer.experiment.spec import Budget, Experiment, PrivacySettings, StopSettings
    from gossamer.objectives.glm import LinearModel
    from gossamer.objectives.loss_settings import OwnLoss
    from gossamer.objectives.torch_module import TorchModule
    from gossamer.parameters import unpack
    from gossamer.privacy.clipping import FixedClip, NoClip, QuantileClip, StageClip
    from gossamer.privacy.guarantees import Guarantee
    from gossamer.privacy.mechanisms import NeighboringRelation
    from gossamer.protocol.events import Completed
    from gossamer.protocol.trace import read_steps, replay
    from gossamer.runtimes.links import FaultSettings, LinkSettings
    from gossamer.runtimes.ray_shards import RayShards
    from gossamer.runtimes.speeds import SpeedSettings
    from gossamer.studies.price import Price, price
    from gossamer.studies.sweep import Sweep, sweep
    from gossamer.topology import (
        OwnTopology,
        bipartite_split,
        build_graph,
        metropolis,
        pairwise_expectation,
        rho,
        spectral_gap,
    )
    from gossamer.trained.model import Model, Predictions, load_model

__all__ = [
    "AccountingError",
    "Allreduce",
    "Baseline",
    "Budget",
    "BudgetSpent",
    "BudgetUnreachable",
    "ByPerson",
    "CallerError",
    "Completed",
    "ComputeSettings",
    "Data",
    "DataError",
    "DatasetSettings",
    "DeploymentSettings",
    "Dirichlet",
    "EdgeCloud",
    "EvaluationSettings",
    "Experiment",
    "FaultSettings",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FixedClip",
    "FloatArray",
    "GossamerError",
    "Gossip",
    "GraphFederated",
    "Guarantee",
    "Iid",
    "Increasing",
    "Linear",
    "LinearModel",
    "LinkSettings",
    "MalformedMessage",
    "Mapa",
    "Model",
    "ModelError",
    "Natural",
    "NeighboringRelation",
    "NoClip",
    "NoiseSecret",
    "ObjectiveSettings",
    "OwnLoss",
    "OwnTopology",
    "Pathological",
    "PeerError",
    "PersonalisationSettings",
    "Predictions",
    "Prepared",
    "PretrainedSettings",
    "Price",
    "PrivacySettings",
    "QuantileClip",
    "RayShards",
    "Result",
    "RunWarning",
    "Shard",
    "Sizes",
    "SpecError",
    "SpeedSettings",
    "Split",
    "StageClip",
    "StopSettings",
    "Sweep",
    "SynchronousGossip",
    "SyntheticSettings",
    "TopologyError",
    "TorchModule",
    "__version__",
    "bipartite_split",
    "build_graph",
    "declared_form",
    "load_dataset",
    "load_model",
    "load_party_split",
    "metropolis",
    "override",
    "pairwise_expectation",
    "parse_spec",
    "partition",
    "plan_run",
    "prepare",
    "price",
    "read_spec",
    "read_steps",
    "repeat_run",
    "replay",
    "replay_run",
    "resume_run",
    "rho",
    "run",
    "spectral_gap",
    "sweep",
    "unpack",
]

_HOMES = {
    "gossamer.algorithms.table": (
        "Allreduce",
        "Baseline",
        "EdgeCloud",
        "FedAsync",
        "FedAvg",
        "FedBuff",
        "Gossip",
        "GraphFederated",
        "Increasing",
        "Mapa",
        "SynchronousGossip",
    ),
    "gossamer.arrays": ("FloatArray",),
    "gossamer.data.datasets": ("declared_form", "load_dataset"),
    "gossamer.data.memory": ("Data",),
    "gossamer.data.partition": (
        "ByPerson",
        "Dirichlet",
        "Iid",
        "Linear",
        "Natural",
        "Pathological",
        "Shard",
        "Sizes",
        "partition",
    ),
    "gossamer.data.settings": ("DatasetSettings", "SyntheticSettings"),
    "gossamer.data.examples": ("Split",),
    "gossamer.deployment.party.data": ("load_party_split",),
    "gossamer.errors": (
        "AccountingError",
        "BudgetSpent",
        "BudgetUnreachable",
        "CallerError",
        "DataError",
        "GossamerError",
        "MalformedMessage",
        "ModelError",
        "PeerError",
        "RunWarning",
        "SpecError",
        "TopologyError",
    ),
    "gossamer.experiment.noise_secret": ("NoiseSecret",),
    "gossamer.experiment.planning": ("plan_run",),
    "gossamer.experiment.prepare": ("prepare",),
    "gossamer.experiment.prepared": ("Prepared",),
    "gossamer.experiment.pretrained": ("PretrainedSettings",),
    "gossamer.experiment.reading": ("override", "parse_spec", "read_spec"),
    "gossamer.experiment.repeating": ("repeat_run",),
    "gossamer.experiment.replaying": ("replay_run",),
    "gossamer.experiment.result": ("Result",),
    "gossamer.experiment.resuming": ("resume_run",),
    "gossamer.experiment.running": ("run",),
    "gossamer.experiment.sections": (
        "ComputeSettings",
        "DeploymentSettings",
        "EvaluationSettings",
        "ObjectiveSettings",
        "PersonalisationSettings",
    ),
    "gossamer.experiment.spec": ("Budget", "Experiment", "PrivacySettings", "StopSettings"),
    "gossamer.objectives.glm": ("LinearModel",),
    "gossamer.objectives.loss_settings": ("OwnLoss",),
    "gossamer.objectives.torch_module": ("TorchModule",),
    "gossamer.parameters": ("unpack",),
    "gossamer.privacy.clipping": ("FixedClip", "NoClip", "QuantileClip", "StageClip"),
    "gossamer.privacy.guarantees": ("Guarantee",),
    "gossamer.privacy.mechanisms": ("NeighboringRelation",),
    "gossamer.protocol.events": ("Completed",),
    "gossamer.protocol.trace": ("read_steps", "replay"),
    "gossamer.runtimes.links": ("FaultSettings", "LinkSettings"),
    "gossamer.runtimes.ray_shards": ("RayShards",),
    "gossamer.runtimes.speeds": ("SpeedSettings",),
    "gossamer.studies.price": ("Price", "price"),
    "gossamer.studies.sweep": ("Sweep", "sweep"),
    "gossamer.topology": (
        "OwnTopology",
        "bipartite_split",
        "build_graph",
        "metropolis",
        "pairwise_expectation",
        "rho",
        "spectral_gap",
    ),
    "gossamer.trained.model": ("Model", "Predictions", "load_model"),
}
"""Module -> what is called the same there."""
_PLACES = {name: (module, name) for module, names in _HOMES.items() for name in names}

for _module in ("gossamer.algorithms.table", "gossamer.experiment.replaying"):
    known_by(_module)  # what was stored or sent may be read where nothing else was imported

# Who wants to read what is logged says where it goes; a library writes nowhere by itself.
logging.getLogger(__name__).addHandler(logging.NullHandler())

if not TYPE_CHECKING:  # a type checker takes the imports above, and then knows which names there are not

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, there = _PLACES[name]
        found = globals()[name] = getattr(import_module(module), there)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
