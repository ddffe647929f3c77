"""Pools of data sides as tests want them: of one kind, with a ledger in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gossamer.data.examples import Split
from gossamer.objectives.objective import Objective
from gossamer.privacy.accounting.filters import ReleasePlan
from gossamer.privacy.tasks import Query
from gossamer.sides.deployed import Deployed
from gossamer.sides.home import Simulated
from gossamer.sides.ledger import MemoryLedger
from gossamer.sides.plan import Samples
from gossamer.sides.pool import Pool, open_pool
from gossamer.sides.samples import ShardRows
from gossamer.sides.sums import Filled


def samples(policy: ReleasePlan | None = None, queries: Iterable[Query] = ()) -> Samples:
    """What a plan admits: by default everything."""
    return Samples({} if policy is None else policy.most, policy is not None, lambda: tuple(queries))


def simulated(
    shards: Mapping[str, Sequence[int] | np.ndarray],
    objective: Objective,
    data: Split,
    seed: int,
    policy: ReleasePlan | None = None,
) -> Pool:
    """Simulated data sides of nodes that release sums over their samples."""
    held = {name: ShardRows(np.asarray(rows, np.int64)) for name, rows in shards.items()}
    return open_pool(dict.fromkeys(shards, samples(policy)), held, objective, data, Simulated(seed))


def ledger(policy: ReleasePlan | None = None, name: str = "a") -> MemoryLedger:
    """A ledger of samples."""
    return MemoryLedger(name, samples(policy).charges())


def deployed(
    objective: Objective, data: Split, book: MemoryLedger | None = None, planned: Iterable[Query] = ()
) -> Pool:
    """The deployed data side of the party ``a``, to which all of ``data`` belong."""
    book = ledger() if book is None else book
    plan = samples(ReleasePlan(book.charges.kinds) if book.charges.held else None, planned)
    home = Deployed(lambda name, plan: book)
    return open_pool({"a": plan}, {"a": ShardRows(np.arange(len(data)))}, objective, data, home)


def filled(objective: Objective, data: Split, kind: type[Filled] = Filled, name: str = "a") -> Pool:
    """The same, whose answers take equally long."""
    book, sums = ledger(None, name), kind(objective, data, len(data))
    home: Any = Deployed(lambda name, plan: book, sums=lambda objective, data: sums)
    return open_pool({name: samples()}, {name: ShardRows(np.arange(len(data)))}, objective, data, home)
