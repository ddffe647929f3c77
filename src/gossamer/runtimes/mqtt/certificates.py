"""Certificates for a broker and its clients: one authority of the federation's own, and what it signs.

The authority's key and the broker's are ECDSA on P-256, since every TLS library has it. A party's certificate is for
the identity that it has anyway (Ed25519, RFC 8410), so that nobody but the party ever holds the key that goes with it,
and the authority needs no more than the public half.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gossamer.errors import SpecError, failing_as
from gossamer.keys.identity import PublicKey, signing_key

DAYS = 3650
"""For how long an authority is valid."""

_PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


_OTHER_USES = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
_NO_USE = dict.fromkeys((*_OTHER_USES, "encipher_only", "decipher_only"), False)


class Certificate(NamedTuple):
    """A certificate and its key, both in PEM format."""

    certificate: bytes
    key: bytes


def expiry(path: Path) -> datetime.datetime:
    """Return when a certificate in PEM format expires, in UTC.

    Raises
    ------
    SpecError
        If there is none.
    """
    with failing_as(SpecError, f"{path}: expected a certificate in PEM format: ", of=(OSError, ValueError)):
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc


class Authority:
    """Signs the certificates of one federation.

    Parameters
    ----------
    name : str
        The common name.
    days : int
        Time for which it is valid, and so what it signs.

    Attributes
    ----------
    certificate : bytes
        Certificate in PEM format, by which others know what it signed.
    """

    def __init__(self, name: str, days: int = DAYS) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        until, subject = now + datetime.timedelta(days=days), _subject(name)
        self._take(_builder(subject, subject, key.public_key(), until, signs=True).sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """The authority whose certificate and key, in PEM format, were kept.

        Raises
        ------
        SpecError
            If they are none, or do not belong together.
        """
        private: Any = None
        with suppress(ValueError, TypeError):
            own = x509.load_pem_x509_certificate(certificate)
            private = serialization.load_pem_private_key(key, password=None)
        if not isinstance(private, ec.EllipticCurvePrivateKey) or own.public_key() != private.public_key():
            raise SpecError("expected an authority's certificate and the ECDSA key of it, in PEM without a password")
        found = cls.__new__(cls)
        found._take(own, private)
        return found

    def _take(self, own: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._own, self._key = own, key
        self.certificate = _pem(own)

    @property
    def key(self) -> bytes:
        """Its private key, in PEM format."""
        return _key_pem(self._key)

    @property
    def until(self) -> datetime.datetime:
        """The end of its validity."""
        return self._own.not_valid_after_utc

    def server(self, name: str, hosts: Iterable[str], until: datetime.datetime | None = None) -> Certificate:
        """A certificate for a broker that is reached by these names or addresses, with a new key.

        Parameters
        ----------
        name, hosts : str, iterable of str
            Name of the broker, and of its machine.
        until : datetime, optional
            Time when it expires; by default with the authority.

        Raises
        ------
        SpecError
            If it would outlive the authority.
        """
        private = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        issued = self._issue(_subject(name), private.public_key(), ExtendedKeyUsageOID.SERVER_AUTH, until, names)
        return Certificate(issued, _key_pem(private))

    def renewed(self, certificate: bytes, until: datetime.datetime) -> bytes:
        """A broker's certificate in PEM format with another end: for the same key, which only the broker has to have.

        Raises
        ------
        SpecError
            If there is no certificate of a broker to renew, or it would outlive the authority.
        """
        try:
            old = x509.load_pem_x509_certificate(certificate)
            names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (ValueError, x509.ExtensionNotFound):
            raise SpecError("expected a broker's certificate in PEM format, found something else") from None
        key = old.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)  # this authority made it
        return self._issue(old.subject, key, ExtendedKeyUsageOID.SERVER_AUTH, until, names)

    def client_of(
        self, name: str, identity: PublicKey, until: datetime.datetime | None = None, run: str | None = None
    ) -> bytes:
        """A certificate, in PEM format, for the node of this name, to be used with its identity's private key.

        With a ``run`` its subject names that as well, so that nodes of one name in two runs are told apart.
        """
        return self._issue(_subject(name, run), signing_key(identity.raw), ExtendedKeyUsageOID.CLIENT_AUTH, until)

    def _issue(
        self,
        name: x509.Name,
        key: _PublicKey,
        purpose: x509.ObjectIdentifier,
        until: datetime.datetime | None,
        names: x509.SubjectAlternativeName | None = None,
    ) -> bytes:
        if until is not None and until.replace(microsecond=0) > self.until:
            raise SpecError(
                f"a certificate until {until:%Y-%m-%d} would outlive its authority, which ends {self.until:%Y-%m-%d}; "
                "choose an earlier end, or found a new federation"
            )
        builder = (
            _builder(name, self._own.subject, key, until or self.until, signs=False)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return _pem(builder.sign(self._key, hashes.SHA256()))


def user_name(name: str, run: str) -> str:
    """Name by which a broker that goes by whole subjects knows the node of this name in a run (RFC 2253)."""
    return _subject(name, run).rfc4514_string()


def _builder(
    name: x509.Name, issuer: x509.Name, key: _PublicKey, until: datetime.datetime, *, signs: bool
) -> x509.CertificateBuilder:
    """A certificate to be signed, of an authority that ``signs`` others or of somebody else."""
    usage = x509.KeyUsage(digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, **_NO_USE)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
    )


def _subject(name: str, run: str | None = None) -> x509.Name:
    unit = [] if run is None else [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, run)]
    return x509.Name([*unit, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
