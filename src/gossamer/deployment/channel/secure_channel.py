"""End-to-end encryption between two nodes: the broker in between sees sizes and times, and nothing else.

A `SecureChannel` is one node's end towards one peer. It does no I/O and reads no clock; its only input besides
arguments is the operating system's randomness.

    for datagram in channel.seal(frame):                   publish(datagram)
    plaintexts, answers = channel.open(datagram)           or RefusedDatagram, with a reason to count

**The handshake** is a Diffie-Hellman agreement signed by both identities, over names, run and both halves (ISO/IEC
9798-3; Canetti and Krawczyk, *Analysis of key-exchange protocols*, 2001), with the signatures sealed under the agreed
keys as in SIGMA (Krawczyk, 2003), so that each end knows that the other has the keys:

    A -> B   hello    A's half, signed
    B -> A   confirm  B's half and A's half, both signed           A has a session and may seal
    A -> B   confirm  A's half and B's half, both signed           B has it too

Both ends do the same and the keys do not depend on who began: two hellos that cross end in one session. A hello
changes nothing where it arrives, since an old one can be sent again by anybody; a confirm cannot be old, since it signs
the receiver's own half, and each half is used for one session and then forgotten. What a broker has recorded it cannot
read when it comes by the identity keys later.

**Frames** have a counter per direction. A receiver takes each counter once, in any order, up to `WINDOW` behind the
newest; what is lost is lost. Delivery is the session layer's business (`gossamer.protocol.session`), and that is why a
channel without a session does not queue: it says hello and the caller's text is lost, once, like any other.

**A channel is never restored.** A restored one would use counters again, which gives away the texts of both frames
and the means to forge others, and would take frames again that it took before. So it cannot be copied or pickled; a
restarted node makes a new one, with a new half, and the peer's old session ends when the new one is confirmed. The
same holds for images of whole machines: do not resume a node from one.

**When to say** `SecureChannel.hello`: at the start; when a peer has acknowledged nothing for a while; when a datagram
was refused with ``UNKNOWN_SESSION`` (the peer has a session that this end lacks), at most every few seconds; and every
hour, so that no key is kept for long.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import astuple, dataclass
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gossamer.errors import CallerError, PeerError
from gossamer.keys.identity import Identity, PublicKey, agreement_key
from gossamer.keys.private_files import IdentityError
from gossamer.protocol.encoding import encode


class Reason(StrEnum):
    """Reason that a datagram was refused, for a caller's counters.

    The last four happen between honest nodes, over links that duplicate and delay and when a node restarts. The others
    do not.
    """

    SIZE = "size"
    FORM = "form"
    VERSION = "version"
    ANOTHER_CHANNEL = "another channel"
    NOT_AUTHENTIC = "not authentic"
    TWO_NODES = "two nodes with one identity"
    BUSY = "too many handshakes"
    STALE = "stale handshake"
    UNKNOWN_SESSION = "unknown session"
    OLD_SESSION = "old session"
    REPEATED = "repeated"


class RefusedDatagram(PeerError):
    """A datagram was refused, and nothing changed.

    Attributes
    ----------
    reason : Reason
        Kind of refusal.
    """

    def __init__(self, reason: Reason, line: str) -> None:
        super().__init__(line)
        self.reason = reason


# Layout of sealed datagrams: no keys here, and no secrets.
#
# Three kinds, each ``GSS``, a byte of version and a byte of kind, then fields of fixed length (docs/wire-format.md):
#
# | kind | fields |
# |---|---|
# | 1 hello | channel 8, instance 16, ephemeral 32, signature 64 |
# | 2 confirm | channel 8, instance 16, ephemeral 32, answered 32, sealed signature 80 |
# | 3 frame | session 8, counter u64 little-endian, ciphertext, tag 16 |

VERSION = 2
WORDS = b"GSS"
TAG_BYTES = 16
_PREFIX = len(WORDS) + 2
_HELLO, _CONFIRM, _FRAME = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Hello:
    """``instance`` of the sender would like a session, with ``ephemeral`` as its half of the agreement."""

    channel: bytes
    instance: bytes
    ephemeral: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Confirm:
    """The sender knows the receiver's half (``answered``), and shows that it has the keys that follow."""

    channel: bytes
    instance: bytes
    ephemeral: bytes
    answered: bytes
    sealed: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """Ciphertext that was sealed under ``counter`` of ``session``; ``header`` is authenticated with it."""

    session: bytes
    counter: int
    ciphertext: memoryview
    header: bytes


_LAYOUTS: dict[type[Any], tuple[int, struct.Struct]] = {
    Hello: (_HELLO, struct.Struct("8s16s32s64s")),
    Confirm: (_CONFIRM, struct.Struct("8s16s32s32s80s")),
}
_FIXED = {kind: (cls, layout) for cls, (kind, layout) in _LAYOUTS.items()}
_FRAME_HEADER = struct.Struct(f"<{_PREFIX}s8sQ")
OVERHEAD = _FRAME_HEADER.size + TAG_BYTES
"""By how many bytes a frame is longer than what was sealed."""


def _prefix(kind: int) -> bytes:
    return WORDS + bytes([VERSION, kind])


def pack(handshake: Hello | Confirm) -> bytes:
    """A hello or a confirm as bytes."""
    kind, layout = _LAYOUTS[type(handshake)]
    return _prefix(kind) + layout.pack(*astuple(handshake))


def parse(datagram: bytes, largest: int) -> Hello | Confirm | Frame:
    """The fields of a datagram; nothing in them is authentic yet.

    Parameters
    ----------
    datagram : bytes
        Anything at all.
    largest : int
        Most bytes that a frame may hold after opening.

    Raises
    ------
    RefusedDatagram
        With reason ``SIZE``, ``FORM`` or ``VERSION``.
    """
    if len(datagram) > max(largest + OVERHEAD, 256):
        raise RefusedDatagram(
            Reason.SIZE, f"expected at most {largest + OVERHEAD} bytes, found {len(datagram)}; dropped"
        )
    if datagram[: len(WORDS)] != WORDS or len(datagram) < _PREFIX:
        raise RefusedDatagram(Reason.FORM, "expected a sealed datagram, found other bytes; dropped")
    version, kind = datagram[3], datagram[4]
    if version != VERSION:
        raise RefusedDatagram(
            Reason.VERSION, f"expected version {VERSION} of sealed datagrams, found {version}; update the older node"
        )
    if kind == _FRAME and OVERHEAD <= len(datagram) <= largest + OVERHEAD:
        header = datagram[: _FRAME_HEADER.size]
        _, session, counter = _FRAME_HEADER.unpack(header)
        return Frame(session, counter, memoryview(datagram)[_FRAME_HEADER.size :], header)
    if kind not in _FIXED or len(datagram) != _PREFIX + _FIXED[kind][1].size:
        raise RefusedDatagram(
            Reason.FORM, f"expected a sealed datagram of kind 1 to 3 and its length, found {kind} and {len(datagram)}"
        )
    cls, layout = _FIXED[kind]
    handshake: Hello | Confirm = cls(*layout.unpack_from(datagram, _PREFIX))
    return handshake


# The keys of one session between two nodes, and what is done with them.
#
# Both halves of an X25519 agreement are fresh. Everything both nodes know goes into one transcript: version, run,
# names, identity keys, instances and both halves. Its SHA-256 is the salt of HKDF-SHA256 over the agreed secret, which
# yields five pieces: for each direction a key for frames and a key for the one confirm, and the public name of the
# session.
#
# A frame is ChaCha20-Poly1305 under its direction's key with its counter as nonce. **A counter must never be used
# twice**: two frames under one nonce give away the difference of their texts and the means to forge others. So keys
# live in memory only and nothing here can be copied, pickled or restored.

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


SessionEnd = tuple[str, bytes, bytes, bytes]
"""One end of a session, as both ends know it: its name, its identity's key, its instance and its half."""


def transcript(version: int, run: str, one: SessionEnd, other: SessionEnd) -> bytes:
    """SHA-256 of all that both ends must agree on; the same at both."""
    first, second = sorted((one, other))
    return hashlib.sha256(encode((LABEL, version, run, first, second))).digest()


@dataclass(frozen=True)
class Pieces:
    """Keys that HKDF yields: of frames and of the one confirm, as this node sends and as it gets them."""

    frames_out: bytes
    frames_in: bytes
    confirm_out: bytes
    confirm_in: bytes
    session: bytes


def channel_tag(run: str, sender: str, receiver: str) -> bytes:
    """Eight bytes that say which run and which nodes a handshake is between, so that others are told apart at once."""
    return hashlib.sha256(encode((LABEL, run, sender, receiver))).digest()[:8]


def derive(secret: bytes, salt: bytes, *, first: bool) -> Pieces:
    """The pieces that follow from the agreed secret and the transcript.

    Of two keys of one kind (32 bytes each) the one before is for what the node sends whose name sorts ``first``; the
    name of the session has 8.
    """
    stream = HKDF(SHA256(), 4 * 32 + 8, salt, LABEL.encode()).derive(secret)
    starts = (0, 32, 64, 96) if first else (32, 0, 96, 64)
    frames_out, frames_in, confirm_out, confirm_in = (stream[at : at + 32] for at in starts)
    return Pieces(frames_out, frames_in, confirm_out, confirm_in, stream[128:])


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


LARGEST = 16 << 20
"""Most bytes sealed at a time, unless told otherwise."""
RENEW_EVERY = 1 << 16
"""After so many frames of one direction a hello goes along, so that new keys take over in long runs."""
MOST_FRAMES = 1 << 32
"""Most frames of one direction under one key, far below where ChaCha20-Poly1305 weakens (RFC 9147, section 4.5.3)."""
MOST_FORGED = 1 << 36
"""Most forged frames under one key: each is a guess (RFC 9147, section 4.5.3)."""
REMEMBERED = 256
"""How many former sessions are remembered, to tell what is late from what is unknown."""


class Opened(NamedTuple):
    """Content of a datagram, and answers to it.

    Attributes
    ----------
    plaintexts : list of bytes
        Texts that the peer sealed; each comes out once.
    answers : list of bytes
        Datagrams to send to the peer.
    """

    plaintexts: list[bytes]
    answers: list[bytes]


class _Session(MemoryOnly):
    """Keys that both ends are known to have."""

    def __init__(
        self, name: bytes, instance: bytes, theirs: bytes, outgoing: FrameCipher, incoming: FrameCipher
    ) -> None:
        self.name, self.instance, self.theirs = name, instance, theirs
        self.outgoing, self.incoming = outgoing, incoming
        self.sealed = 0  # the next counter
        self.forged = 0
        self.window = Window()
        self.confirm = b""  # ours
        self.accepted = b""  # theirs


class SecureChannel(MemoryOnly):
    """One node's end of the secrets it shares with one peer.

    Parameters
    ----------
    identity : Identity
        Identity of this node.
    peer_public_key : PublicKey
        Public key of the peer, as the invitation says.
    run : str
        The run's random name.
    me, peer : str
        Names of the two nodes.
    largest : int
        Most bytes sealed or opened at a time; the same at both ends.
    entropy : callable
        Gives so many random bytes, for tests; never another than the default where anything is at stake.

    Raises
    ------
    IdentityError
        If both ends have one name or one key.
    """

    def __init__(
        self,
        identity: Identity,
        peer_public_key: PublicKey,
        run: str,
        me: str,
        peer: str,
        *,
        largest: int = LARGEST,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        if me == peer or identity.public_key == peer_public_key:
            raise IdentityError(f"expected two nodes with a name and a key each, found {me} and {peer} with one")
        self.run, self.me, self.peer, self.largest = run, me, peer, largest
        self._identity, self._peer_key, self._entropy = identity, peer_public_key, entropy
        self._tag_out = channel_tag(run, me, peer)
        self._tag_in = channel_tag(run, peer, me)
        self._instance = entropy(16)
        self._ephemeral = Ephemeral(entropy)
        self._session: _Session | None = None
        self._former: deque[tuple[bytes, bytes]] = deque(maxlen=REMEMBERED)  # names of sessions and peer's instances

    @property
    def session(self) -> bytes | None:
        """The public name [8 bytes] of the session in use; both ends have the same, or have not finished."""
        return self._session.name if self._session else None

    def hello(self) -> list[bytes]:
        """Datagrams that ask the peer for a session; a session in use stays in use until the peer answers."""
        ephemeral = self._ephemeral.public
        signature = self._identity.sign("hello", self._hello_text(self.me, self._instance, ephemeral))
        return [pack(Hello(self._tag_out, self._instance, ephemeral, signature))]

    def seal(self, plaintext: bytes) -> list[bytes]:
        """Datagrams that carry ``plaintext`` to the peer.

        Without a session, which `session` tells, that is a hello only and ``plaintext`` is lost. Until the peer has
        been heard under a new session, each frame goes along with our confirm, because that may have been lost.

        Raises
        ------
        CallerError
            If ``plaintext`` is longer than ``largest``.
        """
        if len(plaintext) > self.largest:
            raise CallerError(
                f"expected at most {self.largest} bytes to seal, found {len(plaintext)}; cut it in chunks"
            )
        session = self._session
        if session is None or session.sealed >= MOST_FRAMES:
            return self.hello()
        counter = session.sealed
        session.sealed += 1
        header = _FRAME_HEADER.pack(_prefix(_FRAME), session.name, counter)
        frame = header + session.outgoing.seal(counter, header, plaintext)
        unheard = [session.confirm] if session.window.newest < 0 else []
        renewal = self.hello() if session.sealed % RENEW_EVERY == 0 else []
        return [*unheard, frame, *renewal]

    def open(self, datagram: bytes, admit: Callable[[], bool] = lambda: True, *, alive: bool = True) -> Opened:
        """Open a datagram that came for this node, perhaps from the peer.

        Parameters
        ----------
        datagram : bytes
            Anything at all.
        admit : callable
            Whether there is time for a handshake; asked where one is about to cost as much as thousands of small
            frames, before anything is known to be authentic.
        alive : bool
            Whether the peer's node that has the session is taken to be there: then none that it replaced comes back.

        Raises
        ------
        RefusedDatagram
            With a reason. Nothing has changed, but for the number of forged frames.
        """
        match parse(datagram, self.largest):
            case Frame() as frame:
                return Opened([self._open_frame(frame)], [])
            case Hello() as hello:
                return Opened([], [self._answer(hello, admit)])
            case Confirm() as confirm:
                return Opened([], self._accept(confirm, datagram, admit, alive))

    def _open_frame(self, frame: Frame) -> bytes:
        session = self._session
        if session is None or frame.session != session.name:
            raise self._strange(frame.session)
        if not session.window.admits(frame.counter):
            raise self._refused(Reason.REPEATED, f"frame {frame.counter} came before, or comes too late")
        plaintext = session.incoming.open(frame.counter, frame.header, frame.ciphertext)
        if plaintext is None:
            session.forged += 1
            if session.forged >= MOST_FORGED:
                self._former.append((session.name, session.instance))  # `seal` asks for another
                self._session = None
            raise self._refused(Reason.NOT_AUTHENTIC, f"frame {frame.counter} was changed or forged")
        session.window.note(frame.counter)
        return plaintext

    def _answer(self, hello: Hello, admit: Callable[[], bool]) -> bytes:
        """Our confirm for a hello; old hellos are answered too, and nothing comes of it."""
        self._check_channel(hello.channel)
        self._check_time(admit)
        text = self._hello_text(self.peer, hello.instance, hello.ephemeral)
        if not self._peer_key.signed(hello.signature, "hello", text):
            raise self._refused(Reason.NOT_AUTHENTIC, "a hello has another signature")
        if self._session is not None and hello.ephemeral == self._session.theirs:
            return self._session.confirm  # the peer has not had it
        digest, pieces = self._agree(hello.instance, hello.ephemeral)
        return self._confirm(hello.ephemeral, digest, pieces)

    def _accept(self, confirm: Confirm, datagram: bytes, admit: Callable[[], bool], alive: bool) -> list[bytes]:
        """Take a session that the peer has confirmed, and what to answer."""
        self._check_channel(confirm.channel)
        if self._session is not None and datagram == self._session.accepted:
            return []
        if confirm.answered != self._ephemeral.public:
            raise self._refused(Reason.STALE, "a confirm answers a hello from before the last session or restart")
        self._check_time(admit)
        digest, pieces = self._agree(confirm.instance, confirm.ephemeral)
        signature = unlock(pieces.confirm_in, confirm.sealed)
        if signature is None or not self._peer_key.signed(signature, "confirm", self._confirm_text(self.peer, digest)):
            raise self._refused(Reason.NOT_AUTHENTIC, "a confirm was changed or forged")
        if alive:
            self._check_instance(confirm.instance)
        answer = self._confirm(confirm.ephemeral, digest, pieces)
        self._begin(confirm, pieces, answer, datagram)
        return [answer]

    def _begin(self, confirm: Confirm, pieces: Pieces, answer: bytes, datagram: bytes) -> None:
        fresh = Ephemeral(self._entropy)  # before anything changes
        if self._session is not None:
            self._former.append((self._session.name, self._session.instance))
        outgoing = FrameCipher(pieces.frames_out, self.run, self.me, self.peer)
        incoming = FrameCipher(pieces.frames_in, self.run, self.peer, self.me)
        self._session = _Session(pieces.session, confirm.instance, confirm.ephemeral, outgoing, incoming)
        self._session.confirm, self._session.accepted = answer, datagram
        self._ephemeral = fresh

    def _agree(self, instance: bytes, ephemeral: bytes) -> tuple[bytes, Pieces]:
        """The transcript's digest and the keys that our half and one of the peer's give."""
        me = self.me, self._identity.public_key.raw, self._instance, self._ephemeral.public
        peer = self.peer, self._peer_key.raw, instance, ephemeral
        digest = transcript(VERSION, self.run, me, peer)
        try:
            return digest, derive(self._ephemeral.agree(ephemeral), digest, first=self.me < self.peer)
        except ValueError:
            raise self._refused(Reason.NOT_AUTHENTIC, "its half of the agreement is no point of Curve25519") from None

    def _confirm(self, answered: bytes, digest: bytes, pieces: Pieces) -> bytes:
        sealed = lock(pieces.confirm_out, self._identity.sign("confirm", self._confirm_text(self.me, digest)))
        return pack(Confirm(self._tag_out, self._instance, self._ephemeral.public, answered, sealed))

    def _hello_text(self, sender: str, instance: bytes, ephemeral: bytes) -> bytes:
        receiver = self.peer if sender == self.me else self.me
        return encode((VERSION, self.run, sender, receiver, instance, ephemeral))

    def _confirm_text(self, sender: str, digest: bytes) -> bytes:
        return encode((VERSION, sender, digest))

    def _check_channel(self, found: bytes) -> None:
        if found != self._tag_in:
            raise self._refused(Reason.ANOTHER_CHANNEL, "it is of another run or between other nodes")

    def _check_time(self, admit: Callable[[], bool]) -> None:
        if not admit():
            raise self._refused(Reason.BUSY, "more handshakes come than there is time to check")

    def _check_instance(self, instance: bytes) -> None:
        """Refuse who was replaced and is alive: it signed a half that is younger than its replacement."""
        replaced = self._session is not None and instance != self._session.instance
        if replaced and any(instance == former for _, former in self._former):
            raise self._refused(
                Reason.TWO_NODES,
                f"two running nodes use the identity {self._peer_key.fingerprint}; stop one, or make it a new identity",
            )

    def _strange(self, name: bytes) -> RefusedDatagram:
        if any(name == former for former, _ in self._former):
            return self._refused(Reason.OLD_SESSION, "a frame is of a session that a newer one has replaced")
        return self._refused(Reason.UNKNOWN_SESSION, "a frame is of a session that this node does not have; say hello")

    def _refused(self, reason: Reason, line: str) -> RefusedDatagram:
        return RefusedDatagram(reason, f"{self.me}, from {self.peer}: {line}; dropped")
