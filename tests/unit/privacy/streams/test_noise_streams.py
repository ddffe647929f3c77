"""Streams of correlated noise: records against the matrix product, states, and what a stream refuses."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from tests.reference.graph_slow import noise_factor

from gossamer.errors import SpecError
from gossamer.privacy.streams.correlated_noise import (
    CorrelatedNoise,
    Factorisation,
    NoiseLaw,
    NoiseState,
    NoiseStream,
    Temporal,
)
from gossamer.randomness import Stream

ROUNDS, SIZE, DEVIATION = 9, 4, 1.5
KINDS: list[tuple[str, int | None]] = [
    ("independent", None),
    ("random_walk", None),
    ("sqrt_toeplitz", None),
    ("banded", 1),
    ("banded", 3),
    ("banded", 8),
]


def opened(temporal: str, bands: int | None, law: NoiseLaw = NoiseLaw.GAUSSIAN, rounds: int = ROUNDS) -> NoiseStream:
    return NoiseStream(CorrelatedNoise(Factorisation(Temporal(temporal), rounds, bands), DEVIATION, law), SIZE)


def records(stream: NoiseStream, count: int = ROUNDS, seed: int = 1) -> tuple[np.ndarray, list[NoiseState]]:
    keyed = Stream(seed, "unit", "noise")
    states, drawn = [NoiseState()], []
    for number in range(count):
        record, state = stream.draw(states[-1], keyed.at(number))
        drawn.append(record)
        states.append(state)
    return np.stack(drawn), states


def fresh(law: NoiseLaw, seed: int = 1) -> np.ndarray:
    """z, [rounds, size], drawn from the same generators."""
    keyed = Stream(seed, "unit", "noise")
    rows = []
    for number in range(ROUNDS):
        generator = keyed.at(number)
        if law is NoiseLaw.GAUSSIAN:
            rows.append(DEVIATION * generator.standard_normal(SIZE))
        else:
            rows.append(generator.laplace(0.0, DEVIATION / math.sqrt(2), SIZE))
    return np.stack(rows)


@pytest.mark.parametrize(("temporal", "bands"), KINDS)
def test_records_are_rows_of_the_product(temporal: str, bands: int | None) -> None:
    for law in list(NoiseLaw):
        drawn, _ = records(opened(temporal, bands, law))
        assert drawn == pytest.approx(noise_factor(temporal, ROUNDS, bands) @ fresh(law), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("temporal", "bands"), KINDS)
def test_states_are_small_and_bounded(temporal: str, bands: int | None) -> None:
    _, states = records(opened(temporal, bands))
    held = [len(state.past) + (state.total is not None) for state in states]
    most = {"independent": 0, "random_walk": 1, "banded": bands or 0, "sqrt_toeplitz": ROUNDS - 1}[temporal]
    assert max(held) == most
    assert held[0] == 0
    assert [state.record for state in states] == list(range(ROUNDS + 1))


@pytest.mark.parametrize(("temporal", "bands"), KINDS)
def test_a_state_drawn_from_again_gives_the_same_bytes(temporal: str, bands: int | None) -> None:
    """Also after it was written down and read again, and whatever was done with the records in between."""
    stream, keyed = opened(temporal, bands), Stream(1, "unit", "noise")
    drawn, states = records(stream)
    for number, state in enumerate(states[:-1]):
        data = asdict(state)
        again = NoiseState(data["record"], data["total"], tuple(data["past"]))
        record, _ = opened(temporal, bands).draw(again, keyed.at(number))
        assert record.tobytes() == drawn[number].tobytes()
        record *= 0.0
    assert records(stream)[0].tobytes() == drawn.tobytes()
    assert records(stream, seed=2)[0].tobytes() != drawn.tobytes()


def test_no_record_is_part_of_a_state() -> None:
    for temporal, bands in KINDS:
        stream, keyed = opened(temporal, bands), Stream(1, "unit", "noise")
        state = NoiseState()
        for number in range(ROUNDS):
            record, state = stream.draw(state, keyed.at(number))
            kept = [*state.past, *([] if state.total is None else [state.total])]
            assert not any(np.shares_memory(record, vector) for vector in kept)


def test_many_rounds_of_bands_do_not_drift() -> None:
    """1,000 rounds of the recursion against the kernel: errors of rounding die out."""
    rounds = 1000
    noise = CorrelatedNoise(Factorisation(Temporal.BANDED, rounds, 16), 1.0)
    stream, keyed, state = NoiseStream(noise, 1), Stream(1, "z"), NoiseState()
    drawn = np.empty(rounds)
    z = np.array([keyed.at(number).standard_normal() for number in range(rounds)])
    for number in range(rounds):
        record, state = stream.draw(state, keyed.at(number))
        drawn[number] = record[0]
    assert drawn == pytest.approx(np.convolve(noise.factorisation.noise_kernel, z)[:rounds], rel=1e-9, abs=1e-9)


def test_a_stream_ends() -> None:
    stream = opened("random_walk", None)
    _, states = records(stream)
    with pytest.raises(SpecError, match="opened for 9 rounds, found a request for record 10"):
        stream.draw(states[-1], np.random.default_rng(0))
    with pytest.raises(SpecError, match="opened for 9 rounds"):
        stream.draw(replace(states[0], record=-1), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("temporal", "other"), [("random_walk", "independent"), ("banded", "random_walk"), ("sqrt_toeplitz", "banded")]
)
def test_the_state_of_another_stream_is_refused(temporal: str, other: str) -> None:
    bands = {"banded": 3}
    stream = opened(temporal, bands.get(temporal))
    _, states = records(opened(other, bands.get(other)))
    with pytest.raises(SpecError, match="does not belong to this stream"):
        stream.draw(states[4], np.random.default_rng(0))


def test_a_state_of_another_size_or_without_its_sum_is_refused() -> None:
    stream = opened("banded", 3)
    state = records(stream)[1][5]
    assert state.total is not None
    for wrong in (
        replace(state, total=None),
        replace(state, total=state.total[:2]),
        replace(state, past=state.past[:1]),
        replace(state, past=tuple(vector[:2] for vector in state.past)),
        replace(state, record=0),
    ):
        with pytest.raises(SpecError, match="does not belong to this stream of 4 coordinates"):
            stream.draw(wrong, np.random.default_rng(0))


@pytest.mark.parametrize("deviation", [0.0, -1.0, math.nan, math.inf])
def test_impossible_standard_deviations_are_refused(deviation: float) -> None:
    with pytest.raises(SpecError, match="standard_deviation must be a finite number > 0"):
        CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, 2), deviation)


def test_unknown_laws_and_empty_records_are_refused() -> None:
    law: Any = "gausian"
    with pytest.raises(ValueError, match="'gausian' is not a valid NoiseLaw"):
        CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, 2), 1.0, law)
    with pytest.raises(SpecError, match="at least 1 coordinate, found 0"):
        NoiseStream(CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, 2), 1.0), 0)


def test_description_and_deviations() -> None:
    noise = CorrelatedNoise(Factorisation(Temporal.RANDOM_WALK, 4), 2.0, NoiseLaw.LAPLACE)
    assert noise.describe() == {
        "law": "laplace",
        "standard_deviation": 2.0,
        "temporal": "random_walk",
        "rounds": 4,
    }
    assert noise.message_standard_deviations == pytest.approx(2.0 * np.sqrt([1, 2, 3, 4]))
