"""Datasets and loaders of PyTorch as examples: the same as their arrays, read once; and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

import gossamer as gs

RNG = np.random.default_rng(2)
X, Y = RNG.standard_normal((30, 3, 2)).astype(np.float32), RNG.integers(0, 3, 30)
PAIRS = TensorDataset(torch.tensor(X), torch.tensor(Y))
SPEC = {
    "algorithm": {"name": "gossip", "nodes": 2, "batch_size": 4, "topology": "complete"},
    "budget": {"epsilon": 5, "delta": 1e-3},
    "privacy": {"noise_secret": "reproducible"},
    "stop": {"updates": 4},
}


class Named(Dataset[dict[str, Any]]):
    """Rows as mappings, such as those of the package datasets."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"pixels": X[row].tolist(), "label": int(Y[row])}


SOURCES = {
    "dataset": lambda: PAIRS,
    "mappings": Named,
    "loader": lambda: DataLoader(PAIRS, batch_size=7),
    "loader of single examples": lambda: DataLoader(PAIRS, batch_size=None),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_examples_are_those_of_the_arrays(kind: str) -> None:
    data = gs.Data.read(SOURCES[kind](), labels=[0, 1, 2])
    assert np.array_equal(data.train.features, X)
    assert np.array_equal(data.train.labels, Y)


def test_a_run_takes_a_dataset_as_it_takes_its_arrays() -> None:
    with pytest.warns(gs.RunWarning):  # labels that nobody declares
        runs = [gs.run(SPEC, data=data) for data in (PAIRS, gs.Data(X, Y))]
    assert np.array_equal(runs[0].model["weight"], runs[1].model["weight"])


def test_features_are_mapped_from_a_file_and_tests_are_read_alike() -> None:
    data = gs.Data.read(PAIRS, test=DataLoader(PAIRS, batch_size=8))
    base: Any = data.train.features
    while not isinstance(base, np.memmap):
        base = base.base
    assert data.test is not None
    assert np.array_equal(data.test.features, X)
    assert np.array_equal(data.test.labels, Y)


def test_a_loader_that_shuffles_says_that_it_does_so_once() -> None:
    loader = DataLoader(PAIRS, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(0))
    with pytest.warns(gs.RunWarning, match="the loader shuffles; examples stay in the order in which they are read"):
        data = gs.Data.read(loader)
    order = np.lexsort(data.train.features.reshape(30, -1).T), np.lexsort(X.reshape(30, -1).T)
    assert np.array_equal(data.train.labels[order[0]], Y[order[1]])
    assert not np.array_equal(data.train.labels, Y)


def test_a_loader_that_drops_its_last_examples_says_how_many() -> None:
    """Of 30 in batches of 8 the last 6."""
    with pytest.warns(
        gs.RunWarning, match="data: the loader drops its last 6 examples, which fill no batch, so no run"
    ):
        data = gs.Data.read(DataLoader(PAIRS, batch_size=8, drop_last=True))
    assert np.array_equal(data.train.labels, Y[:24])
    assert len(gs.Data.read(DataLoader(PAIRS, batch_size=10, drop_last=True)).train.labels) == 30


class Pairs:
    """Batches of somebody's own, that know of no sampler."""

    drop_last = True

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0, 1], [2, 3]])

    def __len__(self) -> int:
        return 2


def test_batches_of_somebodys_own_are_taken_as_they_come() -> None:
    data = gs.Data.read(DataLoader(PAIRS, batch_sampler=Pairs()))  # type: ignore[arg-type]
    assert np.array_equal(data.train.labels, Y[:4])


class Endless(IterableDataset[tuple[Tensor, int]]):
    """Examples without an end."""

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        while True:
            yield torch.zeros(2), 0


class SaidToEnd(Endless):
    """The same, of a length."""

    def __len__(self) -> int:
        return 5


class Ragged(Named):
    """Rows of several shapes."""

    def __getitem__(self, row: int) -> Any:
        return X[row, : 1 + row % 2], Y[row]


class RaggedTargets(Named):
    """Rows with one target or two."""

    def __getitem__(self, row: int) -> Any:
        return X[row], Y[: 1 + row % 2]


class Attached(Named):
    """Rows of tensors that have a gradient."""

    def __getitem__(self, row: int) -> Any:
        return torch.zeros(2, requires_grad=True), 0


class Threes(Named):
    """Rows of three things."""

    def __getitem__(self, row: int) -> Any:
        return X[row], Y[row], row


class TwoTargets(Named):
    """Rows of a label and a target, and nothing else."""

    def __getitem__(self, row: int) -> Any:
        return {"label": Y[row], "target": Y[row]}


REFUSED = {
    "without an end": (
        lambda: DataLoader(Endless(), 4),
        "data: expected examples with an end, found DataLoader without",
    ),
    "longer than it says": (
        lambda: DataLoader(SaidToEnd(), None),
        "data: expected 5 items, as its length says, found mo",
    ),
    "of several shapes": (Ragged, r"data, item 1: expected features \[1, 2\] .* found 1 of \[2, 2\]"),
    "targets of several shapes": (RaggedTargets, r"data, item 1: expected .* targets \[1\] .* and 1 of \[2\];"),
    "attached": (Attached, "data: expected an array, found Tensor that is none; give .* detached tensors"),
    "with replacement": (
        lambda: DataLoader(PAIRS, 4, sampler=WeightedRandomSampler([1.0] * 30, 30)),
        "data: expected each example once, found a loader that draws with replacement, .*; give its dataset",
    ),
    "longer than it says, alone": (SaidToEnd, "data: expected 5 items, as its length says, found more"),
    "no pairs": (Threes, "data: expected pairs of features and target, found tuple; let __getitem__ return a pair"),
    "targets alone": (TwoTargets, "data: expected pairs of features and target, found dict of label, target; let"),
    "of none": (
        lambda: TensorDataset(torch.zeros(0, 2), torch.zeros(0)),
        "data: expected examples with features, found",
    ),
    "a number": (lambda: 3, r"data: expected gs\.Data\(x, y, \.\.\.\), found int; wrap the arrays"),
    "a path": (lambda: "wards.csv", r"data: expected gs\.Data\(x, y, \.\.\.\), found str; wrap the arrays"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_said_in_a_line(case: str) -> None:
    source, message = REFUSED[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of lengths
        with pytest.raises(gs.CallerError, match=message):
            gs.run(SPEC, data=source())


@pytest.mark.parametrize(("size", "shape"), [((8, 6), [1, 8, 6]), ((8, 6, 3), [3, 8, 6])])
def test_pictures_have_their_channels_first(size: tuple[int, ...], shape: list[int]) -> None:
    """Columns of pictures, as of `datasets` or torchvision, are objects of Pillow; networks take channels first."""
    image = pytest.importorskip("PIL.Image", reason="needs the extra images")
    pixels = np.random.default_rng(0).integers(0, 256, (4, *size), np.uint8)
    rows = [{"image": image.fromarray(each), "label": n % 2} for n, each in enumerate(pixels)]

    class Pictures:
        def __len__(self) -> int:
            return len(rows)

        def __getitem__(self, n: int) -> dict[str, Any]:
            return rows[n]

    found = gs.Data.read(Pictures()).train.features
    assert list(found.shape) == [4, *shape]
    expected = pixels[:, None] if len(size) == 2 else np.moveaxis(pixels, -1, 1)
    np.testing.assert_array_equal(found, expected)
