"""A masked sum in which every message and every state crosses as bytes, with hooks for whoever wants to interfere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from gossamer.keys.identity import Identity
from gossamer.privacy.masking import Group, MaskedSum, MaskingAgent, MaskingServer, Phase
from gossamer.privacy.masking.keys import reproducible_secret
from gossamer.privacy.masking.messages import MaskingMessage
from gossamer.protocol.encoding import decode, encode

METHODS = {
    Phase.ANNOUNCE: "announce",
    Phase.SHARE: "share",
    Phase.MASK: "mask",
    Phase.CONFIRM: "confirm",
    Phase.REVEAL: "reveal",
}


class Conversation:
    """The agents and the server of one sum of ``group``, step by step.

    ``vectors`` are given, or drawn uniformly over the whole ring. Where the group's keys are signed, so they are.
    """

    def __init__(
        self, group: Group, round: int = 0, seed: int = 0, vectors: Mapping[int, np.ndarray] | None = None
    ) -> None:
        self.group, self.round = group, round
        numbers = range(1, group.size + 1)
        self.identities = {i: Identity.of_seed(bytes([i]) * 32) for i in numbers if group.signed}
        keys = {i: identity.public_key for i, identity in self.identities.items()} if group.signed else None
        self.agents = {
            i: MaskingAgent(group, i, round, keys, secret=reproducible_secret(seed, "test", i)) for i in numbers
        }
        self.server = MaskingServer(group, round)
        generator = np.random.default_rng(seed)
        drawn = {i: generator.integers(0, 2**group.bits, group.length, group.dtype) for i in numbers}
        self.vectors = dict(vectors or drawn)
        self.step = Phase.ANNOUNCE
        self.inbox: dict[int, Any] = dict.fromkeys(numbers)
        self.outbox: dict[int, Any] = {}

    def answer(self, agent: int, incoming: Any) -> Any:
        """What an agent says at this step; it is stored and restored around it."""
        arguments = [self.identities.get(agent)] if self.step == Phase.ANNOUNCE else [incoming]
        if self.step == Phase.MASK:
            arguments.append(self.vectors[agent])
        before = self.agents[agent]
        group, number, round, *kept = decode(stored(before))
        restored = MaskingAgent(group, number, round, before.identities, *kept)
        self.agents[agent] = restored
        return through_bytes(getattr(restored, METHODS[self.step])(*arguments))

    def speak(self, silent: Callable[[int], bool] = lambda agent: False) -> None:
        """All agents that are still there, but the silent ones, answer what they were sent."""
        self.outbox = {i: self.answer(i, incoming) for i, incoming in self.inbox.items() if not silent(i)}

    def deliver(self) -> None:
        """The server gets what was said and goes on."""
        for message in self.outbox.values():
            self.server.receive(message)
        self.server = through_bytes(self.server)
        if self.step < Phase.REVEAL:
            self.inbox = {i: through_bytes(message) for i, message in self.server.advance().items()}
        self.step = Phase(self.step + 1)

    def until(self, step: Phase, vanish: Mapping[int, Phase] | None = None) -> Conversation:
        """Everything before ``step``; ``vanish`` says from which step on an agent is silent."""
        while self.step < step:
            now = self.step
            self.speak(lambda agent: (vanish or {}).get(agent, Phase.DONE) <= now)  # noqa: B023
            self.deliver()
        return self

    def sum(self, vanish: Mapping[int, Phase] | None = None) -> MaskedSum:
        """The whole."""
        return self.until(Phase.DONE, vanish).server.unmask()


def one_of_each(group: Group) -> dict[type[MaskingMessage], MaskingMessage]:
    """A message of every kind, all of one sum."""
    conversation, found = Conversation(group), []
    while conversation.step != Phase.DONE:
        conversation.speak()
        found.append(conversation.outbox[1])
        conversation.deliver()
        found.append(conversation.inbox[1])
    return {type(message): message for message in found}


def stored(agent: MaskingAgent) -> bytes:
    """All that an agent keeps but whose keys it knows, which are known from elsewhere."""
    return encode(tuple(getattr(agent, item.name) for item in fields(agent) if item.name != "identities"))


def through_bytes(value: Any) -> Any:
    """What is left of a value after it was encoded and decoded."""
    return decode(encode(value))


def plain_sum(group: Group, vectors: Mapping[int, np.ndarray], agents: tuple[int, ...]) -> list[int]:
    """The sum modulo 2^bits in Python's integers."""
    return [sum(int(vectors[i][k]) for i in agents) % 2**group.bits for k in range(group.length)]
