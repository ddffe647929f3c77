"""MAPA's stages, and ``gossamer plan mapa``: how clip, learning rate and length of a stage follow from each other.

With G the clip, b the batch size and n the noise on the *mean* gradient, a stage has

    Delta_b = s^2/b + max_k E||n_k||^2
    P       = max(1, 2 Delta_b / ((tau + 1) rho^2 G^2))
    eta     = 1 / (2 L P (tau + 1))
    T_s     = ceil(4 P^2 L D_F (tau + 1)^2 / Delta_b)

and the next stage has rho times the clip. With P > 1, the bound sqrt(2 Delta_b / (P (tau + 1))) on the gradient norm
that the stage ends with is rho G, which is what the next stage clips at.

Nothing here may depend on private data: s, L and D_F are public, or were released.

**Noise that a budget needs** where the number of releases follows from the noise, as it does in MAPA's stages.

More noise makes the stages longer, and longer stages release more. What is looked for is a fixed point: the least noise
multiplier z at which the T(z) updates of the stages meet the budget. There may be none, because T grows with z^2 while
epsilon falls with sqrt(T)/z: beyond some noise nothing is gained.

T does not always grow with z: where P = 1, noise shortens a stage. So the search does not iterate T -> z(T) -> T(z),
which would need that, but looks for the least z whose own plan meets the budget. What it returns always does; that no
smaller z does rests on epsilon falling with z, as it does because T/z^2 falls in every stage, up to the rounding of T.

**Bounds that MAPA's convergence theory states:** Theorem 2 of AUDP, Theorem 4 of a constant step.

They are claims of a theory, and guarantee nothing: gradients are taken to be unclipped, unbiased and of the variance
Delta_b = s^2/B + max_k E||n_k||^2, and F to be smooth; for Lemma 1 and Theorem 2 also convex.

The paper's own formulas are lost in the text that there is. What stands here follows from its proofs' steps, which are
there (appendix A), so constants may differ from what was printed. With y = x_{t-tau}, D_t = E||x_t - x*||^2, e_t the
noise of the gradient, and delta_t = E||x_{t+1} - x_t||^2:

    F(x_{t+1}) - F*     <= <grad F(y), x_{t+1} - x*> + L/2 ||x_{t+1} - y||^2        convex and smooth (Lemma 2)
    ||x_{t+1} - y||^2   <= (tau + 1) sum of ||x_{s+1} - x_s||^2, s = t - tau .. t
    E<g, x_{t+1} - x*>   = (D_t - D_{t+1} - delta_t) / (2 eta_t)
    E<-e_t, x_{t+1} - x*> <= c_t Delta_b / 2 + delta_t / (2 c_t)                    for any c_t > 0

With 1/eta_t = L (tau + 1)^2 + 1/c_t all delta_t cancel in the sum over t, which is Lemma 1:

    sum_t E F(x_{t+1}) - F*  <=  R^2 / (2 eta_last) + Delta_b / 2 sum_t c_t         if D_t <= R^2 and eta never grows

References
----------
MAPA, sections 5.2 and 6 and appendix A: Theorem 3 (first sensitivity), Theorem 4 (convergence), Algorithm 1 (cloud
server, lines 6-16). Agarwal and Duchi, "Distributed delayed stochastic optimization", NIPS 2011. Lian, Huang, Li and
Liu, "Asynchronous parallel stochastic gradient for nonconvex optimization", NIPS 2015, Theorem 1, of which Theorem 4 is
the case of one worker's gradient an update.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple

from gossamer.algorithms.command import AcceptWeak, Answer, Bounded, Command, Doing, Option, refuse
from gossamer.errors import AccountingError, BudgetUnreachable, CallerError, SpecError, counted, require_positive
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.accountants import compositions
from gossamer.privacy.accounting.planner import LEAST_MULTIPLIER, MOST_MULTIPLIER, gaussian_releases
from gossamer.privacy.accounting.renyi import check_delta, check_epsilon
from gossamer.privacy.guarantees import remarks
from gossamer.privacy.mechanisms import BatchSampling, L2Laplace, NeighboringRelation, Poisson, ReleaseKind

Moment = Callable[[float], float]
"""E||n||^2 of the noise on the mean gradient, as a function of the clip G; the largest over the edge servers."""

MOST_UPDATES = 2**63 - 1
"""A stage that takes more updates than this never ends; it is given this length, and no stage follows it."""


@dataclass(frozen=True)
class Problem(Bounded):
    """Constants that the stages are computed from; public, every bit of them.

    Attributes
    ----------
    gradient_sd : float
        s: the root of the mean squared distance of one example's gradient from the mean gradient, in L2 norm.
    smoothness : float
        L, a Lipschitz constant of the gradient.
    loss_gap : float
        D_F, an upper bound of F(x_0) - F*.
    staleness : int
        tau, the most updates of others between the pulling of a model and the applying of its gradient.
    batch_size : int
        b, the number that sums of gradients are divided by.
    kappa : float
        Number in (0, 1), the probability with which the first clip is too small for a gradient (Theorem 3).
    reduction : float
        rho in (0, 1), by which the clip is multiplied from stage to stage.

    Raises
    ------
    SpecError
        If a number is out of its range.
    """

    gradient_sd: Annotated[float, Option("s, of one example's gradient, in L2 norm", "S", gt=0)]
    smoothness: Annotated[float, Option("Lipschitz constant of the gradient", "L", gt=0)]
    loss_gap: Annotated[float, Option("upper bound of F(x_0) - F*", "F", gt=0)]
    staleness: Annotated[int, Option("most updates between pull and use of a model", "TAU", ge=0)]
    batch_size: Annotated[int, Option("b, examples in a mini-batch", "B", ge=1)]
    kappa: Annotated[float, Option("failure probability of the first clip", None, gt=0, lt=1)] = 0.1
    reduction: Annotated[float, Option("of the clip, a stage", "RHO", gt=0, lt=1)] = 0.5


@dataclass(frozen=True)
class Stage:
    """One stage of the schedule.

    Attributes
    ----------
    sensitivity : float
        dS = 2 G/b: how far the mean gradient moves, in L2 norm, when one example is replaced.
    clip : float
        G, the most L2 norm of a per-example gradient.
    noise_second_moment : float
        max_k E||n_k||^2 of the noise on the mean gradient.
    penalty : float
        P >= 1, by which the learning rate is lowered so that the stage reaches rho G.
    learning_rate : float
        eta, for the mean gradient.
    updates : int
        T_s, of the server; `MOST_UPDATES` stands for a stage without end.
    """

    sensitivity: float
    clip: float
    noise_second_moment: float
    penalty: float
    learning_rate: float
    updates: int


def initial_clip(problem: Problem) -> float:
    """G = b dS/2 of the first stage, with dS = 2 s / (b sqrt(1 - sqrt(1 - kappa))) (Theorem 3)."""
    # kappa / (1 + sqrt(1 - kappa)) is 1 - sqrt(1 - kappa), without the cancellation at small kappa.
    return problem.gradient_sd / math.sqrt(problem.kappa / (1 + math.sqrt(1 - problem.kappa)))


def stages(problem: Problem, noise_second_moment: Moment, clip: float | None = None) -> Iterator[Stage]:
    """The stages in order, computed as they are asked for.

    Parameters
    ----------
    problem : Problem
        The public constants.
    noise_second_moment : callable
        E||n||^2 of the noise on the mean gradient for a clip G, such as `gaussian_second_moment` makes.
    clip : float, optional
        G of the first stage; by default `initial_clip`.

    Yields
    ------
    Stage
        Without end, unless one takes more than `MOST_UPDATES`: that one is the last.

    Raises
    ------
    SpecError
        If a clip, the variance of the noisy gradient or a learning rate is zero or infinite in floating point.
    """
    stage = _stage(problem, noise_second_moment, initial_clip(problem) if clip is None else clip)
    yield stage
    while stage.updates < MOST_UPDATES:
        stage = _stage(problem, noise_second_moment, problem.reduction * stage.clip)
        yield stage


def _stage(problem: Problem, noise_second_moment: Moment, clip: float) -> Stage:
    """Lines 6-8 of the cloud server."""
    goal = _square(problem.reduction * clip)
    if not 0 < goal < math.inf:
        raise SpecError(f"a stage needs a finite clip above 1e-150, found {clip:.4g}; change the clip or gradient_sd")
    moment = noise_second_moment(clip)
    variance = _square(problem.gradient_sd) / problem.batch_size + moment  # Delta_b
    if not (moment >= 0 and 0 < variance < math.inf):
        raise SpecError(
            f"the noisy gradient needs a finite variance > 0, found {variance:.4g} at clip {clip:.4g}, of which "
            f"{moment:.4g} is noise; change gradient_sd, the clip or the noise"
        )
    lag = problem.staleness + 1
    penalty = max(1.0, 2 * variance / (lag * goal))
    steepness = 2 * problem.smoothness * penalty * lag
    if not 1e-300 < steepness < math.inf:
        raise SpecError(f"the learning rate 1/{steepness:.4g} is zero or infinite; change smoothness or the noise")
    updates = 4 * _square(penalty) * problem.smoothness * problem.loss_gap * _square(lag) / variance
    return Stage(
        sensitivity=2 * clip / problem.batch_size,
        clip=clip,
        noise_second_moment=moment,
        penalty=penalty,
        learning_rate=1 / steepness,
        updates=max(1, math.ceil(updates)) if updates < MOST_UPDATES else MOST_UPDATES,
    )


def gaussian_second_moment(size: int, noise_multiplier: float, batch_size: int) -> Moment:
    """d (z G/b)^2, of normal noise of standard deviation z G/b in each of d coordinates of the mean.

    ``noise_multiplier`` is relative to the clip, as in `gossamer.privacy.mechanisms.Gaussian`.
    """
    return partial(_scaled_square, size, noise_multiplier / batch_size)


def l2_laplace_second_moment(size: int, epsilon: float, batch_size: int, relation: NeighboringRelation) -> Moment:
    """d (d + 1) dS^2 / epsilon^2, of noise whose norm is Gamma(shape d, scale dS/epsilon).

    dS is the sensitivity of the mean under ``relation``: 2 G/b under replace-one, as in the paper.
    """
    return partial(_scaled_square, size * (size + 1), relation.sensitivity(1.0) / batch_size / epsilon)


def _scaled_square(factor: int, scale: float, clip: float) -> float:
    return factor * _square(scale * clip)


def _square(number: float) -> float:
    return number * number  # infinite where ** would raise


class Schedule:
    """Stages of updates, for a server that counts its updates.

    Parameters
    ----------
    problem : Problem
        The public constants.
    moment : callable
        E||n||^2 of the noise on the mean gradient for a clip G.
    clip : float, optional
        G of the first stage; by default `initial_clip`.

    Raises
    ------
    SpecError
        As `stages`, here for the first stage and in the methods for later ones.
    """

    def __init__(self, problem: Problem, moment: Moment, clip: float | None = None) -> None:
        self.problem = problem
        self.moment = moment
        self._stages = [next(stages(problem, moment, clip))]
        self._ends = [self._stages[0].updates]  # updates up to the end of each stage

    def at(self, update: int) -> tuple[int, Stage]:
        """The stage of an update, and its number.

        Parameters
        ----------
        update : int
            Number of updates made before it: t in x_{t+1} = x_t - eta g, from 0.

        Returns
        -------
        int, Stage
            Stages are numbered from 1.
        """
        if update < 0:
            raise SpecError(f"updates are numbered from 0, found {update}")
        while self._ends[-1] <= update and self._stages[-1].updates < MOST_UPDATES:
            stage = _stage(self.problem, self.moment, self.problem.reduction * self._stages[-1].clip)
            self._stages.append(stage)
            self._ends.append(self._ends[-1] + stage.updates)
        number = min(bisect_right(self._ends, update) + 1, len(self._stages))
        return number, self._stages[number - 1]

    def lengths(self, updates: int) -> list[Stage]:
        """The stages that a run of ``updates`` updates enters, the last one perhaps not to its end."""
        return self._stages[: self.at(updates - 1)[0]] if updates > 0 else []


MOST_PLANNED = 10**9
"""No epsilon is computed for more updates than this."""

_PRECISION = 5e-4  # relative, of the multiplier
_FAR = 10.0  # times the budget
_MOST_LOSS = 1e3  # of privacy


@dataclass(frozen=True)
class StagePlan:
    """Stages, and what they cost an edge.

    Attributes
    ----------
    stages : tuple of Stage
        Stages in order.
    updates : int
        T, the server's updates in all stages.
    releases : int
        Number of them that one edge is charged for.
    """

    stages: tuple[Stage, ...]
    updates: int
    releases: int


class CalibratedStages(NamedTuple):
    """The least noise that meets a budget, and the stages that go with it.

    Attributes
    ----------
    noise_multiplier : float
        z: standard deviation of the noise on a sum, over the clip.
    epsilon : float
        Epsilon proved for the plan's releases; never above the budget.
    plan : StagePlan
        The stages at that noise.
    """

    noise_multiplier: float
    epsilon: float
    plan: StagePlan


def plan_stages(
    problem: Problem, moment: Moment, count: int, nodes: int | None = None, clip: float | None = None
) -> StagePlan:
    """The first ``count`` stages, each to its end.

    Parameters
    ----------
    problem, moment, clip
        Arguments as for `stages`.
    count : int
        Number of stages, at least 1.
    nodes : int, optional
        K edges that take strict turns: each is charged for ceil((T + K - 1)/K) releases, since K - 1 are under way when
        update T is made. By default one edge is charged for all T, which holds for every edge in whatever order they
        come, as long as nothing is dropped and nobody crashes.

    Raises
    ------
    SpecError
        If a stage takes more than `MOST_UPDATES` updates.
    """
    plan = _plan(problem, moment, count, nodes, clip)
    if plan.stages[-1].updates >= MOST_UPDATES:
        number = len(plan.stages)
        advice = f"plan at most {number - 1} stages" if number > 1 else "give less noise or a larger initial clip"
        raise SpecError(f"stage {number} would take more than 2^63 - 1 updates; {advice}")
    return plan


def _plan(problem: Problem, moment: Moment, count: int, nodes: int | None, clip: float | None) -> StagePlan:
    found = tuple(islice(stages(problem, moment, clip), count))
    updates = sum(stage.updates for stage in found)
    return StagePlan(found, updates, -(-(updates + nodes - 1) // nodes) if nodes else updates)


def gaussian_epsilon(
    releases: int, noise_multiplier: float, delta: float, relation: NeighboringRelation, sampling: BatchSampling
) -> float:
    """Epsilon proved for so many Gaussian releases; the clip may be another one in each.

    Raises
    ------
    AccountingError
        If there are more than `MOST_PLANNED`, delta is not inside (0, 1), or no accountant covers the sampling.
    """
    if releases > MOST_PLANNED:
        raise AccountingError(
            f"epsilon is computed for at most 10^9 releases, found {releases}; plan fewer stages or leave delta out"
        )
    return accountants.epsilon(gaussian_releases(noise_multiplier, {sampling: releases}), delta, relation).epsilon


def l2_laplace_epsilons(
    releases: int, epsilon: float, size: int, delta: float, relation: NeighboringRelation, sampling: BatchSampling
) -> dict[str, float]:
    """Epsilons of so many L2-Laplace releases at ``delta``, by each way of composing them (`compositions`).

    None where there are more than `MOST_PLANNED`, or so much is lost in them that no number means anything: what is
    computed grows with it.

    Parameters
    ----------
    releases : int
        Number of releases.
    epsilon : float
        Epsilon of one release, on its batch.
    size : int
        d, the number of parameters.
    delta : float
        Probability, in (0, 1).
    relation : NeighboringRelation
        Relation of ``epsilon``, and of the totals.
    sampling : BatchSampling
        Scheme by which batches are drawn.
    """
    gaussian = epsilon**2 * releases / size / 2  # about the mean loss of all, without sampling
    if releases > MOST_PLANNED or gaussian > _MOST_LOSS:
        return {}
    kind = ReleaseKind(L2Laplace(1.0, epsilon, relation), sampling, size)
    return compositions(kind, releases, delta, relation)


def calibrate_stages(
    problem: Problem,
    size: int,
    count: int,
    budget: tuple[float, float],
    relation: NeighboringRelation,
    sampling: BatchSampling,
    nodes: int | None = None,
    clip: float | None = None,
) -> CalibratedStages:
    """The least noise multiplier, to 0.1 %, with which the stages it makes meet the budget.

    Parameters
    ----------
    problem, clip
        Arguments as for `stages`.
    size : int
        d, the number of parameters.
    count : int
        Number of stages.
    budget : (float, float)
        Epsilon and delta, for each edge's examples.
    relation : NeighboringRelation
        Relation of the budget.
    sampling : BatchSampling
        Scheme by which the edge that is sampled most densely, the one with the fewest examples, draws its batches.
    nodes : int, optional
        Number of nodes, as for `plan_stages`.

    Raises
    ------
    AccountingError
        If epsilon is not positive, delta not inside (0, 1), or no accountant covers the sampling scheme.
    BudgetUnreachable
        If no multiplier up to `MOST_MULTIPLIER` does, with at most `MOST_PLANNED` updates.
    """
    epsilon, delta = budget
    check_epsilon(epsilon)
    check_delta(delta)

    def planned(noise: float) -> StagePlan:
        return _plan(problem, gaussian_second_moment(size, noise, problem.batch_size), count, nodes, clip)

    def spent(noise: float) -> float:
        """Epsilon of the stages that this noise makes; infinite where it is far above the budget."""
        plan = planned(noise)
        if plan.updates > MOST_PLANNED:
            return math.inf
        # Huge epsilons take a lot of memory to compute, and part of the releases never costs more than all of them.
        for part in range(3, int(math.log10(plan.releases)) + 1):
            if gaussian_epsilon(10**part, noise, delta, relation, sampling) > _FAR * epsilon:
                return math.inf
        return gaussian_epsilon(plan.releases, noise, delta, relation, sampling)

    tried = [LEAST_MULTIPLIER]
    while spent(tried[-1]) > epsilon:
        if tried[-1] >= MOST_MULTIPLIER:
            best = min(tried, key=spent)
            found = (
                f"the least epsilon found is {spent(best):.4g}, at noise multiplier {best:g} and "
                f"{planned(best).updates:.4g} updates"
                if spent(best) < math.inf
                else f"with at most {MOST_PLANNED:.0e} updates epsilon is always more than {_FAR:g} times that"
            )
            raise BudgetUnreachable(
                f"no noise meets epsilon {epsilon:g} at delta {delta:g}: more noise makes stages longer, and longer "
                f"stages release more; {found}; plan fewer stages or a larger budget, or have more examples"
            )
        tried.append(min(2 * tried[-1], MOST_MULTIPLIER))
    low, high = tried[-2:] if len(tried) > 1 else tried * 2
    while high / low > 1 + _PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return CalibratedStages(high, spent(high), planned(high))


def variance_of(problem: Problem, stage: Stage) -> float:
    """Delta_b = s^2/b + max_k E||n_k||^2 of a stage."""
    return problem.gradient_sd**2 / problem.batch_size + stage.noise_second_moment


def theorem_2(problem: Problem, stage: Stage, updates: int, radius: float) -> float:
    """Bound the mean of E F(x_t) - F* with AUDP's step 1/(L (tau + 1)^2 + sqrt(Delta_b (t + 1))/R) (MAPA, Theorem 2).

    Lemma 1 with c_t = R/sqrt(Delta_b (t + 1)), whose sum is at most 2 R sqrt(T/Delta_b):
    L R^2 (tau + 1)^2/(2 T) + 3/2 R sqrt(Delta_b/T).

    Parameters
    ----------
    problem : Problem
        Constants of F, which is convex.
    stage : Stage
        Stage whose clip, and so whose noise, is kept.
    updates : int
        T.
    radius : float
        R: no model is further from the optimum than this, in root mean square.
    """
    require_positive(radius=radius, updates=updates)
    lag = problem.smoothness * radius**2 * (problem.staleness + 1) ** 2 / (2 * updates)
    return lag + 1.5 * radius * math.sqrt(variance_of(problem, stage) / updates)


def theorem_4(problem: Problem, stage: Stage) -> float:
    """Bound the mean of E||grad F(x_t)||^2 over a stage, whose step is constant (MAPA, Theorem 4, Eq. 14).

    2 D_F/(eta T) + 2 L eta Delta_b, of which the second term is the ball's: at eta = 1/(2 L P (tau + 1)) it is
    Delta_b/(P (tau + 1)), as in section 6.2. F need not be convex. It follows from Lian et al., whose second term is
    eta L Delta_b (1 + 2 L tau eta), and 2 L tau eta <= 1, as eta is 1/(2 L (tau + 1)) at most (Eq. 13).
    """
    rate = stage.learning_rate
    return 2 * problem.loss_gap / (rate * stage.updates) + 2 * problem.smoothness * rate * variance_of(problem, stage)


def descent(problem: Problem, plan: StagePlan) -> list[float]:
    """Return for each stage the bound of the root mean squared gradient norm over its updates (Theorem 4)."""
    return [math.sqrt(theorem_4(problem, stage)) for stage in plan.stages]


def claimed(problem: Problem, plan: StagePlan, radius: float | None = None) -> dict[str, Any]:
    """Return what theory claims of a plan, as plain data; of AUDP only where a ``radius`` is given.

    AUDP keeps the first stage's clip, hence its noise, takes the step from theory, and makes as many updates.
    """
    audp = None if radius is None else theorem_2(problem, plan.stages[0], plan.updates, radius)
    return {"guarantee": "none", "gradient_norms": descent(problem, plan), "audp_mean_error": audp}


def in_words(theory: Mapping[str, Any]) -> str:
    """Return these claims in sentences."""
    said = (
        "claimed, not guaranteed: over a stage the root mean square of the norm of F's gradient is at most \"claimed "
        'gradient" (Theorem 4), if gradients are not cut by the clip and F has begun the stage no more than the loss '
        "gap above its least value"
    )
    if theory["audp_mean_error"] is None:
        return f"{said}; give --radius for AUDP's (Theorem 2)"
    return (
        f"{said}. With the first clip throughout and the step from theory AUDP's mean of F(x_t) - F* over as many "
        f"updates is at most {theory['audp_mean_error']:.5g} (Theorem 2), if F is convex too"
    )


_OF_L2_LAPLACE = ("epsilon",)
_OF_GAUSSIAN = ("noise_multiplier", "budget")
_DELTA = 1e-5
"""At which releases of L2-Laplace noise are composed, where none is given."""


@dataclass(frozen=True, kw_only=True)
class Options(Problem):
    """Options of the command."""

    size: Annotated[int, Option("number of parameters", "D", ge=1)]
    clip: Annotated[float | None, Option("first clip (default: that of Theorem 3)", "G", gt=0)] = None
    stages: Annotated[int, Option("how many stages", "N", ge=1)] = 5
    noise: Annotated[
        Literal["l2_laplace", "gaussian"], Option("the noise law", asked="--noise l2_laplace or --noise gaussian")
    ]
    epsilon: Annotated[float | None, Option("of one release; for l2_laplace", "E", gt=0)] = None
    noise_multiplier: Annotated[
        float | None, Option("sd of the sum's noise / clip; for gaussian", "Z", ge=0.01, le=10**6)
    ] = None
    budget: Annotated[float | None, Option("epsilon of all releases instead; for gaussian", "E", gt=0)] = None
    delta: Annotated[
        float | None, Option("of all releases together (default: 1e-5 of l2_laplace)", "D", gt=0, lt=1)
    ] = None
    accept_weak: AcceptWeak = False
    dataset_size: Annotated[int | None, Option("examples at an edge, of which batches are samples", "N", ge=1)] = None
    radius: Annotated[float | None, Option("of the ball that models stay in, for AUDP's bound", "R", gt=0)] = None
    nodes: Annotated[int | None, Option("edges in turn (default: one edge makes all releases)", "K", ge=1)] = None
    neighboring_relation: Annotated[
        NeighboringRelation | None,
        Option("of what is proved (default: replace_one for l2_laplace, add_or_remove_one for gaussian)"),
    ] = None


def answer(options: Options, doing: Doing) -> Answer:
    """Return the stages, and what they prove."""
    gaussian = options.noise == "gaussian"
    other, others = ("l2_laplace", _OF_L2_LAPLACE) if gaussian else ("gaussian", _OF_GAUSSIAN)
    refuse(options, others, f"only for --noise {other}; leave out with --noise {options.noise}")
    default = NeighboringRelation.ADD_OR_REMOVE_ONE if gaussian else NeighboringRelation.REPLACE_ONE
    relation = options.neighboring_relation or default
    plan, privacy, said = (_gaussian if gaussian else _l2_laplace)(options, relation)
    weak = []
    if gaussian and privacy["epsilon"] is not None:
        weak = remarks(privacy["epsilon"], privacy["delta"], options.dataset_size, "an edge")
    theory = claimed(options, plan, options.radius)
    document = {
        "stages": [asdict(stage) for stage in plan.stages],
        "updates": plan.updates,
        "releases": plan.releases,
        "noise": options.noise,
        **privacy,
        "theory": theory,
    }
    text = (_rows(options, plan), f"Privacy: {said}", f"Theory: {in_words(theory)}")
    return Answer(document, text, weak)


_Private = tuple[StagePlan, dict[str, Any], str]
"""Stages, figures of their privacy as plain data, and a sentence on it."""


def _l2_laplace(options: Options, relation: NeighboringRelation) -> _Private:
    if options.epsilon is None:
        raise CallerError("--noise l2_laplace needs --epsilon, of one release")
    epsilon, delta, size = options.epsilon, options.delta or _DELTA, options.dataset_size
    moment = l2_laplace_second_moment(options.size, epsilon, options.batch_size, relation)
    plan = plan_stages(options, moment, options.stages, options.nodes, options.clip)
    batches = Poisson(1.0) if size is None else _sampling(options, size)
    found = l2_laplace_epsilons(plan.releases, epsilon, options.size, delta, relation, batches)
    total = plan.releases * epsilon  # epsilons of single releases add up
    privacy = _figures(None, epsilon, total, 0.0, relation)
    composed = "at a delta no total is computed, so much is lost in them"
    if found:
        composed = (
            f"at delta {delta:g} epsilon is {found['advanced']:.6g} by advanced composition, and {found['tight']:.6g} "
            f"by the noise's own law (tight){'' if size is None else ', which counts sampling'}"
        )
    said = (
        f"one release is {epsilon:g}-differential privacy {_of_example(relation)}; its "
        f"{counted(plan.releases, 'release')} together are {total:.6g}-differential privacy by basic composition, "
        f"which needs no sampling; {composed}"
    )
    return plan, {**privacy, "composed": {"delta": delta, **found}}, said


def _gaussian(options: Options, relation: NeighboringRelation) -> _Private:
    if options.noise_multiplier is not None and options.budget is not None:
        raise CallerError("--noise-multiplier and --budget both say how much noise there is, found both; leave one out")
    if options.noise_multiplier is None and options.budget is None:
        raise CallerError("--noise gaussian needs either --noise-multiplier, or --budget, --delta and --dataset-size")
    accounted, noise, epsilon = _accounted(options), options.noise_multiplier, None
    if noise is not None:
        moment = gaussian_second_moment(options.size, noise, options.batch_size)
        plan = plan_stages(options, moment, options.stages, options.nodes, options.clip)
        if accounted is not None:
            epsilon = gaussian_epsilon(plan.releases, noise, accounted[0], relation, accounted[1])
    elif options.budget is not None and accounted is not None:
        delta, sampling = accounted
        budget, nodes, clip = (options.budget, delta), options.nodes, options.clip
        noise, epsilon, plan = calibrate_stages(
            options, options.size, options.stages, budget, relation, sampling, nodes, clip
        )
    releases, said = counted(plan.releases, "release"), f"noise multiplier {noise:.6g}"
    if epsilon is None:
        said += f"; give --delta and --dataset-size for what {releases} of an edge prove"
    else:
        said += f"; ({epsilon:.6g}, {options.delta:g})-differential privacy {_of_example(relation)}, in {releases}"
    return plan, _figures(noise, None, epsilon, options.delta, relation), said


def _figures(
    noise: float | None, release: float | None, total: float | None, delta: float | None, relation: NeighboringRelation
) -> dict[str, Any]:
    return {
        "noise_multiplier": noise,
        "release_epsilon": release,
        "epsilon": total,
        "delta": delta,
        "neighboring_relation": relation.value,
    }


def _of_example(relation: NeighboringRelation) -> str:
    return f"({relation.value}) for each example of an edge"


def _accounted(options: Options) -> tuple[float, Poisson] | None:
    """Delta and sampling of batches; None where neither --dataset-size nor anything that needs it is given."""
    if options.delta is not None and options.dataset_size is not None:
        return options.delta, _sampling(options, options.dataset_size)
    needed = {"--budget": options.budget, "--delta": options.delta, "--dataset-size": options.dataset_size}
    if given := [flag for flag, value in needed.items() if value is not None]:
        missing = [flag for flag in ("--delta", "--dataset-size") if needed[flag] is None]
        raise CallerError(f"{given[0]} needs {' and '.join(missing)} as well")
    return None


def _sampling(options: Options, dataset_size: int) -> Poisson:
    """Return the sampling of an edge with so many examples."""
    if options.batch_size > dataset_size:
        raise CallerError(f"--dataset-size must be at least --batch-size {options.batch_size}, found {dataset_size}")
    return Poisson(options.batch_size / dataset_size)


def _rows(problem: Problem, plan: StagePlan) -> list[list[str]]:
    rows = [["stage", "clip", "sensitivity (replace one)", "learning rate", "claimed gradient", "updates", "total"]]
    total = 0
    for number, (stage, norm) in enumerate(zip(plan.stages, descent(problem, plan), strict=True), 1):
        total += stage.updates
        figures = (f"{value:.5g}" for value in (stage.clip, stage.sensitivity, stage.learning_rate, norm))
        rows.append([str(number), *figures, str(stage.updates), str(total)])
    return rows


COMMAND = Command(
    Options,
    answer,
    help="MAPA's stages: clip, learning rate and number of updates of each",
    description="Compute MAPA's stages: clip, learning rate and number of updates of each.",
)
