"""Plans of what leaves the data of the agents of federated units, and what is proved towards their own servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gossamer.algorithms.graph_federated.coins import Sampling
from gossamer.algorithms.graph_federated.masked_terms import masked_terms, masked_unit
from gossamer.algorithms.graph_federated.settings import Settings, units_of
from gossamer.algorithms.problem import Problem
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.streams.agent_noise import own_server_guarantee
from gossamer.sides.plan import ClientUpdate, Independent, MaskedMember, Pairwise, SidePlan

if TYPE_CHECKING:
    from gossamer.sides.round_terms import RoundTerms


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
        What is planned for.
    clip : float
        B, of mean gradients.
    radius : float
        Most L2 norm of a model that agents of masked sums make updates at.
    behind : mapping of str to SidePlan
        What leaves each unit, by its server; agents of other units are left out.

    Raises
    ------
    CallerError
        If the settings do not fit together, or cryptography is missing.
    """
    settings = problem.settings
    found: dict[str, SidePlan] = {}
    if settings.masking.name in ("none", "independent_noise"):
        noise = _independent(problem) if settings.masking.name == "independent_noise" else None
        for server, agents in units_of(settings, problem.names).items():
            if server in behind:
                raw = ClientUpdate(noise=noise, scope=frozenset((server, *agents)), behind=behind[server])
                found.update(dict.fromkeys(agents, raw))
        return {name: found[name] for name in problem.names if name in found}
    terms = masked_terms(problem, clip, radius) if settings.masking.name == "secure" else None
    for sampling in samplings(problem):
        if sampling.server in behind:
            make = _maker(problem, sampling, clip, terms, behind[sampling.server])
            found.update({name: make(name) for name in sampling.agents})
    return {name: found[name] for name in problem.names if name in found}


def _independent(problem: Problem[Settings]) -> Independent:
    """Noise that agents add on their own: as much as the servers', unless the settings say how much."""
    deviation = problem.settings.masking.standard_deviation or problem.spec.privacy.standard_deviation
    assert deviation is not None  # the rules check it
    return Independent(deviation)


def samplings(problem: Problem[Settings]) -> list[Sampling]:
    """Samplings of the agents that take part, for each unit."""
    settings, seed = problem.settings, problem.seed
    units = units_of(settings, problem.names).items()
    return [Sampling(seed, server, agents, sampled) for (server, agents), sampled in zip(units, settings.sampled)]


def smallest_sum(problem: Problem[Settings], agent: str, clip: float) -> int | None:
    """Least number of updates in the sums that the server of ``agent`` sees; None where they are not masked."""
    if problem.settings.masking.name != "secure":
        return None
    (sampling,) = [found for found in samplings(problem) if agent in found.agents]
    return masked_unit(problem, sampling, clip).group.minimum


def rounds_sampled(sampling: Sampling, rounds: int) -> dict[str, int]:
    """Number of the first ``rounds`` that each agent takes part in: public coins."""
    if sampling.sampled == len(sampling.agents):
        return dict.fromkeys(sampling.agents, rounds)
    counts = Counter(agent for number in range(rounds) for agent in sampling.of(number))
    return {agent: counts[agent] for agent in sampling.agents}


def _maker(
    problem: Problem[Settings],
    sampling: Sampling,
    clip: float,
    terms: RoundTerms | None,
    behind: SidePlan,
) -> Callable[[str], SidePlan]:
    """Plans of the agents of one unit that hide their updates, by name."""
    masking, scope = problem.settings.masking, frozenset((sampling.server, *sampling.agents))
    if masking.name == "pairwise_noise":
        deviation = masking.standard_deviation
        assert deviation is not None  # the settings check it
        pairs = Pairwise(sampling.server, sampling.of, deviation)
        return lambda name: ClientUpdate(noise=pairs, scope=scope, behind=behind)
    assert terms is not None
    unit = masked_unit(problem, sampling, clip)
    sums = {} if unit.noise is None else rounds_sampled(sampling, problem.settings.rounds)
    return lambda name: MaskedMember(unit, sampling.of, terms, sums.get(name, 0), scope=scope, behind=behind)
