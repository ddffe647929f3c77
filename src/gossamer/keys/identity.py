"""Identity of a party: one Ed25519 key, made on the party's own machine and never sent anywhere.

    identity = Identity.create("hospital-a.key")
    print(identity.public_key.fingerprint)    # to be compared by telephone

The private key is a PEM file (PKCS 8) that only its owner may read. It is not protected by a password: a node must be
able to restart at night, so the password would lie beside it. Who wants one encrypts the disk.
"""

# ruff: noqa: E402

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from gossamer.extras import require

require("cryptography", "a federation needs", "secure")  # one clear line where it is missing

# isort: split

from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from gossamer.keys.private_files import IdentityError, read_private, write_private
from gossamer.protocol.encoding import encode

# Public keys of others, from bytes: the one place that reads them, and none that everybody has the private half of.
#
# Curve25519 has eight points of low order. By a signature key that is one of them anybody signs nearly anything, which
# Ed25519 does not notice; of an agreement by one everybody knows the secret. Each can be written in several ways: with
# a coordinate of the prime or more, and with either of the two values of the first bit. All are refused.
#
# References
# ----------
# Chalkias, Garillot and Nikolaenko, "Taming the many EdDSAs", SSR 2020, section 4; RFC 7748, section 6.1.

_PRIME: Final = 2**255 - 19
_EIGHTH: Final = 2707385501144840649318225287225658788936804267575313519463743609750303402022
# y of the points of order 1, 2, 4 and 8 on the curve of Ed25519, and u = (1 + y)/(1 - y) of theirs on that of X25519,
# where the point at infinity is none and its place is taken by that of the twist.
_SIGNING: Final = {1, _PRIME - 1, 0, _EIGHTH, _PRIME - _EIGHTH}
_AGREEING: Final = {y if y in (0, 1, _PRIME - 1) else (1 + y) * pow(1 - y, -1, _PRIME) % _PRIME for y in _SIGNING}


def signing_key(raw: bytes) -> Ed25519PublicKey:
    """Return the key that others sign by.

    Raises
    ------
    ValueError
        If the bytes are not 32, or those of a point of low order.
    """
    _check(raw, _SIGNING)
    return Ed25519PublicKey.from_public_bytes(raw)


def agreement_key(raw: bytes) -> X25519PublicKey:
    """Return the key that others agree on a secret by.

    Raises
    ------
    ValueError
        If the bytes are not 32, or those of a point of low order.
    """
    _check(raw, _AGREEING)
    return X25519PublicKey.from_public_bytes(raw)


def _check(raw: bytes, low: set[int]) -> None:
    # The bit that is left out is the sign of a point's other coordinate, or none of X25519's.
    if int.from_bytes(raw, "little") % 2**255 % _PRIME in low:
        raise ValueError("a point of low order")


KEY_BYTES = 32
SIGNATURE_BYTES = 64
_PREFIX = "ed25519:"


@dataclass(frozen=True)
class PublicKey:
    """Public key that others know a party by.

    Attributes
    ----------
    raw : bytes
        The 32 bytes of an Ed25519 public key.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != KEY_BYTES:
            raise IdentityError(f"expected {KEY_BYTES} bytes of an Ed25519 public key, found {len(self.raw)}")
        try:
            signing_key(self.raw)
        except ValueError:
            raise IdentityError(
                f"expected the public key of a party, found {self}, by which anybody could sign: a point of low order; "
                "do not trust whoever sent it"
            ) from None

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """The key that `str` wrote.

        Raises
        ------
        IdentityError
            If it is not one, or written in another way: a key has one text only.
        """
        try:
            raw = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != KEY_BYTES or _written(raw) != text:
            raise IdentityError(f"expected a public key such as {_PREFIX}{'B' * 42}A=, found {text[:80]!r}")
        return cls(raw)

    def __str__(self) -> str:
        return _written(self.raw)

    @property
    def fingerprint(self) -> str:
        """The first half of the key's SHA-256, for people to compare: eight groups of four hexadecimal digits.

        To find another key with the same fingerprint takes 2^128 trials.
        """
        return grouped(hashlib.sha256(self.raw).hexdigest()[:32])

    @property
    def agreement(self) -> bytes:
        """The key of X25519 [32 bytes] of the same owner: the same point on that curve (RFC 7748, section 4.1).

        One key may serve for both: Thormarker, "On using the same key pair for Ed25519 and an X25519 based KEM", 2021.
        """
        y = int.from_bytes(self.raw, "little") % 2**255
        return ((1 + y) * pow(1 - y, -1, _PRIME) % _PRIME).to_bytes(KEY_BYTES, "little")

    def signed(self, signature: bytes, purpose: str, content: bytes) -> bool:
        """Whether ``signature`` is one of ``content``, made for ``purpose`` by the owner of this key."""
        try:
            signing_key(self.raw).verify(signature, _signed_text(purpose, content))
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class Identity:
    """A party's private key.

    Attributes
    ----------
    public_key : PublicKey
        The half that others may know.
    """

    _private: Ed25519PrivateKey = field(repr=False)

    @property
    def public_key(self) -> PublicKey:
        return PublicKey(self._private.public_key().public_bytes_raw())

    @property
    def pem(self) -> bytes:
        """The private key in PEM format (PKCS 8), without a password."""
        return self._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @classmethod
    def generate(cls) -> Identity:
        """A new identity, in memory only."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def of_seed(cls, seed: bytes) -> Identity:
        """The identity whose private key (RFC 8032) these 32 bytes are, for tests and examples."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def create(cls, path: str | Path) -> Identity:
        """A new identity, kept in a new file that only this user may read (mode 0600).

        Raises
        ------
        IdentityError
            If the file exists or cannot be written.
        """
        identity = cls.generate()
        write_private(path, identity.pem)
        return identity

    @classmethod
    def load(cls, path: str | Path) -> Identity:
        """The identity kept in a file.

        Raises
        ------
        IdentityError
            If the file cannot be read, others may read or write it, or it is no unprotected Ed25519 private key.
        """
        pem = read_private(path)
        try:
            private = serialization.load_pem_private_key(pem, password=None)
        except TypeError:
            raise IdentityError(
                f"{path}: the key is protected by a password; write it without one (openssl pkey -in ... -out ...)"
            ) from None
        except (ValueError, UnsupportedAlgorithm):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise IdentityError(f"{path}: expected an Ed25519 private key in PEM (PKCS 8), found something else")
        return cls(private)

    @property
    def agreement(self) -> bytes:
        """The private half of `PublicKey.agreement` [32 bytes]: what a signature's scalar is made of (RFC 8032)."""
        return hashlib.sha512(self._private.private_bytes_raw()).digest()[:KEY_BYTES]

    def secret(self, purpose: str) -> bytes:
        """A secret [32 bytes] for one ``purpose``, which is never sent and is the same whenever it is asked for."""
        return hashlib.blake2b(
            encode(("gossamer", purpose)), key=self._private.private_bytes_raw(), digest_size=32
        ).digest()

    def sign(self, purpose: str, content: bytes) -> bytes:
        """A signature [64 bytes] of ``content`` that is worth nothing for another ``purpose``."""
        return self._private.sign(_signed_text(purpose, content))


def grouped(fingerprint: str) -> str:
    """A fingerprint as people type it, with or without spaces and hyphens, in small letters and groups of four."""
    digits = re.sub(r"[\s:-]", "", fingerprint).lower()
    return "-".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def _written(raw: bytes) -> str:
    return _PREFIX + base64.b64encode(raw).decode()


def _signed_text(purpose: str, content: bytes) -> bytes:
    return encode(("gossamer", purpose, content))
