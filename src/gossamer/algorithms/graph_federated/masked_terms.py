"""Terms that the agents of a unit with masked sums agree on before a run: all of it follows from the spec."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from gossamer.algorithms.graph_federated.coins import Sampling
from gossamer.algorithms.graph_federated.settings import Settings
from gossamer.algorithms.graph_federated.workload import local_queries
from gossamer.algorithms.problem import Problem
from gossamer.protocol.encoding import encode

if TYPE_CHECKING:
    from gossamer.sides.round_terms import RoundTerms
    from gossamer.sides.secure_unit import SecureUnit

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
    from gossamer.sides.round_terms import RoundTerms

    settings = problem.settings
    agreed = hashlib.sha256(encode((problem.text, problem.run))).digest()
    clips = dict.fromkeys(problem.names, clip)
    queries = local_queries(settings, problem.shard_sizes, problem.seed, clips)
    return RoundTerms(agreed, queries, settings.rounds, radius)
