"""The data side of one deployed party, whatever its algorithm and its part in it, and what is then guaranteed.

| party | asked for | charged for |
|---|---|---|
| node with examples of its own | noisy sums on samples of them | each, by its kind |
| server of a federated unit | the next record of the unit's stream | each, with a line for each agent |
| agent of a unit | its update, or messages of a masked sum | each sum, if agents add noise |
| client that masks | messages of a masked sum | each sum, if clients add noise |
| server without data | nothing | - |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gossamer.algorithms.plan import Plan, differing
from gossamer.deployment.party.pacing import Paced, has_deadline
from gossamer.errors import DataError
from gossamer.experiment.prepared import Prepared
from gossamer.objectives.glm import LinearModel
from gossamer.privacy.guarantees import Guarantee
from gossamer.sides.answers import Computer
from gossamer.sides.deployed import Deployed, Receipts
from gossamer.sides.deployed_guarantee import Drawn, deployed_bound, deployed_guarantee
from gossamer.sides.filled import Filled, TimedPool
from gossamer.sides.home import Kept
from gossamer.sides.ledger import Ledger
from gossamer.sides.making import open_pool
from gossamer.sides.plan import SidePlan
from gossamer.sides.pool import Pool
from gossamer.sides.samples import Shard
from gossamer.sides.sums import InPieces

if TYPE_CHECKING:
    from gossamer.sides.masked_side import Signing


def deployed_computer(
    prepared: Prepared,
    plan: Plan,
    name: str,
    ledger: Ledger | None,
    *,
    kept: Kept | None = None,
    signing: Signing | None = None,
    receipts: Receipts | None = None,
) -> Pool | TimedPool:
    """The data side of party ``name``, in a process of its own.

    Parameters
    ----------
    prepared : Prepared
        Whose training examples are this party's, all of its shard.
    plan : Plan
        Of the run.
    name : str
        The party.
    ledger : Ledger or None
        Opened for what the party's plan is charged, and durable; None if it is charged nothing.
    kept : Kept, optional
        Of a server or an agent of a unit; durable. Agents of masked sums need it, and without it correlated noise
        cannot go on after a restart, and is refused.
    signing : Signing, optional
        Needed by agents of masked sums, in a run that has a name.
    receipts : Receipts, optional
        Where receipts of the releases are noted.

    Raises
    ------
    CallerError
        If something is missing, or the planned noise cannot be drawn.
    """
    rows = dict(zip(prepared.names, prepared.shards, strict=True)).get(name)
    objective, data = prepared.objective, prepared.dataset.train
    filled = Filled(objective, data, len(rows)) if rows is not None and has_deadline(prepared, plan) else None

    def opened(name: str, plan: SidePlan) -> Ledger:
        if ledger is None:
            raise DataError(f"{name} needs a ledger to charge what it releases to")
        return ledger

    sums = InPieces if filled is None else lambda objective, data: filled
    home = Deployed(opened, kept, signing, sums, receipts)
    shards = {} if rows is None else {name: Shard(rows)}
    pool = open_pool({name: plan.side(name)}, shards, objective, data, home, trust=prepared.cast.trust)
    return pool if filled is None else TimedPool(pool, filled, home)


def paced(computer: Pool | TimedPool, prepared: Prepared, say: Callable[[str], object]) -> Computer:
    """The data side of a party as its node has it: with a deadline, if it has one; ``say`` is told of it."""
    if isinstance(computer, Pool):
        return computer
    wanted = prepared.experiment.deployment.release_deadline
    return Paced(computer, wanted if isinstance(wanted, float) else None, say=say)


# What is guaranteed


def deployed_guarantees(prepared: Prepared, plan: Plan) -> tuple[Guarantee, Mapping[str, Guarantee]]:
    """The plan's guarantee in a deployment, and those by observer where they differ."""
    drawn = _drawn(prepared, plan)
    by_observer = {o: deployed_guarantee(guarantee, drawn[o]) for o, guarantee in plan.guarantees.items()}
    return next(iter(by_observer.values())), differing(by_observer)


def deployed_epsilon(prepared: Prepared, plan: Plan, name: str) -> float:
    """Return the epsilon proved for party ``name``, at the delta of `deployed_guarantees`; infinite where none is."""
    epsilon = plan.epsilons[name]
    if not math.isfinite(epsilon):
        return epsilon
    return deployed_bound(epsilon, prepared.experiment.delta, drawn_by(prepared, plan))[0]


def drawn_by(prepared: Prepared, plan: Plan) -> Drawn:
    """Numbers of the party that draws most for its plan, against whom the noise is planned."""
    return next(iter(_drawn(prepared, plan).values()))


def _drawn(prepared: Prepared, plan: Plan) -> Mapping[str, Drawn]:
    """The same by observer."""
    network = not isinstance(prepared.objective, LinearModel)
    return plan.drawn(network=network, deadline=has_deadline(prepared, plan))
