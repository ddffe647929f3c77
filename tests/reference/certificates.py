"""Certificates whose key is made with them, as no federation has them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from gossamer.keys.private_files import write_private
from gossamer.runtimes.mqtt.certificates import Authority, Certificate, _key_pem, _subject


def client(authority: Authority, name: str, until: datetime | None = None) -> Certificate:
    """A certificate for the node of this name, which the broker knows it by."""
    private = ec.generate_private_key(ec.SECP256R1())
    issued = authority._issue(_subject(name), private.public_key(), ExtendedKeyUsageOID.CLIENT_AUTH, until)
    return Certificate(issued, _key_pem(private))


def written(made: Certificate, folder: Path, name: str) -> tuple[Path, Path]:
    """Write ``name.crt`` and ``name.key``; where they are."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(made.certificate)
    write_private(key, made.key)
    return certificate, key
