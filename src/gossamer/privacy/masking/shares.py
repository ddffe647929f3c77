"""An agent's two secrets in shares: sealed for each agent, and committed to so that a wrong share is known by itself.

A commitment is HKDF of the share, with the sum's digest as salt, and which share it is as info. It fits no other share.
It says nothing of its own: fewer shares than the threshold leave every other one uniform modulo a prime of 256 bits,
so whoever has no more than these would have to guess one of 2^256 inputs of a hash function.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from functools import partial
from hmac import compare_digest

from gossamer.errors import PeerError
from gossamer.privacy.masking.keys import SHARE_BYTES, Keys, agree, commitment, derive, keystream, public_key, seal
from gossamer.privacy.masking.messages import DIGEST_BYTES, AgentRoster, Announcement, EncryptedShares

# Shamir's secret sharing of 32-byte secrets: any ``threshold`` shares give the secret, fewer say nothing of it.
#
# The secret is the constant term of a polynomial of degree ``threshold - 1`` whose other coefficients are uniform, over
# the integers modulo the prime 2^256 + 297, the smallest that every 32-byte number is below. The share of index i is
# the polynomial's value at i, as 33 bytes. A wrong share gives a wrong secret and no sign of it: whoever needs to know
# compares the secret with something that was published, such as its public key.
#
# References
# ----------
# Shamir, "How to share a secret", Communications of the ACM 22, 1979.

PRIME = (1 << 256) + 297
SECRET_BYTES = 32
_DRAWN = 64  # bytes reduced modulo the prime: within 2^-255 of uniform


def split(
    secret: bytes, threshold: int, indices: Collection[int], random_bytes: Callable[[int], bytes] = secrets.token_bytes
) -> dict[int, bytes]:
    """The share of ``secret`` for each of ``indices``.

    Parameters
    ----------
    secret : bytes
        Secret of 32 bytes.
    threshold : int
        Number of shares that give the secret.
    indices : collection of int
        Distinct numbers from 1.
    random_bytes : callable
        Called once with a number of bytes; whoever can guess what it gives can find the secret from one share.

    Raises
    ------
    ValueError
        If the secret has another length, an index is below 1 or occurs twice, or there are fewer indices than the
        threshold.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"expected a secret of {SECRET_BYTES} bytes, found {len(secret)}")
    _check_indices(indices)
    if not 1 <= threshold <= len(indices):
        raise ValueError(f"expected a threshold of 1 to {len(indices)}, found {threshold}")
    drawn = random_bytes((threshold - 1) * _DRAWN)
    coefficients = [
        int.from_bytes(secret, "little"),
        *(int.from_bytes(drawn[at : at + _DRAWN], "little") % PRIME for at in range(0, len(drawn), _DRAWN)),
    ]
    return {index: _value_at(index, coefficients).to_bytes(SHARE_BYTES, "little") for index in indices}


def _value_at(index: int, coefficients: list[int]) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * index + coefficient) % PRIME
    return value


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret that ``threshold`` of ``shares``, by index, give: those of the smallest indices.

    Raises
    ------
    ValueError
        If an index is below 1, or there are fewer shares than the threshold.
    PeerError
        If a share is no number below the prime, or they give no 32-byte secret, which right shares always do.
    """
    _check_indices(shares)
    if len(shares) < threshold:
        raise ValueError(f"expected {threshold} shares, found {len(shares)}")
    chosen = sorted(shares)[:threshold]
    secret = sum(_number(index, shares[index]) * _weight(index, chosen) for index in chosen) % PRIME
    if secret >= 1 << 8 * SECRET_BYTES:
        raise PeerError("shares do not give a secret: at least one of them is wrong")
    return secret.to_bytes(SECRET_BYTES, "little")


def _number(index: int, share: bytes) -> int:
    number = int.from_bytes(share, "little")
    if len(share) != SHARE_BYTES or number >= PRIME:
        raise PeerError(f"the share of index {index} is no number below the prime")
    return number


def _weight(index: int, indices: list[int]) -> int:
    """Return the weight of the value at ``index`` in that at 0 of the polynomial through ``indices`` (Lagrange)."""
    above, below = 1, 1
    for other in indices:
        if other != index:
            above = above * other % PRIME
            below = below * (other - index) % PRIME
    return above * pow(below, -1, PRIME) % PRIME


def _check_indices(indices: Collection[int]) -> None:
    # At 0 the share would be the secret itself.
    if any(type(index) is not int or not 1 <= index < PRIME for index in indices) or len(set(indices)) < len(indices):
        raise ValueError(f"expected distinct indices from 1, found {sorted(indices)}")


SECRETS = ("mask", "seed")
"""In this order: the mask key, which is found if the agent vanishes, and its self-mask's seed, if it survives."""


def deal(keys: Keys, roster: AgentRoster, digest: bytes, agent: int, threshold: int) -> tuple[EncryptedShares, bytes]:
    """Shares of the secrets of ``agent`` for all on the ``roster`` of the sum that ``digest`` names.

    Returns
    -------
    EncryptedShares
        Shares of both for each other agent, and commitments to the shares of each, this one too.
    bytes
        Share of both that is its own.
    """
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
    return EncryptedShares(roster.round, agent, sealed, commitments), both[agent]


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
        Announcement of the agent whose secret it is.
    which : {"mask", "seed"}
        Name of the secret.
    shares : mapping of int to bytes
        Shares by the agent that revealed each.
    commitments : mapping of int to bytes
        Commitments as the secret's owner gave them.
    threshold : int
        Number of shares that give a secret.
    digest : bytes
        Digest of the sum.

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
