"""MNIST from its files, in every environment alike, and who takes which rows of it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

from peers import jobs

IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
_EXAMPLES = 60_000


def read(folder: Path) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Images [60000, 1, 28, 28] in [0, 1], and classes."""
    pixels = np.frombuffer(gzip.decompress((folder / IMAGES).read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((folder / LABELS).read_bytes()), np.uint8, offset=8)
    return pixels.reshape(-1, 1, 28, 28).astype(np.float32) / np.float32(255), labels.astype(np.int64)


def batches(seed: int, number: int, steps: int, size: int, among: int = _EXAMPLES) -> npt.NDArray[np.int64]:
    """Rows of the steps of block ``number``, [steps, size]: the same for every way."""
    return np.random.default_rng([seed, number]).integers(0, among, (steps, size))


def shards(seed: int) -> npt.NDArray[np.int64]:
    """Rows of each client, [clients, examples]."""
    rows = np.random.default_rng(seed).permutation(_EXAMPLES)
    return rows[: jobs.CLIENTS * jobs.SHARD].reshape(jobs.CLIENTS, jobs.SHARD)


def missing(folder: Path) -> str:
    """Why it cannot be read; empty if it can."""
    absent = [name for name in (IMAGES, LABELS) if not (folder / name).is_file()]
    return f"MNIST needs {' and '.join(absent)} in {folder}" if absent else ""
