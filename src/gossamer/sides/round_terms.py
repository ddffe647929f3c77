"""Terms that an agent of masked sums knows before its server says a word, and what it agrees with others on.

A sum hides an update among others only if all of them answer the same question. A server that asks one agent about the
model, and the others about one at which their updates are known beforehand, subtracts those from a correct sum and has
the one update that is left [1]. So an agent

- refuses a model beyond a *radius* that no honest run leaves: far out the regulariser decides every gradient;
- has a digest of all that its update depends on, and that is public, in its keys (`masking.agent`), computed from
  what it was asked itself. Agents with different digests do not mask together.

The examples, and the coins that draw mini-batches of them, are its own secrets. All else is in the digest: the round,
the model to the last bit, what every member of the round is asked (every field of its query), who these members are,
how updates become integers, and the whole spec with the run's name.

References
----------
[1] Pasquini, Francati and Ateniese, "Eluding secure aggregation in federated learning via model inconsistency", CCS
    2022.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from gossamer.privacy.unit_tasks import LocalUpdate, UpdateQuery
from gossamer.protocol.encoding import encode
from gossamer.sides.secure_unit import SecureUnit


@dataclass(frozen=True)
class RoundTerms:
    """Terms that the agents of a run know of all rounds.

    Attributes
    ----------
    agreed : bytes
        Whatever else all of them settled before the run: the spec, and the run's name.
    queries : mapping of str to LocalQuery or TrainingQuery
        How each agent makes its updates.
    rounds : int
        T: of no later round is there a sum.
    radius : float
        Most L2 norm of a model that they make updates at.
    """

    agreed: bytes
    queries: Mapping[str, UpdateQuery]
    rounds: int
    radius: float

    def allow(self, name: str, task: LocalUpdate) -> bool:
        """Whether agent ``name`` is asked for what was agreed, in a round of the run, at a model within the radius."""
        length = float(np.linalg.norm(np.asarray(task.model.values, np.float64)))
        expected = task.query == self.queries[name] and 0 <= task.id < self.rounds
        return expected and length <= self.radius  # a model with NaN has no length


def inputs_digest(unit: SecureUnit, terms: RoundTerms, members: Sequence[str], task: LocalUpdate) -> bytes:
    """32 bytes that differ if anything public does that the updates of the round's ``members`` depend on.

    Parameters
    ----------
    unit : SecureUnit
        How they become integers, and which group adds them.
    terms : RoundTerms
        Of the unit.
    members : sequence of str
        Who takes part in the round, in the order of their numbers.
    task : LocalUpdate
        What one of them was asked, as `RoundTerms.allow` allows it.
    """
    queries = tuple(terms.queries[name] for name in members)
    public = (astuple(unit), terms.agreed, tuple(members), queries, task.id, task.model)
    return hashlib.sha256(encode(("gossamer inputs of a masked sum", public))).digest()
