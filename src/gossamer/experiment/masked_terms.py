"""What the agents of a unit whose sums are masked agree on before a run: all of it follows from the spec."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from gossamer.algorithms.graph_coins import Sampling
from gossamer.algorithms.graph_federated import local_queries
from gossamer.algorithms.graph_settings import Settings
from gossamer.experiment.prepare import Prepared, public_seed
from gossamer.protocol.encoding import encode

if TYPE_CHECKING:
    from gossamer.privacy.round_terms import RoundTerms
    from gossamer.privacy.secure_unit import SecureUnit

# Masks need cryptography, which is optional, so what does is imported only where masks are wanted.


def masked_unit(
    prepared: Prepared, settings: Settings, sampling: Sampling, clip: float, agent_noise: float
) -> SecureUnit:
    """How the unit that ``sampling`` is of masks its updates.

    Raises
    ------
    CallerError
        If the settings do not fit together, or cryptography is missing.
    """
    from gossamer.algorithms.graph_masking import unit_of

    size, run = prepared.objective.size, prepared.run
    return unit_of(settings, sampling.server, sampling.sampled, size, clip, agent_noise, run)


def masked_terms(prepared: Prepared, settings: Settings, clip: float, radius: float) -> RoundTerms:
    """What all agents of the run know of all rounds: the same at each of them."""
    from gossamer.privacy.round_terms import RoundTerms

    spec = json.dumps(prepared.experiment.model_dump(mode="json"), sort_keys=True)
    agreed = hashlib.sha256(encode((spec, prepared.run))).digest()
    clips = dict.fromkeys(prepared.names, clip)
    queries = local_queries(settings, prepared.shard_sizes, public_seed(prepared.experiment), clips)
    return RoundTerms(agreed, queries, settings.rounds, radius)
