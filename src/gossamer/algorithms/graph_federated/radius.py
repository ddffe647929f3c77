"""Lengths of models in a run of federated units, and the radius of those that agents make updates at."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gossamer.algorithms.graph_federated.masked_terms import masked_unit
from gossamer.algorithms.graph_federated.settings import Settings
from gossamer.algorithms.graph_federated.sides import samplings
from gossamer.algorithms.problem import Problem
from gossamer.errors import SpecError
from gossamer.privacy.streams.graph_bounds import Noise
from gossamer.privacy.streams.model_radius import ModelLengths, model_lengths


def planned_lengths(
    problem: Problem[Settings], noise: Noise | None, clip: float
) -> tuple[ModelLengths | None, tuple[str, ...]]:
    """Lengths that an honest run does not exceed, with the spec's radius if it has one; None where nothing is masked.

    Returns
    -------
    tuple of ModelLengths or None, and tuple of str
        With a line on the radius, if the spec's is smaller than what is proved of honest runs.

    Raises
    ------
    SpecError
        If the common starting model is beyond it.
    """
    settings = problem.settings
    if settings.masking.name != "secure":
        return None, ()
    start = float(np.linalg.norm(np.asarray(problem.initial.values, np.float64)))
    proved = model_lengths(
        start,
        settings.step_size * clip,
        settings.rounds,
        problem.size,
        settings.units,
        noise,
        _agents_add(problem, clip),
    )
    given = settings.masking.radius
    if given is None:
        return proved, ()
    if given < start:
        raise SpecError(
            f"algorithm.masking.radius is {given:g} and the starting model is {start:g} from zero, so no agent would "
            "take part; raise it or leave it out"
        )
    lengths = replace(proved, radius=given)
    if given >= proved.radius:
        return lengths, ()
    line = (
        f"algorithm.masking.radius is {given:g}, and the models of an honest run are proved to stay within "
        f"{proved.radius:.4g} only: agents take no part beyond the radius, so servers shorten what they ask about to "
        "it; raise it if models get that far"
    )
    return lengths, (line,)


def _agents_add(problem: Problem[Settings], clip: float) -> float:
    """Standard deviation of a coordinate of what agents add to the mean of a round, in the unit where it is most."""
    found = [0.0]
    for sampling in samplings(problem):
        unit = masked_unit(problem, sampling, clip)
        if unit.noise is not None:
            found.append(unit.noise.scale * unit.fixed.resolution / math.sqrt(sampling.sampled))
    return max(found)
