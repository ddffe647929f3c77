"""Sealed datagrams as docs/wire-format.md describes them, in plain integers; Ed25519 and Poly1305 as their RFCs do."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tests.reference.masking_slow import BASE_POINT, chacha20_block, hkdf, x25519

from gossamer.protocol.encoding import encode

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
Point = tuple[int, int]


def _add(a: Point, b: Point) -> Point:
    """RFC 8032, section 5.1.4, in affine coordinates."""
    product = D * a[0] * b[0] * a[1] * b[1]
    x = (a[0] * b[1] + a[1] * b[0]) * pow(1 + product, P - 2, P)
    y = (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, P - 2, P)
    return x % P, y % P


def _times(scalar: int, point: Point) -> Point:
    total = (0, 1)
    for bit in bin(scalar)[2:]:
        total = _add(total, total)
        if bit == "1":
            total = _add(total, point)
    return total


def _base() -> Point:
    y = 4 * pow(5, P - 2, P) % P
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    return (P - x if x % 2 else x), y


BASE = _base()


def _packed(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def _secret(seed: bytes) -> tuple[int, bytes]:
    digest = hashlib.sha512(seed).digest()
    return (int.from_bytes(digest[:32], "little") & ((1 << 254) - 8)) | (1 << 254), digest[32:]


def ed25519_public(seed: bytes) -> bytes:
    """RFC 8032, section 5.1.5."""
    return _packed(_times(_secret(seed)[0], BASE))


def ed25519_sign(seed: bytes, text: bytes) -> bytes:
    """RFC 8032, section 5.1.6."""
    scalar, prefix = _secret(seed)
    r = int.from_bytes(hashlib.sha512(prefix + text).digest(), "little") % ORDER
    point = _packed(_times(r, BASE))
    k = int.from_bytes(hashlib.sha512(point + ed25519_public(seed) + text).digest(), "little") % ORDER
    return point + ((r + k * scalar) % ORDER).to_bytes(32, "little")


def poly1305(key: bytes, text: bytes) -> bytes:
    """RFC 8439, section 2.5."""
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for i in range(0, len(text), 16):
        total = (total + int.from_bytes(text[i : i + 16] + b"\x01", "little")) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def _padded(text: bytes) -> bytes:
    return text + bytes(-len(text) % 16)


def aead(key: bytes, nonce: bytes, text: bytes, about: bytes) -> bytes:
    """RFC 8439, section 2.8: the ciphertext and the tag."""
    blocks = [chacha20_block(key, 1 + i, nonce) for i in range(-(-len(text) // 64))]
    ciphertext = bytes(a ^ b for a, b in zip(text, b"".join(blocks)))
    lengths = len(about).to_bytes(8, "little") + len(ciphertext).to_bytes(8, "little")
    tagged = _padded(about) + _padded(ciphertext) + lengths
    return ciphertext + poly1305(chacha20_block(key, 0, nonce)[:32], tagged)


@dataclass(frozen=True)
class Party:
    """All that one end draws."""

    name: str
    seed: bytes
    instance: bytes
    half: bytes  # the private one

    @property
    def public(self) -> bytes:
        return x25519(self.half, BASE_POINT)

    def signature(self, purpose: str, content: bytes) -> bytes:
        return ed25519_sign(self.seed, encode(("gossamer", purpose, content)))


def tag(run: str, sender: Party, receiver: Party) -> bytes:
    names = (sender.name, receiver.name)
    return hashlib.sha256(encode(("gossamer sealed frames", run, *names))).digest()[:8]


def hello(run: str, sender: Party, receiver: Party) -> bytes:
    text = encode((2, run, sender.name, receiver.name, sender.instance, sender.public))
    return (
        b"GSS\x02\x01" + tag(run, sender, receiver) + sender.instance + sender.public + sender.signature("hello", text)
    )


def keys(run: str, one: Party, other: Party) -> tuple[bytes, bytes]:
    """The transcript's digest and the 136 bytes derived."""
    ends = [(p.name, ed25519_public(p.seed), p.instance, p.public) for p in sorted((one, other), key=lambda p: p.name)]
    digest = hashlib.sha256(encode(("gossamer sealed frames", 2, run, *ends))).digest()
    return digest, hkdf(x25519(one.half, other.public), digest, b"gossamer sealed frames", 136)


def confirm(run: str, sender: Party, receiver: Party) -> bytes:
    digest, derived = keys(run, sender, receiver)
    key = derived[64:96] if sender.name < receiver.name else derived[96:128]
    signature = sender.signature("confirm", encode((2, sender.name, digest)))
    fields = tag(run, sender, receiver) + sender.instance + sender.public + receiver.public
    return b"GSS\x02\x02" + fields + aead(key, bytes(12), signature, b"")


def frame(run: str, sender: Party, receiver: Party, counter: int, text: bytes) -> bytes:
    _, derived = keys(run, sender, receiver)
    key = derived[:32] if sender.name < receiver.name else derived[32:64]
    header = b"GSS\x02\x03" + derived[128:] + counter.to_bytes(8, "little")
    about = encode(("gossamer sealed frames", run, sender.name, receiver.name)) + header
    return header + aead(key, bytes(4) + counter.to_bytes(8, "little"), text, about)
