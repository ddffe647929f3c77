"""The bytes printed in docs/wire-format.md are what the encoder makes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gossamer.deployment.peers.peers import Heartbeat, LinkCounters, decode_content, encode_content, noted
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import Elapsed
from gossamer.protocol.messages import (
    Acknowledge,
    ChunkFrame,
    Message,
    MessageFrame,
    ProgressFrame,
    decode_frame,
    decode_message,
    encode_frame,
    encode_message,
    message,
)
from gossamer.protocol.witnesses import Note
from gossamer.vectors import Model, Public, Released

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "wire-format.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"<!-- example: (\w+) -->\n```text\n(.*?)```", PAGE, re.DOTALL))


@message("example.offer")
@dataclass(frozen=True)
class Offer(Message):
    exchange: int
    model: Model


OFFER = Offer(7, Public(np.array([1.0])))
EXAMPLES = {
    "tuple": ((1, "é"), encode, decode),
    "vector": (Released(np.array([1, -2], np.float32)), encode, decode),
    "event": (Elapsed("retry"), encode, decode),
    "message": (OFFER, encode_message, decode_message),
    "data": (MessageFrame(2, 1, 5, OFFER), encode_frame, decode_frame),
    "acknowledge": (Acknowledge(5, 6), encode_frame, decode_frame),
    "chunk": (ChunkFrame(2, 1, 5, 4, 4, 51, encode_message(OFFER)[39:]), encode_frame, decode_frame),
    "progress": (ProgressFrame(2, 4, 1, 6), encode_frame, decode_frame),
    "content": (Acknowledge(5, 6), encode_content, lambda sealed: decode_content(sealed, 100)[0]),
    "counters": (LinkCounters(7, 6, 5), encode_content, lambda sealed: decode_content(sealed, 100)[0]),
    "noted": (
        (Acknowledge(5, 6), Note(1, b"\x07" * 32, b"\x08" * 32)),
        lambda both: noted(encode_content(both[0]), both[1]),
        lambda sealed: decode_content(sealed, 100),
    ),
    "word": (Heartbeat(1.5, "quota", True, "1.2.3"), encode_content, lambda sealed: decode_content(sealed, 100)[0]),
}


def printed(name: str) -> bytes:
    """The hexadecimal digits of an example: what stands before the first wide gap of each line."""
    return bytes.fromhex("".join(re.split(r" {2,}", line)[0] for line in BLOCKS[name].splitlines()))


def test_every_example_on_the_page_is_checked() -> None:
    assert set(BLOCKS) == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str) -> None:
    value, encoder, decoder = EXAMPLES[name]
    assert encoder(value) == printed(name)  # type: ignore[operator]
    assert decoder(printed(name)) == value  # type: ignore[operator]
