"""Edge-cloud learning: `audp`, and without noise `asgd` and `csgd`.

Edge k, for ever:                                       Cloud server, for ever:

1. pull x and the clip C                                1. take the next gradient g~, first-in first-out;
2. sample a batch                                          it was computed at x_{t-tau_t}
3. g = mean of gradients clipped to C at x              2. x_{t+1} = x_t - eta_t g~
4. g~ = g + noise                                       3. answer at once with x_{t+1} (and the clip)
5. push g~                                              4. after T updates send Halt to all

(2 to 4 of an edge happen at its data side; with ``privacy_unit: client`` they are those of `clients.whole`, which
protects an edge with all that it has.) An edge joins by asking for the model, at any time, and may leave or die at
any time. The clip comes with the model, and an edge calibrates its noise to the clip it *uses*, so a server that lies
about it harms the model, not the edge's examples.

The server applies gradients first-in first-out, answers at once, and holds no data. What it does at update t (learning
rate, clip) is its *course*; `mapa` differs in nothing else. It waits for nobody, unless it keeps a bound on the
staleness, and then not for edges that are known to be away.

| name | is |
|---|---|
| `audp` | the above, with a fixed clip, or one that follows a quantile |
| `asgd` | the same without noise |
| `csgd` | that with one node, which holds all data: centralised, and nothing is ever stale |

| symbol | here |
|---|---|
| x_t | the server's `state.x`, t its `state.t` |
| eta_t | `Settings.learning_rate`; with `Settings.optimizer` the server takes its move in the place of g~ |
| tau_t | t less the version that came with the gradient; see `staleness` |
| T | ``stop.updates`` |

References
----------
MAPA paper, section 5 (AUDP, from the theory of Agarwal and Duchi, "Distributed delayed stochastic optimization", NIPS
2011) and section 7.1 (ASGD, CSGD).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat

from gossamer.algorithms import optimizer as rates
from gossamer.algorithms.clients import parts, whole
from gossamer.algorithms.clients.nodes import SERVER, Asks, ClientNode, Leave, ModelServer, Push, ServerState
from gossamer.algorithms.clients.whole import EdgeSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Algorithm, Clips, Figures, SmallRuns
from gossamer.algorithms.nodes import Probe, output
from gossamer.algorithms.optimizer import Optimizer
from gossamer.algorithms.optimizer import step as optimized
from gossamer.algorithms.plan import Plan, Problem, Spec, least_noise
from gossamer.algorithms.sample_planning import check_samples
from gossamer.errors import require_fraction, require_positive
from gossamer.privacy.accounting.accountants import advanced, simple
from gossamer.privacy.clipping import QuantileClip, bound_of
from gossamer.privacy.guarantees import Claim
from gossamer.privacy.mechanisms import NeighboringRelation, RadialNoise
from gossamer.privacy.tasks import Gradient
from gossamer.protocol.effects import CancelTimer, Record, Send, SetTimer
from gossamer.protocol.events import PeerDown, PeerUp
from gossamer.protocol.node import Effects, Node, on
from gossamer.section import Section
from gossamer.vectors import Blank, Model, Public, Released

# Limits on how old a gradient may be when it is applied.
#
# A gradient that was computed at version v of a model and is applied as update t (from 0) has staleness t - v: so many
# updates of others came between.
#
# A bound tau can be kept in two ways: gradients that are older are dropped, or updates *wait* for the oldest work under
# way. Waiting must not end in a deadlock. With at most tau + 1 pieces of work under way at once, at versions
# v_0 <= v_1 <= ..., all of them can still be applied in time, in this order, exactly if
#
#     v_i >= t + i - tau        for every i.
#
# Update t may be made with one of them if this holds of the others at t + 1. It always may with the oldest: then
# v_{i+1} >= t + i + 1 - tau is what is left to hold, and it did before. And whoever is given version t + 1 then comes
# last, as one of at most tau + 1.
#
# There may be more when somebody comes back who was given up. Then not all can be applied in time: the oldest goes
# first, and what gets too old meanwhile is dropped.


class StalenessSettings(Section):
    """Treatment of stale gradients by a server.

    Attributes
    ----------
    bound : int, optional
        The most staleness of an applied gradient.
    on_stale : {"apply", "drop", "wait"}
        ``apply``: apply it all the same, and count it. ``drop``: do not apply it; its release stays charged.
        ``wait``: hold back other updates, and models, so that no gradient gets too old; those of edges that were lost
        and come back late are dropped.
    exponent : float
        a >= 0: the learning rate is divided by (staleness + 1)^a.
    patience : float
        Seconds after which edges that others wait for are asked whether they are alive.
    """

    bound: int | None = Field(default=None, ge=0)
    on_stale: Literal["apply", "drop", "wait"] = "apply"
    exponent: float = Field(default=0.0, ge=0, le=10)
    patience: float = Field(default=10.0, ge=1e-3)

    def _problems(self) -> Iterator[str]:
        if self.on_stale != "apply" and self.bound is None:
            yield f"on_stale: {self.on_stale} needs a bound; give staleness.bound"

    @property
    def enforced(self) -> int | None:
        """The bound, where it is more than a figure to compare with."""
        return self.bound if self.on_stale != "apply" else None

    def may_apply(self, version: int, others: Iterable[int], update: int) -> bool:
        """Whether a gradient of ``version`` may be applied now, as ``update``, with ``others`` under way."""
        if self.bound is None or update - version > self.bound:
            return True  # what is too old is not waited for
        rest = [other for other in others if update - other <= self.bound]
        return feasible(rest, update + 1, self.bound) or version <= min(rest)


def feasible(versions: Collection[int], update: int, bound: int) -> bool:
    """Whether work at ``versions`` can all be applied, from ``update`` on, with a staleness of at most ``bound``."""
    return all(version >= update + i - bound for i, version in enumerate(sorted(versions)))


class AgarwalDuchiRate(rates.RateSchedule):
    """eta_t = 1 / (L (tau + 1)^2 + sqrt(Delta_b (t + 1)) / R), with Delta_b = s^2/B + max_k E||n_k||^2.

    With ``lag: linear`` it is 1 / (2 L (tau + 1) + sqrt(Delta_b (t + 1)) / R), AUDP's in the code that MAPA's authors
    published, with R = 1; their paper's own formula is lost in the text that there is.

    Attributes
    ----------
    smoothness : float
        L, a Lipschitz constant of the gradient.
    gradient_sd : float
        s, the root of the mean squared distance of one example's gradient from the mean gradient.
    radius : float
        R, of the ball in which the optimum lies.
    staleness : int, optional
        tau; by default the number of nodes less one.
    lag : {"quadratic", "linear"}
        Law by which the step falls with tau.

    References
    ----------
    Agarwal and Duchi, "Distributed Delayed Stochastic Optimization", NeurIPS 2011.
    """

    schedule: Literal["agarwal_duchi"] = "agarwal_duchi"
    smoothness: PositiveFloat
    gradient_sd: float = Field(ge=0)
    radius: PositiveFloat = 1.0
    staleness: int | None = Field(default=None, ge=0)
    lag: Literal["quadratic", "linear"] = "quadratic"

    def at_update(self, update: int, nodes: int, batch_size: int, noise: float) -> float:
        """eta_t for ``update`` (from 0) and a second moment ``noise`` of the noise on the mean."""
        lag = (nodes - 1 if self.staleness is None else self.staleness) + 1
        variance = self.gradient_sd**2 / batch_size + noise
        slow = lag**2 if self.lag == "quadratic" else 2 * lag
        return 1 / (self.smoothness * slow + math.sqrt(variance * (update + 1)) / self.radius)


ServerRate = Annotated[
    Annotated[
        rates.ConstantRate | rates.StepRate | rates.CosineRate | AgarwalDuchiRate, Field(discriminator="schedule")
    ],
    BeforeValidator(rates.from_number),
]
"""A number, or a mapping with a ``schedule``."""


TESTBED_MODEL = "cnn_mapa"
TESTBED_BATCH = 24


def testbed_rate(noiseless: bool) -> dict[str, Any]:
    """The learning rate of `audp`, or of `asgd` and `csgd`, in the code of the testbed."""
    if noiseless:
        return {"schedule": "agarwal_duchi", "smoothness": 10.0, "gradient_sd": 5.0, "radius": 50.0}
    return {"schedule": "agarwal_duchi", "smoothness": 10.0, "gradient_sd": 30.0, "radius": 1.0, "lag": "linear"}


class Settings(EdgeSettings):
    """Settings of `audp`, `asgd` and `csgd`.

    Attributes
    ----------
    name : {"audp", "asgd", "csgd"}
        Name: with noise, without, and without by one node that holds all data.
    paper : {"testbed"}, optional
        ``testbed``: batch size and learning rate are those of the code of the MAPA paper's testbed, where nothing else
        is said. For ``objective: cnn_mapa`` alone. Noise and clip are said in ``privacy``.
    learning_rate : float or schedule
        eta, for the mean gradient. Epochs are those of all edges together.
    optimizer : str or mapping, optional
        Optimizer of the server, for noisy gradients; ``sgd`` takes them as they are.
    staleness : mapping
        Treatment of stale gradients by the server.
    """

    name: Literal["audp", "asgd", "csgd"] = "audp"
    paper: Literal["testbed"] | None = None
    learning_rate: ServerRate = rates.ConstantRate(initial=0.5)
    optimizer: Optimizer = None
    staleness: StalenessSettings = StalenessSettings()

    @classmethod
    def _implied(cls, said: Mapping[str, Any]) -> Mapping[str, Any]:
        found: dict[str, Any] = {"nodes": 1} if said.get("name") == "csgd" else {}
        if said.get("paper") == "testbed":
            found |= {"batch_size": TESTBED_BATCH, "learning_rate": testbed_rate(said.get("name", "audp") != "audp")}
        return found

    def _problems(self) -> Iterator[str]:
        if self.name == "csgd" and self.nodes != 1:
            yield f"csgd is centralised, so nodes must be 1, found {self.nodes}; or take asgd"
        if isinstance(self.learning_rate, rates.EpochRate) and self.learning_rate.clock == "own":
            yield (
                f"learning_rate.clock: the server of {self.name} counts the updates of all edges, which is global, "
                "found own; leave it out"
            )


@dataclass(frozen=True)
class Step:
    """Part of a course that holds for one update.

    Attributes
    ----------
    learning_rate : float
        eta_t, for the mean gradient.
    stage : int
        Number of the stage.
    clip : float or None
        Clip of the stage; None where something else decides it.
    values : mapping of str to float
        Values that the stage follows from, to be recorded when it begins.
    """

    learning_rate: float
    stage: int = 0
    clip: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)


Course = Callable[[int], Step]
"""Function of an update (from 0): what holds for it. It is pure, of public constants."""


@dataclass(kw_only=True)
class CloudState(ServerState):
    """State of the server.

    ``working`` has the version that each edge computes at; ``held`` has gradients that came and wait to be applied, and
    ``queue`` requests that wait for a model, both in order of arrival. Those of edges that are ``away`` wait on.
    """

    log_clip: Model
    stage: int = -1
    working: dict[str, int] = field(default_factory=dict)
    held: dict[str, tuple[int, int, Any]] = field(default_factory=dict)
    queue: dict[str, int] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    dropped: int = 0
    probing: bool = False


class ServerNode(ModelServer):
    """The cloud server: the model x_t, and who works at which version of it."""

    state: CloudState
    nobody = "all edges left"

    def __init__(
        self, context: Context, course: Course, staleness: StalenessSettings, optimizer: Optimizer = None
    ) -> None:
        clip = context.clipping.initial(context.initial)
        super().__init__(CloudState(x=context.initial, log_clip=clip), context)
        self.course, self.staleness, self.optimizer = course, staleness, optimizer
        counted = isinstance(self.clipping.policy, QuantileClip)
        self.expected = Public(Blank(context.initial.size + counted, context.initial.values.dtype))

    def begin(self) -> Effects:
        self.state.probing = False  # timers are gone after an absence
        yield from self.enter()
        yield from self.watch()

    def answer(self, edge: str, request: int) -> Effects:
        """Have an edge that comes, or comes back, wait for a model: what it was computing is lost."""
        s = self.state
        s.working.pop(edge, None)
        s.queue[edge] = request
        yield from self.go_on()

    def go_on(self) -> Effects:
        """Apply, first-in first-out, what may be applied, and answer who waits for a model."""
        yield from self.serve()
        while (edge := next(filter(self.due, self.state.held), None)) is not None and not self.state.finished:
            yield from self.take(edge)
            yield from self.serve()
        yield from self.watch()

    def serve(self) -> Effects:
        """Answer who waits for a model, as far as the bound on the staleness permits."""
        s = self.state
        stale = self.staleness
        most = stale.bound + 1 if stale.on_stale == "wait" and stale.bound is not None else None
        for edge, request in list(s.queue.items()):
            if edge in s.away:
                continue
            if not s.finished:
                if most is not None and len(s.working) + len(s.held) >= most:
                    return
                s.working[edge] = s.t
            yield from super().answer(edge, request)
            del s.queue[edge]

    def came(self, sender: str, push: Push, stale: int) -> Effects:
        s = self.state
        s.working.pop(sender, None)
        s.held[sender] = (push.request, push.version, push.update)
        yield from self.go_on()

    def take(self, edge: str) -> Effects:
        """Apply what ``edge`` pushed, or drop it; either way the edge is to get another model."""
        s = self.state
        request, version, gradient = s.held.pop(edge)
        bound, stale = self.staleness.enforced, s.t - version
        if bound is not None and stale > bound:
            s.dropped += 1
            yield Record("dropped_staleness", float(stale))
        else:
            yield from self.apply(gradient, stale)
        if edge not in s.working and edge not in s.queue and edge not in s.left:
            s.queue[edge] = request

    def due(self, edge: str) -> bool:
        s = self.state
        if self.staleness.on_stale != "wait":
            return True
        others = [*s.working.values(), *(version for other, (_, version, _) in s.held.items() if other != edge)]
        return self.staleness.may_apply(s.held[edge][1], others, s.t)

    def apply(self, gradient: Released, stale: int) -> Effects:
        """x_{t+1} = x_t - eta_t g~, with g~ a gradient at x_{t - stale}, or the optimizer's move."""
        s = self.state
        s.log_clip, step = self.clipping.moved(s.log_clip, gradient)
        s.memory, move = optimized(self.optimizer, s.memory, step)
        rate = self.course(s.t).learning_rate / (stale + 1) ** self.staleness.exponent
        s.x = (s.x - rate * move).within()
        s.t += 1
        s.note(stale)
        yield from self.enter()
        if s.t == self.last:
            yield from self.end("updates")

    def enter(self) -> Effects:
        """Begin the stage of update t, if it is another one."""
        s = self.state
        step = self.course(s.t)
        if step.stage == s.stage:
            return
        s.stage = step.stage
        if step.clip is not None:
            s.log_clip = self.clipping.initial(s.x, step.clip)
        for name, value in step.values.items():
            yield Record(f"stage.{name}", value)

    @on(Leave, by="clients")
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        self.state.left.add(sender)
        self.state.queue.pop(sender, None)
        yield from self.forget(sender)
        yield from super().leaves(sender, leave, now)

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        """Nobody waits for it. If it waits for a model itself, it gets one when it is back."""
        self.state.away.add(event.peer)
        yield from self.forget(event.peer)

    @on(PeerUp)
    def peer_up(self, event: PeerUp, now: float) -> Effects:
        self.state.away.discard(event.peer)
        yield from self.go_on()

    def forget(self, edge: str) -> Effects:
        """Wait for ``edge`` no longer. What it pushed is still applied."""
        self.state.working.pop(edge, None)
        yield from self.go_on()

    def watch(self) -> Effects:
        """Find out after a while, where edges wait for others, whether those are alive."""
        s = self.state
        blocked = bool(s.held or s.queue.keys() - s.away) and not s.finished
        if blocked and not s.probing:
            yield SetTimer(self.staleness.patience, "probe")
        elif s.probing and not blocked:
            yield CancelTimer("probe")
        s.probing = blocked

    def rang(self, timer: str) -> Effects:
        self.state.probing = False
        for edge in sorted(self.state.working):
            yield Send(edge, Probe())
        yield from self.watch()


def noise_on_mean(context: Context, clip: float | None = None, *, whole: bool = False) -> float:
    """max_k E||n_k||^2, of the noise on a mean gradient, for ``clip`` or the one at the start.

    Per edge: the schedule uses the one with the most noise, that is the smallest privacy budget.
    """
    moments = []
    for query in context.queries.values():
        law = query.mechanism if clip is None else query.mechanism.with_clip(clip)
        moments.append(law.second_moment(context.initial.size) / (1.0 if whole else query.normaliser) ** 2)
    return max(moments)


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The edges by name, and the server."""
    per_epoch = sum(context.shard_sizes.values()) / settings.batch_size
    policy = context.clipping.policy
    # A clip that moves: no step is noisier than with its bound.
    clip = policy.step_bound if isinstance(policy, QuantileClip) else None
    noise, rate = noise_on_mean(context, clip, whole=settings.whole), settings.learning_rate

    def course(update: int) -> Step:
        """A fixed clip, or one that follows a quantile, and a learning rate by the clock of updates."""
        if isinstance(rate, AgarwalDuchiRate):
            return Step(rate.at_update(update, settings.nodes, settings.divisor, noise))
        return Step(rate.at(update / per_epoch))

    return built(settings, context, course, settings.optimizer)


def built(settings: Any, context: Context, course: Course, optimizer: Optimizer = None) -> dict[str, Node]:
    """The edges by name, and a server that takes the steps of ``course``."""

    def edge(name: str) -> Node:
        if settings.whole:
            return ClientNode(name, context, whole.asks(settings, context), whole.turned_round, follows=True)
        return ClientNode(name, context, _asks(context, name), follows=True)

    edges = {name: edge(name) for name in context.names}
    return {**edges, SERVER: ServerNode(context, course, settings.staleness, optimizer)}


def _asks(context: Context, name: str) -> Asks:
    """Function that says what an edge's data side is asked for: lines 2 to 4, at what is the clip now."""
    query, clipping = context.queries[name], context.clipping
    return lambda task, x, log_clip: Gradient(task, x, clipping.query(query, log_clip))


def count(nodes: Mapping[str, Node]) -> int:
    """Number of updates that the server has applied."""
    return int(nodes[SERVER].state.t)


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Report on how stale gradients were, and what became of them."""
    state = nodes[SERVER].state
    made = {"updates_applied": state.t, "updates_dropped": state.dropped}
    return {**made, **state.staleness(state.t), "last_clip": bound_of(state.log_clip)}


# Privacy claims of MAPA: Remark 4 and the composition that follows it.
#
# | symbol | here |
# |---|---|
# | epsilon | ``epsilon_per_release``: sensitivity over the scale of the noise's norm, on a batch |
# | T | ``releases`` |
#
# **What holds.** One iteration is epsilon-DP if every *per-example* gradient is clipped, if the noise's norm is drawn
# from Gamma(d), and if epsilon is relative to the sensitivity of the relation that is meant: 2 G/b under replace-one.
# Then both figures are true, and loose:
#
# - An example is at one edge server, which makes some of the T releases; T epsilon charges it for all of them.
# - Batches are samples, which amplifies; the paper does not use it.
# - A per-release epsilon is a poor description of the noise in d dimensions: its own privacy loss is close to that of
#   Gaussian noise with mu = epsilon/sqrt(d) (`gossamer.privacy.pairs`).
#
# **What does not hold.**
#
# - The paper writes that noise "with the norm's density" exp(-epsilon |n|/S) is drawn. An *exponential* norm is not
#   epsilon-DP for d > 1: it is the vector's density that has this form, and its norm is Gamma(d, S/epsilon).
# - Its experiments noise the gradient of the first convolution only and call the rest post-processing. The other
#   layers' gradients come from the same data, so nothing at all is guaranteed then.
# - Clipping the batch's *mean* to G, with one example moving it by 2 G/b, is no bound: a clipped mean moves by up to
#   2 G.
# - Moments accounting of Gaussian noise, which the paper names next to advanced composition, is about another
#   mechanism.
#
# References
# ----------
# "Asynchronous Federated Learning with Differential Privacy for Edge Intelligence" (MAPA), Section 4, Remark 4 and the
# paragraph after it. Advanced composition: Dwork and Roth, "The algorithmic foundations of differential privacy", 2014,
# Theorem 3.20, which the paper cites.

REMARK4 = "MAPA, Remark 4"
SIMPLE = "MAPA, Remark 4, simple composition"
ADVANCED = "MAPA, Remark 4, advanced composition"


def mapa_claims(
    epsilon_per_release: float, releases: int, delta: float, *, conditions_hold: bool = True
) -> list[Claim]:
    """Claims of the paper for ``releases`` iterations, each with noise for ``epsilon_per_release``.

    Parameters
    ----------
    epsilon_per_release : float
        Epsilon of the noise on one batch.
    releases : int
        The number T of iterations; nothing is claimed of none.
    delta : float
        Delta at which advanced composition is stated. The other two have delta 0.
    conditions_hold : bool
        Whether the noise is what the statement is about: of a Gamma norm, on all coordinates.

    Returns
    -------
    list of Claim
        Each iteration; all of them by simple composition; all of them by advanced composition.

    Raises
    ------
    SpecError
        epsilon_per_release is not positive, or delta is not in (0, 1).
    """
    require_positive(epsilon_per_release=epsilon_per_release)
    require_fraction(delta=delta)
    if releases == 0:
        return []
    single, total = epsilon_per_release, simple(epsilon_per_release, releases)
    sublinear = advanced(single, releases, delta)
    failing, otherwise = ("", "") if conditions_hold else (", which it is not here", ", if one were private")
    once = f"of one iteration, if each per-example gradient is clipped and the noise's norm is Gamma(d){failing}"
    order = f"{'below' if sublinear < total else 'not below'} the sum of {releases} iterations, {total:.4g}{otherwise}"
    return [
        Claim(REMARK4, single, 0.0, conditions_hold, once),
        Claim(SIMPLE, total, 0.0, conditions_hold, f"{releases} iterations add up{otherwise}"),
        Claim(ADVANCED, sublinear, delta, conditions_hold, order),
    ]


def claims(problem: Problem[Any], plan: Plan) -> list[Claim]:
    """Claims of the paper for each release, and for all of them together."""
    law = least_noise(problem, plan)
    if not isinstance(law, RadialNoise):
        return []
    # The paper's epsilon is that of replacing an example, which moves a sum by 2C.
    epsilon = NeighboringRelation.REPLACE_ONE.sensitivity(law.clip) / law.scale
    return mapa_claims(epsilon, plan.updates, problem.spec.delta, conditions_hold=law.private)


def check(settings: Any, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each."""
    yield from check_samples(settings, spec)
    yield from whole.check_whole(settings, spec)
    if settings.paper is not None and settings.whole:
        yield (
            f"algorithm.paper: {settings.paper} has constants for gradients of single examples, found privacy_unit: "
            "client; leave one of the two out"
        )
    if settings.paper is not None and spec.objective.name != TESTBED_MODEL:
        found = spec.objective.name or spec.objective.module or "the model that goes with the data"
        yield (
            f"algorithm.paper: {settings.paper} has constants for objective: {TESTBED_MODEL}, found {found}; take that "
            "model, or leave paper out and give constants that fit"
        )


def small_runs(settings: Any) -> SmallRuns:
    """Few edges, or the one of `csgd`."""
    sizes = ({"nodes": 1, "updates_per_node": 4},) if settings.name == "csgd" else parts.SMALL
    return SmallRuns(sizes, fitting={"batch_size": 4})


# That the server's model is the sum of its steps is tested against a reference.
ALGORITHM: Algorithm[Any] = Algorithm(
    Settings=Settings,
    build=build,
    output=output,
    roles=("edge", "server"),
    cast=parts.cast,
    terms=lambda settings: whole.terms(settings, noiseless=settings.name != "audp"),
    check=check,
    plan=whole.plan,
    clips=Clips(("fixed", "quantile"), QuantileClip()),
    figures=Figures(count=count, staleness=parts.staleness, report=report, claims=claims),
    grows=True,
    small_runs=small_runs,
)
