"""Schemes that draw a batch from a shard, each paired with its accounting in `accountant_table`.

| scheme | a batch | proved |
|---|---|---|
| `Poisson` | every example with the same probability, independently | yes |
| `FixedSize` | so many distinct examples | yes, under replace-one |
| `WithReplacement` | so many draws, an example may come twice | no: what uses it has no guarantee |

Shuffled passes do not exist here: they are for clients that are protected whole, see `unit_tasks.TrainingQuery`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from gossamer.arrays import IndexArray
from gossamer.errors import SpecError
from gossamer.numbers import real_number, whole_number


@dataclass(frozen=True)
class Sampling:
    """Base of the sampling schemes.

    Attributes
    ----------
    proved : bool
        Whether an accountant here is proved for releases on such batches, under some neighbouring relation.
    """

    proved: ClassVar[bool] = True

    @classmethod
    def of_batch(cls, size: int, batch: int) -> Self:
        """The scheme that draws ``batch`` of ``size`` examples, exactly or on average."""
        raise NotImplementedError

    @property
    def rate(self) -> float:
        """Probability that a given example is in the batch."""
        raise NotImplementedError

    def draw(self, generator: np.random.Generator, count: int) -> IndexArray:
        """Positions in a shard of ``count`` examples, [batch]; sorted, unless an example may come twice."""
        raise NotImplementedError

    def slots(self, generator: np.random.Generator, drawn: int, steps: int) -> IndexArray:
        """Draw at which of the ``steps`` of a round each of ``drawn`` examples takes its turn, [drawn].

        Public numbers: they depend on how many were drawn for schemes that always draw as many, and otherwise each on
        a coin of its own, never on an example's place among those drawn.

        Raises
        ------
        SpecError
            If the scheme draws a number of examples that is fixed, and it is not ``steps``.
        """
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """The scheme as plain data, for ledgers and summaries."""
        return {"sampling": type(self).__name__, **asdict(self)}


@dataclass(frozen=True)
class Poisson(Sampling):
    """Every example is in the batch with probability ``probability``, independently; the batch may be empty."""

    probability: float

    def __post_init__(self) -> None:
        if not 0 < real_number(self.probability) <= 1:
            raise SpecError(f"a Poisson sampling rate lies in (0, 1], found {self.probability!r}")

    @classmethod
    def of_batch(cls, size: int, batch: int) -> Self:
        return cls(batch / size)

    @property
    def rate(self) -> float:
        return self.probability

    def draw(self, generator: np.random.Generator, count: int) -> IndexArray:
        # A binomial number of examples, chosen uniformly, has the same law as one coin per example.
        size = int(generator.binomial(count, self.probability))
        return np.sort(generator.choice(count, size, replace=False, shuffle=False)).astype(np.int64)

    def slots(self, generator: np.random.Generator, drawn: int, steps: int) -> IndexArray:
        return generator.integers(steps, size=drawn)


@dataclass(frozen=True)
class _Sized(Sampling):
    """Base of the schemes that always draw ``batch_size`` of ``dataset_size`` examples."""

    dataset_size: int
    batch_size: int

    @classmethod
    def of_batch(cls, size: int, batch: int) -> Self:
        return cls(size, batch)

    def _check(self, count: int) -> None:
        if count != self.dataset_size:
            raise SpecError(f"the shard holds {count} examples, but its sampling says {self.dataset_size}")

    def _check_steps(self, drawn: int, steps: int) -> None:
        if drawn != steps:
            raise SpecError(f"a round takes one step for each example of a fixed batch, found {steps} for {drawn}")


@dataclass(frozen=True)
class FixedSize(_Sized):
    """``batch_size`` distinct examples of ``dataset_size``, uniformly."""

    def __post_init__(self) -> None:
        if not 0 < (whole_number(self.batch_size) or 0) <= (whole_number(self.dataset_size) or 0):
            raise SpecError(
                f"a fixed-size batch needs whole numbers 1 <= batch_size <= dataset_size, "
                f"found batch_size {self.batch_size!r} of {self.dataset_size!r}"
            )

    @property
    def rate(self) -> float:
        return self.batch_size / self.dataset_size

    def draw(self, generator: np.random.Generator, count: int) -> IndexArray:
        self._check(count)
        return np.sort(generator.choice(count, self.batch_size, replace=False, shuffle=False)).astype(np.int64)

    def slots(self, generator: np.random.Generator, drawn: int, steps: int) -> IndexArray:
        self._check_steps(drawn, steps)
        return generator.permutation(drawn)


@dataclass(frozen=True)
class WithReplacement(_Sized):
    """``batch_size`` independent draws, each uniform among ``dataset_size`` examples; no accountant knows it.

    Examples stand in the order in which they were drawn, which is that of the steps of a round.
    """

    proved: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (whole_number(self.batch_size) and whole_number(self.dataset_size)):
            raise SpecError(
                f"draws with replacement need a whole batch_size and dataset_size of at least 1, "
                f"found batch_size {self.batch_size!r} of {self.dataset_size!r}"
            )

    @property
    def rate(self) -> float:
        return 1 - (1 - 1 / self.dataset_size) ** self.batch_size

    def draw(self, generator: np.random.Generator, count: int) -> IndexArray:
        self._check(count)
        return generator.integers(count, size=self.batch_size)

    def slots(self, generator: np.random.Generator, drawn: int, steps: int) -> IndexArray:
        self._check_steps(drawn, steps)
        return np.arange(drawn)
