"""The radius of models that the agents of a run of federated units make updates at."""

from __future__ import annotations

import math

import numpy as np

from gossamer.algorithms.graph_settings import Settings
from gossamer.errors import SpecError
from gossamer.experiment.agent_sides import samplings
from gossamer.experiment.masked_terms import masked_unit
from gossamer.experiment.prepare import Prepared
from gossamer.privacy.graph_bounds import Noise
from gossamer.privacy.model_radius import model_radius


def planned_radius(prepared: Prepared, settings: Settings, noise: Noise | None, clip: float) -> tuple[float, list[str]]:
    """The radius that the spec says, or by default one that no honest run exceeds; infinite where nothing is masked.

    Returns
    -------
    tuple of float and list of str
        With a line on it, if the spec's is smaller than what is proved of honest runs.

    Raises
    ------
    SpecError
        If the common starting model is beyond it.
    """
    if settings.masking.name != "secure":
        return math.inf, []
    start = float(np.linalg.norm(np.asarray(prepared.initial.values, np.float64)))
    given = settings.masking.radius
    honest = model_radius(
        start,
        settings.step_size * clip,
        settings.rounds,
        prepared.objective.size,
        settings.units,
        noise,
        _agents_add(prepared, settings, clip),
    )
    if given is None:
        return honest, []
    if given < start:
        raise SpecError(
            f"algorithm.masking.radius is {given:g} and the starting model is {start:g} from zero, so no agent would "
            "take part; raise it or leave it out"
        )
    if given >= honest:
        return given, []
    line = (
        f"algorithm.masking.radius is {given:g}, and the models of an honest run are proved to stay within "
        f"{honest:.4g} only: agents take no part in rounds whose model lies beyond the radius; raise it if sums are "
        "refused"
    )
    return given, [line]


def _agents_add(prepared: Prepared, settings: Settings, clip: float) -> float:
    """Standard deviation of a coordinate of what agents add to the mean of a round, in the unit where it is most."""
    found = [0.0]
    for sampling in samplings(prepared, settings):
        unit = masked_unit(prepared, settings, sampling, clip, prepared.experiment.privacy.agent_noise or 0.0)
        if unit.noise is not None:
            found.append(unit.noise.scale * unit.fixed.resolution / math.sqrt(sampling.sampled))
    return max(found)
