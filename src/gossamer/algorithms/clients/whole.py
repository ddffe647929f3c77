"""Privacy of a node with all that it has: what is clipped and noised is its whole gradient, and not each example's.

An edge of `edge_cloud` then has, in the place of its lines 2 to 4,

    2. take a batch at random
    3. g = mean of gradients at x, clipped as a whole to C
    4. g~ = g + N(0, (z C)^2 I)

which is a client's update of one local step of size 1, turned round: a release of all of its data, whose proof is with
`gossamer.sides.plan.ClientUpdate`. It takes any clip that is fixed before the update is computed, so also that of a
stage, which is a function of public constants. An edge's ledger covers the updates of its quota, or as many as the
schedule without data has. So it is of a node of `gossip`, where code that is not Gossamer's may train as it likes in
the place of that step.

*Stages.* Replacing all of an edge's data moves g by 2 C at most, as an example of a batch of one does. So the stages
are those of b = 1: dS = 2 G and Delta_b = s^2 + d (z G)^2. With s of single examples that is on the safe side: the mean
of a batch is no further from the mean gradient than its examples are, in mean square, however unlike edges' data are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from gossamer.algorithms.clients import parts
from gossamer.algorithms.clients.nodes import Asks, NoisedUpdate, NoisedUpdateAtClip
from gossamer.algorithms.clients.planning import check_updates, participation_by_quota, plan_clients
from gossamer.algorithms.clients.settings import CLIENT
from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Terms
from gossamer.algorithms.plan import EXAMPLE, Plan, Problem, Spec
from gossamer.algorithms.sample_planning import plan_samples
from gossamer.files import refusals
from gossamer.privacy.clipping import QuantileClip, StageClip, bound_of
from gossamer.privacy.tasks import TrainingQuery
from gossamer.section import Composite

Unit = Annotated[
    Literal["client", "example"] | None,
    AfterValidator(lambda unit: None if unit == EXAMPLE else unit),  # nothing said is the same run
]


class WholeSettings(Composite):
    """Base of settings with a ``batch_size``, of nodes whose gradients may be clipped as a whole.

    Attributes
    ----------
    privacy_unit : {"client", "example"}, optional
        Unit that is protected. ``example``, by default: each example of a node, by a clip of its own gradient.
        ``client``: all that a node has, by a clip of the whole mean gradient that it sends; or of what a client of an
        app returns, where an app may train.
    """

    curated: ClassVar[bool] = False
    unseen: ClassVar[str] = ""
    or_trust: ClassVar[str] = ""

    privacy_unit: Unit = None
    if TYPE_CHECKING:
        batch_size: int

    @property
    def whole(self) -> bool:
        """Whether a node's gradient is clipped as a whole."""
        return self.privacy_unit == CLIENT

    @property
    def stepwise(self) -> bool:
        """Whether each gradient is a release of a sample."""
        return not self.whole

    def query(self, examples: int) -> TrainingQuery:
        """The question for a gradient that is clipped as a whole: the update of a step of size 1, but for its sign."""
        return TrainingQuery(1, self.batch_size, 1.0)

    def asks(self, examples: int) -> int:
        """Questions of a node to its data side for an update."""
        return 1


class EdgeSettings(WholeSettings):
    """Settings of edges, whatever their server does.

    Attributes
    ----------
    nodes : int
        K, the number of edges; the server is one more.
    batch_size : int
        B, the expected number of examples in a batch; an edge samples each of its n examples with probability B/n. With
        ``privacy_unit: client`` it takes B of them.
    updates_per_node : int, optional
        Quota of gradients of each edge.
    """

    name: str
    nodes: int = Field(default=5, ge=1, le=1_000_000)
    batch_size: int = Field(default=64, ge=1)
    updates_per_node: int | None = Field(default=None, ge=1, le=10_000_000)

    @property
    def divisor(self) -> int:
        """Number by which a clip is divided in a mean gradient: 1 where the mean itself is clipped."""
        return 1 if self.whole else self.batch_size


def terms(settings: WholeSettings, **more: Any) -> Terms:
    """Terms of samples' gradients, or of whole ones."""
    return replace(parts.WHOLE_UPDATES if settings.whole else Terms(), **more)


def check_whole(settings: Any, spec: Spec) -> Iterator[str]:
    """The rules that a spec with whole gradients breaks, a line each."""
    if not settings.whole:
        return
    yield from check_updates(settings, spec)
    rules = {
        "noiseless": spec.terms.noiseless,
        "l2_laplace": spec.privacy.mechanism == "l2_laplace",
        "quantile": isinstance(spec.privacy.clip, QuantileClip),
    }
    yield from refusals(__file__, rules, s=settings)


def plan(problem: Problem[Any]) -> Plan:
    """The plan of nodes whose examples are protected, or of those that are protected with all that they have."""
    if problem.settings.whole:
        return plan_clients(problem, participation_by_quota(problem))
    return plan_samples(problem)


def asks(settings: Any, context: Context) -> Asks:
    """Function that says what the data side of a node is asked for, where its gradient is clipped as a whole."""
    training = settings.query(0)
    if isinstance(context.clipping.policy, StageClip):
        return lambda task, x, log_clip: NoisedUpdateAtClip(task, x, training, bound_of(log_clip))
    return lambda task, x, log_clip: NoisedUpdate(task, x, training)


def turned_round(given: Any, update: Any) -> Any:
    """The gradient that an update is a step against."""
    return -1.0 * update
