"""Code of other distributions that a spec has run, beside its algorithm's and its model's."""

from __future__ import annotations

from gossamer.data.partition import KIND as PARTITIONS
from gossamer.experiment.spec import Experiment
from gossamer.registered_settings import Kind, used
from gossamer.registering import Registered
from gossamer.topology.settings import KIND as TOPOLOGIES

KINDS = (TOPOLOGIES, PARTITIONS)
TRUSTED = "the code of {code} is trusted: its {noun} is public, and it does nothing else"
"""Assumption of a guarantee for a topology or a partition that another distribution registers."""


def of_others(experiment: Experiment) -> list[tuple[Kind, Registered]]:
    """Topologies and partitions of a spec that other distributions register."""
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
    return [TRUSTED.format(code=one, noun=kind.noun) for kind, one in of_others(experiment)]
