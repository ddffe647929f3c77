"""Frames byte by byte, their sizes, and what is no frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gossamer.errors import MalformedMessage
from gossamer.protocol import encoding
from gossamer.protocol.events import Elapsed
from gossamer.protocol.messages import (
    HEADER,
    Acknowledge,
    ChunkFrame,
    Frame,
    Message,
    MessageFrame,
    ProgressFrame,
    decode_frame,
    encode_frame,
    encode_message,
    frame_size,
    message,
)
from gossamer.vectors import Blank, Released


@message("test.frames.note")
@dataclass(frozen=True)
class Note(Message):
    number: int


@message("test.frames.model")
@dataclass(frozen=True)
class Model(Message):
    values: Released


def model(size: int) -> Model:
    return Model(Released(np.zeros(size, np.float32)))


# Written by hand from the page on the wire format.
GOLDEN: list[tuple[Frame, str]] = [
    (
        Acknowledge(5, 6),
        "47534d 02  6f 11 6672616d652e61636b6e6f776c65646765 02000000  69 0500000000000000  69 0600000000000000",
    ),
    (
        MessageFrame(2, 1, 4, Note(3)),
        "47534d 02  6f 0a 6672616d652e64617461 04000000"
        "69 0200000000000000  69 0100000000000000  69 0400000000000000"
        "6f 10 746573742e6672616d65732e6e6f7465 01000000  69 0300000000000000",
    ),
    (
        ChunkFrame(2, 1, 4, 3, 3, 7, b"z"),
        "47534d 02  6f 0b 6672616d652e6368756e6b 07000000"
        "69 0200000000000000  69 0100000000000000  69 0400000000000000"
        "69 0300000000000000  69 0300000000000000  69 0700000000000000  62 01000000 7a",
    ),
    (
        ProgressFrame(2, 3, 1, 2),
        "47534d 02  6f 0e 6672616d652e70726f6772657373 04000000"
        "69 0200000000000000  69 0300000000000000  69 0100000000000000  69 0200000000000000",
    ),
]


@pytest.mark.parametrize(("frame", "golden"), GOLDEN)
def test_golden_bytes(frame: Frame, golden: str) -> None:
    assert encode_frame(frame) == bytes.fromhex(golden)
    assert decode_frame(bytes.fromhex(golden)) == frame


@pytest.mark.parametrize(
    "frame",
    [
        Acknowledge(0),
        Acknowledge(9, 2**31),
        MessageFrame(1, 0, 0, Note(3)),
        MessageFrame(7, 6, 7, model(5)),
        ChunkFrame(1, 0, 0, 1, 2, 9, b"abcde"),
        ProgressFrame(1, 2, 0, 2),
    ],
)
def test_frame_size_is_the_length(frame: Frame) -> None:
    assert frame_size(frame) == len(encode_frame(frame))


def test_frame_size_of_blank_vectors_is_that_of_real_ones() -> None:
    assert frame_size(MessageFrame(1, 0, 0, Model(Released(Blank(5))))) == frame_size(MessageFrame(1, 0, 0, model(5)))


@pytest.mark.parametrize(
    "wrong",
    [
        1,
        Note(1),
        Elapsed("x"),
        MessageFrame(True, 0, 0, Note(1)),
        MessageFrame(1, 1.0, 0, Note(1)),  # type: ignore[arg-type]
        MessageFrame(1, 0, 0, Note(True)),
        MessageFrame(1, 0, 0, 5),  # type: ignore[arg-type]
        MessageFrame(1, 0, 0, MessageFrame(1, 0, 0, Note(1))),  # type: ignore[arg-type]
        MessageFrame(1, 0, 0, Elapsed("x")),  # type: ignore[arg-type]
        Acknowledge(None),  # type: ignore[arg-type]
        Acknowledge(1, "x"),  # type: ignore[arg-type]
        ChunkFrame(1, 0, 0, 1, 2, 9, "abcde"),  # type: ignore[arg-type]
        ChunkFrame(1, 0, 0, 1, True, 9, b"abcde"),
        ProgressFrame(1, 2, 0, None),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_other_values_are_no_frames(wrong: Any) -> None:
    with pytest.raises(TypeError):
        encode_frame(wrong)
    with pytest.raises(MalformedMessage):
        decode_frame(HEADER + encoding.encode(wrong))


def test_a_message_is_no_frame_and_the_other_way_round() -> None:
    with pytest.raises(MalformedMessage, match="no frame"):
        decode_frame(encode_message(Note(1)))


def test_a_view_is_encoded_as_its_bytes() -> None:
    view = memoryview(b"abcdef")[1:4]
    assert encode_frame(ChunkFrame(1, 0, 0, 1, 2, 9, view)) == encode_frame(ChunkFrame(1, 0, 0, 1, 2, 9, b"bcd"))
    numbers = memoryview(np.array([1.0], np.float32))  # whatever the view takes them for
    assert encoding.encode(numbers) == bytes.fromhex("62 04000000 0000803f")


def test_the_content_of_a_chunk_is_not_copied() -> None:
    data = np.frombuffer(encode_frame(ChunkFrame(1, 0, 0, 1, 2, 9, b"abcde")), np.uint8)
    frame = decode_frame(data.data)
    assert isinstance(frame, ChunkFrame)
    assert np.shares_memory(np.frombuffer(frame.content, np.uint8), data)
    assert type(encoding.decode(encoding.encode(b"abcde"))) is bytes


def test_size_limit_is_on_the_whole_frame() -> None:
    data = encode_frame(MessageFrame(1, 0, 0, Note(1)))
    assert decode_frame(data, limit=len(data)) == MessageFrame(1, 0, 0, Note(1))
    with pytest.raises(MalformedMessage, match="at most"):
        decode_frame(data, limit=len(data) - 1)


def test_a_frame_cannot_hide_many_small_values() -> None:
    many: Any = [np.array(0, np.uint8)] * 10_000
    with pytest.raises(MalformedMessage, match="values"):
        decode_frame(HEADER + encoding.encode(MessageFrame(1, 0, 0, many)))
