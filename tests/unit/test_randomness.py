"""Streams depend on (seed, labels, number) and on nothing else."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numba  # noqa: F401  # loaded, so that draws are made ahead
import numpy as np
import pytest
from scipy import stats

import gossamer.randomness
from gossamer.randomness import Ahead, Hand, Stream, derive, stream


def test_order_does_not_matter() -> None:
    numbers = [3, 0, 7, 1]
    forward, backward = Stream(1, "a"), Stream(1, "a")
    first = {n: forward.at(n).random(5).tolist() for n in numbers}
    second = {n: backward.at(n).random(5).tolist() for n in reversed(numbers)}
    assert first == second


@pytest.mark.parametrize("draw", ["random", "standard_normal", "standard_gamma", "integers", "bytes"])
def test_at_starts_afresh_after_partial_use(draw: str) -> None:
    argument = {"standard_gamma": 1.5, "integers": 10, "bytes": 3}
    family = Stream(5, "node", "noise")
    expected = family.at(2).random(9).tolist()
    family.at(1).random(3)
    family.at(1).integers(10, dtype=np.uint32)  # leaves half a word in the generator's buffer
    generator = family.at(1)
    getattr(generator, draw)(*([argument[draw]] if draw in argument else []))
    assert family.at(2).random(9).tolist() == expected


def test_stream_function_is_the_same_family() -> None:
    assert stream(5, "a", 1, number=9).random() == Stream(5, "a", 1).at(9).random()
    assert stream(5, "a").random() == Stream(5, "a").at(0).random()


def test_fresh_generators_do_not_share_state() -> None:
    one, two = stream(1, "a"), stream(1, "a")
    one.random(100)
    assert two.random() == stream(1, "a").random()


def test_streams_of_one_hand_draw_as_they_would_alone() -> None:
    hand = Hand()
    together = [Stream(1, label, hand=hand) for label in ("a", "b")]
    drawn = [(n, s, together[s].at(n).random(3).tolist()) for n, s in ((2, 0), (2, 1), (7, 1), (2, 0), (0, 0))]
    together[0].at(1).integers(10, dtype=np.uint32)  # leaves half a word in the generator's buffer
    drawn.append((4, 1, together[1].at(4).integers(2**32, size=3, dtype=np.uint32).tolist()))
    alone = [Stream(1, label) for label in ("a", "b")]
    expected = [(n, s, alone[s].at(n).random(3).tolist()) for n, s, _ in drawn[:-1]]
    expected.append((4, 1, alone[1].at(4).integers(2**32, size=3, dtype=np.uint32).tolist()))
    assert drawn == expected


def test_every_part_of_the_name_counts() -> None:
    names: list[tuple[int, tuple[str | int, ...], int]] = [
        (1, (), 0),
        (1, (), 1),
        (2, (), 0),
        (1, ("a",), 0),
        (1, ("a",), 1),
        (1, ("b",), 0),
        (1, ("a", "b"), 0),
        (1, ("ab",), 0),
        (1, ("a\x1fb",), 0),
        (1, ("b", "a"), 0),
        (1, (1,), 0),
        (1, ("1",), 0),
        (11, (), 0),
        (1, ("",), 0),
        (1, ("a", ""), 0),
        (1, ("é",), 0),
    ]
    drawn = {stream(seed, *labels, number=number).bytes(16) for seed, labels, number in names}
    assert len(drawn) == len(names)


def test_numpy_integers_name_the_same_stream() -> None:
    assert stream(int(np.int64(3)), "a", 7).random() == stream(np.int64(3), "a", np.uint32(7)).random()  # type: ignore[arg-type]


def test_numbers_are_2_to_the_64_blocks_apart() -> None:
    """Philox4x64 has a 256-bit counter and gives 4 words a block: n starts at block n 2^64, so n + 1 begins
    where n would be after 2^64 blocks, and no two can overlap before that."""
    family = Stream(1, "a")
    for number in (0, 1, 2**63):
        state = family.at(number).bit_generator.state
        assert state["state"]["counter"].tolist() == [0, number, 0, 0]
        assert state["buffer_pos"] == 4
    generator = Stream(1, "a").at(4)
    jumped = np.random.Philox(key=generator.bit_generator.state["state"]["key"]).advance(5 * 2**64)
    assert np.random.Generator(jumped).random() == family.at(5).random()


def test_hash_seed_and_global_seed_have_no_influence() -> None:
    program = (
        "import random, runpy, sys, numpy as np; file, seed = sys.argv[1:];"
        "np.random.seed(int(seed)); random.seed(seed);"
        "print(runpy.run_path(file)['Stream'](3, 'node', 'batch', 4).at(5).random(4).tolist())"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program, gossamer.randomness.__file__, "12345"],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed == f"{stream(3, 'node', 'batch', 4, number=5).random(4).tolist()}\n"


def test_drawing_leaves_the_global_generator_alone() -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    stream(1, "a").random(1000)
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index, union-attr]


def test_uniform_across_numbers_and_uncorrelated_with_neighbours() -> None:
    """The first draws of 4,000 numbers are uniform (Kolmogorov-Smirnov) and their correlation with the first draws
    of the next number and of the next label is normal with sd 1/sqrt(n).

    Three tests at level 1e-4 each: a false alarm, were the seed free, in at most 3 of 10,000 runs.
    """
    families = [Stream(2024, "node", label) for label in range(2)]
    draws = np.array([[family.at(number).random() for number in range(4000)] for family in families])
    assert stats.kstest(draws[0], "uniform").pvalue > 1e-4
    threshold = stats.norm.isf(0.5e-4)
    for left, right in [(draws[0, :-1], draws[0, 1:]), (draws[0], draws[1])]:
        assert abs(np.corrcoef(left, right)[0, 1]) * np.sqrt(len(left)) < threshold


def test_nearby_names_share_no_draws() -> None:
    """64-bit words of 100 neighbouring streams are distinct; by chance some two of the 3,200 would agree with
    probability 3200^2 / 2^65 < 1e-12."""
    words = [
        stream(seed, label, number=n).bytes(8 * 32) for seed, label, n in itertools.product(*[range(5)] * 2, range(4))
    ]
    chunks = {word[i : i + 8] for word in words for i in range(0, 256, 8)}
    assert len(chunks) == len(words) * 32


def test_derived_seeds_are_apart_from_each_other_and_from_their_source() -> None:
    seeds = [derive(seed, *labels) for seed in (0, 1) for labels in (("public",), ("secret",), ("secret", "a"))]
    assert len({0, 1, *seeds}) == 8
    assert derive(3, "public") == derive(3, "public")
    assert not np.any(stream(derive(0, "public"), "a").random(9) == stream(0, "a").random(9))


def test_what_is_drawn_ahead_is_what_generators_draw() -> None:
    """In any order, over all layers of the ziggurat and its tail, and for bounds that refuse many words."""
    family = Stream(3, "node", "speed")
    ahead = Ahead(family)
    assert all(
        ahead.lognormal(number, 0.1, 0.7) == family.at(number).lognormal(0.1, 0.7) for number in [*range(20_000), 5, 3]
    )
    for bound in (1, 2, 3, 7, 1_000, 3_000_000_000, 2**32):
        assert all(ahead.below(number, bound) == family.at(number).integers(bound) for number in range(200))


def test_without_a_compiler_the_same_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Stream(3, "node", "speed")
    quick = Ahead(family)
    expected = [(quick.lognormal(number, 0.0, 0.5), quick.below(number, 5)) for number in range(40)]
    monkeypatch.delitem(sys.modules, "numba")
    slow = Ahead(family)
    assert [(slow.lognormal(number, 0.0, 0.5), slow.below(number, 5)) for number in range(40)] == expected
