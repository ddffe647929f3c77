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

import os
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from gossamer.deployment.channel.sealed_frames import VERSION, Confirm, Frame, Hello, frame_header, pack, parse
from gossamer.deployment.channel.session_keys import (
    Ephemeral,
    FrameCipher,
    MemoryOnly,
    Pieces,
    SessionEnd,
    Window,
    channel_tag,
    derive,
    lock,
    transcript,
    unlock,
)
from gossamer.errors import CallerError
from gossamer.keys.errors import IdentityError, Reason, RefusedDatagram
from gossamer.keys.identity import Identity, PublicKey
from gossamer.protocol.encoding import encode

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
        header = frame_header(session.name, counter)
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
                self._give_up(session)
            raise self._refused(Reason.NOT_AUTHENTIC, f"frame {frame.counter} was changed or forged")
        session.window.note(frame.counter)
        return plaintext

    def _give_up(self, session: _Session) -> None:
        """End a session that was guessed at too often; `seal` asks for another."""
        self._former.append((session.name, session.instance))
        self._session = None

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
        _, theirs = self._sides(pieces.confirm_of_first, pieces.confirm_of_second)
        signature = unlock(theirs, confirm.sealed)
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
        ours, theirs = self._sides(pieces.frames_of_first, pieces.frames_of_second)
        self._session = _Session(
            pieces.session,
            confirm.instance,
            confirm.ephemeral,
            outgoing=FrameCipher(ours, self.run, self.me, self.peer),
            incoming=FrameCipher(theirs, self.run, self.peer, self.me),
        )
        self._session.confirm, self._session.accepted = answer, datagram
        self._ephemeral = fresh

    def _agree(self, instance: bytes, ephemeral: bytes) -> tuple[bytes, Pieces]:
        """The transcript's digest and the keys that our half and one of the peer's give."""
        me = SessionEnd(self.me, self._identity.public_key, self._instance, self._ephemeral.public)
        peer = SessionEnd(self.peer, self._peer_key, instance, ephemeral)
        digest = transcript(VERSION, self.run, me, peer)
        try:
            return digest, derive(self._ephemeral.agree(ephemeral), digest)
        except ValueError:
            raise self._refused(Reason.NOT_AUTHENTIC, "its half of the agreement is no point of Curve25519") from None

    def _confirm(self, answered: bytes, digest: bytes, pieces: Pieces) -> bytes:
        ours, _ = self._sides(pieces.confirm_of_first, pieces.confirm_of_second)
        sealed = lock(ours, self._identity.sign("confirm", self._confirm_text(self.me, digest)))
        return pack(Confirm(self._tag_out, self._instance, self._ephemeral.public, answered, sealed))

    def _sides(self, first: bytes, second: bytes) -> tuple[bytes, bytes]:
        """Ours and the peer's."""
        return (first, second) if self.me < self.peer else (second, first)

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
