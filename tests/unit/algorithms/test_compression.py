"""Small messages: bytes of numbers and back, which numbers are sent, and what is made up for later."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gs
from gossamer.algorithms.clients.nodes import ClientNode, Newest, Push
from gossamer.algorithms.compression import Packing
from gossamer.algorithms.context import Context
from gossamer.algorithms.gossip.exchange import HALF, Form, Offer, State
from gossamer.errors import PeerError, SpecError
from gossamer.experiment.audits.observers import NetworkPrivacy
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import LocalUpdate, Query, TrainingQuery
from gossamer.protocol.events import Completed, Received, Started
from gossamer.protocol.messages import encode_message, encoded_size
from gossamer.protocol.node import Node
from gossamer.randomness import stream
from gossamer.topology.graphs import Graph
from gossamer.vectors import Blank, Confined, Public, Released


def released(values: Any, dtype: str = "float32") -> Released:
    return Released(np.array(values, dtype))


def there_and_back(packing: Packing, vector: Released, base: Released) -> Released:
    found = packing.unpack(packing.pack(vector, packing.places(vector)), base)
    assert isinstance(found, Released)
    return found


@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40),
    st.integers(2, 8),
    st.sampled_from([0.01, 0.3, 0.9, 1.0]),
)
def test_numbers_are_within_half_a_step_and_others_stay(values: list[float], bits: int, share: float) -> None:
    """A step is the largest number that is sent over m, the largest with (2m + 1)^8 <= 2^(8 bits - 1); what is not sent
    is that of the base.
    """
    packing, vector = Packing(bits=bits, share=share), released(values)
    found = there_and_back(packing, vector, base := released(np.full(len(values), 7.0)))
    sent = sorted(range(len(values)), key=lambda place: -abs(vector.values[place]))[: math.ceil(share * len(values))]
    most = max(m for m in range(128) if (2 * m + 1) ** 8 <= 2 ** (8 * bits - 1))
    step = max(abs(vector.values[place]) for place in sent) / most
    for place in range(len(values)):
        if place in sent:
            assert abs(float(found.values[place]) - float(vector.values[place])) <= 0.5001 * step + 1e-30
        else:
            assert found.values[place] == base.values[place]


@pytest.mark.parametrize(
    ("bits", "share", "expected"), [(8, 1.0, 4 + 7734), (4, 1.0, 4 + 3806), (8, 0.1, 4 + 982 + 780)]
)
def test_bytes_are_those_that_are_counted(bits: int, share: float, expected: int) -> None:
    """Of 7,850 numbers: four bytes of the scale, a bit for each number if some are left out, and bits of those sent, 63
    or 31 for each eight: 982 of them, or 99.

    A run without data counts as many.
    """
    packing, vector = Packing(bits=bits, share=share), released(stream(1).standard_normal(7850))
    packed = packing.pack(vector, packing.places(vector))
    assert packed.nbytes == expected
    blank = Released(Blank(7850))
    counted = packing.pack(blank, packing.places(blank))
    assert (counted.nbytes, counted.values.dtype) == (expected, np.uint8)
    message = Push(1, 1, packed)
    assert len(encode_message(message)) == encoded_size(message) < expected + 60


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("size", [7850, 26010])
def test_a_message_is_at_most_its_share_of_bits(size: int, bits: int) -> None:
    """Headers too: eight bits of 32 are a quarter."""
    numbers = released(stream(1).standard_normal(size))
    for kind in (partial(Push, 1, 1), partial(Offer, 1)):
        whole, packed = (len(encode_message(kind(one))) for one in (numbers, Packing(bits=bits).pack(numbers)))
        assert packed <= bits / 32 * whole


def test_what_is_chosen_and_packed_was_released() -> None:
    """A top-k of clean values would tell which these are."""
    raw: Any = np.ones(4)
    for clean in (raw, Confined(raw)):
        with pytest.raises((TypeError, AttributeError)):
            Packing(share=0.5).places(clean)
        with pytest.raises((TypeError, AttributeError)):
            Packing().pack(clean, Released(np.ones(4, np.uint8)))


@pytest.mark.parametrize("change", [b"", b"\0" * 3, b"\0" * 11, b"\0" * 13, b"\xff" * 12])
def test_other_bytes_are_refused(change: bytes) -> None:
    """12 bytes are right for eight numbers of eight bits; a scale that is not finite makes no number."""
    packed = Released(np.frombuffer(change, np.uint8).copy())
    if len(change) == 12:
        assert not there(packed).is_within()
    else:
        with pytest.raises(PeerError, match="bytes of"):
            there(packed)
    with pytest.raises(PeerError, match="found 8 float32"):
        there(released(range(8)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, 3e38])
def test_a_scale_of_no_use_is_no_warning_of_numpy(scale: float, dtype: str) -> None:
    """Warnings are errors here; the numbers are refused, or count as none, where they are heard."""
    packed = np.concatenate([np.array([scale], "<f4").view(np.uint8), np.full(8, 255, np.uint8)])
    assert not Packing().unpack(Released(packed), released(np.zeros(3), dtype)).is_within()


def there(packed: Released) -> Any:
    return Packing().unpack(packed, released(np.zeros(8)))


@given(st.binary(max_size=40), st.integers(2, 8), st.sampled_from([0.2, 1.0]))
def test_any_bytes_are_numbers_or_refused(content: bytes, bits: int, share: float) -> None:
    base = released(np.zeros(9))
    try:
        found = Packing(bits=bits, share=share).unpack(Released(np.frombuffer(content, np.uint8).copy()), base)
    except PeerError:
        return
    assert found.size == 9


def client(packing: Packing) -> tuple[Node, Any]:
    training = TrainingQuery(1, 1, 0.1)
    context = Context(
        seed=0,
        names=("node-0",),
        graph=Graph(1, np.zeros((0, 2), int)),
        initial=Public(np.zeros(6)),
        queries={"node-0": Query(Poisson(1), NoNoise(), 1.0)},
        shard_sizes={"node-0": 4},
    )
    node = ClientNode("node-0", context, lambda task, model, log_clip: LocalUpdate(task, model, training))
    node.packing = packing
    node.handle(Started(), 0.0)
    return node, context.initial


@pytest.mark.parametrize("packing", [Packing(), Packing(bits=3), Packing(share=0.3), Packing(bits=4, share=0.5)])
def test_all_that_was_sent_and_what_is_lacking_are_all_updates(packing: Packing) -> None:
    """Error feedback; and the first message has the largest numbers of the noisy update that the data side gave."""
    node, model = client(packing)
    updates, sent = np.zeros(6), np.zeros(6)
    for round in range(1, 9):
        packed = packing.pack(model)
        assert node.handle(Received("server", Newest(node.state.request, round, packed)), 0.0)
        noisy = Released(stream(3, number=round).standard_normal(6))
        [effect, *_] = node.handle(Completed(node.state.task, noisy, 1), 0.0)
        came: Any = packing.unpack(effect.message.update, Public(np.zeros(6))).values
        updates, sent = updates + noisy.values, sent + came
        if round == 1 and packing.share < 1:
            count = math.ceil(packing.share * 6)
            assert set(np.flatnonzero(came)) <= set(np.argsort(-np.abs(noisy.values))[:count])
        np.testing.assert_allclose(sent + node.state.lacking.values, updates, atol=1e-9)


@pytest.mark.parametrize("packing", [Packing(), Packing(bits=3), Packing(share=0.5)])
def test_an_exchange_keeps_the_sum_of_both_models(packing: Packing) -> None:
    """Both move by half of the difference of what was sent, in opposite directions."""
    models = [stream(2, str(number)).standard_normal(6) for number in range(2)]
    asker, asked = (State(Public(w), Public(np.zeros(0))) for w in models)
    for state in (asker, asked):
        state.shown = Public(np.zeros(6)) if packing.share < 1 else None
    form = Form(packing)
    offer = asker.offer("asked", HALF, form)
    answer = asked.answer("asker", offer, form)
    assert offer.model.nbytes == answer.model.nbytes < 48
    asker.settle("asked", answer, form)
    np.testing.assert_allclose(asker.w.values + asked.w.values, sum(models), atol=1e-12)
    moved = np.flatnonzero(asked.w.values != models[1])
    largest = np.argsort(-np.abs(models[0]))[: math.ceil(packing.share * 6)]
    assert set(moved) <= set(largest)
    if packing.bits == 8:
        np.testing.assert_allclose(asker.w.values[largest], (sum(models) / 2)[largest], atol=0.02)


SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 4, "updates_per_node": 40, "topology": "complete"},
    "budget": {"epsilon": 30, "delta": 1e-4},
    "evaluation": "off",
}
FEDBUFF = {"name": "fedbuff", "nodes": 4, "buffer": 2, "privacy_unit": "example", "updates_per_node": 20}


@pytest.mark.parametrize("algorithm", [SPEC["algorithm"], FEDBUFF])
@pytest.mark.parametrize("compression", [8, {"share": 0.2}])
def test_runs_send_less_and_learn_at_the_same_epsilon(algorithm: dict[str, Any], compression: Any) -> None:
    """Of 650 numbers: 2,600 bytes and headers of about 70, against 654 or 216 and these. Of 30 runs of each the least
    score was 0.775, with standard deviations below 0.03: one below 0.6 is out of reach of chance.
    """
    plain, small = (
        gs.run(gs.Experiment(**SPEC | {"algorithm": algorithm | keys})) for keys in ({}, {"compression": compression})
    )
    assert small.guarantee.epsilon == plain.guarantee.epsilon
    assert small.summary["rejected_messages"] == 0
    assert small.summary["bytes"] < 0.32 * plain.summary["bytes"]
    assert small.summary["metrics"]["test_accuracy"] > 0.6


@pytest.mark.parametrize(
    ("algorithm", "line"),
    [
        ({"name": "fedbuff", "masking": "secure"}, "released one by one, which masks"),
        ({"name": "fedavg", "noise_by": "server", "trusted": "server"}, "released one by one"),
        ({"name": "fedasync"}, "fedasync sends models in the place of updates; leave it out"),
        ({"name": "graph_federated"}, "unknown key algorithm.compression"),
        ({"name": "gossip", "compression": 9}, "compression"),
        ({"name": "gossip", "compression": {"share": 0}}, "share"),
    ],
)
def test_what_is_not_packed_is_refused_in_a_line(algorithm: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line) as found:
        parse_spec({**SPEC, "algorithm": {"compression": 8, **algorithm}})
    assert "\n" not in str(found.value)


def test_observers_and_liars_are_refused_in_a_line() -> None:
    packed = {**SPEC, "algorithm": SPEC["algorithm"] | {"compression": 8}}
    with pytest.raises(SpecError, match=r"averages that are linear, found .*compression"):
        NetworkPrivacy.of(prepare(parse_spec(packed)))
    with pytest.raises(SpecError, match="masked or packed are not simulated"):
        parse_spec({**packed, "faults": {"hostile": {"nodes": [0]}}})
