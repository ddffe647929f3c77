"""Convergence bounds beside the schedule: what theory claims of each stage, and of AUDP in their place.

References
----------
MAPA paper, Theorems 2 and 4 (`convergence`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gossamer.algorithms.convergence import Theory, theorem_2, theorem_4
from gossamer.algorithms.mapa.schedule import Problem, Stage
from gossamer.algorithms.mapa.stages import StagePlan


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
