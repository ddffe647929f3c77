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
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gossamer.algorithms.plan import Plan, differing
from gossamer.errors import DataError
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.sampling import OPEN_TIMES, PUBLIC_TIMES, Poisson
from gossamer.privacy.tasks import Query
from gossamer.sides.deployed import Deployed, Receipts
from gossamer.sides.filled import Filled, TimedPool
from gossamer.sides.guarantees import deployed_bound, deployed_guarantee
from gossamer.sides.home import Kept
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import Answer, Computer
from gossamer.sides.plan import Drawn, Samples, SidePlan, Times, counts_of, smallest_sum
from gossamer.sides.pool import Pool, open_pool
from gossamer.sides.samples import Shard
from gossamer.sides.sums import InPieces

if TYPE_CHECKING:
    from gossamer.sides.masked_side import Signing

# Times at which a node gets its data side's answers: multiples of a deadline, not when they were computed.
#
# All that a node sends, stores and asks for next follows from its answers, so nothing that it does shows how long one
# took. `privacy.sampling` has what is proved of that, and `sides.filled` the data side, which computes
# on as many examples for every answer. The deadline of an answer is public:
#
#     1.25 (seconds without examples + examples provided for * seconds an example),
#
# measured by this node, at its first task of a kind, on examples that nobody has: the least of some runs, which load
# from elsewhere has disturbed least. Where the spec gives seconds it is the least multiple of these that is as long:
# with fewer every answer would be late, and go when it is computed. An answer that misses its deadline, on a machine
# that is busy, goes at the next multiple.

MARGIN = 1.25
"""How many times what was measured a deadline is."""
LEAST = 1e-3
"""Seconds of the shortest deadline: of less a machine's clock and scheduler know little."""
_FEW = 32  # examples to measure on, or more, if they take less than
_LONG = 0.05  # seconds
_RUNS = 5


def of_samples(plan: Plan) -> bool:
    """Whether nodes release sums over samples of their examples: an answer takes as long as its sample is large."""
    return any(isinstance(side, Samples) for side in plan.sides.values())


def has_deadline(prepared: Prepared, plan: Plan) -> bool:
    """Whether the answers of a deployed data side go at multiples of a deadline.

    Only noisy sums over samples do: what agents of units hand over is computed on batches of a fixed size.
    """
    wanted = prepared.experiment.deployment.release_deadline
    if not (of_samples(plan) and prepared.experiment.private) or wanted == "off":
        return False
    return wanted != "auto" or not isinstance(prepared.objective, LinearModel)


class Paced:
    """A data side, from which answers come at multiples of a deadline.

    Parameters
    ----------
    side : TimedPool
        The data side itself.
    seconds : float, optional
        Unit of which each deadline is a multiple, the least that the node can keep; by default the deadline is as
        measured.
    say : callable, optional
        Told the deadline, and of answers that missed it: for the node's own log.
    clock, wait : callable, optional
        Seconds on a steady clock, and what lets so many pass.
    """

    def __init__(
        self,
        side: TimedPool,
        seconds: float | None = None,
        *,
        say: Callable[[str], object] = lambda line: None,
        clock: Callable[[], float] = time.perf_counter,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._side, self._given, self._say, self._clock, self._wait = side, seconds, say, clock, wait
        self._measured: dict[Any, tuple[float, float]] = {}
        self._late = 0

    def admit(self, node: str, task: Any) -> Any:
        return self._side.admit(node, task)

    def amended(self, ticket: Any, task: Any) -> Any:
        return self._side.amended(ticket, task)

    def releases(self, node: str) -> int:
        return self._side.releases(node)

    def compute(self, tickets: Sequence[Any]) -> list[Answer]:
        """The answers to ``tickets``, each at its time."""
        return [self._in_time(ticket) for ticket in tickets]

    def deadline(self, ticket: Any) -> float:
        """Seconds after which the answer to ``ticket`` is given, or twice, three times as many if it is not there."""
        kind = ticket.task.work
        if kind not in self._measured:
            self._measured[kind] = before, each = self._measure(ticket)
            what = "a deadline" if self._given is None else f"{self._given:g} s, and not before"
            self._say(f"answers go at multiples of {what}: {MARGIN:g} times {before:.3g} s and {each:.3g} s an example")
        before, each = self._measured[kind]
        needed = max(LEAST, MARGIN * (before + each * self._side.provided_for(ticket)))
        if self._given is None:
            return needed
        unit = max(LEAST, self._given)
        return unit * math.ceil(needed / unit)

    def _in_time(self, ticket: Any) -> Answer:
        deadline = self.deadline(ticket)
        begun = self._clock()
        (answer,) = self._side.compute([ticket])
        missed = math.floor((self._clock() - begun) / deadline)
        due = begun + (missed + 1) * deadline
        while (left := due - self._clock()) > 0:
            self._wait(left)
        if missed:
            self._late += 1
            if math.log10(self._late).is_integer():
                self._say(f"answers that missed their deadline so far: {self._late}; this one by {missed}")
        return answer

    def _measure(self, ticket: Any) -> tuple[float, float]:
        """Seconds without examples, and for each."""
        most, count = self._side.provided_for(ticket), _FEW
        self._side.rehearse(ticket, 1)  # the first call prepares
        before = self._least(ticket, 0)
        while self._seconds(ticket, count) < _LONG and count < most:
            count = min(most, 2 * count)
        return before, max(0.0, self._least(ticket, count) - before) / count

    def _least(self, ticket: Any, count: int) -> float:
        return min(self._seconds(ticket, count) for _ in range(_RUNS))

    def _seconds(self, ticket: Any, count: int) -> float:
        begun = self._clock()
        self._side.rehearse(ticket, count)
        return self._clock() - begun


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
        Run whose training examples are this party's, all of its shard.
    plan : Plan
        Plan of the run.
    name : str
        The party.
    ledger : Ledger or None
        Opened for what the party's plan is charged, and durable; None if it is charged nothing.
    kept : Kept, optional
        State of a server or an agent of a unit; durable. Agents of masked sums need it, and without it correlated noise
        cannot go on after a restart, and is refused.
    signing : Signing, optional
        Needed by agents of masked sums, in a run that has a name.
    receipts : Receipts, optional
        Book in which receipts of the releases are noted.

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
    pool = open_pool(
        {name: side_with_queries(prepared, plan, name)}, shards, objective, data, home, trust=prepared.cast.trust
    )
    return pool if filled is None else TimedPool(pool, filled, home)


def side_with_queries(prepared: Prepared, plan: Plan, name: str) -> SidePlan:
    """Plan of what leaves party ``name``, with the queries that its node will ask at the first clip."""
    side = plan.side(name)
    if not isinstance(side, Samples):
        return side
    clipping, law = prepared.clipping, plan.mechanisms[name]

    def queries() -> tuple[Query, ...]:
        # Drawn anew: a generator takes bytes of the operating system's, and what a party takes has to stay as it is.
        first = clipping.initial(prepared.drawn_initial())
        return tuple(clipping.query(Query(kind.sampling, law, 1.0), first) for kind in side.kinds)

    return replace(side, queries=queries)


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
    sides = plan.sides.values()
    most = max(
        (side.drawn() for side in sides), key=lambda drawn: (drawn.floating_point, drawn.numbers), default=Drawn()
    )
    if of_samples(plan):
        # Updates of clients and units are shortened as a whole, whosever gradients they are made of.
        network = not isinstance(prepared.objective, LinearModel)
        late = max(_poisson_samples(side) for side in sides)
        times = Times(PUBLIC_TIMES, late) if has_deadline(prepared, plan) else Times(OPEN_TIMES)
        most = replace(most, network=network, times=times)
    # Against other observers nothing is proved, or by what members of masked sums draw.
    masked = [side.drawn() for side in sides if smallest_sum(side) is not None]
    others = max(masked, key=lambda drawn: drawn.numbers, default=Drawn())
    observer = plan.guarantee.observer
    return {who: most if found.observer == observer else others for who, found in plan.guarantees.items()}


def _poisson_samples(side: SidePlan) -> int:
    return sum(n for kind, n in (counts_of(side) or {}).items() if isinstance(kind.sampling, Poisson))
