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
_THE_CURATOR = "the trusted server, and whoever it tells"
_WITH_COLLUDERS = (
    "the server and up to {colluders} of the {clients} clients of every round that work together with it, and anyone "
    "on the wires"
)
_THE_SERVER_ALONE = "the server, though no client works together with it, and anyone on the wires"
_ITS_OWN_SHARE = "of a sum's noise the client's own is counted alone, whatever others add, and no mask"
_ASSUMPTIONS = (
    "clip, noise, local steps, numbers of updates, who is asked when and who answers in time do not depend on the data",
    "each person's data sits at one client",
    CODE,
    "this run alone: what other runs on the same data release adds up",
    "the timing of messages is not covered, and neither are crashes",
    SIMULATED_NOISE,
)
_MOVING = "the clip moves by released counts of updates within it, which are charged with each sum, and by nothing else"
_ABSENT = "adding or removing a client is read as blanking its data, so that its update is 0"
_ITS_OWN = "each client clips its whole update, counts its updates and draws its noise itself"
_CURATED = (
    "trusted: the server, which sees each client's raw update, checks its length, charges all whose updates are in a "
    "sum before it draws, and tells nobody what it saw",
    "who is in a sum does not depend on the data: a client that is silent or late is so for other reasons",
)
_DRAWN = (
    "clients of a sum are drawn by the server's secret coins, one for each client, and nobody is drawn because it is "
    "fast or there; a client learns of its own coins alone, and one that is silent is so whoever else was drawn",
    "who was drawn, and how many, is for the server alone, and so are all of a run's results that tell it: its times, "
    "its numbers of messages, bytes and computations, and figures of clients' own copies of the model",
)


_OF_MASKS = (
    "{honest} clients of every sum, this one included, add their noise and tell nobody: of the {clients} of a round at "
    "most {colluders} work together with the server, by whatever it knew of the public coins before",
    "the masks hold: the server learns sums of what was asked alike, and those have all of these clients in them",
)
_HANDED_ON = "trusted: the server hands on the keys of masks as clients sent them, which nobody signs in a simulation"
_SIGNED = "the identities in the invitation sign the keys of masks"
_ITS_PART = (
    "each client clips and encodes its whole update, counts its sums and draws its noise itself, never twice; a "
    "message sent again is the same message",
    "who is in a sum does not depend on the data: a client that is silent or late is so for other reasons",
)


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
    observer, trusted = EVERYBODY, [_ITS_OWN_SHARE]
    if sharing.honest > 1:
        observer = (_WITH_COLLUDERS if sharing.colluders else _THE_SERVER_ALONE).format(**vars(sharing))
        trusted = [line.format(**vars(sharing)) for line in _OF_MASKS]
        trusted.append(_SIGNED if sharing.signed else _HANDED_ON)
    proof = found.proof.replace("agents", "clients").replace("agent", "client")
    assumptions = (*trusted, *_ITS_PART, *_ASSUMPTIONS)
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
    return _guarantee({kind: plan.most_updates}, delta, relation, EVERYBODY, (_ITS_OWN,))


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
    trusted = (*_CURATED, *_DRAWN) if plan.draws else _CURATED
    others = _guarantee(plan.kinds, delta, relation, observer, trusted)
    if plan.count_share:
        kept = tuple(line.removeprefix("clip, ") for line in others.assumptions)
        others = replace(others, assumptions=(*kept, _MOVING) if kept else ())
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
    blank = (_ABSENT,) if relation is NeighboringRelation.ADD_OR_REMOVE_ONE else ()
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


RANDOMNESS = (
    "a deployment: noise and samples come from the operating system's random numbers, expanded with ChaCha20, and "
    "nobody can tell these from random ones, or draw them again by restoring a copy of the machine"
)
MACHINE = "a party's own machine, its memory, its state folder and its copies are read by nobody else"
DISK = (
    "a disk does not forget what it has confirmed, and no run goes on with an older copy of a state folder, or of a "
    "ledger, or without them"
)
FLOATING_POINT = (
    "the noise is drawn in floating point, where its last bits, and those of sums, may tell more than is proved here"
)
NETWORK = (
    "the norm of a network's gradient for one example, which is computed on its own, is right to one part in a "
    "thousand, for which the noise has room"
)
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
    eta = drawn.numbers * smoothing_error(SMOOTHING)
    chance = drawn.numbers * DISTANCE + drawn.samples * UNLIKELY
    failure = chance + drawn.times.late * LATE
    return guarantee.profile.moved(2 * eta, math.exp(eta), failure, math.exp(2 * eta) * chance)


def deployed_bound(epsilon: float, delta: float, drawn: Drawn) -> tuple[float, float]:
    """Epsilon and delta of a deployment, rounded up."""
    eta = drawn.numbers * smoothing_error(SMOOTHING)
    chance = drawn.numbers * DISTANCE + drawn.samples * UNLIKELY
    late = drawn.times.late * LATE
    if not chance and not late:
        return epsilon, delta
    bound = math.nextafter(epsilon + 2 * eta, math.inf) if chance else epsilon
    distance = (1 + math.exp(min(bound, 700.0))) * chance
    return bound, math.nextafter((math.exp(eta) * delta + distance + late) * (1 + 1e-12), math.inf)


_SIMULATED = "a simulation"  # in all that is assumed of those alone
_TOO_MUCH = "so large an epsilon says less than what the samplers' own errors may cost"
