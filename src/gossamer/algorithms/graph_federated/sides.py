"""Plans of what leaves the data of the agents of federated units, and what is proved towards their own servers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gossamer.algorithms.graph_federated.settings import Sampling, Settings, local_queries, units_of
from gossamer.algorithms.problem import Problem
from gossamer.errors import SpecError
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.streams.agent_noise import own_server_guarantee
from gossamer.privacy.streams.graph_bounds import ModelLengths, Noise, model_lengths
from gossamer.sides.plan import ClientUpdate, MaskedMember, SidePlan

if TYPE_CHECKING:
    from gossamer.sides.secure_unit import RoundTerms, SecureUnit

# Masks need cryptography, which is optional, so what does is imported only where masks are wanted.


def masked_unit(problem: Problem[Settings], sampling: Sampling, clip: float) -> SecureUnit:
    """The way in which the unit that ``sampling`` is of masks its updates.

    Raises
    ------
    CallerError
        If the settings do not fit together, or cryptography is missing.
    """
    from gossamer.algorithms.graph_federated.masking import unit_of

    server, sampled, agent_noise = sampling.server, sampling.sampled, problem.spec.privacy.agent_noise or 0.0
    return unit_of(problem.settings, server, sampled, problem.size, clip, agent_noise, problem.run)


def masked_terms(problem: Problem[Settings], clip: float, radius: float) -> RoundTerms:
    """Terms that all agents of the run know of all rounds: the same at each of them."""
    from gossamer.sides.secure_unit import RoundTerms

    settings = problem.settings
    clips = dict.fromkeys(problem.names, clip)
    queries = local_queries(settings, problem.shard_sizes, problem.seed, clips)
    return RoundTerms(problem.agreed, queries, settings.rounds, radius)


def own_server(problem: Problem[Settings], clip: float, honest: int = 1) -> Guarantee:
    """Guarantee towards the own server, of the agent of which least is proved: `own_server_guarantee`.

    Raises
    ------
    CallerError
        If the settings do not fit together, or cryptography is missing.
    """
    rounds, delta = problem.settings.rounds, problem.spec.delta
    found = [
        own_server_guarantee(
            masked_unit(problem, sampling, clip).noise,
            max(rounds_sampled(sampling, rounds).values()),
            delta,
            honest,
        )
        for sampling in samplings(problem)
    ]
    return max(found, key=lambda guarantee: guarantee.epsilon)


def agent_plans(
    problem: Problem[Settings], clip: float, radius: float, behind: Mapping[str, SidePlan]
) -> dict[str, SidePlan]:
    """Plans of what leaves the data of each agent, which hides its updates as the settings say.

    Parameters
    ----------
    problem : Problem
        Problem that is planned for.
    clip : float
        B, of mean gradients.
    radius : float
        Most L2 norm of a model that agents of masked sums make updates at.
    behind : mapping of str to SidePlan
        Plan of what leaves each unit, by its server.

    Raises
    ------
    CallerError
        If the settings do not fit together, or cryptography is missing.
    """
    settings, found = problem.settings, dict[str, SidePlan]()
    terms = masked_terms(problem, clip, radius) if settings.masking.name == "secure" else None
    for sampling in samplings(problem):
        scope, outside = frozenset((sampling.server, *sampling.agents)), behind[sampling.server]
        if terms is None:
            raw = ClientUpdate(scope=scope, behind=outside)
            found.update(dict.fromkeys(sampling.agents, raw))
            continue
        unit = masked_unit(problem, sampling, clip)
        sums = {} if unit.noise is None else rounds_sampled(sampling, settings.rounds)
        for name in sampling.agents:
            found[name] = MaskedMember(unit, sampling.of, terms, sums.get(name, 0), scope=scope, behind=outside)
    return {name: found[name] for name in problem.names}


def samplings(problem: Problem[Settings]) -> list[Sampling]:
    """Samplings of the agents that take part, for each unit."""
    settings, seed = problem.settings, problem.seed
    units = units_of(settings, problem.names).items()
    return [Sampling(seed, server, agents, sampled) for (server, agents), sampled in zip(units, settings.sampled)]


def rounds_sampled(sampling: Sampling, rounds: int) -> dict[str, int]:
    """Number of the first ``rounds`` that each agent takes part in: public coins."""
    if sampling.sampled == len(sampling.agents):
        return dict.fromkeys(sampling.agents, rounds)
    counts = Counter(agent for number in range(rounds) for agent in sampling.of(number))
    return {agent: counts[agent] for agent in sampling.agents}


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
