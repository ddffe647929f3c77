"""Bounds that MAPA's convergence theory states: Lemma 1 and Theorem 2 of AUDP, Theorem 4 of a constant step.

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
MAPA paper, sections 5.2 and 6.2, appendix A. Agarwal and Duchi, "Distributed delayed stochastic optimization", NIPS
2011. Lian, Huang, Li and Liu, "Asynchronous parallel stochastic gradient for nonconvex optimization", NIPS 2015,
Theorem 1, of which Theorem 4 is the case of one worker's gradient an update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gossamer.algorithms.mapa.stages import Problem, Stage, StagePlan
from gossamer.errors import SpecError
from gossamer.numbers import require_positive


@dataclass(frozen=True)
class Theory:
    """Constants of a problem as the theory takes them.

    Attributes
    ----------
    smoothness : float
        L, a Lipschitz constant of the gradient.
    staleness : int
        tau, the most updates of others between the pulling of a model and the applying of its gradient.
    variance : float
        Delta_b, of a noisy gradient.
    """

    smoothness: float
    staleness: int
    variance: float

    @property
    def convex_rate(self) -> float:
        """1/(L (tau + 1)^2), which a learning rate has to be below in Lemma 1."""
        return 1 / (self.smoothness * (self.staleness + 1) ** 2)

    @property
    def constant_rate(self) -> float:
        """1/(2 L (tau + 1)), the largest learning rate of Theorem 4 (Eq. 13)."""
        return 1 / (2 * self.smoothness * (self.staleness + 1))


def lemma_1(theory: Theory, rates: Sequence[float], radius: float) -> float:
    """Bound the mean of E F(x_t) - F* over the updates 1 .. T (MAPA, Lemma 1).

    Parameters
    ----------
    theory : Theory
        F is convex.
    rates : sequence of float
        eta_0 .. eta_{T-1}, none larger than the one before.
    radius : float
        R: no model is further from the optimum than this, in root mean square; with a constant rate, the first one.

    Raises
    ------
    SpecError
        If there is no rate, one is not below 1/(L (tau + 1)^2), or one is larger than the one before.
    """
    require_positive(radius=radius)
    if not rates or any(after > before for before, after in pairwise(rates)):
        raise SpecError("Lemma 1 needs learning rates that never grow, one for each update")
    if rates[0] >= theory.convex_rate:
        raise SpecError(
            f"Lemma 1 needs learning rates below 1/(L (tau + 1)^2) = {theory.convex_rate:.4g}, found {rates[0]:.4g}; "
            "no bound is known for longer steps"
        )
    slack = sum(1 / (1 / rate - 1 / theory.convex_rate) for rate in rates)  # the sum of c_t
    return (radius**2 / (2 * rates[-1]) + theory.variance / 2 * slack) / len(rates)


def theorem_2(theory: Theory, updates: int, radius: float) -> float:
    """Bound the mean of E F(x_t) - F* with AUDP's step 1/(L (tau + 1)^2 + sqrt(Delta_b (t + 1))/R) (MAPA, Theorem 2).

    Lemma 1 with c_t = R/sqrt(Delta_b (t + 1)), whose sum is at most 2 R sqrt(T/Delta_b):
    L R^2 (tau + 1)^2/(2 T) + 3/2 R sqrt(Delta_b/T).

    Parameters
    ----------
    theory, radius
        Arguments as for `lemma_1`.
    updates : int
        T.
    """
    require_positive(radius=radius, updates=updates)
    lag = theory.smoothness * radius**2 * (theory.staleness + 1) ** 2 / (2 * updates)
    return lag + 1.5 * radius * math.sqrt(theory.variance / updates)


def theorem_4(theory: Theory, rate: float, updates: int, loss_gap: float) -> float:
    """Bound the mean of E||grad F(x_t)||^2 with a constant step (MAPA, Theorem 4, Eq. 14).

    2 D_F/(eta T) + 2 L eta Delta_b, of which the second term is the ball's: at eta = 1/(2 L P (tau + 1)) it is
    Delta_b/(P (tau + 1)), as in section 6.2. F need not be convex. It follows from Lian et al., whose second term is
    eta L Delta_b (1 + 2 L tau eta), and 2 L tau eta <= 1.

    Parameters
    ----------
    theory : Theory
        Constants.
    rate : float
        eta.
    updates : int
        T.
    loss_gap : float
        D_F, an upper bound of F(x_0) - F*.

    Raises
    ------
    SpecError
        If the rate is above 1/(2 L (tau + 1)) (Eq. 13).
    """
    require_positive(rate=rate, updates=updates, loss_gap=loss_gap)
    if rate > theory.constant_rate * (1 + 1e-12):
        raise SpecError(
            f"Theorem 4 needs a learning rate of at most 1/(2 L (tau + 1)) = {theory.constant_rate:.4g}, "
            f"found {rate:.4g}"
        )
    return 2 * loss_gap / (rate * updates) + 2 * theory.smoothness * rate * theory.variance


def theory_of(problem: Problem, stage: Stage) -> Theory:
    """Return the constants of a stage, with Delta_b = s^2/b + max_k E||n_k||^2."""
    variance = problem.gradient_sd**2 / problem.batch_size + stage.noise_second_moment
    return Theory(problem.smoothness, problem.staleness, variance)


def descent(problem: Problem, plan: StagePlan) -> list[float]:
    """Return for each stage the bound of the root mean squared gradient norm over its updates (Theorem 4)."""
    return [
        math.sqrt(theorem_4(theory_of(problem, stage), stage.learning_rate, stage.updates, problem.loss_gap))
        for stage in plan.stages
    ]


def claimed(problem: Problem, plan: StagePlan, radius: float | None = None) -> dict[str, Any]:
    """Return what theory claims of a plan, as plain data; of AUDP only where a ``radius`` is given.

    AUDP keeps the first stage's clip, hence its noise, takes the step from theory, and makes as many updates.
    """
    audp = None if radius is None else theorem_2(theory_of(problem, plan.stages[0]), plan.updates, radius)
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
