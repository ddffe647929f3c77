"""Certificates: who signed what, for how long, and for which key."""

from __future__ import annotations

import ipaddress
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.reference.certificates import client, written

from gossamer.errors import SpecError
from gossamer.keys.identity import Identity
from gossamer.keys.private_files import IdentityError
from gossamer.runtimes.mqtt.certificates import Authority

AUTHORITY = Authority("an authority", days=30)
IDENTITY = Identity.of_seed(bytes(32))
SOON = datetime.now(UTC) + timedelta(days=7)


def loaded(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def common_name(pem: bytes) -> str:
    (name,) = loaded(pem).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


def purposes(pem: bytes) -> list[x509.ObjectIdentifier]:
    return list(loaded(pem).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_an_authority_signs_and_nobody_else_may() -> None:
    own = loaded(AUTHORITY.certificate)
    own.verify_directly_issued_by(own)
    assert own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    for pem in (client(AUTHORITY, "a").certificate, AUTHORITY.server("b", ["h"]).certificate):
        loaded(pem).verify_directly_issued_by(own)
        assert not loaded(pem).extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    with pytest.raises(InvalidSignature):
        loaded(client(Authority("an authority"), "a").certificate).verify_directly_issued_by(own)


def test_how_long_they_are_valid() -> None:
    now = datetime.now(UTC)
    assert abs(Authority("another authority", days=30).until - now - timedelta(days=30)) < timedelta(minutes=5)
    for pem, until in (
        (client(AUTHORITY, "a").certificate, AUTHORITY.until),
        (client(AUTHORITY, "a", SOON).certificate, SOON),
        (AUTHORITY.client_of("a", IDENTITY.public_key, SOON), SOON),
        (AUTHORITY.server("b", ["h"], SOON).certificate, SOON),
    ):
        found = loaded(pem)
        assert found.not_valid_after_utc == until.replace(microsecond=0)
        assert now - timedelta(hours=2) < found.not_valid_before_utc < now
    client(AUTHORITY, "a", AUTHORITY.until + timedelta(microseconds=999_999))  # certificates know seconds only
    with pytest.raises(SpecError, match="would outlive its authority, which ends"):
        client(AUTHORITY, "a", AUTHORITY.until + timedelta(seconds=1))


def test_clients_are_named_and_cannot_serve() -> None:
    for pem in (client(AUTHORITY, "a").certificate, AUTHORITY.client_of("a", IDENTITY.public_key)):
        assert common_name(pem) == "a"
        assert purposes(pem) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_a_certificate_for_an_identity_goes_with_its_key(tmp_path: Path) -> None:
    """OpenSSL takes the two together, and no others."""
    for name, identity in (("own", IDENTITY), ("other", Identity.of_seed(bytes([1]) * 32))):
        (tmp_path / f"{name}.key").write_bytes(identity.pem)
    certificate = tmp_path / "tls.crt"
    certificate.write_bytes(AUTHORITY.client_of("a", IDENTITY.public_key))
    ssl.create_default_context().load_cert_chain(certificate, tmp_path / "own.key")
    with pytest.raises(ssl.SSLError, match=r"(?i)mismatch"):
        ssl.create_default_context().load_cert_chain(certificate, tmp_path / "other.key")


def test_brokers_are_known_by_their_hosts() -> None:
    pem = AUTHORITY.server("broker", ["broker.example.org", "127.0.0.1", "::1"]).certificate
    names = loaded(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker.example.org"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(a) for a in ("127.0.0.1", "::1")]
    assert purposes(pem) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_brokers_certificate_is_renewed_for_its_key() -> None:
    first = AUTHORITY.server("broker", ["broker.example.org", "127.0.0.1"])
    again = AUTHORITY.renewed(first.certificate, SOON)
    assert loaded(again).not_valid_after_utc == SOON.replace(microsecond=0)
    for part in ("public_key", "subject"):
        old, new = (getattr(loaded(pem), part) for pem in (first.certificate, again))
        assert (old() == new()) if callable(old) else (old == new)
    names = [
        loaded(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName)
        for pem in (first.certificate, again)
    ]
    assert names[0] == names[1]
    assert purposes(again) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert AUTHORITY.server("broker", ["h"]).key != first.key


@pytest.mark.parametrize("found", [b"", b"no certificate", client(AUTHORITY, "a").certificate])
def test_what_is_no_brokers_certificate_is_not_renewed(found: bytes) -> None:
    with pytest.raises(SpecError, match="expected a broker's certificate"):
        AUTHORITY.renewed(found, SOON)


def test_an_authority_that_was_kept() -> None:
    again = Authority.load(AUTHORITY.certificate, AUTHORITY.key)
    assert (again.certificate, again.key, again.until) == (AUTHORITY.certificate, AUTHORITY.key, AUTHORITY.until)
    loaded(client(again, "a").certificate).verify_directly_issued_by(loaded(AUTHORITY.certificate))


def pem_of(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, password: bytes | None = None) -> bytes:
    protection = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)


@pytest.mark.parametrize(
    ("certificate", "key", "line"),
    [
        (b"x", AUTHORITY.key, "expected an authority's certificate and the ECDSA key of it"),
        (AUTHORITY.certificate, b"x", "expected an authority's certificate and the ECDSA key of it"),
        (
            AUTHORITY.certificate,
            pem_of(rsa.generate_private_key(65537, 2048)),
            "expected an authority's certificate and the ECDSA key of it",
        ),
        (AUTHORITY.certificate, pem_of(ec.generate_private_key(ec.SECP256R1()), b"word"), "without a password"),
        (
            AUTHORITY.certificate,
            Authority("another").key,
            "expected an authority's certificate and the ECDSA key of it",
        ),
    ],
)
def test_what_is_no_authority(certificate: bytes, key: bytes, line: str) -> None:
    with pytest.raises(SpecError, match=line):
        Authority.load(certificate, key)


def test_keys_are_written_for_their_owner_alone_and_never_over_others(tmp_path: Path) -> None:
    certificate, key = written(client(AUTHORITY, "a"), tmp_path, "a")
    assert certificate.read_bytes().startswith(b"-----BEGIN CERTIFICATE")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with pytest.raises(IdentityError, match="exists already"):
        written(client(AUTHORITY, "a"), tmp_path, "a")
