"""Small specs that between them reach every algorithm, law of noise, sampling, relation and way of trust.

Each is a run of a second or two. They are data alone, so that they mean the same wherever code lies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Spec = dict[str, Any]

_BUDGET = {"epsilon": 8.0, "delta": 1e-4}
_LEVEL = {"clip": 1.0, "noise_multiplier": 1.0}


def _gossip(**settings: Any) -> Spec:
    return {"name": "gossip", "nodes": 4, "topology": "ring", "batch_size": 32, "updates_per_node": 4, **settings}


def _allreduce(**settings: Any) -> Spec:
    return {"name": "allreduce", "nodes": 4, "batch_size": 32, "updates_per_node": 4, **settings}


def _edge(name: str, **settings: Any) -> Spec:
    return {"name": name, "nodes": 4, "batch_size": 32, "updates_per_node": 5, **settings}


def _mapa(**settings: Any) -> Spec:
    return {"name": "mapa", "nodes": 3, "batch_size": 32, "updates_per_node": 8, **settings}


def _increasing(**settings: Any) -> Spec:
    sizes = {"name": "power", "a": 8, "b": 40}
    return {"name": "increasing", "nodes": 3, "sizes": sizes, "rounds": 4, **settings}


def _units(**settings: Any) -> Spec:
    shape = {"units": 3, "agents": 3, "local_steps": 2, "batch_size": 4, "step_size": 0.5, "rounds": 4}
    return {"name": "graph_federated", **shape, **settings}


SECURE = {"name": "secure"}
_KNOWN = {"gradient_sd": 1.0, "smoothness": 1.0, "loss_gap": 0.5}  # of MAPA, without an estimate
_TAU = {"rule": "tau", "tau": {"name": "power", "constant": 60, "factor": 0.9, "exponent": 1}}
_MATRIX = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
_POSITIVE = {"name": "digits", "positive": [0, 1, 2, 3, 4]}
_PATIENTS = {"name": "patients", "path": str(HERE / "data" / "patients.csv"), "target": "died", "person": "who"}

GOSSIP: dict[str, Spec] = {
    "gossip": {"algorithm": _gossip(), "budget": _BUDGET, "speeds": {"scenario": "one_slow"}},
    "gossip-packed": {
        "algorithm": _gossip(compression={"share": 0.3}, aggregation={"name": "centred_clipping", "radius": 0.5}),
        "privacy": _LEVEL,
    },
    "gossip-bipartite": {"algorithm": _gossip(topology="grid", exchange="bipartite"), "privacy": _LEVEL},
    "gossip-none": {"algorithm": _gossip(topology="exponential"), "privacy": "none"},
    "gossip-quantile": {"algorithm": _gossip(), "privacy": {"clip": {"policy": "quantile"}}, "budget": _BUDGET},
    "gossip-fixed-size": {"algorithm": _gossip(), "privacy": {"sampling": "fixed_size"}, "budget": _BUDGET},
    "gossip-poisson-replace": {
        "algorithm": _gossip(),
        "privacy": {"neighboring_relation": "replace_one"},
        "budget": _BUDGET,
    },
    "gossip-levels": {"algorithm": _gossip(), "privacy": {"clip": 1.0, "noise_multiplier": [1.0, 2.0, 1.5, 1.0]}},
    "gossip-budgets": {"algorithm": _gossip(), "budget": {"epsilon": [2.0, 8.0, 2.0, 4.0], "delta": 1e-4}},
    "gossip-rows": {"algorithm": _gossip(), "budget": {**_BUDGET, "rows_per_person": 2}},
    "gossip-l2-laplace": {
        "algorithm": _gossip(),
        "privacy": {"mechanism": "l2_laplace"},
        "budget": {"epsilon": 1000.0, "delta": 1e-4},
    },
    "gossip-l2-laplace-level": {
        "algorithm": _gossip(),
        "privacy": {"mechanism": "l2_laplace", "epsilon": 50.0, "sampling": "fixed_size"},
    },
    "gossip-paper-noise": {
        "objective": "mlp",
        "algorithm": _gossip(nodes=3, updates_per_node=2),
        "privacy": {"mechanism": "l2_laplace", "epsilon": 50.0, "norm": "exponential", "noise_scope": "first_layer"},
    },
    "gossip-mlp": {"objective": "mlp", "algorithm": _gossip(nodes=3, updates_per_node=2), "privacy": _LEVEL},
    "gossip-mlp-vmap": {
        "objective": "mlp",
        "algorithm": _gossip(nodes=3, updates_per_node=2),
        "privacy": _LEVEL,
        "compute": {"strategy": "vmap"},
    },
    "gossip-own-module": {
        "objective": {"module": "tests.oracle.own_model:Net"},
        "algorithm": _gossip(nodes=3, updates_per_node=2),
        "privacy": _LEVEL,
    },
    "gossip-logistic": {
        "dataset": _POSITIVE,
        "objective": {"name": "logistic", "l2": 0.01, "dtype": "float64"},
        "partition": {"name": "dirichlet", "alpha": 0.5},
        "algorithm": _gossip(learning_rate={"schedule": "step", "initial": 0.5, "epochs": [0.2]}),
        "privacy": _LEVEL,
    },
    "gossip-hinge": {
        "dataset": _POSITIVE,
        "objective": {"name": "hinge", "intercept": False},
        "partition": {"name": "shard"},
        "algorithm": _gossip(topology={"name": "erdos_renyi", "p": 0.7}),
        "privacy": _LEVEL,
    },
    "gossip-squared": {
        "dataset": {"name": "graph_regression", "synthetic": {"owners": 4, "examples": 60}},
        "partition": "natural",
        "algorithm": _gossip(topology={"name": "regular", "degree": 3}),
        "privacy": _LEVEL,
    },
    "gossip-lossy": {
        "algorithm": _gossip(topology="complete"),
        "privacy": _LEVEL,
        "partition": "linear",
        "speeds": {"name": "lognormal", "seconds": 0.5, "scenario": "random_slow"},
        "links": {"loss": 0.2, "duplicate": 0.1, "jitter": 0.3, "partitions": [{"start": 1, "end": 3, "group": [0]}]},
        "faults": {"absences": [{"node": 1, "start": 1.0, "end": 5.0}]},
        "stop": {"virtual_seconds": 40.0},
    },
    "gossip-epochs": {
        "algorithm": _gossip(
            updates_per_node=None,
            learning_rate={"schedule": "step", "initial": 0.1, "peak": 1, "warmup": 10, "epochs": [10]},
        ),
        "privacy": _LEVEL,
        "speeds": {"name": "cyclic"},
        "stop": {"epochs": 0.4, "updates": 12},
    },
    "gossip-persons": {
        "dataset": _PATIENTS,
        "partition": "by_person",
        "objective": "logistic",
        "algorithm": _gossip(batch_size=20),
        "budget": {**_BUDGET, "rows_per_person": 3},
    },
    "gossip-persons-spread": {
        "dataset": _PATIENTS,
        "objective": "logistic",
        "algorithm": _gossip(nodes=2, batch_size=20),
        "budget": {**_BUDGET, "rows_per_person": 3},
    },
}

ALLREDUCE: dict[str, Spec] = {
    "allreduce": {"algorithm": _allreduce(), "budget": _BUDGET},
    "allreduce-quantile": {
        "algorithm": _allreduce(),
        "privacy": {"clip": {"policy": "quantile"}, "sampling": "fixed_size", "noise_multiplier": 1.0},
    },
    "allreduce-timeout": {
        "algorithm": _allreduce(timeout=3.0),
        "privacy": _LEVEL,
        "links": {"loss": 0.1},
        "faults": {"absences": [{"node": 2, "start": 1.5}]},
    },
    "allreduce-none": {"algorithm": _allreduce(), "privacy": "none"},
}

EDGE_CLOUD: dict[str, Spec] = {
    "audp": {"algorithm": _edge("audp"), "budget": _BUDGET, "speeds": {"scenario": "one_slow"}},
    "audp-drop": {
        "algorithm": _edge(
            "audp",
            staleness={"bound": 1, "on_stale": "drop", "exponent": 0.5},
            learning_rate={"schedule": "agarwal_duchi", "smoothness": 1.0, "gradient_sd": 1.0},
        ),
        "privacy": {**_LEVEL, "sampling": "fixed_size"},
        "speeds": {"scenario": "one_slow"},
    },
    "audp-l2-laplace": {"algorithm": _edge("audp"), "privacy": {"mechanism": "l2_laplace", "epsilon": 50.0}},
    "asgd": {"algorithm": _edge("asgd"), "privacy": "none"},
    "csgd": {"algorithm": _edge("csgd", nodes=1), "privacy": "none"},
}

MAPA: dict[str, Spec] = {
    "mapa": {"algorithm": _mapa(**_KNOWN), "budget": _BUDGET},
    "mapa-estimated": {"algorithm": _mapa(), "privacy": {"noise_multiplier": 1.0}},
    "mapa-given-clip": {
        "algorithm": _mapa(**_KNOWN, schedule_staleness=1),
        "privacy": {"noise_multiplier": 1.0, "clip": {"policy": "stages", "initial": 2.0}},
    },
}

INCREASING: dict[str, Spec] = {
    "increasing": {"algorithm": _increasing(), "budget": _BUDGET},
    "increasing-clipped-sum": {"algorithm": _increasing(round_update="clipped_sum"), "privacy": _LEVEL},
    "increasing-sequential": {"algorithm": _increasing(round_update="sequential"), "privacy": _LEVEL},
    "increasing-fixed-size": {
        "algorithm": _increasing(counts="coins", weights="shards"),
        "privacy": {**_LEVEL, "sampling": "fixed_size"},
        "partition": "linear",
    },
    "increasing-rows": {
        "algorithm": _increasing(round_update="clipped_sum"),
        "budget": {**_BUDGET, "rows_per_person": 2},
    },
    "increasing-aggregators": {
        "algorithm": _increasing(nodes=5, aggregators=[1, 2], delay={"rule": "rounds", "d": 2}),
        "privacy": _LEVEL,
        "speeds": {"name": "lognormal", "seconds": 0.05},
    },
    "increasing-parts": {"algorithm": _increasing(parts=2, delay=_TAU), "privacy": _LEVEL},
    "increasing-none": {
        "algorithm": _increasing(sizes={"name": "log", "a": 9, "b": 30}, weights=[0.2, 0.3, 0.5]),
        "privacy": "none",
        "faults": {"absences": [{"node": 0, "start": 5.0, "end": 60.0}]},
    },
    "increasing-privacy-sizes": {
        "algorithm": _increasing(
            sizes={"name": "privacy", "q": 0.02, "m": 1, "p": 1},
            learning_rate={"schedule": "diminishing1", "initial": 0.05, "beta": 0.01},
        ),
        "privacy": _LEVEL,
    },
    "increasing-mlp": {"objective": "mlp", "algorithm": _increasing(rounds=2), "privacy": _LEVEL},
}

_NOISY = {"clip": 1.0, "standard_deviation": 0.05}
GRAPH_FEDERATED: dict[str, Spec] = {
    "graph": {"algorithm": _units(), "privacy": {"clip": 1.0}, "budget": {"epsilon": 100.0, "delta": 1e-4}},
    "graph-none": {"algorithm": _units(consensus=3), "privacy": "none"},
    "graph-random": {"algorithm": _units(noise="random", topology="complete"), "privacy": _NOISY},
    "graph-hidden": {"algorithm": _units(gradient_at="hidden"), "privacy": _NOISY},
    "graph-laplace": {
        "algorithm": _units(temporal="random_walk"),
        "privacy": {"clip": 1.0, "mechanism": "laplace"},
        "budget": {"epsilon": 1000.0, "delta": 1e-4},
    },
    "graph-unclipped": {
        "algorithm": _units(noise="homomorphic"),
        "privacy": {"clip": "none", "standard_deviation": 0.05},
    },
    "graph-independent": {"algorithm": _units(temporal="independent", combination=_MATRIX), "privacy": _NOISY},
    "graph-walk": {"algorithm": _units(temporal="random_walk", agents_sampled=2), "privacy": _NOISY},
    "graph-toeplitz": {"algorithm": _units(temporal="sqrt_toeplitz", agents=[3, 2, 4]), "privacy": _NOISY},
    "graph-banded": {
        "algorithm": _units(temporal="banded", bands=2, local_steps=[1, 3], batch_size=[2, 5]),
        "privacy": _NOISY,
    },
    "graph-asynchronous": {
        "algorithm": _units(synchronous=False, timeout=2.0, patience=5.0),
        "privacy": _NOISY,
        "speeds": {"name": "lognormal", "seconds": 0.2},
        "links": {"loss": 0.1},
        "faults": {"absences": [{"node": 1, "start": 2.0}]},
    },
    "graph-secure": {"algorithm": _units(masking=SECURE), "privacy": _NOISY},
    "graph-secure-none": {
        "algorithm": _units(masking={**SECURE, "bits": 64}),
        "privacy": {"mechanism": "none", "clip": 1.0},
    },
    "graph-secure-agent-noise": {
        "algorithm": _units(agents=4, agents_sampled=3, masking=SECURE, noise="random"),
        "privacy": {**_NOISY, "agent_noise": 2.0},
    },
    "graph-secure-lossy": {
        "algorithm": _units(agents=4, masking={**SECURE, "threshold": 3, "minimum": 3}, timeout=20.0),
        "privacy": _NOISY,
        "faults": {"absences": [{"node": 3, "start": 1.0}]},
    },
    "graph-mlp": {"objective": "mlp", "algorithm": _units(units=2, agents=2, rounds=2), "privacy": _NOISY},
    "graph-regression": {
        "dataset": {"name": "graph_regression", "synthetic": {"owners": 6, "examples": 30}},
        "partition": "natural",
        "algorithm": _units(agents=2),
        "privacy": _NOISY,
    },
}

SPECS: dict[str, Spec] = {
    name: {"dataset": "digits", "seed": 7, **spec}
    for table in (GOSSIP, ALLREDUCE, EDGE_CLOUD, MAPA, INCREASING, GRAPH_FEDERATED)
    for name, spec in table.items()
}
FAST = ("gossip-levels", "allreduce-quantile", "increasing-parts", "graph-secure-agent-noise")
"""Of these the hashes are compared whenever tests run."""
WITH_SECRET = ("gossip", "audp", "increasing", "graph-walk", "graph-secure-agent-noise", "gossip-persons-spread")
"""Of these also the runs whose noise comes from a secret, which is given."""

COMMANDS: dict[str, str] = {
    "account": "account --noise-multiplier 1.1 --sampling-rate 0.01 --steps 300 --delta 1e-5 --json",
    "account-l2-laplace": "account --mechanism l2_laplace --epsilon 0.1 --size 7840 --sampling-rate 1 --steps 150 "
    "--delta 1e-5 --composition all",
    "calibrate": "calibrate --epsilon 5 --delta 1e-5 --sampling fixed_size --dataset-size 5000 --batch-size 50 "
    "--steps 300",
    "plan-mapa": "plan mapa --noise gaussian --noise-multiplier 0.7515 --delta 1e-5 --dataset-size 12000 "
    "--batch-size 64 --gradient-sd 1 --smoothness 1 --loss-gap 0.7 --staleness 4 --size 7840 --stages 4",
    "plan-increasing": "plan increasing --initial-size 16 --dataset-size 10000 --gradients 5000 --sigma 8 --epsilon 1 "
    "--r0 max",
    "plan-graph-federated": "plan graph_federated --epsilon 2 --delta 1e-5 --rounds 50 --step 0.7 --bound 10 --size 2 "
    "--graph ring --units 10 --agents-sampled 11",
}
"""Commands that need no spec."""
ON_SPECS: dict[str, tuple[str, str]] = {
    "audit": ("gossip-levels", "attack audit SPEC --reproducible --canaries 40 --guesses 20 --json"),
    "audit-increasing": ("increasing-parts", "attack audit SPEC --reproducible --canaries 40 --guesses 20 --json"),
    "inversion": ("gossip-levels", "attack inversion SPEC --examples 2 --json"),
}
"""Commands about one of the small specs: which, and what."""
