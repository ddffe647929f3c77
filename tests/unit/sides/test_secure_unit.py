"""Updates as integers of a masked sum: never longer than the bound, and parameters that are checked before a run."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.sampling import examples

from gossamer.errors import PeerError, SpecError
from gossamer.privacy.masking import MaskedSum
from gossamer.sides.secure_unit import SecureUnit, secure_unit
from gossamer.vectors import Confined


def unit(reach: float = 1.0, sampled: int = 4, size: int = 3, **options: Any) -> SecureUnit:
    return secure_unit("server-0", reach, sampled, size, **options)


def signed(encoded: np.ndarray) -> list[int]:
    values: list[int] = encoded.view(f"i{encoded.dtype.itemsize}").tolist()
    return values


FLOATS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.floats(-2, 2), st.sampled_from([0.5, 2**-0.5, 3**-0.5])
)


@settings(deadline=None, max_examples=examples(300))
@given(
    st.integers(1, 40).flatmap(lambda size: arrays(np.float64, size, elements=FLOATS)),
    st.floats(1e-6, 1e6),
    st.sampled_from([(32, None), (64, None), (32, 12), (64, 40)]),
    st.integers(2, 50),
)
def test_no_update_becomes_longer_than_the_bound(
    update: np.ndarray, reach: float, kind: tuple[int, int | None], sampled: int
) -> None:
    """In exact arithmetic: the integers' squares add up to at most (reach 2^f)^2."""
    bits, fraction_bits = kind
    if fraction_bits is not None:
        fraction_bits -= math.frexp(reach)[1]  # so that it fits any reach
    found = unit(reach, sampled, update.size, bits=bits, fraction_bits=fraction_bits)
    with np.errstate(over="ignore"):
        update = update * reach
    encoded = signed(found.encode(update))
    assert found.fixed.fraction_bits is not None
    longest = Fraction(reach) * Fraction(2) ** found.fixed.fraction_bits
    assert sum(value * value for value in encoded) <= longest**2


def test_rounding_may_take_a_hundredth_of_an_update() -> None:
    """sqrt(10000)/2 = 50 steps of 2^13, not of 2^12."""
    assert unit(size=10_000, fraction_bits=13).longest == pytest.approx(1 - 50 / 2**13, rel=1e-9)


def test_a_short_update_is_rounded_to_the_nearest_step() -> None:
    found = unit(fraction_bits=8)
    assert signed(found.encode(np.array([0.25, -1 / 512 - 1e-9, 1 / 512 - 1e-9]))) == [64, -1, 0]


def test_a_long_update_keeps_its_direction() -> None:
    """(3, 4) times 10^6 becomes (0.6, 0.8) of the longest, rounded: within a step."""
    found = unit(size=2, fraction_bits=20)
    assert found.longest == pytest.approx(1 - math.sqrt(2) / 2 * 2.0**-20, abs=1e-13)
    assert signed(found.encode(np.array([3e6, 4e6]))) == pytest.approx(
        [0.7071067811865476 * found.longest * 2**20] * 2, abs=1
    )  # coordinates saturate first
    assert signed(found.encode(np.array([0.9, 1.2]))) == pytest.approx(
        [0.9 / math.hypot(0.9, 1.0) * 2**20, 1.0 / math.hypot(0.9, 1.0) * 2**20], abs=2
    )
    assert signed(found.encode(np.array([np.nan, np.inf]))) == pytest.approx([0, 2**20], abs=2)


def test_sums_of_the_whole_group_fit() -> None:
    """All at the bound, with nine standard deviations of noise each: decoded as they are."""
    for bits in (32, 64):
        found = unit(0.3, 7, 1, bits=bits, agent_noise=2.0, confined=True)
        assert found.noise is not None
        each = signed(found.encode(np.array([0.3]), np.random.default_rng(0)))[0]
        assert abs(each) < 0.3 * 2**found.fixed.fraction_bits + 9 * found.noise.scale  # type: ignore[operator]
        most = int(0.3 * 2**found.fixed.fraction_bits) + 9 * found.noise.scale  # type: ignore[operator]
        assert 7 * most < 2 ** (bits - 1)
        total = MaskedSum(np.array([7 * most % 2**bits], found.group.dtype), tuple(range(1, 8)))
        assert found.decoded(total).values[0] == pytest.approx(7 * most * found.fixed.resolution)


def test_the_sum_is_confined() -> None:
    found = unit(size=2, fraction_bits=10, confined=True)
    total = MaskedSum(np.array([512, 2**32 - 1024], np.uint32), (1, 3))
    decoded = found.decoded(total)
    assert type(decoded) is Confined
    assert decoded.values.dtype == np.float64
    assert decoded.values.tolist() == [0.5, -1.0]
    assert found.decoded(None).nbytes == 16
    beyond = MaskedSum(np.array([2**30 + 1024, 2**31], np.uint32), (1, 2))
    assert found.decoded(beyond).values.tolist() == [2**20 - 1.0, 0.0]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("noise", "tail"), [(0.0, 0.0), (0.01, 16.0), (0.05, 16.0), (3.0, 30.0)])
def test_honest_sums_stay_within_half_the_range_where_they_are_folded(bits: int, noise: float, tail: float) -> None:
    """All at the bound, with so many standard deviations of noise each, so sqrt(5) times as many of their sum."""
    found = unit(0.7, 5, 1, bits=bits, agent_noise=noise, confined=True)
    scale = 0 if found.noise is None else found.noise.scale
    most = 5 * (int(0.7 / found.fixed.resolution) + math.floor(tail * scale))
    assert most <= 2 ** (bits - 2)
    total = np.array([most % 2**bits], np.uint64).astype(found.group.dtype)
    assert found.decoded(MaskedSum(total, (1, 2, 3, 4, 5))).values[0] == float(most) * found.fixed.resolution


def test_a_unit_without_room_confines_nothing() -> None:
    with pytest.raises(ValueError, match="make the unit confined"):
        unit(0.7, 5, 1).decoded(MaskedSum(np.zeros(1, np.uint32), (1, 2, 3, 4, 5)))


@pytest.mark.parametrize("bits", [32, 64])
def test_a_sum_that_honest_members_can_make_is_released_and_a_longer_one_is_not(bits: int) -> None:
    """Three updates of length 0.5 in one direction add up to 1.5, and with a step more than that to no honest sum."""
    found = unit(0.5, 5, 2, bits=bits, fraction_bits=12)
    most = MaskedSum(sum(found.encode(np.array([0.0, -9.0])) for _ in range(3)), (1, 2, 4))  # type: ignore[arg-type]
    assert found.released(most).values[1] == pytest.approx(-1.5, abs=6 * 2.0**-12)
    longer = np.array([0, -(3 * 2048 + 1)]).astype(found.group.dtype)
    with pytest.raises(PeerError, match="not encoded as agreed"):
        found.released(MaskedSum(longer, (1, 2, 4)))
    # Neither coordinate is more than three may have, and both together are.
    both = np.array([3 * 2048, 3 * 2048]).astype(found.group.dtype)
    assert found.fixed.decode_sum(both, 3).tolist() == [1.5, 1.5]
    with pytest.raises(PeerError, match=r"found 2\.1213"):
        found.released(MaskedSum(both, (1, 2, 4)))


def test_noise_of_honest_members_is_released_and_half_as_much_again_is_not() -> None:
    """A sum of 4 has noise of 3 sqrt(4) = 6 in each of 900 numbers, 180 long, and at most 4 + 6 (30 + 9.4) = 240.5.

    Of 200 sums (50 by default) each is longer with a probability of at most 2^-64; 1.5 times as much noise is 270
    long, 6.4 sd more.
    """
    found = unit(1.0, 5, 900, agent_noise=3.0)
    generator = np.random.default_rng(4)
    assert found.longest_sum(4) == pytest.approx(4 + 6 * (30 + math.sqrt(128 * math.log(2))), rel=1e-6)
    for _ in range(examples(200)):
        each = [found.encode(np.full(900, 9.0), generator) for _ in range(4)]
        found.released(MaskedSum(np.sum(each, axis=0, dtype=np.uint32), (1, 2, 3, 4)))
    wide = generator.normal(0, 9, 900) / found.fixed.resolution
    with pytest.raises(PeerError, match="not encoded as agreed"):
        found.released(MaskedSum(np.rint(wide).astype(np.int64).astype(np.uint32), (1, 2, 3, 4)))


def test_noise_is_added_to_the_integers_of_the_update() -> None:
    """Twice with one generator's state: the difference of the encodings is that of the updates."""
    found = unit(agent_noise=3.0)
    quiet = unit(fraction_bits=found.fixed.fraction_bits)
    updates = np.array([0.1, 0.2, 0.3]), np.array([-0.5, 0.0, 0.5])
    noisy = [found.encode(update, np.random.default_rng(5)) for update in updates]
    plain = [quiet.encode(update) for update in updates]
    assert (noisy[0] - noisy[1]).tolist() == (plain[0] - plain[1]).tolist()
    assert (noisy[0] != plain[0]).all()


def test_the_noise_is_measured_in_bounds_of_updates() -> None:
    """s = 3 reach 2^f, rounded up; a replaced update moves by 2 reach 2^f."""
    found = unit(0.7, agent_noise=3.0, size=9)
    assert found.noise is not None
    steps = 0.7 * 2**found.fixed.fraction_bits  # type: ignore[operator]
    assert found.noise.scale == math.ceil(3 * steps)
    assert found.noise.sensitivity == 2 * steps
    assert found.noise.size == 9
    assert unit().noise is None


def test_the_context_of_keys_is_the_unit() -> None:
    assert unit().group.context == b"server-0"
    assert (unit().group.size, unit().group.length, unit().group.threshold, unit().group.minimum) == (4, 3, 3, 3)
    chosen = unit(sampled=9, threshold=5, minimum=8, bits=64).group
    assert (chosen.threshold, chosen.minimum, chosen.bits) == (5, 8, 64)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"reach": math.inf}, "updates need a bound: give privacy.clip"),
        ({"agent_noise": -1.0}, "agent_noise must be a finite number, 0 or more, found -1.0"),
        ({"agent_noise": math.nan}, "agent_noise must be a finite number"),
        ({"sampled": 1}, "masks need 2 to"),
        ({"threshold": 2}, "more than half of the 4 agents"),
        ({"minimum": 5}, "a minimum lies between the threshold 3 and the 4 agents, found 5"),
        ({"fraction_bits": 31}, "do not fit into 32 bits: use at most 28"),
        ({"fraction_bits": 28, "confined": True}, "4 numbers of up to 2 with .* into 32 bits: use at most 27"),
        ({"fraction_bits": -1}, "every number up to the clip 1 is zero"),
        ({"fraction_bits": 12, "size": 10_000}, "lose too much of updates of length 1 to rounding"),
        ({"fraction_bits": 3, "size": 1, "agent_noise": 0.01}, "agent_noise 0.01 is 0.08 steps"),
    ],
)
def test_parameters_that_do_not_fit_are_refused_at_the_start(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        unit(**options)
