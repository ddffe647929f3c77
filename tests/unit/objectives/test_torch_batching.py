"""How work is cut into pieces and spread over threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.objectives.networks.gradients import in_order, one_torch_thread, pieces
from gossamer.objectives.networks.module import STRATEGIES
from gossamer.threads import available_cores


@given(sizes=st.lists(st.integers(0, 40), max_size=12), examples=st.integers(1, 30), nodes=st.integers(1, 5))
def test_pieces_hold_every_index_once_and_stay_within_their_bounds(sizes: list[int], examples: int, nodes: int) -> None:
    batches = [np.arange(100 * node, 100 * node + size) for node, size in enumerate(sizes)]
    found = pieces(batches, examples, nodes)
    rebuilt: list[list[int]] = [[] for _ in sizes]
    for piece in found:
        assert 1 <= len(piece.nodes) == len(piece.indices) <= nodes
        longest = max(map(len, piece.indices))
        assert min(map(len, piece.indices)) >= 1
        assert longest * len(piece.nodes) <= examples  # padding included
        for node, indices in zip(piece.nodes, piece.indices):
            rebuilt[node].extend(indices.tolist())
    assert rebuilt == [batch.tolist() for batch in batches]


def test_a_long_batch_is_cut_evenly() -> None:
    assert [len(piece.indices[0]) for piece in pieces([np.arange(130)], 64, 1)] == [44, 43, 43]


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    """The first item waits for the last to be done, if there are threads for both."""
    done = threading.Event()

    def work(item: int) -> tuple[int, int]:
        if item == 2:
            done.set()
        if item == 0 and threads > 1:
            assert done.wait(30)
        return item, torch.get_num_threads()

    assert list(in_order(work, range(3), threads)) == [(0, 1), (1, 1), (2, 1)]


def test_torch_has_one_thread_inside_and_as_many_as_before_outside_even_after_an_error() -> None:
    before = torch.get_num_threads()

    def fail() -> None:
        with one_torch_thread():
            assert torch.get_num_threads() == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == before


def test_there_is_at_least_one_core() -> None:
    assert available_cores() >= 1


def test_a_limit_follows_from_memory_and_is_at_least_one() -> None:
    """1 MiB holds 2^18 numbers of 4 bytes; ``layers`` counts 4 for each that a layer puts out."""
    layers, threads = STRATEGIES["layers"], STRATEGIES["threads"]
    assert layers.limit(2**20, put_out=2**13, size=10**9, itemsize=4) == 2**18 // (4 * 2**13) == 8
    assert threads.limit(2**20, put_out=0, size=2**15, itemsize=4) == int(2**18 / (1.5 * 2**15))
    assert threads.limit(2**20, put_out=0, size=2**30, itemsize=8) == 1
    assert layers.limit(2**40, put_out=1, size=1, itemsize=4) == layers.examples
