"""An agent's two secrets in shares: sealed for each agent, and committed to so that a wrong share is known by itself.

A commitment is HKDF of the share, with the sum's digest as salt, and which share it is as info. It fits no other share.
It says nothing of its own: fewer shares than the threshold leave every other one uniform modulo a prime of 256 bits,
so whoever has no more than these would have to guess one of 2^256 inputs of a hash function.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hmac import compare_digest
from typing import NamedTuple

from gossamer.errors import PeerError
from gossamer.privacy.masking.keys import Keys, agree, commitment, derive, public_key, seal
from gossamer.privacy.masking.masks import keystream
from gossamer.privacy.masking.messages import DIGEST_BYTES, Announcement, Roster
from gossamer.privacy.masking.shamir import SHARE_BYTES, combine, split

SECRETS = ("mask", "seed")
"""In this order: the mask key, which is found if the agent vanishes, and its self-mask's seed, if it survives."""


class Dealt(NamedTuple):
    """Shares of an agent's secrets, sealed for the others.

    Attributes
    ----------
    sealed : dict of int to bytes
        For each other agent, its share of both.
    commitments : dict of int to bytes
        To the shares of each agent, this one too.
    own : bytes
        Its own share of both.
    """

    sealed: dict[int, bytes]
    commitments: dict[int, bytes]
    own: bytes


def deal(keys: Keys, roster: Roster, digest: bytes, agent: int, threshold: int) -> Dealt:
    """Shares of the secrets of ``agent`` for all on the ``roster`` of the sum that ``digest`` names."""
    of_key, of_seed = (
        split(secret, threshold, roster.agents, partial(keystream, derive(keys.polynomials, digest, which)))
        for which, secret in zip(SECRETS, (keys.mask, keys.seed), strict=True)
    )
    both = {other: of_key[other] + of_seed[other] for other in roster.agents}
    publics = {other: one.share_key for other, one in roster.by_agent.items() if other != agent}
    sealed = {
        other: seal(derive(shared, digest, "shares", agent, other), both[other])
        for other, shared in agree(keys.share, publics, "share").items()
    }
    commitments = {
        other: _commitment(of_key[other], digest, "mask", agent, other)
        + _commitment(of_seed[other], digest, "seed", agent, other)
        for other in roster.agents
    }
    return Dealt(sealed, commitments, both[agent])


def share_of(both: bytes, which: str) -> bytes:
    """One of the two shares that an agent holds of another's secrets."""
    return both[:SHARE_BYTES] if which == "mask" else both[SHARE_BYTES:]


def recover(
    announced: Announcement,
    which: str,
    shares: Mapping[int, bytes],
    commitments: Mapping[int, bytes],
    threshold: int,
    digest: bytes,
) -> bytes:
    """The secret [32 bytes] of the agent that ``announced`` itself, of which ``shares`` were revealed.

    Shares that do not fit their commitments are left out, if any threshold of the others is enough. They are looked at
    only where the first shares do not give what was announced: at most one commitment a share.

    Parameters
    ----------
    announced : Announcement
        Of the agent whose secret it is.
    which : {"mask", "seed"}
        Which of its secrets.
    shares : mapping of int to bytes
        By the agent that revealed it.
    commitments : mapping of int to bytes
        As the secret's owner gave them.
    threshold : int
        How many shares give a secret.
    digest : bytes
        Of the sum.

    Raises
    ------
    PeerError
        If too few shares are right, or their owner dealt shares of something else.
    """
    found = _combined(announced, which, shares, threshold)
    if found is None:
        start = SECRETS.index(which) * DIGEST_BYTES
        right = {
            giver: share
            for giver, share in shares.items()
            if compare_digest(
                _commitment(share, digest, which, announced.agent, giver),
                commitments[giver][start : start + DIGEST_BYTES],
            )
        }
        found = _combined(announced, which, right, threshold)
    if found is None:
        raise PeerError(
            f"the shares of agent {announced.agent}'s {_NAMES[which]} do not give what it announced: fewer than "
            f"{threshold} of them are right, and nothing is unmasked"
        )
    return found


_NAMES = {"mask": "mask key", "seed": "self-mask"}


def _combined(announced: Announcement, which: str, shares: Mapping[int, bytes], threshold: int) -> bytes | None:
    """Combine the first shares; None if that does not give the secret."""
    if len(shares) < threshold:
        return None
    try:
        secret = combine(shares, threshold)
    except PeerError:
        return None
    expected, found = (
        (announced.mask_key, public_key(secret)) if which == "mask" else (announced.commitment, commitment(secret))
    )
    return secret if found == expected else None


def _commitment(share: bytes, digest: bytes, which: str, owner: int, holder: int) -> bytes:
    return derive(share, digest, f"share of {which}", owner, holder)
