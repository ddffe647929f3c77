"""Code of other distributions that a spec has run, beside its algorithm's and its model's."""

from __future__ import annotations

from gossamer.data.partition import KIND as PARTITIONS
from gossamer.experiment.spec import Experiment
from gossamer.objectives.loss_settings import KIND as LOSSES
from gossamer.registering import Kind, Registered, used
from gossamer.topology.settings import KIND as TOPOLOGIES

KINDS = (TOPOLOGIES, PARTITIONS, LOSSES)
TRUSTED = "the code of {code} is trusted: {promise}, and it does nothing else"
"""Assumption of a guarantee for a topology, a partition or a loss that another distribution registers."""


def of_others(experiment: Experiment) -> list[tuple[Kind, Registered]]:
    """Topologies, partitions and losses of a spec that other distributions register."""
    return used(experiment, KINDS)


def described(experiment: Experiment) -> list[dict[str, str]]:
    """Names, versions and hashes of them, for a summary."""
    return [
        {
            "kind": kind.noun,
            "name": one.name,
            "distribution": one.distribution,
            "version": one.version,
            "sha256": one.source,
        }
        for kind, one in of_others(experiment)
    ]


def assumptions(experiment: Experiment) -> list[str]:
    """Assumptions of a guarantee on them."""
    return [
        TRUSTED.format(code=one, promise=kind.promise or f"its {kind.noun} is public")
        for kind, one in of_others(experiment)
    ]
