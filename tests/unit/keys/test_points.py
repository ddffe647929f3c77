"""Keys of low order, by which anybody signs or agrees: refused by all that read keys, and read in one place."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from tests.unit.verify.chains import stored, written

import gossamer
from gossamer.deployment.channel.secure_channel import Ephemeral
from gossamer.errors import PeerError
from gossamer.keys.identity import Identity, PublicKey, agreement_key, signing_key
from gossamer.keys.private_files import IdentityError
from gossamer.privacy.masking.keys import agree, check_point, is_signed
from gossamer.verify import gossamer_verify

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
BASE = 46316835694926478169428394003475163141307993866256225615783033603165251855960

Point = tuple[int, int]
ORIGIN = (0, 1)


def added(one: Point, other: Point) -> Point:
    """The sum of two points of the curve of Ed25519: RFC 8032, section 5.1.4, in plain fractions."""
    (x1, y1), (x2, y2) = one, other
    k = D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P


def with_y(y: int) -> Point | None:
    """A point of the curve with this coordinate; None if there is none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    for x in (root, root * pow(2, (P - 1) // 4, P) % P):
        if x * x % P == square:
            return x, y
    return None


def torsion() -> list[int]:
    """Both coordinates of all points of low order, found by dividing any points by the large prime order."""
    large, found = 2**252 + 27742317777372353535851937790883648493, {ORIGIN}
    for y in range(2, 40):
        if (point := with_y(y)) is not None:
            left, power, times = ORIGIN, point, large
            while times:
                left, power, times = added(left, power) if times & 1 else left, added(power, power), times >> 1
            found.add(left)
            for _ in range(8):
                found |= {added(one, left) for one in found}
    assert len(found) == 8
    return sorted({y for _, y in found})


LOW_Y = torsion()
LOW_U = sorted({0, 1, P - 1} | {(1 + y) * pow(1 - y, -1, P) % P for y in LOW_Y if y != 1})


def encodings(values: list[int]) -> list[bytes]:
    """All 32 bytes that stand for one of the values: modulo the prime, with either first bit."""
    every = [value + over for value in values for over in (0, P) if value + over < 2**255]
    return [(value + (first << 255)).to_bytes(32, "little") for value, first in product(every, (0, 1))]


SIGNING, AGREEING = encodings(LOW_Y), encodings(LOW_U)
OWN = bytes(range(32))


def test_the_encodings_are_those_of_low_order() -> None:
    """As `cryptography` has it: agreements come to nothing, and one signature, made without a key, is of many texts."""
    private = X25519PrivateKey.from_private_bytes(OWN)
    for raw in AGREEING:
        with pytest.raises(ValueError, match="shared key"):
            private.exchange(X25519PublicKey.from_public_bytes(raw))
    rs = encodings(LOW_Y)
    for raw in SIGNING:
        assert any(forged(raw, r, text) for r in rs for text in (b"%d" % n for n in range(30)))
    assert len(SIGNING) == len(AGREEING) == 14


def forged(raw: bytes, r: bytes, text: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(raw).verify(r + bytes(32), text)
    except InvalidSignature:
        return False
    return True


def of_receipts(raw: bytes, folder: Path) -> None:
    """A chain whose signature is made without any private key, and fits."""
    for number in range(200):
        for r in encodings(LOW_Y):
            chain = written(run=f"{number:064x}", key=raw.hex(), sign=lambda head, r=r: r + bytes(32))
            state = bytes.fromhex(chain.head.head)
            if forged(raw, r, gossamer_verify.SIGNED + state):
                gossamer_verify.read(stored(folder, chain.text) / "receipts.jsonl")
                return
    raise AssertionError("no signature fits")


SIGNATURES: dict[str, Callable[[bytes], Any]] = {
    "signing_key": signing_key,
    "identity": PublicKey,
    "masked sum": lambda raw: check_point(raw, 1, "signing"),
}
AGREEMENTS: dict[str, Callable[[bytes], Any]] = {
    "agreement_key": agreement_key,
    "channel": lambda raw: Ephemeral(lambda size: bytes(range(size))).agree(raw),
    "masks": lambda raw: check_point(raw, 1, "mask"),
    "shares": lambda raw: check_point(raw, 1, "share"),
    "agreements on masks": lambda raw: agree(OWN, {1: raw}, "mask"),
}


@pytest.mark.parametrize("reader", SIGNATURES)
def test_signature_keys_of_low_order_are_refused(reader: str) -> None:
    for raw in SIGNING:
        with pytest.raises((ValueError, PeerError)):
            SIGNATURES[reader](raw)
    SIGNATURES[reader](Identity.of_seed(OWN).public_key.raw)


@pytest.mark.parametrize("reader", AGREEMENTS)
def test_agreement_keys_of_low_order_are_refused(reader: str) -> None:
    for raw in AGREEING:
        with pytest.raises((ValueError, PeerError)):
            AGREEMENTS[reader](raw)
    AGREEMENTS[reader](X25519PrivateKey.from_private_bytes(OWN).public_key().public_bytes_raw())


def test_no_signature_is_one_by_a_key_of_low_order() -> None:
    for raw in SIGNING:
        for r in encodings(LOW_Y):
            assert not is_signed(raw, r + bytes(32), b"text")


def test_an_identity_of_low_order_is_refused_in_a_line() -> None:
    text = "ed25519:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    with pytest.raises(IdentityError, match="by which anybody could sign: a point of low order"):
        PublicKey.parse(text)


@pytest.mark.some(4)
@pytest.mark.parametrize("raw", SIGNING, ids=lambda raw: raw.hex()[:8] + raw.hex()[-2:])
def test_receipts_are_not_signed_by_a_key_of_low_order(raw: bytes, tmp_path: Path) -> None:
    with pytest.raises(gossamer_verify.Unreadable, match="a key by which anybody signs"):
        of_receipts(raw, tmp_path / "a")


def test_keys_are_read_in_one_place() -> None:
    """The verifier is a file by itself, and looks for itself."""
    source = Path(gossamer.__file__).parent
    reading = {
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        if re.search(r"from_public_bytes|load_\w+_public_key|from_encoded_point", file.read_text(encoding="utf-8"))
    }
    assert reading == {"keys/identity.py", "verify/gossamer_verify.py"}
