"""The public parameters of a unit's masked sums: who may be in one, and how updates become integers and sums floats.

An update is at most ``reach`` = mu B long, in L2 norm, and so is what it becomes: ``round(x 2^f)``, with x scaled back,
where it is longer, to the length

    reach (1 - (d + 8) 2^-50) - sqrt(d)/2 2^-f.

Rounding to steps of 2^-f moves d coordinates by at most half a step each, and the norm of d floats is computed with a
relative error of less than (d + 2) 2^-53. So guarantees that count on updates of length mu B hold for masked ones, and
replacing an agent's data moves its integers by at most 2 reach 2^f, which `AgentNoise` is measured against.

Noise is added modulo 2^bits, like the masks. Room for it is left in the range, 32 standard deviations and more for each
agent, which noise does not leave.

**False vectors.** A member may mask any integers, and the sum has them in it, modulo 2^bits.

A sum that stays in the unit (`decoded`) need not have any noise in it, so what is made of it must not depend on the
others' vectors by more than they move it. It is folded (`masking.fixed_point`): whatever false vectors add, another
update of an honest member moves it by no more than 2 mu B, as it moves the plain sum. Refusing what is out of range
would not do: whether a sum is too long may hang on one bit of the others'. Honest sums are to stay within half the
range for that, with room for 16 standard deviations of each agent, which noise does not leave either.

A sum that is released has its members' noise in it (`released`), and what follows from it is post-processing. What is
known of n honest vectors is the length of their sum: n mu B at most, and with noise of s steps no more than

    n mu B + s 2^-f sqrt(n) (sqrt(d) + sqrt(128 log 2))

but for a probability of 2^-64, since a discrete Gaussian is sub-Gaussian [1, corollary 17] and so is a sum of n, with n
times the variance [2, theorem 2.1]. One that is longer has a false vector in it for certain, and is not used. One
within it may have false vectors all the same.

Terms that an agent of masked sums knows before its server says a word, and what it agrees with others on.

A sum hides an update among others only if all of them answer the same question. A server that asks one agent about the
model, and the others about one at which their updates are known beforehand, subtracts those from a correct sum and has
the one update that is left [3]. So an agent

- refuses a model beyond a *radius* that no honest run leaves: far out the regulariser decides every gradient;
- has a digest of all that its update depends on, and that is public, in its keys (`privacy.masking`), computed from
  what it was asked itself. Agents with different digests do not mask together.

The examples, and the coins that draw mini-batches of them, are its own secrets. All else is in the digest: the round,
the model to the last bit, what every member of the round is asked (every field of its query), who these members are,
how updates become integers, and the whole spec with the run's name.

References
----------
[1] Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
[2] Hsu, Kakade and Zhang, "A tail inequality for quadratic forms of subgaussian random vectors", ECP 2012.
[3] Pasquini, Francati and Ateniese, "Eluding secure aggregation in federated learning via model inconsistency", CCS
    2022.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import PeerError, SpecError
from gossamer.privacy.exact.grid_noise import discrete_gaussian, words_of
from gossamer.privacy.masking import FixedPoint, Group, MaskedSum
from gossamer.privacy.masking.fixed_point import UintArray
from gossamer.privacy.streams.graph_bounds import AgentNoise
from gossamer.privacy.tasks import LocalUpdate, UpdateQuery
from gossamer.protocol.encoding import encode
from gossamer.vectors import Blank, Confined, Released

TAIL = 64
"""Standard deviations of an agent's noise for which there is room, before it is rounded up to whole steps."""
HALF_TAIL = 16
"""The same within half the range, where sums are folded."""
LEAST = 0.99
"""How much of an update's length rounding must leave."""
TAIL_BITS = 64
"""A sum of honest members is longer than `SecureUnit.longest_sum` with a probability of at most 2^-64."""


@dataclass(frozen=True)
class SecureUnit:
    """Masking of a unit's updates; the same for its server and all its agents.

    Attributes
    ----------
    group : Group
        Group of the L agents of a round, which have the numbers 1 to L in it.
    fixed : FixedPoint
        Encoding of a coordinate with its noise.
    reach : float
        mu B, the most L2 norm of an update.
    noise : AgentNoise or None
        Noise that each agent adds.
    """

    group: Group
    fixed: FixedPoint
    reach: float
    noise: AgentNoise | None

    @property
    def longest(self) -> float:
        """The L2 norm to which updates are scaled back before they are rounded."""
        size = self.group.length
        return self.reach * (1 - (size + 8) * 2.0**-50) - math.sqrt(size) / 2 * self.fixed.resolution

    def longest_sum(self, members: int) -> float:
        """The L2 norm of a sum of so many honest members' vectors, which one of false ones may exceed."""
        size = self.group.length
        noise = 0.0
        if self.noise is not None:
            tail = math.sqrt(size) + math.sqrt(2 * TAIL_BITS * math.log(2))
            noise = self.noise.scale * self.fixed.resolution * math.sqrt(members) * tail
        return (members * self.reach + noise) * (1 + (size + 8) * 2.0**-50)

    def encode(self, update: FloatArray, generator: np.random.Generator | None = None) -> UintArray:
        """The integers [size] of ``update`` [size], plus noise from ``generator`` if agents add any.

        Never refuses a value: what is out of range saturates, and NaN is zero.
        """
        bound = self.longest
        values = np.nan_to_num(np.clip(np.asarray(update, np.float64), -bound, bound), nan=0.0)
        length = float(np.linalg.norm(values))
        encoded = self.fixed.encode(values * (bound / length) if length > bound else values)
        if self.noise is None:
            return encoded
        assert generator is not None, "noise needs a generator"
        noise = discrete_gaussian(words_of(generator), self.noise.scale, encoded.size)
        return encoded + noise.astype(np.uint64).astype(encoded.dtype)  # modulo 2^bits

    def decoded(self, total: MaskedSum | None) -> Confined:
        """The sum [size] of updates, float64, of the integers' sum: raw data of the unit. Nothing gives a blank.

        False vectors in it do not make it hang on the others by more than they move a plain sum.

        Raises
        ------
        ValueError
            If the unit is not a ``confined`` one, and honest sums have no room.
        """
        if self.group.size * int(self.reach / self.fixed.resolution) > self.fixed.quarter:
            raise ValueError("honest sums of these integers leave the range that is not folded; make the unit confined")
        if total is None:
            return Confined(Blank(self.group.length, np.float64))
        return Confined(self.fixed.folded_sum(total.values))

    def released(self, total: MaskedSum | None) -> Released:
        """The same where the server is shown the sum and is not trusted: for everybody, with its members' own noise.

        Each of them was charged before it drew its part (`member`). Without noise it is released as it is.

        Raises
        ------
        PeerError
            If it is longer than a sum of honest members' vectors.
        """
        if total is None:
            return Released(Blank(self.group.length, np.float64))
        values = self.fixed.decode_sum(total.values, len(total.agents))
        found, most = float(np.linalg.norm(values)), self.longest_sum(len(total.agents))
        if found > most:
            raise PeerError(
                f"expected a sum of {len(total.agents)} vectors of a length of at most {most:g}, found {found:g}: one "
                "of them was not encoded as agreed"
            )
        return Released(values)


def secure_unit(
    name: str,
    reach: float,
    sampled: int,
    size: int,
    *,
    bits: int = 32,
    threshold: int = 0,
    minimum: int = 0,
    fraction_bits: int | None = None,
    agent_noise: float = 0.0,
    run: str = "",
    confined: bool = False,
) -> SecureUnit:
    """The parameters of a unit's masked sums, checked before a run.

    Parameters
    ----------
    name : str
        Name of the unit; the keys of its sums depend on it.
    reach : float
        mu B, the most L2 norm of an update.
    sampled : int
        L, agents of a round.
    size : int
        d, coordinates of the model.
    bits : {32, 64}
        Number of bits of the integers.
    threshold, minimum : int
        Number of agents that have to answer, and of vectors in a sum; 0 takes two thirds of ``sampled``, rounded up.
    fraction_bits : int, optional
        Binary digits after the point; by default as many as fit.
    agent_noise : float
        Standard deviation of the noise that each agent adds to each coordinate, in units of ``reach``; 0 adds none.
    run : str
        Name of a deployed run: agents sign their keys, which depend on it. Empty in a simulation, without identities.
    confined : bool
        Whether sums stay in the unit (`SecureUnit.decoded`), and need room to be folded.

    Raises
    ------
    SpecError
        If a parameter is out of its range, nothing bounds the updates, or clip, agents and bits do not fit together.
    """
    if not math.isfinite(reach):
        raise SpecError("masks add integers of a range, so updates need a bound: give privacy.clip")
    if not 0 <= agent_noise < math.inf:
        raise SpecError(f"agent_noise must be a finite number, 0 or more, found {agent_noise!r}")
    context = encode((run, name)) if run else name.encode()
    group = Group(sampled, size, bits, threshold, minimum, context, signed=bool(run))
    most = 1 + TAIL * agent_noise
    if confined:  # honest sums within half the range
        most = max(most, 2 * (1 + HALF_TAIL * agent_noise))
    fixed = FixedPoint(reach * most, sampled, bits, fraction_bits)
    steps = reach / fixed.resolution
    unit = SecureUnit(group, fixed, reach, _noise(steps, size, agent_noise) if agent_noise > 0 else None)
    if unit.longest < LEAST * reach:
        raise SpecError(
            f"{size} numbers with {fixed.fraction_bits} fraction bits lose too much of updates of length {reach:g} to "
            "rounding: use more fraction bits, or 64 bits"
        )
    return unit


def _noise(steps: float, size: int, multiplier: float) -> AgentNoise:
    """Noise of ``multiplier`` times the longest update, which has so many steps."""
    if multiplier * steps < 1:
        raise SpecError(
            f"agent_noise {multiplier:g} is {multiplier * steps:.3g} steps of the integers that updates become, "
            "expected one or more: use more noise, more bits or more fraction bits"
        )
    return AgentNoise(math.ceil(multiplier * steps), 2 * steps, size)


@dataclass(frozen=True)
class RoundTerms:
    """Terms that the agents of a run know of all rounds.

    Attributes
    ----------
    agreed : bytes
        Whatever else all of them settled before the run: the spec, and the run's name.
    queries : mapping of str to LocalQuery or TrainingQuery
        Terms on which each agent makes its updates.
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
        Parameters by which they become integers, and the group that adds them.
    terms : RoundTerms
        Terms of the unit.
    members : sequence of str
        Names of those who take part in the round, in the order of their numbers.
    task : LocalUpdate
        Task that one of them was asked, as `RoundTerms.allow` allows it.
    """
    queries = tuple(terms.queries[name] for name in members)
    public = (astuple(unit), terms.agreed, tuple(members), queries, task.id, task.model)
    return hashlib.sha256(encode(("gossamer inputs of a masked sum", public))).digest()
