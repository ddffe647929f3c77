"""A release as data: which noise law, on which sample. Accounting happens elsewhere.

A *mechanism* is a noise law. It knows the L2 clip of what it is added to, so its sensitivity follows from the clip and
the neighbouring relation and is never typed in. It is added to a *sum* of clipped per-example vectors.

| mechanism | noise on the sum | one release, full batch, sensitivity S |
|---|---|---|
| `Gaussian(clip, noise_multiplier)` | N(0, (noise_multiplier clip)^2 I) | Gaussian mechanism, sd/S |
| `BallGaussian(clip, noise_multiplier)` | the same, on a sum that is clipped as a whole | the same with S = clip |
| `L2Laplace(clip, epsilon, relation)` | density ~ exp(-epsilon |n| / S), norm ~ Gamma(d, S/epsilon) | epsilon-DP |
| `Laplace(clip, scale)` | independent Laplace(scale) per coordinate | sqrt(d) S / scale-DP |
| `NoNoise(clip)` | none | no guarantee |

A *sampling scheme* draws a batch from a shard; each is paired with its accounting in `accounting.accountants`.

| scheme | a batch | proved |
|---|---|---|
| `Poisson` | every example with the same probability, independently | yes |
| `FixedSize` | so many distinct examples | yes, under replace-one |
| `WithReplacement` | so many draws, an example may come twice | no: what uses it has no guarantee |

Shuffled passes do not exist here: they are for clients that are protected whole, see `tasks.TrainingQuery`.

**A release's deadline** provides for a number of examples, and samples that have more cost something. What takes
a node time is public but for one thing: how many examples were sampled. So it hands its answers over at multiples
of a deadline, by which a sample of any usual size has long been computed (`deployment.party.data_side`), and
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

References
----------
Gamma norm: Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk minimization", JMLR
2011, section 3; an exponential norm is not epsilon-DP for d > 1. MAPA, section 7.1 ("noise is only added to the
gradient of the first convolutional layer") and its published code: `PaperNoise`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from gossamer.arrays import FloatArray, IndexArray
from gossamer.errors import (
    AccountingError,
    SpecError,
    real_number,
    require_counts,
    require_positive,
    require_whole,
    whole_number,
)
from gossamer.privacy.pairs import Full, GaussianFull, L2LaplaceFull, ResponseFull
from gossamer.protocol.encoding import frozen
from gossamer.protocol.snapshots import kept_whole


class NeighboringRelation(StrEnum):
    """Relation by which datasets are neighbours: they differ in one example."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    """One example is present or absent (read: one of n public slots is blank)."""

    REPLACE_ONE = "replace_one"
    """One example is replaced by another; the size is the same."""

    def sensitivity(self, clip: float) -> float:
        """Return how far a sum of vectors of L2 norm at most ``clip`` moves, in L2 norm, between neighbours."""
        return clip if self is NeighboringRelation.ADD_OR_REMOVE_ONE else 2.0 * clip


@dataclass(frozen=True)
class Mechanism:
    """Base of the noise laws: noise that is added to a sum of vectors of L2 norm at most ``clip``."""

    clip: float

    whole: ClassVar[bool] = False
    """Whether it is for sums that are clipped as a whole, to half of the clip."""
    private: ClassVar[bool] = True
    """Whether a release has any guarantee at all."""
    scale_free: ClassVar[bool] = True
    """Whether the noise is in proportion to the clip, so that a guarantee holds for every clip alike."""
    depends_on_size: ClassVar[bool] = True
    """Whether what it proves depends on how many coordinates get noise."""

    def __post_init__(self) -> None:
        if not real_number(self.clip) > 0:
            raise SpecError(f"clip must be a positive number, found {self.clip!r}")

    def with_clip(self, clip: float) -> Self:
        """The same law for another clip."""
        return replace(self, clip=clip)

    def unit(self) -> Mechanism:
        """The law that a guarantee depends on: one that is `scale_free` with a clip of 1, another one as it is."""
        return self.with_clip(1.0) if self.scale_free else self

    def sensitivity(self, relation: NeighboringRelation) -> float:
        """L2 sensitivity of the sum under ``relation``."""
        return NeighboringRelation(relation).sensitivity(self.clip)

    @property
    def normal(self) -> Gaussian | None:
        """The law as normal noise, which is drawn on a grid and can be split with a count; None for other laws."""
        return None

    @property
    def words(self) -> str:
        """The law in a few words."""
        return type(self).__name__

    def divided(self, count_share: float) -> tuple[Mechanism, float]:
        """The law on a sum, and the standard deviation of the noise on a count beside it; see `privacy.clipping`.

        Raises
        ------
        SpecError
            If nothing is proved of this law beside a count.
        """
        if count_share:
            raise SpecError(f"a count goes with Gaussian noise or none, found {type(self).__name__}")
        return self, 0.0

    def release_epsilon(self, relation: NeighboringRelation, size: int) -> float:
        """Pure epsilon of one full-batch release of a vector of ``size`` coordinates; infinite where it has none."""
        return math.inf

    def full(self, relation: NeighboringRelation, rows: int, size: int) -> Full:
        """The symmetric pair that dominates full-batch releases on sums that ``rows`` rows move, as far or less far.

        By default that of anything that has its pure epsilon.

        Raises
        ------
        AccountingError
            If nothing is proved of the law.
        """
        epsilon = self.release_epsilon(relation, size)
        if epsilon == math.inf:
            raise AccountingError(f"nothing is proved of {type(self).__name__} noise")
        return ResponseFull(rows * epsilon)

    numbers: ClassVar[int] = 10**9
    """Most numbers of a person's rows that an accountant tells apart, each by a pair of `full`."""

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        """One draw of the noise, [size], of ``dtype`` (float32 or float64)."""
        raise NotImplementedError

    def second_moment(self, size: int) -> float:
        """The mean squared L2 norm of the noise on a sum of ``size`` coordinates."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """The mechanism as plain data, for ledgers and summaries."""
        return {"mechanism": type(self).__name__, **asdict(self)}


@frozen("mechanism.gaussian")
class Gaussian(Mechanism):
    """Normal noise of standard deviation ``noise_multiplier * clip`` in every coordinate of the sum.

    ``noise_multiplier`` is relative to the clip under every neighbouring relation, so the same settings
    make the same noise whichever relation the guarantee is stated for.
    """

    noise_multiplier: float

    numbers: ClassVar[int] = 128
    depends_on_size: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(clip=self.clip, noise_multiplier=self.noise_multiplier)

    @property
    def standard_deviation(self) -> float:
        """The standard deviation of each coordinate of the noise on the sum."""
        return self.noise_multiplier * self.clip

    @property
    def normal(self) -> Gaussian | None:
        return self

    @property
    def words(self) -> str:
        return f"Gaussian noise (noise multiplier {self.noise_multiplier:.4g})"

    def divided(self, count_share: float) -> tuple[Mechanism, float]:
        if not count_share:
            return self, 0.0
        multiplier = self.noise_multiplier
        on_sum = replace(self, noise_multiplier=multiplier / math.sqrt(1 - count_share))
        return on_sum, multiplier / (2 * math.sqrt(count_share))

    def mu(self, relation: NeighboringRelation) -> float:
        """Sensitivity over standard deviation."""
        return self.unit().sensitivity(relation) / self.noise_multiplier

    def full(self, relation: NeighboringRelation, rows: int, size: int) -> Full:
        return GaussianFull(rows * self.mu(relation))

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        draw: FloatArray = generator.standard_normal(size, dtype=np.dtype(dtype).type)  # type: ignore[arg-type]
        draw *= self.standard_deviation
        return draw

    def second_moment(self, size: int) -> float:
        return size * self.standard_deviation**2


@frozen("mechanism.paired_gaussian")
class PairedGaussian(Gaussian):
    """Normal noise that a node draws in part alone, and in part with each neighbour: one adds it, one takes it off.

    ``noise_multiplier`` is what of it even somebody does not know who is told all other nodes' noise, but no draw that
    two share. A guarantee depends on that alone; see `gossamer.algorithms.paired_noise`. ``own`` and ``shared`` are
    the standard deviations of a node's own draw and of each that it shares, over that.
    """

    own: float
    shared: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(own=self.own, shared=self.shared)

    def unit(self) -> Mechanism:
        return Gaussian(1.0, self.noise_multiplier)

    @property
    def normal(self) -> None:
        return None

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        return self.part(self.own).noise(generator, size, dtype)

    def part(self, share: float) -> Gaussian:
        """The law of a draw of which the standard deviation is a ``share`` of what counts."""
        return Gaussian(self.clip, self.noise_multiplier * share)


@frozen("mechanism.ball_gaussian")
class BallGaussian(Gaussian):
    """Normal noise on a sum that is clipped *as a whole*, to ``clip / 2``: rounds of the kind ``clipped_sum``.

    Any two points of a ball of radius clip/2 are at most ``clip`` apart. That is the sensitivity under every relation:
    an example that is replaced moves such a sum no further than one that comes or goes.
    """

    whole: ClassVar[bool] = True

    def sensitivity(self, relation: NeighboringRelation) -> float:
        return self.clip

    def full(self, relation: NeighboringRelation, rows: int, size: int) -> Full:
        return super().full(relation, 1, size)


@dataclass(frozen=True)
class RadialNoise(Mechanism):
    """Base of noise in a uniform direction, with a norm of a Gamma law of the `scale` S / epsilon.

    S is the sensitivity of the sum under ``relation``.
    """

    epsilon: float
    relation: NeighboringRelation

    private: ClassVar[bool] = False  # by itself; a law says what is proved of it

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "relation", NeighboringRelation(self.relation))  # decoded, it is a bare string
        require_positive(clip=self.clip, epsilon=self.epsilon)

    @property
    def scale(self) -> float:
        """S / epsilon, the scale of the noise's norm."""
        return self.sensitivity(self.relation) / self.epsilon

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        direction = generator.standard_normal(self.noised(size))
        norm = generator.gamma(self.shape(size), self.scale)
        draw = np.zeros(size, dtype)
        draw[: direction.size] = direction * (norm / np.linalg.norm(direction))
        return draw

    def noised(self, size: int) -> int:
        """Number of coordinates of a sum of ``size`` that get noise, the first ones."""
        return size

    def shape(self, size: int) -> int:
        """Shape of the Gamma law of the noise's norm."""
        return self.noised(size)

    def second_moment(self, size: int) -> float:
        return self.shape(size) * (self.shape(size) + 1) * self.scale**2


@frozen("mechanism.l2_laplace")
class L2Laplace(RadialNoise):
    """Noise with density proportional to exp(-epsilon |n|_2 / S): epsilon-DP per full-batch release.

    The direction is uniform on the sphere and the norm is Gamma(shape d, scale S/epsilon), with S the
    sensitivity of the sum under ``relation``.
    """

    private: ClassVar[bool] = True
    numbers: ClassVar[int] = 24  # each takes a table of its own

    @property
    def words(self) -> str:
        return f"L2-Laplace noise (epsilon {self.epsilon:.4g} a full-batch release)"

    def release_epsilon(self, relation: NeighboringRelation, size: int = 1) -> float:
        return self.sensitivity(relation) / self.scale

    def full(self, relation: NeighboringRelation, rows: int, size: int) -> Full:
        return L2LaplaceFull(rows * self.release_epsilon(relation), size)


@frozen("mechanism.laplace")
class Laplace(Mechanism):
    """Independent Laplace noise of ``scale`` on every coordinate.

    The sum is clipped in L2 norm, so its L1 sensitivity is at most sqrt(d) times the L2 one.
    """

    scale: float

    scale_free: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(clip=self.clip, scale=self.scale)

    def release_epsilon(self, relation: NeighboringRelation, size: int) -> float:
        return math.sqrt(size) * self.sensitivity(relation) / self.scale

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        return generator.laplace(0.0, self.scale, size).astype(dtype)

    def second_moment(self, size: int) -> float:
        return 2 * size * self.scale**2


@frozen("mechanism.none")
class NoNoise(Mechanism):
    """Nothing is added and nothing is guaranteed."""

    clip: float = math.inf

    private: ClassVar[bool] = False
    depends_on_size: ClassVar[bool] = False

    @property
    def words(self) -> str:
        return "no noise"

    def divided(self, count_share: float) -> tuple[Mechanism, float]:
        return self, 0.0

    def describe(self) -> dict[str, Any]:
        return {"mechanism": "NoNoise", "clip": self.clip if math.isfinite(self.clip) else None}

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        return np.zeros(size, dtype)

    def second_moment(self, size: int) -> float:
        return 0.0


@frozen("mechanism.paper_noise")
class PaperNoise(RadialNoise):
    """The noise of MAPA's published experiments, which guarantees nothing: every run with it ends with that.

    - An *exponential* norm in place of `L2Laplace`'s Gamma(d) is not epsilon-DP for d > 1: its density is proportional
      to ``exp(-epsilon |n| / S) |n|^(1-d)``, unbounded at 0, so two neighbours are told apart with certainty in the
      limit of small noise.
    - Noise on the *first layer* alone leaves the gradients of all other layers exact, and they come from the same data.

    Attributes
    ----------
    epsilon : float
        Epsilon that the paper calls the privacy of one release.
    relation : NeighboringRelation
        Relation under which the sensitivity S is taken.
    norm : {"gamma", "exponential"}
        Law of the noise's norm: Gamma(coordinates, S/epsilon), or exponential of mean S/epsilon.
    coordinates : int
        Number of leading coordinates that are noised; 0 is all.
    """

    norm: Literal["gamma", "exponential"] = "exponential"
    coordinates: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(coordinates=self.coordinates)

    @property
    def words(self) -> str:
        return f"noise whose norm is {self.norm} (epsilon {self.epsilon:.4g} a release, which is not proved)"

    def noised(self, size: int) -> int:
        return min(self.coordinates, size) if self.coordinates else size

    def shape(self, size: int) -> int:
        return super().shape(size) if self.norm == "gamma" else 1  # an exponential law is the Gamma law of shape 1


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


@frozen("sampling.poisson")
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

    def __post_init__(self) -> None:
        require_counts(dataset_size=self.dataset_size, batch_size=self.batch_size)

    def _check(self, count: int) -> None:
        if count != self.dataset_size:
            raise SpecError(f"the shard holds {count} examples, but its sampling says {self.dataset_size}")

    def _check_steps(self, drawn: int, steps: int) -> None:
        if drawn != steps:
            raise SpecError(f"a round takes one step for each example of a fixed batch, found {steps} for {drawn}")


@frozen("sampling.fixed_size")
class FixedSize(_Sized):
    """``batch_size`` distinct examples of ``dataset_size``, uniformly."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size > self.dataset_size:
            raise SpecError(f"a batch has at most {self.dataset_size} distinct examples, found {self.batch_size}")

    @property
    def rate(self) -> float:
        return self.batch_size / self.dataset_size

    def draw(self, generator: np.random.Generator, count: int) -> IndexArray:
        self._check(count)
        return np.sort(generator.choice(count, self.batch_size, replace=False, shuffle=False)).astype(np.int64)

    def slots(self, generator: np.random.Generator, drawn: int, steps: int) -> IndexArray:
        self._check_steps(drawn, steps)
        return generator.permutation(drawn)


@frozen("sampling.with_replacement")
class WithReplacement(_Sized):
    """``batch_size`` independent draws, each uniform among ``dataset_size`` examples; no accountant knows it.

    Examples stand in the order in which they were drawn, which is that of the steps of a round.
    """

    proved: ClassVar[bool] = False

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


@kept_whole
@dataclass(frozen=True)
class ReleaseKind:
    """One kind of release. Several queries answered from one sample are one release.

    Attributes
    ----------
    mechanism : Mechanism
        The noise law; its `unit` where it is in proportion to the clip, which may then change from one release to the
        next.
    sampling : BatchSampling
        Way in which the batch was drawn.
    size : int
        Number of coordinates that get noise; it matters to the Laplace laws.

    Raises
    ------
    SpecError
        If the size is no whole number.
    """

    mechanism: Mechanism
    sampling: BatchSampling
    size: int

    def __post_init__(self) -> None:
        require_whole(size=self.size)

    def __hash__(self) -> int:
        """Hash of the fields, computed once: ledgers look a kind up at every charge."""
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            found = hash((self.mechanism, self.sampling, self.size))
            object.__setattr__(self, "_hash", found)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: strings have other hashes in other processes."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def describe(self) -> dict[str, Any]:
        """The kind as plain data, for ledgers and summaries."""
        found: dict[str, Any] | None = self.__dict__.get("_described")
        if found is None:
            law = self.mechanism.describe()
            if self.mechanism.scale_free:
                del law["clip"]
            found = {**law, **self.sampling.describe(), "size": self.size}
            object.__setattr__(self, "_described", found)  # a large population has one kind, and many ledgers
        return dict(found)


Counts = Mapping[ReleaseKind, int]
"""How many releases of each kind."""


def checked_counts(counts: Counts) -> dict[ReleaseKind, int]:
    """``counts`` as integers. A count below 0 would pay for other releases.

    Raises
    ------
    AccountingError
        If one is not a number of releases.
    """
    found = {}
    for kind, count in counts.items():
        number = whole_number(count)
        if number is None:
            raise AccountingError(f"a count of releases is a whole number, 0 or more; found {count!r} of {kind}")
        found[kind] = number
    return found


def added(counts: Counts, more: Counts) -> dict[ReleaseKind, int]:
    """Counts of both together."""
    return {kind: counts.get(kind, 0) + more.get(kind, 0) for kind in {**counts, **more}}
