"""Examples of a split, checked and as tensors of a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gossamer.arrays import IndexArray
from gossamer.data.split import Split
from gossamer.errors import DataError
from gossamer.objectives.torch_batching import Piece
from gossamer.objectives.torch_gradients import Batch


class Tensors(NamedTuple):
    """Makes tensors of examples.

    Attributes
    ----------
    dtype : torch.dtype
        Of features, and of targets that are no classes.
    classifies : bool
        Whether targets are classes.
    """

    dtype: torch.dtype
    classifies: bool

    def batch(self, data: Split, piece: Piece) -> Batch:
        """Examples of a piece, padded with its first."""
        longest = max(map(len, piece.indices))
        present = np.array([np.arange(longest) < len(indices) for indices in piece.indices])
        index = np.array([np.pad(i, (0, longest - len(i)), constant_values=i[0]) for i in piece.indices])
        features = self.features(data, index.ravel())
        return Batch(
            torch.unflatten(features, 0, index.shape),
            torch.unflatten(self.targets(data, index.ravel()), 0, index.shape),
            torch.from_numpy(present),
        )

    def features(self, data: Split, index: IndexArray | slice) -> Tensor:
        """Features of some examples, [examples, ...]; dense."""
        features: Any = data.features[index]
        if sp.issparse(features):
            features = features.toarray()
        # torch.tensor copies to memory aligned in one way, so that sums are rounded in one way.
        return torch.tensor(features, dtype=self.dtype)

    def targets(self, data: Split, index: IndexArray | slice) -> Tensor:
        """Targets of some examples, [examples]."""
        return torch.tensor(data.targets[index], dtype=torch.int64 if self.classifies else self.dtype)


def check_split(data: Split, classes: int | None) -> None:
    """Raise DataError unless there is one target an example, and it is one of the ``classes``, if there are any."""
    if data.features.shape[0] != len(data) or data.targets.ndim != 1:
        raise DataError(
            f"expected one target [n] an example [n, ...], found targets {list(data.targets.shape)} and features "
            f"{list(data.features.shape)}"
        )
    if classes is None or len(data) == 0:
        return
    known = (data.targets >= 0) & (data.targets < classes) & (data.targets == np.floor(data.targets))
    if not known.all():
        raise DataError(
            f"targets must be classes 0..{classes - 1}, found {data.targets[~known][0]:g}; relabel the targets or give "
            "the module more outputs"
        )


def check_indices(batches: Sequence[IndexArray], count: int) -> None:
    """Raise DataError unless all indices are in 0..count-1."""
    for batch in batches:
        if len(batch) and not 0 <= batch.min() <= batch.max() < count:
            raise DataError(f"batch indices must be in 0..{count - 1}, found {batch.min()}..{batch.max()}")
