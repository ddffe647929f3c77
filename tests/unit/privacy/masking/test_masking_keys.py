"""Keys, key streams and masks, against plain integers and the vectors of the RFCs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tests.reference import masking_slow as slow

from gossamer.errors import PeerError
from gossamer.privacy.masking import Group
from gossamer.privacy.masking.keys import (
    agree,
    check_point,
    commitment,
    derive,
    is_signed,
    keys_of,
    keystream,
    mask,
    pairwise_mask_keys,
    public_key,
    reproducible_secret,
    seal,
    self_mask_key,
    sign,
    signing_public_key,
    unseal,
    with_masks,
)
from gossamer.privacy.masking.messages import NO_INPUTS
from gossamer.protocol.encoding import encode

GROUP = Group(5, 40)
ONE, OTHER = bytes(range(32)), bytes(range(100, 132))


def test_the_slow_reference_keeps_the_rfcs() -> None:
    """RFC 7748 section 6.1, RFC 5869 appendix A.1, RFC 8439 section 2.3.2."""
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    public = slow.x25519(bob, slow.BASE_POINT)
    assert public == bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    assert slow.x25519(alice, public) == bytes.fromhex(
        "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    )
    derived = slow.hkdf(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)), 42)
    assert derived == bytes.fromhex(
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )
    block = slow.chacha20_block(bytes(range(32)), 1, bytes.fromhex("000000090000004a00000000"))
    assert block[:16] == bytes.fromhex("10f1e7e4d13b5915500fdd1fa32071c4")


def test_agreement_is_x25519() -> None:
    shared = slow.x25519(ONE, slow.x25519(OTHER, slow.BASE_POINT))
    assert public_key(ONE) == slow.x25519(ONE, slow.BASE_POINT)
    assert agree(ONE, {7: public_key(OTHER)}, "mask") == {7: shared}
    assert agree(OTHER, {3: public_key(ONE)}, "mask") == {3: shared}


def test_derivation_is_hkdf_and_separates_purposes_and_agents() -> None:
    salt = b"digest"
    assert derive(ONE, salt, "shares", 1, 2) == slow.hkdf(ONE, salt, encode(("gossamer masking", "shares", 1, 2)))
    others = [
        derive(ONE, salt, "shares", 2, 1),
        derive(ONE, salt, "shares", 12),
        derive(ONE, salt, "share", 1, 2),
        derive(ONE, b"other", "shares", 1, 2),
        derive(OTHER, salt, "shares", 1, 2),
    ]
    assert len({derive(ONE, salt, "shares", 1, 2), *others}) == 6


def test_a_key_stream_is_chacha20() -> None:
    assert keystream(ONE, 200) == slow.stream(ONE, 200)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_mask_reads_the_stream_as_little_endian_integers(bits: int) -> None:
    group = Group(5, 40, bits)
    found = mask(ONE, group)
    assert found.dtype == group.dtype
    assert found.tolist() == slow.mask(ONE, 40, bits)


def test_masks_are_added_and_subtracted_modulo_the_ring() -> None:
    values = np.full(40, 2**32 - 1, np.uint32)
    found = with_masks(values, [ONE], [OTHER], GROUP)
    expected = [
        (2**32 - 1 + a - b) % 2**32 for a, b in zip(slow.mask(ONE, 40, 32), slow.mask(OTHER, 40, 32), strict=True)
    ]
    assert found.tolist() == expected
    assert (values == 2**32 - 1).all()  # the caller's vector is left alone


def test_both_sides_of_a_pair_find_the_same_key() -> None:
    here = pairwise_mask_keys(ONE, {4: public_key(OTHER)}, b"digest", 2)
    there = pairwise_mask_keys(OTHER, {2: public_key(ONE)}, b"digest", 4)
    assert here[4] == there[2]
    assert here[4] != pairwise_mask_keys(ONE, {5: public_key(OTHER)}, b"digest", 2)[5]
    assert here[4] != pairwise_mask_keys(ONE, {4: public_key(OTHER)}, b"another", 2)[4]


def test_all_keys_differ_and_follow_from_secret_group_agent_round_and_inputs() -> None:
    def all_of(secret: bytes, group: Group, agent: int, round: int, inputs: bytes = NO_INPUTS) -> set[bytes]:
        keys = keys_of(secret, group, agent, round, inputs)
        return {keys.mask, keys.share, keys.signing, keys.seed, keys.polynomials}

    base = all_of(ONE, GROUP, 1, 0)
    assert len(base) == 5
    assert base == all_of(ONE, GROUP, 1, 0)
    for other in ((OTHER, GROUP, 1, 0), (ONE, Group(5, 41), 1, 0), (ONE, GROUP, 2, 0), (ONE, GROUP, 1, 1)):
        assert not base & all_of(*other)
    assert not base & all_of(ONE, GROUP, 1, 0, bytes(31) + b"1")


def test_a_commitment_is_not_the_key_of_the_mask() -> None:
    assert commitment(ONE) == slow.hkdf(ONE, b"", encode(("gossamer masking", "commitment")))
    assert self_mask_key(ONE, b"digest") == slow.hkdf(ONE, b"digest", encode(("gossamer masking", "self-mask")))


# Points of order 1, 2, 4 and 8 and their other encodings, with which every private key gives zero. The orders are
# checked with the slow reference.
P = slow.CURVE_PRIME
LOW_ORDER = [
    0,
    1,
    P - 1,
    P,
    P + 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]


@pytest.mark.parametrize("point", LOW_ORDER)
def test_points_of_low_order_are_refused(point: int) -> None:
    public = point.to_bytes(32, "little")
    assert slow.x25519(ONE, public) == bytes(32)
    for use, check in (
        ("mask", lambda: check_point(public, 4, "mask")),
        ("share", lambda: agree(ONE, {4: public}, "share")),
    ):
        with pytest.raises(PeerError, match=f"agent 4's {use} key is not a valid point of Curve25519"):
            check()


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(PeerError, match="agent 4's mask key is not a valid point"):
        check_point(b"\x09" * length, 4, "mask")


def test_a_valid_key_is_accepted() -> None:
    check_point(public_key(ONE), 4, "mask")


def test_sealing() -> None:
    sealed = seal(ONE, b"text")
    assert len(sealed) == 4 + 16
    assert unseal(ONE, sealed, "agent 4's shares") == b"text"
    changed = bytes([sealed[0] ^ 1, *sealed[1:]])
    for key, text in ((OTHER, sealed), (ONE, changed)):
        with pytest.raises(PeerError, match="agent 4's shares do not open: they were changed, or sealed for another"):
            unseal(key, text, "agent 4's shares")


def test_signatures() -> None:
    public, signature = signing_public_key(ONE), sign(ONE, b"text")
    assert is_signed(public, signature, b"text")
    assert not is_signed(public, signature, b"texts")
    assert not is_signed(signing_public_key(OTHER), signature, b"text")
    assert not is_signed(public, b"", b"text")
    assert not is_signed(b"short", signature, b"text")


def test_a_reproducible_secret_depends_on_all_its_labels() -> None:
    found = {reproducible_secret(*labels) for labels in ((0, 1), (0, 2), (1, 1), (0, "1"), (0, 1, 1))}
    assert len(found) == 5
    assert all(len(secret) == 32 and secret[:16] != secret[16:] for secret in found)
    assert reproducible_secret(0, 1) == reproducible_secret(0, 1)


def test_the_error_without_cryptography_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "try:\n    import gossamer.privacy.masking\n"
        "except Exception as error:\n    print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("CallerError secure aggregation needs the optional package cryptography")
    assert '-m pip install "cryptography>=' in done.stdout
