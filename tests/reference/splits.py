"""Small splits for linear models."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gossamer.data.examples import Split


def split_of(kind: tuple[str, int | None], x: np.ndarray, csr: bool) -> Split:
    """These examples [n, features], dense or sparse, with targets of two classes or real ones."""
    y = np.arange(len(x)) % 2 if kind[1] else np.linspace(-1, 1, len(x), dtype=np.float32)
    return Split(sp.csr_array(x) if csr else x, y)


def half_zero(classes: int | None, count: int, features: int, seed: int = 0) -> Split:
    """Normal features, of which about half are zero."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, features)).astype(np.float32)
    x[rng.random(x.shape) < 0.5] = 0
    y = rng.standard_normal(count).astype(np.float32) if classes is None else rng.integers(0, classes, count)
    return Split(x, y)
