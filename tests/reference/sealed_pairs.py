"""Two channels and what is between them, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gossamer.deployment.channel.secure_channel import SecureChannel
from gossamer.keys.identity import Identity

RUN = "0" * 31 + "7"
SEEDS = {"a": bytes([1]) * 32, "b": bytes([4]) * 32}
OTHER = {"a": "b", "b": "a"}


def channel(me: str = "a", run: str = RUN, **changes: Any) -> SecureChannel:
    """A new channel of ``a`` to ``b`` or back."""
    identity = changes.pop("identity", Identity.of_seed(SEEDS[me]))
    return SecureChannel(
        identity, Identity.of_seed(SEEDS[OTHER[me]]).public_key, run, me, OTHER[me], **{"largest": 100, **changes}
    )


def carry(datagrams: Iterable[bytes], to: SecureChannel, back: SecureChannel) -> list[bytes]:
    """Deliver datagrams, and the answers, and theirs; what ``to`` opened."""
    plaintexts = []
    for datagram in datagrams:
        opened = to.open(datagram)
        plaintexts += opened.plaintexts
        carry(opened.answers, back, to)
    return plaintexts


def joined(one: SecureChannel, other: SecureChannel) -> None:
    """Give two channels a session, ``one`` asking."""
    carry(one.hello(), other, one)


def state(channel: SecureChannel) -> object:
    """Everything in a channel that can change, as data to compare."""
    return _state(channel)


def _state(value: Any) -> Any:
    if type(value).__module__.startswith("gossamer.deployment") and hasattr(value, "__dict__"):
        # Objects of `cryptography` do not change: the same one is the same state.
        counted = ("forged",)  # how many frames were refused
        return type(value), {key: _state(inner) for key, inner in vars(value).items() if key not in counted}
    return (id(value), list(value)) if hasattr(value, "maxlen") else value
