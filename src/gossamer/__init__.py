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
        EdgeCloud,
        FedAsync,
        FedAvg,
        FedBuff,
        Gossip,
        GraphFederated,
        Increasing,
        Mapa,
    )
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
    from gossamer.trained.model import Model, load_model
    from gossamer.trained.predictions import Predictions

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
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FixedClip",
    "GossamerError",
    "Gossip",
    "GraphFederated",
    "Guarantee",
    "Increasing",
    "MalformedMessage",
    "Mapa",
    "Model",
    "ModelError",
    "NeighboringRelation",
    "NoClip",
    "NoiseSecret",
    "ObjectiveSettings",
    "PeerError",
    "Predictions",
    "PrivacySettings",
    "QuantileClip",
    "Result",
    "RunWarning",
    "SpecError",
    "StageClip",
    "StopSettings",
    "TopologyError",
    "__version__",
    "load_model",
    "read_spec",
    "repeat_run",
    "replay_run",
    "run",
]

_HOMES = {
    "gossamer.algorithms.table": (
        "Allreduce",
        "EdgeCloud",
        "FedAsync",
        "FedAvg",
        "FedBuff",
        "Gossip",
        "GraphFederated",
        "Increasing",
        "Mapa",
    ),
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
    "gossamer.experiment.reading": ("read_spec",),
    "gossamer.experiment.repeating": ("repeat_run",),
    "gossamer.experiment.replaying": ("replay_run",),
    "gossamer.experiment.running": (
        "Result",
        "run",
    ),
    "gossamer.experiment.spec": (
        "Budget",
        "ComputeSettings",
        "EvaluationSettings",
        "Experiment",
        "ObjectiveSettings",
        "PrivacySettings",
        "StopSettings",
    ),
    "gossamer.privacy.clipping": (
        "FixedClip",
        "NoClip",
        "QuantileClip",
        "StageClip",
    ),
    "gossamer.privacy.guarantees": ("Guarantee",),
    "gossamer.privacy.mechanisms": ("NeighboringRelation",),
    "gossamer.trained.model": ("Model", "load_model"),
    "gossamer.trained.predictions": ("Predictions",),
}
"""Module -> what is called the same there."""
_PLACES = {name: (module, name) for module, names in _HOMES.items() for name in names}

for _module in ("gossamer.algorithms.table", "gossamer.experiment.replaying"):
    known_by(_module)  # what was stored or sent may be read where nothing else was imported


# Who wants to read what is logged says where it goes; a library writes nowhere by itself.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _PLACES[name]
    found = globals()[name] = getattr(import_module(module), there)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
