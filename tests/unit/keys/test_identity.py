"""Keys and the files they live in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.reference.sealed_slow import ed25519_public, ed25519_sign

from gossamer.keys.identity import Identity, PublicKey
from gossamer.keys.private_files import IdentityError
from gossamer.protocol.encoding import encode

SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")  # RFC 8032, section 7.1


def test_keys_and_signatures_are_ed25519() -> None:
    identity = Identity.of_seed(SEED)
    assert identity.public_key.raw == ed25519_public(SEED)
    assert identity.public_key.raw.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = identity.sign("hello", b"text")
    assert signature == ed25519_sign(SEED, encode(("gossamer", "hello", b"text")))
    assert identity.public_key.signed(signature, "hello", b"text")
    for wrong in ((signature, "hello", b"texts"), (signature, "helo", b"text"), (b"", "hello", b"text")):
        assert not identity.public_key.signed(*wrong)
    assert not Identity.of_seed(bytes(32)).public_key.signed(signature, "hello", b"text")


def test_a_fingerprint_is_half_a_sha256() -> None:
    """SHA-256 of the public key of RFC 8032's first test, by sha256sum."""
    key = Identity.of_seed(SEED).public_key
    text = subprocess.run(
        [sys.executable, "-c", f"import hashlib; print(hashlib.sha256(bytes.fromhex('{key.raw.hex()}')).hexdigest())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert key.fingerprint.replace("-", "") == text[:32]
    assert [len(group) for group in key.fingerprint.split("-")] == [4] * 8


def test_public_keys_have_one_text() -> None:
    key = Identity.of_seed(SEED).public_key
    assert str(key) == "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
    assert PublicKey.parse(str(key)) == key
    # The last letter before = holds two bits that are no part of the key.
    other = str(key)[:-2] + "p="
    for text in (other, str(key)[8:], str(key)[:-1], str(key) + "\n", "ed25519:AAAA", "", "ed25519:é"):
        with pytest.raises(IdentityError, match="expected a public key such as"):
            PublicKey.parse(text)
    with pytest.raises(IdentityError, match="expected 32 bytes"):
        PublicKey(bytes(31))


def test_a_key_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "hospital-a.key"
    old = os.umask(0o277)
    try:
        identity = Identity.create(path)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Identity.load(path).public_key == identity.public_key
    assert Identity.generate().public_key != identity.public_key
    assert "private" not in repr(identity).lower()
    with pytest.raises(IdentityError, match="exists already"):
        Identity.create(path)
    assert Identity.load(path).public_key == identity.public_key
    with pytest.raises(IdentityError, match="cannot write the key"):
        Identity.create(tmp_path / "nowhere" / "key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644])
def test_a_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    Identity.create(path)
    path.chmod(mode)
    with pytest.raises(IdentityError, match=f"mode {mode:04o}, expected 0600"):
        Identity.load(path)
    path.chmod(0o400)
    Identity.load(path)


def test_a_key_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    Identity.create(path)
    monkeypatch.setattr(os, "geteuid", lambda: 123456)
    with pytest.raises(IdentityError, match="expected user 123456"):
        Identity.load(path)


def test_files_that_are_no_key(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="cannot read the key: No such file"):
        Identity.load(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(IdentityError, match="expected a file with a key"):
        Identity.load(tmp_path / "pipe")
    with pytest.raises(IdentityError, match=r"Is a directory|found something else"):
        Identity.load(tmp_path)
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    pkcs8 = serialization.PrivateFormat.PKCS8
    contents = {
        b"": "found an empty file, as a power cut can leave one",
        b"\xff" * 100: "expected an Ed25519 private key",
        X25519PrivateKey.generate().private_bytes(pem, pkcs8, none): "expected an Ed25519 private key",
        Identity.generate()._private.private_bytes(
            pem, pkcs8, serialization.BestAvailableEncryption(b"secret")
        ): "protected by a password",
        b"x" * 5000: "at most 4096 bytes",
    }
    for number, (content, line) in enumerate(contents.items()):
        path = tmp_path / str(number)
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(IdentityError, match=line):
            Identity.load(path)


def test_an_identity_agrees_with_another_by_the_same_key_on_the_other_curve() -> None:
    """RFC 7748, section 4.1: u = (1 + y)/(1 - y), by which the base point y = 4/5 of Ed25519 is the u = 9 of X25519."""
    prime = 2**255 - 19
    base = PublicKey((4 * pow(5, -1, prime) % prime).to_bytes(32, "little"))
    assert base.agreement == (9).to_bytes(32, "little")
    mine, theirs = Identity.generate(), Identity.generate()
    private = [X25519PrivateKey.from_private_bytes(one.agreement) for one in (mine, theirs)]
    assert [one.public_key().public_bytes_raw() for one in private] == [
        one.public_key.agreement for one in (mine, theirs)
    ]
