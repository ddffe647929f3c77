"""The keys of one agent in one masked sum, and what is done with keys: all of it by `cryptography`.

X25519 for agreements, HKDF-SHA256 for everything that is derived from a secret, ChaCha20-Poly1305 for shares on their
way, Ed25519 for signatures. Each derived key is for one purpose and one pair: its HKDF has the sum's digest as salt and
the purpose and the numbers of the agents as info.

An agent draws one secret of 32 bytes for each sum and derives all its keys from that, so that everything it says later
follows from the secret and from what it is sent; saying it again gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gossamer.errors import PeerError
from gossamer.keys.identity import agreement_key, signing_key
from gossamer.privacy.masking.fixed_point import Group, UintArray
from gossamer.protocol.encoding import encode
from gossamer.randomness import derive as derive_seed

KEY_BYTES = 32
SIGNATURE_BYTES = 64
TAG_BYTES = 16
SHARE_BYTES = 33
"""Share of one secret (`shares`)."""
_NONCE = bytes(12)  # each key seals one text


@dataclass(frozen=True, repr=False)
class Keys:
    """Private keys of one agent for one sum, 32 bytes each.

    Attributes
    ----------
    mask : bytes
        X25519, for pairwise masks; is reconstructed by the server if the agent vanishes.
    share : bytes
        X25519, for the encryption of shares; never leaves the agent.
    signing : bytes
        Ed25519, for confirming who survived.
    seed : bytes
        Seed of the self-mask; is reconstructed by the server if the agent survives.
    polynomials : bytes
        Key that the coefficients of the shares' polynomials are drawn with.
    """

    mask: bytes
    share: bytes
    signing: bytes
    seed: bytes
    polynomials: bytes


def keys_of(secret: bytes, group: Group, agent: int, round: int, inputs: bytes) -> Keys:
    """The keys that ``agent`` derives from its ``secret`` for the sum of this group, round and digest of inputs.

    A secret that is used again by mistake still gives other keys in another round, or for other inputs.
    """
    salt = encode((group, agent, round, inputs))
    return Keys(*(derive(secret, salt, purpose) for purpose in ("mask", "share", "signing", "seed", "polynomials")))


def reproducible_secret(seed: int, *labels: str | int) -> bytes:
    """A secret [32 bytes] that follows from ``seed``: for simulation and tests only.

    Whoever knows the seed knows every mask. Deployments draw secrets from the operating system.
    """
    halves = (derive_seed(seed, "masking", *labels, half) for half in (0, 1))
    return b"".join(half.to_bytes(16, "little") for half in halves)


def derive(key: bytes, salt: bytes, purpose: str, *agents: int) -> bytes:
    """32 bytes by HKDF-SHA256, independent for every salt, purpose and agents."""
    return HKDF(SHA256(), KEY_BYTES, salt, encode(("gossamer masking", purpose, *agents))).derive(key)


def commitment(seed: bytes) -> bytes:
    """Return what an agent publishes of its self-mask's seed: 32 bytes that say nothing of it, and fit no other."""
    return derive(seed, b"", "commitment")


def public_key(private: bytes) -> bytes:
    """The public X25519 key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, publics: Mapping[int, bytes], use: str) -> dict[int, bytes]:
    """The secrets [32 bytes] that an X25519 key and those of others, by agent, give either of the two.

    Raises
    ------
    PeerError
        If a public key is a point of low order, with which everybody would find the same secret; the message names
        the agent and the ``use`` of the key.
    """
    own = X25519PrivateKey.from_private_bytes(private)
    for agent, public in publics.items():
        check_point(public, agent, use)
    return {agent: own.exchange(agreement_key(public)) for agent, public in publics.items()}


def check_point(public: bytes, agent: int, use: str) -> None:
    """Raise PeerError unless ``public`` is a key for its ``use``: ``mask``, ``share`` or ``signing``."""
    try:
        signing_key(public) if use == "signing" else agreement_key(public)
    except ValueError:
        raise PeerError(
            f"agent {agent}'s {use} key is not a valid point of Curve25519: expected 32 bytes of a public key"
        ) from None


def signing_public_key(private: bytes) -> bytes:
    """The public Ed25519 key of a private one."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, text: bytes) -> bytes:
    """An Ed25519 signature [64 bytes] of ``text``."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(text)


def is_signed(public: bytes, signature: bytes, text: bytes) -> bool:
    """Whether ``signature`` is one of ``text`` by the owner of ``public``."""
    try:
        signing_key(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def seal(key: bytes, text: bytes) -> bytes:
    """``text`` encrypted and authenticated under a key that seals nothing else; 16 bytes longer."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, text, None)


def unseal(key: bytes, sealed: bytes, whose: str) -> bytes:
    """Return what was sealed.

    Raises
    ------
    PeerError
        If it was sealed under another key or changed.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        raise PeerError(
            f"{whose} do not open: they were changed, or sealed for another group, round or list of agents"
        ) from None


# Masks as key streams of ChaCha20, added modulo 2^bits.
#
# For every pair u < v of agents, u adds a mask that v subtracts; every agent also adds a self-mask of its own. With
# k_uv the pair's key and k_u that of the self-mask, agent u sends
#
#     y_u = x_u + PRG(k_u) + sum_{v > u} PRG(k_uv) - sum_{v < u} PRG(k_uv)      (Bonawitz et al., section 4)

_FIRST_BLOCK = bytes(16)  # counter and nonce: each key makes one stream, of at most 2^38 bytes


def keystream(key: bytes, count: int) -> bytes:
    """The first ``count`` bytes of ChaCha20's stream under a key [32 bytes] used for nothing else."""
    return Cipher(ChaCha20(key, _FIRST_BLOCK), mode=None).encryptor().update(bytes(count))


def mask(key: bytes, group: Group) -> UintArray:
    """Uniform integers [group.length] that follow from ``key``."""
    stream = keystream(key, group.length * group.dtype.itemsize)
    return np.frombuffer(stream, group.dtype.newbyteorder("<"))


def self_mask_key(seed: bytes, digest: bytes) -> bytes:
    """The key of an agent's self-mask in the sum that ``digest`` names."""
    return derive(seed, digest, "self-mask")


def pairwise_mask_keys(private: bytes, publics: Mapping[int, bytes], digest: bytes, agent: int) -> dict[int, bytes]:
    """The keys of the masks between ``agent``, whose private mask key this is, and others with public ones."""
    return {
        other: derive(shared, digest, "pairwise mask", min(agent, other), max(agent, other))
        for other, shared in agree(private, publics, "mask").items()
    }


def with_masks(values: UintArray, added: Iterable[bytes], subtracted: Iterable[bytes], group: Group) -> UintArray:
    """``values`` [group.length] plus the masks of some keys, minus those of others, as a new array."""
    total = values.astype(group.dtype)
    for key in added:
        total += mask(key, group)
    for key in subtracted:
        total -= mask(key, group)
    return total
