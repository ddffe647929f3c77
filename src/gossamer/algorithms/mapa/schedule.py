"""MAPA's stages: how the clip, the learning rate and the length of a stage follow from each other.

With G the clip, b the batch size and n the noise on the *mean* gradient, a stage has

    Delta_b = s^2/b + max_k E||n_k||^2
    P       = max(1, 2 Delta_b / ((tau + 1) rho^2 G^2))
    eta     = 1 / (2 L P (tau + 1))
    T_s     = ceil(4 P^2 L D_F (tau + 1)^2 / Delta_b)

and the next stage has rho times the clip. With P > 1, the bound sqrt(2 Delta_b / (P (tau + 1))) on the gradient norm
that the stage ends with is rho G, which is what the next stage clips at.

Nothing here may depend on private data: s, L and D_F are public, or were released.

References
----------
MAPA, section 6: Theorem 3 (first sensitivity), Theorem 4 (convergence), Algorithm 1 (cloud server, lines 6-16).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial

from gossamer.errors import SpecError
from gossamer.privacy.mechanisms import NeighboringRelation

Moment = Callable[[float], float]
"""E||n||^2 of the noise on the mean gradient, as a function of the clip G; the largest over the edge servers."""

MOST_UPDATES = 2**63 - 1
"""A stage that takes more updates than this never ends; it is given this length, and no stage follows it."""


@dataclass(frozen=True)
class Problem:
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
    failure : float
        kappa in (0, 1), the probability with which the first clip is too small for a gradient (Theorem 3).
    reduction : float
        rho in (0, 1), by which the clip is multiplied from stage to stage.

    Raises
    ------
    SpecError
        If a number is out of its range.
    """

    gradient_sd: float
    smoothness: float
    loss_gap: float
    staleness: int
    batch_size: int
    failure: float = 0.1
    reduction: float = 0.5

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            wanted, fits = _RANGES.get(field.name, ("a finite number > 0", lambda value: 0 < value < math.inf))
            if not fits(value):
                raise SpecError(f"{field.name} must be {wanted}, found {value!r}")


_RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "staleness": ("a number of updates, 0 or more", lambda value: 0 <= value < math.inf and value == int(value)),
    "failure": ("inside (0, 1)", lambda value: 0 < value < 1),
    "reduction": ("inside (0, 1)", lambda value: 0 < value < 1),
}


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
    return problem.gradient_sd / math.sqrt(problem.failure / (1 + math.sqrt(1 - problem.failure)))


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
            How many updates were made before it: t in x_{t+1} = x_t - eta g, from 0.

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
