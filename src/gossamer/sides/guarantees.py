"""Guarantees of simulated runs carried over to a deployment, with its noise on a grid and its numbers secret.

What is planned is proved for continuous noise. On the grid (`grid_noise`), n numbers drawn in all cost

    eta = n log((1 + tau)/(1 - tau)),    about n 2.1e-34,

and samplers and samples that are not what they are taken for have probability p = 2^-170 each: every number drawn, and
every Poisson sample (`sums.UNLIKELY`). If N samples are drawn, an (epsilon, delta) becomes

    epsilon + 2 eta,        exp(eta) delta + (1 + exp(epsilon + 2 eta)) (n + N) p + M 2^-80,

where M is the number of Poisson samples whose answers have a deadline (`mechanisms`). The assumption that the run is
a simulation goes, and those of a deployment come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from gossamer.files import words_beside
from gossamer.privacy.accounting.accountants import epsilon, profile
from gossamer.privacy.exact.grid_noise import DISTANCE, SMOOTHING, smoothing_error
from gossamer.privacy.guarantees import CLIENT, CODE, SIMULATED_NOISE, Guarantee, PrivacyProfile
from gossamer.privacy.mechanisms import LATE, Counts, NeighboringRelation
from gossamer.privacy.streams.graph_bounds import AgentNoise, own_server_guarantee
from gossamer.sides.plan import EVERYBODY, NOT_CRASHES, ClientUpdate, Curator, Drawn
from gossamer.sides.sums import UNLIKELY

# Guarantees of plans whose privacy unit is a client with all of its data, each against a named observer.

SERVER, OTHERS, CURATOR = "server", "others", "curator"
"""Names of observers."""
_WORDS = words_beside(__file__)
_THE_CURATOR: str = _WORDS["observers"]["curator"]
_ASSUMPTIONS: tuple[str, ...] = (*_WORDS["data"], CODE, *_WORDS["runs"], SIMULATED_NOISE)


@dataclass(frozen=True)
class Sharing:
    """Clients that share the noise of a masked sum.

    Attributes
    ----------
    clients : int
        L, of a round.
    colluders : int
        The most of them that may work together with the server.
    honest : int
        h, whose noise is counted: 1 is each client's own alone.
    signed : bool
        Whether identities sign the keys of masks.
    """

    clients: int
    colluders: int
    honest: int
    signed: bool


def masked_guarantee(noise: AgentNoise | None, sums: int, delta: float, sharing: Sharing) -> Guarantee:
    """Guarantee proved of so many masked sums with a client's updates, against the server and everybody.

    Only noise of honest clients that every sum has for certain is counted (`privacy.streams.graph_bounds`).

    Parameters
    ----------
    noise : AgentNoise or None
        Noise of each client; nothing is proved of sums without any.
    sums : int
        Number of sums that the client may be in.
    delta : float
        Failure probability, in (0, 1).
    sharing : Sharing
        Clients whose noise counts.

    Raises
    ------
    AccountingError
        If a number is out of its range.
    """
    if noise is None:
        return _none(EVERYBODY, NeighboringRelation.REPLACE_ONE, "no noise is added; masks hide no sum")
    found = own_server_guarantee(noise, sums, delta, sharing.honest)
    observer, trusted = EVERYBODY, [_WORDS["masked alone"]]
    if sharing.honest > 1:
        observer = _WORDS["observers"]["colluders" if sharing.colluders else "server alone"].format(**vars(sharing))
        trusted = [line.format(**vars(sharing)) for line in _WORDS["masked with honest clients"]]
        trusted.append(_WORDS["masked, keys are signed" if sharing.signed else "masked, keys are handed on"])
    proof = found.proof.replace("agents", "clients").replace("agent", "client")
    assumptions = (*trusted, *_WORDS["masked"], *_ASSUMPTIONS)
    return replace(found, unit=CLIENT, observer=observer, assumptions=assumptions, proof=proof, rows_per_person=None)


def noised_guarantee(plan: ClientUpdate, delta: float, relation: NeighboringRelation) -> Guarantee:
    """Guarantee proved of all noised updates of one client, against everybody else.

    Parameters
    ----------
    plan : ClientUpdate
        Plan of the client.
    delta : float
        Failure probability, in (0, 1).
    relation : NeighboringRelation
        Replacing all of a client's data, or blanking it.

    Raises
    ------
    AccountingError
        If delta is out of its range.
    """
    kind = plan.kind
    if kind is None:
        return _none(EVERYBODY, relation, "clients' updates are raw inside their trust scope")
    return _guarantee({kind: plan.most_updates}, delta, relation, EVERYBODY, (_WORDS["own noise"],))


def curated_guarantees(plan: Curator, delta: float, relation: NeighboringRelation) -> dict[str, Guarantee]:
    """Guarantees proved of a curator's sums: one against all others, and an empty one against the curator.

    Where the curator draws the clients, the others do not see whom it talks to; see `plan`.

    Parameters
    ----------
    plan : Curator
        Plan of the server.
    delta, relation
        Arguments as for `noised_guarantee`.

    Raises
    ------
    AccountingError
        If delta is out of its range.
    """
    observer = plan.observer
    trusted = (*_WORDS["curated"], *(_WORDS["drawn"] if plan.draws else ()))
    others = _guarantee(plan.kinds, delta, relation, observer, trusted)
    if plan.count_share:
        kept = tuple(line.removeprefix("clip, ") for line in others.assumptions)
        others = replace(others, assumptions=(*kept, _WORDS["moving clip"]) if kept else ())
    return {
        OTHERS: others,
        CURATOR: _none(_THE_CURATOR, relation, "the trusted server is handed each client's raw update"),
    }


def _guarantee(
    kinds: Counts, delta: float, relation: NeighboringRelation, observer: str, trusted: tuple[str, ...]
) -> Guarantee:
    if not all(kind.mechanism.private for kind in kinds):
        return _none(observer, relation, "no noise is added")
    found = epsilon(kinds, delta, relation)
    blank = (_WORDS["absent client"],) if relation is NeighboringRelation.ADD_OR_REMOVE_ONE else ()
    releases = sum(kinds.values())
    return Guarantee(
        found.epsilon,
        delta,
        CLIENT,
        relation,
        observer,
        (*trusted, *_ASSUMPTIONS, *blank),
        f"{found.accountant} of {releases} releases of a client's whole update, clipped and noised",
        rows_per_person=None,
        evidence=partial(profile, ((kinds, 1),), relation),
    )


def _none(observer: str, relation: NeighboringRelation, reason: str) -> Guarantee:
    return Guarantee(math.inf, 0.0, CLIENT, relation, observer, (), reason)


RANDOMNESS, MACHINE, DISK, FLOATING_POINT, NETWORK = _WORDS["deployed"].values()
_OF_SUMS = "rounding of sums and noise is covered: the noise is drawn exactly, on a grid"

ROUNDING_TOO = "the timing of messages is not covered, and neither is rounding of floating-point sums and noise"


def deployed_guarantee(guarantee: Guarantee, drawn: Drawn) -> Guarantee:
    """Return what is proved in a deployment, from what was proved of a plan.

    Parameters
    ----------
    guarantee : Guarantee
        Guarantee of the plan; one that promises nothing stays as it is.
    drawn : Drawn
        Numbers drawn by the party that draws most.
    """
    if math.isinf(guarantee.epsilon):
        return guarantee
    epsilon, delta = deployed_bound(guarantee.epsilon, guarantee.delta, drawn)
    if delta >= 1:
        return replace(guarantee, epsilon=math.inf, delta=0.0, assumptions=(), proof=_TOO_MUCH)
    said = {ROUNDING_TOO: drawn.times.assumption, NOT_CRASHES: drawn.times.assumption}
    kept = [said.get(line, line) for line in guarantee.assumptions if _SIMULATED not in line]
    more = [RANDOMNESS, MACHINE, DISK]
    more += [FLOATING_POINT] * drawn.floating_point + [NETWORK] * (drawn.network and not drawn.floating_point)
    return replace(
        guarantee,
        epsilon=epsilon,
        delta=delta,
        assumptions=(*kept, *more),
        evidence=partial(_deployed_profile, guarantee, drawn),
        proof=guarantee.proof if drawn.floating_point else f"{guarantee.proof}; {_OF_SUMS}",
    )


def _deployed_profile(guarantee: Guarantee, drawn: Drawn) -> PrivacyProfile:
    """`deployed_bound` of every loss."""
    eta, chance, late = _errors(drawn)
    return guarantee.profile.moved(2 * eta, math.exp(eta), chance + late, math.exp(2 * eta) * chance)


def _errors(drawn: Drawn) -> tuple[float, float, float]:
    """Slack of the losses, chance that a sampler fails, and chance of a late answer."""
    chance = drawn.numbers * DISTANCE + drawn.samples * UNLIKELY
    return drawn.numbers * smoothing_error(SMOOTHING), chance, drawn.times.late * LATE


def deployed_bound(epsilon: float, delta: float, drawn: Drawn) -> tuple[float, float]:
    """Epsilon and delta of a deployment, rounded up."""
    eta, chance, late = _errors(drawn)
    if not chance and not late:
        return epsilon, delta
    bound = math.nextafter(epsilon + 2 * eta, math.inf) if chance else epsilon
    distance = (1 + math.exp(min(bound, 700.0))) * chance
    return bound, math.nextafter((math.exp(eta) * delta + distance + late) * (1 + 1e-12), math.inf)


_SIMULATED = "a simulation"  # in all that is assumed of those alone
_TOO_MUCH = "so large an epsilon says less than what the samplers' own errors may cost"
