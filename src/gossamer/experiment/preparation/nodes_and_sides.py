"""Nodes of a run, and data sides with their ledgers, by its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gossamer.experiment.preparation.prepared import Prepared
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.streams.graph_bounds import ModelLengths
from gossamer.protocol.node import Node
from gossamer.sides.home import Simulated
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import Side
from gossamer.sides.plan import SidePlan
from gossamer.sides.pool import Machine, Pool, open_pool
from gossamer.sides.receipts import Noting
from gossamer.sides.samples import Shard


@dataclass(frozen=True)
class Sources:
    """Sources of a run's data sides, beside what is prepared and planned.

    Attributes
    ----------
    noise : int
        Seed of noise and masks, and of batches too, where those have none of their own.
    samples : int or None
        Seed of batches.
    machine : callable
        Maker of a data side; see `open_pool`.
    ledgers : mapping of str to Ledger
        Ledgers that were charged before the run.
    book : Noting or None
        Book in which receipts are noted.
    """

    noise: int
    samples: int | None = None
    machine: Machine = Side
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)
    book: Noting | None = None


class Planned(Protocol):
    """Part of a plan that nodes and data sides are made by; see `algorithms.plan.Plan`."""

    @property
    def mechanisms(self) -> Mapping[str, Mechanism]: ...
    @property
    def quotas(self) -> Mapping[str, int] | None: ...
    @property
    def lengths(self) -> ModelLengths | None: ...
    @property
    def sides(self) -> Mapping[str, SidePlan]: ...


def nodes_of(prepared: Prepared, plan: Planned) -> dict[str, Node]:
    """Fresh nodes of a run, by name."""
    context = prepared.context(plan.mechanisms, plan.quotas, lengths=plan.lengths)
    nodes: dict[str, Node] = prepared.algorithm.build(prepared.experiment.algorithm, context)
    return nodes


def sides_of(prepared: Prepared, plan: Planned, sources: Sources) -> Pool:
    """The data sides of all parties of a simulation, with ledgers for what is planned.

    Raises
    ------
    SpecError
        If a party whose updates are made on all its examples has a row that is blank.
    """
    home = Simulated(sources.noise, sources.ledgers, sources.samples, sources.book)
    objective, data, trust = prepared.objective, prepared.dataset.train, prepared.cast.trust
    return open_pool(plan.sides, shards_of(prepared), objective, data, home, sources.machine, trust)


def shards_of(prepared: Prepared) -> dict[str, Shard]:
    """The rows of each node with data, of which some may be blank."""
    return {name: Shard.of(rows, prepared.blank) for name, rows in zip(prepared.names, prepared.shards, strict=True)}
