"""Schemes that draw a batch from a shard, each paired with its accounting in `accountant_table`.

| scheme | a batch | proved |
|---|---|---|
| `Poisson` | every example with the same probability, independently | yes |
| `FixedSize` | so many distinct examples | yes, under replace-one |
| `WithReplacement` | so many draws, an example may come twice | no: what uses it has no guarantee |

Shuffled passes do not exist here: they are for clients that are protected whole, see `unit_tasks.TrainingQuery`.

Number of examples that a release's deadline provides for, and the cost of samples that have more.

What takes a node time is public but for one thing: how many examples were sampled. So it hands its answers over at
multiples of a deadline, by which a sample of any usual size has long been computed (`deployment.party.data_side`), and
computes on examples that nobody has until there are as many as that (`sides.sums`). The usual size is K,
`provided_for`: a sample is larger with a probability of at most `LATE`. Then the answer may go a deadline later, and
its time tells.

**What that costs.** n slots are public, and who is in a sample depends on coins alone, whatever is in the slots. Take
the same coins for two neighbours, which differ in one slot, and let A be the event that no sample of the run exceeds
its K. Given A, the samples of the other n - 1 slots follow one law, and given these the slot itself is in with
probability q, or with a smaller one where the sample would then exceed K. Such a release is a mixture, with weights
common to both, of what a release at rate q does and of what does not depend on the slot, so whatever pair dominates the
former dominates it, and all releases together are (epsilon, delta)-private as planned. Times are constant given A,
whether or not a slot that is blank would be computed on. So

    P(S) <= P(A) (exp(epsilon) P'(S | A) + delta) + P(not A) <= exp(epsilon) P'(S) + delta + T LATE

for T releases on Poisson samples: `LATE` is added to delta for each, with no factor. How many steps of a round are
taken may depend on earlier answers, but is fixed before coins are tossed: given these answers, so is the probability p
of A for one release, common to both data sets, and p P and p P' are no further apart than P and P'.

**A person with several rows** differs in as many slots. Given A and the other slots, the number of these in a sample is
a binomial number given that it is at most what is left of K. That is at most a binomial one in distribution, also given
that both are at least 1, and what dominates grows with the number (`group_pairs`: monotone in the rate; for `Coins`, as
the g_k do, and as divergences do in the weight of what is not common). Where epsilon is m times that of a row, rows
change one by one. Again a release is dominated as planned, and P(A) is common to both.

Samples of a fixed size cost nothing. An owner's budget sets `SET_ASIDE` of its delta aside for all releases ever
(`without_late`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import betainc

from gossamer.arrays import IndexArray
from gossamer.errors import SpecError, real_number, whole_number


@dataclass(frozen=True)
class BatchSampling:
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
class Poisson(BatchSampling):
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
class _Sized(BatchSampling):
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


LATE = 2.0**-80
"""Most probability of a sample that is larger than its deadline provides for."""
SET_ASIDE = 2.0**-40
"""Of an owner's delta, for answers that are late: enough for 2^40 releases."""
LEAST = 2.0**-50
"""Of an owner's delta that is taken: half of a smaller one is not enough for 2^29 releases."""

PUBLIC_TIMES = (
    "how many examples were sampled does not show in when messages are sent: every answer is computed on as many as "
    "all but unlikely samples have, which delta counts, and goes at a multiple of a public deadline; none is taken to "
    "miss it because of what is in the examples, and crashes are not covered"
)
OPEN_TIMES = (
    "the timing of messages is not covered: an answer goes as soon as it is computed, and may tell how many examples "
    "were sampled; neither are crashes"
)


def provided_for(sampling: BatchSampling, count: int, until: int = 1, steps: int = 1) -> int:
    """The most examples whose turn comes in a release, but for a probability of `LATE`: a public number.

    Parameters
    ----------
    sampling : BatchSampling
        Way in which a batch is drawn.
    count : int
        Examples of the shard.
    until, steps : int
        Number of a round's steps that are taken, and of all its steps. Each example's turn comes at one of them.
    """
    if (size := getattr(sampling, "batch_size", None)) is not None:
        return -(-int(size) * until // steps)
    rate, low, high = sampling.rate * (until / steps), 0, count
    while low < high:
        middle = (low + high) // 2
        # The probability that a binomial number is larger; half of what is allowed, so that rounding cannot matter.
        if rate == 0 or betainc(middle + 1, count - middle, rate) <= LATE / 2:
            high = middle
        else:
            low = middle + 1
    return low


def without_late(delta: float) -> float:
    """Return the part of an owner's ``delta`` that is left for what is released; of a tiny one it is half."""
    return delta - min(SET_ASIDE, delta / 2)
