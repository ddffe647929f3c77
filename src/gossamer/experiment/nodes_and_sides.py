"""Nodes of a run, and data sides with their ledgers, by its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gossamer.arrays import IndexArray
from gossamer.experiment.prepared import Prepared
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.streams.graph_bounds import ModelLengths
from gossamer.protocol.node import Node
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import Side
from gossamer.sides.making import Machine, open_pool
from gossamer.sides.plan import SidePlan
from gossamer.sides.pool import Pool
from gossamer.sides.receipts import Noting
from gossamer.sides.samples import Shard
from gossamer.sides.simulated import Simulated


@dataclass(frozen=True)
class Coins:
    """Coins of a run, and what makes the data sides that toss them.

    Attributes
    ----------
    noise : int
        Seed of noise and masks, and of batches too, where those have none of their own.
    samples : int or None
        Seed of batches.
    machine : callable
        What makes a data side.
    """

    noise: int
    samples: int | None = None
    machine: Machine = Side


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


def sides_of(
    prepared: Prepared,
    plan: Planned,
    seed: int,
    blank: IndexArray | None = None,
    ledgers: Mapping[str, Ledger] | None = None,
    samples: int | None = None,
    machine: Machine = Side,
    book: Noting | None = None,
) -> Pool:
    """The data sides of all parties of a simulation, with ledgers for what is planned.

    Parameters
    ----------
    prepared : Prepared
        Whose examples they hold.
    plan : Planned
        Of the run.
    seed : int
        Of sampling, noise and masks.
    blank : ndarray of int64, optional
        Rows whose slots hold nothing.
    ledgers : mapping of str to Ledger, optional
        Ledgers that were charged before the run.
    samples : int, optional
        Seed of sampling, where that is another one.
    machine : callable
        What makes a data side; see `open_pool`.
    book : Noting, optional
        Where receipts are noted.

    Raises
    ------
    SpecError
        If a party whose updates are made on all its examples has such a row.
    """
    home, trust = Simulated(seed, ledgers, samples, book), prepared.cast.trust
    shards = shards_of(prepared, blank)
    return open_pool(plan.sides, shards, prepared.objective, prepared.dataset.train, home, machine, trust)


def shards_of(prepared: Prepared, blank: IndexArray | None = None) -> dict[str, Shard]:
    """The rows of each node with data, of which those in ``blank`` hold nothing."""
    return {name: Shard.of(rows, blank) for name, rows in zip(prepared.names, prepared.shards, strict=True)}
