"""SYNC: synchronous decentralised SGD with differential privacy, the baseline of A(DP)2SGD.

In each round every member k

1. samples a batch and computes g~ = sum of clipped gradients + noise at w          (at the data side)
2. w_k = w - eta g~                       (or the move that `Settings.optimizer` makes of g~)
3. takes part in a ring all-reduce: w = mean of all w_k, in 2 (K - 1) messages a node.

Everybody waits for the slowest, and at most for ``timeout``: a member that is silent for longer is left out of the
round, and comes back when it is ready (see `allreduce.member`). A round that is tried again averages the same w_k: no
gradient is computed twice, so nothing is released twice.

References
----------
Xu, Zhang and Wang, "A(DP)2SGD", Appendix A (SYNC).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, PositiveFloat

from gossamer.algorithms.allreduce.member import Enough, Probe, RingMember, RingState
from gossamer.algorithms.context import Context, updates_per_epoch
from gossamer.algorithms.interface import Algorithm, Clips, SmallRuns
from gossamer.algorithms.optimizer import ConstantRate, LearningRate, Memory, Optimizer, step
from gossamer.privacy.tasks import Gradient, Query
from gossamer.protocol.effects import Compute, Send, SetTimer
from gossamer.protocol.events import Completed, Elapsed, Refused, Resumed, Started, Stop
from gossamer.protocol.node import Effects, Node, on
from gossamer.section import Composite
from gossamer.vectors import Model


class Settings(Composite):
    """Settings of `allreduce`.

    Attributes
    ----------
    nodes : int
        K, the number of nodes.
    learning_rate : float or schedule
        eta, for the mean gradient.
    optimizer : str or mapping, optional
        Rule for what becomes of the noisy gradient; ``sgd`` takes it as it is. Each node has a memory of its own.
    timeout : float, optional
        Seconds without the chunk that is due, after which the silent are left out. None waits, except for peers
        that are known to be down.
    patience : float
        Seconds without the chunk that is due, if there is no timeout, after which the member before is asked whether it
        is there, then twice as many, and so on.
    batch_size : int
        B, the expected number of examples in a batch; a node samples each of its n examples with probability B/n.
    updates_per_node : int, optional
        Rounds.
    """

    name: Literal["allreduce"] = "allreduce"
    nodes: int = Field(default=8, ge=1, le=1_000_000)
    learning_rate: LearningRate = ConstantRate(initial=0.5)
    optimizer: Optimizer = None
    timeout: PositiveFloat | None = None
    patience: float = Field(default=60.0, ge=1e-3)
    batch_size: int = Field(default=32, ge=1)
    updates_per_node: int | None = Field(default=None, ge=1, le=10_000_000)


@dataclass
class State(RingState):
    """State of a member: that of the ring, the logarithm of its clip, the computation under way, its optimizer's."""

    log_clip: Model = field(kw_only=True)
    task: int = 0
    ends: float | None = None
    finished: str = ""
    memory: Memory | None = None


class AllreduceNode(RingMember):
    """One party: its noisy step, and its place in the ring."""

    state: State

    def __init__(self, name: str, context: Context, settings: Settings) -> None:
        self.clipping = context.clipping
        log_clip = self.clipping.initial(context.initial)
        state = State(context.initial, tuple(range(len(context.names))), log_clip=log_clip)
        super().__init__(name, state, context.names, settings.timeout, settings.patience)
        self.query: Query = context.queries[name]
        self.rate, self.optimizer = settings.learning_rate, settings.optimizer
        by_all = self.rate.by_all  # then a round counts as an update of every member
        self.epoch = updates_per_epoch(context, name, by_all=by_all) / (len(context.names) if by_all else 1)
        self.quota = context.quotas[name] if context.quotas is not None else None
        self.deadline = context.deadline

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield from self.set_deadline(now)
        yield from self.begin_round()

    def begin_round(self) -> Effects:
        """Line 1. A node that makes no more updates lends its model to the average."""
        s = self.state
        if self.quota is not None and s.round >= self.quota:
            yield from self.end("quota")
        elif s.finished:
            yield from self.contribute(s.w)
        else:
            s.task += 1
            yield Compute(Gradient(s.task, s.w, self.clipping.query(self.query, s.log_clip)))

    @on(Completed)
    def update(self, done: Completed, now: float) -> Effects:
        """Lines 2 and 3."""
        s = self.state
        if done.id == s.task and not s.finished:
            s.log_clip, gradient = self.clipping.moved(s.log_clip, done.released)
            s.memory, move = step(self.optimizer, s.memory, gradient)
            yield from self.contribute((s.w - self.rate.at(s.round / self.epoch) * move).within())

    @on(Refused)
    def refused(self, event: Refused, now: float) -> Effects:
        """The budget is spent. Where rounds are numbered, the others can go on with this node's model."""
        if self.quota is None:
            yield from self.end("budget")
        else:
            yield from self.finish("budget")
            yield from self.contribute(self.state.w)

    @on(Resumed)
    def resume(self, event: Resumed, now: float) -> Effects:
        """Set the timers again and go on; what was being computed is lost."""
        s = self.state
        if s.ends is not None:
            yield SetTimer(max(s.ends - now, 0.0), "deadline")
        if s.left_out:
            yield from self.ask_to_join()
        elif s.own is not None:
            yield from self.call_census()
        elif not s.retired:
            yield from self.begin_round()

    @on(Elapsed)
    def elapsed(self, event: Elapsed, now: float) -> Effects:
        if event.timer == "deadline":
            yield from self.end("deadline")
        else:
            yield from self.ring_timer(event.timer)

    @on(Stop)
    def stop(self, event: Stop, now: float) -> Effects:
        yield from self.end(event.reason)

    def end(self, reason: str) -> Effects:
        """No more rounds."""
        self.retire()
        yield from self.finish(reason)

    @on(Probe)
    def probed(self, sender: str, probe: Probe, now: float) -> Effects:
        if self.state.retired:
            yield Send(sender, Enough())
        yield from self.remind(sender)

    @on(Enough)
    def enough(self, sender: str, message: Enough, now: float) -> Effects:
        """The member whose chunk is due makes no more rounds, so none can end any more; its chunks came before this."""
        s = self.state
        waits = s.reduction is not None and not s.reduction.done
        if waits and s.reduction is not None and sender == self.names[s.members[s.reduction.position - 1]]:
            s.own = s.reduction = None
            yield from self.end("others have finished")


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The members, by name."""
    return {name: AllreduceNode(name, context, settings) for name in context.names}


def model_of(node: Node) -> Model:
    """The model this node would deploy: the outcome of its last round."""
    model: Model = node.state.w
    return model


def output(nodes: Mapping[str, Node]) -> Model:
    """The outcome of the newest round."""
    return model_of(max(nodes.values(), key=lambda node: int(node.state.round)))


# Nothing is claimed of the paper's synchronous baseline. That a round's outcome is the mean of its members' vectors is
# tested against the mean itself.
ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    model_of=model_of,
    output=output,
    clips=Clips(("fixed", "quantile")),
    small_runs=lambda settings: SmallRuns(
        (
            {"nodes": 3, "updates_per_node": 3},
            {"nodes": 4, "updates_per_node": 2},
            {"nodes": 6, "updates_per_node": 1},
        ),
        fitting={"batch_size": 4},
        bounded=("timeout",),
    ),
)
