"""Tiny specs, of a few milliseconds a run, that between them have every algorithm, kind of data side, law and fault."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

import gossamer as gs
from gossamer.experiment.preparation.prepare import FromMemory, Prepared, prepare
from gossamer.experiment.specs.spec_file import parse_spec

EXAMPLES, FEATURES = 6, 4  # examples of each node

_LEVEL = {"clip": 1.0, "noise_multiplier": 1.0}
_QUANTILE = {"clip": {"policy": "quantile"}, "noise_multiplier": 1.0}
_LOSSY = {
    "links": {"loss": 0.2, "duplicate": 0.2, "jitter": 0.3},
    "faults": {"absences": [{"node": 1, "start": 1.0, "end": 4.0}]},
    "stop": {"virtual_seconds": 30.0},
}
_UNITS = {"units": 2, "agents": 2, "local_steps": 2, "batch_size": 2, "step_size": 0.5, "rounds": 3}
_SD = {"clip": 1.0, "standard_deviation": 0.05}
_SIZES = {"name": "power", "a": 2, "b": 2}


def _of(name: str, **settings: Any) -> dict[str, Any]:
    return {"name": name, "nodes": 3, "batch_size": 2, "updates_per_node": 3, **settings}


def _units(**settings: Any) -> dict[str, Any]:
    return {"name": "graph_federated", **_UNITS, **settings}


def _clients(name: str, **settings: Any) -> dict[str, Any]:
    return {"name": name, "nodes": 3, "local_steps": 2, "batch_size": 2, **settings}


SPECS: dict[str, dict[str, Any]] = {
    "gossip": {"algorithm": _of("gossip", topology="complete"), "privacy": _LEVEL},
    "gossip-replace": {
        "algorithm": _of("gossip"),
        "privacy": {**_LEVEL, "neighboring_relation": "replace_one"},
    },
    "gossip-fixed-size": {"algorithm": _of("gossip"), "privacy": {**_LEVEL, "sampling": "fixed_size"}},
    "gossip-quantile": {"algorithm": _of("gossip"), "privacy": _QUANTILE},
    "gossip-l2-laplace": {"algorithm": _of("gossip"), "privacy": {"mechanism": "l2_laplace", "epsilon": 5.0}},
    "gossip-none": {"algorithm": _of("gossip"), "privacy": {"mechanism": "none", "clip": 1.0}},
    "gossip-lossy": {"algorithm": _of("gossip", topology="complete"), "privacy": _LEVEL, **_LOSSY},
    "gossip-squared": {
        "objective": {"name": "squared", "l2": 0.1},
        "algorithm": _of("gossip"),
        "privacy": {**_LEVEL, "neighboring_relation": "replace_one"},
    },
    "gossip-accuracy": {
        "algorithm": _of("gossip"),
        "privacy": _LEVEL,
        "stop": {"accuracy": 0.75},
        "evaluation": {"every_updates": 2},
    },
    "allreduce": {"algorithm": _of("allreduce", optimizer="adam"), "privacy": _LEVEL},
    "allreduce-lossy": {"algorithm": _of("allreduce", timeout=3.0), "privacy": _QUANTILE, **_LOSSY},
    "mapa": {
        "algorithm": _of("mapa", gradient_sd=1.0, smoothness=1.0, loss_gap=0.5),
        "privacy": {"noise_multiplier": 1.0},
    },
    "audp": {"algorithm": _of("audp"), "privacy": _LEVEL, "speeds": {"name": "lognormal"}},
    "audp-stale": {
        "algorithm": _of("audp", staleness={"bound": 1, "on_stale": "drop"}),
        "privacy": {**_LEVEL, "sampling": "fixed_size"},
        "speeds": {"scenario": "one_slow"},
    },
    "mapa-client": {
        "algorithm": _of("mapa", privacy_unit="client", gradient_sd=1.0, smoothness=1.0, loss_gap=7.6e-4),
        "privacy": {"noise_multiplier": 1.0},
    },
    "audp-client": {"algorithm": _of("audp", privacy_unit="client"), "privacy": _LEVEL, **_LOSSY},
    "asgd": {"algorithm": _of("asgd"), "privacy": {"mechanism": "none", "clip": 1.0}},
    "csgd": {"algorithm": _of("csgd", nodes=1), "privacy": {"mechanism": "none", "clip": 1.0}},
    "increasing": {"algorithm": {"name": "increasing", "nodes": 3, "sizes": _SIZES, "rounds": 2}, "privacy": _LEVEL},
    "increasing-clipped-sum": {
        "algorithm": {
            "name": "increasing",
            "nodes": 3,
            "sizes": _SIZES,
            "rounds": 2,
            "round_update": "clipped_sum",
        },
        "privacy": {**_LEVEL, "neighboring_relation": "replace_one"},
    },
    "increasing-sequential": {
        "algorithm": {"name": "increasing", "nodes": 3, "sizes": _SIZES, "rounds": 2, "round_update": "sequential"},
        "privacy": _LEVEL,
    },
    "increasing-parts": {
        "algorithm": {"name": "increasing", "nodes": 3, "sizes": _SIZES, "rounds": 2, "parts": 2},
        "privacy": _LEVEL,
    },
    "graph_federated": {"algorithm": _units(), "privacy": _SD},
    "graph-random": {"algorithm": _units(noise="random"), "privacy": _SD},
    "graph-hidden": {"algorithm": _units(gradient_at="hidden"), "privacy": _SD},
    "graph-lossy": {
        "algorithm": _units(synchronous=False, timeout=8.0, patience=8.0),
        "privacy": _SD,
        "links": {"loss": 0.2},
        "faults": {"absences": [{"node": 1, "start": 1.0}]},
    },
    "graph-secure": {"algorithm": _units(agents=3, masking="secure"), "privacy": {**_SD, "agent_noise": 2.0}},
    "graph-agents-alone": {
        "algorithm": _units(agents=3, masking="secure", noise="none"),
        "privacy": {"clip": 1.0, "agent_noise": 2.0},
    },
    "graph-clip-none": {"algorithm": _units(noise="homomorphic"), "privacy": {**_SD, "clip": "none"}},
    "fedasync": {"algorithm": _clients("fedasync", updates_per_node=3), "privacy": _LEVEL},
    "fedasync-example": {
        "algorithm": _clients("fedasync", updates_per_node=3, privacy_unit="example"),
        "privacy": _LEVEL,
    },
    "fedavg": {"algorithm": _clients("fedavg", rounds=3), "privacy": _LEVEL},
    "fedavg-trusted": {
        "algorithm": _clients("fedavg", rounds=3, noise_by="server", trusted="server"),
        "privacy": _LEVEL,
    },
    "fedavg-quantile": {
        "algorithm": _clients("fedavg", rounds=3, noise_by="server", trusted="server"),
        "privacy": _QUANTILE,
    },
    "fedavg-secret": {
        "algorithm": _clients(
            "fedavg", rounds=3, noise_by="server", trusted="server", cohorts="secret", clients_per_round=2
        ),
        "privacy": _LEVEL,
    },
    "fedavg-masked": {"algorithm": _clients("fedavg", rounds=2, nodes=4, masking="secure"), "privacy": _LEVEL},
    "fedbuff": {"algorithm": _clients("fedbuff", buffer=2, updates_per_node=3), "privacy": _LEVEL},
    "fedbuff-trusted": {
        "algorithm": _clients("fedbuff", buffer=2, updates_per_node=3, noise_by="server", trusted="server"),
        "privacy": _LEVEL,
    },
    "fedbuff-lossy": {
        "algorithm": _clients("fedbuff", buffer=2, updates_per_node=3, privacy_unit="example"),
        "privacy": _LEVEL,
        **_LOSSY,
    },
    "local": {"algorithm": _of("local"), "privacy": _LEVEL},
    "central": {"algorithm": _of("central", nodes=1), "privacy": _LEVEL},
    "d_psgd": {"algorithm": _of("d_psgd", optimizer="momentum"), "privacy": _LEVEL},
    "push_sum": {"algorithm": _of("push_sum"), "privacy": _LEVEL},
    "muffliato": {"algorithm": _of("muffliato", gossip_steps=2), "privacy": _LEVEL},
}
"""By name."""
MASKED = frozenset({"graph-secure", "graph-agents-alone", "fedavg-masked"})
"""Those that take ten times as long, for the cryptography of masks."""


@cache
def tiny(name: str) -> Prepared:
    """What a run of one of them is made of."""
    return prepared(SPECS[name])


def prepared(spec: Mapping[str, Any]) -> Prepared:
    """What a run of a spec on few generated examples is made of."""
    whole = {
        "objective": {"name": "logistic", "dtype": "float64", "l2": 0.01},
        "evaluation": "off",
        "seed": 3,
        **spec,
    }
    algorithm = spec["algorithm"]
    nodes = algorithm.get("nodes") or algorithm["units"] * algorithm["agents"]
    generator = np.random.default_rng(nodes)
    x = generator.standard_normal((nodes * EXAMPLES, FEATURES))
    y = (x @ np.arange(1, FEATURES + 1) + generator.standard_normal(len(x)) > 0).astype(int)
    real = whole["objective"]["name"] == "squared"
    data = gs.Data(
        x,
        y.astype(float) if real else y,
        x_test=x[:FEATURES],
        y_test=y[:FEATURES].astype(float) if real else y[:FEATURES],
        **({"task": "regression", "target_range": [-1, 1]} if real else {"labels": [0, 1]}),
    )
    return prepare(parse_spec(whole), FromMemory(data))
