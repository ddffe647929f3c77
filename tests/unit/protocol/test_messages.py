"""What may travel between nodes, and what the schema keeps off the wire."""

from __future__ import annotations

import importlib
import pkgutil
import types
import typing
from dataclasses import FrozenInstanceError, dataclass, fields, make_dataclass
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
import pytest

import gossamer.algorithms
import gossamer.protocol
from gossamer.errors import MalformedMessage, PeerError
from gossamer.protocol import encoding
from gossamer.protocol.messages import (
    MAGIC,
    MOST_COUNT,
    VERSION,
    Message,
    check,
    check_count,
    check_model,
    decode_message,
    encode_message,
    encoded_size,
    message,
)
from gossamer.vectors import Blank, Confined, Masked, Model, Public, Released, Sendable


@message("test.messages.offer")
@dataclass(frozen=True)
class Offer(Message):
    exchange: int
    model: Model
    share: Masked


@message("test.messages.anything")
@dataclass(frozen=True)
class Anything(Message):
    vector: Sendable


@message("test.messages.empty")
@dataclass(frozen=True)
class Empty(Message):
    pass


OFFER = Offer(1, Released(np.array([1.0], np.float32)), Masked(np.array([2], np.uint64)))
# Written by hand from the page on the wire format.
OFFER_BYTES = bytes.fromhex(
    "47534d 02"  # GSM, version 2
    "6f 13 746573742e6d657373616765732e6f66666572"  # a registered type, 19 letters, its name
    "03000000"  # three fields
    "69 0100000000000000"  # 1
    "52 00 01 0100000000000000 0000803f"  # Released, float32, one dimension of one number: 1.0
    "4d 05 01 0100000000000000 0200000000000000"  # Masked, uint64, one dimension of one number: 2
)


def test_golden_message() -> None:
    assert encode_message(OFFER) == OFFER_BYTES
    assert decode_message(OFFER_BYTES) == OFFER


@pytest.mark.parametrize(
    "hint",
    [
        float,
        str,
        bool,
        bytes,
        None,
        Any,
        object,
        np.ndarray,
        npt.NDArray[np.float32],
        np.int64,
        list[int],
        tuple[int, ...],
        dict[str, int],
        Optional[int],  # noqa: UP045
        int | float,
        Released | np.ndarray,
        list[Released],
        Blank,
        Message,
        "float",
    ],
    ids=str,
)
def test_schema_refuses_a_field_when_the_class_is_defined(hint: Any) -> None:
    leaky = make_dataclass("Leaky", [("field", hint)], bases=(Message,), frozen=True)
    with pytest.raises(TypeError, match=r"Leaky\.field: a message carries int, Public, Released, Masked or Confined"):
        message("test.messages.leaky")(leaky)
    with pytest.raises(TypeError, match="no encoding"):
        encoding.encode(leaky(0))


def test_schema_refuses_what_no_peer_would_decode() -> None:
    wide = [(f"field{i}", int) for i in range(65)]
    with pytest.raises(TypeError, match="at most 64 fields, found 65"):
        message("test.messages.wide")(make_dataclass("Wide", wide, bases=(Message,), frozen=True))
    full = message("test.messages.full")(make_dataclass("Full", wide[:64], bases=(Message,), frozen=True))
    assert decode_message(encode_message(full(*range(64)))) == full(*range(64))


def test_a_message_is_a_frozen_dataclass_without_saying_so() -> None:
    @message("test.messages.brief")
    class Brief(Message):
        number: int

    assert decode_message(encode_message(Brief(3))) == Brief(3)
    with pytest.raises(FrozenInstanceError):
        Brief(3).number = 4  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"Leaky\.loss: a message carries int"):

        @message("test.messages.loss")
        class Leaky(Message):
            loss: float


def test_a_name_that_is_taken_leaves_no_schema_behind() -> None:
    @dataclass(frozen=True)
    class Again(Message):
        number: int

    with pytest.raises(TypeError, match="new name"):
        message("test.messages.offer")(Again)
    with pytest.raises(TypeError, match="registered"):
        check(Again(1))


def vector(label: type, size: int = 1) -> Any:
    return label(np.zeros(size, np.float32))


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (Offer(True, vector(Public), vector(Masked)), "exchange must be int, found bool"),
        (Offer(np.int64(1), vector(Public), vector(Masked)), "exchange must be int, found int64"),  # type: ignore[arg-type]
        (Offer(1.0, vector(Public), vector(Masked)), "exchange must be int, found float"),  # type: ignore[arg-type]
        (Offer(1, np.zeros(1), vector(Masked)), "model must be Public or Released, found ndarray"),  # type: ignore[arg-type]
        (Offer(1, vector(Masked), vector(Masked)), "model must be Public or Released, found Masked"),
        (Offer(1, vector(Public), vector(Released)), "share must be Masked, found Released"),
        (Offer(1, Blank(1), vector(Masked)), "model must be Public or Released, found Blank"),  # type: ignore[arg-type]
        (Offer(1, None, vector(Masked)), "model must be Public or Released, found NoneType"),  # type: ignore[arg-type]
    ],
)
def test_values_of_other_types_are_not_sent(wrong: Offer, field: str) -> None:
    with pytest.raises(TypeError, match=field):
        encode_message(wrong)
    try:
        smuggled = MAGIC + bytes([VERSION]) + encoding.encode(wrong)
    except TypeError:
        return
    with pytest.raises(MalformedMessage, match=field):
        decode_message(smuggled)


@pytest.mark.parametrize("thing", [1, "offer", np.zeros(2), vector(Released), {"a": 1}, Message(), OFFER.__class__])
def test_only_registered_messages_are_sent(thing: Any) -> None:
    with pytest.raises(TypeError, match="not a registered message"):
        encode_message(thing)


def test_other_registered_types_are_no_messages() -> None:
    from gossamer.protocol.events import Elapsed

    for value in (Elapsed("x"), 1, [OFFER]):
        with pytest.raises(MalformedMessage):
            decode_message(MAGIC + bytes([VERSION]) + encoding.encode(value))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "starts with"),
        (b"GSM\x02", "starts with"),
        (b"gsm\x02" + OFFER_BYTES[4:], "starts with"),
        (OFFER_BYTES[:3] + b"\x03" + OFFER_BYTES[4:], "wire version 2, found 3"),
        (OFFER_BYTES[:3] + b"\x00" + OFFER_BYTES[4:], "wire version 2, found 0"),
        (OFFER_BYTES + b"\x00", "end of the value"),
        (OFFER_BYTES[:-1], "more bytes"),
    ],
)
def test_refuses_wrong_bytes(data: bytes, complaint: str) -> None:
    with pytest.raises(MalformedMessage, match=complaint):
        decode_message(data)


def test_size_limit_is_on_the_whole_message() -> None:
    assert decode_message(OFFER_BYTES, limit=len(OFFER_BYTES)) == OFFER
    with pytest.raises(MalformedMessage, match=f"at most {len(OFFER_BYTES) - 1} bytes"):
        decode_message(OFFER_BYTES, limit=len(OFFER_BYTES) - 1)


def test_a_message_cannot_hide_many_small_values() -> None:
    """Four bytes encode an array of one byte, which takes over a hundred in memory."""
    many = [np.array(0, np.uint8)] * 10_000
    data = MAGIC + bytes([VERSION]) + encoding.encode([many])
    with pytest.raises(MalformedMessage, match="values"):
        decode_message(data)


@pytest.mark.parametrize(
    "outgoing",
    [
        OFFER,
        Empty(),
        Anything(Public(np.zeros(0, np.float32))),
        Anything(Released(np.zeros(7, np.float64))),
        Anything(Masked(np.zeros(3, np.uint8))),
        Anything(Released(np.zeros(10, np.float32))[::3]),
        Offer(-(2**63), vector(Public, 3), vector(Masked, 5)),
    ],
)
def test_encoded_size_is_the_length(outgoing: Message) -> None:
    assert encoded_size(outgoing) == len(encode_message(outgoing))


def test_encoded_size_of_blank_vectors_is_that_of_real_ones() -> None:
    assert encoded_size(Anything(Released(Blank(7)))) == encoded_size(Anything(vector(Released, 7)))


def test_decoded_vectors_are_frozen() -> None:
    incoming = decode_message(OFFER_BYTES)
    assert isinstance(incoming, Offer)
    assert not incoming.model.values.flags.writeable


@pytest.mark.parametrize(
    ("incoming", "complaint"),
    [
        (np.zeros(2, np.float32), "expected 3 values of float32, found 2 of float32"),
        (np.zeros(1, np.float32), "expected 3 values of float32, found 1 of float32"),
        (np.zeros(3, np.float64), "expected 3 values of float32, found 3 of float64"),
        (np.array([0, np.nan, 0], np.float32), "finite"),
        (np.array([0, np.inf, 0], np.float32), "finite"),
        (np.array([0, -np.inf, 0], np.float32), "finite"),
        (np.array([0, 1.1e12, 0], np.float32), r"at most 1e\+12, found 1.1e\+12"),
        (np.array([0, -3e38, 3e38], np.float32), r"at most 1e\+12, found -3e\+38"),
    ],
)
def test_check_model_refuses(incoming: npt.NDArray[np.floating], complaint: str) -> None:
    with pytest.raises(PeerError, match=complaint):
        check_model(Released(incoming), vector(Public, 3))


def test_check_model_accepts_its_like() -> None:
    check_model(Released(np.array([1, -2, 1e12], np.float32)), vector(Public, 3))
    check_model(Released(Blank(3)), Public(Blank(3)))
    with pytest.raises(PeerError):
        check_model(Released(Blank(3)), Public(Blank(4)))


def test_check_model_takes_another_bound() -> None:
    sums = Released(np.array([0, 3e12, 0], np.float32))
    check_model(sums, vector(Public, 3), 4e12)
    with pytest.raises(PeerError):
        check_model(sums, vector(Public, 3), 2e12)
    with pytest.raises(PeerError, match=r"at most 3e\+12, found 3e\+12"):  # float32 has no 3e12, and the next is above
        check_model(sums, vector(Public, 3), 3e12)


def test_counts_are_such_that_one_can_go_on_counting() -> None:
    for number in (0, 5, MOST_COUNT):
        check_count("a", "round", number)
    for number in (-1, MOST_COUNT + 1, 2**63 - 1, -(2**63)):
        with pytest.raises(PeerError, match=f"a sends round {number}, expected 0 to"):
            check_count("a", "round", number)
    with pytest.raises(PeerError, match="expected 0 to 4"):
        check_count("a", "round", 5, 4)


def message_classes() -> list[type[Message]]:
    """Every message class that the library defines."""
    for package in (gossamer.protocol, gossamer.algorithms):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
    found, todo = [], [Message]
    while todo:
        subclasses = [cls for cls in todo.pop().__subclasses__() if cls.__module__.startswith("gossamer.")]
        found += subclasses
        todo += subclasses
    return found


def test_every_message_of_the_library_keeps_the_schema() -> None:
    allowed = {int, Public, Released, Masked, Confined}
    for cls in message_classes():
        assert encoding.name_of(cls)
        assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
        hints = typing.get_type_hints(cls)
        for field in fields(cls):
            hint = hints[field.name]
            members = set(typing.get_args(hint)) if isinstance(hint, types.UnionType) else {hint}
            assert members <= allowed, f"{cls.__name__}.{field.name}: {hint}"
