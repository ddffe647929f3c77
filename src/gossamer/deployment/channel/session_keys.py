"""The keys of one session between two nodes, and what is done with them.

Both halves of an X25519 agreement are fresh. Everything both nodes know goes into one transcript: version, run, names,
identity keys, instances and both halves. Its SHA-256 is the salt of HKDF-SHA256 over the agreed secret, which yields
five pieces: for each direction a key for frames and a key for the one confirm, and the public name of the session.

A frame is ChaCha20-Poly1305 under its direction's key with its counter as nonce. **A counter must never be used
twice**: two frames under one nonce give away the difference of their texts and the means to forge others. So keys live
in memory only and nothing here can be copied, pickled or restored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gossamer.keys.identity import PublicKey, agreement_key
from gossamer.protocol.encoding import encode

LABEL = "gossamer sealed frames"
WINDOW = 1024
"""How far a frame may come behind the newest one of its session."""


class MemoryOnly:
    """Base of secrets that must not outlive their process."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be copied or stored: to use a counter twice gives both texts away"
        )


class Ephemeral(MemoryOnly):
    """One node's half of an agreement, for one session."""

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._private = X25519PrivateKey.from_private_bytes(entropy(32))
        self.public = self._private.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """The secret [32 bytes] shared with the owner of ``public``.

        Raises
        ------
        ValueError
            If ``public`` is a point of low order, with which everybody would find the same secret.
        """
        return self._private.exchange(agreement_key(public))


@dataclass(frozen=True)
class SessionEnd:
    """One end of a session, as both ends know it."""

    name: str
    key: PublicKey
    instance: bytes
    ephemeral: bytes

    def fields(self) -> tuple[str, bytes, bytes, bytes]:
        """The parts that go into the transcript."""
        return self.name, self.key.raw, self.instance, self.ephemeral


def transcript(version: int, run: str, one: SessionEnd, other: SessionEnd) -> bytes:
    """SHA-256 of all that both ends must agree on; the same at both."""
    first, second = sorted((one, other), key=lambda end: end.name)
    return hashlib.sha256(encode((LABEL, version, run, first.fields(), second.fields()))).digest()


@dataclass(frozen=True)
class Pieces:
    """Keys that HKDF yields. "First" is the node whose name sorts first."""

    frames_of_first: bytes
    frames_of_second: bytes
    confirm_of_first: bytes
    confirm_of_second: bytes
    session: bytes


def channel_tag(run: str, sender: str, receiver: str) -> bytes:
    """Eight bytes that say which run and which nodes a handshake is between, so that others are told apart at once."""
    return hashlib.sha256(encode((LABEL, run, sender, receiver))).digest()[:8]


def derive(secret: bytes, salt: bytes) -> Pieces:
    """The five pieces (four of 32 bytes, one of 8) that follow from the agreed secret and the transcript."""
    stream = HKDF(SHA256(), 4 * 32 + 8, salt, LABEL.encode()).derive(secret)
    return Pieces(stream[:32], stream[32:64], stream[64:96], stream[96:128], stream[128:])


def nonce(counter: int) -> bytes:
    """Four zero bytes and the counter, little-endian (RFC 8439, section 2.8: never twice under one key)."""
    return bytes(4) + counter.to_bytes(8, "little")


class Window(MemoryOnly):
    """Counters that came: the newest, and a bit for each of the `WINDOW` that end with it."""

    def __init__(self) -> None:
        self.newest = -1
        self._came = 0  # bit i: newest - i

    def admits(self, counter: int) -> bool:
        """Whether a frame of this counter may still come."""
        behind = self.newest - counter
        return behind < 0 or (behind < WINDOW and not self._came >> behind & 1)

    def note(self, counter: int) -> None:
        """An authentic frame of this counter came."""
        ahead = counter - self.newest
        if ahead > 0:
            # A shift by a peer's number must not be a long one.
            self._came = (self._came << ahead if ahead < WINDOW else 0) % (1 << WINDOW) | 1
            self.newest = counter
        else:
            self._came |= 1 << -ahead


class FrameCipher(MemoryOnly):
    """Frames that go one way under one key."""

    def __init__(self, key: bytes, run: str, sender: str, receiver: str) -> None:
        self._cipher = ChaCha20Poly1305(key)
        self._about = encode((LABEL, run, sender, receiver))

    def seal(self, counter: int, header: bytes, plaintext: bytes) -> bytes:
        """The ciphertext and its tag; the header, with the counter in it, is authenticated too."""
        return self._cipher.encrypt(nonce(counter), plaintext, self._about + header)

    def open(self, counter: int, header: bytes, ciphertext: memoryview) -> bytes | None:
        """Return what was sealed, or None if it is not authentic."""
        try:
            return self._cipher.decrypt(nonce(counter), ciphertext, self._about + header)
        except InvalidTag:
            return None


def lock(key: bytes, signature: bytes) -> bytes:
    """A signature [64 bytes] sealed under a key that seals nothing else: it shows that its sender has the keys."""
    return ChaCha20Poly1305(key).encrypt(nonce(0), signature, None)


def unlock(key: bytes, sealed: bytes) -> bytes | None:
    """The signature, or None if it was sealed under another key."""
    try:
        return ChaCha20Poly1305(key).decrypt(nonce(0), sealed, None)
    except InvalidTag:
        return None
